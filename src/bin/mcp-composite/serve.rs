//! Serves a file to MCP clients.

use std::{error::Error, future::pending, time::Duration};

use axum::middleware::from_fn_with_state;
use futures::future::Either;
use mcp_composite::{
    adapter::{ConnectionLimit, LineTransport},
    config::{AuthConfig, Gateway},
};
use rmcp::{ServiceExt, service::ServerInitializeError, transport::StreamableHttpServerConfig};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "restate")]
use crate::durable::Durable;
use crate::{
    arguments::Serve,
    auth::{self, Authentication},
    drain::{self, Drain},
    endpoints::Endpoints,
    listener::{Limits, Listener},
    probes, rejected_hosts,
    server::{Server, server},
    session::Session,
    watch::{HangUps, Watch},
};

/// The time that clients wait at the beginning for backends that are slow to start.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of open files that connections of clients leave for backends and files.
const FILES_FOR_OTHERS: usize = 256;

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

/// A durable engine, of which this build has none.
#[cfg(not(feature = "restate"))]
pub(crate) enum Durable {}

#[cfg(not(feature = "restate"))]
impl Durable {
    async fn serve(self, _: &CancellationToken) -> Result<(), Box<dyn Error>> {
        match self {}
    }
}

/// Rejects an address that other machines can reach, unless callers are authenticated or the
/// operator has allowed it.
///
/// # Errors
///
/// Returns an error if the address is not of the loopback interface, the file has no `[auth]`, and
/// `--insecure` is not set.
pub(crate) fn check_address(serve: &Serve, has_auth: bool) -> Result<(), String> {
    match serve.http {
        Some(address) if !address.ip().is_loopback() && !has_auth && !serve.insecure => {
            Err(format!(
                "`--http {address}` can be reached by other machines, and the file has no `[auth]` \
                 to authenticate callers: add the section, listen at 127.0.0.1 behind a reverse \
                 proxy that authenticates them, or add `--insecure`"
            ))
        }
        _ => Ok(()),
    }
}

/// Serves until the client disconnects (stdio) or the process is asked to end.
///
/// # Errors
///
/// Returns an error if an address cannot be bound, the keys of the authorization server cannot be
/// read, or the connection of the client fails.
pub(crate) async fn serve(
    session: &Session,
    serve: &Serve,
    durable: Option<Durable>,
) -> Result<(), Box<dyn Error>> {
    let Session { gateway, telemetry, stop, .. } = session;
    let hang_ups = HangUps::new()?;
    // First, so that a port in use is noticed at once, and that clients who connect while backends
    // start wait instead of being refused.
    let listener = match serve.http {
        Some(address) => Some(Listener::bind(address, limits(serve)).await?),
        None => None,
    };
    let authentication = match &session.auth {
        Some(auth) if serve.http.is_some() => Some(authenticate(auth, stop).await?),
        _ => None,
    };
    let watch = Watch::new(session, serve, authentication.clone());
    let keep_fresh = async {
        match &authentication {
            Some(authentication) => authentication.keep_fresh().await,
            None => pending().await,
        }
    };
    let metrics = match (&telemetry.metrics, serve.metrics) {
        (Some(metrics), Some(address)) => Either::Left(
            metrics.clone().listen(address, gateway, serve.view.view.as_deref(), stop).await?,
        ),
        _ => Either::Right(pending()),
    };
    let durable = async {
        match durable {
            Some(durable) => durable.serve(stop).await,
            None => pending().await,
        }
    };
    let served = async {
        wait_for_backends(session).await;
        gateway.watch_tasks();
        match listener {
            Some(listener) => {
                serve_http(gateway, serve, listener, authentication.clone(), stop).await
            }
            None => serve_stdio(server(&gateway.main()), stop).await,
        }
    };
    tokio::select! {
        served = served => served,
        never = watch.run(hang_ups, serve.watch) => match never {},
        never = keep_fresh => match never {},
        never = metrics => match never {},
        failed = durable => failed,
    }
}

/// Reads the keys with which callers are authenticated.
async fn authenticate(
    auth: &AuthConfig,
    stop: &CancellationToken,
) -> Result<Authentication, Box<dyn Error>> {
    let read = stop.run_until_cancelled(Authentication::new(auth.clone())).await;
    Ok(read.ok_or("interrupted")??)
}

/// Waits a moment for the backends. Older clients learn the server's capabilities only once, and
/// many ignore that tools are added later.
async fn wait_for_backends(session: &Session) {
    let connected = tokio::time::timeout(STARTUP_TIMEOUT, session.connect());
    let _ = session.stop.run_until_cancelled(connected).await;
}

async fn serve_stdio(server: Server, stop: &CancellationToken) -> Result<(), Box<dyn Error>> {
    let transport = LineTransport::new(tokio::io::stdin(), tokio::io::stdout());
    let served = async {
        match server.serve_with_ct(transport, stop.clone()).await {
            Ok(running) => running.waiting().await.map(drop).map_err(Into::into),
            // The client has closed the connection, or the process was asked to end.
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    };
    // Also ends if the client never sends anything.
    stop.run_until_cancelled(served).await.unwrap_or(Ok(()))
}

async fn serve_http(
    gateway: &Gateway,
    serve: &Serve,
    listener: Listener,
    authentication: Option<Authentication>,
    stop: &CancellationToken,
) -> Result<(), Box<dyn Error>> {
    let drain = Drain::new(stop);
    let origins = LOOPBACK_ORIGINS.iter().copied();
    let origins = origins.chain(serve.allow_origin.iter().map(String::as_str));
    let hosts = LOOPBACK_HOSTS.iter().copied();
    let hosts = hosts.chain(serve.allow_host.iter().map(String::as_str));
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(hosts.clone())
        .with_allowed_origins(origins)
        .enforce_origin_validation()
        .with_legacy_session_mode(!serve.stateless)
        // In one piece, unless a notification comes before the answer.
        .with_json_response(true)
        .with_cancellation_token(drain.ended().clone());
    let limit = limit(serve, gateway.connection_limit());
    let endpoints = Endpoints::new(gateway, limit, config, serve.drain);
    let address = listener.address()?;
    if authentication.is_some() && !address.ip().is_loopback() {
        tracing::warn!(
            "bearer tokens arrive unencrypted at {address}: put a reverse proxy with TLS in front"
        );
    }
    tracing::info!("serving http://{address}/mcp");
    let mut app = rejected_hosts::log(endpoints.routes(), hosts);
    if let Some(authentication) = authentication {
        app = auth::protect(app, authentication, gateway);
    }
    // Probes need no token.
    let app = endpoints
        .select_view(app)
        .merge(probes::routes(gateway, stop))
        .layer(from_fn_with_state(drain.clone(), drain::track));
    let served =
        async { tokio::join!(listener.serve(app, &drain), drain.run(gateway, serve.drain)) };
    tokio::select! {
        _ = served => Ok(()),
        never = endpoints.end_removed() => match never {},
    }
}

/// Returns the limits of connections. Each connection is an open file. So the limit of open files
/// is raised as far as the system allows, and connections leave some files for the backends.
fn limits(serve: &Serve) -> Limits {
    let wanted = serve.max_tcp_connections.get();
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(u64::MAX);
    let allowed = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(FILES_FOR_OTHERS);
    let connections = wanted.min(allowed.max(1));
    if connections < wanted {
        tracing::warn!(
            "accepting at most {connections} TCP connections, and not {wanted}, because this \
             process may open {files} files (`ulimit -n`)"
        );
    }
    let (idle, body) = (serve.idle_timeout, serve.body_timeout);
    Limits { connections, idle, body, keep_alive: true }
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
