//! The methods of a handler, each as a message to the service.

use std::borrow::Cow;

#[expect(deprecated, reason = "older clients use the deprecated methods")]
use rmcp::model::{SetLevelRequest, SetLevelRequestParams, SubscribeRequest, UnsubscribeRequest};
use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResponse, CancelTaskParams,
        CancelTaskRequest, CancelledNotificationParam, CompleteRequest, CompleteRequestParams,
        CompleteResult, ConstString, CustomNotification, CustomRequest, CustomResult,
        DiscoverRequest, DiscoverRequestParams, DiscoverResult, ErrorData, Extensions,
        GetPromptRequest, GetPromptRequestParams, GetPromptResponse, GetSkillRequest,
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
use tower::BoxError;
use tower_service::Service;

use super::{
    Opening, ServeService,
    failure::{caught, mismatch},
};
use crate::message::{Reply, Request};

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

/// Whether the client speaks a protocol version from 2026-07-28 on.
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    // ISO dates compare as text.
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

fn optional<M: Default, P>(params: Option<P>) -> RequestOptionalParam<M, P> {
    RequestOptionalParam { method: M::default(), params, extensions: Extensions::default() }
}

/// Says of a result that it is complete, where that is optional and not said.
///
/// rmcp takes it away from older clients but does not give it to newer ones,
/// for which the protocol requires it.
pub(super) fn fill_result_type(result: &mut ServerResult) {
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
