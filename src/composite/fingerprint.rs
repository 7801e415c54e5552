//! Computes fingerprints of composite definitions. A change that may affect a run, such as another
//! timeout, changes the fingerprint. A corrected description does not.
//!
//! A suspended run may be resumed only with an unchanged definition, which is checked by comparing
//! fingerprints. Each type is destructured without `..`, so that no field is forgotten: a new field
//! causes a compile error until it is included in the fingerprint or explicitly ignored.

use serde_json::{Value, json};

use super::{
    definition::CompositeTool,
    encoding::{encode_duration, encode_optional},
    output::{Output, OutputProperty, PropertySource},
    step::{OnError, Retry, Step},
    strategy::{Fallback, FanOut, Pipeline, Race, Strategy, Success, Target, Workflow},
};
use crate::{
    engine::{limits::RunLimits, plan::Finally},
    fingerprint::Fingerprint,
};

/// Returns the fingerprint of one definition. The composites that it calls are not included.
pub(super) fn fingerprint(composite: &CompositeTool) -> Fingerprint {
    let CompositeTool {
        name,
        // Descriptions do not affect a run. Ignoring them allows corrections while runs are
        // suspended.
        description: _,
        title: _,
        annotations: _,
        output_schema: _,
        // A hash of secret values could be used to guess them.
        variables: _,
        // Only determines how the client receives the result.
        task: _,
        input_schema,
        timeout,
        limits: RunLimits { max_calls, max_result_bytes, max_cost },
        on_limit,
        strategy: by,
        trace,
        strict,
    } = composite;
    Fingerprint::of(&json!({
        "name": name,
        "input_schema": input_schema,
        "timeout": encode_duration(*timeout),
        "limits": [max_calls, max_result_bytes, max_cost],
        "on_limit": on_limit.name(),
        "strategy": [by.name(), strategy(by)],
        "trace": trace.name(),
        "strict": strict,
    }))
}

fn strategy(strategy: &Strategy) -> Value {
    match strategy {
        Strategy::FanOut(FanOut { targets, success, order, report, labels, max_parallel }) => {
            json!({
                "targets": all(targets, target),
                "success": match success {
                    Success::All => json!("all"),
                    Success::Any => json!("any"),
                    Success::Quorum(quorum) => json!(quorum),
                },
                "order": order.name(),
                "report": report,
                "labels": labels.name(),
                "max_parallel": max_parallel,
            })
        }
        Strategy::Race(Race { targets, max_parallel }) => {
            json!({ "targets": all(targets, target), "max_parallel": max_parallel })
        }
        Strategy::Fallback(Fallback { targets }) => json!({ "targets": all(targets, target) }),
        Strategy::Pipeline(Pipeline { steps, output, report }) => json!({
            "steps": all(steps, step),
            "output": output.as_ref().map(self::output),
            "report": report,
        }),
        Strategy::Workflow(Workflow { steps, output, report, max_parallel }) => json!({
            "steps": all(steps, step),
            "output": output.as_ref().map(self::output),
            "report": report,
            "max_parallel": max_parallel,
        }),
    }
}

fn target(target: &Target) -> Value {
    let Target {
        call,
        id,
        timeout,
        optional,
        retry,
        retry_lost,
        // Checked before any run, and without effect on a run.
        allow_flow: _,
    } = target;
    let mut encoded = json!({
        "call": call.encode(),
        "id": id,
        "timeout": encode_duration(*timeout),
        "optional": optional,
        "retry": retry.map(self::retry),
    });
    // Other targets keep the fingerprint that they had before this option existed.
    if *retry_lost {
        encoded["retry_lost"] = true.into();
    }
    encoded
}

fn step(step: &Step) -> Value {
    let Step {
        id,
        action,
        depends_on,
        condition,
        timeout,
        on_error,
        default_results,
        finally,
        retry_lost,
        // Ignored for the same reason as that of a target.
        allow_flow: _,
    } = step;
    let mut encoded = json!({
        "id": id,
        "action": [action.name(), action.encode()],
        "depends_on": depends_on,
        "condition": condition,
        "timeout": timeout.map(encode_duration),
        "on_error": self::on_error(*on_error),
        "default_results": encode_optional(default_results.as_ref()),
    });
    // Other steps keep the fingerprint that they had before these options existed.
    if let Some(Finally { grace, on_cancel }) = finally {
        encoded["finally"] = encode_duration(*grace);
        if *on_cancel {
            encoded["on_cancel"] = true.into();
        }
    }
    if *retry_lost {
        encoded["retry_lost"] = true.into();
    }
    encoded
}

fn on_error(on_error: OnError) -> Value {
    match on_error {
        OnError::Abort => json!("abort"),
        OnError::Continue => json!("continue"),
        OnError::Retry(retry) => self::retry(retry),
    }
}

fn retry(Retry { count, delay, max_delay, then }: Retry) -> Value {
    json!({
        "count": count,
        "delay": encode_duration(delay),
        "max_delay": encode_duration(max_delay),
        "then": then.name(),
    })
}

fn output(output: &Output) -> Value {
    let Output { properties, required, content } = output;
    let mut output = json!({ "properties": members(properties), "required": required });
    if !content.is_empty() {
        output["content"] = json!(content);
    }
    output
}

/// Encodes the properties of an output block as a JSON array, because an object would lose their
/// order.
fn members(properties: &[(String, OutputProperty)]) -> Value {
    all(properties, |(name, property)| json!([name, self::property(property)]))
}

fn property(property: &OutputProperty) -> Value {
    let OutputProperty {
        source,
        // Ignored for the same reason as the description of the composite.
        description: _,
        default,
    } = property;
    json!({
        "source": match source {
            PropertySource::Value(kind, value) => json!([kind.name(), value]),
            PropertySource::Properties(properties) => members(properties),
        },
        "default": encode_optional(default.as_ref()),
    })
}

fn all<T>(values: &[T], of: impl Fn(&T) -> Value) -> Value {
    values.iter().map(of).collect()
}

#[cfg(test)]
mod tests;
