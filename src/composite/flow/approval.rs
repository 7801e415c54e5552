//! Finds the values that the user approves before a step uses them.

use crate::{
    engine::plan::{Action, OnFailure, OnRefusal, Plan, StepSet},
    expr::{PathSegment, Root, Use},
};

/// A question that shows values to the user. Steps that wait for the answer run only if the user
/// accepts.
pub(super) struct Approval<'p> {
    /// The references whose values the message of the question shows unchanged.
    displayed: Vec<(Root, &'p [PathSegment])>,
    /// The steps that run only after the user has accepted.
    steps: StepSet,
}

/// Returns the questions of a plan that can approve values.
///
/// A question can approve values only if it is always asked, and if the run ends unless the user
/// accepts.
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
            approvals.push(Approval { displayed: ask.message.bare_references(), steps });
        }
    }
    approvals
}

// === impl Approval ===

impl Approval<'_> {
    /// Returns `true` if the step runs only after the user has accepted the question.
    pub(super) fn gates(&self, step: usize) -> bool {
        self.steps.contains(step)
    }

    /// Returns `true` if the user has seen and approved the value of the reference before the step
    /// runs.
    pub(super) fn covers(&self, step: usize, used: &Use<'_>) -> bool {
        let is_shown = |&(root, path): &(Root, &[PathSegment])| {
            root == used.root && used.path.starts_with(path)
        };
        self.gates(step) && self.displayed.iter().any(is_shown)
    }
}
