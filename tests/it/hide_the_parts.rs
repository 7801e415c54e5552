//! The example of a file that hides the parts and exposes the whole, as it is run.

use rmcp::{ServiceExt, model::CallToolRequestParams, transport::TokioChildProcess};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{programs::example, scripted::object, support::soon};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/hide_the_parts.toml");

#[tokio::test]
async fn clients_see_the_whole_and_reach_no_part() {
    let mut command = Command::new(example("gateway"));
    command.arg(FILE).env("SHOP", example("shop"));
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
