//! Calls of functions count for the run that the functions were called in.

use std::sync::{Arc, OnceLock};

use mcp_composite::{
    budget::{Budget, BudgetLayer, Per, Unit},
    composite::{CompositeLayer, CompositeTool},
    functions::{FunctionsLayer, ToolSet, tool_fn},
    message::{Context, Reply, Request},
    stack::{Stack, StackLayer},
    testing::{self, Server},
};
use rmcp::model::{JsonObject, Tool};
use serde_json::json;
use tower::{BoxError, Layer, ServiceExt, util::BoxCloneSyncService};

use crate::support::soon;

type Service = BoxCloneSyncService<Request, Reply, BoxError>;

/// A function that calls a tool of a stack ten times, and returns how many calls were accepted; it
/// passes its own context or does not.
fn agent(stack: &Arc<OnceLock<Service>>, target: &'static str, says_within: bool) -> ToolSet {
    let stack = stack.clone();
    let tool = Tool::new("agent", "Calls others", JsonObject::new());
    let agent = tool_fn(tool, move |_: JsonObject, context: Context| {
        let stack = stack.get().expect("it is built").clone();
        async move {
            let mut made = 0;
            for _ in 0..10 {
                let mut request = testing::request(target, json!({}));
                if says_within {
                    request = request.within(&context);
                }
                let reply = stack.clone().oneshot(request).await.expect("an answer");
                let result = reply.tool_result().is_some_and(|it| it.is_error != Some(true));
                made += u32::from(result);
            }
            json!({ "made": made })
        }
    });
    ToolSet::new([agent]).expect("one tool")
}

/// A stack with an agent, a tool, and composites that call both.
fn stack() -> StackLayer {
    let calls = Budget::new("calls", Unit::Calls, 5).per(Per::Run);
    let composites = [
        CompositeTool::fan_out("one", "Calls a tool", ["t"]),
        CompositeTool::fan_out("both", "Calls a tool and an agent", ["t", "agent"]),
    ];
    StackLayer::new()
        .composite(CompositeLayer::new(composites).expect("composites"))
        .budget(BudgetLayer::new().budget(calls))
}

/// Returns how many calls of the agent are accepted if this tool is called.
async fn made(service: &Service, tool: &str) -> u64 {
    let reply = soon(service.clone().oneshot(testing::request(tool, json!({})))).await.unwrap();
    let reply = serde_json::to_value(reply.tool_result().expect("a result")).unwrap().to_string();
    let (_, made) = reply.split_once(r#"made":"#).expect("what was made");
    made.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_function_belong_to_its_calling_run() {
    for (target, says_within) in [("t", true), ("t", false), ("one", true), ("one", false)] {
        let built = Arc::new(OnceLock::new());
        let functions = FunctionsLayer::new(agent(&built, target, says_within));
        let server = Server::new().says("t", "done");
        let service: Stack<_> = stack().layer(functions.layer(server.clone()));
        let service = built.get_or_init(|| Service::new(service.map_err(Into::into)));
        // The agent itself is one of five, and so is the call beside it. The next call is a
        // separate run.
        for (tool, expected) in [("agent", 4), ("both", 3), ("agent", 4)] {
            let made = made(service, tool).await;
            assert_eq!(made, expected, "{tool} calls {target}, {says_within}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_an_outer_function_belong_to_one_run() {
    for (target, says_within) in [("t", true), ("t", false), ("one", true), ("one", false)] {
        let built = Arc::new(OnceLock::new());
        let functions = FunctionsLayer::new(agent(&built, target, says_within));
        let service = functions.layer(stack().layer(Server::new().says("t", "done")));
        let service = built.get_or_init(|| Service::new(service));
        for _ in 0..2 {
            assert_eq!(made(service, "agent").await, 5, "{target}, {says_within}");
        }
    }
}
