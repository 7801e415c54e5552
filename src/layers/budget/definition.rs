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

/// The unit of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Calls, each as one.
    Calls,
    /// Bytes of tool results: texts, keys and data, a few for anything else.
    ///
    /// The size is unknown before the call, so calls are allowed while anything is left, and
    /// the last ones may exceed the limit.
    Bytes,
    /// The [cost](super::Cost) of calls.
    Cost,
}

/// The scope of a budget: the calls that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Per {
    /// All calls of one run, which is one call of a client and the calls it leads to.
    ///
    /// Such a budget is never refilled, since a run ends.
    Run,
    /// All calls of one [caller](super::BudgetLayer::caller).
    Caller,
    /// All calls.
    #[default]
    Global,
}

/// The refill of a budget: an amount at a fixed interval, up to the limit.
///
/// The interval starts when a full budget is first charged. Charges beyond the limit must be
/// refilled first, but at most [`Budget::max_per_call`] if that is more than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    amount: u64,
    every: Duration,
}

/// An invalid budget definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The name is blank. Clients see the name of an exhausted budget.
    #[error("expected a name, found blanks")]
    Blank,
    /// The name is reserved: clients see it when a run exceeds its cost limit.
    #[error("the name `{0}` is that of a setting of composites, expected another")]
    Reserved(String),
    /// Another budget has this name, by which stores keep the balance.
    #[error("there are two budgets `{0}`")]
    Duplicate(String),
    /// The refill amount is zero, so the budget would never be refilled.
    #[error("the refill of budget `{0}` is 0, expected at least 1")]
    RefillsNothing(String),
    /// The refill interval is zero, so the budget would never be exhausted.
    #[error("the budget `{0}` is refilled every 0 s, expected a time")]
    RefillsAlways(String),
}

// === impl Budget ===

impl Budget {
    /// Creates a budget of `limit` units that all calls share, without a refill.
    ///
    /// A budget with a limit of zero rejects every call that it selects, except free calls if
    /// it counts [cost](Unit::Cost).
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

    /// Selects the tools whose calls are charged, by their names below the aliases. Defaults
    /// to all tools.
    #[must_use]
    pub fn tools(mut self, tools: Selection) -> Self {
        self.tools = tools;
        self
    }

    /// Returns the tools whose calls are charged.
    pub(super) const fn tools_of(&self) -> &Selection {
        &self.tools
    }

    /// Sets the calls that share the budget. Defaults to all calls.
    #[must_use]
    pub const fn per(mut self, per: Per) -> Self {
        self.per = per;
        self
    }

    /// Sets the refill. Defaults to no refill.
    #[must_use]
    pub const fn refill(mut self, refill: Refill) -> Self {
        self.refill = Some(refill);
        self
    }

    /// Returns the name, which clients see in errors.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the unit.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the limit: the balance of an unused budget.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns `true` if calls of this tool are charged.
    #[must_use]
    pub fn selects(&self, tool: &str) -> bool {
        self.tools.selects(tool)
    }

    /// Sets the maximum charge of one call, whatever cost its server reports.
    ///
    /// Defaults to the limit of the budget, so that one result cannot overdraw it. With a
    /// [refill](Self::refill), the total spent never exceeds the larger of this and the limit,
    /// so that the budget recovers in foreseeable time.
    #[must_use]
    pub const fn max_per_call(mut self, units: u64) -> Self {
        self.max_per_call = Some(units);
        self
    }

    /// Returns the maximum charge of one call.
    #[must_use]
    pub const fn most_per_call(&self) -> u64 {
        match self.max_per_call {
            Some(units) => units,
            None => self.limit,
        }
    }

    /// Returns the maximum amount that counts as spent if the budget is
    /// [refilled](Self::refill): the larger of its limit and the maximum charge of one call.
    ///
    /// A store does not count amounts beyond it, which concurrent calls may spend. Otherwise each
    /// of these calls would delay the recovery by a whole budget.
    #[must_use]
    pub const fn most_spent(&self) -> u64 {
        let most_per_call = self.most_per_call();
        if most_per_call > self.limit { most_per_call } else { self.limit }
    }

    /// Returns the scope: the calls that share the budget.
    #[must_use]
    pub const fn shared_per(&self) -> Per {
        self.per
    }

    /// Returns the refill, if there is one.
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
    /// Nothing is refilled if either is zero; see
    /// [`try_budget`](super::BudgetLayer::try_budget).
    #[must_use]
    pub const fn new(amount: u64, every: Duration) -> Self {
        Self { amount, every }
    }

    /// Returns the amount that is refilled at each interval.
    #[must_use]
    pub const fn amount(self) -> u64 {
        self.amount
    }

    /// Returns the interval.
    #[must_use]
    pub const fn every(self) -> Duration {
        self.every
    }
}
