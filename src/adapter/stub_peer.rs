//! The stub client of a request without a client, such as a branch of a composite.

use std::{
    convert::Infallible,
    future::{self, Future},
    sync::{Arc, Mutex, PoisonError},
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
use crate::message::{Progress, client::unanswered};

/// A cache of the stub client for requests without a client.
///
/// rmcp creates a peer only together with a task that runs its connection, so the client is created
/// on first use and kept.
#[derive(Default)]
pub(super) struct StubClients {
    latest: Mutex<Option<Arc<StubClient>>>,
}

/// A connection that accepts every notification and rejects every request.
///
/// Progress goes to its registered [`Route`]; all other notifications are discarded. The connection
/// ends when this value is dropped, so hold it as long as the peer is used.
pub(super) struct StubClient {
    connection: RunningService<RoleServer, StubHandler>,
    routes: Arc<Routes>,
    runtime: runtime::Id,
}

struct StubHandler;

/// The other end of the connection: discards messages except progress, and answers requests with an
/// error.
struct StubTransport {
    routes: Arc<Routes>,
    refuse: mpsc::UnboundedSender<RxJsonRpcMessage<RoleServer>>,
    refused: mpsc::UnboundedReceiver<RxJsonRpcMessage<RoleServer>>,
}

// === impl StubClients ===

impl StubClients {
    /// Returns a stub client that all calls share, or `None` outside a Tokio runtime.
    pub(super) async fn shared(&self) -> Option<Arc<StubClient>> {
        let runtime = Handle::try_current().ok()?.id();
        // The guard must be dropped before the next await.
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(client) = latest
            && client.serves(runtime)
        {
            return Some(client);
        }
        // Another call may do the same concurrently. Then one of the two clients lives only as long
        // as the calls that hold it.
        let client = Arc::new(StubClient::new().await?);
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&client));
        Some(client)
    }
}

// === impl StubClient ===

impl StubClient {
    /// Creates a stub client, or returns `None` outside a Tokio runtime.
    pub(super) async fn new() -> Option<Self> {
        let runtime = Handle::try_current().ok()?.id();
        let (refuse, refused) = mpsc::unbounded_channel();
        // rmcp keeps the current span open as long as the connection lives, which would be the span
        // of the first call. A separate task has no span.
        let routes = Arc::<Routes>::default();
        let nowhere = StubTransport { routes: routes.clone(), refuse, refused };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { serve_directly(StubHandler, nowhere, None) });
        let connection = tasks.join_next().await?.ok()?;
        Some(Self { connection, routes, runtime })
    }

    /// Returns the peer for a handler's request.
    pub(super) fn peer(&self) -> Peer<RoleServer> {
        self.connection.peer().clone()
    }

    /// Forwards the progress of a call, under the token of the returned route, until it is dropped.
    pub(super) fn listen(&self, progress: Progress) -> Route {
        self.routes.open(new_token(), progress)
    }

    /// Returns `true` if a call in this runtime can use the connection.
    ///
    /// The connection's task runs in the runtime that created it. A peer of another runtime is
    /// closed if that runtime has ended, and hangs while that runtime is not driven.
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
                // This value owns the receiver, so sending cannot fail.
                let _ = self.refuse.send(JsonRpcMessage::error(error, Some(request.id)));
            }
            JsonRpcMessage::Notification(told) => {
                if let ServerNotification::ProgressNotification(told) = told.notification {
                    // Reported here because the returned future runs concurrently with those of
                    // other messages.
                    self.routes.report(told.params);
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
