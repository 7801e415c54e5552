//! Calls any rmcp [`ServerHandler`] as a Tower service.
//!
//! A [`HandlerService`] passes requests straight to the methods of an rmcp handler, without the
//! checks that rmcp makes for a client. These checks concern the client's protocol version, its
//! capabilities, and the features that an older client may see. If the service is
//! [served](super::ServeService) to a client, rmcp makes the checks once, before the request
//! reaches the Tower layers.
//!
//! A [`HandlerService`] also works without a connected client, for example if your code or a
//! composite tool calls the handler. The handler then receives a stub as its rmcp peer. The stub
//! discards the handler's notifications and log messages, and immediately rejects the requests that
//! the handler sends to the client. Progress is the exception: the handler receives a progress
//! token in `_meta`, as in a request from a client, and its progress goes to the
//! [`Context`](crate::message::Context::progress) of the request.
//!
//! A handler that a [composite](crate::composite) calls can still ask the client that called the
//! composite. A client with a protocol version before 2026-07-28 receives the handler's requests,
//! within the client's capabilities. They are withdrawn when the call of the handler ends. For a
//! client with a later version, the handler must answer with `InputRequired` instead.
//!
//! A [`HandlerService`] rejects `subscriptions/listen` requests with "method not found", because a
//! Tower service cannot return an open-ended stream of notifications.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{adapter::HandlerService, message::Request};
//! use rmcp::{
//!     ErrorData, RoleServer, ServerHandler,
//!     model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock},
//!     service::RequestContext,
//! };
//! use tower::ServiceExt;
//!
//! struct Greeter;
//!
//! impl ServerHandler for Greeter {
//!     async fn call_tool(
//!         &self,
//!         _: CallToolRequestParams,
//!         _: RequestContext<RoleServer>,
//!     ) -> Result<CallToolResponse, ErrorData> {
//!         Ok(CallToolResult::success(vec![ContentBlock::text("hello")]).into())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let reply = HandlerService::new(Greeter).oneshot(Request::call_tool("greet")).await?;
//! assert_eq!(reply.tool_result().unwrap().content[0].as_text().unwrap().text, "hello");
//! # Ok(())
//! # }
//! ```

use std::{
    any,
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{BoxFuture, FutureExt};
use rmcp::{
    RoleServer, ServerHandler,
    model::{ClientRequest, ErrorCode, ErrorData, ServerResult},
    service::RequestContext,
};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::{
    branch_client::BranchClient,
    stub_peer::{StubClient, StubClients},
};
use crate::message::{self, Reply, Request};

/// A Tower service that calls an rmcp [`ServerHandler`] directly, without a connection.
///
/// A `HandlerService` is always ready and never fails. If the handler returns an error, the error
/// is part of the [`Reply`]. Clones share the handler. See the [module docs](self) for an example.
pub struct HandlerService<H> {
    shared: Arc<Shared<H>>,
}

struct Shared<H> {
    handler: Arc<H>,
    absent_clients: StubClients,
}

/// The response future of [`HandlerService`].
///
/// Dropping a `ResponseFuture` cancels the request: the handler's future is dropped, and the
/// cancellation token that the handler received is cancelled.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture {
    reply: BoxFuture<'static, Reply>,
}

// === impl HandlerService ===

impl<H: ServerHandler> HandlerService<H> {
    /// Creates a Tower service from an rmcp handler.
    #[must_use]
    pub fn new(handler: H) -> Self {
        Arc::new(handler).into()
    }

    /// Returns the rmcp handler that the service calls.
    #[must_use]
    pub fn handler(&self) -> &Arc<H> {
        &self.shared.handler
    }
}

impl<H: ServerHandler> From<Arc<H>> for HandlerService<H> {
    fn from(handler: Arc<H>) -> Self {
        Self { shared: Arc::new(Shared { handler, absent_clients: StubClients::default() }) }
    }
}

impl<H: ServerHandler> Service<Request> for HandlerService<H> {
    type Response = Reply;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        ResponseFuture { reply: async move { shared.answer(request).await.into() }.boxed() }
    }
}

impl<H> Clone for HandlerService<H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<H> fmt::Debug for HandlerService<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerService")
            .field("handler", &format_args!("{}", any::type_name::<H>()))
            .finish_non_exhaustive()
    }
}

// === impl Shared ===

impl<H: ServerHandler> Shared<H> {
    async fn answer(&self, request: Request) -> Result<ServerResult, ErrorData> {
        let (message, context) = request.into_parts();
        let id = context.id();
        // If the request has a connection to the client, the handler uses that connection.
        let branch_client = match context.peer() {
            Some(_) => None,
            None => {
                let client = context.known_live_client().cloned();
                client.and_then(|client| BranchClient::new(client, context.progress().cloned()))
            }
        };
        let message::Context { meta, extensions, cancellation, peer, progress, .. } = context;
        let mut meta = meta.into_owned();

        // Held until the handler has answered, because dropping this stub client closes the
        // handler's peer.
        let absent_client;
        // Held until the handler has answered, because dropping the route stops the forwarding of
        // progress.
        let route;
        let peer = match (peer, &branch_client) {
            (Some(peer), _) => peer,
            (None, Some(client)) => {
                if let Some(token) = &client.token {
                    meta.set_progress_token(token.clone());
                }
                client.peer()
            }
            (None, None) => {
                absent_client = self.absent_client(&message).await.ok_or_else(|| {
                    ErrorData::internal_error("a call without a client needs a Tokio runtime", None)
                })?;
                route = progress.map(|progress| absent_client.listen(progress));
                if let Some(route) = &route {
                    meta.set_progress_token(route.token.clone());
                }
                absent_client.peer()
            }
        };

        let cancellation = cancellation
            .as_ref()
            .map_or_else(CancellationToken::new, CancellationToken::child_token);
        let mut context = RequestContext::new(id, peer);
        context.ct = cancellation.clone();
        context.meta = meta;
        context.extensions = extensions.into_owned();
        // When the call ends, the guard cancels the handler's token, so that tasks spawned by the
        // handler can stop.
        let _guard = cancellation.drop_guard();

        dispatch(&*self.handler, message, context).await
    }

    async fn absent_client(&self, message: &ClientRequest) -> Option<Arc<StubClient>> {
        match message {
            // An `initialize` request gets a peer of its own: the handler stores the client's
            // description on the peer. On a shared peer, all later calls would seem to come from
            // that client.
            ClientRequest::InitializeRequest(_) => StubClient::new().await.map(Arc::new),
            _ => self.absent_clients.shared().await,
        }
    }
}

/// Calls the method of the handler for the request `message`, such as `call_tool` for `tools/call`.
///
/// rmcp's `Service::handle_request` is not suitable, because it assumes a connection to a client.
/// For example, it rejects an `InputRequired` answer to a client with protocol version 2025-11-25
/// or older before a layer can ask the client.
#[expect(deprecated, reason = "handlers for older clients implement the deprecated methods")]
#[expect(clippy::too_many_lines, reason = "one arm per kind of message")]
async fn dispatch<H: ServerHandler>(
    handler: &H,
    message: ClientRequest,
    context: RequestContext<RoleServer>,
) -> Result<ServerResult, ErrorData> {
    use ClientRequest as Message;
    use ServerResult as Answer;

    match message {
        Message::InitializeRequest(request) => {
            handler.initialize(request.params, context).await.map(Answer::InitializeResult)
        }
        Message::DiscoverRequest(_) => handler.discover(context).await.map(Answer::DiscoverResult),
        Message::PingRequest(_) => handler.ping(context).await.map(Answer::empty),
        Message::CompleteRequest(request) => {
            handler.complete(request.params, context).await.map(Answer::CompleteResult)
        }
        Message::SetLevelRequest(request) => {
            handler.set_level(request.params, context).await.map(Answer::empty)
        }
        Message::ListPromptsRequest(request) => {
            handler.list_prompts(request.params, context).await.map(Answer::ListPromptsResult)
        }
        Message::GetPromptRequest(request) => {
            handler.get_prompt(request.params, context).await.map(Answer::from)
        }
        Message::ListResourcesRequest(request) => {
            handler.list_resources(request.params, context).await.map(Answer::ListResourcesResult)
        }
        Message::ListResourceTemplatesRequest(request) => handler
            .list_resource_templates(request.params, context)
            .await
            .map(Answer::ListResourceTemplatesResult),
        Message::ReadResourceRequest(request) => {
            handler.read_resource(request.params, context).await.map(Answer::from)
        }
        Message::ReadResourceDirectoryRequest(request) => handler
            .read_resource_directory(request.params, context)
            .await
            .map(Answer::ListResourcesResult),
        Message::SubscribeRequest(request) => {
            handler.subscribe(request.params, context).await.map(Answer::empty)
        }
        Message::UnsubscribeRequest(request) => {
            handler.unsubscribe(request.params, context).await.map(Answer::empty)
        }
        Message::ListToolsRequest(request) => {
            handler.list_tools(request.params, context).await.map(Answer::ListToolsResult)
        }
        Message::CallToolRequest(request) => {
            handler.call_tool(request.params, context).await.map(Answer::from)
        }
        Message::GetTaskRequest(request) => {
            handler.get_task(request.params, context).await.map(Answer::GetTaskResult)
        }
        Message::UpdateTaskRequest(request) => {
            handler.update_task(request.params, context).await.map(Answer::task_ack)
        }
        Message::CancelTaskRequest(request) => {
            handler.cancel_task(request.params, context).await.map(Answer::task_ack)
        }
        Message::ListSkillsRequest(request) => {
            handler.list_skills(request.params, context).await.map(Answer::ListSkillsResult)
        }
        Message::GetSkillRequest(request) => {
            handler.get_skill(request.params, context).await.map(Answer::GetSkillResult)
        }
        Message::CustomRequest(request) => {
            handler.on_custom_request(request, context).await.map(Answer::CustomResult)
        }
        // Rejects `subscriptions/listen` and methods that later versions of rmcp may add.
        unknown => {
            Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, unknown.method().to_owned(), None))
        }
    }
}

// === impl ResponseFuture ===

impl Future for ResponseFuture {
    type Output = Result<Reply, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.reply.poll_unpin(cx).map(Ok)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
