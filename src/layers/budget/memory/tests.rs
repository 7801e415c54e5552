use std::time::Duration;

use proptest::{collection, prelude::*};
use tokio::time;

use super::*;
use crate::budget::{Per, Refill, Unit};

const SECOND: Duration = Duration::from_secs(1);

fn calls(limit: u64) -> Budget {
    Budget::new("calls", Unit::Calls, limit)
}

fn per_caller(limit: u64) -> Budget {
    calls(limit).per(Per::Caller)
}

/// Returns a budget that is refilled with `amount` each second.
fn refilled(limit: u64, amount: u64) -> Budget {
    calls(limit).refill(Refill::new(amount, SECOND))
}

fn reserve(budgets: &MemoryBudgets, budget: &Budget, amount: u64) -> Result<BudgetPermit, Denied> {
    budgets.try_reserve(budget, None, amount)
}

/// Reserves an amount, and charges it.
fn spend(budgets: &MemoryBudgets, budget: &Budget, amount: u64) {
    reserve(budgets, budget, amount).unwrap().settle(amount);
}

/// Returns the time until an amount is available. The amount must exceed what is currently left.
fn retry_after(budgets: &MemoryBudgets, budget: &Budget, amount: u64) -> Option<Duration> {
    match reserve(budgets, budget, amount) {
        Err(Denied::Over { retry_after }) => retry_after,
        other => panic!("it is not denied: {other:?}"),
    }
}

#[test]
fn dropped_permit_releases_its_reservation() {
    let (budgets, budget) = (MemoryBudgets::new(), calls(3));
    let permit = reserve(&budgets, &budget, 2).unwrap();
    assert_eq!(budgets.remaining(&budget, None), 1);
    drop(permit);
    assert_eq!(budgets.remaining(&budget, None), 3);
}

#[test]
fn settled_permit_charges_the_actual_amount() {
    let (budgets, budget) = (MemoryBudgets::new(), calls(10));
    reserve(&budgets, &budget, 5).unwrap().settle(2);
    assert_eq!(budgets.remaining(&budget, None), 8);
    reserve(&budgets, &budget, 5).unwrap().settle(7);
    assert_eq!(budgets.remaining(&budget, None), 1);
}

#[test]
fn overuse_keeps_the_budget_closed_after_a_permit_drops() {
    let (budgets, budget) = (MemoryBudgets::new(), calls(100));
    let other = reserve(&budgets, &budget, 50).unwrap();
    reserve(&budgets, &budget, 50).unwrap().settle(1000);
    drop(other);
    assert_eq!(budgets.remaining(&budget, None), 0);
    assert!(reserve(&budgets, &budget, 1).is_err());
}

#[test]
fn unknown_amount_is_denied_when_the_budget_is_used_up() {
    let (budgets, budget) = (MemoryBudgets::new(), calls(1));
    spend(&budgets, &budget, 1);
    assert!(reserve(&budgets, &budget, 0).is_err());
}

#[test]
fn zero_limit_denies_every_call_without_a_retry_time() {
    let (budgets, budget) = (MemoryBudgets::new(), refilled(0, 1));
    assert_eq!(retry_after(&budgets, &budget, 0), None);
    assert_eq!(retry_after(&budgets, &budget, 1), None);
}

#[test]
fn budgets_are_separate_per_name_and_caller() {
    let (budgets, budget) = (MemoryBudgets::new(), per_caller(1));
    budgets.try_reserve(&budget, Some("ann"), 1).unwrap().settle(1);
    assert!(budgets.try_reserve(&budget, Some("ann"), 1).is_err());
    assert!(budgets.try_reserve(&budget, Some("ben"), 1).is_ok());
    assert!(budgets.try_reserve(&budget, None, 1).is_ok());
    let other = Budget::new("other", Unit::Calls, 1).per(Per::Caller);
    assert!(budgets.try_reserve(&other, Some("ann"), 1).is_ok());
}

#[test]
fn new_limit_applies_to_the_amount_already_used() {
    let budgets = MemoryBudgets::new();
    spend(&budgets, &calls(10), 6);
    assert!(reserve(&budgets, &calls(5), 1).is_err());
    assert_eq!(budgets.remaining(&calls(20), None), 14);
}

#[tokio::test(start_paused = true)]
async fn budget_is_refilled_tick_by_tick_up_to_its_limit() {
    let (budgets, budget) = (MemoryBudgets::new(), refilled(10, 3));
    spend(&budgets, &budget, 10);
    for (wait, expected) in [(999, 0), (1, 3), (999, 3), (1001, 9), (1000, 10), (60_000, 10)] {
        time::advance(Duration::from_millis(wait)).await;
        assert_eq!(budgets.remaining(&budget, None), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn frequent_checks_do_not_delay_the_refill() {
    let (budgets, budget) = (MemoryBudgets::new(), refilled(100, 1));
    spend(&budgets, &budget, 100);
    for _ in 0..100 {
        time::advance(Duration::from_millis(300)).await;
        assert!(reserve(&budgets, &budget, 100).is_err());
    }
    assert_eq!(budgets.remaining(&budget, None), 30);
}

#[tokio::test(start_paused = true)]
async fn reserved_amount_is_not_refilled_before_it_is_settled() {
    let (budgets, budget) = (MemoryBudgets::new(), refilled(5, 5));
    let permit = reserve(&budgets, &budget, 5).unwrap();
    time::advance(3 * SECOND).await;
    permit.settle(5);
    assert_eq!(budgets.remaining(&budget, None), 0);
    time::advance(SECOND).await;
    assert_eq!(budgets.remaining(&budget, None), 5);
}

#[tokio::test(start_paused = true)]
async fn refill_interval_starts_at_the_first_use_of_a_full_budget() {
    let (budgets, budget) = (MemoryBudgets::new(), refilled(1, 1));
    spend(&budgets, &budget, 1);
    time::advance(SECOND * 19 / 10).await;
    spend(&budgets, &budget, 1);
    time::advance(SECOND * 9 / 10).await;
    assert_eq!(budgets.remaining(&budget, None), 0);
    time::advance(SECOND / 10).await;
    assert_eq!(budgets.remaining(&budget, None), 1);
}

#[tokio::test(start_paused = true)]
async fn refill_covers_overuse_first() {
    let (budgets, budget) = (MemoryBudgets::new(), refilled(10, 10).max_per_call(35));
    reserve(&budgets, &budget, 1).unwrap().settle(35);
    time::advance(2 * SECOND).await;
    assert_eq!(budgets.remaining(&budget, None), 0);
    time::advance(SECOND).await;
    assert_eq!(budgets.remaining(&budget, None), 5);
}

#[tokio::test(start_paused = true)]
async fn overuse_by_concurrent_calls_is_capped() {
    for (most_per_call, seconds) in [(10, 1), (1, 1), (30, 3)] {
        let (budgets, budget) = (MemoryBudgets::new(), refilled(10, 10));
        let budget = budget.max_per_call(most_per_call);
        let permits = (0..100).map(|_| reserve(&budgets, &budget, 0).unwrap());
        permits.collect::<Vec<_>>().into_iter().for_each(|permit| permit.settle(most_per_call));
        for expected in [0, 10] {
            assert_eq!(budgets.remaining(&budget, None), expected);
            time::advance(seconds * SECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn very_long_pause_refills_a_budget_once() {
    let budgets = MemoryBudgets::new();
    let budget = calls(5).refill(Refill::new(u64::MAX, Duration::from_nanos(1)));
    let open = reserve(&budgets, &budget, 2).unwrap();
    spend(&budgets, &budget, 3);
    time::advance(Duration::from_secs(100 * 365 * 24 * 3600)).await;
    assert_eq!(budgets.remaining(&budget, None), 3);
    drop(open);
    assert_eq!(budgets.remaining(&budget, None), 5);
}

#[tokio::test(start_paused = true)]
async fn refill_with_zero_amount_or_interval_is_ignored() {
    for refill in [Refill::new(0, SECOND), Refill::new(5, Duration::ZERO)] {
        let (budgets, budget) = (MemoryBudgets::new(), calls(5).refill(refill));
        spend(&budgets, &budget, 5);
        time::advance(100 * SECOND).await;
        assert_eq!(budgets.remaining(&budget, None), 0);
        assert_eq!(retry_after(&budgets, &budget, 1), None);
    }
}

#[tokio::test(start_paused = true)]
async fn new_refill_keeps_the_amount_refilled_so_far() {
    let budgets = MemoryBudgets::new();
    spend(&budgets, &refilled(10, 1), 10);
    time::advance(SECOND * 5 / 2).await;
    assert!(reserve(&budgets, &refilled(10, 4), 10).is_err());
    assert_eq!(budgets.remaining(&refilled(10, 4), None), 2);
    time::advance(SECOND / 2).await;
    assert_eq!(budgets.remaining(&refilled(10, 4), None), 6);
}

#[tokio::test(start_paused = true)]
async fn error_contains_the_time_until_the_refill() {
    let (budgets, budget) = (MemoryBudgets::new(), refilled(10, 3));
    spend(&budgets, &budget, 10);
    time::advance(SECOND / 4).await;
    let cases = [(0, 750), (1, 750), (3, 750), (4, 1750), (10, 3750)];
    for (amount, millis) in cases {
        let expected = Duration::from_millis(millis);
        assert_eq!(retry_after(&budgets, &budget, amount), Some(expected), "{amount}");
    }
    assert_eq!(retry_after(&budgets, &budget, 11), None);
}

#[tokio::test(start_paused = true)]
async fn error_omits_an_unrepresentable_refill_time() {
    let budgets = MemoryBudgets::new();
    let budget = calls(u64::MAX).refill(Refill::new(1, Duration::MAX));
    spend(&budgets, &budget, u64::MAX);
    assert_eq!(retry_after(&budgets, &budget, 1), Some(Duration::MAX));
    assert_eq!(retry_after(&budgets, &budget, 2), None);
}

// === Callers ===

#[tokio::test(start_paused = true)]
async fn callers_with_a_refilled_budget_are_evicted_by_new_callers() {
    let budgets = MemoryBudgets::new();
    let budget = refilled(2, 1).per(Per::Caller);
    let call = |caller: usize| {
        budgets.try_reserve(&budget, Some(&caller.to_string()), 1).unwrap().settle(1);
    };
    (0..10_000).for_each(call);
    assert_eq!(budgets.callers(&budget), 10_000);
    time::advance(SECOND).await;
    (10_000..20_000).for_each(call);
    assert!(budgets.callers(&budget) <= 10_100, "{}", budgets.callers(&budget));
}

#[test]
fn callers_with_nothing_used_are_evicted_without_a_refill() {
    let (budgets, budget) = (MemoryBudgets::new(), per_caller(1));
    for caller in 0..10_000 {
        drop(budgets.try_reserve(&budget, Some(&caller.to_string()), 1).unwrap());
    }
    assert!(budgets.callers(&budget) <= SHARDS, "{}", budgets.callers(&budget));
}

#[tokio::test(start_paused = true)]
async fn caller_with_a_running_call_is_not_evicted() {
    let budgets = MemoryBudgets::new().max_callers(1);
    let budget = Budget::new("bytes", Unit::Bytes, 10).per(Per::Caller);
    let permit = budgets.try_reserve(&budget, Some("ann"), 0).unwrap();
    assert!(budgets.try_reserve(&budget, Some("ben"), 0).is_err());
    permit.settle(10);
    assert_eq!(budgets.remaining(&budget, Some("ann")), 0);
}

#[tokio::test(start_paused = true)]
async fn new_caller_is_rejected_while_max_callers_have_used_budget() {
    let budgets = MemoryBudgets::new().max_callers(2);
    let budget = refilled(1, 1).per(Per::Caller);
    let reserve = |caller| budgets.try_reserve(&budget, Some(caller), 1);
    reserve("ann").unwrap().settle(1);
    reserve("ben").unwrap().settle(1);
    let Err(Denied::Unavailable(error)) = reserve("eve") else { panic!("there is room") };
    let expected = "the budget has the maximum number of callers: 2 (`max_callers`)";
    assert_eq!(error.to_string(), expected);
    time::advance(SECOND).await;
    reserve("eve").unwrap().settle(1);
    assert_eq!(budgets.callers(&budget), 1);
}

#[test]
fn concurrent_callers_are_counted_once() {
    let (budgets, budget) = (MemoryBudgets::new(), per_caller(u64::MAX));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for caller in 0..1000 {
                    let permit = budgets.try_reserve(&budget, Some(&caller.to_string()), 1);
                    permit.unwrap().settle(1);
                }
            });
        }
    });
    assert_eq!(budgets.callers(&budget), 1000);
    for caller in 0..1000 {
        let left = budgets.remaining(&budget, Some(&caller.to_string()));
        assert_eq!(left, u64::MAX - 4);
    }
}

// === Random interleavings ===

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Look,
    Reserve(u64),
    /// Settles one of the unsettled permits with any amount.
    Settle(usize, u64),
    Drop(usize),
}

/// A simple model of a balance, which computes refills interval by interval.
struct Model {
    limit: i128,
    /// Negative if more than the limit was spent.
    left: i128,
    held: i128,
    refill: Option<i128>,
    /// The time since the last refill.
    since: u64,
}

impl Model {
    fn wait(&mut self, millis: u64) {
        for _ in 0..millis {
            self.since += 1;
            if self.since == 1000 {
                self.since = 0;
                let refill = self.refill.unwrap_or_default();
                self.left = (self.left + refill).min(self.limit - self.held);
            }
        }
    }

    fn reserve(&mut self, amount: u64) -> bool {
        if self.left == self.limit {
            self.since = 0;
        }
        let fits = self.left >= i128::from(amount.max(1));
        if fits {
            self.left -= i128::from(amount);
            self.held += i128::from(amount);
        }
        fits
    }

    fn close(&mut self, held: u64, actual: u64) {
        self.held -= i128::from(held);
        self.left += i128::from(held) - i128::from(actual);
        if self.refill.is_some() {
            // Cap the spent amount at the limit.
            self.left = self.left.max(-self.held);
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..2500_u64).prop_map(Step::Wait),
        Just(Step::Look),
        (0..8_u64).prop_map(Step::Reserve),
        (0..8_u64).prop_map(Step::Reserve),
        (any::<usize>(), 0..15_u64).prop_map(|(permit, actual)| Step::Settle(permit, actual)),
        any::<usize>().prop_map(Step::Drop),
    ];
    collection::vec(step, 0..60)
}

fn clock() -> tokio::runtime::Runtime {
    let mut clock = tokio::runtime::Builder::new_current_thread();
    clock.enable_time().start_paused(true).build().unwrap()
}

proptest! {
    #[test]
    fn remaining_amount_matches_a_simple_model(
        limit in 0..20_u64,
        refill in proptest::option::of(1..6_u64),
        steps in steps(),
    ) {
        let budgets = MemoryBudgets::new();
        let budget = match refill {
            Some(amount) => refilled(limit, amount),
            None => calls(limit),
        };
        let limit = i128::from(limit);
        let refill = refill.map(i128::from);
        let mut model = Model { limit, left: limit, held: 0, refill, since: 0 };
        let mut permits: Vec<(BudgetPermit, u64)> = Vec::new();
        clock().block_on(async {
            // Read the balance at the end.
            for step in steps.into_iter().chain([Step::Look]) {
                match step {
                    Step::Wait(millis) => {
                        time::advance(Duration::from_millis(millis)).await;
                        model.wait(millis);
                    }
                    Step::Reserve(amount) => {
                        let permit = reserve(&budgets, &budget, amount);
                        prop_assert_eq!(permit.is_ok(), model.reserve(amount));
                        permits.extend(permit.ok().map(|permit| (permit, amount)));
                    }
                    Step::Settle(any, actual) if !permits.is_empty() => {
                        let (permit, held) = permits.swap_remove(any % permits.len());
                        permit.settle(actual);
                        model.close(held, actual);
                    }
                    Step::Drop(any) if !permits.is_empty() => {
                        let (_, held) = permits.swap_remove(any % permits.len());
                        model.close(held, 0);
                    }
                    Step::Look => {
                        let left = i128::from(budgets.remaining(&budget, None));
                        prop_assert_eq!(left, model.left.max(0));
                        prop_assert!(left <= limit - model.held);
                    }
                    Step::Settle(..) | Step::Drop(_) => {}
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn refill_time_is_exact(
        limit in 1..50_u64,
        refill in 1..10_u64,
        spent in 1..200_u64,
        waited in 0..3000_u64,
        amount in 1..50_u64,
    ) {
        let (budgets, budget) = (MemoryBudgets::new(), refilled(limit, refill));
        clock().block_on(async {
            reserve(&budgets, &budget, 1).unwrap().settle(spent);
            time::advance(Duration::from_millis(waited)).await;
            match reserve(&budgets, &budget, amount) {
                Err(Denied::Over { retry_after: Some(after) }) => {
                    time::advance(after.checked_sub(Duration::from_millis(1)).unwrap()).await;
                    prop_assert!(reserve(&budgets, &budget, amount).is_err());
                    time::advance(Duration::from_millis(1)).await;
                    prop_assert!(reserve(&budgets, &budget, amount).is_ok());
                }
                Err(_) => prop_assert!(amount > limit),
                Ok(_) => prop_assert!(amount <= limit),
            }
            Ok(())
        })?;
    }
}
