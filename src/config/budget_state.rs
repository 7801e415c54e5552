//! The state of a budget in a running configuration.

use crate::budget::{Budget, BudgetUsage};

/// A budget of a running configuration, and the amount that is already used.
#[derive(Clone, Debug)]
pub struct BudgetState {
    pub(super) view: Option<String>,
    pub(super) budget: Budget,
    pub(super) usage: Option<BudgetUsage>,
}

// === impl BudgetState ===

impl BudgetState {
    /// Returns the path of the view whose own `[budget]` section defines the budget. Returns `None`
    /// if the section belongs to the file, so that several views may share the budget.
    #[must_use]
    pub fn view(&self) -> Option<&str> {
        self.view.as_deref()
    }

    /// Returns the definition of the budget.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the used amount of the budget. Returns `None` if each run has a separate balance, or
    /// if the amount is unknown to the store.
    #[must_use]
    pub const fn usage(&self) -> Option<BudgetUsage> {
        self.usage
    }
}
