//! Logs requests that are rejected because of their `Host` or `Origin` header, which protects
//! against DNS rebinding.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header, uri::Authority},
    middleware::{Next, from_fn_with_state},
    response::Response,
};

use crate::log_limit::LogLimit;

/// The minimum time between two log messages about rejected requests.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// The maximum number of characters of a header that are logged.
const MAX_SHOWN: usize = 200;

/// The log of rejected requests.
struct RejectionLog {
    allowed_hosts: Vec<String>,
    limit: LogLimit,
}

/// Adds the log of rejected requests to the endpoints of MCP, which answer with the status 403 only
/// because of these headers.
pub(crate) fn log<'h>(endpoints: Router, allowed_hosts: impl Iterator<Item = &'h str>) -> Router {
    let allowed_hosts = allowed_hosts.map(str::to_owned).collect();
    let log = RejectionLog { allowed_hosts, limit: LogLimit::new(LOG_PAUSE) };
    endpoints.layer(from_fn_with_state(Arc::new(log), observe))
}

async fn observe(State(log): State<Arc<RejectionLog>>, request: Request, next: Next) -> Response {
    let [host, origin] =
        [header::HOST, header::ORIGIN].map(|name| request.headers().get(name).cloned());
    let response = next.run(request).await;
    if response.status() == StatusCode::FORBIDDEN {
        log.rejected(host.as_ref(), origin.as_ref());
    }
    response
}

// === impl RejectionLog ===

impl RejectionLog {
    fn rejected(&self, host: Option<&HeaderValue>, origin: Option<&HeaderValue>) {
        let Some(end) = self.limit.admit() else { return };
        let value = |value: &HeaderValue| excerpt(value.as_bytes());
        let authority = host.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
        match authority {
            Some(used) if !self.allowed_hosts.iter().any(|allowed| is_same(allowed, &used)) => {
                let name = excerpt(used.host().as_bytes());
                tracing::warn!(
                    "rejected a request with the header `Host: {}`: if clients or a proxy use \
                     this name, add `--allow-host {name}`{end}",
                    host.map(value).unwrap_or_default(),
                );
            }
            _ => tracing::warn!(
                "rejected a request with the header `Origin: {}`: if this web page may connect, \
                 add its origin with `--allow-origin`{end}",
                origin.map(value).unwrap_or_default(),
            ),
        }
    }
}

/// Returns `true` if an allowed host, such as `localhost` or `gateway:8080`, is the host of a
/// request.
fn is_same(allowed: &str, host: &Authority) -> bool {
    let normalized = |name: &str| name.trim_matches(['[', ']']).to_ascii_lowercase();
    let (name, port) = match allowed.parse::<Authority>() {
        Ok(allowed) => (normalized(allowed.host()), allowed.port_u16()),
        Err(_) => (normalized(allowed), None),
    };
    name == normalized(host.host()) && port.is_none_or(|port| host.port_u16() == Some(port))
}

/// Returns the value of a header for the log: truncated, and without control characters.
fn excerpt(value: &[u8]) -> String {
    String::from_utf8_lossy(value).escape_default().take(MAX_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_compared_like_the_server_does() {
        for (allowed, host, expected) in [
            ("localhost", "localhost", true),
            ("localhost", "LOCALHOST:8080", true),
            ("::1", "[::1]:8080", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("gateway:8080", "gateway:8080", true),
            ("gateway:8080", "gateway", false),
            ("gateway:8080", "gateway:80", false),
            ("localhost", "localhost.example.com", false),
        ] {
            assert_eq!(is_same(allowed, &host.parse().unwrap()), expected, "{allowed} {host}");
        }
    }

    #[test]
    fn header_in_the_log_is_short_and_has_no_control_characters() {
        let long = format!("a\u{1b}[2J\r\nb{}", "c".repeat(1000));
        let excerpt = excerpt(long.as_bytes());
        assert!(excerpt.starts_with("a\\u{1b}[2J\\r\\nbccc"), "{excerpt}");
        assert_eq!(excerpt.len(), MAX_SHOWN);
    }
}
