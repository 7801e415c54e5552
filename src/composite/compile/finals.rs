//! Checks finally steps, which run after all other steps of a run.

use super::mistakes::{DefinitionPath, in_steps};
use crate::{
    composite::{
        error::DefinitionErrorKind as Kind,
        step::{Action, Step},
    },
    engine::plan,
    expr::{PathSegment, Root},
};

/// Compiles the settings of a finally step, and adds errors at the path `at`. Returns `None` for
/// all other steps.
pub(super) fn compile(step: &Step, at: &mut DefinitionPath<'_>) -> Option<plan::Finally> {
    let finally = step.finally?;
    at.meaningless("finally", matches!(step.action, Action::Stop(_)), "type = \"stop\"");
    let mut at = at.within(["finally"]);
    at.not_zero("grace", finally.grace.is_zero());
    let asks = matches!(step.action, Action::Elicitation(_));
    at.meaningless("on_cancel", asks && finally.on_cancel, "type = \"elicitation\"");
    Some(finally)
}

/// Adds an error for each ordinary step that refers to a finally step, depends on one, or follows
/// one in a pipeline. An ordinary step cannot do this, because finally steps run after it. Returns
/// `true` if there is no such step.
pub(super) fn check(steps: &[plan::Step], pipeline: bool, at: &mut DefinitionPath<'_>) -> bool {
    let is_final = |step: usize| steps[step].is_final();
    if !steps.is_empty() && steps.iter().all(plan::Step::is_final) {
        at.push(["steps"], Kind::OnlyFinally);
    }
    let mut is_valid = true;
    for (index, step) in steps.iter().enumerate().filter(|(_, step)| !step.is_final()) {
        let mut at = at.within(in_steps(index));
        let needed = { step.depends_on }.filter(|&needed| is_final(needed));
        for needed in needed {
            is_valid = false;
            let finally = steps[needed].id.to_string();
            if pipeline {
                at.push::<PathSegment>([], Kind::AfterFinally { finally });
            } else {
                at.push(["depends_on"], Kind::NeedsFinally { finally });
            }
        }
        for used in step.uses() {
            if let Root::Step { step: needed, .. } = used.root
                && is_final(needed)
            {
                is_valid = false;
                let finally = steps[needed].id.to_string();
                at.push(used.place.clone(), Kind::NeedsFinally { finally });
            }
        }
    }
    is_valid
}
