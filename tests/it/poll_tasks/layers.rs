//! Layers above, which use the results of tasks.

use mcp_composite::{
    budget::{Budget, BudgetLayer, MemoryBudgets, Unit},
    pattern::Selection,
    redact::{RedactLayer, Redaction},
    stack::StackLayer,
    truncate::TruncateLayer,
};

use super::*;

fn layer() -> StackLayer {
    StackLayer::new().composite(CompositeLayer::new([composite()]).unwrap())
}

/// Calls a tool above `layer` whose task completes with `result`. Returns the result as JSON.
async fn result(layer: &StackLayer, tool: &str, result: Scripted) -> String {
    let jobs = Jobs::new([working(), result]);
    let reply = layer.layer(jobs.polled()).oneshot(call(tool, json!({}))).await.unwrap();
    serde_json::to_string(reply.tool_result().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn result_of_a_task_is_redacted() {
    let work = Selection::default().allow(["work"]).unwrap();
    let redaction = Redaction::new(work, ["/rows/*/ssn"]).unwrap();
    let layer = layer().redact(RedactLayer::new().redaction(redaction));
    let rows = json!({ "rows": [{ "name": "Ada", "ssn": "078-05-1120" }] });
    for tool in ["work", "job"] {
        let rows = completed(&CallToolResult::structured(rows.clone()));
        let result = result(&layer, tool, rows).await;
        assert!(result.contains("Ada") && !result.contains("078"), "{tool}: {result}");
    }
}

#[tokio::test(start_paused = true)]
async fn result_of_a_task_is_truncated() {
    let layer = layer().truncate(TruncateLayer::new().max_result_bytes(2000));
    for tool in ["work", "job"] {
        let text = ContentBlock::text("long ".repeat(10_000));
        let result = result(&layer, tool, completed(&CallToolResult::success(vec![text]))).await;
        assert!(result.contains("long") && result.len() < 3000, "{tool}: {}", result.len());
    }
}

#[tokio::test(start_paused = true)]
async fn result_of_a_task_is_charged() {
    let (bytes, budgets) = (Budget::new("bytes", Unit::Bytes, 100), MemoryBudgets::new());
    let layer = layer().budget(BudgetLayer::new().budget(bytes.clone()).store(budgets.clone()));
    assert!(result(&layer, "work", done()).await.contains("done"));
    assert_eq!(budgets.remaining(&bytes, None), 96);
    assert!(result(&layer, "job", done()).await.contains("done"));
    assert_eq!(budgets.remaining(&bytes, None), 92);
}

#[tokio::test(start_paused = true)]
async fn too_deep_result_of_a_task_fails_the_step() {
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let deep = completed(&CallToolResult::structured(json!({ "deep": deep })));
    let result = result(&layer(), "job", deep).await;
    assert!(result.contains("the tool's result is nested deeper than 110 levels"), "{result}");
}
