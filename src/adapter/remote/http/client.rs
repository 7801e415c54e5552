//! An HTTP client that sends access tokens, and that waits before it reopens an event stream.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::stream::{BoxStream, StreamExt};
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::redirect::Policy;
use rmcp::{
    model::ClientJsonRpcMessage,
    transport::streamable_http_client::{
        StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
        StreamableHttpResponseLimits,
    },
};
use sse_stream::{Error as SseError, Sse};
use tokio::time::sleep;
use tower::BoxError;

use super::address_policy;
use crate::adapter::{
    line_transport::replace_large,
    remote::oauth::{Bearer, TokenSource, authorized},
};

/// The minimum pause before an event stream is reopened. A shorter pause in the `retry` field of an
/// event is ignored.
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum pause that a server can demand in the `retry` field of an event. During the pause,
/// rmcp receives no messages on the stream.
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);
/// The time after which an unused TCP connection to the server is closed.
///
/// Servers close idle connections after a few seconds: Gunicorn after two, Node.js and Uvicorn
/// after five. A request that is sent at that moment fails, and a tool call cannot be repeated
/// safely. Therefore, this client closes idle connections before the server does.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_REDIRECTS: usize = 10;

/// An HTTP client for streamable HTTP that waits before it reopens an event stream. If it has a
/// [`Bearer`], it sends an access token with each request.
///
/// rmcp reopens an ended stream after the `retry` time that the server sets, and a failed stream
/// immediately. Without the pause, a server could cause thousands of connections by ending its
/// streams. Each stream has a separate pause.
#[derive(Clone)]
pub(super) struct HttpClient {
    client: reqwest::Client,
    bearer: Option<Bearer>,
}

type Events = BoxStream<'static, Result<Sse, SseError>>;
type Error = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

// === impl HttpClient ===

impl HttpClient {
    /// Creates a client for requests to `url`.
    ///
    /// # Errors
    ///
    /// Returns an error if connections to the address in `url` are forbidden, or if the client
    /// cannot be created.
    pub(super) fn new(url: &str, bearer: Option<Bearer>) -> Result<Self, BoxError> {
        address_policy::check(url)?;
        let client = address_policy::client_builder().pool_idle_timeout(IDLE_TIMEOUT);
        Ok(Self { client: client.redirect(within_origin()).build()?, bearer })
    }

    /// Returns the token source of the connection, for messages that do not belong to a request.
    fn source(&self) -> Option<Arc<TokenSource>> {
        self.bearer.as_ref().map(Bearer::source)
    }
}

// The token that rmcp passes is always `None`, because the configuration of the transport sets no
// `auth_header`. Tokens come from the `Bearer`, and a fixed `Authorization` header is in `headers`.
impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        none: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, none, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let source = self.bearer.as_ref().map(|bearer| bearer.source_of(&message));
        let request = (uri, message, session, headers);
        let sent = authorized(source, request, |(uri, message, session, headers), token| {
            let client = &self.client;
            client.post_message_with_response_limits(uri, message, session, token, headers, limits)
        });
        sent.await.map(unhurried_response)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), Error> {
        let request = (uri, session, headers);
        let sent = authorized(self.source(), request, |(uri, session, headers), token| {
            self.client.delete_session(uri, session, token, headers)
        });
        sent.await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        none: Option<String>,
        headers: Headers,
    ) -> Result<Events, Error> {
        let max = StreamableHttpResponseLimits::default().max_sse_event_size;
        self.get_stream_with_max_sse_event_size(uri, session, last, none, headers, max).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: Headers,
        max: usize,
    ) -> Result<Events, Error> {
        let request = (uri, session, last, headers);
        let opened = authorized(self.source(), request, |(uri, session, last, headers), token| {
            let client = &self.client;
            client.get_stream_with_max_sse_event_size(uri, session, last, token, headers, max)
        });
        opened.await.map(unhurried)
    }
}

fn unhurried_response(response: StreamableHttpPostResponse) -> StreamableHttpPostResponse {
    match response {
        StreamableHttpPostResponse::Sse(events, session) => {
            StreamableHttpPostResponse::Sse(unhurried(events), session)
        }
        response => response,
    }
}

/// Clamps every `retry` time in the stream of events between [`PAUSE`] and [`LONGEST_PAUSE`].
/// Replaces responses that contain too many JSON values by errors, and drops other messages that
/// contain too many.
fn unhurried(events: Events) -> Events {
    let [shortest, longest] =
        [PAUSE, LONGEST_PAUSE].map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
    let events = events.then(move |event| async move {
        match event {
            Ok(event) => {
                let retry = event.retry.map(|retry| retry.clamp(shortest, longest));
                let large = event.data.as_deref().map(|data| replace_large(data, "the server"));
                let data = large.flatten().unwrap_or(event.data);
                Ok(Sse { retry, data, ..event })
            }
            Err(error) => {
                sleep(PAUSE).await;
                Err(error)
            }
        }
    });
    events.boxed()
}

/// Returns a redirect policy that follows only redirects that keep the method, the body and the
/// origin. A redirect to another origin would send the headers to another server.
fn within_origin() -> Policy {
    Policy::custom(|attempt| {
        let keeps_body = matches!(
            attempt.status(),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
        );
        let origin = attempt.previous().first().map(|first| first.origin());
        if !keeps_body || origin != Some(attempt.url().origin()) {
            attempt.stop()
        } else if attempt.previous().len() > MAX_REDIRECTS {
            attempt.error(format!("more than {MAX_REDIRECTS} redirects"))
        } else {
            attempt.follow()
        }
    })
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test]
    async fn reconnect_pause_of_a_server_is_clamped() {
        let events = [None, Some(0), Some(30_000), Some(u64::MAX)]
            .map(|retry| Ok(Sse { retry, ..Sse::default() }));
        let events: Vec<_> = unhurried(stream::iter(events).boxed()).collect().await;
        let retries: Vec<_> = events.into_iter().map(|event| event.unwrap().retry).collect();
        assert_eq!(retries, [None, Some(1_000), Some(30_000), Some(300_000)]);
    }

    #[tokio::test]
    async fn message_with_too_many_values_is_replaced_or_dropped() {
        let many = format!("[{}0]", "0,".repeat(1 << 18));
        let texts = [
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
            format!(r#"{{"jsonrpc":"2.0","id":2,"result":{many}}}"#),
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{many}}}"#),
        ];
        let events = texts.clone().map(|data| Ok(Sse { data: Some(data), ..Sse::default() }));
        let events: Vec<_> = unhurried(stream::iter(events).boxed()).collect().await;
        let [same, error, none] = [0, 1, 2].map(|place| events[place].as_ref().unwrap());
        assert_eq!(same.data.as_ref(), Some(&texts[0]));
        let error: serde_json::Value =
            serde_json::from_str(error.data.as_deref().unwrap()).unwrap();
        let message = "the server sent an answer with more than 262144 JSON values";
        let expected = serde_json::json!({ "code": -32603, "message": message });
        assert_eq!((&error["id"], &error["error"]), (&2.into(), &expected));
        assert_eq!(none.data, None);
    }
}
