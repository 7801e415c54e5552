//! Implements `ServerHandler` for [`ServeService`]: each method sends a request to the Tower
//! service.

use std::{borrow::Cow, sync::atomic::Ordering};

use futures::future::{self, FutureExt};
#[expect(deprecated, reason = "older clients use the deprecated methods")]
use rmcp::model::{SetLevelRequest, SetLevelRequestParams, SubscribeRequest, UnsubscribeRequest};
use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResponse, CancelTaskParams,
        CancelTaskRequest, CancelledNotification, CancelledNotificationParam, CompleteRequest,
        CompleteRequestParams, CompleteResult, ConstString, CustomNotification, CustomRequest,
        CustomResult, DiscoverRequest, DiscoverRequestParams, DiscoverResult, ErrorCode, ErrorData,
        Extensions, GetPromptRequest, GetPromptRequestParams, GetPromptResponse, GetSkillRequest,
        GetSkillRequestParams, GetSkillResult, GetTaskParams, GetTaskRequest, GetTaskResult,
        InitializeRequest, InitializeRequestParams, InitializeResult, InitializeResultMethod,
        InitializedNotification, ListPromptsRequest, ListPromptsResult,
        ListResourceTemplatesRequest, ListResourceTemplatesResult, ListResourcesRequest,
        ListResourcesResult, ListSkillsRequest, ListSkillsResult, ListToolsRequest,
        ListToolsResult, PaginatedRequestParams, PingRequest, PingRequestMethod,
        ProgressNotification, ProgressNotificationParam, ProtocolVersion,
        ReadResourceDirectoryRequest, ReadResourceDirectoryRequestParams,
        ReadResourceDirectoryResult, ReadResourceRequest, ReadResourceRequestParams,
        ReadResourceResponse, RequestOptionalParam, RootsListChangedNotification,
        ServerCapabilities, ServerConfig, ServerResult, SetLevelRequestMethod,
        SubscribeRequestMethod, SubscribeRequestParams, SubscriptionFilter, Tool,
        UnsubscribeRequestMethod, UnsubscribeRequestParams, UpdateTaskParams, UpdateTaskRequest,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
#[cfg(feature = "http")]
use tokio::sync::OwnedMutexGuard;
#[cfg(feature = "http")]
use tokio_util::sync::CancellationToken;

use super::{
    changes::{accepted, declare},
    failure::{caught, mismatch},
    protocol_version::is_modern,
    service::{Opening, ServeService},
};
#[cfg(feature = "http")]
use super::{
    notifications::PROGRESS_TOKEN,
    param_headers,
    tools::{Known, Search},
};
use crate::message::{ToolService, is_of_protocol, tasks::declare_tasks};
#[cfg(feature = "http")]
use crate::{catalog, pagination::Pages};

/// Implements `ServerHandler` methods that send a request to the service and return its result.
/// Each line states the request type and the result types that the method accepts.
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

/// Implements `ServerHandler` methods that send a request to the service. The methods return no
/// value, because the result of the request must be empty.
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
    S: ToolService,
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
        fn get_task(GetTaskParams) -> GetTaskResult
            = GetTaskRequest(GetTaskRequest::new) => GetTaskResult;
        fn list_skills(Option<PaginatedRequestParams>) -> ListSkillsResult
            = ListSkillsRequest(optional) => ListSkillsResult;
        fn get_skill(GetSkillRequestParams) -> GetSkillResult
            = GetSkillRequest(GetSkillRequest::new) => GetSkillResult;
    }

    acknowledged_by_the_service! {
        fn update_task(UpdateTaskParams) = UpdateTaskRequest;
        fn cancel_task(CancelTaskParams) = CancelTaskRequest;
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let before = self.tools_epoch();
        let message: ListToolsRequest = optional(params);
        let method = message.method.as_str();
        match self.answer(method, message, context).await? {
            ServerResult::ListToolsResult(list) => {
                self.shared.tools.remember(&list.tools, before, self.tools_epoch());
                Ok(list)
            }
            _ => Err(mismatch(method)),
        }
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        #[cfg(feature = "http")]
        if let Some(parts) = context.extensions.get::<http::request::Parts>()
            && param_headers::are_required(&parts.headers)
        {
            // Boxed to keep the task of every request small.
            self.check_headers(&parts.headers, &params, &context).boxed().await?;
        }
        let message = CallToolRequest::new(params);
        let method = message.method.as_str();
        match self.answer(method, message, context).await? {
            ServerResult::CallToolResult(result) => Ok(result.into()),
            ServerResult::InputRequiredResult(suspended) => Ok(suspended.into()),
            ServerResult::CreateTaskResult(task) => {
                self.shared.has_tasks.store(true, Ordering::Relaxed);
                Ok(task.into())
            }
            _ => Err(mismatch(method)),
        }
    }

    async fn subscribe(
        &self,
        params: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let uri = params.uri.clone();
        let message = SubscribeRequest::new(params);
        let caller = self.caller_in(&context);
        let subscribed = self.acknowledge(message.method.as_str(), message, context);
        match &self.changing {
            Some(changing) => {
                let share = changing.subscriptions.share(caller.as_ref(), &uri)?;
                self.connection.claims(changing).add(&uri, Some(share), subscribed).await
            }
            None => subscribed.await,
        }
    }

    async fn unsubscribe(
        &self,
        params: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let uri = params.uri.clone();
        let message = UnsubscribeRequest::new(params);
        let unsubscribed = self.acknowledge(message.method.as_str(), message, context);
        match &self.changing {
            Some(changing) => self.connection.claims(changing).remove(&uri, unsubscribed).await,
            None => unsubscribed.await,
        }
    }

    async fn set_level(
        &self,
        params: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // Protocol version 2026-07-28 has removed this method. rmcp rejects the other removed
        // methods itself.
        if is_modern(&context) {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        let level = params.level;
        let message = SetLevelRequest::new(params);
        self.acknowledge(message.method.as_str(), message, context).await?;
        self.connection.log_level().set(level);
        Ok(())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.clone();
        if is_modern(&context) && is_removed(&method) {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None));
        }
        // The parameters are malformed. Layers would not recognize the request, but a server behind
        // the layers might still accept it.
        if is_of_protocol(&method) {
            return Err(ErrorData::invalid_params(format!("malformed `{method}`"), None));
        }
        match self.answer(&method, request, context).await? {
            ServerResult::CustomResult(result) => Ok(result),
            // A remote server's result is deserialized as the first type that matches it.
            // Therefore, the result of a custom request may have any type.
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
        let watch = self
            .changing
            .as_ref()
            .map(|changing| changing.watch(self.connection.claims(changing).wanted()));
        let result = match self.shared.opening {
            Opening::Inside => {
                let message = InitializeRequest::new(params);
                let method = message.method.as_str();
                match self.answer(method, message, context).await? {
                    ServerResult::InitializeResult(result) => {
                        self.note_tasks(&result.capabilities);
                        Ok(result)
                    }
                    _ => Err(mismatch(method)),
                }
            }
            Opening::Passthrough => self.shared.aside.initialize(params, context).await,
        };
        if let (Some(watch), Ok(_)) = (watch, &result) {
            self.connection.initialized(watch);
        }
        result.map(|result| self.declared(result))
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let mut result = match self.shared.opening {
            Opening::Inside => {
                let message = DiscoverRequest::new(DiscoverRequestParams {});
                let method = message.method.as_str();
                match self.answer(method, message, context).await? {
                    ServerResult::DiscoverResult(result) => {
                        self.note_tasks(&result.capabilities);
                        result
                    }
                    _ => return Err(mismatch(method)),
                }
            }
            Opening::Passthrough => self.shared.aside.discover(context).await?,
        };
        if self.changing.is_some() {
            declare(&mut result.capabilities);
        }
        Ok(result)
    }

    async fn ping(&self, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        match self.shared.opening {
            Opening::Inside => {
                let message = PingRequest::default();
                self.acknowledge(message.method.as_str(), message, context).await
            }
            Opening::Passthrough => self.shared.aside.ping(context).await,
        }
    }

    fn get_info(&self) -> ServerConfig {
        let mut description = self.declared(self.shared.aside.info());
        // rmcp forwards requests about tasks only if this description declares tasks. The
        // description of a wrapped handler does not contain what its layers declare.
        if self.shared.has_tasks.load(Ordering::Relaxed) {
            declare_tasks(&mut description.capabilities);
        }
        description
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.shared.aside.protocol_versions()
    }

    fn negotiate_initialize(
        &self,
        params: &InitializeRequestParams,
    ) -> Result<InitializeResult, ErrorData> {
        self.shared.aside.negotiate(params).map(|result| self.declared(result))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.tools.get(name, self.tools_epoch())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        // Always called, because a handler may store the requested filter.
        let handlers = self.shared.aside.accepted_filter(requested);
        let Some(changing) = &self.changing else { return handlers };
        // Changes are recorded from this moment on, because rmcp confirms the stream to the client
        // before it calls `listen`.
        self.connection.ask(changing);
        // Accepts everything that the server description declares. This includes everything that
        // the handler can have accepted.
        Some(accepted(requested, &self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let streamed = match &self.changing {
            // Boxed to keep the task of every request small.
            Some(changing) => self.stream(changing, context).boxed(),
            None => self.shared.aside.listen(context),
        };
        // `subscriptions/listen` is also a request, so after a panic it would remain unanswered.
        caught("subscriptions/listen", streamed).await?
    }

    async fn on_cancelled(
        &self,
        params: CancelledNotificationParam,
        context: NotificationContext<RoleServer>,
    ) {
        let cancelled = CancelledNotification::new(params);
        self.shared.aside.on_notification(cancelled.into(), context).await;
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        context: NotificationContext<RoleServer>,
    ) {
        let progress = ProgressNotification::new(params);
        self.shared.aside.on_notification(progress.into(), context).await;
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let peer = context.peer.clone();
        let initialized = InitializedNotification::default();
        let handlers = self.shared.aside.on_notification(initialized.into(), context);
        // rmcp runs this function in a separate task.
        future::join(handlers, self.notify(&peer)).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        let changed = RootsListChangedNotification::default();
        self.shared.aside.on_notification(changed.into(), context).await;
    }

    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        context: NotificationContext<RoleServer>,
    ) {
        self.shared.aside.on_notification(notification.into(), context).await;
    }
}

impl<S> ServeService<S>
where
    S: ToolService,
{
    /// Records that the service supports tasks if `declared` contains the capability.
    fn note_tasks(&self, declared: &ServerCapabilities) {
        if declared.supports_tasks() {
            self.shared.has_tasks.store(true, Ordering::Relaxed);
        }
    }

    /// If clients are notified of changes, declares `listChanged` in the server description.
    fn declared(&self, mut description: ServerConfig) -> ServerConfig {
        if self.changing.is_some() {
            declare(&mut description.capabilities);
        }
        description
    }

    /// Checks the `Mcp-Param-*` headers of a tool call, as rmcp does for tools that it knows.
    ///
    /// If the server does not know the tool, it first lists the tools on behalf of the client. If
    /// the listing fails or does not contain the tool, the call is not checked, because the client
    /// cannot know which headers the tool requires. Concurrent calls of unknown tools share one
    /// listing. The tools are listed at most once a second, unless they have changed.
    ///
    /// There is one exception: the tools have changed, and the called tool had no header
    /// annotations before. Then the call is not checked, and the tools are listed in the
    /// background. If calls waited for the listing, a backend that is slow or changes its tools
    /// continuously would delay the calls of all other tools.
    #[cfg(feature = "http")]
    async fn check_headers(
        &self,
        headers: &http::HeaderMap,
        call: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let view = || self.shared.searches.view(headers);
        match self.shared.tools.find(&call.name, self.tools_epoch()) {
            Known::Now => {}
            Known::Plain => {
                // If the lock is held, another call is already listing the tools.
                if let Ok(last) = view().try_lock_owned() {
                    let (server, mut context) = (self.clone(), context.clone());
                    // The listing continues if the call is cancelled.
                    context.ct = CancellationToken::new();
                    let name = call.name.clone();
                    self.shared.searches.spawn(async move {
                        catalog::in_time(server.search(last, &name, &context)).await;
                    });
                }
                return Ok(());
            }
            Known::No => {
                let view = view();
                let listed = async {
                    self.search(view.lock_owned().await, &call.name, context).await;
                };
                catalog::in_time(listed).await;
            }
        }
        match self.get_tool(&call.name) {
            Some(tool) => {
                param_headers::check(headers, &tool.input_schema, call.arguments.as_ref())
            }
            None => Ok(()),
        }
    }

    /// Lists the tools page by page until the named tool is found. Does nothing if the tool was
    /// listed since the last change of the tools, or if a recent listing did not contain it.
    #[cfg(feature = "http")]
    async fn search(
        &self,
        mut last: OwnedMutexGuard<Option<Search>>,
        name: &str,
        context: &RequestContext<RoleServer>,
    ) {
        let epoch = self.tools_epoch();
        let is_known = || self.shared.tools.find(name, self.tools_epoch()) == Known::Now;
        if is_known() || last.as_ref().is_some_and(|last| last.suffices(epoch)) {
            return;
        }
        let listed = self.list_tools_until(is_known, context).await;
        if !is_known() {
            *last = Some(Search::new(epoch));
        }
        if let Err(error) = listed {
            tracing::debug!(error = &*error.message, "failed to validate the headers of a call");
        }
    }

    /// Lists the tools page by page, until `is_enough` returns `true` or the list ends.
    #[cfg(feature = "http")]
    async fn list_tools_until(
        &self,
        is_enough: impl Fn() -> bool,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut context = context.clone();
        // The progress token may only be used for the call itself.
        context.meta.remove(PROGRESS_TOKEN);
        let mut pages = Pages::new();
        let mut cursor = None;
        loop {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.list_tools(Some(params), context.clone()).await?;
            let next = pages.turn(&page.tools, page.next_cursor);
            let next = next.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            if next.is_none() || is_enough() {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Returns a counter that increases whenever the tools of the service change. Always returns 0
    /// if [`changes`](Self::changes) was not called.
    fn tools_epoch(&self) -> u64 {
        self.changing.as_ref().map_or(0, |changing| changing.changes.tools().now())
    }
}

/// Returns `true` if the method was removed in protocol version 2026-07-28.
///
/// rmcp rejects requests for removed methods itself, but only if it can parse the parameters.
/// Otherwise, rmcp passes the request to this server as a custom request, and the server must
/// reject it.
fn is_removed(method: &str) -> bool {
    const REMOVED: [&str; 5] = [
        InitializeResultMethod::VALUE,
        PingRequestMethod::VALUE,
        SetLevelRequestMethod::VALUE,
        SubscribeRequestMethod::VALUE,
        UnsubscribeRequestMethod::VALUE,
    ];
    REMOVED.contains(&method)
}

fn optional<M: Default, P>(params: Option<P>) -> RequestOptionalParam<M, P> {
    RequestOptionalParam { method: M::default(), params, extensions: Extensions::default() }
}
