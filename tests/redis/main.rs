//! State that replicas share, in a real Redis server.

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]

mod budgets;
mod cached_results;
mod contract;
mod outages;
#[path = "../restate/ports.rs"]
mod ports;
#[expect(dead_code, reason = "some of it is for other tests")]
#[path = "../it/programs.rs"]
mod programs;
#[expect(dead_code, reason = "some of it is for other tests")]
#[path = "../it/scripted.rs"]
mod scripted;
mod server;
#[expect(dead_code, reason = "some of it is for other tests")]
#[path = "../it/support.rs"]
mod support;
mod suspended_runs;
mod tasks;

use mcp_composite::{
    budget::{Budget, BudgetPermit, BudgetStore, Denied, ReserveReply, Unit},
    redis::{RedisBudgets, RedisServer},
};

use self::{server::Server, support::HANG};

/// Returns a store as one replica has it, sharing only the server. Its timeout is long, since the
/// machine may be busy.
fn replica(server: &Server) -> RedisServer {
    RedisServer::new(&server.url()).unwrap().timeout(HANG)
}

/// Returns the budgets of this many replicas.
fn replicas<const N: usize>(server: &Server) -> [RedisBudgets; N] {
    [(); N].map(|()| replica(server).budgets())
}

fn calls(limit: u64) -> Budget {
    Budget::new("calls", Unit::Calls, limit)
}

async fn reserve(
    store: &impl BudgetStore,
    budget: &Budget,
    amount: u64,
) -> Result<BudgetPermit, Denied> {
    reserve_for(store, budget, None, amount).await
}

async fn reserve_for(
    store: &impl BudgetStore,
    budget: &Budget,
    caller: Option<&str>,
    amount: u64,
) -> Result<BudgetPermit, Denied> {
    match store.reserve(budget, caller, amount) {
        ReserveReply::Ready(reserved) => reserved,
        ReserveReply::Pending(reserving) => reserving.await,
    }
}

fn is_over<T>(reserved: &Result<T, Denied>) -> bool {
    matches!(reserved, Err(Denied::Over { .. }))
}

fn is_away<T>(reserved: &Result<T, Denied>) -> bool {
    matches!(reserved, Err(Denied::Unavailable(_)))
}
