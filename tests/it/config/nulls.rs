//! Null in JSON values of a file, which TOML lacks.

use mcp_composite::{
    config::Config,
    testing::{self, Server},
};
use serde_json::json;
use tower::Layer;

const FILE: &str = r#"
[[aliases]]
tool = "send"
arguments.owner = { default = "$null" }
arguments.tags = { default = ["$null", "$$null"] }

[[composite_tools]]
name = "report"
description = "Sends what there is"
strategy = "workflow"

[[composite_tools.steps]]
id = "look"
tool = "look"
condition = "false"
default_results = { found = "$null", text = "$$null" }

[[composite_tools.steps]]
id = "send"
tool = "send"
arguments = { kind = "$input.kind", to = "$input.to", found = "$steps.look.output", none = "$null" }

[composite_tools.input_schema]
type = "object"
properties.kind = { enum = ["a", "$null", "$$null"], default = "$null" }
properties.to = { const = "$$null", default = "$$null" }

[composite_tools.output.properties.result]
type = "string"
description = "Not known"
value = "$steps.send.output.missing?"
default = "$null"
"#;

#[tokio::test(start_paused = true)]
async fn null_is_written_as_a_text_in_every_json_value() {
    let config = Config::from_toml_str(FILE).unwrap();
    let server = Server::new().echoes("send").says("look", "nothing");
    let service = config.stack_layer().layer(server.clone());
    let result = testing::call(&service, "report", json!({})).await;
    assert_eq!(result.structured_content, Some(json!({ "result": null })));
    let sent = json!({
        "kind": null, "to": "$null", "found": { "found": null, "text": "$null" }, "none": null,
        "owner": null, "tags": [null, "$null"],
    });
    assert_eq!(server.calls()[0].arguments(), sent);

    let tools = testing::listed(&service).await;
    let report = tools.iter().find(|tool| tool.name == "report").unwrap();
    let properties = &report.input_schema["properties"];
    assert_eq!(properties["kind"], json!({ "enum": ["a", null, "$null"], "default": null }));
    let output = report.output_schema.as_ref().unwrap();
    assert_eq!(output["properties"]["result"]["type"], json!(["string", "null"]));
}
