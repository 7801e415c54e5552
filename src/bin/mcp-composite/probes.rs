//! The answers to probes: whether the process is alive, and ready for clients.

use axum::{Router, http::StatusCode, routing::get};
use futures::FutureExt;
use mcp_composite::{adapter::RemoteService, config::Gateway};
use tokio_util::sync::CancellationToken;

/// Returns the routes `/healthz` and `/readyz`. The process is not ready after `stop` is cancelled.
pub(crate) fn routes(gateway: &Gateway, stop: &CancellationToken) -> Router {
    let (gateway, stop) = (gateway.clone(), stop.clone());
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(async move || readiness(&gateway, &stop)))
}

/// Returns the response to a readiness probe: 200 if all backends are connected, else 503.
fn readiness(gateway: &Gateway, stop: &CancellationToken) -> (StatusCode, String) {
    if stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned());
    }
    let backends = gateway.backends();
    let remotes = backends.remotes();
    let is_connected =
        |remote: &&RemoteService| matches!(remote.connected().now_or_never(), Some(Ok(())));
    let (connected, all) = (remotes.iter().filter(is_connected).count(), remotes.len());
    if connected == all {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("{connected} of {all} backends are connected\n"))
}
