//! The stores that a configuration file defines, and the method that identifies callers.

use super::{
    budget::BudgetConfig, caller::CallerConfig, set_some::SetSome, state::StateConfig,
    truncate::TruncateConfig,
};
use crate::{
    budget::BudgetLayer,
    composite::{CancelledRuns, CompositeLayer},
    flow::FlowLayer,
    stack::StackLayer,
    tasks::{TaskLayer, TaskRegistry},
    truncate::TruncateLayer,
};

/// The stores of a configuration, and the method that identifies callers. If a reload does not
/// change the settings of a store, the existing store and its contents stay in use.
#[derive(Clone, Debug)]
pub(super) struct Stores {
    pub(super) caller: CallerConfig,
    pub(super) state: StateConfig,
    pub(super) budget: BudgetConfig,
    pub(super) truncate: TruncateConfig,
    /// The layer that labels results. It contains the labels of the sessions.
    pub(super) flow: FlowLayer,
    /// Cancelled runs whose finally steps still run.
    pub(super) cancelled_runs: CancelledRuns,
    /// The tasks of all views.
    pub(super) tasks: TaskRegistry,
}

// === impl Stores ===

impl Stores {
    /// Reuses each store of `before` whose settings are the same, so that its contents are kept.
    /// `before` is the previous configuration, or another view.
    pub(super) fn take_over(&mut self, before: &Self) {
        self.tasks.take_over(&before.tasks, self.state.has_tasks_of(&before.state));
        self.state.take_over(&before.state);
        self.budget.take_over(&before.budget);
        self.truncate.take_over(&before.truncate);
        self.flow.take_over(&before.flow);
        self.cancelled_runs.take_over(&before.cancelled_runs);
    }

    /// Configures a composite layer with the store for waiting runs, and with the function that
    /// identifies callers.
    pub(super) fn composite(&self, layer: CompositeLayer) -> CompositeLayer {
        let layer = layer.state(self.state.store()).cancelled_runs(self.cancelled_runs.clone());
        layer.set_some(self.caller.key(), CompositeLayer::caller)
    }

    /// Adds the composite, budget, truncate, task and flow layers to a stack. They use the
    /// configured stores, and the configured method to identify callers.
    pub(super) fn apply(&self, stack: StackLayer, composite: CompositeLayer) -> StackLayer {
        let caller = self.caller.key();
        let budget = self.budget.layer().set_some(caller.clone(), BudgetLayer::caller);
        let truncate = self.truncate.layer().set_some(caller.clone(), TruncateLayer::caller);
        let tasks = TaskLayer::new().registry(self.tasks.clone());
        let tasks = tasks.set_some(caller, TaskLayer::caller);
        let flow = self.flow.clone().session(self.caller.session_key());
        let stack = stack.composite(self.composite(composite)).tasks(tasks).flow(flow);
        stack.budget(budget).truncate(truncate)
    }
}
