//! Search, then summarize: a pipeline from a TOML file.
//!
//! `cargo run --example pipeline` prints the plan of the composite, calls it, and prints its
//! result. All of it runs in this process; there is no network.

#![expect(clippy::print_stdout, reason = "it is an example")]

use std::convert::Infallible;

use mcp_composite::{
    composite::TRACE,
    config::Config,
    message::{Reply, Request},
};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, ListToolsResult, Tool,
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::from_toml_str(include_str!("pipeline.toml"))?;
    let service = config.composite_layer().layer(service_fn(manual));

    let arguments = object(&json!({ "question": "valve", "words": 4 }));
    println!("What it would do with {}:\n", json!(arguments));
    let preview = service.preview("look_up", arguments.clone()).await?;
    println!("{preview}");

    let call = CallToolRequestParams::new("look_up").with_arguments(arguments);
    let mut request = Request::call_tool_with(call);
    request.context_mut().meta_mut().insert(TRACE.to_owned(), true.into());
    let reply = service.oneshot(request).await?;
    let result = reply.tool_result().ok_or("no result")?;
    println!("What it gives:\n");
    println!("  {}", result.content[0].as_text().map_or("", |text| &text.text));
    println!("\nWhat ran:\n");
    for step in result.meta.iter().filter_map(|meta| meta.0[TRACE].as_array()).flatten() {
        println!("  {:10} {}", step["step"].as_str().unwrap_or_default(), step["status"]);
    }
    Ok(())
}

/// A server with two tools.
async fn manual(request: Request) -> Result<Reply, Infallible> {
    let Some(call) = request.tool_call() else {
        let search = json!({
            "type": "object",
            "properties": { "query": { "type": "string" }, "limit": { "type": "integer" } },
            "required": ["query"],
        });
        let summarise = json!({
            "type": "object",
            "properties": {
                "text": { "type": "string" },
                "title": { "type": "string" },
                "words": { "type": "integer", "minimum": 1 },
            },
            "required": ["text"],
        });
        let tools = vec![
            Tool::new("search_manual", "Searches", object(&search)),
            Tool::new("summarise_text", "Summarises", object(&summarise)),
        ];
        return Ok(ListToolsResult::with_all_items(tools).into());
    };
    let arguments = Value::from(call.arguments.clone().unwrap_or_default());
    let result = match &*call.name {
        "search_manual" => CallToolResult::structured(json!({
            "hits": [{ "text": "Close the valve before you open the lid of the boiler." }],
        })),
        _ => {
            let words = arguments["words"].as_u64().unwrap_or(10);
            let words = usize::try_from(words).unwrap_or(usize::MAX);
            let text = arguments["text"].as_str().unwrap_or_default();
            let text: Vec<_> = text.split(' ').take(words).collect();
            let title = arguments["title"].as_str().unwrap_or_default();
            let summary = format!("{title}: {} …", text.join(" "));
            CallToolResult::success(vec![ContentBlock::text(summary)])
        }
    };
    Ok(result.into())
}

fn object(value: &Value) -> JsonObject {
    value.as_object().cloned().unwrap_or_default()
}
