//! Budgets in guards of `rig-compose`.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use mcp_composite::{
    budget::{Budget, BudgetPermit, BudgetStore, Denied, ReserveReply, Unit},
    rig_compose::GuardBudgets,
};
use rig_compose::{AtomicBudget, BudgetError, BudgetGuard};
use tokio::sync::Notify;

use crate::support::soon;

async fn reserve(store: &GuardBudgets, amount: u64) -> Result<BudgetPermit, Denied> {
    match store.reserve(&Budget::new("calls", Unit::Calls, 1), None, amount) {
        ReserveReply::Ready(reserved) => reserved,
        ReserveReply::Pending(reserved) => reserved.await,
    }
}

fn atomic(units: u64) -> (Arc<AtomicBudget>, GuardBudgets) {
    let guard = Arc::new(AtomicBudget::new(units));
    (guard.clone(), GuardBudgets::new(guard))
}

/// A guard that answers only when the test allows it.
struct Slow {
    units: AtomicBudget,
    go: Notify,
    is_away: Mutex<bool>,
    /// Whether it delays each reservation.
    is_slow: Mutex<bool>,
}

// === impl Slow ===

impl Slow {
    fn new(units: u64) -> (Arc<Self>, GuardBudgets) {
        let units = AtomicBudget::new(units);
        let slow =
            Self { units, go: Notify::new(), is_away: Mutex::default(), is_slow: Mutex::default() };
        let slow = Arc::new(slow);
        (slow.clone(), GuardBudgets::new(slow))
    }
}

impl BudgetGuard for Slow {
    fn try_reserve<'guard, 'future>(
        &'guard self,
        cost: u64,
    ) -> BoxFuture<'future, Result<bool, BudgetError>>
    where
        'guard: 'future,
        Self: 'future,
    {
        Box::pin(async move {
            if *self.is_away.lock().unwrap() {
                return Err(BudgetError::Backend("away".to_owned()));
            }
            if *self.is_slow.lock().unwrap() {
                tokio::task::yield_now().await;
            }
            self.units.try_reserve(cost).await
        })
    }

    fn release<'guard, 'future>(&'guard self, cost: u64) -> BoxFuture<'future, ()>
    where
        'guard: 'future,
        Self: 'future,
    {
        Box::pin(async move {
            self.go.notified().await;
            self.units.release(cost).await;
        })
    }
}

#[tokio::test]
async fn settled_units_are_spent_and_dropped_ones_are_released() {
    for (reserved, actual, left) in [
        (3, Some(3), 7),
        (3, Some(1), 9),
        (3, Some(0), 10),
        (3, Some(5), 5),
        (3, None, 10),
        // Its cost is unknown in advance.
        (0, Some(0), 10),
        (0, Some(4), 6),
        (0, None, 10),
    ] {
        let (guard, store) = atomic(10);
        let permit = reserve(&store, reserved).await.expect("there is enough");
        match actual {
            Some(actual) => permit.settle(actual),
            None => drop(permit),
        }
        assert_eq!(guard.available(), left, "{reserved} reserved, {actual:?} used");
    }
}

#[tokio::test]
async fn reservation_beyond_the_budget_is_denied() {
    let (_, store) = atomic(3);
    let first = reserve(&store, 2).await.expect("there is enough");
    assert!(matches!(reserve(&store, 2).await, Err(Denied::Over { retry_after: None })));
    drop(first);
    reserve(&store, 3).await.expect("it came back").settle(3);
    assert!(matches!(reserve(&store, 0).await, Err(Denied::Over { .. })), "nothing is left");
}

#[tokio::test]
async fn overspending_becomes_a_debt_that_refills_reduce_first() {
    let (guard, store) = atomic(10);
    reserve(&store, 1).await.expect("there is enough").settle(25);
    assert_eq!(guard.available(), 0);
    // A refill first reduces the debt.
    guard.refill();
    assert!(reserve(&store, 1).await.is_err());
    assert_eq!(guard.available(), 0);
    guard.refill();
    assert!(reserve(&store, 5).await.is_ok());
    assert_eq!(guard.available(), 5, "5 were owed, and what was reserved is back");
}

#[tokio::test]
async fn dropped_running_call_releases_its_reservation() {
    let (guard, store) = atomic(1);
    for _ in 0..100 {
        let running = async {
            let _permit = reserve(&store, 1).await.expect("it came back");
            std::future::pending::<()>().await;
        };
        assert!(futures::poll!(Box::pin(running)).is_pending());
    }
    assert_eq!(guard.available(), 1);
}

#[tokio::test]
async fn concurrent_call_does_not_bypass_a_debt() {
    for (left, passes) in [(10, false), (20, true)] {
        let (guard, store) = Slow::new(left);
        guard.units.try_reserve(left - 1).await.expect("a guard in memory");
        reserve(&store, 1).await.expect("there is enough").settle(16);
        guard.units.refill();
        // Each answer of the guard is delayed.
        *guard.is_slow.lock().unwrap() = true;
        let (first, second) = tokio::join!(reserve(&store, 1), reserve(&store, 1));
        assert_eq!((first.is_ok(), second.is_ok()), (passes, passes), "{left}");
    }
}

#[tokio::test]
async fn dropped_call_does_not_block_the_next_reservation() {
    let (guard, store) = Slow::new(20);
    reserve(&store, 20).await.expect("there is enough").settle(35);
    guard.units.refill();
    *guard.is_slow.lock().unwrap() = true;
    let mut first = Box::pin(reserve(&store, 1));
    let mut second = Box::pin(reserve(&store, 1));
    assert!(futures::poll!(&mut first).is_pending());
    assert!(futures::poll!(&mut second).is_pending());
    drop(first);
    soon(second).await.expect("it pays on").settle(1);
    assert_eq!(guard.units.available(), 4);
}

#[tokio::test]
async fn very_large_debts_do_not_overflow() {
    let (guard, store) = atomic(2);
    let permits = [reserve(&store, 1).await, reserve(&store, 1).await];
    for permit in permits {
        permit.expect("there is enough").settle((1 << 63) + 1);
    }
    guard.refill();
    assert!(reserve(&store, 1).await.is_err());
}

#[tokio::test]
async fn pending_release_completes_before_the_next_reservation() {
    let (guard, store) = Slow::new(1);
    drop(reserve(&store, 1).await.expect("there is enough"));
    assert_eq!(guard.units.available(), 0);

    // A caller that stops waiting for it does not lose it.
    let mut first = Box::pin(reserve(&store, 1));
    assert!(futures::poll!(&mut first).is_pending());
    drop(first);
    let mut second = Box::pin(reserve(&store, 1));
    assert!(futures::poll!(&mut second).is_pending());
    guard.go.notify_one();
    let permit = second.await.expect("it came back");
    assert_eq!(guard.units.available(), 0);
    permit.settle(1);
}

#[tokio::test]
async fn unavailable_guard_is_reported_as_unavailable_store() {
    let (guard, store) = Slow::new(1);
    *guard.is_away.lock().unwrap() = true;
    let denied = reserve(&store, 1).await.expect_err("it is away");
    assert_eq!(denied.to_string(), "the store is not available: budget backend error: away");
}
