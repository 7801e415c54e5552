//! Calls a wrapped handler directly for everything that bypasses the layers around it.

use std::borrow::Cow;

use futures::future::{BoxFuture, FutureExt};
use rmcp::{
    RoleServer, ServerHandler,
    model::{
        ClientNotification, DiscoverResult, ErrorData, InitializeRequestParams, InitializeResult,
        ProtocolVersion, ServerConfig, SubscriptionFilter,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};

/// The methods of a wrapped handler that the server calls directly, without passing through the
/// layers around the handler, such as `initialize`, `listen` and `on_progress`.
///
/// Unlike `ServerHandler` itself, this trait can be used as a trait object.
pub(super) trait Passthrough: Send + Sync {
    fn info(&self) -> ServerConfig;
    fn protocol_versions(&self) -> Cow<'static, [ProtocolVersion]>;
    fn negotiate(&self, params: &InitializeRequestParams) -> Result<InitializeResult, ErrorData>;

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

    fn on_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> BoxFuture<'_, ()>;
}

// === impl Passthrough ===

impl<H: ServerHandler> Passthrough for H {
    fn info(&self) -> ServerConfig {
        self.get_info()
    }

    fn protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.supported_protocol_versions()
    }

    fn negotiate(&self, params: &InitializeRequestParams) -> Result<InitializeResult, ErrorData> {
        self.negotiate_initialize(params)
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

    fn on_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> BoxFuture<'_, ()> {
        // Calls the method of the handler for this notification. It returns no error.
        rmcp::Service::handle_notification(self, notification, context).map(drop).boxed()
    }
}
