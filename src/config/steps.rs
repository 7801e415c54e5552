//! Reads the steps of composites in the `[[composite_tools]]` section.

use serde_json::Value;

use super::table::{TableReader, Variants};
use crate::composite::{
    Action, Case, ComputedValue, Elicitation, Finally, ForEach, OnError, OnRefusal, Otherwise,
    Repeat, Retry, Step, Stop, Switch, ToolCall,
};

/// The keys that a step of any type can have, in addition to `type`.
pub(super) const STEP: [&str; 9] = [
    "id",
    "depends_on",
    "condition",
    "timeout",
    "on_error",
    "default_results",
    "finally",
    "retry_lost",
    "allow_flow",
];
/// The keys of the table `finally`, which makes a step a finally step.
pub(super) const FINALLY: [&str; 2] = ["grace", "on_cancel"];
/// The keys of a table that contains only a tool call.
pub(super) const CALL: [&str; 3] = ["tool", "arguments", "parse"];
/// The keys of a case of a switch step.
pub(super) const CASE: [&str; 4] = ["when", "tool", "arguments", "parse"];
/// The values of a step's `type`. Each value is listed with the keys that only steps of this type
/// can have, and with a function that reads these keys.
pub(super) const TYPES: &Variants<ReadAction> = &[
    (ToolCall::TYPE, &CALL, |table| Action::Tool(call(table))),
    (
        ForEach::TYPE,
        &[
            "collection",
            "item_var",
            "max_parallel",
            "max_iterations",
            "delay",
            "stop",
            "tool",
            "arguments",
            "parse",
        ],
        |table| Action::ForEach(for_each(table)),
    ),
    (
        Repeat::TYPE,
        &["until", "delay", "backoff", "max_delay", "max_iterations", "tool", "arguments", "parse"],
        |table| Action::Repeat(repeat(table)),
    ),
    (Switch::TYPE, &["cases", "default", "parse"], |table| Action::Switch(switch(table))),
    (Elicitation::TYPE, &["message", "schema", "on_decline", "on_cancel"], |table| {
        Action::Elicitation(elicitation(table))
    }),
    (ComputedValue::TYPE, &["value"], |table| Action::Value(computed_value(table))),
    (Stop::TYPE, &["message", "is_error", "output"], |table| Action::Stop(stop(table))),
];
/// The values of a step's `on_error`. Each value is listed with further keys of the `on_error`
/// table, and with a function that reads these keys.
pub(super) const ON_ERROR: &Variants<ReadOnError> = &[
    ("abort", &[], |_, _| OnError::Abort),
    ("continue", &[], |_, _| OnError::Continue),
    ("retry", &["retry_count", "delay", "max_delay", "then"], |asks, table| {
        let mut retry = if asks { retry_of_question(table) } else { retry(table) };
        table.set("then", &mut retry.then);
        OnError::Retry(retry)
    }),
];
/// The values of `on_error` for a target of a fan-out, listed like those in [`ON_ERROR`].
pub(super) const TARGET_ON_ERROR: &Variants<ReadRetry> =
    &[("retry", &["retry_count", "delay", "max_delay"], retry)];
/// The values of `on_decline` and `on_cancel` of an elicitation step. They define how the run
/// continues after the user has declined or canceled the question.
pub(super) const ON_REFUSAL: &Variants<OnRefusal> = &[
    ("abort", &[], OnRefusal::Abort),
    ("continue", &[], OnRefusal::Continue),
    ("skip_remaining", &[], OnRefusal::SkipRemaining),
];

/// A function that reads the action of a step, such as a tool call, from the table of the step.
type ReadAction = fn(&mut TableReader<'_, '_, '_>) -> Action;
/// A function that reads an `on_error` value of a step. The first argument is `true` if the step
/// asks the user a question. Such a step has no retry delay.
type ReadOnError = fn(bool, &mut TableReader<'_, '_, '_>) -> OnError;
/// A function that reads the retry settings of a target, such as the number of retries, from its
/// `on_error` table.
type ReadRetry = fn(&mut TableReader<'_, '_, '_>) -> Retry;

/// Reads a step of a pipeline or workflow.
pub(super) fn step(table: &mut TableReader<'_, '_, '_>) -> Step {
    let read = table.tag("type", Some(ToolCall::TYPE), &STEP, TYPES);
    if read.is_none() {
        // If the type is invalid, the valid and required keys of the step are unknown, so no errors
        // in them are reported.
        table.mute();
    }
    let id = table.text("id");
    let action = match read {
        Some(read) => read(table),
        None => Action::Tool(call(table)),
    };
    let mut step = Step::new(id, action);
    table.set("depends_on", &mut step.depends_on);
    table.set("condition", &mut step.condition);
    table.set("timeout", &mut step.timeout);
    step.default_results = table.literal("default_results");
    step.finally = finally(table);
    table.set("retry_lost", &mut step.retry_lost);
    table.set("allow_flow", &mut step.allow_flow);
    let asks = matches!(step.action, Action::Elicitation(_));
    let on_error =
        table.word_or_table("on_error", "action", ON_ERROR, |read, table| read(asks, table));
    step.on_error = on_error.unwrap_or_default();
    step
}

/// Reads the key `finally` of a step: `true`, or a table of settings. Returns `None` if the key is
/// missing or `false`, so that the step is not a finally step.
fn finally(table: &mut TableReader<'_, '_, '_>) -> Option<Finally> {
    if !table.is_table("finally") {
        return table.get::<bool>("finally").filter(|finally| *finally).map(|_| Finally::new());
    }
    table.table("finally", |table| {
        table.only(&FINALLY);
        let mut finally = Finally::new();
        table.set("grace", &mut finally.grace);
        table.set("on_cancel", &mut finally.on_cancel);
        finally
    })
}

/// Reads the tool name and the arguments of a tool call.
pub(super) fn call(table: &mut TableReader<'_, '_, '_>) -> ToolCall {
    let mut call = ToolCall::new(table.text("tool"));
    table.set("arguments", &mut call.arguments);
    table.set("parse", &mut call.parse);
    call
}

fn for_each(table: &mut TableReader<'_, '_, '_>) -> ForEach {
    // If the key is missing, uses a placeholder that causes no further errors.
    let collection = table.required("collection").unwrap_or_else(|| Value::Array(Vec::new()));
    let mut each = ForEach::new(collection, call(table));
    table.set("item_var", &mut each.item_var);
    table.set("max_parallel", &mut each.max_parallel);
    table.set("max_iterations", &mut each.max_iterations);
    table.set("delay", &mut each.delay);
    each.first_success = table.word("stop", &["first_success"]).is_some();
    each
}

fn repeat(table: &mut TableReader<'_, '_, '_>) -> Repeat {
    // A placeholder that causes no further errors and no remarks.
    let until = table.required("until").unwrap_or_else(|| "last is defined".to_owned());
    let mut repeat = Repeat::new(call(table), until);
    table.set("delay", &mut repeat.delay);
    table.set("backoff", &mut repeat.backoff);
    table.set("max_delay", &mut repeat.max_delay);
    table.set("max_iterations", &mut repeat.max_iterations);
    repeat
}

fn switch(table: &mut TableReader<'_, '_, '_>) -> Switch {
    table.require("cases");
    let cases = table.tables("cases", |table| {
        table.only(&CASE);
        // If the key is missing, uses a placeholder that causes no further errors.
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
    if let Some(format) = table.get("parse") {
        switch.calls_mut().for_each(|(_, call)| call.parse = Some(format));
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

fn computed_value(table: &mut TableReader<'_, '_, '_>) -> ComputedValue {
    ComputedValue::new(table.required::<Value>("value").unwrap_or_default())
}

fn stop(table: &mut TableReader<'_, '_, '_>) -> Stop {
    if !table.has("output") {
        if !table.has("message") {
            table.report("message", "missing key `message` or `output`: one of them is the result");
            table.mute();
        }
        let message = table.text("message");
        let is_error = table.get("is_error").unwrap_or_default();
        return if is_error { Stop::error(message) } else { Stop::message(message) };
    }
    for key in ["message", "is_error"] {
        if table.has(key) {
            table.report(key, format!("`{key}` cannot be used with `output`"));
        }
    }
    Stop::output(table.get::<Value>("output").unwrap_or_default())
}

fn retry(table: &mut TableReader<'_, '_, '_>) -> Retry {
    let mut retry = Retry::default();
    table.set("retry_count", &mut retry.count);
    table.set("max_delay", &mut retry.max_delay);
    // If the file sets only a short `max_delay`, the default `delay` must not exceed it.
    retry.delay = retry.delay.min(retry.max_delay);
    table.set("delay", &mut retry.delay);
    retry
}

/// Reads how often a question to the user is repeated after an error. Questions are repeated
/// immediately, so the keys for delays are reported as errors.
fn retry_of_question(table: &mut TableReader<'_, '_, '_>) -> Retry {
    let mut retry = Retry::default();
    table.set("retry_count", &mut retry.count);
    for key in ["delay", "max_delay"] {
        if table.has(key) {
            let message = "cannot be used with `type = \"elicitation\"`";
            table.report(key, format!("`{key}` {message}"));
        }
    }
    retry
}

fn on_refusal(key: &str, table: &mut TableReader<'_, '_, '_>) -> OnRefusal {
    table.word_or_table(key, "action", ON_REFUSAL, |on_refusal, _| on_refusal).unwrap_or_default()
}
