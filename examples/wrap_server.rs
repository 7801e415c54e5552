//! Wraps an existing server, and serves it over stdio.
//!
//! Point any MCP client at it: `cargo run --example wrap_server`. It lists the
//! two tools of the server and a third one, `both`, that calls them.

use mcp_composite::{
    adapter::ServeService,
    composite::{CompositeLayer, CompositeTool},
};
use rmcp::{
    ServerHandler, ServiceExt,
    handler::server::wrapper::Parameters,
    schemars::{self, JsonSchema},
    serde::Deserialize,
    tool, tool_handler, tool_router,
    transport::stdio,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let both = CompositeTool::fan_out("both", "Counts words and letters", ["words", "letters"]);
    let server = ServeService::wrap(Counter, CompositeLayer::new([both])?);
    server.serve(stdio()).await?.waiting().await?;
    Ok(())
}

// The original server, unchanged.

/// Counts the words or letters of a text.
#[derive(Clone)]
struct Counter;

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "rmcp::serde")]
struct Text {
    /// The text to count.
    text: String,
}

#[tool_router]
impl Counter {
    #[tool(description = "Counts words", annotations(read_only_hint = true))]
    fn words(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text.split_whitespace().count().to_string()
    }

    #[tool(description = "Counts letters", annotations(read_only_hint = true))]
    fn letters(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text.chars().filter(|c| c.is_alphabetic()).count().to_string()
    }
}

#[tool_handler]
impl ServerHandler for Counter {}
