//! The state of a budget in a running configuration.

use crate::budget::{Budget, BudgetUsage};

/// A budget of a running [`Gateway`](super::Gateway), with the amount that is left.
#[derive(Clone, Debug)]
pub struct BudgetState {
    pub(super) view: Option<String>,
    pub(super) budget: Budget,
    pub(super) usage: Option<BudgetUsage>,
}

// === impl BudgetState ===

impl BudgetState {
    /// Returns the path of the [view](super::View) that defines the budget in its own `[budget]`
    /// section, such as `/team-a`. Returns `None` if the budget is defined in the `[budget]`
    /// section of the whole file, which several views may share.
    #[must_use]
    pub fn view(&self) -> Option<&str> {
        self.view.as_deref()
    }

    /// Returns the definition of the budget.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the amount of the budget that is left. Returns `None` if the amount is unknown. The
    /// amount of a budget per run is always unknown, because each run has its own balance.
    #[must_use]
    pub const fn usage(&self) -> Option<BudgetUsage> {
        self.usage
    }
}
