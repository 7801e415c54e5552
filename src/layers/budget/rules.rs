//! The settings of a budget layer.

use std::{fmt, sync::Arc};

use super::{
    cost::Cost,
    definition::{Budget, Per},
    memory::MemoryBudgets,
    store::BudgetStore,
};
use crate::{
    log_pause::LogPause,
    message::{Context, ContextKey},
};

/// The settings of a budget layer: the budgets, the costs of tools, and the store for the balances.
#[derive(Clone, Default)]
pub(super) struct Rules {
    /// All budgets in the order in which they are reserved: budgets per run first.
    pub(super) budgets: Vec<Budget>,
    pub(super) costs: Vec<Cost>,
    pub(super) store: Store,
    pub(super) caller: Option<ContextKey>,
    /// Limits how often warnings about an unavailable store are logged.
    pub(super) outages: Arc<LogPause>,
    /// Limits how often messages about exhausted budgets are logged.
    pub(super) refusals: Arc<LogPause>,
}

#[derive(Clone)]
pub(super) struct Store(pub(super) Arc<dyn BudgetStore>);

// === impl Rules ===

impl Rules {
    /// Returns `true` if the layer has a budget or a cost. Without budgets, costs still count
    /// toward the cost limits of runs.
    pub(super) const fn charge_anything(&self) -> bool {
        !(self.budgets.is_empty() && self.costs.is_empty())
    }

    /// Returns `true` if the layer has a budget per run.
    pub(super) fn charge_runs(&self) -> bool {
        // Budgets per run come first.
        self.budgets.first().is_some_and(|budget| budget.shared_per() == Per::Run)
    }

    /// Returns the identity of the caller of a request, or `None` if the caller is unidentified.
    pub(super) fn caller(&self, context: &Context) -> Option<String> {
        self.caller.as_ref().and_then(|caller| caller(context))
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("budgets", &self.budgets)
            .field("costs", &self.costs)
            .field("store", &self.store.0)
            .finish_non_exhaustive()
    }
}

// === impl Store ===

impl Default for Store {
    fn default() -> Self {
        Self(Arc::new(MemoryBudgets::new()))
    }
}
