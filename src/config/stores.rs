//! The stores of a file, and the identification of callers.

use super::{
    budget::BudgetConfig, caller::CallerConfig, state::StateConfig, truncate::TruncateConfig,
};
use crate::{composite::CompositeLayer, stack::StackLayer};

/// The configured stores, each with the layer that uses it, and the header that identifies callers.
/// If a reload does not change the settings of a store, the store stays in use.
#[derive(Clone, Debug)]
pub(super) struct Stores {
    pub(super) caller: CallerConfig,
    pub(super) state: StateConfig,
    pub(super) budget: BudgetConfig,
    pub(super) truncate: TruncateConfig,
}

// === impl Stores ===

impl Stores {
    /// Takes over each store of another file or view (`before`) that has the same settings.
    pub(super) fn take_over(&mut self, before: &Self) {
        self.state.take_over(&before.state);
        self.budget.take_over(&before.budget);
        self.truncate.take_over(&before.truncate);
    }

    /// Makes a composite layer keep its waiting runs in the configured store, and identify callers
    /// as configured.
    pub(super) fn composite(&self, layer: CompositeLayer) -> CompositeLayer {
        let layer = self.state.apply(layer);
        match self.caller.key() {
            Some(caller) => layer.caller(caller),
            None => layer,
        }
    }

    /// Adds the composite, budget and truncate layers to a stack. They use the configured stores,
    /// and identify callers as configured.
    pub(super) fn apply(&self, stack: StackLayer, composite: CompositeLayer) -> StackLayer {
        let (mut budget, mut truncate) = (self.budget.layer(), self.truncate.layer());
        if let Some(caller) = self.caller.key() {
            budget = budget.caller(caller.clone());
            truncate = truncate.caller(caller);
        }
        stack.composite(self.composite(composite)).budget(budget).truncate(truncate)
    }
}
