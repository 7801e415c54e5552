//! The account of a run, which its nested runs share: its costs, the amounts that it has spent of
//! budgets per run, and its aborted calls.

use std::{
    collections::BTreeMap,
    iter,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use super::{
    aborted_calls::{AbortedCalls, call_end},
    ledger::Tally,
};
use crate::mutex::lock;

/// Adds up the cost of a run of a composite, and the amounts that it spends of each budget per run.
/// Enforces the maximum cost of the run.
///
/// All steps of a run share one account. A nested run has its own account. Its cost is also charged
/// to the account of the outer run, which also waits for its aborted calls. `Account::default()` is
/// the account of an outermost run without a maximum cost.
#[derive(Debug, Default)]
pub(crate) struct Account {
    max_cost: Option<u64>,
    outer: Option<Arc<Self>>,
    sums: Mutex<Sums>,
    /// The number of calls that tools of this run have made to other tools. Calls that the
    /// composite itself makes are not included. Counted only for the outermost run.
    delegated: AtomicUsize,
    aborted: AbortedCalls,
}

/// The amounts that a run has spent. Stored while the run is suspended. Excludes reservations,
/// because a suspended run has no running calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Charged {
    cost: u64,
    /// The spent amount of each budget per run, by the name of the budget.
    budgets: BTreeMap<String, u64>,
    /// If `true`, a call was rejected because the rest of the run's maximum cost was too small.
    is_over: bool,
}

#[derive(Debug, Default)]
struct Sums {
    cost: Tally,
    /// The tally of each budget per run, by the name of the budget. Empty for a nested run, which
    /// uses the budgets of the outermost run.
    budgets: BTreeMap<Arc<str>, Tally>,
    is_over: bool,
}

/// A reservation for a running tool call. [`settle`](Self::settle) charges the actual amount of the
/// call. If the reservation is dropped without `settle`, the reserved amount is released.
#[derive(Debug)]
#[must_use = "dropped, it is given back"]
pub(crate) struct Hold {
    account: Arc<Account>,
    of: HeldOf,
    amount: u64,
    /// The amount to charge when the reservation is dropped. Zero before [`settle`](Self::settle).
    actual: u64,
}

#[derive(Debug)]
enum HeldOf {
    /// A part of the maximum cost, reserved in this account and in the accounts of all outer runs.
    Cost,
    /// An amount of the budget with this name, reserved in the account of the outermost run.
    Budget(Arc<str>),
}

// === impl Account ===

impl Account {
    /// Creates the account of a run. `outer` is the account of the outer run, or `None` if the run
    /// is not nested. `charged` contains the amounts that the run spent before it was suspended.
    pub(crate) fn new(max_cost: Option<u64>, outer: Option<Arc<Self>>, charged: Charged) -> Self {
        let sums = Mutex::new(charged.into());
        let (delegated, aborted) = (AtomicUsize::default(), AbortedCalls::default());
        Self { max_cost, outer, sums, delegated, aborted }
    }

    /// Returns an account with the same limit and the amounts that were charged so far, which
    /// counts separately from this account.
    pub(crate) fn copy(&self) -> Self {
        Self::new(self.max_cost, None, self.amounts())
    }

    /// Raises the charged amounts to those of `charged` where they are smaller.
    pub(crate) fn raise(&self, charged: &Charged) {
        let raise = |tally: &mut Tally, to: u64| tally.close(0, to.saturating_sub(tally.spent()));
        let mut sums = lock(&self.sums);
        raise(&mut sums.cost, charged.cost);
        sums.is_over |= charged.is_over;
        for (name, &spent) in &charged.budgets {
            raise(sums.budgets.entry(name.as_str().into()).or_default(), spent);
        }
    }

    /// Reserves a cost in this account and in the accounts of all outer runs. Returns `None` if the
    /// maximum cost of one of these runs would be exceeded.
    ///
    /// Pass zero for a call with an unknown cost. The reservation then succeeds if this run and all
    /// outer runs have at least one cost unit left.
    pub(crate) fn reserve_cost(self: &Arc<Self>, cost: u64) -> Option<Hold> {
        let hold = || Hold { account: self.clone(), of: HeldOf::Cost, amount: cost, actual: 0 };
        self.hold_cost(cost).then(hold)
    }

    /// Reserves `amount` of a budget per run. `limit` is the limit of the budget. Returns `None` if
    /// spent and reserved amounts would exceed it.
    ///
    /// A call may use more than its reserved amount, so that the spent amount exceeds `limit`. All
    /// later reservations then fail.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        budget: &Arc<str>,
        amount: u64,
        limit: u64,
    ) -> Option<Hold> {
        let outermost = self.outermost();
        let mut sums = lock(&outermost.sums);
        let tally = sums.budgets.entry(budget.clone()).or_default();
        let fits = tally.missing(amount, limit) == 0;
        if fits {
            tally.hold(amount);
        }
        drop(sums);
        // The hold is created only if the amount fits, because dropping a hold releases its amount.
        fits.then(|| {
            let of = HeldOf::Budget(budget.clone());
            Hold { account: outermost, of, amount, actual: 0 }
        })
    }

    /// Returns `true` if a call was rejected because the rest of the run's maximum cost was too
    /// small.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.sums).is_over
    }

    /// Returns `true` if the run has spent its maximum cost. Returns `false` if it has no maximum.
    pub(crate) fn is_used_up(&self) -> bool {
        self.max_cost.is_some_and(|max| lock(&self.sums).cost.spent() >= max)
    }

    /// Returns the amounts that the run has spent, without reservations.
    pub(crate) fn amounts(&self) -> Charged {
        let sums = lock(&self.sums);
        let budgets = sums.budgets.iter().filter(|(_, tally)| tally.spent() > 0);
        Charged {
            cost: sums.cost.spent(),
            budgets: budgets.map(|(name, tally)| (name.to_string(), tally.spent())).collect(),
            is_over: sums.is_over,
        }
    }

    /// Reserves a cost in this account and in the accounts of all outer runs. Returns `false` and
    /// reserves nothing if the maximum cost of one of these runs would be exceeded.
    fn hold_cost(&self, cost: u64) -> bool {
        // The lock is held until the outer accounts have reserved the cost or rejected it.
        // Otherwise, a reservation that an outer account rejects could block others in the
        // meantime. Outer accounts are never locked before inner ones, so this cannot deadlock.
        let mut sums = lock(&self.sums);
        let fits = self.max_cost.is_none_or(|max| sums.cost.missing(cost, max) == 0);
        sums.is_over |= !fits;
        let is_held = fits && self.outer.as_ref().is_none_or(|outer| outer.hold_cost(cost));
        if is_held {
            sums.cost.hold(cost);
        }
        is_held
    }

    /// Counts a call that a tool of the run makes to another tool. Returns the number of earlier
    /// calls of this kind in the outermost run.
    pub(super) fn count_delegated(&self) -> usize {
        match &self.outer {
            Some(outer) => outer.count_delegated(),
            None => self.delegated.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Returns the aborted calls of the run and of its nested runs.
    pub(crate) const fn aborted_calls(&self) -> &AbortedCalls {
        &self.aborted
    }

    /// Adds an aborted call to this run and to all outer runs, so that they can wait until `end`
    /// completes.
    pub(crate) fn add_aborted_call(&self, end: impl Future<Output = ()> + Send + 'static) {
        let end = call_end(end);
        self.with_outer().for_each(|account| account.aborted.add(end.clone()));
    }

    fn with_outer(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |account| account.outer.as_deref())
    }

    fn outermost(self: &Arc<Self>) -> Arc<Self> {
        let mut account = self;
        while let Some(outer) = &account.outer {
            account = outer;
        }
        account.clone()
    }
}

impl From<Charged> for Sums {
    fn from(Charged { cost, budgets, is_over }: Charged) -> Self {
        let mut tallies = BTreeMap::new();
        // Inserting in a loop is faster than collecting, because most runs start without budgets.
        for (name, spent) in budgets {
            tallies.insert(name.into(), Tally::of(spent));
        }
        Self { cost: Tally::of(cost), budgets: tallies, is_over }
    }
}

// === impl Hold ===

impl Hold {
    /// Charges the actual amount of the call, even if it exceeds the limit, and releases the
    /// reserved amount.
    pub(crate) fn settle(mut self, actual: u64) {
        self.actual = actual;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        match &self.of {
            HeldOf::Cost => {
                for account in self.account.with_outer() {
                    lock(&account.sums).cost.close(self.amount, self.actual);
                }
            }
            HeldOf::Budget(name) => {
                if let Some(tally) = lock(&self.account.sums).budgets.get_mut(name) {
                    tally.close(self.amount, self.actual);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(max_cost: u64) -> Arc<Account> {
        Arc::new(Account::new(Some(max_cost), None, Charged::default()))
    }

    fn nested(max_cost: Option<u64>, outer: &Arc<Account>) -> Arc<Account> {
        Arc::new(Account::new(max_cost, Some(outer.clone()), Charged::default()))
    }

    #[test]
    fn reserved_amount_cannot_be_reserved_again() {
        let account = account(10);
        let held = account.reserve_cost(6);
        assert!(account.reserve_cost(5).is_none());
        drop(held);
        assert!(account.reserve_cost(5).is_some());
    }

    #[test]
    fn settled_amount_stays_charged() {
        let account = account(10);
        account.reserve_cost(6).unwrap().settle(7);
        assert_eq!(account.amounts().cost, 7);
        assert!(account.reserve_cost(4).is_none());
        assert!(account.reserve_cost(3).is_some());
    }

    #[test]
    fn actual_cost_over_the_limit_is_charged_in_full() {
        let account = account(10);
        account.reserve_cost(0).unwrap().settle(1000);
        assert_eq!(account.amounts().cost, 1000);
        assert!(account.reserve_cost(0).is_none());
    }

    #[test]
    fn unknown_amount_is_denied_when_the_account_is_used_up() {
        let account = account(1);
        account.reserve_cost(1).unwrap().settle(1);
        assert!(account.reserve_cost(0).is_none());
    }

    #[test]
    fn nested_run_is_charged_to_the_outer_run_too() {
        let outer = account(10);
        let inner = nested(None, &outer);
        inner.reserve_cost(4).unwrap().settle(4);
        assert_eq!((inner.amounts().cost, outer.amounts().cost), (4, 4));
    }

    #[test]
    fn denial_by_the_outer_account_releases_the_inner_reservation() {
        let outer = account(3);
        let inner = nested(Some(10), &outer);
        assert!(inner.reserve_cost(4).is_none());
        assert!(outer.is_over());
        assert!(!inner.is_over());
        assert_eq!(lock(&inner.sums).cost, Tally::default());
    }

    #[test]
    fn concurrent_denial_by_the_outer_account_reserves_nothing() {
        let outer = account(3);
        let inner = nested(Some(4), &outer);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..10_000).for_each(|_| assert!(inner.reserve_cost(4).is_none())));
            scope.spawn(|| (0..10_000).for_each(|_| assert!(inner.reserve_cost(1).is_some())));
        });
    }

    #[test]
    fn run_budget_is_kept_by_the_outermost_account() {
        let outer = account(10);
        let inner = nested(None, &outer);
        let name: Arc<str> = "calls".into();
        inner.reserve(&name, 1, 2).unwrap().settle(1);
        let held = outer.reserve(&name, 1, 2);
        assert!(held.is_some() && inner.reserve(&name, 1, 2).is_none());
        assert_eq!(inner.amounts(), Charged::default());
        assert_eq!(outer.amounts().budgets["calls"], 1);
    }

    #[test]
    fn sums_beyond_the_integer_range_are_restored_on_release() {
        let account = Arc::new(Account::new(None, None, Charged::default()));
        account.reserve_cost(7).unwrap().settle(7);
        let held: Vec<_> = (0..3).map(|_| account.reserve_cost(u64::MAX).unwrap()).collect();
        drop(held);
        assert_eq!(lock(&account.sums).cost, Tally::of(7));
        account.reserve_cost(u64::MAX).unwrap().settle(u64::MAX);
        assert_eq!(account.amounts().cost, u64::MAX);
    }

    #[test]
    fn resumed_run_keeps_its_charges() {
        let before = account(10);
        let name: Arc<str> = "bytes".into();
        before.reserve_cost(6).unwrap().settle(6);
        before.reserve(&name, 0, 100).unwrap().settle(250);
        let in_flight = before.reserve_cost(4);
        let charged = serde_json::to_string(&before.amounts()).unwrap();
        drop(in_flight);

        let charged = serde_json::from_str(&charged).unwrap();
        let after = Arc::new(Account::new(Some(10), None, charged));
        assert_eq!(after.amounts(), before.amounts());
        assert!(after.reserve(&name, 0, 250).is_none());
        assert!(after.reserve_cost(4).is_some());
    }
}
