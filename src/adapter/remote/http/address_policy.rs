//! Rejects the addresses of cloud metadata services, against server-side request forgery (SSRF).

use std::{net::SocketAddr, sync::Arc};

use reqwest::{
    Client, ClientBuilder, Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use tokio::net::lookup_host;

use crate::url::{REASON_OF_METADATA_ADDRESS, is_metadata_address, literal_address};

/// Returns a builder of HTTP clients that refuse connections to host names that resolve to a
/// [metadata address](is_metadata_address), such as `169.254.169.254`.
///
/// The clients do not check addresses that are literally in a URL, so the caller must also
/// [`check`] the URL. If the environment configures a proxy, the proxy resolves the names.
pub(in crate::adapter::remote) fn client_builder() -> ClientBuilder {
    Client::builder().dns_resolver(Arc::new(PolicyResolver))
}

/// Checks that the host of a URL is not a literal metadata address.
///
/// # Errors
///
/// Returns an error message for clients and logs if the host is a metadata address, such as
/// `169.254.169.254`.
pub(in crate::adapter::remote) fn check(url: &str) -> Result<(), String> {
    // `reqwest` reads addresses such as `0xa9fea9fe` and `2852039166`, too. An invalid URL fails
    // in the request.
    let Ok(url) = Url::parse(url) else { return Ok(()) };
    match url.host_str().and_then(literal_address) {
        Some(address) if is_metadata_address(address) => {
            Err(format!("connection to {address} refused: {REASON_OF_METADATA_ADDRESS}"))
        }
        _ => Ok(()),
    }
}

/// Resolves names as the operating system does, and omits metadata addresses from the result.
///
/// The addresses are checked for each connection, so that a name cannot change to a metadata
/// address after a check.
struct PolicyResolver;

impl Resolve for PolicyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The client replaces the port.
            let addresses = lookup_host((name.as_str(), 0)).await?;
            Ok(allowed(name.as_str(), addresses)?)
        })
    }
}

/// Returns the addresses of `host` to which connections are allowed.
///
/// # Errors
///
/// Returns an error if `host` has only metadata addresses.
fn allowed(host: &str, addresses: impl Iterator<Item = SocketAddr>) -> Result<Addrs, String> {
    let (rejected, allowed): (Vec<_>, Vec<_>) =
        addresses.partition(|address| is_metadata_address(address.ip()));
    match rejected.first() {
        Some(address) if allowed.is_empty() => Err(format!(
            "connection to `{host}` refused: it resolves to {}, {REASON_OF_METADATA_ADDRESS}",
            address.ip()
        )),
        _ => Ok(Box::new(allowed.into_iter())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = "169.254.169.254:0";
    const SERVER: &str = "10.0.0.7:0";

    fn resolved(addresses: &[&str]) -> Result<Vec<String>, String> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap());
        Ok(allowed("a.example", addresses)?.map(|address| address.to_string()).collect())
    }

    #[test]
    fn metadata_addresses_of_a_name_are_omitted() {
        assert_eq!(resolved(&[METADATA, SERVER]).unwrap(), [SERVER]);
        assert_eq!(resolved(&[]).unwrap(), [""; 0]);
        let error = resolved(&[METADATA, "[fe80::1]:0"]).unwrap_err();
        assert!(error.contains("`a.example` refused: it resolves to 169.254.169.254,"), "{error}");
    }

    #[test]
    fn literal_metadata_addresses_are_rejected_in_every_notation() {
        for host in [
            "169.254.169.254",
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "[::ffff:169.254.169.254]",
            "[fd00:ec2::254]",
            "user@169.254.1.1:8080",
        ] {
            let error = check(&format!("http://{host}/mcp")).unwrap_err();
            assert!(error.contains("refused"), "{host}: {error}");
        }
        for host in ["127.0.0.1", "[::1]", "10.0.0.7", "localhost", "169.254.169.254.example"] {
            assert_eq!(check(&format!("http://{host}/mcp")), Ok(()), "{host}");
        }
    }

    #[tokio::test]
    async fn names_of_this_machine_are_resolved() {
        let name = "localhost".parse().unwrap();
        let addresses: Vec<_> = PolicyResolver.resolve(name).await.unwrap().collect();
        assert!(
            !addresses.is_empty() && addresses.iter().all(|address| address.ip().is_loopback())
        );
    }
}
