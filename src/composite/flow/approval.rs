//! The values that a person approves before a step uses them.

use crate::{
    engine::plan::{Action, OnFailure, OnRefusal, Plan, StepSet},
    expr::{PathSegment, Root, Use},
};

/// A question that shows values to a person. Steps that wait for it run only if the person accepts.
pub(super) struct Approval<'p> {
    /// The values that the message of the question contains unchanged.
    shown: Vec<(Root, &'p [PathSegment])>,
    /// The steps that run only after the person has accepted.
    steps: StepSet,
}

/// Returns the questions of a plan that approve values.
///
/// A question approves nothing if it can be skipped, or if the run continues with the steps that
/// wait for it although the person has declined, dismissed or not answered it.
pub(super) fn approvals(plan: &Plan) -> Vec<Approval<'_>> {
    let mut approvals = Vec::new();
    for (index, step) in plan.steps().iter().enumerate() {
        let Action::Elicit(ask) = &step.action else { continue };
        let ends = |refused| refused != OnRefusal::Continue;
        let is_certain =
            step.condition.is_none() && step.on_failure == OnFailure::Abort && !step.is_final();
        if is_certain && ends(ask.on_decline) && ends(ask.on_cancel) {
            // Finally steps run even if the person declines.
            let is_ended = |&step: &usize| step != index && !plan.steps()[step].is_final();
            let steps = plan.with_dependents(index).filter(is_ended).collect();
            approvals.push(Approval { shown: ask.message.shown(), steps });
        }
    }
    approvals
}

// === impl Approval ===

impl Approval<'_> {
    /// Returns `true` if the step runs only after a person has accepted the question.
    pub(super) fn gates(&self, step: usize) -> bool {
        self.steps.contains(step)
    }

    /// Returns `true` if a person has seen and approved the value of a reference before the step
    /// runs.
    pub(super) fn covers(&self, step: usize, used: &Use<'_>) -> bool {
        let is_shown = |&(root, path): &(Root, &[PathSegment])| {
            root == used.root && used.path.starts_with(path)
        };
        self.gates(step) && self.shown.iter().any(is_shown)
    }
}
