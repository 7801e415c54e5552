//! Investigates an incident: a workflow from a TOML file.
//!
//! `cargo run --example workflow` prints the plan of the composite, calls it, and prints its result
//! and when each step ran: three look-ups at the same time, one of which fails, a loop, and a page
//! to the person on call. All of it runs in this process; there is no network.

#![expect(clippy::print_stdout, reason = "it is an example")]

use std::{convert::Infallible, time::Duration};

use mcp_composite::{
    composite::TRACE,
    config::Config,
    message::{Reply, Request},
};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, ListToolsResult, Tool,
};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::from_toml_str(include_str!("workflow.toml"))?;
    let service = config.composite_layer().layer(service_fn(operations));

    let arguments = object(&json!({ "service": "checkout" }));
    println!("What it would do with {}:\n", json!(arguments));
    let preview = service.preview("investigate_incident", arguments.clone()).await?;
    println!("{preview}");

    let call = CallToolRequestParams::new("investigate_incident").with_arguments(arguments);
    let mut request = Request::call_tool_with(call);
    request.context_mut().meta_mut().insert(TRACE.to_owned(), true.into());
    let reply = service.oneshot(request).await?;
    let result = reply.tool_result().ok_or("no result")?;
    println!("What it gives:\n\n{:#}", json!(result.structured_content));
    println!("\nWhat ran:\n");
    for step in result.meta.iter().filter_map(|meta| meta.0[TRACE].as_array()).flatten() {
        println!(
            "  {:12} {:10} from {:>3} ms, for {:>3} ms{}",
            step["step"].as_str().unwrap_or_default(),
            step["status"].as_str().unwrap_or_default(),
            step["started_ms"],
            step["duration_ms"],
            step["error"]["message"].as_str().map_or(String::new(), |why| format!(": {why}")),
        );
    }
    Ok(())
}

/// A server with the tools of an operations team.
async fn operations(request: Request) -> Result<Reply, Infallible> {
    let Some(call) = request.tool_call() else {
        let names =
            ["fetch_logs", "fetch_metrics", "list_deployments", "ping_host", "page_on_call"];
        let any = || object(&json!({ "type": "object" }));
        let tools = names.map(|name| Tool::new(name, "Does what it says", any()));
        return Ok(ListToolsResult::with_all_items(tools.to_vec()).into());
    };
    let arguments = Value::from(call.arguments.clone().unwrap_or_default());
    sleep(Duration::from_millis(20)).await;
    Ok(match &*call.name {
        "fetch_logs" => CallToolResult::structured(json!({
            "lines": ["starting", "no connection to db-2"],
            "hosts": ["db-1", "db-2", "cache-1"],
        })),
        "fetch_metrics" => CallToolResult::structured(json!({ "error_rate": 0.12 })),
        "ping_host" if arguments["host"] == "db-2" => failure("no answer"),
        "ping_host" => CallToolResult::structured(json!({ "ms": 3 })),
        "page_on_call" => {
            let text = arguments["text"].as_str().unwrap_or_default();
            println!("Somebody's phone rings:\n\n{text}");
            CallToolResult::success(vec![ContentBlock::text("called")])
        }
        _ => failure("the deployment service is down"),
    }
    .into())
}

fn failure(text: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

fn object(value: &Value) -> JsonObject {
    value.as_object().cloned().unwrap_or_default()
}
