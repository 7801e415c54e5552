//! The client of a branch of a composite, which relays to the client of the composite's request.

use std::{
    convert::Infallible,
    future::{self, Future, poll_fn},
    task::Poll,
};

use futures::{FutureExt, future::BoxFuture};
use rmcp::{
    Peer, RoleServer, ServerHandler,
    model::{
        ClientResult, ErrorData, InputRequest, JsonRpcMessage, ProgressToken, RequestId,
        ServerNotification, ServerRequest,
    },
    service::{RunningService, RxJsonRpcMessage, TxJsonRpcMessage, serve_directly},
    transport::Transport,
};
use tokio::runtime::Handle;

use super::progress_routes::new_token;
use crate::message::{
    Progress,
    client::{LiveClient, unanswered},
};

/// A connection of one branch to a client that can be asked during its request.
///
/// When this value is dropped, the connection ends and its open questions are withdrawn. Each
/// branch has its own connection because rmcp does not say which user of a shared peer has given up
/// a question.
pub(super) struct BranchClient {
    connection: RunningService<RoleServer, StubHandler>,
    /// The progress token of the branch; `None` if progress is not requested.
    token: Option<ProgressToken>,
}

struct StubHandler;

/// The other end of the connection.
struct Relay {
    client: LiveClient,
    progress: Option<(ProgressToken, Progress)>,
    /// The open questions; seldom more than one.
    asking: Vec<(RequestId, BoxFuture<'static, Result<ClientResult, ErrorData>>)>,
}

// === impl BranchClient ===

impl BranchClient {
    /// Creates a connection to a client, or returns `None` outside a Tokio runtime.
    pub(super) fn new(client: LiveClient, progress: Option<Progress>) -> Option<Self> {
        Handle::try_current().ok()?;
        // Handlers read the client's capabilities from it.
        let info = client.info();
        let progress = progress.map(|progress| (new_token(), progress));
        let token = progress.as_ref().map(|(token, _)| token.clone());
        let relay = Relay { client, progress, asking: Vec::new() };
        Some(Self { connection: serve_directly(StubHandler, relay, info), token })
    }

    /// Returns the progress token of the branch, or `None` if progress is not requested.
    pub(super) const fn token(&self) -> Option<&ProgressToken> {
        self.token.as_ref()
    }

    /// Returns the peer for a handler's request.
    pub(super) fn peer(&self) -> Peer<RoleServer> {
        self.connection.peer().clone()
    }
}

// === impl StubHandler ===

impl ServerHandler for StubHandler {}

// === impl Relay ===

impl Relay {
    fn ask(&mut self, id: RequestId, request: ServerRequest) {
        let request = match request {
            ServerRequest::ElicitRequest(request) => InputRequest::Elicitation(request),
            ServerRequest::CreateMessageRequest(request) => InputRequest::CreateMessage(request),
            ServerRequest::ListRootsRequest(request) => InputRequest::ListRoots(request),
            _ => {
                let error = unanswered("the client of a composite is not asked for this");
                return self.asking.push((id, future::ready(Err(error)).boxed()));
            }
        };
        let client = self.client.clone();
        self.asking.push((id, async move { client.relay(request).await }.boxed()));
    }

    fn notify(&mut self, notification: ServerNotification) {
        match notification {
            ServerNotification::CancelledNotification(cancelled) => {
                let withdrawn = cancelled.params.request_id;
                self.asking.retain(|(id, _)| Some(id) != withdrawn.as_ref());
            }
            ServerNotification::ProgressNotification(told) => {
                let told = told.params;
                if let Some((token, progress)) = &self.progress
                    && *token == told.progress_token
                {
                    progress.report(told.progress, told.total, told.message);
                }
            }
            // Other notifications of a branch are discarded.
            _ => (),
        }
    }
}

impl Transport<RoleServer> for Relay {
    type Error = Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        match message {
            JsonRpcMessage::Request(request) => self.ask(request.id, request.request),
            JsonRpcMessage::Notification(notification) => self.notify(notification.notification),
            // This end never sends requests.
            _ => (),
        }
        future::ready(Ok(()))
    }

    /// rmcp calls this again after every message that it sends, so new questions need not wake it.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        poll_fn(|cx| {
            for (place, (_, answer)) in self.asking.iter_mut().enumerate() {
                if let Poll::Ready(answer) = answer.poll_unpin(cx) {
                    let (id, _) = self.asking.swap_remove(place);
                    return Poll::Ready(Some(match answer {
                        Ok(result) => JsonRpcMessage::response(result, id),
                        Err(error) => JsonRpcMessage::error(error, Some(id)),
                    }));
                }
            }
            Poll::Pending
        })
        .await
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
