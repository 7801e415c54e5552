//! Parses the arguments of a model's tool call, in the formats of all providers.

use rmcp::model::JsonObject;
use serde_json::Value;

use super::{
    call::{MalformedKind, Problem},
    limits::ParseLimits,
};
use crate::message::{content_size, is_deeper};

/// Parses call arguments, which are a JSON object or a string that contains a JSON object. If the
/// arguments are missing or blank, returns an empty object.
pub(super) fn read(arguments: Option<&Value>, limits: &ParseLimits) -> Result<JsonObject, Problem> {
    match arguments {
        None | Some(Value::Null) => Ok(JsonObject::new()),
        Some(Value::String(text)) => parse(text, limits),
        Some(arguments) => {
            // The depth is checked before the size, because measuring the size is recursive.
            if is_deeper(arguments, limits.max_depth) {
                return Err(limits.too_deep());
            }
            if content_size::of_value(arguments) > limits.max_bytes {
                return Err(limits.too_large());
            }
            arguments.as_object().cloned().ok_or_else(|| no_object(arguments))
        }
    }
}

fn parse(text: &str, limits: &ParseLimits) -> Result<JsonObject, Problem> {
    if text.len() > limits.max_bytes {
        return Err(limits.too_large());
    }
    if text.trim().is_empty() {
        return Ok(JsonObject::new());
    }
    match serde_json::from_str(text) {
        Ok(arguments) if is_deeper(&arguments, limits.max_depth) => Err(limits.too_deep()),
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(other) => Err(no_object(&other)),
        Err(error) => Err(no_json(&error)),
    }
}

/// Creates the problem for call arguments that are not valid JSON. `error` is the error of the JSON
/// parser.
pub(super) fn no_json(error: &serde_json::Error) -> Problem {
    // serde_json stops at 128 levels. This error can only be recognized by its message.
    if error.to_string().starts_with("recursion limit") {
        let message = "the arguments are nested deeper than can be read";
        return Problem::new(MalformedKind::OverLimit, message);
    }
    if error.is_eof() {
        return Problem::incomplete("the arguments are truncated");
    }
    Problem::new(MalformedKind::Arguments, format!("the arguments are not JSON: {error}"))
}

fn no_object(value: &Value) -> Problem {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    let message = format!("the arguments have to be an object, found {found}");
    Problem::new(MalformedKind::Arguments, message)
}
