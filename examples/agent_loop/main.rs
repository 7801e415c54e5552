//! The loop of an agent: the model's message, the calls, and the results returned to it.
//!
//! `cargo run --example agent_loop --features normalize` plays two recorded turns, one of Chat
//! Completions and one of Anthropic. A composite is called, a call is cut off in the middle, and
//! the last one exceeds the budget. It uses no model and no network.

#![expect(clippy::print_stdout, reason = "it is an example")]

use mcp_composite::{
    adapter::HandlerService,
    budget::{Budget, BudgetLayer, Unit},
    composite::{CompositeLayer, CompositeTool},
    message::Request,
    normalize::{DispatchOptions, Provider, ToolNames, dispatch},
    stack::StackLayer,
};
use rmcp::{
    ServerHandler,
    handler::server::wrapper::Parameters,
    schemars::{self, JsonSchema},
    serde::Deserialize,
    tool, tool_handler, tool_router,
};
use serde_json::Value;
use tower::{Layer, ServiceExt};

/// The messages of the models, each in the format of its provider.
const TURNS: [(Provider, &str); 2] = [
    (Provider::OpenAiChat, include_str!("first.json")),
    (Provider::Anthropic, include_str!("second.json")),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let offer = CompositeTool::fan_out("offer", "Price and stock", ["shop/price", "shop/stock"]);
    let stack = StackLayer::new()
        .composite(CompositeLayer::new([offer])?)
        // The budget is below the composite: an offer is two calls.
        .budget(BudgetLayer::new().budget(Budget::new("shop", Unit::Calls, 3)))
        .layer(HandlerService::new(Shop));

    let listed = stack.clone().oneshot(Request::list_tools()).await?;
    let tools = listed.tools().map_or(&[][..], |list| &list.tools);
    let names = ToolNames::of(tools);
    let options = DispatchOptions::new().names(names.clone());

    for (provider, written) in TURNS {
        println!("{provider:?} is told of:\n");
        for definition in provider.definitions(tools, &names) {
            println!("  {definition}");
        }
        let written: Value = serde_json::from_str(written)?;
        let calls = provider.calls(&written)?;
        println!("\nIt wants to call:\n");
        for call in &calls {
            match call {
                Ok(call) => {
                    println!("  {} with {}", call.name, Value::from(call.arguments.clone()))
                }
                Err(malformed) => println!("  {malformed}"),
            }
        }
        println!("\nIt gets:\n");
        for message in provider.encode(&dispatch(stack.clone(), calls, &options).await) {
            println!("{message:#}");
        }
        println!();
    }
    Ok(())
}

/// A server with two tools.
struct Shop;

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "rmcp::serde")]
struct Article {
    /// The article's number.
    article: String,
}

#[tool_router]
impl Shop {
    #[tool(name = "shop/price", description = "Tells a price")]
    fn price(&self, Parameters(Article { article }): Parameters<Article>) -> String {
        format!("{article} costs {} €", 5 + article.len())
    }

    #[tool(name = "shop/stock", description = "Counts what is in stock")]
    fn stock(&self, Parameters(Article { article }): Parameters<Article>) -> String {
        format!("there are {} of {article}", 3 * article.len())
    }
}

#[tool_handler]
impl ServerHandler for Shop {}
