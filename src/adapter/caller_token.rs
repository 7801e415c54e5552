//! The bearer token of an authenticated caller.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

/// The verified bearer token of an [`AuthenticatedCaller`](super::AuthenticatedCaller).
///
/// If a backend uses a [token exchange](super::remote::oauth::TokenExchange), insert a
/// `CallerToken` into the extensions of each HTTP request, in addition to the
/// [`AuthenticatedCaller`](super::AuthenticatedCaller). The token is sent only to the authorization
/// server, never to a backend. If no backend uses a token exchange, do not insert the token.
///
/// The `Debug` output of a `CallerToken` does not contain the token.
///
/// # Examples
///
/// ```
/// use mcp_composite::adapter::{AuthenticatedCaller, CallerToken};
///
/// // … after the token of the request was verified:
/// let mut request = http::Request::new("the body");
/// request.extensions_mut().insert(AuthenticatedCaller::new("alice"));
/// request.extensions_mut().insert(CallerToken::new("hunter2"));
///
/// assert!(!format!("{:?}", CallerToken::new("hunter2")).contains("hunter2"));
/// ```
#[derive(Clone)]
pub struct CallerToken {
    value: Arc<str>,
    expires: Option<Instant>,
}

// === impl CallerToken ===

impl CallerToken {
    /// Creates a token with this value, which is the text after `Bearer` in the `Authorization`
    /// header.
    pub fn new(value: impl Into<Arc<str>>) -> Self {
        Self { value: value.into(), expires: None }
    }

    /// Sets the time at which the token expires. Access tokens that were obtained in exchange for
    /// this token are not used after this time, even if they are still valid. Defaults to no
    /// expiry.
    #[must_use]
    pub fn expires_at(self, expires: SystemTime) -> Self {
        let left = expires.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO);
        Self { expires: Instant::now().checked_add(left), ..self }
    }

    pub(in crate::adapter) fn value(&self) -> &str {
        &self.value
    }

    pub(in crate::adapter) const fn expires(&self) -> Option<Instant> {
        self.expires
    }
}

impl fmt::Debug for CallerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerToken").field("expires", &self.expires).finish_non_exhaustive()
    }
}
