//! The backend of the benchmark: a server with many tools, each of which answers at once.
//!
//! `backend TOOLS` serves over stdio. `backend TOOLS --http` serves streamable HTTP at a free port,
//! and prints its URL in a line.

use std::{env, error::Error, sync::Arc};

use axum::serve::ListenerExt;
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService, stdio,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use serde_json::json;
use tokio::net::TcpListener;

/// A server whose tools have ordinary descriptions and schemas.
#[derive(Clone)]
struct Backend {
    tools: Arc<[Tool]>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let tools = arguments.next().ok_or("expected the number of tools")?.parse()?;
    let backend = Backend { tools: (0..tools).map(tool).collect() };
    if arguments.next().as_deref() != Some("--http") {
        backend.serve(stdio()).await?.waiting().await?;
        return Ok(());
    }
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(backend.clone()), sessions, config);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            eprintln!("TCP_NODELAY cannot be set: {error}");
        }
    });
    Ok(axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?)
}

/// Returns the tool with this number.
fn tool(number: usize) -> Tool {
    let description = format!(
        "Searches the collection {number} for documents, and returns their titles, authors and \
         dates. The query may have words, phrases in quotes, and filters such as `author:name`."
    );
    let schema = json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "description": "What to search for" },
            "limit": { "type": "integer", "minimum": 1, "maximum": 100, "default": 10 },
            "sort": { "type": "string", "enum": ["relevance", "date", "title"] },
            "filter": {
                "type": "object",
                "properties": {
                    "author": { "type": "string" },
                    "after": { "type": "string", "description": "A date, such as 2026-01-31" },
                },
            },
        },
        "required": ["query"],
    });
    let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
    Tool::new(format!("search_{number}"), description, schema)
}

// === impl Backend ===

impl ServerHandler for Backend {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
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
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let query = call.arguments.as_ref().and_then(|it| it.get("query")?.as_str());
        let text = format!("found: {}", query.unwrap_or_default());
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}
