//! Servers written by hand instead of with this crate: over several clients of rmcp and its typed
//! calls.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use rmcp::{
    ErrorData, Peer, RoleClient, RoleServer, ServerHandler, ServiceError,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    answer::{Branch, Failure, answer, text},
    backend::TOOL,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Forwards every call to one server.
pub(crate) struct Forwarder(pub(crate) Peer<RoleClient>);

/// Calls all servers and concatenates their content, without attributing it.
pub(crate) struct JoinAll(pub(crate) Arc<[Peer<RoleClient>]>);

/// Calls all servers and returns the same answer as a composite.
///
/// It handles misbehaving servers. It does not check arguments, limits neither the run as a whole
/// nor the size of its results, and does not reconnect lost backends.
pub(crate) struct SameAnswer {
    pub(crate) peers: Arc<[Peer<RoleClient>]>,
    /// The names of the servers' tools in the answer.
    pub(crate) names: Arc<[String]>,
    pub(crate) report: bool,
}

fn with_tools() -> ServerConfig {
    ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
}

fn error(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        _ => ErrorData::internal_error("the server cannot be reached", None),
    }
}

// === impl Forwarder ===

impl ServerHandler for Forwarder {
    fn get_info(&self) -> ServerConfig {
        with_tools()
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.list_tools(params).await.map_err(error)
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(self.0.call_tool(params).await.map_err(error)?.into())
    }
}

// === impl JoinAll ===

impl ServerHandler for JoinAll {
    fn get_info(&self) -> ServerConfig {
        with_tools()
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = params.arguments.unwrap_or_default();
        let calls = self.0.iter().map(|peer| {
            peer.call_tool(CallToolRequestParams::new(TOOL).with_arguments(arguments.clone()))
        });
        let mut content = Vec::new();
        for result in join_all(calls).await {
            content.extend(result.map_err(error)?.content);
        }
        Ok(CallToolResult::success(content).into())
    }
}

// === impl SameAnswer ===

impl ServerHandler for SameAnswer {
    fn get_info(&self) -> ServerConfig {
        with_tools()
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let begun = Instant::now();
        let arguments = params.arguments.unwrap_or_default();
        let mut tasks = JoinSet::new();
        let mut started = Vec::with_capacity(self.peers.len());
        for (index, peer) in self.peers.iter().enumerate() {
            let peer = peer.clone();
            let params = CallToolRequestParams::new(TOOL).with_arguments(arguments.clone());
            let now = Instant::now();
            let task = tasks.spawn(async move {
                let result = match timeout(TIMEOUT, peer.call_tool(params)).await {
                    Ok(answered) => checked(answered),
                    Err(_) => Err(Failure {
                        status: "timed_out",
                        kind: "timeout",
                        message: format!("no answer within {TIMEOUT:?}"),
                    }),
                };
                (index, result, Instant::now())
            });
            started.push((task.id(), now));
        }

        let mut branches: Vec<_> = self.peers.iter().map(|_| None).collect();
        while let Some(joined) = tasks.join_next().await {
            let (index, result, ended) = match joined {
                Ok(finished) => finished,
                Err(error) => {
                    let index = started
                        .iter()
                        .position(|(task, _)| *task == error.id())
                        .expect("every task was noted");
                    let message = "the tool panicked".to_owned();
                    let failure = Failure { status: "failed", kind: "panic", message };
                    (index, Err(failure), Instant::now())
                }
            };
            let (_, started) = started[index];
            branches[index] = Some(Branch { result, started, ended });
        }
        Ok(answer(&self.names, branches.into_iter().flatten(), begun, self.report).into())
    }
}

fn checked(answered: Result<CallToolResult, ServiceError>) -> Result<CallToolResult, Failure> {
    let failed = |kind, message| Failure { status: "failed", kind, message };
    match answered {
        Ok(result) if result.is_error == Some(true) => {
            Err(failed("tool", text(&result).unwrap_or_default()))
        }
        Ok(result) => Ok(result),
        Err(error) => Err(failed("protocol", self::error(error).message.into_owned())),
    }
}
