//! Serves a file to MCP clients.

use std::{error::Error, future::IntoFuture, time::Duration};

use axum::{http::StatusCode, routing::get, serve::ListenerExt};
use futures::FutureExt;
use mcp_composite::{
    adapter::{ConnectionLimit, LineTransport, RemoteService, Router, ServeService},
    config::Gateway,
    reload::Reload,
    stack::Stack,
};
use rmcp::{
    ServiceExt,
    model::{Implementation, ServerCapabilities, ServerConfig},
    service::ServerInitializeError,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use tokio_util::sync::CancellationToken;
use tower::Layer;

use crate::{
    arguments::Serve,
    session::Session,
    watch::{HangUps, Watch},
};

/// The time that clients wait at the beginning for backends that are slow to start.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);
/// The time that clients over HTTP have to end.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// The values of `Host` that name this machine.
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The origins of web pages that this machine serves itself, at any port.
const LOOPBACK_ORIGINS: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];

type Server = ServeService<Reload<Stack<Router>>>;

/// Rejects an address that other machines can reach, unless the operator has allowed it.
///
/// # Errors
///
/// Returns an error if the address is not of the loopback interface, and `--insecure` is not set.
pub(crate) fn check_address(serve: &Serve) -> Result<(), String> {
    match serve.http {
        Some(address) if !address.ip().is_loopback() && !serve.insecure => Err(format!(
            "`--http {address}` can be reached by other machines, and this program does not \
             authenticate callers: listen at 127.0.0.1 behind a reverse proxy that does, or add \
             `--insecure`"
        )),
        _ => Ok(()),
    }
}

/// Serves until the client disconnects (stdio) or the process is asked to end.
///
/// # Errors
///
/// Returns an error if the address cannot be bound, or the connection of the client fails.
pub(crate) async fn serve(session: &Session, serve: Serve) -> Result<(), Box<dyn Error>> {
    let Session { gateway, stop, .. } = session;
    let hang_ups = HangUps::new()?;
    let watch = Watch::new(serve.file.clone(), session);
    let is_watching = serve.watch;
    let served = async {
        wait_for_backends(session).await;
        match serve.http {
            Some(_) => serve_http(gateway, serve, stop).await,
            None => serve_stdio(server(gateway), stop).await,
        }
    };
    tokio::select! {
        served = served => served,
        never = watch.run(hang_ups, is_watching) => match never {},
    }
}

/// Waits a moment for the backends. Older clients learn the server's capabilities only once, and
/// many ignore that tools are added later.
async fn wait_for_backends(session: &Session) {
    let connected = tokio::time::timeout(FIRST_PATIENCE, session.connect());
    let _ = session.stop.run_until_cancelled(connected).await;
}

fn server(gateway: &Gateway) -> Server {
    let name = Implementation::new("mcp-composite", env!("CARGO_PKG_VERSION"));
    gateway.serve(ServerConfig::new(ServerCapabilities::default()).with_server_info(name))
}

async fn serve_stdio(server: Server, stop: &CancellationToken) -> Result<(), Box<dyn Error>> {
    let transport = LineTransport::new(tokio::io::stdin(), tokio::io::stdout());
    let served = async {
        match server.serve_with_ct(transport, stop.clone()).await {
            Ok(running) => running.waiting().await.map(drop).map_err(Into::into),
            // The client has closed the connection.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    };
    // Also ends if the client never sends anything.
    stop.run_until_cancelled(served).await.unwrap_or(Ok(()))
}

async fn serve_http(
    gateway: &Gateway,
    serve: Serve,
    stop: &CancellationToken,
) -> Result<(), Box<dyn Error>> {
    let limit = limit(&serve, gateway.connection_limit());
    let origins = LOOPBACK_ORIGINS.map(str::to_owned).into_iter().chain(serve.allow_origin);
    let hosts = LOOPBACK_HOSTS.map(str::to_owned).into_iter().chain(serve.allow_host);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(hosts)
        .with_allowed_origins(origins)
        .enforce_origin_validation()
        .with_legacy_session_mode(!serve.stateless)
        // In one piece, unless a notification comes before the answer.
        .with_json_response(true)
        .with_cancellation_token(stop.clone());
    let (server, admission) = (server(gateway), limit.clone());
    let service = StreamableHttpService::new(
        move || admission.admit(&server),
        LocalSessionManager::default().into(),
        config,
    );
    let service = limit.layer(service);
    let address = serve.http.ok_or("no address")?;
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.map_err(|error| format!("cannot listen at {address}: {error}"))?;
    tracing::info!("serving http://{}/mcp", listener.local_addr()?);
    // A stream is written in pieces. Without this, each would wait until the client has
    // acknowledged the previous one, which it may delay by 40 ms.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "`TCP_NODELAY` cannot be set on a connection");
        }
    });
    let probed = gateway.clone();
    let app = axum::Router::new()
        .nest_service("/mcp", service)
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(async move || readiness(&probed)));
    let served = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
    // A client that is slow to send or to read must not delay the end.
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST_PATIENCE).await;
    };
    tokio::select! {
        served = served.into_future() => Ok(served?),
        () = late => Ok(()),
    }
}

/// Returns the response to a readiness probe: 200 if all backends are connected, else 503.
fn readiness(gateway: &Gateway) -> (StatusCode, String) {
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

fn limit(serve: &Serve, mut limit: ConnectionLimit) -> ConnectionLimit {
    if let Some(max) = serve.max_connections {
        limit = limit.max(max.get());
    }
    if let Some(max) = serve.max_connections_per_caller {
        limit = limit.max_per_caller(max.get());
    }
    limit
}
