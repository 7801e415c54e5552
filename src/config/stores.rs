//! The stores that a configuration file defines, and the header that identifies callers.

use super::{
    budget::BudgetConfig, caller::CallerConfig, state::StateConfig, truncate::TruncateConfig,
};
use crate::{composite::CompositeLayer, stack::StackLayer};

/// The stores of a configuration, each with the settings of its layer, and the header that
/// identifies callers. If a reload does not change the settings of a store, the store and its
/// contents stay in use.
#[derive(Clone, Debug)]
pub(super) struct Stores {
    pub(super) caller: CallerConfig,
    pub(super) state: StateConfig,
    pub(super) budget: BudgetConfig,
    pub(super) truncate: TruncateConfig,
}

// === impl Stores ===

impl Stores {
    /// Replaces each store by the store of `before`, if both have the same settings. `before` comes
    /// from a previous configuration or another view.
    pub(super) fn take_over(&mut self, before: &Self) {
        self.state.take_over(&before.state);
        self.budget.take_over(&before.budget);
        self.truncate.take_over(&before.truncate);
    }

    /// Configures a composite layer: the store for runs that wait for user input, and the header
    /// that identifies callers.
    pub(super) fn composite(&self, layer: CompositeLayer) -> CompositeLayer {
        let layer = self.state.apply(layer);
        match self.caller.key() {
            Some(caller) => layer.caller(caller),
            None => layer,
        }
    }

    /// Adds the composite, budget and truncate layers to a stack. The layers use these stores, and
    /// identify callers by the configured header.
    pub(super) fn apply(&self, stack: StackLayer, composite: CompositeLayer) -> StackLayer {
        let (mut budget, mut truncate) = (self.budget.layer(), self.truncate.layer());
        if let Some(caller) = self.caller.key() {
            budget = budget.caller(caller.clone());
            truncate = truncate.caller(caller);
        }
        stack.composite(self.composite(composite)).budget(budget).truncate(truncate)
    }
}
