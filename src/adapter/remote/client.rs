//! The MCP client that connects to a remote server.

use std::sync::Arc;

#[expect(deprecated, reason = "older servers still send log messages")]
use rmcp::model::LoggingMessageNotificationParam;
use rmcp::{
    ClientHandler, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, ClientResult, ElicitRequest, ElicitRequestParams,
        ElicitResult, ElicitationCapability, ErrorData, FormElicitationCapability, Implementation,
        InputRequest, ProtocolVersion, ResourceUpdatedNotificationParam,
    },
    service::{NotificationContext, RequestContext, RunningService},
};

use super::{pending_calls::Calls, state::Remote, tokens::Tokens};
use crate::message::client::unanswered;

/// The rmcp client handler, which receives the requests and notifications of a remote server.
///
/// It declares the capability to ask the user with a form (`elicitation`). It does not declare
/// elicitation by URL, because it cannot relay the server's notification that this elicitation is
/// complete. The deprecated capabilities `sampling` and `roots` are not declared either.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) remote: Arc<Remote>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) calls: Arc<Calls>,
}

/// A running rmcp session with a remote server.
pub(super) type Session = RunningService<RoleClient, Client>;

// === impl Client ===

impl Client {
    pub(super) fn new(remote: Arc<Remote>) -> Self {
        Self { remote, tokens: Arc::default(), calls: Arc::default() }
    }
}

#[expect(deprecated, reason = "older servers still send log messages")]
impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let info = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        if self.remote.elicitation {
            let form = FormElicitationCapability::default();
            capabilities.elicitation = Some(ElicitationCapability::default().with_form(form));
        }
        ClientConfig::new(capabilities, info)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if !self.remote.elicitation {
            return Err(unanswered("no user can be asked here"));
        }
        let request = InputRequest::Elicitation(ElicitRequest::new(params));
        match self.calls.relay(request, &context).await? {
            ClientResult::ElicitResult(result) => Ok(result),
            _ => Err(unanswered("the client returned an invalid response")),
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.remote.tools_changed();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.remote.lists.prompts.bump();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.remote.lists.resources.bump();
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.remote.resource_updated(&params.uri);
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let data = self.remote.about.redact_text(&params.data.to_string());
        tracing::debug!(backend = &*self.remote.about.name, level = ?params.level, data, "log message of a backend");
    }
}
