//! The steps of `[[composite_tools]]`.

use serde_json::Value;

use super::table::{TableReader, Variants};
use crate::composite::{
    Action, Case, Elicitation, ForEach, OnError, OnRefusal, Otherwise, Retry, Step, Switch,
    ToolCall,
};

/// The keys of all steps.
pub(super) const STEP: [&str; 6] =
    ["id", "depends_on", "condition", "timeout", "on_error", "default_results"];
/// The keys of a call without other keys.
pub(super) const CALL: [&str; 3] = ["tool", "arguments", "parse"];
/// The keys of a case of a switch.
pub(super) const CASE: [&str; 4] = ["when", "tool", "arguments", "parse"];
/// The types of steps, with their keys.
pub(super) const TYPES: &Variants = &[
    ("tool", &CALL),
    (
        "for_each",
        &["collection", "item_var", "max_parallel", "max_iterations", "tool", "arguments", "parse"],
    ),
    ("switch", &["cases", "default", "parse"]),
    ("elicitation", &["message", "schema", "on_decline", "on_cancel"]),
];
/// The actions after an error, with their keys.
pub(super) const ON_ERROR: &Variants =
    &[("abort", &[]), ("continue", &[]), ("retry", &["retry_count", "delay", "max_delay", "then"])];
/// The actions after a refusal.
pub(super) const ON_REFUSAL: &Variants =
    &[("abort", &[]), ("continue", &[]), ("skip_remaining", &[])];

/// Reads a step of a pipeline or workflow.
pub(super) fn step(table: &mut TableReader<'_, '_, '_>) -> Step {
    let kind = table.tag("type", Some("tool"), &STEP, TYPES);
    if kind.is_none() {
        // The valid and required keys depend on the type.
        table.mute();
    }
    let id = table.text("id");
    let action = match kind {
        Some("for_each") => Action::ForEach(for_each(table)),
        Some("switch") => Action::Switch(switch(table)),
        Some("elicitation") => Action::Elicitation(elicitation(table)),
        _ => Action::Tool(call(table)),
    };
    let mut step = Step::new(id, action);
    table.set("depends_on", &mut step.depends_on);
    table.set("condition", &mut step.condition);
    table.set("timeout", &mut step.timeout);
    table.set("default_results", &mut step.default_results);
    let asks = matches!(step.action, Action::Elicitation(_));
    let on_error = table.word_or_table("on_error", "action", ON_ERROR, |action, table| {
        on_error(action, asks, table)
    });
    step.on_error = on_error.unwrap_or_default();
    step
}

/// Reads the tool and the arguments of a call.
pub(super) fn call(table: &mut TableReader<'_, '_, '_>) -> ToolCall {
    let mut call = ToolCall::new(table.text("tool"));
    table.set("arguments", &mut call.arguments);
    call.parse_json = parses_json(table);
    call
}

fn parses_json(table: &mut TableReader<'_, '_, '_>) -> bool {
    table.word("parse", &["json"]).is_some()
}

fn for_each(table: &mut TableReader<'_, '_, '_>) -> ForEach {
    // A placeholder that causes no other mistake.
    let collection = table.required("collection").unwrap_or_else(|| Value::Array(Vec::new()));
    let mut each = ForEach::new(collection, call(table));
    table.set("item_var", &mut each.item_var);
    table.set("max_parallel", &mut each.max_parallel);
    table.set("max_iterations", &mut each.max_iterations);
    each
}

fn switch(table: &mut TableReader<'_, '_, '_>) -> Switch {
    table.require("cases");
    let cases = table.tables("cases", |table| {
        table.only(&CASE);
        // A placeholder that causes no other mistake.
        let when = table.required("when").unwrap_or_else(|| "true".to_owned());
        Case::new(when, call(table))
    });
    table.require("default");
    let default = if table.is_text("default") {
        table.word("default", &["skip"]);
        Otherwise::Skip
    } else {
        let call = table.table("default", |table| {
            table.only(&CALL);
            call(table)
        });
        call.map_or(Otherwise::Skip, Otherwise::Call)
    };
    let mut switch = Switch::new(cases.unwrap_or_default(), default);
    if parses_json(table) {
        switch.calls_mut().for_each(|(_, call)| call.parse_json = true);
    }
    switch
}

fn elicitation(table: &mut TableReader<'_, '_, '_>) -> Elicitation {
    let message = table.text("message");
    let schema = table.get("schema").unwrap_or_default();
    let mut ask = Elicitation::new(message, Value::Object(schema));
    ask.on_decline = on_refusal("on_decline", table);
    ask.on_cancel = on_refusal("on_cancel", table);
    ask
}

fn on_error(action: &str, asks: bool, table: &mut TableReader<'_, '_, '_>) -> OnError {
    match action {
        "abort" => OnError::Abort,
        "continue" => OnError::Continue,
        _ => {
            let mut retry = Retry::default();
            table.set("retry_count", &mut retry.count);
            table.set("then", &mut retry.then);
            if asks {
                for key in ["delay", "max_delay"] {
                    if table.has(key) {
                        let message = "has no meaning with `type = \"elicitation\"`";
                        table.report(key, format!("`{key}` {message}"));
                    }
                }
                return OnError::Retry(retry);
            }
            table.set("max_delay", &mut retry.max_delay);
            // A short `max_delay` without `delay` also bounds the first delay.
            retry.delay = retry.delay.min(retry.max_delay);
            table.set("delay", &mut retry.delay);
            OnError::Retry(retry)
        }
    }
}

fn on_refusal(key: &str, table: &mut TableReader<'_, '_, '_>) -> OnRefusal {
    let on_refusal = table.word_or_table(key, "action", ON_REFUSAL, |action, _| match action {
        "abort" => OnRefusal::Abort,
        "continue" => OnRefusal::Continue,
        _ => OnRefusal::SkipRemaining,
    });
    on_refusal.unwrap_or_default()
}
