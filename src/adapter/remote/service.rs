//! The Tower service of a remote server, and its builder.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
#[expect(deprecated, reason = "older clients use the deprecated methods")]
use rmcp::model::{LoggingLevel, SetLevelRequest, SubscribeRequest, UnsubscribeRequest};
use rmcp::{
    Peer, RoleClient,
    model::{ClientRequest, EmptyResult, ErrorData, ServerPeerInfo, ServerResult},
    service::ClientServiceExt,
    transport::IntoTransport,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use tower_service::Service;

use super::{
    call,
    callers::{Callers, belongs_to_caller},
    client::Session,
    ordered_transport::OrderedTransport,
    redaction::About,
    state::{Connection, Remote, State},
    supervise::{Attempt, Closes, Open, supervise},
    tokens::Tokens,
};
use crate::{
    adapter::secrets::Secrets,
    changes::Changes,
    message::{BackendError, BackendErrorKind, Context, Logs, Reply, Request},
};

/// The default timeout of an attempt to connect to a remote server: 30 seconds.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A Tower service that connects to a remote MCP server and forwards requests to it.
///
/// Clones of a `RemoteService` share one connection. When the last clone is dropped, the connection
/// is closed in the background. To wait until the connection is closed, call
/// [`close`](Self::close).
///
/// The [module docs](super) describe the behavior of a `RemoteService`, and have an example.
#[derive(Clone)]
pub struct RemoteService(Arc<Owner>);

/// Builds a [`RemoteService`], which connects to one MCP server.
#[derive(Clone, Debug)]
#[must_use]
pub struct RemoteBuilder {
    pub(super) about: About,
    connect_timeout: Duration,
    passed_meta: Vec<String>,
    elicitation: bool,
    changes: Changes,
    /// The pool of separate connections for callers. `None` if all callers share one connection.
    pub(super) callers: Option<Arc<dyn Callers>>,
}

/// The response future of a [`RemoteService`].
pub struct ResponseFuture(BoxFuture<'static, Result<Reply, BackendError>>);

/// A handle that closes the connection to a server. Unlike a clone of the [`RemoteService`], the
/// handle does not keep the connection open.
#[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
#[derive(Clone)]
pub(crate) struct Ending {
    remote: Arc<Remote>,
    stop: CancellationToken,
}

/// The state that all clones of a [`RemoteService`] share. Dropping this value closes the
/// connection.
struct Owner {
    remote: Arc<Remote>,
    stop: CancellationToken,
    /// The supervisor task of this server. It connects to the server, and reconnects if the
    /// connection is lost.
    supervisor: JoinSet<()>,
    callers: Option<Arc<dyn Callers>>,
}

// === impl RemoteService ===

impl RemoteService {
    /// Returns a builder for a service that connects to one server. `name` is the name of the
    /// server in errors and logs.
    pub fn builder(name: impl Into<Arc<str>>) -> RemoteBuilder {
        RemoteBuilder {
            about: About::new(name),
            connect_timeout: CONNECT_TIMEOUT,
            passed_meta: Vec::new(),
            elicitation: true,
            changes: Changes::default(),
            callers: None,
        }
    }

    /// Creates a service that sends its requests over an existing rmcp connection. Keep the
    /// connection alive while the service is in use.
    ///
    /// The service does not reconnect if the connection is lost. Messages that the server sends on
    /// its own, such as progress notifications, go to the rmcp handler of the connection and not to
    /// the callers of the service.
    #[must_use]
    pub fn from_peer(name: impl Into<Arc<str>>, peer: Peer<RoleClient>) -> Self {
        let remote = Arc::new(Self::builder(name).into_remote());
        let info = peer.peer_info();
        let tokens = Arc::<Tokens>::default();
        let stop = CancellationToken::new();
        let connection = Connection::over(&remote, peer, tokens, stop.clone());
        remote.connected(info);
        remote.state.send_replace(State::Connected(Arc::new(connection)));
        Self(Arc::new(Owner { remote, stop, supervisor: JoinSet::new(), callers: None }))
    }

    /// Returns the name of the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.remote.about.name
    }

    /// Returns the server's description, such as its name and capabilities, from the latest
    /// connection. Returns `None` if the server has never been connected.
    #[must_use]
    pub fn server_info(&self) -> Option<Arc<ServerPeerInfo>> {
        self.0.remote.info()
    }

    /// Returns the [`Changes`] channel to which the service reports changes of the server's lists
    /// and resources.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.0.remote.changes
    }

    /// Returns `Ok` if the server is connected. If an attempt to connect is in progress, waits for
    /// its end first.
    ///
    /// # Errors
    ///
    /// If the server is not connected, returns the reason, as a text for the operator. Secrets that
    /// were set with [`RemoteBuilder::secrets`] are redacted in the text.
    pub async fn connected(&self) -> Result<(), String> {
        match self.0.remote.settled().await {
            State::Connected(_) => Ok(()),
            State::Connecting | State::Down => Err(self
                .0
                .remote
                .why_not_connected()
                .unwrap_or_else(|| "it is not connected".to_owned())),
            State::Closed => Err("it was closed".to_owned()),
        }
    }

    /// Closes the connection permanently. If the server is a child process, also ends the process.
    ///
    /// Pending and later calls of the service fail. A child process has three seconds to exit by
    /// itself, and three more seconds after `SIGTERM`. After that, it is killed. If the handshake
    /// has not finished yet, the process is killed immediately. `close` returns when the process
    /// has ended.
    pub async fn close(&self) {
        self.0.stop.cancel();
        if let Some(callers) = &self.0.callers {
            callers.close().await;
        }
        let state = &self.0.remote.state;
        if self.0.supervisor.is_empty() {
            state.send_replace(State::Closed);
        }
        // Waiting cannot fail, because this function holds the sender.
        let _ = state.subscribe().wait_for(|state| matches!(state, State::Closed)).await;
    }

    /// Copies the subscriptions and log levels of `other`, which this service replaces, for example
    /// after the configuration was reloaded.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn subscribe_like(&self, other: &Self) {
        self.0.remote.levels.copy(&other.0.remote.levels);
        self.0.remote.subscribed_like(&other.0.remote);
        self.0.remote.subscribe_again.notify_one();
    }

    /// Returns a handle that can close the connection. After all clones of this service were
    /// dropped, the handle can still be used to wait until the connection is closed.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn ending(&self) -> Ending {
        Ending { remote: self.0.remote.clone(), stop: self.0.stop.clone() }
    }

    /// Returns `true` if the server is not connected and no attempt to connect is in progress.
    #[cfg(feature = "http")]
    pub(super) fn is_down(&self) -> bool {
        matches!(*self.0.remote.state.borrow(), State::Down | State::Closed)
    }
}

impl Service<Request> for RemoteService {
    type Response = Reply;
    type Error = BackendError;
    type Future = ResponseFuture;

    /// Always returns `Ok`, even without a connection. If it returned an error, a `Buffer` around
    /// the service would fail all later calls.
    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), BackendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> ResponseFuture {
        let owner = self.0.clone();
        let answer = async move {
            match &owner.callers {
                Some(callers) if belongs_to_caller(request.message()) => {
                    callers.answer(request).await
                }
                _ => owner.remote.answer(request).await,
            }
        };
        ResponseFuture(answer.boxed())
    }
}

impl fmt::Debug for RemoteService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reports = match &*self.0.remote.state.borrow() {
            State::Connected(connection) => connection.tokens.len(),
            _ => Some(0),
        };
        f.debug_struct("RemoteService")
            .field("name", &self.name())
            .field("awaited_reports", &reports)
            .finish_non_exhaustive()
    }
}

// === impl RemoteBuilder ===

impl RemoteBuilder {
    /// Sets the timeout of an attempt to connect. Defaults to 30 seconds.
    ///
    /// The timeout applies to each handshake. An attempt to connect has a second handshake if the
    /// server does not understand the first one.
    ///
    /// The default leaves time for a server that is downloaded when it is first started. It also
    /// covers the ten seconds after which rmcp tries the handshake of an older protocol version.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the [`Changes`] channel to which the service reports changes of the server's lists and
    /// resources.
    pub fn changes(mut self, changes: Changes) -> Self {
        self.changes = changes;
        self
    }

    /// Adds `_meta` keys that are forwarded from callers' requests to the server. The keys of the
    /// trace context, such as `traceparent`, are always forwarded.
    pub fn pass_meta(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.passed_meta.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Sets whether the server may ask the caller for input during a call. Defaults to `true`.
    ///
    /// If `true`, the server can ask the caller's user (`elicitation`). A server with protocol
    /// version 2026-07-28 can also use the caller's deprecated `sampling` and `roots`. If `false`,
    /// these capabilities are not declared to the server, and a result that asks for input becomes
    /// an error. Some servers then offer other tools.
    pub const fn elicitation(mut self, elicitation: bool) -> Self {
        self.elicitation = elicitation;
        self
    }

    /// Sets the secrets, such as passwords, that are redacted in logs and errors about the server.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.about.secrets = secrets;
        self
    }

    /// Creates a service that connects over any rmcp transport. The service calls `open` for each
    /// new connection.
    ///
    /// # Panics
    ///
    /// Panics if called outside a Tokio runtime, or in one whose time driver is not enabled.
    #[must_use]
    pub fn transport<F, C, T, E, A, O>(self, open: F) -> RemoteService
    where
        F: Fn() -> C + Send + Sync + 'static,
        C: Future<Output = Result<T, O>> + Send + 'static,
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
        O: Into<BoxError>,
    {
        let open = move |attempt: Attempt| {
            let opened = open();
            async move { attempt.begin(opened.await.map_err(Into::into)?).await }.boxed()
        };
        self.supervised(Box::new(open))
    }

    pub(super) fn supervised(mut self, open: Open) -> RemoteService {
        let callers = self.callers.take();
        let remote = Arc::new(self.into_remote());
        let stop = CancellationToken::new();
        let mut supervisor = JoinSet::new();
        supervisor.spawn(supervise(Closes(remote.clone()), open, stop.clone()));
        RemoteService(Arc::new(Owner { remote, stop, supervisor, callers }))
    }

    fn into_remote(self) -> Remote {
        let Self { about, connect_timeout, passed_meta, elicitation, changes, .. } = self;
        Remote::new(about, connect_timeout, passed_meta.into(), elicitation, changes)
    }
}

// === impl ResponseFuture ===

impl Future for ResponseFuture {
    type Output = Result<Reply, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

// === impl Ending ===

#[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
impl Ending {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.remote, &other.remote)
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.remote.state.borrow(), State::Closed)
    }

    /// Closes the connection and waits until it is closed, as [`RemoteService::close`] does.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        // Waiting cannot fail, because this function holds the sender.
        let _ =
            self.remote.state.subscribe().wait_for(|state| matches!(state, State::Closed)).await;
    }
}

#[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").field("name", &self.remote.about.name).finish_non_exhaustive()
    }
}

// === impl Owner ===

impl Drop for Owner {
    fn drop(&mut self) {
        // The supervisor is stopped instead of aborted, so that it can close the connection
        // properly.
        self.stop.cancel();
        self.supervisor.detach_all();
    }
}

// === impl Attempt ===

impl Attempt {
    /// Performs the MCP handshake with the server over an open transport.
    pub(super) async fn begin<T, E, A>(self, transport: T) -> Result<Session, BoxError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let Self { client, lifecycle, signals } = self;
        let tokens = client.tokens.clone();
        let transport = OrderedTransport::new(transport.into_transport(), signals, tokens);
        Ok(client.serve_with_lifecycle(transport, lifecycle).await?)
    }
}

// === impl Remote ===

impl Remote {
    #[expect(deprecated, reason = "older clients use the deprecated methods")]
    async fn answer(&self, request: Request) -> Result<Reply, BackendError> {
        match request.message() {
            // These requests concern a single connection, so they are not forwarded.
            ClientRequest::InitializeRequest(_)
            | ClientRequest::DiscoverRequest(_)
            | ClientRequest::SubscriptionsListenRequest(_) => {
                Ok(Reply::method_not_found(request.method().to_owned()))
            }
            ClientRequest::PingRequest(_) => {
                self.connection().await?;
                Ok(ServerResult::EmptyResult(EmptyResult {}).into())
            }
            ClientRequest::SubscribeRequest(SubscribeRequest { params, .. }) => {
                // The caller's subscription is counted before the outcome is known, so that a new
                // connection in the meantime also subscribes.
                let Some(subscribing) = self.subscribed(&params.uri) else {
                    let refused = "there are too many subscriptions to resources of this backend";
                    return Ok(ErrorData::invalid_params(refused, None).into());
                };
                let reply = self.subscription(request).await;
                match reply {
                    Ok(ref reply) if reply.error().is_none() => subscribing.done(),
                    // Accepted, because the next connection sends the subscription again.
                    Err(error) if error.is_of_connection() => {
                        subscribing.done();
                        return Ok(ServerResult::EmptyResult(EmptyResult {}).into());
                    }
                    Ok(_) => subscribing.refused(),
                    Err(ref error) if error.kind() == BackendErrorKind::Unsupported => {
                        subscribing.refused();
                    }
                    Err(_) => drop(subscribing),
                }
                reply
            }
            ClientRequest::UnsubscribeRequest(UnsubscribeRequest { params, .. }) => {
                if self.unsubscribed(&params.uri) {
                    let unsubscribing = self.unsubscribing(&params.uri);
                    let reply = self.subscription(request).await;
                    unsubscribing.done();
                    reply
                } else {
                    Ok(ServerResult::EmptyResult(EmptyResult {}).into())
                }
            }
            ClientRequest::SetLevelRequest(SetLevelRequest { params, .. }) => {
                self.set_level(params.level, request.context().logs()).await
            }
            _ => self.connection().await?.call(request).await,
        }
    }

    /// Sets the minimum level of the server's log messages that a client receives.
    ///
    /// All clients share the connection to the server. Therefore, a server with protocol version
    /// 2025-11-25 or older receives the lowest level that any client has set. A server with a later
    /// version receives the client's level with each request instead.
    #[expect(deprecated, reason = "older clients use the deprecated methods")]
    async fn set_level(
        &self,
        level: LoggingLevel,
        client: Option<&Logs>,
    ) -> Result<Reply, BackendError> {
        let _sending = self.levels.sending.lock().await;
        let set = match self.connection().await {
            Ok(connection) if connection.modern => Ok(ServerResult::empty(()).into()),
            Ok(connection) => {
                let lowest = self.levels.with(client, level);
                let request = Request::new(call::set_level(lowest), Context::default());
                connection.call(request).await
            }
            Err(error) => Err(error),
        };
        match set {
            Ok(reply) if reply.error().is_some() => Ok(reply),
            Err(error) if !error.is_of_connection() => Err(error),
            // Without a connection, the level is sent on the next connection.
            _ => {
                self.levels.set(client, level);
                Ok(ServerResult::empty(()).into())
            }
        }
    }

    /// Forwards a subscribe or unsubscribe request to a server with protocol version 2025-11-25 or
    /// older. A server with a later version receives no such request, because its notification
    /// stream is reopened with a new filter.
    async fn subscription(&self, request: Request) -> Result<Reply, BackendError> {
        let connection = self.connection().await?;
        if connection.modern {
            Ok(ServerResult::EmptyResult(EmptyResult {}).into())
        } else {
            connection.call(request).await
        }
    }
}
