//! The client of a branch: what is asked there is put to the client of its request.

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

/// A connection of one branch to a client that can be asked while its request
/// goes on.
///
/// It ends when this value is dropped, and what was asked over it and is not
/// answered is withdrawn. So each branch has its own: of a peer that several share,
/// rmcp does not say whose question is not waited for any more.
pub(super) struct BranchClient {
    connection: RunningService<RoleServer, Nobody>,
    /// Under which the branch tells its progress, if anybody wants to know.
    token: Option<ProgressToken>,
}

struct Nobody;

/// The other end of the connection.
struct Relay {
    client: LiveClient,
    progress: Option<(ProgressToken, Progress)>,
    /// What is asked at the moment; there is seldom more than one.
    asking: Vec<(RequestId, BoxFuture<'static, Result<ClientResult, ErrorData>>)>,
}

// === impl BranchClient ===

impl BranchClient {
    /// Makes a connection to a client, or nothing outside a Tokio runtime.
    pub(super) fn new(client: LiveClient, progress: Option<Progress>) -> Option<Self> {
        Handle::try_current().ok()?;
        // Handlers look there for what they may ask.
        let info = client.info();
        let progress = progress.map(|progress| (new_token(), progress));
        let token = progress.as_ref().map(|(token, _)| token.clone());
        let relay = Relay { client, progress, asking: Vec::new() };
        Some(Self { connection: serve_directly(Nobody, relay, info), token })
    }

    /// Under which the branch tells its progress, if anybody wants to know.
    pub(super) const fn token(&self) -> Option<&ProgressToken> {
        self.token.as_ref()
    }

    /// What a handler gets as the peer of its request.
    pub(super) fn peer(&self) -> Peer<RoleServer> {
        self.connection.peer().clone()
    }
}

// === impl Nobody ===

impl ServerHandler for Nobody {}

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
            // What else a branch notifies is discarded.
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
            // Nothing is ever asked from this end.
            _ => (),
        }
        future::ready(Ok(()))
    }

    /// rmcp calls it anew after everything that it sends, so it need not be woken by
    /// what is asked meanwhile.
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
