//! Determines which calls of a run may have been running when its process stopped.

use super::{
    branches::BranchId,
    loop_state::LoopState,
    plan::{CallSite, LoopPlan, Plan, StepSet},
    state::RunState,
};

/// The calls that may have been running when the previous process of a run stopped.
pub(super) struct Takeover {
    /// The steps whose calls may have been running.
    pub(super) steps: StepSet,
    /// For each loop that had started, its step and the number of its elements that may have
    /// started.
    started: Vec<(usize, usize)>,
    /// The loop elements that were running, in reverse order. They continue before other elements
    /// start.
    pub(super) left: Vec<BranchId>,
    /// The indexes of the call sites whose tools may be called twice with the same arguments.
    pub(super) repeatable: Vec<usize>,
}

// === impl Takeover ===

impl Takeover {
    /// Determines the calls that may have started after `state` was stored. `running` are the steps
    /// that were running then. `waiting` are the steps that have not finished, without loops that
    /// have started and steps that wait for answers. `repeatable` are the call sites whose tools
    /// may be called twice with the same arguments.
    #[cold]
    pub(super) fn new(
        plan: &Plan,
        state: &RunState,
        running: Vec<usize>,
        waiting: StepSet,
        repeatable: Vec<usize>,
    ) -> Box<Self> {
        let running: StepSet = running.into_iter().collect();
        let suspended = state.asked.iter().map(|pending| pending.id.step);
        let loops = state.loops.iter().map(|each| each.step);
        let started = running.union(suspended.chain(loops).collect());
        let finished = state.finished.iter().copied().collect();
        // A call starts only if the outcomes of all calls before it are stored. Since then, only
        // the first steps of the plan that were ready can have started, up to the concurrency
        // limit.
        let free = plan.concurrency.saturating_sub(started.without(plan.without_calls).len());
        let ready = waiting.without(running).without(plan.without_calls);
        let ready = ready.filter(|&step| plan.needs(step).is_subset(finished)).take(free);
        let waits = |id: BranchId| state.asked.iter().any(|pending| pending.id == id);
        let left = |each: &LoopState| {
            let step = each.step;
            each.running().map(move |element| BranchId { step, element }).collect::<Vec<_>>()
        };
        let left = state.loops.iter().flat_map(left).filter(|&id| !waits(id));
        let mut left: Vec<_> = left.collect();
        left.sort_unstable_by(|one, other| other.cmp(one));
        Box::new(Self {
            steps: started.union(ready.collect()),
            started: state
                .loops
                .iter()
                .map(|each| (each.step, started_elements(plan, each)))
                .collect(),
            left,
            repeatable,
        })
    }

    /// Returns `true` if running loop elements must continue first.
    pub(super) const fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Returns `true` if the call may have been running, and its tool must not be called twice.
    #[cold]
    pub(super) fn has_lost(&self, id: BranchId, site: &CallSite, plan: &Plan) -> bool {
        let step = &plan.steps()[id.step];
        self.steps.contains(id.step)
            && step.action.as_loop().is_none_or(|each| self.has_element(id, each))
            && !step.retry_lost
            && !self.repeatable.contains(&site.site)
    }

    /// Returns `true` if this loop element may have been running.
    fn has_element(&self, id: BranchId, each: &LoopPlan) -> bool {
        let started = self.started.iter().find(|(step, _)| *step == id.step);
        id.element < started.map_or(each.max_parallel, |(_, count)| *count)
    }
}

/// Returns the number of elements of a stored loop that may have started until now. The number is
/// limited, because an element starts only after the outcomes of earlier elements are stored. At
/// most `max_parallel` elements are therefore running.
fn started_elements(plan: &Plan, each: &LoopState) -> usize {
    let max = plan.steps()[each.step].action.as_loop().map_or(1, |each| each.max_parallel);
    each.next + max.saturating_sub(each.running().count())
}
