//! What a file keeps beyond one call, and who calls.

use super::{bound::BoundConfig, budget::BudgetConfig, caller::CallerConfig, state::StateConfig};
use crate::{composite::CompositeLayer, stack::StackLayer};

/// The layers that keep something beyond one call, with where they keep it, which
/// survives that another file takes the place of theirs.
#[derive(Clone, Debug)]
pub(super) struct Stores {
    pub(super) caller: CallerConfig,
    pub(super) state: StateConfig,
    pub(super) budget: BudgetConfig,
    pub(super) bound: BoundConfig,
}

// === impl Stores ===

impl Stores {
    /// Keeps what is kept where it is kept now, unless it is to be kept otherwise.
    #[cfg(any(feature = "stdio", feature = "http"))]
    pub(super) fn take_over(&mut self, before: &Self) {
        self.state.take_over(&before.state);
        self.budget.take_over(&before.budget);
        self.bound.take_over(&before.bound);
    }

    /// Tells composites where their runs are kept, and who calls.
    pub(super) fn composite(&self, layer: CompositeLayer) -> CompositeLayer {
        let layer = self.state.apply(layer);
        match self.caller.key() {
            Some(caller) => layer.caller(caller),
            None => layer,
        }
    }

    /// Puts the layers into a stack.
    pub(super) fn apply(&self, stack: StackLayer, composite: CompositeLayer) -> StackLayer {
        let (mut budget, mut bound) = (self.budget.layer(), self.bound.layer());
        if let Some(caller) = self.caller.key() {
            budget = budget.caller(caller.clone());
            bound = bound.caller(caller);
        }
        stack.composite(self.composite(composite)).budget(budget).bound(bound)
    }
}
