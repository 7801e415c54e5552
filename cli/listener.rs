//! A listener for HTTP, with limits on connections.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    pin::pin,
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::drain::Drain;

/// The time that clients have to read their last responses.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted, for example because the process has no file
/// descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two warnings that connections are closed.
const QUIET: Duration = Duration::from_secs(10);
/// The maximum size in bytes of a request line with its headers. A larger one gets the status 431.
const MAX_HEAD: usize = 64 * 1024;

/// A bound socket that accepts connections.
pub(crate) struct Listener {
    tcp: TcpListener,
    limits: Limits,
    warned: Option<Instant>,
}

/// Limits on the connections of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of open connections. Further ones are closed when they are accepted.
    pub(crate) connections: usize,
    /// The time in which a client must send a request head, counted from the start of the
    /// connection or from the end of the previous response. Also the maximum pause between two
    /// parts of a request body.
    pub(crate) idle: Duration,
}

// === impl Listener ===

impl Listener {
    /// Binds an address.
    ///
    /// # Errors
    ///
    /// Returns an error if another socket uses the address, or if this machine does not have it.
    pub(crate) async fn bind(address: SocketAddr, limits: Limits) -> Result<Self, String> {
        let tcp = TcpListener::bind(address).await;
        let tcp = tcp.map_err(|error| format!("cannot listen at {address}: {error}"))?;
        Ok(Self { tcp, limits, warned: None })
    }

    /// Returns the bound address, whose port the system may have chosen.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves an application until it has been drained.
    ///
    /// When draining starts, no further connection is accepted, and the open ones are served. When
    /// draining ends, each connection is closed after its response, but at most five seconds later.
    pub(crate) async fn serve(mut self, app: Router, drain: &Drain) {
        let app = app.layer(RequestBodyTimeoutLayer::new(self.limits.idle));
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                biased;
                () = drain.started() => break,
                Some(_) = connections.join_next() => continue,
                stream = self.accept() => stream,
            };
            if connections.len() >= self.limits.connections {
                self.warn();
                continue;
            }
            let idle = self.limits.idle;
            connections.spawn(connection(stream, app.clone(), idle, drain.ended().clone()));
        }
        // From now on, the system refuses connections.
        drop(self);
        let closed = async { while connections.join_next().await.is_some() {} };
        let late = async {
            drain.ended().cancelled().await;
            tokio::time::sleep(LAST_PATIENCE).await;
        };
        tokio::select! {
            () = closed => (),
            () = late => (),
        }
    }

    async fn accept(&self) -> TcpStream {
        loop {
            match self.tcp.accept().await {
                Ok((stream, _)) => return stream,
                // Errors of one connection.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted
                            | ErrorKind::ConnectionRefused
                            | ErrorKind::ConnectionReset
                    ) => {}
                Err(error) => {
                    tracing::error!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Logs that connections are closed, unless that was logged a moment ago.
    fn warn(&mut self) {
        if self.warned.is_none_or(|warned| warned.elapsed() >= QUIET) {
            self.warned = Some(Instant::now());
            let max = self.limits.connections;
            tracing::warn!("new connections are closed: there are {max} already");
        }
    }
}

/// Serves one connection until the client closes it, it is idle for too long, or `end` is
/// cancelled and its last response is sent.
async fn connection(stream: TcpStream, app: Router, idle: Duration, end: CancellationToken) {
    // A stream is written in pieces. Without this, each would wait until the client has
    // acknowledged the previous one, which it may delay by 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "`TCP_NODELAY` cannot be set on a connection");
    }
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        // This timer also runs while a connection waits for its next request.
        .header_read_timeout(idle)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut http = pin!(http);
    let served = tokio::select! {
        served = http.as_mut() => served,
        () = end.cancelled() => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended with an error");
    }
}
