//! The settings of a token exchange.

use std::time::Duration;

use super::client::OAuthClient;

/// The default of [`TokenExchange::max_callers`].
const MAX_CALLERS: usize = 100;
/// The default of [`TokenExchange::idle_timeout`].
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// The settings of an OAuth token exchange ([RFC 8693]). The exchange converts each caller's token
/// to an access token for the MCP server.
///
/// [RFC 8693]: https://www.rfc-editor.org/rfc/rfc8693
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct TokenExchange {
    pub(in crate::adapter::remote) client: OAuthClient,
    pub(super) max_callers: usize,
    pub(super) idle_timeout: Duration,
}

// === impl TokenExchange ===

impl TokenExchange {
    /// Creates the settings of a token exchange with the default limits. `client` is the OAuth
    /// client that requests the access tokens.
    pub const fn new(client: OAuthClient) -> Self {
        Self { client, max_callers: MAX_CALLERS, idle_timeout: IDLE_TIMEOUT }
    }

    /// Sets the maximum number of callers that have a connection to the server at the same time.
    /// Defaults to 100.
    ///
    /// If this number is reached, a request of another caller closes the connection that has been
    /// unused for the longest time. The request fails if all connections are in use.
    pub const fn max_callers(mut self, max_callers: usize) -> Self {
        self.max_callers = max_callers;
        self
    }

    /// Sets the time after which a caller's unused connection is closed. Defaults to five minutes.
    pub const fn idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.idle_timeout = idle_timeout;
        self
    }
}
