//! The state of a budget.

use crate::budget::{Budget, BudgetUsage};

/// A budget of a running configuration, and how much of it is used.
#[derive(Clone, Debug)]
pub struct BudgetState {
    pub(super) view: Option<String>,
    pub(super) budget: Budget,
    pub(super) usage: Option<BudgetUsage>,
}

// === impl BudgetState ===

impl BudgetState {
    /// Returns the path of the view whose own `[budget]` section has the budget. `None` if it is
    /// the section of the file, which other views may share.
    #[must_use]
    pub fn view(&self) -> Option<&str> {
        self.view.as_deref()
    }

    /// Returns the definition of the budget.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns how much of the budget is used. `None` if each run has a balance of its own, or if
    /// the store does not know.
    #[must_use]
    pub const fn usage(&self) -> Option<BudgetUsage> {
        self.usage
    }
}
