//! A client for handlers that run in a branch of a composite. It relays the handler's questions and
//! progress to the client that called the composite.

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

/// An in-process connection between the handler of one branch of a composite and the client that
/// called the composite. The handler uses it to ask the client for input while the composite runs.
///
/// Dropping this value ends the connection and withdraws the questions that the client has not
/// answered yet.
pub(super) struct BranchClient {
    connection: RunningService<RoleServer, StubHandler>,
    /// The progress token for the handler's notifications. `None` if the client has not requested
    /// progress.
    pub(super) token: Option<ProgressToken>,
}

struct StubHandler;

/// The client's end of a [`BranchClient`] connection. It forwards the handler's requests and
/// progress notifications to the client, and returns the client's answers to the handler.
struct Relay {
    client: LiveClient,
    progress: Option<(ProgressToken, Progress)>,
    /// The handler's requests that the client has not answered yet, such as elicitation requests.
    /// Each entry has the id of the request and the future of the client's answer.
    asking: Vec<(RequestId, BoxFuture<'static, Result<ClientResult, ErrorData>>)>,
}

// === impl BranchClient ===

impl BranchClient {
    /// Creates a connection to a client, or returns `None` outside a Tokio runtime.
    pub(super) fn new(client: LiveClient, progress: Option<Progress>) -> Option<Self> {
        Handle::try_current().ok()?;
        // Handlers read the client's capabilities from `info`.
        let info = client.info();
        let progress = progress.map(|progress| (new_token(), progress));
        let token = progress.as_ref().map(|(token, _)| token.clone());
        let relay = Relay { client, progress, asking: Vec::new() };
        Some(Self { connection: serve_directly(StubHandler, relay, info), token })
    }

    /// Returns the peer over which the handler sends its requests and notifications.
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
                let error = unanswered("composites do not forward this request to the client");
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
            ServerNotification::ProgressNotification(update) => {
                let params = update.params;
                if let Some((token, progress)) = &self.progress
                    && *token == params.progress_token
                {
                    progress.report(params.progress, params.total, params.message);
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
            // Responses do not occur, because this end never sends requests.
            _ => (),
        }
        future::ready(Ok(()))
    }

    /// Waits until the client has answered one of the handler's pending requests. Returns the
    /// client's answer as the message that the handler receives.
    ///
    /// rmcp calls `receive` again after every message that the handler sends. Therefore, new
    /// requests of the handler need not wake this future.
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
