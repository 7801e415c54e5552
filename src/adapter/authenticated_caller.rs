//! The verified identity of the caller of an HTTP request.

use std::{fmt, sync::Arc};

/// The name of the caller of an HTTP request, after the server has verified the caller's identity,
/// for example with a token.
///
/// The server inserts an `AuthenticatedCaller` into the extensions of the HTTP request before it
/// passes the request to rmcp's `StreamableHttpService`. If a configuration file has an `[auth]`
/// section, the configured layers identify callers by this name. Clients cannot change the name
/// with a header.
///
/// # Examples
///
/// ```
/// use mcp_composite::adapter::AuthenticatedCaller;
///
/// // … after the token of the request was verified:
/// let mut request = http::Request::new("the body");
/// request.extensions_mut().insert(AuthenticatedCaller::new("alice"));
///
/// let caller = request.extensions().get::<AuthenticatedCaller>();
/// assert_eq!(caller.map(AuthenticatedCaller::name), Some("alice"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthenticatedCaller(Arc<str>);

// === impl AuthenticatedCaller ===

impl AuthenticatedCaller {
    /// Creates a caller with the given name, for example the subject claim of a verified token.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the name of the caller.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AuthenticatedCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
