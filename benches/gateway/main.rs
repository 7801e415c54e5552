//! Latency of a call over streamable HTTP through a gateway, compared with a direct call of
//! the same backend.
//!
//! ```sh
//! cargo bench -p benches --bench gateway --all-features              # everything, half a minute
//! cargo bench -p benches --bench gateway --all-features -- 2026      # what has this in its name
//! ```
//!
//! Client, gateway and backend are in this process and talk over sockets, which all set
//! `TCP_NODELAY`: without it each answer waits some 40 ms for the delayed
//! acknowledgement of its first part.

#[path = "../fan_out/counting.rs"]
mod counting;
#[path = "../remote/measure.rs"]
mod measure;
#[path = "../remote/protocol_version.rs"]
mod protocol_version;

use std::{env, sync::Arc};

use axum::serve::ListenerExt;
use futures::future::BoxFuture;
use mcp_composite::adapter::{RemoteService, Router, ServeService, router};
use rmcp::{
    ClientServiceExt, ErrorData, RoleClient, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::{RequestContext, RunningService},
    transport::{
        StreamableHttpClientTransport, StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use tokio::{net::TcpListener, task::JoinSet};

use self::{
    measure::{Group, Threads},
    protocol_version::Era,
};

/// The name of the backend's tool.
const TOOL: &str = "tool";

/// A server that answers at once.
#[derive(Clone)]
struct Backend;

/// A client that must stay, since its connection ends with it.
type Client = RunningService<RoleClient, ()>;

fn main() {
    // Cargo itself says `--bench`.
    let filter = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let is_selected = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(&**filter));

    measure::print_head();
    for threads in [Threads::Current, Threads::Two] {
        for era in [Era::Older, Era::Newer] {
            let name = format!("gateway/{}/{}", era.name(), threads.name());
            if !is_selected(&name) {
                continue;
            }
            let runtime = threads.runtime();
            let group = runtime.block_on(contestants(Group::new(name), era));
            group.run(threads, &runtime);
            // Connections end in their runtime.
            let _inside = runtime.enter();
            drop(group);
        }
    }
}

async fn contestants(group: Group, era: Era) -> Group {
    let mut serving = JoinSet::new();
    let backend = serve(Backend, &mut serving).await;

    let remote = RemoteService::builder("backend").http(&backend, []);
    remote.connected().await.expect("the backend answers");
    let router = Router::builder().backend(router::Backend::new("backend", remote));
    let router = router.build().expect("the name is sound");
    let tool = router.exposed_name("backend", TOOL).expect("there is this backend");
    let gateway = serve(ServeService::new(router, description()), &mut serving).await;

    let direct = connect(&backend, era).await;
    let through = connect(&gateway, era).await;
    group
        .case("direct", calls(&direct, TOOL))
        .case("gateway", calls(&through, &tool))
        .against("direct")
        .keep((serving, direct, through))
}

/// Serves over streamable HTTP until the set is dropped, and returns the URL.
async fn serve(server: impl ServerHandler + Clone, serving: &mut JoinSet<()>) -> String {
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let listener = listener.tap_io(|stream| {
        stream.set_nodelay(true).expect("a connection can be set up");
    });
    let app = axum::Router::new().fallback_service(service);
    serving.spawn(async move { axum::serve(listener, app).await.expect("it never ends") });
    format!("http://{address}/")
}

async fn connect(url: &str, era: Era) -> Client {
    let transport = StreamableHttpClientTransport::from_uri(url);
    ().serve_with_lifecycle(transport, era.lifecycle()).await.expect("the server answers")
}

fn description() -> ServerConfig {
    ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
}

/// Calls a tool over a connection.
fn calls(
    client: &Client,
    tool: &str,
) -> impl Fn() -> BoxFuture<'static, ()> + Clone + Send + Sync + use<> {
    let (peer, tool): (_, Arc<str>) = (client.peer().clone(), tool.into());
    move || {
        let (peer, tool) = (peer.clone(), tool.clone());
        Box::pin(async move {
            let call = CallToolRequestParams::new(tool.to_string());
            let result = peer.call_tool(call).await.expect("the tool answers");
            assert_ne!(result.is_error, Some(true), "{result:?}");
        })
    }
}

// === impl Backend ===

impl ServerHandler for Backend {
    fn get_info(&self) -> ServerConfig {
        description()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = Tool::new(TOOL, "Answers at once", Arc::new(JsonObject::new()));
        Ok(ListToolsResult::with_all_items(vec![tool]))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text("all ok")]).into())
    }
}
