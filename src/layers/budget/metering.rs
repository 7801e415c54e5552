//! Reserves an amount of each budget before a call, and settles the reservations when the call's
//! reply arrives.

use std::{borrow::Cow, cell::LazyCell, mem, sync::Arc, time::Duration};

use futures::future::BoxFuture;

use super::{
    cost::Price,
    definition::{Budget, MAX_COST, Per, Unit},
    rules::Rules,
    store::{BudgetPermit, Denied, OpenBudget, ReserveReply},
};
use crate::{
    message::{Hold, ItemKind, Refusal, Reply, Request},
    pattern::Selection,
};

/// The rules of a budget layer, with the budgets opened in the store.
pub(super) struct Charged {
    rules: Arc<Rules>,
    /// The opened budgets, in the order of `rules.budgets`. The prices are in the order of
    /// `rules.costs`.
    budgets: Box<[Open]>,
    prices: Box<[(Selection, Price)]>,
}

/// A budget, opened by its store if the store supports it.
struct Open {
    budget: Budget,
    store: Option<Box<dyn OpenBudget>>,
}

/// A call for which not all budgets are reserved yet.
///
/// Dropping the value releases the reservations made so far.
pub(super) struct Charging {
    /// The index of the budget to be reserved next.
    next: usize,
    /// The identity of the caller. `None` if the caller has not been determined yet. `Some(None)`
    /// if the caller is unidentified.
    caller: Option<Option<String>>,
    charges: Charges,
}

/// All reservations of a call. If the call was [forwarded](Self::forwarded), dropping the value
/// charges the estimated amounts. Otherwise, dropping it releases the reservations.
///
/// The type is kept small because it is stored in the future of the call.
#[derive(Default)]
pub(super) struct Charges {
    price: Price,
    amounts: Amounts,
    is_forwarded: bool,
}

/// The unit of a budget, and the maximum amount that one call is charged.
#[derive(Clone, Copy)]
struct Count {
    unit: Unit,
    /// The maximum charge of one call.
    max: u64,
}

#[derive(Default)]
enum Amounts {
    #[default]
    Nothing,
    /// A reservation of one budget. This is the common case, which needs no allocation.
    One(Count, BudgetPermit),
    Several(Vec<(Count, Reserved)>),
}

enum Reserved {
    /// Reserved in the account of a run.
    Held(Hold),
    /// Reserved by a store.
    Permitted(BudgetPermit),
}

/// The pending reply of a store to a reservation.
pub(super) type StoreReply = BoxFuture<'static, Result<BudgetPermit, Denied>>;

// === impl Charged ===

impl Charged {
    pub(super) fn new(rules: Arc<Rules>) -> Self {
        let open = |budget: &Budget| {
            // Budgets of runs are kept in the account of each run, not in the store.
            let is_stored = budget.shared_per() != Per::Run;
            let store = is_stored.then(|| rules.store.0.open(budget)).flatten();
            Open { budget: budget.clone(), store }
        };
        let budgets = rules.budgets.iter().map(open).collect();
        let prices = rules.costs.iter().map(|cost| (cost.tools_of().clone(), cost.price()));
        let prices = prices.collect();
        Self { rules, budgets, prices }
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the price of a tool's call, from the first cost that selects the tool. Returns one
    /// unit if no cost selects the tool.
    fn price(&self, tool: &str) -> Price {
        let price = self.prices.iter().find(|(tools, _)| tools.selects(tool));
        price.map(|(_, price)| price.clone()).unwrap_or_default()
    }
}

// === impl Open ===

impl Open {
    fn reserve(&self, rules: &Rules, caller: Option<&str>, amount: u64) -> ReserveReply {
        match &self.store {
            Some(store) => store.reserve(caller, amount),
            None => rules.store.0.reserve(&self.budget, caller, amount),
        }
    }
}

// === impl Charging ===

impl Charging {
    /// Begins to charge a call. If the call belongs to a run, reserves the call's estimated cost
    /// from the cost limit of the run.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the cost exceeds the remaining cost limit of the run or of an outer
    /// run.
    pub(super) fn begin(charged: Option<&Charged>, request: &Request) -> Result<Self, Refusal> {
        let price = charged.map(|charged| charged.price(called(request))).unwrap_or_default();
        let mut charges = Charges { price, amounts: Amounts::Nothing, is_forwarded: false };
        if let Some(account) = request.context().account()
            && !charges.price.is_nothing()
        {
            let hold = account.reserve_cost(charges.price.estimate());
            let hold = hold.ok_or_else(|| over(MAX_COST, None, request))?;
            // The charge needs no maximum, because it affects only this run and its outer runs.
            let count = Count { unit: Unit::Cost, max: u64::MAX };
            charges.amounts.add(count, Reserved::Held(hold));
        }
        Ok(Self { next: 0, caller: None, charges })
    }

    /// Reserves the remaining budgets one by one. If a store does not reply immediately, stops and
    /// returns the pending reply. Returns `None` once all budgets are reserved.
    pub(super) fn go_on(
        &mut self,
        charged: Option<&Charged>,
        request: &Request,
    ) -> Result<Option<StoreReply>, Refusal> {
        let Some(Charged { rules, budgets, .. }) = charged else { return Ok(None) };
        let (tool, context) = (called(request), request.context());
        let Self { next, caller, charges } = self;
        while let Some(open) = budgets.get(*next) {
            let budget = &open.budget;
            if charges.are_of(budget, tool) {
                let amount = charges.estimate(budget.unit());
                let reserving = match budget.shared_per() {
                    Per::Run => {
                        charges.hold(budget, amount, request)?;
                        None
                    }
                    Per::Caller => {
                        let caller = caller.get_or_insert_with(|| rules.caller(context));
                        Some(open.reserve(rules, caller.as_deref(), amount))
                    }
                    Per::Global => Some(open.reserve(rules, None, amount)),
                };
                match reserving {
                    None => {}
                    Some(ReserveReply::Ready(reserved)) => {
                        charges.add(rules, budget, reserved, request)?
                    }
                    Some(ReserveReply::Pending(asked)) => return Ok(Some(asked)),
                }
            }
            *next += 1;
        }
        Ok(None)
    }

    /// Adds the reservation from a store's reply that was awaited.
    pub(super) fn answered(
        &mut self,
        charged: Option<&Charged>,
        reserved: Result<BudgetPermit, Denied>,
        request: &Request,
    ) -> Result<(), Refusal> {
        let asked = charged.and_then(|charged| Some((charged, charged.budgets.get(self.next)?)));
        self.next += 1;
        let Some((charged, Open { budget, .. })) = asked else { return Ok(()) };
        self.charges.add(&charged.rules, budget, reserved, request)
    }

    /// Finishes reserving, and returns the amounts that are reserved for the call. Must be called
    /// only after [`go_on`](Self::go_on) has returned `None`.
    pub(super) fn done(self) -> Charges {
        self.charges
    }
}

// === impl Charges ===

impl Charges {
    /// Marks the call as forwarded. From now on the tool may run, even if the caller abandons the
    /// call.
    pub(super) const fn forwarded(&mut self) {
        self.is_forwarded = true;
    }

    /// Returns `true` if nothing is reserved, so that nothing needs to be settled after the reply.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self.amounts, Amounts::Nothing)
    }

    /// Releases the reservations, because the call did not reach the tool.
    pub(super) fn give_back(mut self) {
        self.is_forwarded = false;
    }

    /// Charges the actual amounts if the tool ran. Otherwise, releases the reserved amounts.
    pub(super) fn settle(mut self, reply: &Reply) {
        self.is_forwarded = false;
        // A refused call did not reach the tool. A tool that requests input has not run yet.
        if reply.refusal().is_some() || reply.asks() {
            return;
        }
        let price = mem::take(&mut self.price);
        let cost = LazyCell::new(|| price.actual(reply.tool_result()));
        mem::take(&mut self.amounts).settle(|unit| match unit {
            Unit::Calls => 1,
            Unit::Bytes => reply.size().try_into().unwrap_or(u64::MAX),
            Unit::Cost => *cost,
        });
    }

    /// Returns `true` if the call is charged to the budget.
    fn are_of(&self, budget: &Budget, tool: &str) -> bool {
        let is_free = budget.unit() == Unit::Cost && self.price.is_nothing();
        !is_free && budget.selects(tool)
    }

    /// Returns the amount to reserve before a call, when the actual amount is unknown.
    fn estimate(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Calls => 1,
            Unit::Bytes => 0,
            Unit::Cost => self.price.estimate(),
        }
    }

    fn hold(&mut self, budget: &Budget, amount: u64, request: &Request) -> Result<(), Refusal> {
        let (name, limit) = (budget.shared_name(), budget.limit());
        // The account exists, because with a budget per run every call belongs to a run.
        let account = request.context().account();
        let hold = account.and_then(|account| account.reserve(name, amount, limit));
        let hold = hold.ok_or_else(|| over(name, None, request))?;
        self.amounts.add(Count::of(budget), Reserved::Held(hold));
        Ok(())
    }

    fn add(
        &mut self,
        rules: &Rules,
        budget: &Budget,
        reserved: Result<BudgetPermit, Denied>,
        request: &Request,
    ) -> Result<(), Refusal> {
        match reserved {
            Ok(permit) => {
                self.amounts.add(Count::of(budget), Reserved::Permitted(permit));
                Ok(())
            }
            Err(Denied::Over { retry_after }) => Err(over(budget.name(), retry_after, request)),
            Err(Denied::Unavailable(error)) => {
                let tool = called(request);
                let (budget, message) =
                    (budget.name(), "rejected a call: the budget store is unavailable");
                if rules.outage.is_due_now() {
                    tracing::warn!(budget, tool, %error, "{message}");
                } else {
                    tracing::debug!(budget, tool, %error, "{message}");
                }
                Err(Refusal::Unavailable { kind: ItemKind::Tool, name: tool.to_owned().into() })
            }
        }
    }
}

/// Returns the name of the called tool.
fn called(request: &Request) -> &str {
    request.tool_call().map_or("", |call| &call.name)
}

fn over(budget: &str, retry_after: Option<Duration>, request: &Request) -> Refusal {
    crate::metrics::over_budget(budget, request.context().view().map(|view| &**view));
    Refusal::OverBudget { budget: Cow::Owned(budget.to_owned()), retry_after }
}

impl Drop for Charges {
    #[inline]
    fn drop(&mut self) {
        // The caller has abandoned the call, and the tool may have run.
        if self.is_forwarded {
            let amounts = mem::take(&mut self.amounts);
            amounts.settle(|unit| self.estimate(unit));
        }
    }
}

// === impl Count ===

impl Count {
    const fn of(budget: &Budget) -> Self {
        Self { unit: budget.unit(), max: budget.most_per_call() }
    }
}

// === impl Amounts ===

impl Amounts {
    fn add(&mut self, count: Count, reserved: Reserved) {
        *self = match (mem::take(self), reserved) {
            (Self::Nothing, Reserved::Permitted(permit)) => Self::One(count, permit),
            (Self::Nothing, held) => Self::Several(vec![(count, held)]),
            (Self::One(first, permit), reserved) => {
                Self::Several(vec![(first, Reserved::Permitted(permit)), (count, reserved)])
            }
            (Self::Several(mut amounts), reserved) => {
                amounts.push((count, reserved));
                Self::Several(amounts)
            }
        };
    }

    /// Settles each reservation with the actual amount in its unit, which is capped at the budget's
    /// maximum charge per call.
    fn settle(self, actual: impl Fn(Unit) -> u64) {
        let actual = |count: Count| actual(count.unit).min(count.max);
        match self {
            Self::Nothing => {}
            Self::One(count, permit) => permit.settle(actual(count)),
            Self::Several(amounts) => {
                for (count, reserved) in amounts {
                    reserved.settle(actual(count));
                }
            }
        }
    }
}

// === impl Reserved ===

impl Reserved {
    fn settle(self, actual: u64) {
        match self {
            Self::Held(hold) => hold.settle(actual),
            Self::Permitted(permit) => permit.settle(actual),
        }
    }
}
