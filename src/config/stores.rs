//! The stores of a file, and the identification of callers.

use super::{
    budget::BudgetConfig, caller::CallerConfig, state::StateConfig, truncate::TruncateConfig,
};
use crate::{composite::CompositeLayer, stack::StackLayer};

/// The layers with state that outlives a call, and their stores, which can survive a reload.
#[derive(Clone, Debug)]
pub(super) struct Stores {
    pub(super) caller: CallerConfig,
    pub(super) state: StateConfig,
    pub(super) budget: BudgetConfig,
    pub(super) truncate: TruncateConfig,
}

// === impl Stores ===

impl Stores {
    /// Keeps the previous stores, unless their settings have changed.
    #[cfg(any(feature = "stdio", feature = "http"))]
    pub(super) fn take_over(&mut self, before: &Self) {
        self.state.take_over(&before.state);
        self.budget.take_over(&before.budget);
        self.truncate.take_over(&before.truncate);
    }

    /// Sets the state store and the callers of a composite layer.
    pub(super) fn composite(&self, layer: CompositeLayer) -> CompositeLayer {
        let layer = self.state.apply(layer);
        match self.caller.key() {
            Some(caller) => layer.caller(caller),
            None => layer,
        }
    }

    /// Adds the layers to a stack.
    pub(super) fn apply(&self, stack: StackLayer, composite: CompositeLayer) -> StackLayer {
        let (mut budget, mut truncate) = (self.budget.layer(), self.truncate.layer());
        if let Some(caller) = self.caller.key() {
            budget = budget.caller(caller.clone());
            truncate = truncate.caller(caller);
        }
        stack.composite(self.composite(composite)).budget(budget).truncate(truncate)
    }
}
