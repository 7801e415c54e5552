//! Compiles stop steps, which end the run.

use serde_json::Value;

use super::{
    mistakes::{DefinitionPath, in_steps},
    parts::CompiledTarget,
};
use crate::{
    composite::{
        error::DefinitionErrorKind as Kind,
        step::{Step, Stop, StopResult},
    },
    engine::plan::{EarlyEnd, EndForm, Plan},
    expr::ScopeNames,
};

/// Compiles a stop step, which ends a run early. Errors in the step's definition are added to the
/// path `at`. If there are errors, the returned action must not be used.
///
/// `has_schema` is `true` if the composite has an output schema. The structured content of the stop
/// step's result must then match this schema.
pub(super) fn compile(
    Stop { result }: &Stop,
    step: &Step,
    names: &ScopeNames<'_>,
    has_schema: bool,
    at: &mut DefinitionPath<'_>,
) -> EarlyEnd {
    let with = "type = \"stop\"";
    at.meaningless("default_results", step.default_results.is_some(), with);
    let (key, value, form) = match result {
        StopResult::Output(value) => ("output", value, EndForm::Output),
        StopResult::Message { text, is_error } => {
            at.not_blank("message", text);
            if has_schema && !is_error {
                at.push(["message"], Kind::StopWithoutOutput);
            }
            let form = if *is_error { EndForm::Error } else { EndForm::Message };
            ("message", &Value::from(text.as_str()), form)
        }
    };
    EarlyEnd { result: at.expression(key, value, names), form }
}

/// Marks calls that a stop step may prevent as not certain. Adds an error for each step that can
/// never start, because it waits for a stop step that always ends the run.
pub(super) fn note(plan: &Plan, targets: &mut [CompiledTarget], at: &mut DefinitionPath<'_>) {
    for (index, step) in plan.steps().iter().enumerate() {
        if !plan.precedes_stops(index) {
            step.action.sites().for_each(|call| targets[call.site].certain = false);
        }
        if step.action.as_early_end().is_none() || step.may_be_skipped() {
            continue;
        }
        let later = plan.with_dependents(index).filter(|&later| later != index);
        for later in later.filter(|&later| !plan.is_final(later)) {
            let kind = Kind::NeverStarts { stop: step.id.to_string() };
            at.within(in_steps(later)).push::<&str>([], kind);
        }
    }
}
