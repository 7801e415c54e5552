//! Budget definitions: limit, unit, scope, refill, and their validation.

use std::{sync::Arc, time::Duration};

use crate::pattern::Selection;

/// Name of the setting that limits the cost of a run.
pub(super) const MAX_COST: &str = "max_cost";

/// A limit on the total number, size or cost of calls.
///
/// ```
/// use std::time::Duration;
///
/// use mcp_composite::{budget::{Budget, Per, Refill, Unit}, pattern::Selection};
///
/// // Each caller may search 100 times, and then once each minute.
/// let searches = Budget::new("searches", Unit::Calls, 100)
///     .tools(Selection::default().allow(["search_*"])?)
///     .per(Per::Caller)
///     .refill(Refill::new(1, Duration::from_secs(60)));
/// # Ok::<(), mcp_composite::pattern::PatternError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Budget {
    name: Arc<str>,
    unit: Unit,
    limit: u64,
    tools: Selection,
    per: Per,
    refill: Option<Refill>,
    max_per_call: Option<u64>,
}

/// The unit in which a budget limits calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// The number of calls.
    Calls,
    /// The size of tool results: all bytes of texts, keys and data, plus a few bytes for each other
    /// value.
    ///
    /// The size of a result is unknown before the call. So calls are allowed while any bytes are
    /// left, and the last of these calls may exceed the limit.
    Bytes,
    /// The [cost](super::Cost) of calls.
    Cost,
}

/// The scope of a budget, which determines the calls that share the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Per {
    /// All calls of one run share the budget. A run consists of one call from a client and all
    /// calls that this call leads to.
    ///
    /// A budget per run is never refilled, because it ends with its run.
    Run,
    /// All calls of one [caller](super::BudgetLayer::caller) share the budget.
    Caller,
    /// All calls share the budget.
    #[default]
    Global,
}

/// The refill of a budget, which adds an amount to the budget at a fixed interval, up to the limit.
///
/// The first interval starts when a call is charged to a full budget. If calls have spent more than
/// the limit, the excess must be refilled before new calls are allowed. [`Budget::most_spent`] caps
/// the excess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    amount: u64,
    every: Duration,
}

/// An invalid budget definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The name is blank. A budget needs a name, because clients see it if the budget is exhausted.
    #[error("blank name")]
    Blank,
    /// The name is `max_cost`. It is reserved, because clients see it if a run exceeds its cost
    /// limit.
    #[error("the budget name `{0}` is reserved for a setting of composites")]
    Reserved(String),
    /// Another budget has the same name. Names must differ, because stores identify balances by
    /// them.
    #[error("duplicate budget `{0}`")]
    Duplicate(String),
    /// The refill amount is zero, so the budget would never be refilled.
    #[error("the refill of budget `{0}` is 0: expected at least 1")]
    RefillsNothing(String),
    /// The refill interval is zero, so the budget would never be exhausted.
    #[error("the refill of budget `{0}` has an interval of 0 s: expected more")]
    RefillsAlways(String),
}

// === impl Budget ===

impl Budget {
    /// Creates a budget of `limit` units that all calls share, without a refill.
    ///
    /// If `limit` is zero, the budget rejects every call of the selected tools. Free calls are
    /// still allowed if the unit is [cost](Unit::Cost).
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, unit: Unit, limit: u64) -> Self {
        Self {
            name: name.into(),
            unit,
            limit,
            tools: Selection::default(),
            per: Per::default(),
            refill: None,
            max_per_call: None,
        }
    }

    /// Sets the tools whose calls are charged. The patterns are matched against the names of tools
    /// below alias layers. Defaults to all tools.
    #[must_use]
    pub fn tools(mut self, tools: Selection) -> Self {
        self.tools = tools;
        self
    }

    /// Returns the tools whose calls are charged.
    pub(super) const fn tools_of(&self) -> &Selection {
        &self.tools
    }

    /// Sets which calls share the budget. Defaults to [`Per::Global`]: all calls share the budget.
    #[must_use]
    pub const fn per(mut self, per: Per) -> Self {
        self.per = per;
        self
    }

    /// Sets the refill, which adds an amount at a fixed interval. Defaults to no refill.
    #[must_use]
    pub const fn refill(mut self, refill: Refill) -> Self {
        self.refill = Some(refill);
        self
    }

    /// Returns the name of the budget, which clients see in errors.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the unit in which the budget limits calls.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the limit of the budget, which is the amount that calls can spend in total before
    /// any [refill](Self::refill).
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns `true` if calls of this tool are charged to the budget.
    #[must_use]
    pub fn selects(&self, tool: &str) -> bool {
        self.tools.selects(tool)
    }

    /// Sets the maximum amount that one call is charged, even if its server reports a higher cost.
    ///
    /// Defaults to the limit of the budget, so that a single call cannot spend more than the whole
    /// budget. If the budget has a [refill](Self::refill), the total amount that calls have spent
    /// is also capped, at the larger of `units` and the limit. So the budget always recovers in
    /// foreseeable time.
    #[must_use]
    pub const fn max_per_call(mut self, units: u64) -> Self {
        self.max_per_call = Some(units);
        self
    }

    /// Returns the maximum charge of one call: [`max_per_call`](Self::max_per_call) if set, or the
    /// limit.
    #[must_use]
    pub const fn most_per_call(&self) -> u64 {
        match self.max_per_call {
            Some(units) => units,
            None => self.limit,
        }
    }

    /// Returns the maximum spent amount that a store records if the budget has a
    /// [refill](Self::refill): the larger of the limit and the maximum charge of one call.
    ///
    /// Concurrent calls may together spend more than this maximum, but stores ignore the excess.
    /// Otherwise each of these calls could delay the recovery of the budget by a whole refill.
    #[must_use]
    pub const fn most_spent(&self) -> u64 {
        let most_per_call = self.most_per_call();
        if most_per_call > self.limit { most_per_call } else { self.limit }
    }

    /// Returns the scope, which determines the calls that share the budget.
    #[must_use]
    pub const fn shared_per(&self) -> Per {
        self.per
    }

    /// Returns the refill, or `None` if the budget is never refilled.
    #[must_use]
    pub const fn refilled(&self) -> Option<Refill> {
        self.refill
    }

    pub(super) const fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Validates the definition.
    pub(super) fn check(&self) -> Result<(), BudgetError> {
        if self.name.trim().is_empty() {
            return Err(BudgetError::Blank);
        }
        if &*self.name == MAX_COST {
            return Err(BudgetError::Reserved(self.name.to_string()));
        }
        match self.refill {
            Some(refill) if refill.amount == 0 => {
                Err(BudgetError::RefillsNothing(self.name.to_string()))
            }
            Some(refill) if refill.every.is_zero() => {
                Err(BudgetError::RefillsAlways(self.name.to_string()))
            }
            _ => Ok(()),
        }
    }
}

// === impl Refill ===

impl Refill {
    /// Creates a refill of `amount` at each interval `every`, up to the limit.
    ///
    /// Nothing is refilled if the amount or the interval is zero.
    /// [`try_budget`](super::BudgetLayer::try_budget) rejects a budget with such a refill.
    #[must_use]
    pub const fn new(amount: u64, every: Duration) -> Self {
        Self { amount, every }
    }

    /// Returns the amount that is refilled at each interval.
    #[must_use]
    pub const fn amount(self) -> u64 {
        self.amount
    }

    /// Returns the interval between two refills.
    #[must_use]
    pub const fn every(self) -> Duration {
        self.every
    }
}
