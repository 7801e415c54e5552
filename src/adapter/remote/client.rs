use std::sync::Arc;

#[expect(deprecated, reason = "older servers still send log messages")]
use rmcp::model::LoggingMessageNotificationParam;
use rmcp::{
    ClientHandler, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam,
        ProtocolVersion, ResourceUpdatedNotificationParam,
    },
    service::NotificationContext,
};

use super::{call::Routes, state::Remote};

/// What a server finds at our end of its connection.
///
/// It declares no capability: a server that asks its client for something asks
/// the wrong one, since several clients may share the connection.
#[derive(Clone)]
pub(super) struct Client {
    remote: Arc<Remote>,
    routes: Arc<Routes>,
}

// === impl Client ===

impl Client {
    pub(super) fn new(remote: Arc<Remote>) -> Self {
        Self { remote, routes: Arc::default() }
    }

    #[cfg(feature = "stdio")]
    pub(super) const fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }

    pub(super) const fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }
}

#[expect(deprecated, reason = "older servers still send log messages")]
impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let info = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), info)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        if let Some(progress) = self.routes.of(&params.progress_token).await {
            progress.report(params.progress, params.total, params.message).await;
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.remote.tools_changed();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.remote.changes.prompts().bump();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.remote.changes.resources().bump();
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.remote.changes.resource_updated(params.uri);
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let data = self.remote.about.tell(&params.data.to_string());
        tracing::debug!(backend = &*self.remote.about.name, level = ?params.level, data, "a backend logs");
    }
}
