use std::{
    borrow::Cow,
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::future::{BoxFuture, FutureExt};
use rmcp::model::{
    ClientRequest, CompleteResult, CompletionInfo, ErrorCode, ErrorData, Prompt, Reference,
    Resource, ResourceTemplate, ServerResult, Tool,
};
use serde_json::json;
use tower::BoxError;
use tower_service::Service;

use super::{
    Router,
    item::ItemKind,
    names::Names,
    shared::{Shared, Way},
};
use crate::message::{BackendError, BackendErrorKind, Refusal, Reply, Request};

/// What a request asks for.
#[derive(Clone, Copy)]
enum Wanted<'r> {
    Tool(&'r str),
    Prompt(&'r str),
    Resource(&'r str),
    /// A completion for a template of resources.
    Template(&'r str),
    List(ItemKind, Option<&'r String>),
    Pong,
    /// Something that a router does not do.
    Other,
}

/// What a backend was asked for, as the client named it.
enum Subject {
    Tool(Cow<'static, str>),
    Prompt(String),
    Resource(String),
    Subscription(String),
    Completion,
}

/// Response future of [`Router`].
///
/// To drop it is to drop what the backend does for it.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture(State);

enum State {
    Answered(Option<Reply>),
    Sent(Sent),
    Working(BoxFuture<'static, Result<Reply, BackendError>>),
}

/// A request that is with a backend.
struct Sent {
    reply: BoxFuture<'static, Result<Reply, BoxError>>,
    shared: Arc<Shared>,
    place: usize,
    subject: Subject,
}

// === impl Router ===

impl Service<Request> for Router {
    type Response = Reply;
    type Error = BackendError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Each request waits for its own backend: one that is not ready must not
        // keep requests from the others.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let wanted = Wanted::by(request.message());
        ResponseFuture(match (wanted, wanted.way(&self.shared)) {
            (Wanted::List(kind, _), _) => {
                State::Working(list(self.shared.clone(), kind, request).map(Ok).boxed())
            }
            (Wanted::Pong, _) => State::Answered(Some(ServerResult::empty(()).into())),
            (Wanted::Other, _) => {
                State::Answered(Some(Reply::method_not_found(request.method().to_owned())))
            }
            (_, Way::To(place)) => State::Sent(Sent::new(self.shared.clone(), place, request)),
            (_, Way::Look) => State::Working(look(self.shared.clone(), request).boxed()),
            (_, way @ (Way::Contested | Way::Nowhere)) => State::Answered(Some(wanted.refuse(way))),
        })
    }
}

async fn list(shared: Arc<Shared>, kind: ItemKind, request: Request) -> Reply {
    let cursor = match Wanted::by(request.message()) {
        Wanted::List(_, cursor) => cursor.cloned(),
        _ => None,
    };
    let context = request.context();
    match kind {
        ItemKind::Tool => shared.list_page::<Tool>(cursor, context).await,
        ItemKind::Prompt => shared.list_page::<Prompt>(cursor, context).await,
        ItemKind::Resource => shared.list_page::<Resource>(cursor, context).await,
        ItemKind::ResourceTemplate => shared.list_page::<ResourceTemplate>(cursor, context).await,
    }
}

/// Finds out whose it is, and sends the request there.
async fn look(shared: Arc<Shared>, request: Request) -> Result<Reply, BackendError> {
    let wanted = Wanted::by(request.message());
    match wanted {
        Wanted::Tool(_) => shared.look::<Tool>(request.context()).await,
        Wanted::Prompt(_) => shared.look::<Prompt>(request.context()).await,
        _ => shared.look_for_resources(request.context()).await,
    }
    match wanted.way(&shared) {
        Way::To(place) => Sent::new(shared, place, request).await,
        way => Ok(wanted.refuse(way)),
    }
}

// === impl Wanted ===

impl<'r> Wanted<'r> {
    fn by(message: &'r ClientRequest) -> Self {
        use ClientRequest as Message;

        match message {
            Message::CallToolRequest(call) => Self::Tool(&call.params.name),
            Message::GetPromptRequest(get) => Self::Prompt(&get.params.name),
            Message::ReadResourceRequest(read) => Self::Resource(&read.params.uri),
            Message::SubscribeRequest(subscribe) => Self::Resource(&subscribe.params.uri),
            Message::UnsubscribeRequest(unsubscribe) => Self::Resource(&unsubscribe.params.uri),
            Message::CompleteRequest(complete) => match &complete.params.r#ref {
                Reference::Prompt(prompt) => Self::Prompt(&prompt.name),
                Reference::Resource(template) => Self::Template(&template.uri),
                _ => Self::Other,
            },
            Message::ListToolsRequest(list) => Self::list(ItemKind::Tool, list.params.as_ref()),
            Message::ListPromptsRequest(list) => Self::list(ItemKind::Prompt, list.params.as_ref()),
            Message::ListResourcesRequest(list) => {
                Self::list(ItemKind::Resource, list.params.as_ref())
            }
            Message::ListResourceTemplatesRequest(list) => {
                Self::list(ItemKind::ResourceTemplate, list.params.as_ref())
            }
            Message::PingRequest(_) => Self::Pong,
            _ => Self::Other,
        }
    }

    fn list(kind: ItemKind, params: Option<&'r rmcp::model::PaginatedRequestParams>) -> Self {
        Self::List(kind, params.and_then(|params| params.cursor.as_ref()))
    }

    fn way(self, shared: &Shared) -> Way {
        match self {
            Self::Tool(name) => shared.way_to_name::<Tool>(name),
            Self::Prompt(name) => shared.way_to_name::<Prompt>(name),
            Self::Resource(uri) | Self::Template(uri) => shared.way_to_resource(uri),
            Self::List(..) | Self::Pong | Self::Other => Way::Nowhere,
        }
    }

    /// The answer to who asks for what leads nowhere.
    fn refuse(self, way: Way) -> Reply {
        match (self, way) {
            (Self::Tool(name), Way::Contested) => {
                Refusal::Unavailable { tool: name.to_owned().into() }.into()
            }
            (Self::Tool(name), _) => Reply::unknown_tool(name.to_owned()),
            (Self::Prompt(name), Way::Contested) => {
                let message = format!("prompt `{name}` is not available at the moment");
                ErrorData::invalid_params(message, None).into()
            }
            (Self::Prompt(name), _) => unknown_prompt(name),
            (Self::Template(uri), _) => {
                ErrorData::invalid_params(format!("unknown resource template `{uri}`"), None).into()
            }
            (Self::Resource(uri), _) => unknown_resource(uri),
            (Self::List(..) | Self::Pong | Self::Other, _) => {
                ErrorData::internal_error("internal error", None).into()
            }
        }
    }
}

fn unknown_prompt(name: &str) -> Reply {
    ErrorData::invalid_params(format!("unknown prompt `{name}`"), None).into()
}

fn unknown_resource(uri: &str) -> Reply {
    ErrorData::resource_not_found("resource not found", Some(json!({ "uri": uri }))).into()
}

// === impl Sent ===

impl Sent {
    fn new(shared: Arc<Shared>, place: usize, mut request: Request) -> Self {
        let subject = Subject::translate(&shared.names, place, request.message_mut());
        let reply = shared.backends[place].service.answer(request);
        Self { reply, shared, place, subject }
    }

    /// Puts a reply into the words of the client.
    fn put(&mut self, reply: &mut Reply) {
        let Self { shared, place, subject, .. } = self;
        if let Some(result) = reply.result() {
            shared.handed_out.note(*place, result);
        } else if let Some(refusal) = reply.refusal_mut() {
            let tool = refusal.tool_mut();
            *tool = match subject {
                Subject::Tool(name) if shared.names.own(*place, name) == Some(tool) => {
                    mem::take(name)
                }
                _ => shared.names.expose(*place, tool).into(),
            };
        } else if let Some(code) = reply.error().map(|error| error.code) {
            match code.0 {
                // The client has asked this server, which has the method.
                _ if code == ErrorCode::METHOD_NOT_FOUND => *reply = subject.refuse(),
                // What a backend finds wrong with our connection to it.
                -32022..=-32020 => {
                    let name = shared.names.of(*place);
                    tracing::warn!(backend = &**name, error = ?reply.error(), "a backend refuses to talk");
                    let error = BackendError::new(name.clone(), BackendErrorKind::Failed);
                    *reply = ErrorData::internal_error(error.to_string(), None).into();
                }
                _ => (),
            }
        }
    }
}

impl Future for Sent {
    type Output = Result<Reply, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = ready!(self.reply.poll_unpin(cx));
        Poll::Ready(match reply {
            Ok(mut reply) => {
                self.put(&mut reply);
                Ok(reply)
            }
            Err(error) => Err(BackendError::from_service(self.shared.names.of(self.place), error)),
        })
    }
}

// === impl Subject ===

impl Subject {
    /// Puts a request into the words of its backend.
    fn translate(names: &Names, place: usize, message: &mut ClientRequest) -> Self {
        use ClientRequest as Message;

        let own = |name: &str| names.own(place, name).unwrap_or(name).to_owned();
        match message {
            Message::CallToolRequest(call) => {
                let name = &mut call.params.name;
                let own = own(name);
                Self::Tool(mem::replace(name, own.into()))
            }
            Message::GetPromptRequest(get) => {
                let name = &mut get.params.name;
                let own = own(name);
                Self::Prompt(mem::replace(name, own))
            }
            Message::ReadResourceRequest(read) => Self::Resource(read.params.uri.clone()),
            Message::SubscribeRequest(subscribe) => {
                Self::Subscription(subscribe.params.uri.clone())
            }
            Message::UnsubscribeRequest(unsubscribe) => {
                Self::Subscription(unsubscribe.params.uri.clone())
            }
            Message::CompleteRequest(complete) => {
                if let Reference::Prompt(prompt) = &mut complete.params.r#ref {
                    prompt.name = own(&prompt.name);
                }
                Self::Completion
            }
            _ => Self::Completion,
        }
    }

    /// The answer of a backend that knows nothing of the kind.
    fn refuse(&mut self) -> Reply {
        match self {
            Self::Tool(name) => Reply::unknown_tool(mem::take(name)),
            Self::Prompt(name) => unknown_prompt(name),
            Self::Resource(uri) => unknown_resource(uri),
            Self::Subscription(uri) => {
                let message = format!("the resource `{uri}` cannot be subscribed to");
                ErrorData::invalid_params(message, None).into()
            }
            Self::Completion => {
                let nothing = CompleteResult::new(CompletionInfo::default());
                ServerResult::CompleteResult(nothing).into()
            }
        }
    }
}

// === impl ResponseFuture ===

impl Future for ResponseFuture {
    type Output = Result<Reply, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Answered(reply) => {
                Poll::Ready(Ok(reply.take().expect("polled after completion")))
            }
            State::Sent(sent) => sent.poll_unpin(cx),
            State::Working(reply) => reply.poll_unpin(cx),
        }
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
