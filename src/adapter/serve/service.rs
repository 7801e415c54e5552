//! An MCP server that sends client requests to a Tower service.

use std::{
    any::{self, Any},
    fmt,
    pin::pin,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

use futures::future::{self, BoxFuture, Either, FutureExt, TryFutureExt};
#[expect(deprecated, reason = "backends of any age understand it")]
use rmcp::model::{UnsubscribeRequest, UnsubscribeRequestParams};
use rmcp::{
    RoleServer, ServerHandler,
    model::{ClientRequest, ConstString, ErrorData, ServerResult},
    service::RequestContext,
};
use tower::ServiceExt;
use tower_layer::Layer;

#[cfg(feature = "http")]
use super::tools::Searches;
use super::{
    changes::{Changing, Connection},
    describe::{Describe, Described},
    failure::{caught, failure, mismatch},
    passthrough::Passthrough,
    protocol_version::{fill_result_type, is_modern},
    subscriptions::Subscriptions,
    tools::ListedTools,
};
use crate::{
    adapter::HandlerService,
    changes::Changes,
    message::{Context, LogLevel, Logs, Progress, Pump, Request, ToolService, client::may_ask},
    mutex::lock,
};

/// An MCP server that answers client requests with a Tower service. rmcp can run it over any
/// transport.
///
/// rmcp needs one `ServeService` for each connection. Over streamable HTTP, it needs one for each
/// session, and one for each request outside a session. Clone the `ServeService` for this purpose.
/// Clones are cheap and share the Tower service, but not the state of a connection, such as its
/// resource subscriptions. The Tower service need not be `Sync`.
///
/// The [module docs](crate::adapter) have an example, and list the differences that clients see
/// between a bare rmcp handler and a `ServeService`.
pub struct ServeService<S> {
    pub(super) shared: Arc<Shared<S>>,
    /// The source of change notifications for clients. `None` if clients are not notified, because
    /// [`changes`](Self::changes) was not called.
    pub(super) changing: Option<Changing>,
    /// A function that returns the name of a request's caller, so that the resource subscriptions
    /// of each caller can be limited.
    caller_of: Option<Arc<CallerOf>>,
    /// The state of the client connection that this server serves. A clone starts with an empty
    /// state.
    pub(super) connection: Connection,
    /// A value that is dropped when this connection ends. Clones of the server do not contain the
    /// value.
    held: Option<Box<dyn Any + Send + Sync>>,
}

/// The state that all clones of a server share.
pub(super) struct Shared<S> {
    /// The Tower service that answers requests. It is in a mutex because it need not be `Sync`. The
    /// lock is held only to clone it.
    service: Mutex<S>,
    pub(super) aside: Arc<dyn Passthrough>,
    pub(super) opening: Opening,
    /// `true` if the service has declared or created tasks.
    pub(super) has_tasks: AtomicBool,
    pub(super) tools: ListedTools,
    #[cfg(feature = "http")]
    pub(super) searches: Searches,
}

/// Determines which component answers the requests `initialize`, `server/discover` and `ping`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Opening {
    /// The Tower service answers `initialize`, `server/discover` and `ping` like all other
    /// requests, so that layers can see and change them.
    Inside,
    /// The wrapped handler answers `initialize`, `server/discover` and `ping`, and the layers do
    /// not see them. Used if the Tower service is not a complete server.
    Passthrough,
}

/// A function that returns the name of a request's caller. Subscriptions with the same caller name
/// share the limits per caller. If the function returns `None`, only the limits per connection and
/// for all clients apply.
type CallerOf = dyn Fn(&Context) -> Option<Arc<str>> + Send + Sync;

// === impl ServeService ===

impl<S> ServeService<S> {
    /// Creates a server from a Tower service and a server description.
    ///
    /// The Tower service receives the requests of clients about tools, prompts, resources and so
    /// on. The server itself answers `initialize`, `server/discover` and `ping`, and discards
    /// notifications from clients. It supports `subscriptions/listen` only with
    /// [`changes`](Self::changes).
    ///
    /// Clients use capabilities of layers only if the description declares them: see
    /// [`StackLayer::declare`](crate::stack::StackLayer::declare). The server forwards requests
    /// about [tasks](crate::tasks) only if the description declares tasks, or after it has created
    /// one.
    #[must_use]
    pub fn new(service: S, description: impl Describe) -> Self {
        Self::over(service, Arc::new(Described(description)), Opening::Passthrough)
    }

    /// Creates a server from an rmcp handler and a Tower layer around it.
    ///
    /// All client requests except `subscriptions/listen` pass through the layer to the handler. All
    /// other messages reach the same handler directly. To use several layers, pass a
    /// `tower::ServiceBuilder`, which is also a layer.
    #[must_use]
    pub fn wrap<H, L>(handler: H, layer: L) -> Self
    where
        H: ServerHandler,
        L: Layer<HandlerService<H>, Service = S>,
    {
        let handler = HandlerService::new(handler);
        let aside = Arc::clone(handler.handler());
        Self::over(layer.layer(handler), aside, Opening::Inside)
    }

    fn over(service: S, aside: Arc<dyn Passthrough>, opening: Opening) -> Self {
        Self {
            shared: Arc::new(Shared {
                service: Mutex::new(service),
                aside,
                opening,
                has_tasks: AtomicBool::new(false),
                tools: ListedTools::default(),
                #[cfg(feature = "http")]
                searches: Searches::default(),
            }),
            changing: None,
            caller_of: None,
            connection: Connection::default(),
            held: None,
        }
    }

    /// Sets a function that returns the name of the caller of a request, such as a user. With this
    /// function, the number of resource subscriptions is limited for each caller across all its
    /// connections.
    ///
    /// Without a `caller` function, subscriptions are only limited for each connection, and for all
    /// clients together. All requests for which the function returns `None` count as requests of
    /// one unnamed caller.
    #[must_use]
    pub fn caller<F>(self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.caller_of(move |context| Some(account(caller(context))))
    }

    /// Like [`caller`](Self::caller), but the limits per caller do not apply to requests for which
    /// the function returns `None`.
    pub(crate) fn caller_of<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<Arc<str>> + Send + Sync + 'static,
    {
        self.caller_of = Some(Arc::new(caller));
        self
    }

    /// Stores a value in this server until the client connection of the server has ended, and then
    /// drops it. An example is a semaphore permit that is released when the connection ends. Clones
    /// of the server do not contain the value.
    #[must_use]
    pub fn hold(mut self, value: impl Send + Sync + 'static) -> Self {
        self.held = Some(Box::new(value));
        self
    }

    pub(super) fn caller_in(&self, context: &RequestContext<RoleServer>) -> Option<Arc<str>> {
        self.caller_of.as_ref()?(&Context::from(context.clone()))
    }
}

impl<S> ServeService<S>
where
    S: ToolService,
{
    /// Notifies clients of changed lists and updated resources that are reported to `changes`.
    ///
    /// Pass a clone of the [`Changes`] channel to which the backends report. A client with protocol
    /// version 2025-11-25 or older is notified of changed lists of tools, prompts and resources,
    /// and of updates of its subscribed resources. A newer client is notified after it has
    /// requested a stream of changes with `subscriptions/listen`. Changes that occur while a
    /// notification is being sent are combined into one.
    ///
    /// The server then declares `listChanged` for tools. It declares `listChanged` for prompts and
    /// resources, and subscriptions to resources, only if the server description declares these
    /// capabilities.
    ///
    /// A client's request to subscribe to a resource is sent to the Tower service. If the service
    /// rejects the request, the client receives no updates of the resource. On a
    /// `subscriptions/listen` stream, the error "method not found" does not count as a rejection.
    /// When the last client has unsubscribed or disconnected, the service receives one unsubscribe
    /// request for each subscribe request that it has accepted.
    ///
    /// If the server [wraps](Self::wrap) a handler, the handler must report its changes to the
    /// [`Changes`] channel instead of notifying its client directly.
    #[must_use]
    pub fn changes(mut self, changes: Changes) -> Self {
        let shared = Arc::clone(&self.shared);
        let unsubscribe = Box::new(move |uri: Arc<str>| {
            let shared = Arc::clone(&shared);
            async move { shared.unsubscribe(&uri).await }.boxed()
        });
        let subscriptions = Arc::new(Subscriptions::new(unsubscribe));
        self.changing = Some(Changing { changes, subscriptions });
        self
    }

    /// Sends a request to the service and returns the result. If the client cancels the request,
    /// drops the service's future.
    pub(super) async fn answer(
        &self,
        method: &str,
        message: impl Into<ClientRequest>,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let modern = is_modern(&context);
        let cancellation = context.ct.clone();
        let progress = context.meta.get_progress_token().map(Progress::new);
        let message = message.into();
        let logs = self.logs(&message, &context);
        let pump = Pump::new(progress.as_ref(), logs.as_ref(), context.peer.clone());
        let mut context = Context::from(context);
        context.logs = logs;
        if may_ask(&message) {
            context.note_live_client();
        }
        let client = context.known_live_client().cloned();
        context.progress = progress;
        let request = Request::new(message, context);

        let answered = match client {
            None => self.shared.answer(method, request),
            Some(client) => self.shared.answer_asking(method, request, client),
        };
        let answered = pin!(match pump {
            Some(pump) => Either::Left(pump.beside(answered)),
            None => Either::Right(answered),
        });
        // The cancellation token is polled first, so that a cancelled call does not start.
        let cancelled = pin!(cancellation.cancelled());
        let answered = future::select(cancelled, answered).await;
        match answered {
            // rmcp sends no response to a cancelled request.
            Either::Left(_) => Err(ErrorData::internal_error("the request was cancelled", None)),
            Either::Right((result, _)) => {
                let mut result = result?;
                if modern {
                    fill_result_type(&mut result);
                }
                Ok(result)
            }
        }
    }

    /// Returns a sender that forwards log messages about a request to its client. Returns `None` if
    /// the client has not requested log messages. A client with protocol version 2025-11-25 or
    /// older sets a log level for the whole connection, and a newer client for each request.
    fn logs(&self, message: &ClientRequest, context: &RequestContext<RoleServer>) -> Option<Logs> {
        let sets_level = matches!(message, ClientRequest::SetLevelRequest(_));
        if !sets_level && !may_ask(message) {
            return None;
        }
        if is_modern(context) {
            let level = context.meta.log_level()?;
            return Some(Logs::new(Arc::new(LogLevel::of(level))));
        }
        Some(Logs::new(self.connection.log_level().clone()))
    }

    /// Sends a request to the service and checks that the result is empty.
    pub(super) async fn acknowledge(
        &self,
        method: &str,
        message: impl Into<ClientRequest>,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        acknowledged(method, &self.answer(method, message, context).await?)
    }
}

impl<S> Clone for ServeService<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            changing: self.changing.clone(),
            caller_of: self.caller_of.clone(),
            connection: Connection::default(),
            held: None,
        }
    }
}

impl<S> fmt::Debug for ServeService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeService")
            .field("service", &format_args!("{}", any::type_name::<S>()))
            .field("opening", &self.shared.opening)
            .field("changes", &self.changing.is_some())
            .field("held", &self.held.is_some())
            .finish_non_exhaustive()
    }
}

// === impl Shared ===

impl<S> Shared<S>
where
    S: ToolService,
{
    /// Clones the service, waits until the clone is ready, and calls it with the request.
    ///
    /// The future is boxed and built from combinators to keep it small. rmcp spawns a task for each
    /// request, and all these tasks have the size of the largest future. Combinators store the
    /// request once, whereas nested `async` blocks store their arguments twice, which took 19 KiB
    /// per request.
    pub(super) fn answer<'a>(
        &'a self,
        method: &'a str,
        request: Request,
    ) -> BoxFuture<'a, Result<ServerResult, ErrorData>> {
        let service = future::lazy(|_| lock(&self.service).clone());
        let reply = service.then(|service| service.oneshot(request)).map_err(Into::into);
        caught(method, reply)
            .map(move |reply| reply?.map_err(|error| failure(method, &*error))?.into_result())
            .boxed()
    }

    /// Sends the service an unsubscribe request for a resource. Used after all clients that were
    /// subscribed to the resource have disconnected.
    #[expect(deprecated, reason = "backends of any age understand it")]
    async fn unsubscribe(&self, uri: &str) -> Result<(), ErrorData> {
        let message = UnsubscribeRequest::new(UnsubscribeRequestParams::new(uri));
        let method = message.method.as_str();
        let request = Request::new(message, Context::default());
        acknowledged(method, &self.answer(method, request).await?)
    }
}

/// Returns the key under which the limits count a caller. All callers without a name share one key,
/// which no caller with a name has.
pub(crate) fn account(caller: Option<String>) -> Arc<str> {
    caller.map_or_else(|| "unnamed".into(), |name| format!("caller {name}").into())
}

fn acknowledged(method: &str, result: &ServerResult) -> Result<(), ErrorData> {
    match result {
        // rmcp has two types for the empty result: without and with a `resultType`.
        ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => Ok(()),
        _ => Err(mismatch(method)),
    }
}
