//! Tests the costs of runs, and the outcome of runs that exceed a limit.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    mem,
    sync::{Arc, Mutex},
    task,
    time::Duration,
};

use rmcp::model::{CallToolResult, ContentBlock, ListToolsResult, TextContent, Tool};
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt};
use tower_layer::Layer;

use super::*;
use crate::{
    composite::{
        BRANCH, CompositeLayer, CompositeTool, Fallback, FanOut, LIMIT, OnError, OnLimit, Race,
        Retry, Step, Strategy, TRACE, Workflow,
    },
    message::Reply,
};

/// Tools for tests of costs. The name of a tool is its cost, as a budget layer would charge it. The
/// calls of one further tool are rejected by another budget.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Vec<String>>>);

const TOOLS: [&str; 5] = ["0", "1", "2", "5", "rationed"];

impl Service<Request> for Shop {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let Some(call) = request.tool_call() else {
            let tools = TOOLS.map(|name| Tool::new(name, "Sells", JsonObject::new()));
            return ready(Ok(ListToolsResult::with_all_items(tools.to_vec()).into()));
        };
        self.0.lock().unwrap().push(call.name.to_string());
        let refused = |budget: &'static str| {
            let retry_after = Some(Duration::from_secs(9)).filter(|_| budget == "daily");
            Reply::from(Refusal::OverBudget { budget: budget.into(), retry_after })
        };
        let Ok(cost) = call.name.parse() else { return ready(Ok(refused("daily"))) };
        let account = request.context().account().expect("a run has an account");
        ready(Ok(match account.reserve_cost(cost) {
            None => refused("max_cost"),
            Some(hold) => {
                hold.settle(cost);
                CallToolResult::success(vec![ContentBlock::text(call.name.clone())]).into()
            }
        }))
    }
}

#[test]
fn run_future_fits_a_cached_allocator_block() {
    let layer = CompositeLayer::new([CompositeTool::fan_out("all", "All", ["1", "2"])]).unwrap();
    let mut service = layer.layer(Shop::default());
    let run = service.run(0, CallToolRequestParams::new("all").into());
    // glibc's allocator caches blocks up to this size; larger ones trigger consolidation.
    assert!(size_of_val(&*run) <= 1032, "{}", size_of_val(&*run));
}

impl Shop {
    async fn run(&self, composites: Vec<CompositeTool>) -> CallToolResult {
        let called = composites.last().unwrap().name().to_owned();
        let service = CompositeLayer::new(composites).unwrap().layer(self.clone());
        let mut request = Request::call_tool(called);
        request.context_mut().meta_mut().insert(TRACE.to_owned(), true.into());
        service.oneshot(request).await.unwrap().tool_result().unwrap().clone()
    }

    fn called(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn buy(name: &str, tools: &[&str]) -> CompositeTool {
    let tools = tools.iter().copied();
    CompositeTool::new(name, "Buys", FanOut::new(tools).sequential())
}

fn steps(tools: &[&str]) -> [Step; 3] {
    [0, 1, 2].map(|at| Step::new(format!("s{at}"), tools[at]))
}

fn statuses(result: &CallToolResult) -> Vec<&str> {
    let trace = result.meta.as_ref().unwrap()[TRACE].as_array().unwrap();
    trace.iter().map(|entry| entry["status"].as_str().unwrap()).collect()
}

fn limit(result: &CallToolResult) -> Option<&Value> {
    result.meta.as_ref()?.get(LIMIT)
}

/// Returns the reason why a run failed, without the outputs of its branches and steps.
fn reason(result: &CallToolResult) -> &str {
    let mut texts = result.content.iter().filter_map(|block| block.as_text());
    let of_branch =
        |text: &&TextContent| text.meta.as_ref().is_some_and(|meta| meta.0.contains_key(BRANCH));
    &texts.rfind(|text| !of_branch(text)).unwrap().text
}

fn last_text(result: &CallToolResult) -> &str {
    &result.content.last().unwrap().as_text().unwrap().text
}

#[tokio::test(start_paused = true)]
async fn call_over_max_cost_is_rejected_and_ends_the_run() {
    let tools = ["2", "5", "1"];
    let composites = [
        buy("buy", &tools),
        CompositeTool::new("buy", "Buys", FanOut::new(tools).max_parallel(1)),
        CompositeTool::pipeline("buy", "Buys", steps(&tools)),
        CompositeTool::new("buy", "Buys", Workflow::new(steps(&tools)).max_parallel(1)),
    ];
    for composite in composites {
        let what = format!("{composite:?}");
        let shop = Shop::default();
        let result = shop.run(vec![composite.clone().max_cost(6)]).await;
        assert_eq!(shop.called(), ["2", "5"], "{what}");
        assert_eq!(statuses(&result), ["completed", "failed", "skipped"], "{what}");
        let error = &result.meta.as_ref().unwrap()[TRACE][1]["error"];
        assert_eq!(
            (&error["kind"], &error["data"]["budget"]),
            (&json!("limit"), &json!("max_cost"))
        );
        let limit = limit(&result).unwrap();
        assert_eq!((&limit["setting"], &limit["limit"]), (&json!("max_cost"), &json!(6)), "{what}");
        assert_eq!(result.is_error, Some(false), "{what}");

        let failed = shop.run(vec![composite.max_cost(6).on_limit(OnLimit::Fail)]).await;
        assert_eq!(failed.is_error, Some(true), "{what}");
        let prefix = "the run ended early: `max_cost`, which is 6, was reached; refused: ";
        assert!(reason(&failed).starts_with(prefix), "{}", reason(&failed));
    }
}

#[tokio::test(start_paused = true)]
async fn spent_budget_skips_the_remaining_calls() {
    let shop = Shop::default();
    let result = shop.run(vec![buy("buy", &["1", "2", "0"]).max_cost(3)]).await;
    assert_eq!(shop.called(), ["1", "2"]);
    assert_eq!(statuses(&result), ["completed", "completed", "skipped"]);
    assert_eq!(limit(&result).unwrap()["skipped"], json!(["0"]));
}

#[tokio::test(start_paused = true)]
async fn winner_that_spends_the_whole_budget_is_returned() {
    let shop = Shop::default();
    let targets = ["5", "2", "1"];
    for strategy in [Strategy::from(Race::new(targets)), Fallback::new(targets).into()] {
        let composite = CompositeTool::new("buy", "Buys", strategy);
        let strategy = composite.strategy.name();
        let result = shop.run(vec![composite.clone().max_cost(2)]).await;
        let error = statuses(&result).contains(&"completed");
        assert_eq!(result.is_error, Some(!error), "{strategy}: {result:?}");
        let result = shop.run(vec![composite.max_cost(5)]).await;
        assert_eq!((last_text(&result), limit(&result)), ("5", None), "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn cost_of_nested_runs_is_charged_to_the_outer_runs() {
    let shop = Shop::default();
    let inner = || buy("inner", &["2", "5", "1"]);
    let around = |max| buy("outer", &["1", "inner", "0"]).max_cost(max);

    // The limit of the inner run ends the inner run only.
    let result = shop.run(vec![inner().max_cost(3), around(9)]).await;
    assert_eq!(statuses(&result), ["completed", "completed", "completed"]);
    assert_eq!(limit(&result), None);

    // The limit of the outer run ends both runs.
    for inner in [inner(), inner().max_cost(9)] {
        let result = shop.run(vec![inner, around(4)]).await;
        assert_eq!(statuses(&result), ["completed", "completed", "skipped"]);
        assert_eq!(limit(&result).unwrap()["skipped"], json!(["0"]));
    }
}

#[tokio::test(start_paused = true)]
async fn other_budget_fails_only_the_calls_it_rejects() {
    let shop = Shop::default();
    let step = Step::new("rationed", "rationed").on_error(OnError::Retry(Retry::times(3)));
    let composite = CompositeTool::pipeline("buy", "Buys", [step]).max_cost(9);
    let result = shop.run(vec![composite]).await;
    assert_eq!(shop.called(), ["rationed"], "it is not tried again");
    let expected =
        "step `rationed` (tool `rationed`) failed: the budget `daily` is used up; try again in 9 s";
    assert_eq!((result.is_error, reason(&result)), (Some(true), expected));

    let result = shop.run(vec![buy("buy", &["rationed", "1"]).max_cost(9)]).await;
    assert_eq!((statuses(&result), limit(&result)), (vec!["failed", "completed"], None));
    let error = &result.meta.as_ref().unwrap()[TRACE][0]["error"];
    let expected = json!({ "kind": "limit", "message": "the budget `daily` is used up; try again in 9 s",
        "code": -32000, "data": { "budget": "daily", "retryAfterMs": 9000 } });
    assert_eq!(*error, expected);
}

/// A service that requires each clone to be ready before each call. A clone that has failed must
/// not be polled again.
struct Strict {
    is_ready: bool,
    has_failed: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { is_ready: false, has_failed: false }
    }
}

impl Service<Request> for Strict {
    type Response = Reply;
    type Error = BoxError;
    type Future = Ready<Result<Reply, BoxError>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        assert!(!self.has_failed, "it has failed");
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        assert!(mem::take(&mut self.is_ready), "it is not ready");
        let Some(call) = request.tool_call() else {
            let tools = ["works", "fails"].map(|name| Tool::new(name, "", JsonObject::new()));
            return ready(Ok(ListToolsResult::with_all_items(tools.to_vec()).into()));
        };
        self.has_failed = call.name == "fails";
        ready(match self.has_failed {
            true => Err("gone".into()),
            false => Ok(CallToolResult::success(vec![ContentBlock::text("ok")]).into()),
        })
    }
}

#[tokio::test(start_paused = true)]
async fn service_is_ready_before_each_call_and_unused_after_an_error() {
    let tools = ["works", "works", "fails", "works", "fails", "fails", "works"];
    let targets = tools
        .iter()
        .enumerate()
        .map(|(at, tool)| crate::composite::Target::new(*tool).id(format!("{tool}_{at}")));
    let all = CompositeTool::fan_out("all", "All", targets);
    let strict = Strict { is_ready: false, has_failed: false };
    let service = CompositeLayer::new([all]).unwrap().layer(strict);
    let mut request = Request::call_tool("all");
    request.context_mut().meta_mut().insert(TRACE.to_owned(), true.into());
    let reply = service.oneshot(request).await.unwrap();
    let result = reply.tool_result().unwrap();
    let expected = tools.map(|tool| if tool == "works" { "completed" } else { "failed" });
    assert_eq!(statuses(result), expected);
    let trace = &result.meta.as_ref().unwrap()[TRACE];
    assert_eq!(trace[2]["error"]["message"], "the tool's server failed to answer");
}

#[test]
fn nested_fan_outs_complete_on_one_thread_and_on_several() {
    use tokio::runtime::Builder;

    let runtimes = [Builder::new_current_thread(), Builder::new_multi_thread()];
    for mut builder in runtimes {
        let runtime = builder.enable_time().build().unwrap();
        let result = runtime.block_on(async {
            let inner = CompositeTool::fan_out("inner", "Buys", ["1", "2"]);
            let outer = CompositeTool::fan_out("outer", "Buys", ["1", "inner", "2"]);
            Shop::default().run(vec![inner, outer]).await
        });
        let branches = &result.structured_content.as_ref().unwrap()["branches"];
        let texts = &branches["inner"]["output"]["branches"];
        assert_eq!((&texts["1"]["output"], &texts["2"]["output"]), (&json!("1"), &json!("2")));
        assert_eq!(statuses(&result), ["completed"; 3]);
    }
}
