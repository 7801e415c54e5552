//! Access tokens for servers over HTTP, from an OAuth authorization server.
//!
//! With [`OAuth::ClientCredentials`], all requests to a server have one token, which belongs to
//! this program ([RFC 6749, section 4.4]).
//!
//! A token is requested before the first connection, and kept until shortly before it expires. If
//! the server rejects a token with the status 401, the token is dropped, and the request is sent
//! once more with a new token. Concurrent requests wait for the same new token.
//!
//! Requests to the token endpoint have a timeout of ten seconds, and their answers may have at most
//! 64 KiB. Redirects are not followed. If no token is issued, the attempt to connect fails, and is
//! repeated after a delay like any other.
//!
//! [RFC 6749, section 4.4]: https://www.rfc-editor.org/rfc/rfc6749#section-4.4

mod access_token;
mod bearer_client;
mod client;
mod endpoint;
mod grant;
mod token_error;
mod token_source;

pub use self::client::OAuthClient;
pub(super) use self::{
    bearer_client::{Bearer, BearerClient},
    endpoint::TokenEndpoint,
    grant::Grant,
    token_source::TokenSource,
};

/// How the access tokens for a server are obtained.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OAuth {
    /// All requests have one token, which belongs to this program.
    ClientCredentials(OAuthClient),
}
