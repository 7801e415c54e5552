use std::{
    any::{self, Any},
    borrow::Cow,
    error::Error,
    fmt,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::{self, BoxFuture, Either, FutureExt};
#[expect(deprecated, reason = "older clients use the deprecated methods")]
use rmcp::model::{SetLevelRequest, SetLevelRequestParams, SubscribeRequest, UnsubscribeRequest};
use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResponse, CancelTaskParams,
        CancelTaskRequest, CancelledNotificationParam, ClientRequest, CompleteRequest,
        CompleteRequestParams, CompleteResult, ConstString, CustomNotification, CustomRequest,
        CustomResult, DiscoverRequest, DiscoverRequestParams, DiscoverResult, ErrorData,
        Extensions, GetPromptRequest, GetPromptRequestParams, GetPromptResponse, GetSkillRequest,
        GetSkillRequestParams, GetSkillResult, GetTaskParams, GetTaskRequest, GetTaskResult,
        InitializeRequest, InitializeRequestParams, InitializeResult, ListPromptsRequest,
        ListPromptsResult, ListResourceTemplatesRequest, ListResourceTemplatesResult,
        ListResourcesRequest, ListResourcesResult, ListSkillsRequest, ListSkillsResult,
        ListToolsRequest, ListToolsResult, PaginatedRequestParams, PingRequest,
        ProgressNotificationParam, ProtocolVersion, ReadResourceDirectoryRequest,
        ReadResourceDirectoryRequestParams, ReadResourceDirectoryResult, ReadResourceRequest,
        ReadResourceRequestParams, ReadResourceResponse, RequestOptionalParam, ResultType,
        ServerConfig, ServerResult, SetLevelRequestMethod, SubscribeRequestParams,
        SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams, UpdateTaskRequest,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use tower::{BoxError, ServiceExt};
use tower_layer::Layer;
use tower_service::Service;

use super::HandlerService;
use crate::message::{Cause, Progress, Reply, Request};

/// A Tower service as a server that rmcp can run over any transport.
///
/// Clones share the service's state as clones of the service do, and cost
/// little: a server over HTTP needs one per request. The service need not be
/// `Sync`.
///
/// See the [module docs](super) for an example, and for what clients see.
pub struct ServeService<S> {
    /// Locked only to be cloned, so that the service need not be `Sync`.
    service: Arc<Mutex<S>>,
    aside: Arc<dyn Aside>,
    opening: Opening,
}

/// Who answers `initialize`, `server/discover` and `ping`.
#[derive(Clone, Copy, Debug)]
enum Opening {
    /// The service, as any other request.
    Inside,
    /// The handler aside, since the service is no whole server.
    Aside,
}

/// The server aside of a service that only answers requests.
struct Described(ServerConfig);

/// What reaches a handler past the layers: all of [`ServerHandler`] that is not
/// a request, and the requests that [`Opening::Aside`] names.
///
/// `ServerHandler` itself cannot be a trait object.
trait Aside: Send + Sync {
    fn info(&self) -> ServerConfig;
    fn protocol_versions(&self) -> Cow<'static, [ProtocolVersion]>;
    fn negotiate(&self, params: &InitializeRequestParams) -> Result<InitializeResult, ErrorData>;
    fn tool(&self, name: &str) -> Option<Tool>;

    fn initialize(
        &self,
        params: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'_, Result<InitializeResult, ErrorData>>;
    fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'_, Result<DiscoverResult, ErrorData>>;
    fn ping(&self, context: RequestContext<RoleServer>) -> BoxFuture<'_, Result<(), ErrorData>>;

    fn accepted_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter>;
    fn listen(&self, context: SubscriptionContext) -> BoxFuture<'_, Result<(), ErrorData>>;

    fn on_cancelled(
        &self,
        params: CancelledNotificationParam,
        context: NotificationContext<RoleServer>,
    ) -> BoxFuture<'_, ()>;
    fn on_progress(
        &self,
        params: ProgressNotificationParam,
        context: NotificationContext<RoleServer>,
    ) -> BoxFuture<'_, ()>;
    fn on_initialized(&self, context: NotificationContext<RoleServer>) -> BoxFuture<'_, ()>;
    fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) -> BoxFuture<'_, ()>;
    fn on_custom_notification(
        &self,
        notification: CustomNotification,
        context: NotificationContext<RoleServer>,
    ) -> BoxFuture<'_, ()>;
}

// === impl ServeService ===

impl<S> ServeService<S> {
    /// Serves a Tower service under this description.
    ///
    /// The service answers requests about tools, prompts, resources and so on.
    /// `initialize`, `server/discover` and `ping` are answered from the
    /// description and do not reach it. Notifications go nowhere, and
    /// `subscriptions/listen` is not implemented.
    #[must_use]
    pub fn new(service: S, info: ServerConfig) -> Self {
        Self {
            service: Arc::new(Mutex::new(service)),
            aside: Arc::new(Described(info)),
            opening: Opening::Aside,
        }
    }

    /// Puts a layer around a handler and serves both.
    ///
    /// All requests travel through the layer; everything else goes straight to
    /// the same handler. A `tower::ServiceBuilder` is a layer, too.
    #[must_use]
    pub fn wrap<H, L>(handler: H, layer: L) -> Self
    where
        H: ServerHandler,
        L: Layer<HandlerService<H>, Service = S>,
    {
        let handler = HandlerService::new(handler);
        let aside = Arc::clone(handler.handler());
        Self {
            service: Arc::new(Mutex::new(layer.layer(handler))),
            aside,
            opening: Opening::Inside,
        }
    }
}

impl<S> ServeService<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>,
    S: Clone + Send + 'static,
{
    /// Lets the service answer a request, as long as the client wants it.
    async fn answer(
        &self,
        method: &str,
        message: impl Into<ClientRequest>,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let modern = is_modern(&context);
        let cancellation = context.ct.clone();
        let progress = context
            .meta
            .get_progress_token()
            .map(|token| Progress::new(token, context.peer.clone()));
        let mut request = Request::new(message, context);
        if let Some(progress) = &progress {
            request.context_mut().set_progress(progress.clone());
        }

        let reply = async {
            let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).clone();
            service.oneshot(request).await
        };
        let answered = caught(method, reply.map(|reply| reply.map_err(Into::into)));

        // First the token: a call that nobody waits for any more does not start.
        let (cancelled, answered) = (pin!(cancellation.cancelled()), pin!(answered));
        let answered = future::select(cancelled, answered).await;
        if let Some(progress) = progress {
            progress.end();
        }
        match answered {
            // rmcp sends no response to a cancelled request.
            Either::Left(_) => Err(ErrorData::internal_error("the request was cancelled", None)),
            Either::Right((reply, _)) => {
                let mut result = reply?.map_err(|error| failure(method, &*error))?.into_result()?;
                if modern {
                    fill_result_type(&mut result);
                }
                Ok(result)
            }
        }
    }

    /// Lets the service answer a request whose result says nothing.
    async fn acknowledge(
        &self,
        method: &str,
        message: impl Into<ClientRequest>,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.answer(method, message, context).await? {
            // The same thing, once with and once without a `resultType`.
            ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => Ok(()),
            _ => Err(mismatch(method)),
        }
    }
}

/// The methods of [`ServerHandler`] that are answered by the service: with what
/// message they reach it, and which of its results answer them.
macro_rules! answered_by_the_service {
    ($(
        fn $method:ident($params:ty) -> $answer:ty
            = $Message:ident($make:expr) => $($Result:ident)|+;
    )+) => {$(
        async fn $method(
            &self,
            params: $params,
            context: RequestContext<RoleServer>,
        ) -> Result<$answer, ErrorData> {
            let message: $Message = $make(params);
            let method = message.method.as_str();
            match self.answer(method, message, context).await? {
                $(ServerResult::$Result(result) => Ok(result.into()),)+
                _ => Err(mismatch(method)),
            }
        }
    )+};
}

/// The same for those whose result says nothing.
macro_rules! acknowledged_by_the_service {
    ($(fn $method:ident($params:ty) = $Message:ident;)+) => {$(
        async fn $method(
            &self,
            params: $params,
            context: RequestContext<RoleServer>,
        ) -> Result<(), ErrorData> {
            let message = $Message::new(params);
            self.acknowledge(message.method.as_str(), message, context).await
        }
    )+};
}

#[expect(deprecated, reason = "older clients use the deprecated methods")]
impl<S> ServerHandler for ServeService<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>,
    S: Clone + Send + 'static,
{
    answered_by_the_service! {
        fn complete(CompleteRequestParams) -> CompleteResult
            = CompleteRequest(CompleteRequest::new) => CompleteResult;
        fn list_prompts(Option<PaginatedRequestParams>) -> ListPromptsResult
            = ListPromptsRequest(optional) => ListPromptsResult;
        fn get_prompt(GetPromptRequestParams) -> GetPromptResponse
            = GetPromptRequest(GetPromptRequest::new) => GetPromptResult | InputRequiredResult;
        fn list_resources(Option<PaginatedRequestParams>) -> ListResourcesResult
            = ListResourcesRequest(optional) => ListResourcesResult;
        fn list_resource_templates(Option<PaginatedRequestParams>) -> ListResourceTemplatesResult
            = ListResourceTemplatesRequest(optional) => ListResourceTemplatesResult;
        fn read_resource(ReadResourceRequestParams) -> ReadResourceResponse
            = ReadResourceRequest(ReadResourceRequest::new)
            => ReadResourceResult | InputRequiredResult;
        fn read_resource_directory(ReadResourceDirectoryRequestParams) -> ReadResourceDirectoryResult
            = ReadResourceDirectoryRequest(ReadResourceDirectoryRequest::new)
            => ListResourcesResult;
        fn list_tools(Option<PaginatedRequestParams>) -> ListToolsResult
            = ListToolsRequest(optional) => ListToolsResult;
        fn call_tool(CallToolRequestParams) -> CallToolResponse
            = CallToolRequest(CallToolRequest::new)
            => CallToolResult | InputRequiredResult | CreateTaskResult;
        fn get_task(GetTaskParams) -> GetTaskResult
            = GetTaskRequest(GetTaskRequest::new) => GetTaskResult;
        fn list_skills(Option<PaginatedRequestParams>) -> ListSkillsResult
            = ListSkillsRequest(optional) => ListSkillsResult;
        fn get_skill(GetSkillRequestParams) -> GetSkillResult
            = GetSkillRequest(GetSkillRequest::new) => GetSkillResult;
    }

    acknowledged_by_the_service! {
        fn subscribe(SubscribeRequestParams) = SubscribeRequest;
        fn unsubscribe(UnsubscribeRequestParams) = UnsubscribeRequest;
        fn update_task(UpdateTaskParams) = UpdateTaskRequest;
        fn cancel_task(CancelTaskParams) = CancelTaskRequest;
    }

    async fn set_level(
        &self,
        params: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // 2026-07-28 has no such method. rmcp refuses the others that are gone,
        // but not this one.
        if is_modern(&context) {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        let message = SetLevelRequest::new(params);
        self.acknowledge(message.method.as_str(), message, context).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.clone();
        match self.answer(&method, request, context).await? {
            ServerResult::CustomResult(result) => Ok(result),
            // A result that came over a wire is of the first type it looks
            // like; nobody knows what a custom one looks like.
            other => match serde_json::to_value(&other) {
                Ok(result) => Ok(CustomResult::new(result)),
                Err(_) => Err(mismatch(&method)),
            },
        }
    }

    async fn initialize(
        &self,
        params: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        match self.opening {
            Opening::Inside => {
                let message = InitializeRequest::new(params);
                let method = message.method.as_str();
                match self.answer(method, message, context).await? {
                    ServerResult::InitializeResult(result) => Ok(result),
                    _ => Err(mismatch(method)),
                }
            }
            Opening::Aside => self.aside.initialize(params, context).await,
        }
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        match self.opening {
            Opening::Inside => {
                let message = DiscoverRequest::new(DiscoverRequestParams {});
                let method = message.method.as_str();
                match self.answer(method, message, context).await? {
                    ServerResult::DiscoverResult(result) => Ok(result),
                    _ => Err(mismatch(method)),
                }
            }
            Opening::Aside => self.aside.discover(context).await,
        }
    }

    async fn ping(&self, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        match self.opening {
            Opening::Inside => {
                let message = PingRequest::default();
                self.acknowledge(message.method.as_str(), message, context).await
            }
            Opening::Aside => self.aside.ping(context).await,
        }
    }

    fn get_info(&self) -> ServerConfig {
        self.aside.info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.aside.protocol_versions()
    }

    fn negotiate_initialize(
        &self,
        params: &InitializeRequestParams,
    ) -> Result<InitializeResult, ErrorData> {
        self.aside.negotiate(params)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.aside.tool(name)
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.aside.accepted_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        // A request as well, so a panic would leave it unanswered.
        caught("subscriptions/listen", async { self.aside.listen(context).await }).await?
    }

    async fn on_cancelled(
        &self,
        params: CancelledNotificationParam,
        context: NotificationContext<RoleServer>,
    ) {
        self.aside.on_cancelled(params, context).await;
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        context: NotificationContext<RoleServer>,
    ) {
        self.aside.on_progress(params, context).await;
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.aside.on_initialized(context).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        self.aside.on_roots_list_changed(context).await;
    }

    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        context: NotificationContext<RoleServer>,
    ) {
        self.aside.on_custom_notification(notification, context).await;
    }
}

impl<S> Clone for ServeService<S> {
    fn clone(&self) -> Self {
        Self {
            service: Arc::clone(&self.service),
            aside: Arc::clone(&self.aside),
            opening: self.opening,
        }
    }
}

impl<S> fmt::Debug for ServeService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeService")
            .field("service", &format_args!("{}", any::type_name::<S>()))
            .field("opening", &self.opening)
            .finish_non_exhaustive()
    }
}

/// Whether the client speaks a protocol version from 2026-07-28 on.
fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    // ISO dates compare as text.
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

fn optional<M: Default, P>(params: Option<P>) -> RequestOptionalParam<M, P> {
    RequestOptionalParam { method: M::default(), params, extensions: Extensions::default() }
}

/// Turns a panic into an error, since rmcp would leave the request unanswered.
async fn caught<T>(method: &str, work: impl Future<Output = T>) -> Result<T, ErrorData> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| {
        tracing::error!(method, panic = panic_text(&*panic), "panicked while answering a request");
        internal_error()
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        (None, None) => "no text",
    }
}

/// What the client is told when the service could not answer.
fn failure(method: &str, error: &(dyn Error + Send + Sync + 'static)) -> ErrorData {
    match Cause::of(error) {
        Cause::TimedOut => ErrorData::internal_error("the request timed out", None),
        Cause::Overloaded => ErrorData::internal_error("the server is overloaded", None),
        Cause::Backend(backend) => {
            tracing::warn!(method, error, source = backend.source(), "a backend could not answer");
            ErrorData::internal_error(backend.to_string(), None)
        }
        Cause::Unknown => {
            tracing::error!(method, error, "failed to answer a request");
            internal_error()
        }
    }
}

/// What the client is told when the service answered something else.
fn mismatch(method: &str) -> ErrorData {
    tracing::warn!(method, "the result is not of the type that the method has");
    ErrorData::internal_error("the server gave an invalid result", None)
}

/// An error whose reason is for the log.
fn internal_error() -> ErrorData {
    ErrorData::internal_error("internal error", None)
}

/// Says of a result that it is complete, where that is optional and not said.
///
/// rmcp takes it away from older clients but does not give it to newer ones,
/// for which the protocol requires it.
fn fill_result_type(result: &mut ServerResult) {
    let result_type = match result {
        ServerResult::CompleteResult(result) => &mut result.result_type,
        ServerResult::ListPromptsResult(result) => &mut result.result_type,
        ServerResult::GetPromptResult(result) => &mut result.result_type,
        ServerResult::ListResourcesResult(result) => &mut result.result_type,
        ServerResult::ListResourceTemplatesResult(result) => &mut result.result_type,
        ServerResult::ReadResourceResult(result) => &mut result.result_type,
        ServerResult::ListToolsResult(result) => &mut result.result_type,
        ServerResult::CallToolResult(result) => &mut result.result_type,
        ServerResult::ListSkillsResult(result) => &mut result.result_type,
        ServerResult::GetSkillResult(result) => &mut result.result_type,
        _ => return,
    };
    result_type.get_or_insert(ResultType::COMPLETE);
}

// === impl Described ===

impl ServerHandler for Described {
    fn get_info(&self) -> ServerConfig {
        self.0.clone()
    }
}

// === impl Aside ===

impl<H: ServerHandler> Aside for H {
    fn info(&self) -> ServerConfig {
        self.get_info()
    }

    fn protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.supported_protocol_versions()
    }

    fn negotiate(&self, params: &InitializeRequestParams) -> Result<InitializeResult, ErrorData> {
        self.negotiate_initialize(params)
    }

    fn tool(&self, name: &str) -> Option<Tool> {
        self.get_tool(name)
    }

    fn initialize(
        &self,
        params: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'_, Result<InitializeResult, ErrorData>> {
        ServerHandler::initialize(self, params, context).boxed()
    }

    fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'_, Result<DiscoverResult, ErrorData>> {
        ServerHandler::discover(self, context).boxed()
    }

    fn ping(&self, context: RequestContext<RoleServer>) -> BoxFuture<'_, Result<(), ErrorData>> {
        ServerHandler::ping(self, context).boxed()
    }

    fn accepted_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.accepted_subscription_filter(requested)
    }

    fn listen(&self, context: SubscriptionContext) -> BoxFuture<'_, Result<(), ErrorData>> {
        ServerHandler::listen(self, context).boxed()
    }

    fn on_cancelled(
        &self,
        params: CancelledNotificationParam,
        context: NotificationContext<RoleServer>,
    ) -> BoxFuture<'_, ()> {
        ServerHandler::on_cancelled(self, params, context).boxed()
    }

    fn on_progress(
        &self,
        params: ProgressNotificationParam,
        context: NotificationContext<RoleServer>,
    ) -> BoxFuture<'_, ()> {
        ServerHandler::on_progress(self, params, context).boxed()
    }

    fn on_initialized(&self, context: NotificationContext<RoleServer>) -> BoxFuture<'_, ()> {
        ServerHandler::on_initialized(self, context).boxed()
    }

    fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) -> BoxFuture<'_, ()> {
        ServerHandler::on_roots_list_changed(self, context).boxed()
    }

    fn on_custom_notification(
        &self,
        notification: CustomNotification,
        context: NotificationContext<RoleServer>,
    ) -> BoxFuture<'_, ()> {
        ServerHandler::on_custom_notification(self, notification, context).boxed()
    }
}
