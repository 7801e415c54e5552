use std::{sync::Arc, time::Duration};

use super::MAX_COST;
use crate::pattern::Selection;

/// How much of something calls may use together.
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

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Calls, each as one.
    Calls,
    /// Bytes of what tools answer: texts, keys and data, a few for anything else.
    ///
    /// Nobody knows them before, so calls go on as long as anything is left, and the
    /// last ones may use more than that.
    Bytes,
    /// What calls [cost](super::Cost).
    Cost,
}

/// Whose calls share a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Per {
    /// Those that one call of a client leads to.
    ///
    /// Such a budget does not come back: a run has an end.
    Run,
    /// Those of one [caller](super::BudgetLayer::caller).
    Caller,
    /// All.
    #[default]
    Global,
}

/// How a budget comes back: an amount each time that so long has passed, up to the
/// limit.
///
/// The time begins to count when something of a full budget is used. What calls have
/// used beyond the limit must come back first, but no more than
/// [`Budget::max_per_call`] if that is more than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    amount: u64,
    every: Duration,
}

/// Why a budget is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// Clients are told the name of a budget that is used up.
    #[error("expected a name, found blanks")]
    Blank,
    /// What clients are told when a run has cost all that it may.
    #[error("the name `{0}` is that of a setting of composites, expected another")]
    Reserved(String),
    /// What is left is kept by the name.
    #[error("there are two budgets `{0}`")]
    Duplicate(String),
    /// It would never come back.
    #[error("the refill of budget `{0}` is 0, expected at least 1")]
    RefillsNothing(String),
    /// It would never be used up.
    #[error("the budget `{0}` is refilled every 0 s, expected a time")]
    RefillsAlways(String),
}

// === impl Budget ===

impl Budget {
    /// A budget of `limit` units that all calls share, and that does not come back.
    ///
    /// Of one with a limit of zero nothing is ever left: whatever it selects is
    /// refused, but for calls that cost nothing if it counts [cost](Unit::Cost).
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

    /// Sets which tools' calls it is for, by the names below the aliases; all by default.
    #[must_use]
    pub fn tools(mut self, tools: Selection) -> Self {
        self.tools = tools;
        self
    }

    /// Which tools' calls it is for.
    pub(super) const fn tools_of(&self) -> &Selection {
        &self.tools
    }

    /// Sets whose calls share it; all by default.
    #[must_use]
    pub const fn per(mut self, per: Per) -> Self {
        self.per = per;
        self
    }

    /// Sets how it comes back; not at all by default.
    #[must_use]
    pub const fn refill(mut self, refill: Refill) -> Self {
        self.refill = Some(refill);
        self
    }

    /// What clients are told that it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it counts.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// How much there is of it, when nothing is used.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether it is for calls of this tool.
    #[must_use]
    pub fn selects(&self, tool: &str) -> bool {
        self.tools.selects(tool)
    }

    /// Sets the most that one call is charged, whatever its server says that it cost.
    ///
    /// Defaults to the limit of the budget, so that one answer cannot use up more than all of
    /// it. With a [refill](Self::refill), all calls together cannot use up more than this or the
    /// limit either, so that the budget recovers in foreseeable time.
    #[must_use]
    pub const fn max_per_call(mut self, units: u64) -> Self {
        self.max_per_call = Some(units);
        self
    }

    /// The most that one call is charged.
    #[must_use]
    pub const fn most_per_call(&self) -> u64 {
        match self.max_per_call {
            Some(units) => units,
            None => self.limit,
        }
    }

    /// The most that counts as spent of a budget that is [refilled](Self::refill): its limit, or
    /// what one call may be charged if that is more.
    ///
    /// A store does not count amounts beyond it, which concurrent calls may spend. Otherwise each
    /// of these calls would delay the recovery by a whole budget.
    #[must_use]
    pub const fn most_spent(&self) -> u64 {
        let most_per_call = self.most_per_call();
        if most_per_call > self.limit { most_per_call } else { self.limit }
    }

    /// Whose calls share it.
    #[must_use]
    pub const fn shared_per(&self) -> Per {
        self.per
    }

    /// How it comes back, if it does.
    #[must_use]
    pub const fn refilled(&self) -> Option<Refill> {
        self.refill
    }

    pub(super) const fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether it can be what somebody meant.
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
    /// This much comes back each time this long has passed, up to the limit.
    ///
    /// Nothing comes back if either is zero; see
    /// [`try_budget`](super::BudgetLayer::try_budget).
    #[must_use]
    pub const fn new(amount: u64, every: Duration) -> Self {
        Self { amount, every }
    }

    /// How much comes back each time.
    #[must_use]
    pub const fn amount(self) -> u64 {
        self.amount
    }

    /// How long it takes.
    #[must_use]
    pub const fn every(self) -> Duration {
        self.every
    }
}
