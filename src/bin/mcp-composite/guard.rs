//! Protects a listener for this machine against web pages.
//!
//! A web page of another site can send requests to this machine, and with DNS rebinding even read
//! the responses. So the name in `Host` must be one that no other site can have.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::Request,
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Scripts and styles only from files of this server, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The rules for requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    /// Whether the host may be any IP address.
    allows_addresses: bool,
}

// === impl Guard ===

impl Guard {
    pub(crate) const fn new(allows_addresses: bool) -> Self {
        Self { allows_addresses }
    }

    /// Rejects requests of other sites, and sets the headers of responses.
    pub(crate) async fn check(self, request: Request, next: Next) -> Response {
        let mut response = match self.accepts(request.headers(), request.uri().path()) {
            Ok(()) => next.run(request).await,
            Err(reason) => (StatusCode::FORBIDDEN, reason).into_response(),
        };
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
            (CACHE_CONTROL, "no-store"),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    fn accepts(self, headers: &HeaderMap, path: &str) -> Result<(), &'static str> {
        let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or(""));
        let host = text(HOST).unwrap_or("");
        if !self.accepts_host(host) {
            return Err("the host of the request is not allowed: expected http://127.0.0.1 or \
                        http://localhost, with the port\n");
        }
        let is_own = |origin: &str| origin.strip_prefix("http://") == Some(host);
        if text(ORIGIN).is_some_and(|origin| !is_own(origin)) {
            return Err("requests of other web pages are not allowed\n");
        }
        // Links from other sites may open the page.
        let site = text(HeaderName::from_static("sec-fetch-site"));
        if path != "/" && site.is_some_and(|site| site != "same-origin" && site != "none") {
            return Err("requests of other web pages are not allowed\n");
        }
        Ok(())
    }

    /// Returns whether a host, with or without a port, names this machine. No site can rebind an
    /// IP address, unlike a name.
    fn accepts_host(self, host: &str) -> bool {
        let accepts = |ip: IpAddr| ip.is_loopback() || self.allows_addresses;
        if let Ok(address) = host.parse::<SocketAddr>() {
            return accepts(address.ip());
        }
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if is_port(port) && !name.ends_with(':') => name,
            _ => host,
        };
        let ip = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        name.eq_ignore_ascii_case("localhost") || ip.parse().is_ok_and(accepts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_must_name_this_machine() {
        for (host, is_local, is_address) in [
            ("localhost", true, true),
            ("LOCALHOST:6278", true, true),
            ("127.0.0.1:6278", true, true),
            ("127.9.9.9", true, true),
            ("[::1]:6278", true, true),
            ("[::1]", true, true),
            ("192.168.0.7:6278", false, true),
            ("", false, false),
            ("localhost.example.com", false, false),
            ("example.com:6278", false, false),
            ("127.0.0.1.example.com", false, false),
            ("localhost:x", false, false),
        ] {
            assert_eq!(Guard::new(false).accepts_host(host), is_local, "{host}");
            assert_eq!(Guard::new(true).accepts_host(host), is_address, "{host}");
        }
    }

    #[test]
    fn requests_of_other_sites_are_rejected() {
        for (name, value, path, is_accepted) in [
            ("origin", "http://localhost:6278", "/api/about", true),
            ("origin", "http://localhost:8080", "/api/about", false),
            ("origin", "https://example.com", "/", false),
            ("origin", "null", "/", false),
            ("sec-fetch-site", "same-origin", "/api/events", true),
            ("sec-fetch-site", "none", "/api/events", true),
            ("sec-fetch-site", "same-site", "/api/events", false),
            ("sec-fetch-site", "cross-site", "/page.js", false),
            ("sec-fetch-site", "cross-site", "/", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("localhost:6278"));
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            let accepted = Guard::new(false).accepts(&headers, path);
            assert_eq!(accepted.is_ok(), is_accepted, "{name}: {value} {path}");
        }
    }
}
