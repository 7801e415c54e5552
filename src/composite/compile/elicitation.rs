//! Compiles elicitation steps.

use serde_json::{Value, json};

use super::{Kind, mistakes::DefinitionPath};
use crate::{
    composite::{
        form::Form,
        step::{OnError, Retry, Step},
    },
    engine::plan::Elicitation,
    expr::{Expression, ScopeNames},
};

const ELICITATION: &str = "`type = \"elicitation\"`";

/// Compiles an elicitation step. The result must not be used if there are errors.
pub(super) fn compile(
    step: &Step,
    composite: &str,
    names: &ScopeNames<'_>,
    remarks: &mut Vec<String>,
    at: &mut DefinitionPath<'_>,
) -> Elicitation {
    check_delays(step, at);
    let message = match &step.message {
        None => {
            at.push(["message"], Kind::Missing { key: "message", in_: ELICITATION });
            None
        }
        Some(message) => {
            at.not_blank("message", message);
            Expression::parse_in(&message.as_str().into(), names)
                .map_err(|errors| at.push_all("message", &errors))
                .ok()
        }
    };
    // Without a form, the user can only accept or decline.
    let nothing = json!({});
    let form = Form::parse(step.schema.as_ref().unwrap_or(&nothing), names).map_err(|mistakes| {
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
    Elicitation {
        message: message.unwrap_or_else(|| Expression::literal(Value::Null)),
        form: form.expression,
        schema: form.schema,
        on_decline: step.on_decline.unwrap_or_default(),
        on_cancel: step.on_cancel.unwrap_or_default(),
    }
}

/// Rejects retry delays, because questions are repeated without delay.
fn check_delays(step: &Step, at: &mut DefinitionPath<'_>) {
    let Some(OnError::Retry(retry)) = step.on_error else { return };
    let usual = Retry::times(retry.count);
    let mut at = at.within(["on_error"]);
    let with = "type = \"elicitation\"";
    at.meaningless("delay", retry.delay != usual.delay, with);
    at.meaningless("max_delay", retry.max_delay != usual.max_delay, with);
}
