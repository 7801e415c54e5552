//! Tests the costs that are charged to runs. Only composites start runs.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use rmcp::model::{CallToolResult, ListToolsResult, MetaObject, Tool};
use serde_json::json;
use tower::{Layer, ServiceExt, service_fn};

use super::*;
use crate::{
    composite::{CompositeLayer, CompositeTool},
    message::{Account, Charged, Refusal, Reply, Request},
    pattern::Selection,
};

/// A server whose tools report a cost of 5.
async fn server(request: Request) -> Result<Reply, Infallible> {
    let tool = |name| Tool::new(name, "A tool", Arc::default());
    if request.lists_tools() {
        return Ok(ListToolsResult::with_all_items(vec![tool("a"), tool("b")]).into());
    }
    let mut result = CallToolResult::success(Vec::new());
    result.meta = json!({ "cost": 5 }).as_object().cloned().map(MetaObject);
    Ok(result.into())
}

fn account(max_cost: Option<u64>, outer: Option<&Arc<Account>>) -> Arc<Account> {
    Arc::new(Account::new(max_cost, outer.cloned(), Charged::default()))
}

/// Calls a tool in a run with this account.
async fn call(layer: &BudgetLayer, account: &Arc<Account>, tool: &'static str) -> Reply {
    let composites = CompositeLayer::new([CompositeTool::fan_out("both", "Both", ["a", "b"])]);
    let service = composites.unwrap().layer(layer.layer(service_fn(server)));
    let mut request = Request::call_tool(tool);
    request.context_mut().set_account(account.clone());
    let Ok(reply) = service.oneshot(request).await;
    reply
}

fn refused_by(reply: &Reply) -> Option<&str> {
    match reply.refusal()? {
        Refusal::OverBudget { budget, .. } => Some(budget),
        other => panic!("it is refused otherwise: {other:?}"),
    }
}

/// Returns the cost that was charged to a run.
fn cost(account: &Account) -> serde_json::Value {
    serde_json::to_value(account.amounts()).unwrap()["cost"].clone()
}

#[tokio::test]
async fn layer_without_budgets_charges_a_run_one_unit_per_call() {
    let (layer, run) = (BudgetLayer::new(), account(Some(2), None));
    for refused in [None, None, Some("max_cost")] {
        assert_eq!(refused_by(&call(&layer, &run, "a").await), refused);
    }
    assert!(run.is_over());
    assert_eq!(cost(&run), 2);
}

#[tokio::test]
async fn run_is_charged_the_actual_cost_of_its_calls() {
    let layer =
        BudgetLayer::new().cost(Cost::new(Selection::default(), 1).actual_at("/_meta/cost"));
    let run = account(Some(7), None);
    for refused in [None, None, Some("max_cost")] {
        assert_eq!(refused_by(&call(&layer, &run, "a").await), refused);
    }
    assert_eq!(cost(&run), 10);
}

#[tokio::test]
async fn free_call_is_admitted_by_a_used_up_budget() {
    let tools = Selection::default().allow(["a"]).unwrap();
    let layer =
        BudgetLayer::new().budget(Budget::new("cost", Unit::Cost, 0)).cost(Cost::new(tools, 0));
    let run = account(Some(0), None);
    assert_eq!(refused_by(&call(&layer, &run, "a").await), None);
    assert_eq!(refused_by(&call(&layer, &run, "b").await), Some("max_cost"));
}

#[tokio::test]
async fn unknown_cost_requires_a_remaining_budget() {
    let cost = Cost::new(Selection::default(), 0).actual_at("/_meta/cost");
    let budget = Budget::new("cost", Unit::Cost, 5);
    let (layer, run) = (BudgetLayer::new().budget(budget).cost(cost), account(None, None));
    assert_eq!(refused_by(&call(&layer, &run, "a").await), None);
    assert_eq!(refused_by(&call(&layer, &run, "a").await), Some("cost"));
}

#[tokio::test]
async fn each_branch_of_a_run_is_charged_to_the_budgets_of_the_run() {
    let layer = BudgetLayer::new().budget(Budget::new("calls", Unit::Calls, 3).per(Per::Run));
    let run = account(None, None);
    let reply = call(&layer, &run, "both").await;
    assert_eq!(reply.tool_result().unwrap().is_error, Some(false));
    let reply = call(&layer, &run, "both").await;
    assert_eq!(reply.tool_result().unwrap().is_error, Some(true));
    assert_eq!(refused_by(&call(&layer, &run, "a").await), Some("calls"));
    // Another run has its own balance, which is still full.
    let other = account(None, None);
    assert_eq!(refused_by(&call(&layer, &other, "a").await), None);
}

#[tokio::test]
async fn usage_of_nested_runs_is_charged_to_the_outermost_run() {
    let layer = BudgetLayer::new().budget(Budget::new("calls", Unit::Calls, 3).per(Per::Run));
    let outer = account(Some(3), None);
    let [one, other] = [account(None, Some(&outer)), account(Some(1), Some(&outer))];
    assert_eq!(refused_by(&call(&layer, &one, "a").await), None);
    assert_eq!(refused_by(&call(&layer, &other, "a").await), None);
    assert_eq!(refused_by(&call(&layer, &other, "a").await), Some("max_cost"));
    assert!(other.is_over() && !outer.is_over());
    assert_eq!(refused_by(&call(&layer, &one, "a").await), None);
    assert_eq!(refused_by(&call(&layer, &one, "a").await), Some("max_cost"));
    assert!(outer.is_over() && !one.is_over());
}

#[tokio::test]
async fn denial_releases_earlier_reservations() {
    let store = MemoryBudgets::new();
    let [mine, all] = [("mine", 9, Per::Caller), ("all", 0, Per::Global)]
        .map(|(name, limit, per)| Budget::new(name, Unit::Calls, limit).per(per));
    let run_budget = Budget::new("run", Unit::Calls, 9).per(Per::Run);
    // Add the budgets in another order than the order in which they are reserved.
    let layer = BudgetLayer::new()
        .budget(all)
        .budget(mine.clone())
        .budget(run_budget)
        .caller(|_| Some("ann".to_owned()))
        .store(store.clone());
    let run = account(Some(9), None);
    assert_eq!(refused_by(&call(&layer, &run, "a").await), Some("all"));
    assert_eq!(store.remaining(&mine, Some("ann")), 9);
    assert_eq!(run.amounts(), Charged::default());
    assert!(run.reserve_cost(9).is_some());
    assert!(run.reserve(&"run".into(), 9, 9).is_some());
}

#[test]
fn invalid_budget_is_rejected() {
    use std::time::Duration;

    let budget = |name: &str| Budget::new(name, Unit::Calls, 1);
    let second = Duration::from_secs(1);
    let cases = [
        (budget(" "), "blank name"),
        (budget("taken"), "duplicate budget `taken`"),
        (budget("max_cost"), "the budget name `max_cost` is reserved for a setting of composites"),
        (
            budget("b").refill(Refill::new(0, second)),
            "the refill of budget `b` is 0: expected at least 1",
        ),
        (
            budget("b").refill(Refill::new(1, Duration::ZERO)),
            "the refill of budget `b` has an interval of 0 s: expected more",
        ),
    ];
    let layer = BudgetLayer::new().try_budget(budget("taken")).unwrap();
    for (budget, expected) in cases {
        assert_eq!(layer.clone().try_budget(budget).unwrap_err().to_string(), expected);
    }
}

#[tokio::test]
async fn budget_replaces_one_of_the_same_name() {
    let layer = BudgetLayer::new()
        .budget(Budget::new("calls", Unit::Calls, 0))
        .budget(Budget::new("calls", Unit::Calls, 1).per(Per::Run));
    assert_eq!(refused_by(&call(&layer, &account(None, None), "a").await), None);
}

/// A store that records the calls of its methods.
#[derive(Clone, Debug, Default)]
struct Noting(Arc<Mutex<Vec<String>>>);

struct Opened(Noting, String);

impl Noting {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

impl BudgetStore for Noting {
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> ReserveReply {
        self.note(format!("{amount} of {} for {caller:?}", budget.name()));
        ReserveReply::Ready(Ok(BudgetPermit::free()))
    }

    fn open(&self, budget: &Budget) -> Option<Box<dyn OpenBudget>> {
        self.note(format!("open {}", budget.name()));
        let opened = Opened(self.clone(), budget.name().to_owned());
        (budget.shared_per() == Per::Caller).then(|| Box::new(opened) as _)
    }
}

impl OpenBudget for Opened {
    fn reserve(&self, caller: Option<&str>, amount: u64) -> ReserveReply {
        self.0.note(format!("{amount} of what is open for {caller:?}: {}", self.1));
        ReserveReply::Ready(Ok(BudgetPermit::free()))
    }
}

#[tokio::test]
async fn store_opens_each_budget_once_or_is_asked_per_call() {
    let store = Noting::default();
    let layer = BudgetLayer::new()
        .budget(Budget::new("run", Unit::Calls, 9).per(Per::Run))
        .budget(Budget::new("mine", Unit::Calls, 9).per(Per::Caller))
        .budget(Budget::new("all", Unit::Bytes, 9))
        .caller(|_| Some("ann".to_owned()))
        .store(Arc::new(store.clone()));
    let service = layer.layer(service_fn(server));
    for _ in 0..2 {
        service.clone().oneshot(Request::call_tool("a")).await.unwrap();
    }
    let call = ["1 of what is open for Some(\"ann\"): mine", "0 of all for None"];
    let expected = [&["open mine", "open all"][..], &call, &call].concat();
    assert_eq!(*store.0.lock().unwrap(), expected);
}
