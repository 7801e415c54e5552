//! Spans of calls whose arguments contain variables.

use mcp_composite::{
    composite::{CompositeLayer, CompositeTool, Target},
    expr::Variables,
    stack::StackLayer,
    testing::{self, Server},
    trace::TraceLayer,
};
use serde_json::json;
use tower::{Layer, ServiceExt};

use super::exporter::{Collecting, attribute};

#[tokio::test(start_paused = true)]
async fn secret_variables_are_not_in_spans_with_contents() {
    let collecting = Collecting::begin();
    let variables =
        Variables::new().with("team", json!("platform")).with_secret("key", json!("hunter2"));
    let arguments = json!({ "team": "$vars.team", "key": ["Bearer {{ vars.key }}"], "n": 1 });
    let look = CompositeTool::fan_out("look", "Looks", [Target::new("far").arguments(arguments)])
        .variables(variables);
    let stack = StackLayer::new()
        .trace(TraceLayer::new().contents(true))
        .composite(CompositeLayer::new([look]).unwrap());
    let server = Server::new().says("far", "yes");
    let service = stack.layer(server.clone());
    service.oneshot(testing::request("look", json!({}))).await.unwrap();

    assert_eq!(server.calls()[0].arguments()["key"], json!(["Bearer hunter2"]));
    let redacted = json!({ "key": "…", "n": 1, "team": "platform" }).to_string();
    let spans = collecting.spans();
    let call = spans.iter().find(|span| span.name == "tools/call far").unwrap();
    assert_eq!(attribute(call, "gen_ai.tool.call.arguments"), Some(redacted));
    assert!(!format!("{spans:?}").contains("hunter2"), "{spans:?}");
}
