//! Compiles elicitation steps, which ask the user a question.

use super::mistakes::DefinitionPath;
use crate::{
    composite::{
        form::Form,
        step::{Elicitation, OnError, Retry, Step},
    },
    engine::plan::{self, OnRefusal, Plan},
    expr::ScopeNames,
};

/// Compiles an elicitation step. Errors in the step's definition are added to `at`, the path of the
/// step. If there are errors, the returned step is incomplete and must not be used.
pub(super) fn compile(
    ask: &Elicitation,
    step: &Step,
    composite: &str,
    names: &ScopeNames<'_>,
    remarks: &mut Vec<String>,
    at: &mut DefinitionPath<'_>,
) -> plan::Elicitation {
    check_delays(step, at);
    at.meaningless("retry_lost", step.retry_lost, "type = \"elicitation\"");
    at.not_blank("message", &ask.message);
    let message = at.expression("message", &ask.message.as_str().into(), names);
    let form = Form::parse(&ask.schema, names).map_err(|mistakes| {
        let mut at = at.within(["schema"]);
        for (path, mistake) in mistakes {
            at.push(path, mistake);
        }
    });
    let form = form.unwrap_or_default();
    for name in form.secrets() {
        remarks.push(format!(
            "composite `{composite}`: step `{}` asks for `{name}`: MCP forbids to ask for passwords, keys and other secrets in a form",
            step.id,
        ));
    }
    plan::Elicitation {
        message,
        form: form.expression,
        schema: form.schema,
        is_computed: form.is_computed,
        on_decline: ask.on_decline,
        on_cancel: ask.on_cancel,
    }
}

/// Adds a remark for each question that no other step waits for, although the run ends if the user
/// declines.
///
/// Other steps may then call their tools before the user answers. If the user declines, these calls
/// have already been made.
pub(super) fn remark_questions(plan: &Plan, composite: &str, remarks: &mut Vec<String>) {
    for (index, step) in plan.steps().iter().enumerate() {
        let plan::Action::Elicit(ask) = &step.action else { continue };
        let may_end = ask.on_decline != OnRefusal::Continue || ask.on_cancel != OnRefusal::Continue;
        // Finally steps wait for every other step, whatever the answer to its question.
        let counts = |&waiting: &usize| plan.is_final(index) || !plan.is_final(waiting);
        let is_awaited = plan.with_dependents(index).filter(counts).count() > 1;
        let calls = |&other: &usize| plan.steps()[other].action.sites().next().is_some();
        let ends_before = |other: usize| plan.with_dependents(other).contains(index);
        let mut calling = (0..plan.steps().len()).filter(calls);
        let early = calling.find(|&other| !ends_before(other));
        if may_end
            && !is_awaited
            && !plan.answer_reads(index)
            && let Some(early) = early
        {
            remarks.push(format!(
                "composite `{composite}`: no step waits for the question of step `{}`: step `{}` may call its tool before the user answers, unless its `depends_on` names the question",
                step.id,
                plan.steps()[early].id,
            ));
        }
    }
}

/// Adds an error if an elicitation step sets a retry delay. A delay would have no effect, because
/// an unanswered or invalid question is repeated immediately.
fn check_delays(step: &Step, at: &mut DefinitionPath<'_>) {
    let OnError::Retry(retry) = step.on_error else { return };
    let usual = Retry::times(retry.count);
    let mut at = at.within(["on_error"]);
    let with = "type = \"elicitation\"";
    at.meaningless("delay", retry.delay != usual.delay, with);
    at.meaningless("max_delay", retry.max_delay != usual.max_delay, with);
}
