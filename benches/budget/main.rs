//! The overhead of budgets: calls charged to no, one or several budgets, and calls on two threads
//! charged to the same budget.
//!
//! ```sh
//! cargo bench -p benches --bench budget                  # everything, some half a minute
//! cargo bench -p benches --bench budget -- charged       # what has this in its name
//! cargo bench -p benches --bench budget -- allocations   # no times, only allocations
//! ```
//!
//! The table compares cases of this run, and within each of its rounds; see
//! `benches/stack`.
//!
//! A reservation and its settlement are one lock each, and an `Arc` that is cloned and dropped: the
//! store's entry of a budget is looked up when the layer is put in front of a service. A refilling
//! budget reads the clock for both. Only calls charged to several budgets have a list of them.

#[path = "../fan_out/counting.rs"]
mod counting;
#[path = "../stack/leaf.rs"]
mod leaf;
#[path = "../stack/measure.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod measure;
mod threads;

use std::time::Duration;

use mcp_composite::{
    budget::{Budget, BudgetLayer, Cost, Per, Refill, Unit},
    message::Request,
    pattern::Selection,
};
use tower::Layer;

use self::{leaf::Leaf, measure::Group};

fn main() {
    measure::run(&[charged()]);
    threads::run();
}

/// Charged calls that never exhaust their budgets.
fn charged() -> Group {
    let leaf = Leaf::new(100);
    let request = Request::call_tool(leaf.name(5));
    let case = |group: Group, name: &str, layer: BudgetLayer| {
        group.case(name, &layer.layer(leaf.clone()), &request).against("leaf")
    };
    let some = Selection::default().allow(["get_*"]).expect("it is a pattern");
    let group = Group::new("charged").case("leaf", &leaf, &request);
    let group = case(group, "no_budget", BudgetLayer::new());
    let group = case(group, "global", BudgetLayer::new().budget(global()));
    let group = case(group, "refilled", BudgetLayer::new().budget(refilled()));
    let group = case(group, "of_some_tools", BudgetLayer::new().budget(global().tools(some)));
    let group = case(group, "per_caller", per_caller("somebody"));
    let group = case(group, "per_run", BudgetLayer::new().budget(global().per(Per::Run)));
    let cost = Cost::new(Selection::default(), 5).actual_at("/_meta/cost");
    let cost = BudgetLayer::new().budget(Budget::new("cost", Unit::Cost, u64::MAX)).cost(cost);
    let group = case(group, "cost", cost);
    let bytes = BudgetLayer::new().budget(Budget::new("bytes", Unit::Bytes, u64::MAX));
    let group = case(group, "bytes", bytes);
    case(group, "three", per_caller("somebody").budget(global()).budget(refilled()))
}

// === Fixtures ===

/// A budget above the number of calls.
fn global() -> Budget {
    Budget::new("global", Unit::Calls, u64::MAX)
}

fn refilled() -> Budget {
    let refill = Refill::new(1_000_000, Duration::from_secs(1));
    Budget::new("refilled", Unit::Calls, u64::MAX).refill(refill)
}

/// A budget per caller; the caller is always the same.
fn per_caller(caller: &'static str) -> BudgetLayer {
    let budget = Budget::new("per_caller", Unit::Calls, u64::MAX).per(Per::Caller);
    BudgetLayer::new().budget(budget).caller(move |_| Some(caller.to_owned()))
}
