//! Access tokens for MCP servers over HTTP, issued by an OAuth authorization server.
//!
//! With [`OAuth::ClientCredentials`], all requests to an MCP server use one access token, which is
//! issued to this program itself ([RFC 6749, section 4.4]).
//!
//! With [`OAuth::TokenExchange`], each request to an MCP server uses an access token of its caller.
//! The token is issued in exchange for the [`CallerToken`](crate::adapter::CallerToken) in the
//! extensions of the HTTP request ([RFC 8693]). The `CallerToken` itself is never sent to the
//! server. Each caller has a separate connection, which only the caller's requests use. A request
//! without a caller and its token is an error. All callers share the lists of tools, prompts and
//! resources, the subscriptions to resources, and the log level. Requests for these use a token of
//! this program.
//!
//! An access token is requested before the first connection to a server, and used until shortly
//! before it expires. If the server rejects a token with the status 401, the token is discarded,
//! and the request is sent once more with a new token. Concurrent requests wait for the same new
//! token.
//!
//! Requests to the token endpoint of an authorization server have a timeout of ten seconds, and the
//! responses may have at most 64 KiB. Redirects are not followed. If no token is issued, the
//! attempt to connect to the MCP server fails, and is repeated after a delay like any other
//! attempt.
//!
//! [RFC 6749, section 4.4]: https://www.rfc-editor.org/rfc/rfc6749#section-4.4
//! [RFC 8693]: https://www.rfc-editor.org/rfc/rfc8693

mod access_token;
mod bearer;
mod caller_pool;
mod client;
mod endpoint;
mod grant;
mod refusals;
mod token_error;
mod token_exchange;
mod token_source;

pub(super) use self::{
    bearer::{Bearer, authorized},
    caller_pool::CallerPool,
    endpoint::TokenEndpoint,
    grant::Grant,
    token_source::TokenSource,
};
pub use self::{client::OAuthClient, token_exchange::TokenExchange};

/// The method by which access tokens for an MCP server are obtained.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OAuth {
    /// All requests to the server use one access token, which is issued to this program itself.
    ClientCredentials(OAuthClient),
    /// Each request to the server uses an access token that is issued in exchange for the token of
    /// the request's caller.
    TokenExchange(TokenExchange),
}
