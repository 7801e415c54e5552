//! The backend server, in memory or as a child process.

use std::{borrow::Cow, env, future::ready, path::PathBuf, sync::Arc, time::Duration};

use mcp_composite::adapter::{
    RemoteService,
    remote::{RemoteBuilder, stdio::ChildProcess},
};
use rmcp::{
    ClientServiceExt, ErrorData, Peer, RoleClient, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject,
        ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
        Tool,
    },
    service::{RequestContext, RunningService},
    transport::{TokioChildProcess, stdio},
};
use serde_json::{Value, json};
use tokio::{io::DuplexStream, process::Command, runtime::Handle, time::sleep};

use super::protocol_version::Era;

/// The name of the first tool of a backend.
pub(crate) const TOOL: &str = "tool_0";
/// A text of 22 bytes.
const TEXT: &str = "the tool says: all ok.";
/// The capacity of a pipe.
const BUFFER: usize = 64 << 10;

/// The location of a backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a task of this process, at the other end of a pipe in memory.
    Memory,
    /// In a separate process, at the other end of its pipes.
    Child,
}

/// A server that answers at once, every tool with the same text.
#[derive(Clone)]
pub(crate) struct Backend {
    tools: Arc<[Tool]>,
    era: Era,
}

/// A client that must be kept, since its connection ends with it.
pub(crate) type Client = RunningService<RoleClient, ()>;

/// Connects a client to a server in memory.
pub(crate) async fn connect(server: impl ServerHandler, era: Era) -> Client {
    let lifecycle = era.lifecycle();
    ().serve_with_lifecycle(serve(server), lifecycle).await.expect("the server answers")
}

/// Serves in a task of its own until the pipe that is returned is dropped.
fn serve(server: impl ServerHandler) -> DuplexStream {
    let (near, far) = tokio::io::duplex(BUFFER);
    Handle::current().spawn(async move {
        // It fails when the bench ends, which can be ignored.
        if let Ok(server) = server.serve(far).await {
            let _ = server.waiting().await;
        }
    });
    near
}

/// Connects to a backend with rmcp only.
pub(crate) async fn peer(place: Place, era: Era) -> Client {
    match place {
        Place::Memory => connect(Backend::new(1, era), era).await,
        Place::Child => {
            let mut command = Command::new(this_program());
            command.args(arguments(1, era));
            let process = TokioChildProcess::new(command).expect("a bench can be started");
            let lifecycle = era.lifecycle();
            ().serve_with_lifecycle(process, lifecycle).await.expect("the backend answers")
        }
    }
}

/// Connects to a backend with this crate.
pub(crate) async fn remote(name: &str, place: Place, era: Era) -> RemoteService {
    let builder: RemoteBuilder = RemoteService::builder(name);
    let remote = match place {
        Place::Memory => builder.transport(move || {
            let near = serve(Backend::new(1, era));
            ready(Ok::<_, std::io::Error>(near))
        }),
        Place::Child => {
            builder.child_process(ChildProcess::new(this_program()).args(arguments(1, era)))
        }
    };
    // A server of rmcp that supports no newer version returns an error, and is understood only at
    // the second attempt.
    let mut attempts = 0;
    while let Err(trouble) = remote.connected().await {
        attempts += 1;
        assert!(attempts < 50, "{trouble}");
        sleep(Duration::from_millis(100)).await;
    }
    let info = remote.server_info().expect("a backend that is connected has said what it is");
    let is_newer = info.protocol_version == ProtocolVersion::V_2026_07_28;
    assert_eq!(is_newer, era == Era::Newer, "all speak the same protocol");
    remote
}

/// Calls a backend with the helper of rmcp.
pub(crate) async fn call(peer: &Peer<RoleClient>, tool: &str) {
    let result = peer.call_tool(params(tool)).await.expect("the tool answers");
    assert_ne!(result.is_error, Some(true), "{result:?}");
}

/// A call with small arguments.
pub(crate) fn params(tool: &str) -> CallToolRequestParams {
    let Value::Object(arguments) = json!({ "q": "hello", "limit": 10 }) else { unreachable!() };
    CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments)
}

/// The path of this program, which is a backend if started with [`arguments`].
pub(crate) fn this_program() -> PathBuf {
    env::current_exe().expect("a bench knows its own path")
}

/// The arguments of a backend with the given number of tools.
pub(crate) fn arguments(tools: usize, era: Era) -> [String; 3] {
    ["backend".to_owned(), tools.to_string(), era.name().to_owned()]
}

/// Serves as a backend if the arguments say so.
pub(crate) async fn serve_if_asked() -> bool {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [role, tools, era] = &*arguments else { return false };
    let (Ok(tools), "backend") = (tools.parse(), &**role) else { return false };
    let era = if *era == Era::Older.name() { Era::Older } else { Era::Newer };
    let server = Backend::new(tools, era).serve(stdio()).await.expect("somebody connects");
    let _ = server.waiting().await;
    true
}

// === impl Backend ===

impl Backend {
    fn new(tools: usize, era: Era) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "q": { "type": "string", "description": "What to search for" },
                "limit": { "type": "integer", "minimum": 1 },
            },
            "required": ["q"],
        });
        let Value::Object(schema) = schema else { unreachable!("it is an object") };
        let schema: Arc<JsonObject> = schema.into();
        let tools = (0..tools)
            .map(|index| Tool::new(format!("tool_{index}"), "Searches something", schema.clone()));
        Self { tools: tools.collect(), era }
    }
}

impl ServerHandler for Backend {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.era {
            Era::Older => {
                ProtocolVersion::known_up_to(&ProtocolVersion::LATEST_WITH_INITIALIZE).into()
            }
            Era::Newer => ProtocolVersion::KNOWN_VERSIONS.into(),
        }
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.to_vec()))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text(TEXT)]).into())
    }
}
