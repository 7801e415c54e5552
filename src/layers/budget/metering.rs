//! Reserves an amount of each budget before a tool call, and settles the reservations after the
//! reply.

use std::{borrow::Cow, cell::LazyCell, mem, sync::Arc, time::Duration};

use futures::future::BoxFuture;

use super::{
    cost::Price,
    definition::{Budget, MAX_COST, Per, Unit},
    rules::Rules,
    store::{BudgetPermit, Denied, OpenBudget, ReserveReply},
};
use crate::{
    log_pause::LogPause,
    message::{Hold, ItemKind, Refusal, Reply, Request},
    pattern::Selection,
    warnings::sanitize::Sanitized,
};

/// The settings of a budget layer, and the budgets that were opened in its store.
pub(super) struct Charged {
    pub(super) rules: Arc<Rules>,
    /// The budgets, in the same order as `rules.budgets`.
    budgets: Box<[Open]>,
    /// The prices of tool calls, in the same order as `rules.costs`.
    prices: Box<[(Selection, Price)]>,
}

/// A budget and, if `BudgetStore::open` returned one, the handle of the budget in the store.
struct Open {
    budget: Budget,
    store: Option<Box<dyn OpenBudget>>,
}

/// A tool call whose budgets are being reserved, one after another.
///
/// Dropping this value releases all reservations made so far.
pub(super) struct Charging {
    /// The index of the next budget to reserve.
    next: usize,
    /// The identity of the caller, which is determined when it is first needed. `None` if it is not
    /// determined yet. `Some(None)` if the caller is unidentified.
    caller: Option<Option<String>>,
    charges: Charges,
}

/// The next step of a tool call while its budgets are reserved.
pub(super) enum CallPhase {
    /// All budgets are reserved, so the call can be forwarded.
    Charged(Charges),
    /// A store does not reply immediately. The caller must await its reply, and pass it to
    /// [`Charging::answered`].
    Asking(Charging, StoreReply),
}

/// All reservations of a tool call. If the call was [forwarded](Self::forwarded), dropping this
/// value charges the estimated amounts, because the tool may have run. Otherwise, dropping it
/// releases the reservations.
///
/// The size of this type is kept small, because it is stored in the future of each tool call.
#[derive(Default)]
pub(super) struct Charges {
    price: Price,
    amounts: Amounts,
    is_forwarded: bool,
}

/// The unit of a budget, and the maximum amount that a single call is charged.
#[derive(Clone, Copy)]
struct Count {
    unit: Unit,
    max: u64,
}

#[derive(Default)]
enum Amounts {
    #[default]
    Nothing,
    /// A single reservation. Most calls are charged to only one budget, so this common case avoids
    /// an allocation.
    One(Count, BudgetPermit),
    Several(Vec<(Count, Reserved)>),
}

enum Reserved {
    /// An amount reserved from a limit of the run: its cost limit, or a budget per run.
    Held(Hold),
    /// An amount reserved in the budget store.
    Permitted(BudgetPermit),
}

/// A future that resolves to the reply of a budget store to a reservation.
pub(super) type StoreReply = BoxFuture<'static, Result<BudgetPermit, Denied>>;

// === impl Charged ===

impl Charged {
    pub(super) fn new(rules: Arc<Rules>) -> Self {
        let open = |budget: &Budget| {
            // The account of a run keeps the balances of budgets per run, so that they need no
            // store.
            let is_stored = budget.shared_per() != Per::Run;
            let store = is_stored.then(|| rules.store.0.open(budget)).flatten();
            Open { budget: budget.clone(), store }
        };
        let budgets = rules.budgets.iter().map(open).collect();
        let prices = rules.costs.iter().map(|cost| (cost.tools.clone(), cost.price()));
        let prices = prices.collect();
        Self { rules, budgets, prices }
    }

    /// Returns the price of a call to the tool. This is the price of the first cost that selects
    /// the tool. If no cost selects it, the price is one unit.
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
    /// Starts to charge a tool call. If the call belongs to a run, first reserves the estimated
    /// cost of the call from the cost limit of the run. Then reserves the budgets in order.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the run, or a run that contains it, has too little of its cost limit
    /// left, or if a budget has too little left.
    pub(super) fn begin(
        charged: Option<&Charged>,
        request: &Request,
    ) -> Result<CallPhase, Refusal> {
        let price = charged.map(|charged| charged.price(called(request))).unwrap_or_default();
        let mut charges = Charges { price, amounts: Amounts::Nothing, is_forwarded: false };
        if let Some(account) = request.context().account()
            && !charges.price.is_nothing()
        {
            let hold = account.reserve_cost(charges.price.estimate());
            let hold = hold.ok_or_else(|| over(MAX_COST, None, request, None))?;
            // Charge the cost without a maximum, because it only affects this run and its outer
            // runs.
            let count = Count { unit: Unit::Cost, max: u64::MAX };
            charges.amounts.add(count, Reserved::Held(hold));
        }
        Self { next: 0, caller: None, charges }.go_on(charged, request)
    }

    /// Reserves the remaining budgets in order.
    fn go_on(mut self, charged: Option<&Charged>, request: &Request) -> Result<CallPhase, Refusal> {
        let (tool, context) = (called(request), request.context());
        while let Some(Charged { rules, budgets, .. }) = charged
            && let Some(open) = budgets.get(self.next)
        {
            let budget = &open.budget;
            if self.charges.are_of(budget, tool) {
                let amount = self.charges.estimate(budget.unit());
                let reserving = match budget.shared_per() {
                    Per::Run => {
                        self.charges.hold(budget, amount, request)?;
                        None
                    }
                    Per::Caller => {
                        let caller = self.caller.get_or_insert_with(|| rules.caller(context));
                        Some(open.reserve(rules, caller.as_deref(), amount))
                    }
                    Per::Global => Some(open.reserve(rules, None, amount)),
                };
                match reserving {
                    None => {}
                    Some(ReserveReply::Ready(reserved)) => {
                        self.charges.add(rules, budget, reserved, request)?
                    }
                    Some(ReserveReply::Pending(reply)) => {
                        return Ok(CallPhase::Asking(self, reply));
                    }
                }
            }
            self.next += 1;
        }
        Ok(CallPhase::Charged(self.charges))
    }

    /// Adds a reservation for which the store did not reply immediately, and reserves the remaining
    /// budgets. `reserved` is the reply of the store. Returns an error if a store denies a
    /// reservation.
    pub(super) fn answered(
        mut self,
        charged: Option<&Charged>,
        reserved: Result<BudgetPermit, Denied>,
        request: &Request,
    ) -> Result<CallPhase, Refusal> {
        if let Some(Charged { rules, budgets, .. }) = charged
            && let Some(Open { budget, .. }) = budgets.get(self.next)
        {
            self.charges.add(rules, budget, reserved, request)?;
        }
        self.next += 1;
        self.go_on(charged, request)
    }
}

// === impl Charges ===

impl Charges {
    /// Marks the call as forwarded. If the caller cancels the call later, the reservations are
    /// charged, because the tool may have run.
    pub(super) const fn forwarded(&mut self) {
        self.is_forwarded = true;
    }

    /// Returns `true` if the call has no reservations that must be settled after the reply.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self.amounts, Amounts::Nothing)
    }

    /// Releases all reservations without a charge, because the call did not reach the tool.
    pub(super) fn give_back(mut self) {
        self.is_forwarded = false;
    }

    /// Settles all reservations after a reply. If the tool has run, charges the actual amounts.
    /// Otherwise, releases the reserved amounts.
    pub(super) fn settle(mut self, reply: &Reply) {
        self.is_forwarded = false;
        // A refused call did not reach the tool, and a tool that requests input has not run yet.
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

    /// Returns `true` if calls of `tool` are charged to `budget`. Returns `false` if the budget
    /// does not select the tool. Also returns `false` if the budget limits costs, and calls of the
    /// tool cost nothing.
    fn are_of(&self, budget: &Budget, tool: &str) -> bool {
        let is_free = budget.unit() == Unit::Cost && self.price.is_nothing();
        !is_free && budget.selects(tool)
    }

    /// Returns the amount that is reserved before the call, when the actual amount is not known
    /// yet.
    fn estimate(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Calls => 1,
            Unit::Bytes => 0,
            Unit::Cost => self.price.estimate(),
        }
    }

    fn hold(&mut self, budget: &Budget, amount: u64, request: &Request) -> Result<(), Refusal> {
        let (name, limit) = (&budget.name, budget.limit());
        // The account exists: if a layer has a budget per run, it starts a run for each call
        // outside of a run.
        let account = request.context().account();
        let hold = account.and_then(|account| account.reserve(name, amount, limit));
        let hold = hold.ok_or_else(|| over(name, None, request, None))?;
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
            Err(Denied::Over { retry_after }) => {
                Err(over(budget.name(), retry_after, request, Some(&*rules.refusals)))
            }
            Err(Denied::Unavailable(error)) => {
                let tool = called(request);
                let (budget, message) =
                    (budget.name(), "rejected a call: the budget store is unavailable");
                if rules.outages.is_due_now() {
                    tracing::warn!(budget, tool, %error, "{message}");
                } else {
                    tracing::debug!(budget, tool, %error, "{message}");
                }
                Err(Refusal::Unavailable { kind: ItemKind::Tool, name: tool.to_owned().into() })
            }
        }
    }
}

/// Returns the name of the called tool, or an empty string if the request is not a tool call.
fn called(request: &Request) -> &str {
    request.tool_call().map_or("", |call| &call.name)
}

/// Creates the error for a call that exceeds a budget, and logs it. `pause` limits how often the
/// message is logged at the level `info`. If `pause` is `None`, it is logged at the level `debug`.
fn over(
    budget: &str,
    retry_after: Option<Duration>,
    request: &Request,
    pause: Option<&LogPause>,
) -> Refusal {
    crate::metrics::over_budget(budget, request.context().view().map(|view| &**view));
    let tool = Sanitized(called(request));
    let refusal = Refusal::OverBudget { budget: Cow::Owned(budget.to_owned()), retry_after };
    if pause.is_some_and(LogPause::is_due_now) {
        tracing::info!(%tool, "rejected a call: {refusal}");
    } else {
        tracing::debug!(%tool, "rejected a call: {refusal}");
    }
    refusal
}

impl Drop for Charges {
    #[inline]
    fn drop(&mut self) {
        // If the call was forwarded, the tool may have run, even though the caller has dropped the
        // call.
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

    /// Settles all reservations. `actual` returns the actual amount of the call in the given unit.
    /// No reservation is charged more than its maximum for a single call.
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
