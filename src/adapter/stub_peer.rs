//! A stub client for requests that no client has sent, such as those of a composite's branches.

use std::{
    convert::Infallible,
    future::{self, Future},
    sync::{Arc, Mutex},
};

use rmcp::{
    Peer, RoleServer, ServerHandler,
    model::{JsonRpcMessage, ServerNotification},
    service::{RunningService, RxJsonRpcMessage, TxJsonRpcMessage, serve_directly},
    transport::Transport,
};
use tokio::{
    runtime::{self, Handle},
    sync::mpsc,
    task::JoinSet,
};

use super::progress_routes::{Route, Routes, new_token};
use crate::{
    message::{Progress, client::unanswered},
    mutex::lock,
};

/// The stub client for calls that come from no client. It is created on first use, and later calls
/// reuse it.
///
/// A handler always needs an rmcp peer with a running connection. If no client is connected, the
/// stub client is this peer.
#[derive(Default)]
pub(super) struct StubClients {
    latest: Mutex<Option<Arc<StubClient>>>,
}

/// An in-process connection to a stub client, which accepts every notification and rejects every
/// request.
///
/// A progress notification is forwarded to the [`Route`] that is registered for its token. All
/// other notifications are discarded. Dropping this value ends the connection, so keep it while its
/// peer is in use.
pub(super) struct StubClient {
    connection: RunningService<RoleServer, StubHandler>,
    routes: Arc<Routes>,
    runtime: runtime::Id,
}

struct StubHandler;

/// The stub client's end of the connection. It forwards the handler's progress notifications,
/// rejects the handler's requests, and discards all other messages.
struct StubTransport {
    routes: Arc<Routes>,
    refuse: mpsc::UnboundedSender<RxJsonRpcMessage<RoleServer>>,
    refused: mpsc::UnboundedReceiver<RxJsonRpcMessage<RoleServer>>,
}

// === impl StubClients ===

impl StubClients {
    /// Returns the stub client that all calls in the current Tokio runtime share. Returns `None`
    /// outside a Tokio runtime.
    pub(super) async fn shared(&self) -> Option<Arc<StubClient>> {
        let runtime = Handle::try_current().ok()?.id();
        // Cloned in a statement of its own, so that the lock is released before the next await.
        let latest = lock(&self.latest).clone();
        if let Some(client) = latest
            && client.serves(runtime)
        {
            return Some(client);
        }
        // A concurrent call may also create a client and replace this one. The replaced client
        // lives until the calls that use it have ended.
        let client = Arc::new(StubClient::new().await?);
        *lock(&self.latest) = Some(Arc::clone(&client));
        Some(client)
    }
}

// === impl StubClient ===

impl StubClient {
    /// Creates a stub client with a new connection, or returns `None` outside a Tokio runtime.
    pub(super) async fn new() -> Option<Self> {
        let runtime = Handle::try_current().ok()?.id();
        let (refuse, refused) = mpsc::unbounded_channel();
        // rmcp holds the current tracing span open until the connection ends. A spawned task has no
        // span, while this task would contribute the span of the first call.
        let routes = Arc::<Routes>::default();
        let nowhere = StubTransport { routes: routes.clone(), refuse, refused };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { serve_directly(StubHandler, nowhere, None) });
        let connection = tasks.join_next().await?.ok()?;
        Some(Self { connection, routes, runtime })
    }

    /// Returns the peer over which a handler sends its requests and notifications.
    pub(super) fn peer(&self) -> Peer<RoleServer> {
        self.connection.peer().clone()
    }

    /// Registers `progress` under a new progress token. Progress notifications with this token are
    /// forwarded to `progress` until the returned route is dropped.
    pub(super) fn listen(&self, progress: Progress) -> Route {
        self.routes.open(new_token(), progress)
    }

    /// Returns `true` if the connection is open and belongs to the Tokio runtime `runtime`. A
    /// connection works only in the runtime in which it was created, because its task runs there.
    fn serves(&self, runtime: runtime::Id) -> bool {
        self.runtime == runtime && !self.connection.peer().is_transport_closed()
    }
}

// === impl StubHandler ===

impl ServerHandler for StubHandler {}

// === impl StubTransport ===

impl Transport<RoleServer> for StubTransport {
    type Error = Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        match message {
            JsonRpcMessage::Request(request) => {
                let error = unanswered("the client cannot be asked during a call");
                // Sending cannot fail, because this value owns the receiver.
                let _ = self.refuse.send(JsonRpcMessage::error(error, Some(request.id)));
            }
            JsonRpcMessage::Notification(message) => {
                if let ServerNotification::ProgressNotification(progress) = message.notification {
                    // Reported in this function, not in the returned future: the futures of several
                    // messages run concurrently and could reorder their progress.
                    self.routes.report(progress.params);
                }
            }
            _ => (),
        }
        future::ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.refused.recv().await
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
