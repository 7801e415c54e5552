//! The schemas of the outputs of fan-outs and steps.

use rmcp::{model::JsonObject, object};
use serde_json::{Map, Value, json};

use crate::engine::plan::LoopPlan;

/// Returns the output schema of a fan-out, which describes the report of its branches. `ids` are
/// the ids of the branches.
pub(super) fn report_schema<'a>(ids: impl Iterator<Item = &'a str> + Clone) -> JsonObject {
    let branch = json!({
        "type": "object",
        "properties": {
            "status": { "enum": ["completed", "failed", "timed_out", "skipped", "cancelled"] },
            "output": { "description": "The result of the tool: its structured content, or its text." },
            "error": error_schema(),
        },
        "required": ["status"],
    });
    let branches: Map<_, _> =
        ids.clone().map(|id| (id.to_owned(), json!({ "$ref": "#/$defs/branch" }))).collect();
    object!({
        "type": "object",
        "properties": {
            "branches": {
                "type": "object",
                "properties": branches,
                "required": ids.collect::<Vec<_>>(),
                "additionalProperties": false,
            },
        },
        "required": ["branches"],
        "$defs": { "branch": branch },
    })
}

/// Returns the schema of the output of a step that is a loop.
pub(super) fn loop_schema(each: &LoopPlan) -> JsonObject {
    let mut iteration = json!({
        "type": "object",
        "properties": {
            "index": { "type": "integer" },
            "status": { "enum": ["completed", "failed", "timed_out", "skipped", "cancelled"] },
            "output": {},
            "error": error_schema(),
        },
        "required": ["index", "status"],
    });
    if each.as_repeat().is_some() {
        return repeat_schema(&iteration);
    }
    iteration["properties"]["item"] = json!({});
    iteration["required"] = json!(["index", "item", "status"]);
    let count = json!({ "type": "integer" });
    let mut schema = object!({
        "type": "object",
        "properties": {
            "iterations": { "type": "array", "items": iteration },
            "count": count,
            "completed": count,
            "failed": count,
            "skipped": count,
            "cancelled": count,
        },
        "required": ["iterations", "count", "completed", "failed"],
    });
    if each.ends_at_success() {
        schema["properties"]["first_success"] = iteration;
        schema["required"] = json!(["iterations", "count", "completed", "failed", "first_success"]);
    }
    schema
}

/// Returns the schema of the output of a loop that repeats a call until a condition holds.
/// `iteration` is the schema of one element of `iterations`.
fn repeat_schema(iteration: &Value) -> JsonObject {
    object!({
        "type": "object",
        "properties": {
            "last": {},
            "iterations": { "type": "array", "items": iteration },
            "count": { "type": "integer" },
        },
        "required": ["last", "iterations", "count"],
    })
}

/// Returns the schema of an elicitation step's output. `form` is the schema of the step's form.
pub(super) fn answer_schema(form: &JsonObject) -> JsonObject {
    let mut content = form.clone();
    // `$schema` is valid only at the root of a document.
    content.remove("$schema");
    object!({
        "type": "object",
        "properties": {
            "action": { "enum": ["accept", "decline", "cancel", "timeout"] },
            "content": content,
        },
        "required": ["action"],
    })
}

/// Returns the schema of the error of a failed step, as it appears in reports and in the outputs of
/// loops.
fn error_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "kind": {
                "enum": [
                    "tool", "protocol", "service", "panic", "timeout", "limit", "definition",
                    "declined", "dismissed", "lost",
                ],
            },
            "message": { "type": "string" },
            "code": { "type": "integer" },
            "data": {},
        },
        "required": ["kind", "message"],
    })
}
