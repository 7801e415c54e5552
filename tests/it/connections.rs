//! The limits of sessions and open requests over HTTP.

use std::{future, io, time::Duration};

use axum::body::HttpBody;
use mcp_composite::{
    adapter::{ConnectionLimit, ServeService},
    changes::Changes,
    message::{Reply, Request},
};
use rmcp::{
    model::ServerConfig,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use crate::support::soon;

/// Returns the status, session and text of the response to a request of 2025-11-25.
async fn answer<S, B>(service: S, request: http::request::Builder, body: Value) -> Answer
where
    S: Service<http::Request<String>, Response = http::Response<B>>,
    S::Error: std::fmt::Debug,
    B: HttpBody<Data = axum::body::Bytes>,
{
    send(service, request, body.to_string()).await
}

/// Like [`answer`], with any body.
async fn send<S, B, R>(service: S, request: http::request::Builder, body: R) -> Answer
where
    S: Service<http::Request<R>, Response = http::Response<B>>,
    S::Error: std::fmt::Debug,
    B: HttpBody<Data = axum::body::Bytes>,
{
    let request = request
        .header("host", "localhost")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    let response = soon(service.oneshot(request)).await.unwrap();
    let (parts, body) = response.into_parts();
    let mut body = std::pin::pin!(body);
    let frame = soon(future::poll_fn(|cx| body.as_mut().poll_frame(cx))).await;
    let text = frame.and_then(|frame| frame.ok()?.into_data().ok()).unwrap_or_default();
    Answer {
        status: parts.status.as_u16(),
        session: parts.headers.get("mcp-session-id").cloned(),
        text: String::from_utf8(text.to_vec()).unwrap(),
    }
}

struct Answer {
    status: u16,
    session: Option<http::HeaderValue>,
    text: String,
}

#[tokio::test]
async fn sessions_of_a_caller_are_limited_until_they_end() {
    let service = service_fn(|_: Request| future::pending::<Result<Reply, BoxError>>());
    let server = ServeService::new(service, ServerConfig::default()).changes(Changes::default());
    let limit = ConnectionLimit::new()
        .max(3)
        .max_per_caller(2)
        .caller(|parts| Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned()));
    let admission = limit.clone();
    let service = limit.layer(StreamableHttpService::new(
        move || admission.admit(&server),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    ));
    let open = async |caller: &str| {
        let post = http::Request::post("/").header("x-user", caller);
        let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "client", "version": "1" },
        } });
        answer(service.clone(), post, initialize).await
    };
    let alice = open("alice").await;
    assert_eq!((alice.status, open("alice").await.status), (200, 200));
    let refused = open("alice").await;
    assert_eq!(
        (refused.status, &*refused.text),
        (429, "too many open sessions: a caller can have at most 2; close some, or retry later")
    );
    assert_eq!(open("bob").await.status, 200);
    assert_eq!(open("carol").await.status, 429, "there are three");

    // Requests in a session are still answered.
    let in_session = |request: http::request::Builder| {
        let session = alice.session.clone().unwrap();
        request.header("x-user", "alice").header("mcp-session-id", session)
    };
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" });
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let post = || in_session(http::Request::post("/"));
    assert_eq!(answer(service.clone(), post(), initialized).await.status, 202);
    assert_eq!(answer(service.clone(), post(), ping).await.status, 200);

    let delete = in_session(http::Request::delete("/"));
    assert!(answer(service.clone(), delete, Value::Null).await.status < 300);
    soon(async {
        while open("alice").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn message_with_too_many_values_is_rejected_before_parsing() {
    let service = service_fn(|_: Request| future::pending::<Result<Reply, BoxError>>());
    let server = ServeService::new(service, ServerConfig::default());
    let limit = ConnectionLimit::new();
    let admission = limit.clone();
    let service = limit.layer(StreamableHttpService::new(
        move || admission.admit(&server),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    ));
    let call = |values: usize| {
        let arguments = json!({ "values": vec![0; values] });
        let params = json!({ "name": "x", "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
    };
    let post = || http::Request::post("/");
    let refused = answer(service.clone(), post(), call(1 << 18)).await;
    let text = "the message has more than 262144 JSON values; send it in several parts";
    assert_eq!((refused.status, &*refused.text), (413, text));
    // It is read, and has no protocol version.
    let read = answer(service, post(), call(1 << 17)).await;
    assert_eq!(read.status, 400);
    assert!(!read.text.contains("JSON values"), "{}", read.text);
}

#[tokio::test]
async fn request_whose_body_cannot_be_read_is_a_bad_request() {
    let service = service_fn(|_: Request| future::pending::<Result<Reply, BoxError>>());
    let server = ServeService::new(service, ServerConfig::default());
    let service = ConnectionLimit::new().layer(StreamableHttpService::new(
        move || Ok(server.clone()),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    ));
    let pieces = [Ok("{"), Err(io::Error::other("the chunk is invalid"))];
    let body = axum::body::Body::from_stream(futures::stream::iter(pieces));
    let refused = send(service, http::Request::post("/"), body).await;
    let text = "the request body could not be read: the chunk is invalid";
    assert_eq!((refused.status, &*refused.text), (400, text));
}
