//! Defines the limit, unit, scope and refill of budgets, and validates them.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;

use crate::pattern::Selection;

/// The setting that limits the cost of a composite's run. An error about this limit contains
/// `max_cost` instead of the name of a budget. Budgets cannot have this name.
pub(super) const MAX_COST: &str = "max_cost";

/// A limit on the total number, size or cost of tool calls. A [`BudgetLayer`](super::BudgetLayer)
/// enforces it.
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
    pub(super) name: Arc<str>,
    unit: Unit,
    limit: u64,
    pub(super) tools: Selection,
    per: Per,
    refill: Option<Refill>,
    max_per_call: Option<u64>,
}

/// The unit of a budget: whether it limits the number, size or cost of tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Unit {
    /// The number of tool calls.
    Calls,
    /// The size of tool results in bytes. The size of a result is the length of all its strings and
    /// keys, including Base64 data, plus a few bytes for each other value.
    ///
    /// Because the size of a result is unknown before the call, a budget of bytes allows calls
    /// while any bytes are left. The results of the last calls may therefore exceed the limit.
    Bytes,
    /// The total cost of tool calls, such as cents or tokens.
    Cost,
}

/// The scope of a budget: which tool calls share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Per {
    /// All tool calls in a run share the budget. A run consists of a tool call from a client and
    /// all tool calls that result from it, such as the steps of a composite.
    ///
    /// A budget per run is never refilled, because its balance is dropped when the run ends.
    Run,
    /// All tool calls from the same caller share the budget.
    Caller,
    /// All tool calls share the budget.
    #[default]
    Global,
}

/// The refill of a [`Budget`]. Adds an amount to the budget at a fixed interval, until the budget
/// is full again. For example, a refill of 1 per minute allows one more call each minute.
///
/// The first interval of a refill starts when a call is charged to a full budget. If calls have
/// spent more than the limit, refills must make up for the excess before further calls are allowed.
/// [`Budget::most_spent`] bounds the excess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    amount: u64,
    every: Duration,
}

/// An error in the definition of a budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The name of the budget is blank. A budget needs a name, because the error of an exhausted
    /// budget contains it.
    #[error("blank name")]
    Blank,
    /// The name of the budget is `max_cost`. This name is reserved, because errors use it for the
    /// cost limit of a composite's run.
    #[error("the budget name `{0}` is reserved for a setting of composites")]
    Reserved(String),
    /// The layer already has a budget with this name. Names must be unique, because stores identify
    /// balances by the name of the budget.
    #[error("duplicate budget `{0}`")]
    Duplicate(String),
    /// The refill amount is zero, so the refill would add nothing.
    #[error("the refill of budget `{0}` is 0: expected at least 1")]
    RefillsNothing(String),
    /// The refill interval is zero. The budget would refill continuously and never be exhausted.
    #[error("the refill of budget `{0}` has an interval of 0 s: expected more")]
    RefillsAlways(String),
}

// === impl Budget ===

impl Budget {
    /// Creates a global budget of `limit` units, without a refill.
    ///
    /// If `limit` is zero, the budget rejects all calls to the selected tools. A budget of zero
    /// [cost](Unit::Cost) still allows calls that cost nothing.
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

    /// Sets the tools whose calls are charged to the budget. The patterns match the names of tools
    /// that the budget layer receives, usually those of the server. Defaults to all tools.
    #[must_use]
    pub fn tools(mut self, tools: Selection) -> Self {
        self.tools = tools;
        self
    }

    /// Sets the scope of the budget. Defaults to [`Per::Global`]: all calls share the budget.
    #[must_use]
    pub const fn per(mut self, per: Per) -> Self {
        self.per = per;
        self
    }

    /// Sets the refill of the budget. Defaults to no refill, so that an exhausted budget stays
    /// exhausted.
    #[must_use]
    pub const fn refill(mut self, refill: Refill) -> Self {
        self.refill = Some(refill);
        self
    }

    /// Returns the name of the budget. If the budget is exhausted, clients see this name in errors.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the unit of the budget.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the limit of the budget: the amount that calls can spend in total. Further calls are
    /// rejected until a [refill](Self::refill).
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns `true` if calls to the tool are charged to the budget.
    #[must_use]
    pub fn selects(&self, tool: &str) -> bool {
        self.tools.selects(tool)
    }

    /// Sets the maximum amount that a single call is charged, even if the server reports a higher
    /// cost.
    ///
    /// Defaults to the limit of the budget. If the budget has a [refill](Self::refill), `units`
    /// also bounds the total amount that the budget counts as spent: it never exceeds the larger of
    /// `units` and the limit.
    #[must_use]
    pub const fn max_per_call(mut self, units: u64) -> Self {
        self.max_per_call = Some(units);
        self
    }

    /// Returns the maximum amount that a single call is charged. This is
    /// [`max_per_call`](Self::max_per_call) if set, and the limit of the budget otherwise.
    #[must_use]
    pub const fn most_per_call(&self) -> u64 {
        match self.max_per_call {
            Some(units) => units,
            None => self.limit,
        }
    }

    /// Returns the maximum total amount that a budget with a [refill](Self::refill) counts as
    /// spent. This is the limit or the maximum charge of a single call, whichever is larger.
    ///
    /// If concurrent calls spend more than `most_spent`, the budget does not count the excess. This
    /// limits the time that refills need to make up for the calls.
    #[must_use]
    pub const fn most_spent(&self) -> u64 {
        let most_per_call = self.most_per_call();
        if most_per_call > self.limit { most_per_call } else { self.limit }
    }

    /// Returns the scope of the budget: which tool calls share it.
    #[must_use]
    pub const fn shared_per(&self) -> Per {
        self.per
    }

    /// Returns the refill of the budget, or `None` if the budget is never refilled.
    #[must_use]
    pub const fn refilled(&self) -> Option<Refill> {
        self.refill
    }

    /// Returns an error if the name of the budget is blank or reserved, or if the refill adds
    /// nothing or has no interval.
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
    /// Creates a refill that adds `amount` to the budget once per interval `every`. Refills never
    /// raise the available amount above the limit of the budget.
    ///
    /// If `amount` or `every` is zero, the refill adds nothing.
    /// [`BudgetLayer::try_budget`](super::BudgetLayer::try_budget) rejects a budget with such a
    /// refill.
    #[must_use]
    pub const fn new(amount: u64, every: Duration) -> Self {
        Self { amount, every }
    }

    /// Returns the amount that the refill adds at each interval.
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
