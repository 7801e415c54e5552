//! The MCP server that sends each request of a client to a Tower service.

use std::{
    any::{self, Any},
    fmt,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
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
};

/// A Tower service as a server that rmcp can run over any transport.
///
/// rmcp runs one `ServeService` for each connection: over streamable HTTP, one for each session of
/// an older client, and one for each request of a client without a session. Clone it for each.
/// Clones share the service's state, as clones of the service do, and the tools that clients have
/// listed. State of a connection, such as its resource subscriptions, is not cloned. Cloning only
/// increments reference counts. The service need not be `Sync`.
///
/// See the [module docs](crate::adapter) for an example and for the behavior that clients see.
pub struct ServeService<S> {
    pub(super) shared: Arc<Shared<S>>,
    /// The source of change notifications, if clients are notified.
    pub(super) changing: Option<Changing>,
    /// Returns the caller of a request, whose subscriptions are limited together.
    caller_of: Option<Arc<CallerOf>>,
    /// State of one connection, which clones do not share.
    pub(super) connection: Connection,
    /// Dropped when the connection has ended; clones do not share it.
    held: Option<Box<dyn Any + Send + Sync>>,
}

/// State that all clones of a server share.
pub(super) struct Shared<S> {
    /// Locked only to be cloned, so that the service need not be `Sync`.
    service: Mutex<S>,
    pub(super) aside: Arc<dyn Passthrough>,
    pub(super) opening: Opening,
    pub(super) tools: ListedTools,
    #[cfg(feature = "http")]
    pub(super) searches: Searches,
}

/// The part that answers `initialize`, `server/discover` and `ping`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Opening {
    /// The service, like any other request.
    Inside,
    /// The passthrough handler, since the service is not a complete server.
    Passthrough,
}

/// Returns the account that a request counts for, or `None` if callers have no shares.
type CallerOf = dyn Fn(&Context) -> Option<Arc<str>> + Send + Sync;

// === impl ServeService ===

impl<S> ServeService<S> {
    /// Serves a Tower service under this description.
    ///
    /// The service answers requests about tools, prompts, resources and so on. `initialize`,
    /// `server/discover` and `ping` are answered from the current description and do not reach the
    /// service. Notifications are discarded, and `subscriptions/listen` is implemented only with
    /// [`changes`](Self::changes).
    #[must_use]
    pub fn new(service: S, description: impl Describe) -> Self {
        Self::over(service, Arc::new(Described(description)), Opening::Passthrough)
    }

    /// Wraps a handler in a layer and serves both.
    ///
    /// All requests pass through the layer; everything else goes straight to the same handler. A
    /// `tower::ServiceBuilder` is a layer, too.
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

    /// Sets how the caller of a request is recognized, to limit the resource subscriptions of each
    /// caller on all its connections.
    ///
    /// Without it, only the subscriptions of one connection and those of all clients together are
    /// limited. Requests for which `caller` returns `None` count as those of one caller.
    #[must_use]
    pub fn caller<F>(self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.caller_of(move |context| Some(account(caller(context))))
    }

    /// Like [`caller`](Self::caller), but `None` turns the limit per caller off.
    pub(crate) fn caller_of<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<Arc<str>> + Send + Sync + 'static,
    {
        self.caller_of = Some(Arc::new(caller));
        self
    }

    /// Holds a value until the connection of this server has ended.
    ///
    /// Clones do not hold it. Use it to release a permit, such as that of a semaphore, with the
    /// connection.
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
    /// Notifies clients of these changes.
    ///
    /// Pass a clone of the [`Changes`] that the backends of the stack notify. A client of
    /// 2025-11-25 or older is notified of changed tools, prompts and resources, and of updates of
    /// resources that it has subscribed to, from its initialization until it disconnects. A newer
    /// client requests a stream of changes with `subscriptions/listen`. The notifications of a
    /// wrapped handler go to the same stream, which ends when the handler ends it. Changes that
    /// occur while a client is being notified of one count as one.
    ///
    /// The server declares `listChanged` for tools, and for prompts and resources if the
    /// description declares these. Subscriptions to single resources are declared by the
    /// description alone.
    ///
    /// The subscribe request of each client passes down the stack, so a layer can decide by client.
    /// A client whose request is refused receives no updates of the resource, even if it was
    /// subscribed before. When the last client has unsubscribed or disconnected, as many
    /// unsubscribe requests are sent down as clients had subscribed, for servers that count them. A
    /// handler must notify these changes instead of the client that called it.
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

    /// Lets the service answer a request until the client cancels it.
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
        // The token is polled first, so that a cancelled call does not start.
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

    /// Returns where log messages about a request are sent, or `None` if the client does not
    /// receive them. The level of an older client applies to its connection; a newer client sets it
    /// per request.
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

    /// Lets the service answer a request whose result is empty.
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
    /// Boxed and built of combinators, which store the request once. rmcp spawns a task for each
    /// request, with room for the largest of all methods, and nested `async` blocks store their
    /// arguments twice. That took 19 KiB for each request.
    pub(super) fn answer<'a>(
        &'a self,
        method: &'a str,
        request: Request,
    ) -> BoxFuture<'a, Result<ServerResult, ErrorData>> {
        let service =
            future::lazy(|_| self.service.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let reply = service.then(|service| service.oneshot(request)).map_err(Into::into);
        caught(method, reply)
            .map(move |reply| reply?.map_err(|error| failure(method, &*error))?.into_result())
            .boxed()
    }

    /// Ends a subscription whose clients have disconnected.
    #[expect(deprecated, reason = "backends of any age understand it")]
    async fn unsubscribe(&self, uri: &str) -> Result<(), ErrorData> {
        let message = UnsubscribeRequest::new(UnsubscribeRequestParams::new(uri));
        let method = message.method.as_str();
        let request = Request::new(message, Context::default());
        acknowledged(method, &self.answer(method, request).await?)
    }
}

/// Returns the account of a caller. Unknown callers share one, which differs from the empty name.
pub(crate) fn account(caller: Option<String>) -> Arc<str> {
    caller.map_or_else(|| "unnamed".into(), |name| format!("caller {name}").into())
}

fn acknowledged(method: &str, result: &ServerResult) -> Result<(), ErrorData> {
    match result {
        // The same result, with and without a `resultType`.
        ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => Ok(()),
        _ => Err(mismatch(method)),
    }
}
