//! The log of rejected tokens.

use std::time::Duration;

use super::verification::Rejection;
use crate::log_limit::LogLimit;

/// The minimum time between two log messages about rejected tokens. A client without a valid token
/// must not be able to fill the log.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// The log of rejected tokens.
pub(super) struct RejectionLog(LogLimit);

// === impl RejectionLog ===

impl RejectionLog {
    /// Logs why a request was rejected. Requests without a token are not logged: clients send them
    /// to find the authorization server.
    pub(super) fn log(&self, rejection: &Rejection) {
        let reason = match rejection {
            Rejection::NoToken => return,
            Rejection::Malformed => "the header `Authorization` is malformed",
            Rejection::InvalidToken(reason) => reason,
            Rejection::InsufficientScope(caller) => {
                tracing::debug!(caller, "a bearer token lacks a scope");
                "the token lacks a required scope"
            }
        };
        if let Some(end) = self.0.admit() {
            tracing::info!("a bearer token was rejected: {reason}{end}");
        }
    }
}

impl Default for RejectionLog {
    fn default() -> Self {
        Self(LogLimit::new(LOG_PAUSE))
    }
}
