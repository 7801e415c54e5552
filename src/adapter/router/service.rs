//! The Tower service of a router, which sends requests to backends and translates the names in
//! requests and replies.

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
    Resource, ResourceTemplate, ServerCapabilities, ServerResult, Tool,
};
use tower::BoxError;
use tower_service::Service;

use super::{
    Router,
    describe::{has_logging, has_skills},
    names::ExposedNames,
    shared::{Shared, Target},
};
use crate::{
    message::{
        BackendError, BackendErrorKind, ItemKind, Refusal, Reply, Request, Subject,
        client::missing_capability,
    },
    response_future::ResponseFuture as Answer,
    warnings::sanitize::Reason,
};

/// The item or method of a client's request, with the name that the client uses. It determines how
/// the backend's reply is translated for the client.
enum Wanted {
    Tool(Cow<'static, str>),
    Prompt(String),
    Resource(String),
    Subscription(String),
    Completion,
    /// A method that is not about an item, such as setting the log level. The request is sent to
    /// the backend that declares the matching capability, if there is exactly one such backend.
    Unshared(String),
}

/// The response future of a [`Router`].
///
/// Dropping a `ResponseFuture` cancels the request to the backend.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture(Answer<Sent, BackendError>);

/// A pending request to a backend. When the backend replies, its own names and errors are
/// translated to those that the client knows.
struct Sent {
    reply: BoxFuture<'static, Result<Reply, BoxError>>,
    shared: Arc<Shared>,
    place: usize,
    wanted: Wanted,
}

// === impl Router ===

impl Service<Request> for Router {
    type Response = Reply;
    type Error = BackendError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Always ready, because each request waits for its own backend. A backend that is not ready
        // must not delay requests to other backends.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let shared = self.shared.clone();
        if let Some(has) = unshared(request.message()) {
            return ResponseFuture(match shared.owner(has) {
                Some(place) => Answer::forwarded(Sent::new(shared, place, request)),
                None => Answer::answered(Reply::method_not_found(request.method().to_owned())),
            });
        }
        ResponseFuture(match request.subject() {
            Subject::Item(kind, name) => match shared.way(kind, name) {
                Target::To(place) => Answer::forwarded(Sent::new(shared, place, request)),
                Target::Look => Answer::boxed(find_and_send(shared, request).boxed()),
                Target::Contested => Answer::answered(refuse(kind, name, true)),
                Target::Nowhere => Answer::answered(refuse(kind, name, false)),
            },
            Subject::List(kind, _) => Answer::boxed(list(shared, kind, request).map(Ok).boxed()),
            _ if matches!(request.message(), ClientRequest::PingRequest(_)) => {
                Answer::answered(ServerResult::empty(()).into())
            }
            _ => Answer::answered(Reply::method_not_found(request.method().to_owned())),
        })
    }
}

/// Returns a function that checks whether a backend declares the capability for a request, such as
/// `logging` for a request to set the log level. Returns `None` for other requests, such as tool
/// calls.
fn unshared(message: &ClientRequest) -> Option<fn(&ServerCapabilities) -> bool> {
    match message {
        ClientRequest::ListSkillsRequest(_)
        | ClientRequest::GetSkillRequest(_)
        | ClientRequest::ReadResourceDirectoryRequest(_) => Some(has_skills),
        ClientRequest::SetLevelRequest(_) => Some(has_logging),
        _ => None,
    }
}

async fn list(shared: Arc<Shared>, kind: ItemKind, request: Request) -> Reply {
    let cursor = match request.subject() {
        Subject::List(_, cursor) => cursor.map(str::to_owned),
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

/// Sends a request for an item whose backend is not known yet. To find the backend, first lists the
/// items of all backends.
async fn find_and_send(shared: Arc<Shared>, request: Request) -> Result<Reply, BackendError> {
    let Subject::Item(kind, name) = request.subject() else {
        return Ok(Reply::method_not_found(request.method().to_owned()));
    };
    match kind {
        ItemKind::Tool => shared.list_again::<Tool>(request.context()).await,
        ItemKind::Prompt => shared.list_again::<Prompt>(request.context()).await,
        ItemKind::Resource | ItemKind::ResourceTemplate => {
            shared.look_for_resources(request.context()).await;
        }
    }
    match shared.way(kind, name) {
        Target::To(place) => Sent::new(shared, place, request).await,
        way => Ok(refuse(kind, name, way == Target::Contested)),
    }
}

/// Returns the tool or prompt name in a reply that rejects the name as unknown or unavailable.
/// Returns `None` for all other replies, and for replies about resources.
fn named(reply: &mut Reply) -> Option<&mut Cow<'static, str>> {
    let refusal = reply.refusal_mut()?;
    refusal.kind()?.is_named().then_some(())?;
    refusal.name_mut()
}

/// Returns the error reply to a request for an item that no backend owns. `contested` is `true` if
/// several backends offer an item with this name, and all of these items are left out.
fn refuse(kind: ItemKind, name: &str, contested: bool) -> Reply {
    let name = name.to_owned();
    // Resources are never contested: a resource of several backends belongs to the first backend.
    if contested && kind.is_named() {
        return Refusal::Unavailable { kind, name: name.into() }.into();
    }
    Reply::unknown(kind, name)
}

// === impl Sent ===

impl Sent {
    fn new(shared: Arc<Shared>, place: usize, mut request: Request) -> Self {
        let wanted = Wanted::translate(&shared.names, place, request.message_mut());
        let reply = shared.backends[place].service.answer(request);
        Self { reply, shared, place, wanted }
    }

    /// Translates a backend's reply for the client. In the reply, the backend's own name of the
    /// item is replaced by the name that clients see. Errors about the connection to the backend
    /// are replaced by errors that clients understand.
    fn put(&mut self, reply: &mut Reply) {
        let Self { shared, place, wanted, .. } = self;
        if let Some(result) = reply.result() {
            shared.handed_out.note(*place, result);
        } else if let Some(name) = named(reply) {
            *name = match wanted {
                Wanted::Tool(own) if shared.names.own(*place, own) == Some(name) => mem::take(own),
                _ => shared.names.expose(*place, name).into(),
            };
        } else if let Some(missing) = reply.error().and_then(|error| missing_capability(&error)) {
            // Passed on to the client, because it concerns the client's capabilities, which the
            // router has relayed.
            *reply = missing.into();
        } else if let Some(code) = reply.error().map(|error| error.code) {
            match code.0 {
                // The client must not conclude that the router lacks the method, so the item is
                // rejected instead.
                _ if code == ErrorCode::METHOD_NOT_FOUND => *reply = wanted.refuse(),
                // These errors concern the connection between the router and the backend.
                -32022..=-32020 => {
                    let name = shared.names.of(*place);
                    let error = reply.error().map(|error| Reason(&error.message).to_string());
                    tracing::warn!(
                        backend = &**name,
                        error,
                        "a backend rejected the protocol of a request"
                    );
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

// === impl Wanted ===

impl Wanted {
    /// Replaces the tool or prompt name in a client's request by the backend's own name. Returns
    /// the item or method that the request is about, with the name that the client has used.
    fn translate(names: &ExposedNames, place: usize, message: &mut ClientRequest) -> Self {
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
            message if unshared(message).is_some() => Self::Unshared(message.method().to_owned()),
            _ => Self::Completion,
        }
    }

    /// Returns the reply that the client receives if the backend does not know the method of the
    /// request.
    fn refuse(&mut self) -> Reply {
        match self {
            Self::Tool(name) => Reply::unknown_tool(mem::take(name)),
            Self::Prompt(name) => Reply::unknown(ItemKind::Prompt, mem::take(name)),
            Self::Resource(uri) => Reply::unknown(ItemKind::Resource, mem::take(uri)),
            Self::Subscription(uri) => {
                let message = format!("the resource `{uri}` cannot be subscribed to");
                ErrorData::invalid_params(message, None).into()
            }
            Self::Unshared(method) => Reply::method_not_found(mem::take(method)),
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
        self.0.poll_unpin(cx)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
