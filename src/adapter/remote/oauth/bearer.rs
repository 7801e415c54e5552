//! Sends HTTP requests with access tokens.

use std::{
    io,
    sync::{Arc, PoisonError, RwLock},
};

use http::StatusCode;
use rmcp::{
    model::{ClientJsonRpcMessage, GetExtensions, JsonRpcMessage},
    transport::streamable_http_client::StreamableHttpError,
};

use super::{token_error::TokenError, token_source::TokenSource};

type Error = StreamableHttpError<reqwest::Error>;

/// The token source of a connection, which provides the access token for each message. Clones share
/// the token source. It can be replaced by another one.
#[derive(Clone)]
pub(in crate::adapter::remote) struct Bearer(Arc<RwLock<Arc<TokenSource>>>);

/// The token source of a single request. It is stored in the extensions of the request, and takes
/// precedence over the token source of the connection.
#[derive(Clone)]
pub(super) struct RequestToken(pub(super) Arc<TokenSource>);

// === impl Bearer ===

impl Bearer {
    pub(in crate::adapter::remote) fn new(source: Arc<TokenSource>) -> Self {
        Self(Arc::new(RwLock::new(source)))
    }

    /// Returns the connection's token source. It is used for messages that do not belong to a
    /// request.
    pub(in crate::adapter::remote) fn source(&self) -> Arc<TokenSource> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the token source for a message: that of the request if it has its own, and otherwise
    /// that of the connection.
    pub(in crate::adapter::remote) fn source_of(
        &self,
        message: &ClientJsonRpcMessage,
    ) -> Arc<TokenSource> {
        let own = match message {
            JsonRpcMessage::Request(request) => request.request.extensions().get::<RequestToken>(),
            _ => None,
        };
        own.map_or_else(|| self.source(), |RequestToken(source)| source.clone())
    }

    pub(super) fn replace(&self, source: Arc<TokenSource>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = source;
    }
}

/// Sends an HTTP request with an access token from `source`, or without a token if `source` is
/// `None`.
///
/// If the server rejects the token with the status 401, sends the request once more with a new
/// token. This is safe, because the server has not processed the rejected request.
pub(in crate::adapter::remote) async fn authorized<R, T, F>(
    source: Option<Arc<TokenSource>>,
    request: R,
    send: impl Fn(R, Option<String>) -> F,
) -> Result<T, Error>
where
    R: Clone,
    F: Future<Output = Result<T, Error>>,
{
    let Some(source) = source else { return send(request, None).await };
    let token = source.token().await.map_err(unauthorized)?;
    match send(request.clone(), Some(token.to_string())).await {
        Err(error) if is_rejection(&error) => {
            source.reject(&token);
            let token = source.token().await.map_err(unauthorized)?;
            send(request, Some(token.to_string())).await
        }
        sent => sent,
    }
}

fn unauthorized(error: TokenError) -> Error {
    Error::Io(io::Error::other(error))
}

/// Returns `true` if the server rejected a request with the status 401.
fn is_rejection(error: &Error) -> bool {
    match error {
        Error::AuthRequired(_) => true,
        Error::Client(error) => error.status() == Some(StatusCode::UNAUTHORIZED),
        // rmcp returns this error for a response with the status 401 but without the header
        // `WWW-Authenticate`.
        Error::UnexpectedServerResponse(text) => text.starts_with("HTTP 401"),
        _ => false,
    }
}
