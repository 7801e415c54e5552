//! The client of a request that came without one, such as a branch of a composite.

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

/// Where handlers get a peer from if the request has none.
///
/// rmcp makes a peer only together with a task that runs its connection, so it
/// is made when it is first needed and kept.
#[derive(Default)]
pub(super) struct StubClients {
    latest: Mutex<Option<Arc<StubClient>>>,
}

/// A connection that takes every notification and refuses every request.
///
/// Progress goes to whoever listens for it, and all other notifications nowhere.
/// It ends when this value is dropped, so hold it as long as the peer is used.
pub(super) struct StubClient {
    connection: RunningService<RoleServer, Nobody>,
    routes: Arc<Routes>,
    runtime: runtime::Id,
}

struct Nobody;

/// The other end of the connection: what is sent there is gone but for progress,
/// and what is asked there comes back as an error at once.
struct Nowhere {
    routes: Arc<Routes>,
    refuse: mpsc::UnboundedSender<RxJsonRpcMessage<RoleServer>>,
    refused: mpsc::UnboundedReceiver<RxJsonRpcMessage<RoleServer>>,
}

// === impl StubClients ===

impl StubClients {
    /// An absent client that all calls share, or nothing outside a Tokio runtime.
    pub(super) async fn shared(&self) -> Option<Arc<StubClient>> {
        let runtime = Handle::try_current().ok()?.id();
        // The guard must be gone before anything is awaited.
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(client) = latest
            && client.serves(runtime)
        {
            return Some(client);
        }
        // Another call may do the same at this moment. Then one of the two
        // clients lives only as long as the calls that hold it.
        let client = Arc::new(StubClient::new().await?);
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&client));
        Some(client)
    }
}

// === impl StubClient ===

impl StubClient {
    /// Makes an absent client, or nothing outside a Tokio runtime.
    pub(super) async fn new() -> Option<Self> {
        let runtime = Handle::try_current().ok()?.id();
        let (refuse, refused) = mpsc::unbounded_channel();
        // rmcp keeps the current span open as long as the connection lives, and
        // that would be the span of whichever call came first. A task of its
        // own has none.
        let routes = Arc::<Routes>::default();
        let nowhere = Nowhere { routes: routes.clone(), refuse, refused };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { serve_directly(Nobody, nowhere, None) });
        let connection = tasks.join_next().await?.ok()?;
        Some(Self { connection, routes, runtime })
    }

    /// What a handler gets as the peer of its request.
    pub(super) fn peer(&self) -> Peer<RoleServer> {
        self.connection.peer().clone()
    }

    /// Lets a call tell its progress, as long as this is held, under the token of it.
    pub(super) fn listen(&self, progress: Progress) -> Route {
        self.routes.open(new_token(), progress)
    }

    /// Whether a call in this runtime can use the connection.
    ///
    /// The connection's task runs in the runtime that made it. A peer of another
    /// one is closed if that runtime is gone, and hangs if nobody drives it at
    /// the moment.
    fn serves(&self, runtime: runtime::Id) -> bool {
        self.runtime == runtime && !self.connection.peer().is_transport_closed()
    }
}

// === impl Nobody ===

impl ServerHandler for Nobody {}

// === impl Nowhere ===

impl Transport<RoleServer> for Nowhere {
    type Error = Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        match message {
            JsonRpcMessage::Request(request) => {
                let error = unanswered(
                    "there is no client to ask, or none that can be asked in the middle of a call",
                );
                // The receiver is ours and as alive as we are.
                let _ = self.refuse.send(JsonRpcMessage::error(error, Some(request.id)));
            }
            JsonRpcMessage::Notification(told) => {
                if let ServerNotification::ProgressNotification(told) = told.notification {
                    // Here and not in the future, which runs beside those of others.
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
