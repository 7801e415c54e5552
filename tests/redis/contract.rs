//! The contract of every store of budgets.

use std::time::Duration;

use mcp_composite::{
    budget::{Budget, BudgetStore, Denied, MemoryBudgets, Refill, Unit},
    redis::RedisBudgets,
};
use tokio::time::{Instant, sleep};

use super::{calls, is_over, replica, reserve, reserve_for, server::Server};

/// A store whose budgets can be inspected.
trait Store: BudgetStore {
    /// Returns the remaining amount, once all settlements have arrived.
    async fn left(&self, budget: &Budget, caller: Option<&str>) -> u64;
}

/// Makes a test of each case, for each store.
macro_rules! contract {
    ($($case:ident)*) => {
        mod memory {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(super::MemoryBudgets::new()).await;
                }
            )*
        }

        mod redis {
            $(
                #[tokio::test]
                async fn $case() {
                    let server = super::Server::start();
                    super::$case(super::replica(&server).budgets()).await;
                }
            )*
        }
    };
}

contract! {
    what_is_held_is_not_left
    what_is_dropped_is_given_back
    what_was_used_less_is_given_back
    what_was_used_beyond_the_limit_is_a_debt
    nothing_is_reserved_while_anything_is_left
    more_than_the_limit_is_never_left
    a_budget_of_nothing_refuses_everything
    budgets_are_kept_apart_by_name_and_caller
    the_largest_numbers_harm_nothing
    another_limit_leaves_what_is_used
    what_refills_comes_back_as_often_as_it_should
    debts_are_paid_first
    one_refill_recovers_from_calls_at_the_same_time
    what_is_held_does_not_refill
}

impl Store for MemoryBudgets {
    async fn left(&self, budget: &Budget, caller: Option<&str>) -> u64 {
        self.remaining(budget, caller)
    }
}

impl Store for RedisBudgets {
    async fn left(&self, budget: &Budget, caller: Option<&str>) -> u64 {
        self.flush().await;
        self.remaining(budget, caller).await.unwrap()
    }
}

async fn what_is_held_is_not_left(store: impl Store) {
    let budget = calls(3);
    let _two = reserve(&store, &budget, 2).await.unwrap();
    assert!(is_over(&reserve(&store, &budget, 2).await));
    let _one = reserve(&store, &budget, 1).await.unwrap();
    assert_eq!(store.left(&budget, None).await, 0);
}

async fn what_is_dropped_is_given_back(store: impl Store) {
    let budget = calls(3);
    for _ in 0..5 {
        drop(reserve(&store, &budget, 3).await.unwrap());
        assert_eq!(store.left(&budget, None).await, 3);
    }
}

async fn what_was_used_less_is_given_back(store: impl Store) {
    let budget = calls(10);
    for (actual, left) in [(1, 9), (0, 9), (3, 6)] {
        reserve(&store, &budget, 5).await.unwrap().settle(actual);
        assert_eq!(store.left(&budget, None).await, left);
    }
}

async fn what_was_used_beyond_the_limit_is_a_debt(store: impl Store) {
    let budget = calls(10);
    let later = reserve(&store, &budget, 6).await.unwrap();
    reserve(&store, &budget, 1).await.unwrap().settle(100);
    drop(later);
    assert_eq!(store.left(&budget, None).await, 0);
    assert!(is_over(&reserve(&store, &budget, 0).await));
    // 100 were used, so these are the first that remain.
    assert_eq!(store.left(&calls(103), None).await, 3);
}

async fn nothing_is_reserved_while_anything_is_left(store: impl Store) {
    let bytes = Budget::new("bytes", Unit::Bytes, 100);
    let permits =
        [reserve(&store, &bytes, 0).await.unwrap(), reserve(&store, &bytes, 0).await.unwrap()];
    assert_eq!(store.left(&bytes, None).await, 100);
    for permit in permits {
        permit.settle(50);
    }
    assert_eq!(store.left(&bytes, None).await, 0);
    assert!(is_over(&reserve(&store, &bytes, 0).await));
}

async fn more_than_the_limit_is_never_left(store: impl Store) {
    let budget = calls(3).refill(Refill::new(1, Duration::from_millis(1)));
    match reserve(&store, &budget, 4).await {
        Err(Denied::Over { retry_after }) => assert_eq!(retry_after, None),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.left(&budget, None).await, 3);
}

async fn a_budget_of_nothing_refuses_everything(store: impl Store) {
    for amount in [0, 1, u64::MAX] {
        assert!(is_over(&reserve(&store, &calls(0), amount).await), "{amount}");
    }
}

async fn budgets_are_kept_apart_by_name_and_caller(store: impl Store) {
    let other = Budget::new("callsalice", Unit::Calls, 1);
    let accounts = [
        (calls(1), None),
        (calls(1), Some("")),
        (calls(1), Some("alice")),
        (calls(1), Some("健🚀 {alice}")),
        (other.clone(), None),
        (other, Some("")),
    ];
    for (budget, caller) in &accounts {
        let permit = reserve_for(&store, budget, *caller, 1).await;
        permit.unwrap_or_else(|_| panic!("{budget:?} {caller:?}")).settle(1);
        assert_eq!(store.left(budget, *caller).await, 0);
    }
}

async fn the_largest_numbers_harm_nothing(store: impl Store) {
    let budget = calls(u64::MAX).refill(Refill::new(u64::MAX, Duration::MAX));
    let permits =
        [reserve(&store, &budget, 1).await.unwrap(), reserve(&store, &budget, 1).await.unwrap()];
    for permit in permits {
        permit.settle(u64::MAX);
        assert_eq!(store.left(&budget, None).await, 0);
        assert!(is_over(&reserve(&store, &budget, 1).await));
    }
    let fast = Budget::new("fast", Unit::Calls, u64::MAX)
        .refill(Refill::new(u64::MAX, Duration::from_micros(1)));
    reserve(&store, &fast, u64::MAX).await.unwrap().settle(u64::MAX);
    sleep(Duration::from_millis(5)).await;
    reserve(&store, &fast, 1).await.unwrap().settle(1);
}

async fn another_limit_leaves_what_is_used(store: impl Store) {
    reserve(&store, &calls(10), 4).await.unwrap().settle(4);
    assert_eq!(store.left(&calls(10), None).await, 6);
    assert_eq!(store.left(&calls(5), None).await, 1);
    assert_eq!(store.left(&calls(3), None).await, 0);
    assert_eq!(store.left(&calls(20), None).await, 16);
}

async fn what_refills_comes_back_as_often_as_it_should(store: impl Store) {
    const EVERY: Duration = Duration::from_millis(50);
    let budget = calls(4).refill(Refill::new(2, EVERY));
    let start = Instant::now();
    let (mut admitted, mut waits) = (0, 0);
    while admitted < 20 {
        match reserve(&store, &budget, 1).await {
            Ok(permit) => {
                permit.settle(1);
                admitted += 1;
            }
            Err(Denied::Over { retry_after }) => {
                let retry_after = retry_after.expect("it comes back");
                assert!(retry_after <= EVERY, "{retry_after:?}");
                sleep(retry_after).await;
                waits += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    // On a slow machine more ticks are counted, never fewer.
    let ticks = start.elapsed().as_millis() / EVERY.as_millis();
    assert!(admitted <= 4 + 2 * ticks, "{admitted} in {ticks} ticks");
    // Each wait is for a tick, of which the last sixteen need eight. Clocks differ by a moment, in
    // which a second wait may be needed.
    assert!(waits <= 2 * 8, "{waits} waits");
}

async fn debts_are_paid_first(store: impl Store) {
    const EVERY: Duration = Duration::from_millis(200);
    let budget = calls(2).refill(Refill::new(2, EVERY)).max_per_call(2 + 4);
    let start = Instant::now();
    // Three ticks from now there is an amount available again.
    reserve(&store, &budget, 1).await.unwrap().settle(2 + 4);
    store.left(&budget, None).await;
    while is_over(&reserve(&store, &budget, 1).await) {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(start.elapsed() >= 3 * EVERY, "{:?}", start.elapsed());
}

async fn one_refill_recovers_from_calls_at_the_same_time(store: impl Store) {
    const EVERY: Duration = Duration::from_millis(200);
    let budget = Budget::new("bytes", Unit::Bytes, 2).refill(Refill::new(2, EVERY));
    let mut permits = Vec::new();
    for _ in 0..50 {
        permits.push(reserve(&store, &budget, 0).await.unwrap());
    }
    permits.into_iter().for_each(|permit| permit.settle(2));
    store.left(&budget, None).await;
    sleep(EVERY).await;
    assert_eq!(store.left(&budget, None).await, 2);
}

async fn what_is_held_does_not_refill(store: impl Store) {
    let budget = calls(3).refill(Refill::new(100, Duration::from_millis(10)));
    let held = reserve(&store, &budget, 2).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    assert_eq!(store.left(&budget, None).await, 1);
    drop(held);
    assert_eq!(store.left(&budget, None).await, 3);
}
