//! Three servers, composites over their tools from a TOML file, and a client.
//!
//! `cargo run --example search_all` prints the tools that the client sees, one call of
//! `search_all`, and the outcome of each of its branches, one of which fails. All of it runs in
//! this process; there is no network.

#![expect(clippy::print_stdout, reason = "it is an example")]

use std::{convert::Infallible, sync::Arc, time::Duration};

use mcp_composite::{
    adapter::{HandlerService, ServeService},
    composite::TRACE,
    config::Config,
    message::{Reply, Request},
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
        ToolAnnotations,
    },
    service::RequestContext,
};
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::from_toml_str(include_str!("search_all.toml"))?;

    // A server, as its clients see it: the composites around the three.
    let stack = ServiceBuilder::new()
        .layer(config.composite_layer())
        .service_fn(together(["code", "issues", "docs"].map(|of| (of, Search { of }))));
    let capabilities = ServerCapabilities::builder().enable_tools().build();
    let server = ServeService::new(stack, ServerConfig::new(capabilities));

    // A client, at the other end of a pipe in memory.
    let (near, far) = tokio::io::duplex(4096);
    let (server, client) = tokio::join!(server.serve(near), ().serve(far));
    let (_server, client) = (server?, client?);

    println!("The tools that the client sees:\n");
    for tool in client.list_all_tools().await? {
        let properties = tool.input_schema.get("properties").and_then(Value::as_object);
        let arguments: Vec<_> = properties.into_iter().flat_map(JsonObject::keys).collect();
        println!("  {:14} {arguments:?}  {}", tool.name, tool.description.unwrap_or_default());
    }

    let arguments = json!({ "query": "deadlock" });
    println!("\nIt calls search_all with {arguments}:\n");
    let mut call = CallToolRequestParams::new("search_all")
        .with_arguments(arguments.as_object().cloned().unwrap_or_default());
    call.meta.get_or_insert_default().insert(TRACE.to_owned(), true.into());
    let result = client.call_tool(call).await?;
    for block in &result.content {
        println!("  {}", block.as_text().map_or("", |text| &text.text));
    }
    println!("\nThe same as data (isError = {:?}):\n", result.is_error.unwrap_or_default());
    println!("{:#}", result.structured_content.unwrap_or_default());
    println!("\nWhat ran, and for how long:\n");
    for step in result.meta.iter().filter_map(|meta| meta.0[TRACE].as_array()).flatten() {
        let text = |key: &str| step[key].as_str().unwrap_or_default();
        println!("  {:8} {:12} {} ms", text("step"), text("status"), step["duration_ms"]);
    }
    Ok(())
}

/// Merges several servers into one: each tool's name begins with its server's.
fn together<const N: usize>(
    servers: [(&'static str, Search); N],
) -> impl Fn(Request) -> BoxReply + Clone {
    type Server = BoxCloneSyncService<Request, Reply, Infallible>;
    let servers: Arc<[(&str, Server)]> =
        servers.map(|(name, server)| (name, Server::new(HandlerService::new(server)))).into();
    move |request| {
        let servers = servers.clone();
        Box::pin(async move {
            if request.lists_tools() {
                let mut tools = Vec::new();
                for (_, server) in servers.iter() {
                    let mut reply = server.clone().oneshot(request.clone()).await?;
                    tools.extend(
                        reply.tools_mut().into_iter().flat_map(|list| list.tools.drain(..)),
                    );
                }
                return Ok(ListToolsResult::with_all_items(tools).into());
            }
            let Some(name) = request.tool_call().map(|call| call.name.clone()) else {
                return Ok(Reply::method_not_found(request.method().to_owned()));
            };
            match servers.iter().find(|(prefix, _)| name.starts_with(prefix)) {
                Some((_, server)) => server.clone().oneshot(request).await,
                None => Ok(Reply::unknown_tool(name)),
            }
        })
    }
}

type BoxReply = std::pin::Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

/// A small server with one tool.
struct Search {
    of: &'static str,
}

impl ServerHandler for Search {
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let properties = match self.of {
            "code" => json!({ "pattern": { "type": "string", "minLength": 1 } }),
            "issues" => json!({
                "text": { "type": "string" },
                "state": { "enum": ["open", "closed"], "default": "open" },
            }),
            _ => json!({ "q": { "type": "string" } }),
        };
        let mut schema = JsonObject::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties);
        let tool =
            Tool::new(format!("{}_search", self.of), format!("Searches {}.", self.of), schema)
                .with_annotations(ToolAnnotations::new().read_only(true).open_world(false));
        Ok(ListToolsResult::with_all_items(vec![tool]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = call.arguments.unwrap_or_default();
        let text = |key| arguments.get(key).and_then(Value::as_str).unwrap_or_default();
        let found = match self.of {
            "code" => format!("src/pool.rs:42: // avoids a {}", text("pattern")),
            "issues" => format!("#7 ({}): {} on shutdown", text("state"), text("text")),
            // The documentation is unavailable.
            _ => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                String::new()
            }
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(found)]).into())
    }
}
