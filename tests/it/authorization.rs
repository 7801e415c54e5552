//! Backends that require authorization.

use std::{
    convert::Infallible,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    http::{StatusCode, header::WWW_AUTHENTICATE},
    middleware::{Next, from_fn},
    response::IntoResponse,
};
use mcp_composite::{
    adapter::{RemoteService, ServeService},
    message::{Reply, Request},
};
use rmcp::{
    model::{CallToolResult, ServerCapabilities, ServerConfig},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};

use crate::{
    http::{Server, listen},
    support::soon,
};

/// Returns a backend that requires a token once `locked` is true.
async fn guarded(locked: &'static AtomicBool) -> Server {
    let base = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
    let handler = ServeService::new(service_fn(echo), base);
    let config = StreamableHttpServerConfig::default();
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
    let challenge = r#"Bearer realm="docs", error="invalid_token""#;
    let guard = from_fn(move |request: axum::extract::Request, next: Next| async move {
        match locked.load(Ordering::Relaxed) {
            true => (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)]).into_response(),
            false => next.run(request).await,
        }
    });
    listen(axum::Router::new().fallback_service(service).layer(guard), CancellationToken::new())
        .await
}

async fn echo(_: Request) -> Result<Reply, Infallible> {
    Ok(CallToolResult::success(vec![]).into())
}

#[tokio::test]
async fn auth_challenge_of_a_backend_is_logged() {
    static LOCKED: AtomicBool = AtomicBool::new(true);
    let server = guarded(&LOCKED).await;
    let url = format!("http://{}/", server.address);
    let challenge = r#"authorization required: Bearer realm="docs", error="invalid_token""#;

    let remote = RemoteService::builder("docs").http(&url, []);
    let error = soon(remote.connected()).await.unwrap_err();
    assert!(error.contains(challenge), "while connecting: {error}");

    LOCKED.store(false, Ordering::Relaxed);
    let remote = RemoteService::builder("docs").http(&url, []);
    soon(remote.connected()).await.unwrap();
    LOCKED.store(true, Ordering::Relaxed);
    let error = soon(remote.clone().oneshot(Request::call_tool("x"))).await.unwrap_err();
    assert_eq!(error.to_string(), "backend `docs` could not answer", "clients do not learn it");
    let reason = error.source().unwrap().to_string();
    assert!(reason.contains(challenge), "while calling: {reason}");
}
