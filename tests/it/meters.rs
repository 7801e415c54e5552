//! One stack, called in every way.

use std::sync::Arc;

use mcp_composite::{
    budget::{Budget, BudgetLayer, Cost, MemoryBudgets, Unit},
    composite::{CompositeLayer, CompositeTool, FanOut, Step, Success, ToolCall},
    intercept::{Next, from_fn},
    message::{Context, Reply, Request},
    normalize::{DispatchOptions, Provider, dispatch},
    pattern::Selection,
    redact::{RedactLayer, Redaction},
    rig_compose::tools,
    stack::{Stack, StackLayer},
    store::MemoryStore,
    testing::{self, Answer, Server},
    truncate::TruncateLayer,
};
use rmcp::model::{CallToolResult, ClientRequest, ContentBlock, MetaObject};
use serde_json::{Value, json};
use tower::{BoxError, Layer, ServiceExt};

/// The way in which a call reaches a stack.
#[derive(Clone, Copy, Debug)]
enum Way {
    Direct,
    Dispatched,
    AsRigTool,
}

const WAYS: [Way; 3] = [Way::Direct, Way::Dispatched, Way::AsRigTool];

fn cost() -> Budget {
    Budget::new("cost", Unit::Cost, 100)
}

fn calls() -> Budget {
    Budget::new("calls", Unit::Calls, 10)
}

/// Returns a stack with every meter, over tools that report costs, and the store of its budgets.
fn metered() -> (Stack<Server>, Arc<MemoryBudgets>) {
    let mut result = CallToolResult::structured(json!({ "answer": 42, "secret": "s" }));
    result.meta = Some(MetaObject(json!({ "usage": 7 }).as_object().expect("an object").clone()));
    let server = Server::new()
        .tool("ask", Answer::from(Reply::from(result)))
        .says("look", "x".repeat(100))
        .fails("break", "no route");
    let budgets = Arc::new(MemoryBudgets::new());
    let ask = Selection::default().allow(["ask"]).expect("a pattern");
    let budget = BudgetLayer::new()
        .store(budgets.clone())
        .budget(cost())
        .budget(calls())
        .cost(Cost::new(ask.clone(), 50).actual_at("/_meta/usage"));
    let offer = CompositeTool::new(
        "offer",
        "All of it",
        FanOut::new(["ask", "look", "break"]).success(Success::Any),
    );
    let stack = StackLayer::new()
        .composite(CompositeLayer::new([offer]).expect("a composite"))
        .redact(RedactLayer::new().redaction(Redaction::new(ask, ["/secret"]).expect("a pointer")))
        .budget(budget)
        .layer(server);
    (stack, budgets)
}

/// Returns the result of a tool, called in this way.
async fn called(stack: Stack<Server>, way: Way, tool: &str) -> Option<Value> {
    match way {
        Way::Direct => testing::call(&stack, tool, json!({})).await.structured_content,
        Way::Dispatched => {
            let written = json!({ "output": [
                { "type": "function_call", "call_id": "a", "name": tool, "arguments": "{}" },
            ] });
            let calls = Provider::OpenAiResponses.calls(&written).expect("an output");
            let ended = dispatch(stack, calls, &DispatchOptions::new()).await;
            ended[0].result().and_then(|result| result.structured_content.clone())
        }
        Way::AsRigTool => {
            let tools = tools(stack).await.expect("tools");
            let tool = tools.iter().find(|listed| listed.name() == tool).expect("it is listed");
            tool.invoke(json!({})).await.ok()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn composite_result_and_charge_are_equal_on_every_path() {
    for way in WAYS {
        let (stack, budgets) = metered();
        let report = called(stack, way, "offer").await.expect("a report");
        let branches = &report["branches"];
        let answer = &branches["ask"]["output"];
        assert_eq!(*answer, json!({ "answer": 42, "secret": "[redacted]" }), "{way:?}");
        assert_eq!(branches["look"]["output"], "x".repeat(100), "{way:?}");
        assert_eq!(branches["break"]["error"]["message"], "no route", "{way:?}");
        // The cost that the result reports, and one for each of the others.
        assert_eq!(budgets.remaining(&cost(), None), 100 - 7 - 1 - 1, "{way:?}");
        assert_eq!(budgets.remaining(&calls(), None), 10 - 3, "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn branch_is_charged_like_a_direct_call() {
    for tool in ["ask", "look", "break"] {
        let (stack, direct) = metered();
        drop(testing::call(&stack, tool, json!({})).await);
        let (metered, left) = metered();
        let one = CompositeTool::fan_out("one", "One", [tool]);
        let layer = CompositeLayer::new([one]).expect("a composite");
        drop(testing::call(&layer.layer(metered), "one", json!({})).await);
        assert_eq!(left.remaining(&cost(), None), direct.remaining(&cost(), None), "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn charge_remains_and_reservation_ends_if_a_hook_fails() {
    let budgets = Arc::new(MemoryBudgets::new());
    let layer = BudgetLayer::new().store(budgets.clone()).budget(calls());
    let broken = from_fn(async |request: Request, next: Next| {
        let reply = next.run(request).await?;
        drop(reply);
        Err::<Reply, BoxError>("the hook is broken".into())
    });
    let service = broken.layer(layer.layer(Server::new().says("t", "done")));
    for made in 1..=10 {
        let ended = service.clone().oneshot(testing::request("t", json!({}))).await;
        assert_eq!(
            ended.map(drop).map_err(|error| error.to_string()),
            Err("the hook is broken".to_owned())
        );
        assert_eq!(budgets.remaining(&calls(), None), 10 - made);
    }
}

#[tokio::test(start_paused = true)]
async fn steps_receive_full_results_and_clients_truncated_ones() {
    let long = "line\n".repeat(20_000);
    let server = Server::new().says("log", long.clone()).tool(
        "count",
        Answer::from_fn(|call| {
            let text = call.arguments()["text"].as_str().map_or(0, str::len);
            let result = CallToolResult::success(vec![ContentBlock::text(text.to_string())]);
            std::future::ready(Answer::from(Reply::from(result)))
        }),
    );
    let pipeline = CompositeTool::pipeline(
        "length",
        "How long it is",
        [
            Step::new("log", "log"),
            Step::new("count", ToolCall::new("count").arguments(json!({ "text": "$prev.text" }))),
        ],
    );
    let truncate =
        TruncateLayer::new().max_result_bytes(1000).keep(Arc::new(MemoryStore::for_results()));
    let stack = StackLayer::new()
        .truncate(truncate)
        .composite(CompositeLayer::new([pipeline]).expect("a composite"))
        .layer(server);

    let length = testing::call(&stack, "length", json!({})).await;
    assert_eq!(length.content[0].as_text().expect("a text").text, long.len().to_string());

    let part = testing::call(&stack, "log", json!({})).await;
    assert!(part.content[0].as_text().expect("a text").text.len() < 1000);
    let link = part.content.iter().find_map(ContentBlock::as_resource_link).expect("a link");
    let read = json!({ "method": "resources/read", "params": { "uri": link.uri } });
    let read: ClientRequest = serde_json::from_value(read).expect("a request");
    let stored =
        stack.oneshot(Request::new(read, Context::default())).await.expect("it can answer");
    let stored = serde_json::to_value(stored.result().expect("a result")).expect("JSON");
    let stored: Value =
        serde_json::from_str(stored["contents"][0]["text"].as_str().expect("a text"))
            .expect("a result");
    assert_eq!(stored["content"][0]["text"], long);
}
