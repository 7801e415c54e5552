//! A listener for HTTP, with limits on connections.

use std::{
    convert::Infallible,
    future::pending,
    io::{self, ErrorKind},
    net::SocketAddr,
    pin::pin,
    time::Duration,
};

use axum::{Router, middleware::from_fn_with_state};
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
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::{body_timeout::limit_body, drain::Drain};

/// The time that clients have to read their last responses.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted, for example because the process has no file
/// descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two warnings that connections are closed.
const WARN_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum size in bytes of a request line with its headers. A larger one gets the status 431.
const MAX_HEAD: usize = 64 * 1024;

/// A bound socket that accepts connections.
pub(crate) struct Listener {
    tcp: TcpListener,
    limits: Limits,
    warned: Option<Instant>,
    /// No connection is accepted until this time.
    paused_until: Option<Instant>,
}

/// Limits on the connections of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of open connections. Further ones are closed when they are accepted.
    pub(crate) connections: usize,
    /// The time in which a client must send a request head, counted from the start of the
    /// connection or from the end of the previous response. Also the maximum pause between two
    /// parts of a request body, and between two parts of a response that the client reads.
    pub(crate) idle: Duration,
    /// The time in which a client must send a request body, counted from the end of the head.
    pub(crate) body: Duration,
    /// Whether a connection may be used for several requests.
    pub(crate) keep_alive: bool,
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
        Ok(Self { tcp, limits, warned: None, paused_until: None })
    }

    /// Uses a socket that was bound before the runtime started.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub(crate) fn from_std(socket: std::net::TcpListener, limits: Limits) -> io::Result<Self> {
        let tcp = TcpListener::from_std(socket)?;
        Ok(Self { tcp, limits, warned: None, paused_until: None })
    }

    /// Returns the bound address, whose port the system may have chosen.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves an application until the process ends.
    pub(crate) async fn serve_forever(self, app: Router) -> Infallible {
        self.serve(app, &Drain::new(&CancellationToken::new())).await;
        pending().await
    }

    /// Serves an application until it has been drained.
    ///
    /// When draining starts, no further connection is accepted, and the open ones are served. When
    /// draining ends, each connection is closed after its response, but at most five seconds later.
    pub(crate) async fn serve(mut self, app: Router, drain: &Drain) {
        let limit = from_fn_with_state(self.limits.body, limit_body);
        // The last layer is the outermost one: the time limit receives the errors of pauses.
        let app = app.layer(limit).layer(RequestBodyTimeoutLayer::new(self.limits.idle));
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
            let end = drain.ended().clone();
            connections.spawn(connection(stream, app.clone(), self.limits, end));
        }
        // From now on, the system refuses connections.
        drop(self);
        let closed = async { while connections.join_next().await.is_some() {} };
        let late = async {
            drain.ended().cancelled().await;
            tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
        };
        tokio::select! {
            () = closed => (),
            () = late => (),
        }
    }

    async fn accept(&mut self) -> TcpStream {
        loop {
            // The pause continues if this future is dropped.
            if let Some(until) = self.paused_until {
                tokio::time::sleep_until(until).await;
                self.paused_until = None;
            }
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
                    self.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Logs that connections are closed, unless that was logged a moment ago.
    fn warn(&mut self) {
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            let max = self.limits.connections;
            tracing::warn!("closing new connections: the limit of {max} connections is reached");
        }
    }
}

/// Serves one connection until the client closes it, it is idle for too long, or `end` is
/// cancelled and its last response is sent.
async fn connection(stream: TcpStream, app: Router, limits: Limits, end: CancellationToken) {
    // A stream is written in pieces. Without this, each would wait until the client has
    // acknowledged the previous one, which it may delay by 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "`TCP_NODELAY` cannot be set on a connection");
    }
    // hyper has no timer for a client that does not read its response.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.idle));
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        // This timer also runs while a connection waits for its next request.
        .header_read_timeout(limits.idle)
        .keep_alive(limits.keep_alive)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(app));
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
