//! Budgets that calls share.

mod concurrency;
mod function_calls;
mod store;

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    future::{Ready, ready},
    task::{Context, Poll},
    time::Duration,
};

use futures::FutureExt;
use mcp_composite::{
    alias::{AliasLayer, ToolAlias},
    budget::{Budget, BudgetLayer, Cost, MemoryBudgets, Per, Refill, Unit},
    composite::{CompositeLayer, CompositeTool, FanOut, Race},
    message::{BackendError, BackendErrorKind, Refusal, Reply, Request},
    pattern::Selection,
    stack::StackLayer,
    testing::{self, Answer, Server, request as call},
};
use rmcp::model::{
    CallToolResult, CreateTaskResult, CustomResult, MetaObject, ServerResult, Task, TaskStatus,
};
use serde_json::json;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{
    Layer, Service, ServiceExt, buffer::Buffer, layer::util::Identity, limit::ConcurrencyLimit,
    service_fn,
};
use tower_test::mock;

use crate::support::{capture_logs, soon};

/// A server whose answer allocates as little as possible.
#[derive(Clone)]
pub(crate) struct Plain;

impl Service<Request> for Plain {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        ready(Ok(CallToolResult::success(Vec::new()).into()))
    }
}

/// The error of a service between the budgets and a backend.
#[derive(Debug)]
struct Outer(BackendError);

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the service between them failed")
    }
}

impl Error for Outer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

fn calls(limit: u64) -> Budget {
    Budget::new("calls", Unit::Calls, limit)
}

/// Returns a layer with a budget, and the store of the budget.
fn charging(budget: &Budget) -> (BudgetLayer, MemoryBudgets) {
    let budgets = MemoryBudgets::new();
    (BudgetLayer::new().budget(budget.clone()).store(budgets.clone()), budgets)
}

fn allow<const N: usize>(tools: [&str; N]) -> Selection {
    Selection::default().allow(tools).expect("good patterns")
}

/// Returns a result that reports this cost.
fn costing(units: u64) -> CallToolResult {
    let mut result = CallToolResult::success(Vec::new());
    result.meta = json!({ "cost": units }).as_object().cloned().map(MetaObject);
    result
}

/// Returns whether a call is rejected because a budget is exhausted.
async fn is_refused<S>(service: &S, tool: &str) -> bool
where
    S: Service<Request, Response = Reply, Error: fmt::Debug> + Clone,
{
    let reply = service.clone().oneshot(call(tool, json!(null))).await.unwrap();
    matches!(reply.refusal(), Some(Refusal::OverBudget { .. }))
}

// === Charges ===

#[tokio::test(start_paused = true)]
async fn inner_elicitation_and_rejection_are_not_charged() {
    let task = Task::new(
        "7".to_owned(),
        TaskStatus::Working,
        "2026-01-01T00:00:00Z".to_owned(),
        "2026-01-01T00:00:00Z".to_owned(),
    );
    let task = ServerResult::CreateTaskResult(CreateTaskResult::new(task));
    let unreadable = ServerResult::CustomResult(CustomResult(json!({ "content": 1 })));
    let cases = [
        ("a result", Answer::text("done"), 1),
        ("a failure", Answer::failure("no route"), 1),
        ("an error of the server", Answer::error(-32603, "broken"), 1),
        ("a task", Reply::from(task).into(), 1),
        ("a result that cannot be read", Reply::from(unreadable).into(), 1),
        ("a question", Answer::asks("name", "What is your name?"), 0),
        ("a refusal below", Reply::unknown_tool("t").into(), 0),
        ("an error of the service", Answer::unavailable("gone"), 1),
    ];
    for (what, answer, expected) in cases {
        let (layer, budgets) = charging(&calls(9));
        let reply = layer.layer(Server::new().tool("t", answer)).oneshot(call("t", json!(null)));
        drop(reply.await);
        assert_eq!(9 - budgets.remaining(&calls(9), None), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn error_is_charged_unless_the_call_was_not_sent() {
    use BackendErrorKind::{
        ConnectionLost, Failed, NotConnected, Overloaded, TimedOut, Unsupported,
    };

    let kinds = [
        (NotConnected, 0),
        (Overloaded, 0),
        (ConnectionLost, 1),
        (TimedOut, 1),
        (Unsupported, 1),
        (Failed, 1),
    ];
    for (kind, expected) in kinds {
        let (layer, budgets) = charging(&calls(9));
        let error = || BackendError::new("far", kind);
        let bare = layer.layer(service_fn(async |_: Request| Err::<Reply, _>(error())));
        drop(bare.oneshot(call("t", json!(null))).await);
        // As the source of an error of a service between them.
        let outer = || tower::BoxError::from(Outer(error()));
        let boxed = layer.layer(service_fn(async |_: Request| Err::<Reply, _>(outer())));
        drop(boxed.oneshot(call("t", json!(null))).await);
        assert_eq!(9 - budgets.remaining(&calls(9), None), 2 * expected, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_tool_is_charged_when_its_backend_times_out() {
    let (layer, budgets) = charging(&calls(1));
    let server = Server::new().hangs("t");
    let slow = tower::timeout::Timeout::new(server.clone(), Duration::from_secs(1));
    let service = layer.layer(slow);
    assert!(service.clone().oneshot(call("t", json!(null))).await.is_err());
    assert_eq!(budgets.remaining(&calls(1), None), 0);
    for _ in 0..1000 {
        assert!(is_refused(&service, "t").await);
    }
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shed_call_is_not_charged() {
    let (layer, budgets) = charging(&calls(2));
    let one_at_a_time = ConcurrencyLimit::new(Server::new().hangs("t"), 1);
    let service = layer.layer(tower::load_shed::LoadShed::new(one_at_a_time));
    let mut running = Box::pin(service.clone().oneshot(call("t", json!(null))));
    assert!(futures::poll!(&mut running).is_pending());
    assert!(service.oneshot(call("t", json!(null))).await.is_err());
    assert_eq!(budgets.remaining(&calls(2), None), 1);
}

#[tokio::test(start_paused = true)]
async fn call_dropped_after_it_was_forwarded_is_charged() {
    let (layer, budgets) = charging(&calls(1));
    let mut running =
        Box::pin(layer.layer(Server::new().hangs("t")).oneshot(call("t", json!(null))));
    assert!(futures::poll!(&mut running).is_pending());
    assert_eq!(budgets.remaining(&calls(1), None), 0);
    drop(running);
    assert_eq!(budgets.remaining(&calls(1), None), 0);
}

#[tokio::test(start_paused = true)]
async fn call_dropped_by_an_outer_timeout_is_charged() {
    let (layer, budgets) = charging(&calls(1));
    let server = layer.layer(Server::new().hangs("t"));
    let service = tower::timeout::Timeout::new(server, Duration::from_secs(1));
    assert!(service.oneshot(call("t", json!(null))).await.is_err());
    assert_eq!(budgets.remaining(&calls(1), None), 0);
}

#[tokio::test(start_paused = true)]
async fn panicking_call_is_charged() {
    let (layer, budgets) = charging(&calls(1));
    let service = layer.layer(Server::new().tool("t", Answer::panic("secret")));
    let mut running = tokio::task::JoinSet::new();
    running.spawn(service.oneshot(call("t", json!(null))));
    assert!(running.join_next().await.unwrap().unwrap_err().is_panic());
    assert_eq!(budgets.remaining(&calls(1), None), 0);
}

#[tokio::test(start_paused = true)]
async fn rejected_calls_leave_other_reservations_intact() {
    let (layer, budgets) = charging(&calls(2));
    let server = Server::new().hangs("t");
    let service = layer.layer(server.clone());
    let mut running = Box::pin(service.clone().oneshot(call("t", json!(null))));
    assert!(futures::poll!(&mut running).is_pending());
    drop(service.clone().oneshot(call("t", json!(null))));
    let mut second = Box::pin(service.clone().oneshot(call("t", json!(null))));
    assert!(futures::poll!(&mut second).is_pending());
    for _ in 0..3 {
        assert!(is_refused(&service, "t").await);
    }
    assert_eq!(server.running(), 2);
    drop((running, second));
    assert_eq!(budgets.remaining(&calls(3), None), 1);
}

#[tokio::test(start_paused = true)]
async fn sequential_calls_exhaust_the_budget() {
    let service = charging(&calls(1)).0.layer(Server::new().says("t", "done"));
    assert!(!is_refused(&service, "t").await);
    for _ in 0..1000 {
        assert!(is_refused(&service, "t").await);
    }
}

#[tokio::test(start_paused = true)]
async fn byte_budget_is_charged_by_reply_size() {
    let bytes = Budget::new("bytes", Unit::Bytes, 10);
    let (layer, budgets) = charging(&bytes);
    let service = layer.layer(Server::new().says("t", "12345678").says("u", "12345678"));
    assert!(!is_refused(&service, "t").await);
    assert_eq!(budgets.remaining(&bytes, None), 2);
    assert!(!is_refused(&service, "t").await);
    assert!(is_refused(&service, "u").await);
    assert_eq!(budgets.remaining(&bytes, None), 0);
}

#[tokio::test(start_paused = true)]
async fn server_error_is_charged_by_its_message_length() {
    let bytes = Budget::new("bytes", Unit::Bytes, 100);
    let (layer, budgets) = charging(&bytes);
    let service = layer.layer(Server::new().tool("t", Answer::error(-32603, "0123456789")));
    assert!(!is_refused(&service, "t").await);
    assert_eq!(budgets.remaining(&bytes, None), 90);
}

#[tokio::test(start_paused = true)]
async fn cost_is_the_first_matching_estimate_unless_reported() {
    let cost = Budget::new("cost", Unit::Cost, 100);
    let (layer, budgets) = charging(&cost);
    let service = layer
        .cost(Cost::new(allow(["a*"]), 10).actual_at("/_meta/cost"))
        .cost(Cost::new(allow(["a", "b"]), 20))
        .layer(
            Server::new()
                .tool("a", costing(3))
                .tool("ask", Answer::failure("no route"))
                .says("b", "done")
                .says("c", "done"),
        );
    let cases = [("a", 3), ("ask", 10), ("b", 20), ("c", 1)];
    for (tool, expected) in cases {
        let before = budgets.remaining(&cost, None);
        assert!(!is_refused(&service, tool).await);
        assert_eq!(before - budgets.remaining(&cost, None), expected, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn cost_over_the_limit_remains_after_a_refund() {
    let cost = Budget::new("cost", Unit::Cost, 100).max_per_call(1000);
    let (layer, budgets) = charging(&cost);
    let layer = layer.cost(Cost::new(Selection::default(), 50).actual_at("/_meta/cost"));
    let server = Server::new().tool("t", Answer::from(costing(1000))).hangs("other");
    let service = layer.layer(server);
    let mut other = Box::pin(service.clone().oneshot(call("other", json!(null))));
    assert!(futures::poll!(&mut other).is_pending());
    assert!(!is_refused(&service, "t").await);
    drop(other);
    assert!(is_refused(&service, "t").await);
    assert_eq!(budgets.remaining(&cost, None), 0);
}

#[tokio::test(start_paused = true)]
async fn refill_recovers_from_any_reported_cost() {
    let refill = Refill::new(10, Duration::from_secs(1));
    for (budget, recovered) in [
        (Budget::new("cost", Unit::Cost, 100).refill(refill), 10),
        (Budget::new("cost", Unit::Cost, 100).refill(refill).max_per_call(30), 80),
    ] {
        let (layer, budgets) = charging(&budget);
        let layer = layer.cost(Cost::new(Selection::default(), 5).actual_at("/_meta/cost"));
        let service = layer.layer(Server::new().tool("t", Answer::from(costing(u64::MAX))));
        assert!(!is_refused(&service, "t").await);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(budgets.remaining(&budget, None), recovered);
    }
}

#[tokio::test(start_paused = true)]
async fn single_refill_recovers_from_concurrent_excessive_costs() {
    let budget = Budget::new("cost", Unit::Cost, 100);
    let budget = budget.refill(Refill::new(100, Duration::from_secs(1)));
    let (layer, budgets) = charging(&budget);
    let layer = layer.cost(Cost::new(Selection::default(), 5).actual_at("/_meta/cost"));
    let absurd = Answer::from(costing(u64::MAX)).after(Duration::from_millis(1));
    let service = layer.layer(Server::new().tool("t", absurd));
    let calls = (0..20).map(|_| is_refused(&service, "t"));
    assert_eq!(futures::future::join_all(calls).await, [false; 20]);
    assert_eq!(budgets.remaining(&budget, None), 0);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(budgets.remaining(&budget, None), 100);
}

#[tokio::test(start_paused = true)]
async fn budget_applies_only_to_selected_tools() {
    let service = charging(&calls(0).tools(allow(["a"]))).0.layer(Server::new().says("b", "done"));
    assert!(is_refused(&service, "a").await);
    assert!(!is_refused(&service, "b").await);
}

#[tokio::test(start_paused = true)]
async fn list_request_is_not_charged() {
    let service = charging(&calls(0)).0.layer(Server::new().says("t", "done"));
    assert_eq!(testing::listed(&service).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn call_without_a_run_counts_as_its_own_run() {
    let server = Server::new().says("t", "done");
    for unit in [Unit::Calls, Unit::Bytes, Unit::Cost] {
        let budget = |limit| Budget::new("run", unit, limit).per(Per::Run);
        let service = charging(&budget(1)).0.layer(server.clone());
        assert!(!is_refused(&service, "t").await);
        assert!(!is_refused(&service, "t").await);
        assert!(is_refused(&charging(&budget(0)).0.layer(server.clone()), "t").await);
    }
}

// === Callers ===

#[tokio::test(start_paused = true)]
async fn callers_have_own_budgets_and_unknown_callers_share_one() {
    let budget = calls(1).per(Per::Caller);
    let (layer, budgets) = charging(&budget);
    let layer = layer.caller(|context| Some(context.meta().get("caller")?.as_str()?.to_owned()));
    let service = layer.layer(Server::new().says("t", "done"));
    let refused = async |caller: Option<&str>| {
        let mut request = call("t", json!(null));
        if let Some(caller) = caller {
            request.context_mut().meta_mut().insert("caller".to_owned(), caller.into());
        }
        let reply = service.clone().oneshot(request).await.unwrap();
        reply.refusal().is_some()
    };
    for caller in [Some("ann"), Some("ben"), None] {
        assert!(!refused(caller).await);
        assert!(refused(caller).await);
        assert_eq!(budgets.remaining(&budget, caller), 0);
    }
    assert_eq!(budgets.remaining(&budget, Some("eve")), 1);
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_layer_and_its_services_share_a_budget() {
    let layer = BudgetLayer::new().budget(calls(1));
    let server = Server::new().says("t", "done");
    assert!(!is_refused(&layer.layer(server.clone()), "t").await);
    assert!(is_refused(&layer.layer(server.clone()), "t").await);
    assert!(is_refused(&layer.clone().layer(server), "t").await);
}

// === Errors for the client ===

#[tokio::test(start_paused = true)]
async fn error_names_the_budget_and_the_retry_time() {
    let budget = calls(1).refill(Refill::new(1, Duration::from_secs(30)));
    let service = charging(&budget).0.layer(Server::new().says("t", "done"));
    assert!(!is_refused(&service, "t").await);
    tokio::time::advance(Duration::from_millis(10_500)).await;
    let error = testing::refused(&service, "t", json!({})).await;
    assert_eq!(error.code.0, -32000);
    assert_eq!(error.message, "the budget `calls` is used up; try again in 20 s");
    assert_eq!(error.data, Some(json!({ "budget": "calls", "retryAfterMs": 19_500 })));
    tokio::time::advance(Duration::from_millis(19_500)).await;
    assert!(!is_refused(&service, "t").await);
}

#[tokio::test(start_paused = true)]
async fn refused_call_is_logged_at_intervals_without_arguments() {
    let (logged, _guard) = capture_logs();
    let service = charging(&calls(0)).0.layer(Server::new().says("t", "done"));
    let line = ": rejected a call: the budget `calls` is used up tool=t\n";
    for expected in [1, 1, 2] {
        for _ in 0..2 {
            testing::refused(&service, "t", json!({ "q": "hunter2" })).await;
        }
        let logged = logged.text();
        assert_eq!(logged.matches("rejected a call").count(), expected, "{logged}");
        assert!(!logged.contains("hunter2"), "{logged}");
        tokio::time::advance(Duration::from_secs(6)).await;
    }
    let logged = logged.text();
    assert!(logged.contains(line) && logged.contains(" INFO "), "{logged}");
}

// === Composites ===

#[tokio::test(start_paused = true)]
async fn each_branch_of_a_composite_is_charged() {
    let (layer, budgets) = charging(&calls(10));
    let server = Server::new().says("a", "1").fails("b", "no route").says("c", "3");
    let all = CompositeTool::fan_out("all", "Everything", ["a", "b", "c"]);
    let outer = CompositeTool::fan_out("outer", "Nested", ["all", "a"]);
    let service = CompositeLayer::new([all, outer]).unwrap().layer(layer.layer(server));
    testing::call(&service, "all", json!({})).await;
    assert_eq!(budgets.remaining(&calls(10), None), 7);
    testing::call(&service, "outer", json!({})).await;
    assert_eq!(budgets.remaining(&calls(10), None), 3);
}

#[tokio::test(start_paused = true)]
async fn branches_that_lost_a_race_are_charged() {
    let (layer, budgets) = charging(&calls(3));
    let server = Server::new().says("a", "1").hangs("b").hangs("c");
    let race = CompositeTool::new("race", "One of them", Race::new(["a", "b", "c"]));
    let service = CompositeLayer::new([race]).unwrap().layer(layer.layer(server.clone()));
    testing::call(&service, "race", json!({})).await;
    soon(server.until(|server| server.running() == 0)).await;
    assert_eq!(budgets.remaining(&calls(3), None), 0);
}

#[tokio::test(start_paused = true)]
async fn branch_over_budget_fails_and_other_branches_continue() {
    let service = charging(&calls(1)).0.layer(Server::new().says("a", "1").says("b", "2"));
    let both = CompositeTool::new("both", "Both", FanOut::new(["a", "b"]).sequential());
    let service = CompositeLayer::new([both]).unwrap().layer(service);
    let result = testing::call(&service, "both", json!({})).await;
    let branches = &result.structured_content.unwrap()["branches"];
    assert_eq!(branches["a"]["status"], "completed");
    let message = &branches["b"]["error"]["message"];
    assert_eq!(message, "the budget `calls` is used up");
}

#[tokio::test(start_paused = true)]
async fn call_is_charged_equally_directly_and_through_a_composite() {
    let cost = Budget::new("cost", Unit::Cost, 100).tools(allow(["search"]));
    let (layer, budgets) = charging(&cost);
    let server = Server::new().tool("search", costing(7));
    let pipeline = CompositeTool::fan_out("look", "Looks", ["find"]);
    let stack = StackLayer::new()
        .composite(CompositeLayer::new([pipeline]).unwrap())
        .alias(AliasLayer::new().tools([ToolAlias::new("search").name("find")]).unwrap())
        .budget(layer.cost(Cost::new(allow(["search"]), 10).actual_at("/_meta/cost")))
        .layer(server);
    for expected in [93, 86, 79] {
        let tool = if expected == 86 { "look" } else { "find" };
        testing::call(&stack, tool, json!({})).await;
        assert_eq!(budgets.remaining(&cost, None), expected, "{tool}");
    }
}

// === Tower's contract ===

#[tokio::test]
async fn layer_is_ready_when_its_inner_service_is_ready() {
    for layer in [BudgetLayer::new(), charging(&calls(9)).0] {
        let (mut service, mut handle) = mock::spawn_layer::<Request, Reply, _>(layer);
        handle.allow(0);
        assert_pending!(service.poll_ready());
        handle.allow(1);
        assert!(service.is_woken());
        assert_ready_ok!(service.poll_ready());
        let mut reply = task::spawn(service.call(Request::call_tool("t")));
        assert_pending!(reply.poll());
        let (_, send) = handle.next_request().await.expect("a request");
        send.send_response(CallToolResult::success(vec![]).into());
        assert_ready_ok!(reply.poll());
        assert_pending!(service.poll_ready());
    }
}

#[tokio::test]
async fn rejected_call_releases_its_readiness() {
    let limited = ConcurrencyLimit::new(Server::new().says("t", "done"), 1);
    let mut sibling = limited.clone();
    let mut service = charging(&calls(0)).0.layer(limited);
    let reply = service.ready().await.unwrap().call(call("t", json!(null))).await.unwrap();
    assert!(reply.refusal().is_some());
    let mut sibling = task::spawn(sibling.ready());
    assert!(sibling.poll().is_ready());
    drop(service);
}

#[tokio::test(start_paused = true)]
async fn calls_pass_above_a_concurrency_limit_and_a_buffer() {
    let server = Server::new().says("t", "done");
    let limited = charging(&calls(5)).0.layer(ConcurrencyLimit::new(server.clone(), 1));
    let calls_at_once = (0..5).map(|_| limited.clone().oneshot(call("t", json!(null))));
    soon(futures::future::try_join_all(calls_at_once)).await.unwrap();
    assert!(is_refused(&limited, "t").await);
    let buffered = charging(&calls(1)).0.layer(Buffer::new(server, 1));
    soon(buffered.oneshot(call("t", json!(null)))).await.unwrap();
}

#[tokio::test]
async fn malformed_call_is_rejected() {
    let malformed = rmcp::model::CustomRequest::new("tools/call", None);
    let malformed = Request::new(malformed, mcp_composite::message::Context::default());
    let service = BudgetLayer::new().layer(Server::new());
    let reply = service.oneshot(malformed).await.unwrap();
    assert_eq!(reply.error().unwrap().message, "malformed `tools/call`");
}

// === Allocations ===

/// Returns the allocations of a call, from the ready service to the drop of its reply.
pub(crate) fn allocations<L>(layer: &L) -> u64
where
    L: Layer<Plain, Service: Service<Request, Response = Reply, Error = Infallible> + Clone>,
{
    let service = layer.layer(Plain);
    let allocate = || {
        let call = service.clone().oneshot(Request::call_tool("t"));
        allocation_counter::measure(|| drop(call.now_or_never())).count_total
    };
    // One-time allocations are made by the first call.
    allocate();
    allocate()
}

#[test]
fn layer_without_budgets_allocates_nothing() {
    let of_the_answer = allocations(&Identity::new());
    assert_eq!(allocations(&BudgetLayer::new()), of_the_answer);
}

#[test]
fn call_with_a_single_shared_budget_allocates_nothing() {
    let of_the_answer = allocations(&Identity::new());
    let one = BudgetLayer::new().budget(calls(9));
    assert_eq!(allocations(&one), of_the_answer);
    // The allocation would be counted.
    assert!(allocations(&one.budget(Budget::new("bytes", Unit::Bytes, 9))) > of_the_answer);
}
