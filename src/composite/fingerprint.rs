//! Fingerprints of definitions, which change when the behavior of a run changes.
//!
//! A suspended run can be resumed only by the definition that started it. Each type is destructured
//! without `..`, so that a new field does not compile until it is decided whether it counts.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    definition::{CompositeTool, Order, Strategy, Success, Target},
    output::{Output, OutputProperty},
    step::{Case, OnError, Otherwise, Retry, Step, Then, ToolCall},
};
use crate::{engine::plan::OnRefusal, fingerprint::Fingerprint};

/// Returns the fingerprint of a definition, without the composites that it calls.
pub(super) fn fingerprint(composite: &CompositeTool) -> Fingerprint {
    Fingerprint::of(&tool(composite))
}

#[expect(clippy::too_many_lines, reason = "one entry per key of a definition")]
fn tool(composite: &CompositeTool) -> Value {
    let CompositeTool {
        name,
        // Descriptions do not affect a run, so texts can be corrected while runs are suspended.
        description: _,
        title: _,
        annotations: _,
        output_schema: _,
        input_schema,
        timeout,
        max_calls,
        max_result_bytes,
        max_cost,
        on_limit,
        strategy,
        success,
        order,
        report,
        labels,
        trace,
        max_parallel,
        targets,
        steps,
        output,
        strict,
    } = composite;
    let mut value = json!({
        "name": name,
        "input_schema": input_schema,
        "timeout": timeout.map(duration),
        "strategy": match strategy {
            Strategy::Parallel => "parallel",
            Strategy::Sequential => "sequential",
            Strategy::Race => "race",
            Strategy::Fallback => "fallback",
            Strategy::Pipeline => "pipeline",
            Strategy::Workflow => "workflow",
        },
        "success": success.map(|success| match success {
            Success::All => json!("all"),
            Success::Any => json!("any"),
            Success::Quorum(quorum) => json!(quorum),
        }),
        "order": order.map(|order| match order {
            Order::Declared => "declared",
            Order::Completion => "completion",
        }),
        "report": report,
        "max_parallel": max_parallel,
        "targets": all(targets.as_deref(), target),
        "steps": all(steps.as_deref(), step),
        "output": output.as_ref().map(self::output),
        "strict": strict,
    });
    // Absent rather than null, so that runs that were suspended before these keys existed can
    // continue.
    for (key, given) in [
        ("max_calls", max_calls.map(Value::from)),
        ("max_result_bytes", max_result_bytes.map(Value::from)),
        ("max_cost", max_cost.map(Value::from)),
        ("on_limit", on_limit.map(|on_limit| on_limit.name().into())),
        ("labels", labels.map(|labels| labels.name().into())),
        ("trace", trace.map(|trace| trace.name().into())),
    ] {
        if let Some(given) = given {
            value[key] = given;
        }
    }
    value
}

fn target(target: &Target) -> Value {
    let Target { call, id, timeout, optional } = target;
    json!({
        "call": self::call(call),
        "id": id,
        "timeout": timeout.map(duration),
        "optional": optional,
    })
}

fn step(step: &Step) -> Value {
    let Step {
        id,
        kind,
        call,
        depends_on,
        condition,
        timeout,
        on_error,
        default_results,
        parse_json,
        collection,
        item_var,
        max_parallel,
        max_iterations,
        cases,
        default,
        message,
        schema,
        on_decline,
        on_cancel,
    } = step;
    json!({
        "id": id,
        "kind": kind.name(),
        "call": call.as_ref().map(self::call),
        "depends_on": depends_on,
        "condition": condition,
        "timeout": timeout.map(duration),
        "on_error": on_error.map(self::on_error),
        "default_results": given(default_results.as_ref()),
        "parse_json": parse_json,
        "collection": given(collection.as_ref()),
        "item_var": item_var,
        "max_parallel": max_parallel,
        "max_iterations": max_iterations,
        "cases": all(cases.as_deref(), case),
        "default": default.as_ref().map(|default| match default {
            Otherwise::Skip => json!("skip"),
            Otherwise::Call(call) => self::call(call),
        }),
        "message": message,
        "schema": given(schema.as_ref()),
        "on_decline": on_decline.map(on_refusal),
        "on_cancel": on_cancel.map(on_refusal),
    })
}

fn call(call: &ToolCall) -> Value {
    let ToolCall { tool, behind, arguments } = call;
    json!({ "tool": tool, "behind": behind, "arguments": given(arguments.as_ref()) })
}

fn case(case: &Case) -> Value {
    let Case { when, call } = case;
    json!({ "when": when, "call": self::call(call) })
}

fn on_error(on_error: OnError) -> Value {
    match on_error {
        OnError::Abort => json!("abort"),
        OnError::Continue => json!("continue"),
        OnError::Retry(Retry { count, delay, max_delay, then }) => json!({
            "count": count,
            "delay": duration(delay),
            "max_delay": duration(max_delay),
            "then": match then {
                Then::Abort => "abort",
                Then::Continue => "continue",
            },
        }),
    }
}

const fn on_refusal(on_refusal: OnRefusal) -> &'static str {
    match on_refusal {
        OnRefusal::Abort => "abort",
        OnRefusal::Continue => "continue",
        OnRefusal::SkipRemaining => "skip_remaining",
    }
}

fn output(output: &Output) -> Value {
    let Output { properties, required } = output;
    json!({ "properties": members(properties), "required": required })
}

/// As an array, because the order of properties matters.
fn members(properties: &[(String, OutputProperty)]) -> Value {
    properties.iter().map(|(name, property)| json!([name, self::property(property)])).collect()
}

fn property(property: &OutputProperty) -> Value {
    let OutputProperty {
        kind,
        // Ignored like the description of the composite.
        description: _,
        value,
        properties,
        default,
    } = property;
    json!({
        "kind": kind.map(|kind| kind.name()),
        "value": given(value.as_ref()),
        "properties": properties.as_deref().map(members),
        "default": given(default.as_ref()),
    })
}

fn all<T>(values: Option<&[T]>, of: impl Fn(&T) -> Value) -> Value {
    values.map(|values| values.iter().map(of).collect()).unwrap_or_default()
}

/// Encodes an optional value; null differs from `None`.
fn given(value: Option<&Value>) -> Value {
    value.map(|value| json!([value])).unwrap_or_default()
}

fn duration(duration: Duration) -> Value {
    json!([duration.as_secs(), duration.subsec_nanos()])
}

#[cfg(test)]
mod tests;
