//! An HTTP client that sends an access token with each request.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, PoisonError, RwLock},
};

use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue, StatusCode};
use rmcp::{
    model::{ClientJsonRpcMessage, GetExtensions, JsonRpcMessage},
    transport::streamable_http_client::{
        StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
        StreamableHttpResponseLimits,
    },
};
use sse_stream::{Error as SseError, Sse};

use super::{token_error::TokenError, token_source::TokenSource};

type Error = StreamableHttpError<reqwest::Error>;

/// An HTTP client for streamable HTTP that sends an access token with each request.
///
/// If the server rejects a token with the status 401, the request is sent once more with a new
/// token. This is safe, because the server has not processed the rejected request.
#[derive(Clone)]
pub(in crate::adapter::remote) struct BearerClient<C> {
    client: C,
    bearer: Bearer,
}

/// The token source of a connection, which provides the access token for each message. Clones share
/// the token source. It can be replaced by another one.
#[derive(Clone, Debug)]
pub(in crate::adapter::remote) struct Bearer(Arc<RwLock<Arc<TokenSource>>>);

/// The token source of a single request. It is stored in the extensions of the request, and takes
/// precedence over the token source of the connection.
#[derive(Clone, Debug)]
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

    pub(super) fn replace(&self, source: Arc<TokenSource>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = source;
    }
}

// === impl BearerClient ===

impl<C> BearerClient<C> {
    pub(in crate::adapter::remote) const fn new(client: C, bearer: Bearer) -> Self {
        Self { client, bearer }
    }

    /// Returns the token source for a message: that of the request if it has its own, and otherwise
    /// that of the connection.
    fn source_of(&self, message: &ClientJsonRpcMessage) -> Arc<TokenSource> {
        let own = match message {
            JsonRpcMessage::Request(request) => request.request.extensions().get::<RequestToken>(),
            _ => None,
        };
        own.map_or_else(|| self.bearer.source(), |RequestToken(source)| source.clone())
    }
}

/// Sends an HTTP request with an access token from `source`. If the server rejects the token, sends
/// the request once more with a new token.
async fn authorized<T, F>(
    source: Arc<TokenSource>,
    mut send: impl FnMut(Option<String>) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let token = source.token().await.map_err(unauthorized)?;
    match send(Some(token.to_string())).await {
        Err(error) if is_rejection(&error) => {
            source.reject(&token);
            let token = source.token().await.map_err(unauthorized)?;
            send(Some(token.to_string())).await
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

impl<C> StreamableHttpClient for BearerClient<C>
where
    C: StreamableHttpClient<Error = reqwest::Error> + Sync,
{
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        authorized(self.source_of(&message), |token| {
            let (uri, message, session_id) = (uri.clone(), message.clone(), session_id.clone());
            self.client.post_message(uri, message, session_id, token, custom_headers.clone())
        })
        .await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Error> {
        authorized(self.source_of(&message), |token| {
            self.client.post_message_with_response_limits(
                uri.clone(),
                message.clone(),
                session_id.clone(),
                token,
                custom_headers.clone(),
                limits,
            )
        })
        .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Error> {
        authorized(self.bearer.source(), |token| {
            let (uri, session_id) = (uri.clone(), session_id.clone());
            self.client.delete_session(uri, session_id, token, custom_headers.clone())
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Error> {
        authorized(self.bearer.source(), |token| {
            let (uri, session_id, last) = (uri.clone(), session_id.clone(), last_event_id.clone());
            self.client.get_stream(uri, session_id, last, token, custom_headers.clone())
        })
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Error> {
        authorized(self.bearer.source(), |token| {
            self.client.get_stream_with_max_sse_event_size(
                uri.clone(),
                session_id.clone(),
                last_event_id.clone(),
                token,
                custom_headers.clone(),
                max_sse_event_size,
            )
        })
        .await
    }
}
