//! The budgets that the page shows.

use std::time::Duration;

use mcp_composite::{
    budget::{Budget, Per, Unit},
    config::{BudgetState, Gateway},
};
use serde_json::{Value, json};

/// The maximum time that the stores have to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the budgets and how much of each is used. Callers are counted, but not named.
///
/// Returns `None` if a store does not answer in time.
pub(super) async fn budgets(gateway: &Gateway) -> Option<Value> {
    let states = tokio::time::timeout(PATIENCE, gateway.budgets()).await.ok()?;
    Some(states.iter().map(entry).collect())
}

fn entry(state: &BudgetState) -> Value {
    let budget = state.budget();
    let usage = state.usage();
    let is_shared = budget.shared_per() == Per::Global;
    let used = usage.filter(|_| is_shared).map(|usage| budget.limit().saturating_sub(usage.left));
    let refill = budget.refilled().map(|refill| {
        let every = humantime::format_duration(refill.every());
        format!("{} every {every}", refill.amount())
    });
    json!({
        "name": budget.name(),
        "view": state.view(),
        "unit": unit(budget),
        "per": per(budget),
        "limit": budget.limit(),
        "used": used,
        "callers": usage.filter(|_| budget.shared_per() == Per::Caller).and_then(|usage| usage.callers),
        "refill": refill,
    })
}

const fn unit(budget: &Budget) -> &'static str {
    match budget.unit() {
        Unit::Calls => "calls",
        Unit::Bytes => "bytes",
        Unit::Cost => "cost",
        _ => "units",
    }
}

const fn per(budget: &Budget) -> &'static str {
    match budget.shared_per() {
        Per::Run => "run",
        Per::Caller => "caller",
        _ => "all calls",
    }
}
