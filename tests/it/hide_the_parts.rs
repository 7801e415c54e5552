//! The example file that hides the parts and exposes the whole, as it is run.

use std::fs;

use rmcp::{ServiceExt, model::CallToolRequestParams, transport::TokioChildProcess};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::process::Command;

use crate::{
    programs::{PROGRAM, example, run},
    scripted::object,
    support::soon,
};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/hide_the_parts.toml");

/// Writes a configuration file.
fn written(text: &str) -> NamedTempFile {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}

#[tokio::test]
async fn clients_see_the_composite_and_cannot_call_its_targets() {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", FILE]).env("SHOP", example("shop"));
    let client = ().serve(TokioChildProcess::new(command).unwrap()).await.unwrap();

    let tools = soon(client.list_all_tools()).await.unwrap();
    let [offer] = &*tools else { panic!("{tools:?}") };
    assert_eq!(offer.name, "offer");
    assert_eq!(offer.input_schema["required"], json!(["article"]));
    assert_eq!(offer.annotations.as_ref().unwrap().read_only_hint, Some(true));

    let call = |tool: &'static str, arguments: Value| {
        let params = CallToolRequestParams::new(tool).with_arguments(object(arguments));
        soon(client.call_tool(params))
    };
    let result = call("offer", json!({ "article": "b10" })).await.unwrap();
    let branches = json!({
        "article": { "status": "completed", "output": "article b10, as good as new" },
        "price": { "status": "completed", "output": "8 €" },
        "stock": { "status": "completed", "output": "acme has 9 of b10" },
    });
    assert_eq!(result.structured_content, Some(json!({ "branches": branches })));

    for part in ["catalogue_price", "catalogue_delete_article", "stock", "warehouse_count"] {
        let refused = call(part, json!({ "article": "b10" })).await.unwrap_err();
        assert!(refused.to_string().contains(&format!("unknown tool `{part}`")), "{refused}");
    }
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn gateway_prints_the_plan_and_the_flowchart() {
    let planned = run(&["plan", FILE, "offer", "--input", r#"{ "article": "b10" }"#]).await;
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    let expected = r#"offer
   1  article  catalogue_describe {"article":"b10"}
      price    catalogue_price {"article":"b10"}
      stock    stock {"article":"b10"}
"#;
    assert_eq!(String::from_utf8(planned.stdout).unwrap(), expected);

    let drawn = run(&["draw", FILE, "offer"]).await;
    assert!(drawn.status.success(), "{}", String::from_utf8_lossy(&drawn.stderr));
    let drawn = String::from_utf8(drawn.stdout).unwrap();
    assert!(drawn.starts_with("flowchart TB\n    subgraph c0[\"offer, parallel\"]\n"), "{drawn}");

    for (arguments, error) in [
        (&["draw", FILE, "ofer"][..], "unknown composite `ofer`: did you mean `offer`?"),
        (&["plan", FILE, "offer"], "at `/article`: is required"),
        (&["plan", FILE, "nothing"], "unknown tool `nothing`"),
        (&["plan", FILE, "offer", "--input", "[1]"], "expected a JSON object"),
        (&["call", FILE, "offer"], "at `/article`: is required"),
    ] {
        let refused = run(arguments).await;
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && stderr.contains(error), "{arguments:?}: {stderr}");
    }
}

/// A run that changes something before it asks, and needs the result of the change afterwards.
const LATE: &str = r#"
[[backends]]
name = "catalogue"
command = "${SHOP}"
args = ["catalogue"]

[[composite_tools]]
name = "clear"
description = "Deletes an article, and describes what is left if a person wants to know"
strategy = "workflow"

[[composite_tools.steps]]
id = "delete"
tool = "catalogue/delete_article"
arguments = { article = "$input.article" }

[[composite_tools.steps]]
id = "approve"
type = "elicitation"
message = "Describe what is left?"
depends_on = ["delete"]

[[composite_tools.steps]]
id = "describe"
tool = "catalogue/describe"
arguments = { article = "$steps.delete.text" }
depends_on = ["approve"]
"#;

#[tokio::test]
async fn check_warns_of_a_possibly_oversized_state() {
    for (state, is_remarked) in [("", true), ("[state]\nstore = \"memory\"\n", false)] {
        let file = written(&format!("{LATE}\n{state}"));
        let checked = run(&["check", path(&file)]).await;
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let printed = String::from_utf8(checked.stdout).unwrap();
        let remark = "remarks\n  composite `clear`: step `delete` may change something, and the \
                      output of `delete` is kept for later until `approve` is answered";
        assert_eq!(printed.contains(remark), is_remarked, "{printed}");
    }
}

/// A deletion that a person must approve, and that clients could also call directly.
const APPROVED: &str = r#"
[[backends]]
name = "catalogue"
command = "${SHOP}"
args = ["catalogue"]

[[composite_tools]]
name = "clear"
description = "Deletes an article if a person agrees"
strategy = "workflow"

[[composite_tools.steps]]
id = "approve"
type = "elicitation"
message = "Delete {{ input.article }}?"

[[composite_tools.steps]]
id = "delete"
tool = "catalogue/delete_article"
arguments = { article = "$input.article" }
depends_on = ["approve"]

[[views]]
path = "/all"

[views.advertise]
"#;

#[tokio::test]
async fn call_of_a_tool_that_asks_names_the_alternative() {
    let file = written(APPROVED);
    let called = run(&["call", path(&file), "clear", "--input", r#"{ "article": "a1" }"#]).await;
    let stderr = String::from_utf8(called.stderr).unwrap();
    assert!(!called.status.success() && called.stdout.is_empty(), "{stderr}");
    let why = "the user must be asked, and the client cannot: it does not declare the capability";
    let advice = "\n`call` cannot ask the user: call the tool from a client that supports \
                  elicitation, connected to `mcp-composite serve FILE`\n";
    assert!(stderr.contains(why) && stderr.ends_with(advice), "{stderr}");
}

#[tokio::test]
async fn check_warns_of_tools_that_clients_can_call_without_approval() {
    let remark = "composite `clear`: clients can call `catalogue_delete_article` without the \
                  question of `approve`: add it to `[advertise] deny`";
    let hidden = "[advertise]\ndeny = [\"catalogue_*\"]\n";
    for (arguments, advertise, remarks) in [
        (&[][..], "", format!("\nremarks\n  {remark}\n")),
        (&[], hidden, format!("\nremarks\n  view `/all`: {remark}\n")),
        (&["--offline"], "", String::new()),
    ] {
        let file = written(&format!("{APPROVED}\n{advertise}"));
        let checked = run(&[&["check", path(&file)], arguments].concat()).await;
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let printed = String::from_utf8(checked.stdout).unwrap();
        let printed = printed.find("\nremarks\n").map_or("", |at| &printed[at..]);
        assert_eq!(printed, remarks, "{arguments:?} {advertise}");
    }
}
