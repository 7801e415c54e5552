//! Checks a value against a simple schema.

use serde_json::Value;

/// Keywords that do not affect whether a value fits.
const SILENT: [&str; 9] = [
    "$comment",
    "default",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
    "x-mcp-header",
];

/// Returns whether a value fits a schema, or `None` if this check cannot decide it.
pub(super) fn fits(schema: &Value, value: &Value) -> Option<bool> {
    let keywords = match schema {
        Value::Bool(all) => return Some(*all),
        Value::Object(keywords) => keywords,
        _ => return None,
    };
    let mut fits = Some(true);
    for (key, wanted) in keywords {
        let says = match (key.as_str(), wanted) {
            ("type", Value::String(name)) => is_of_type(value, name),
            ("type", Value::Array(names)) => names
                .iter()
                .map(|name| is_of_type(value, name.as_str()?))
                .try_fold(false, |any, is| Some(any || is?)),
            ("const", wanted) => is_same(wanted, value),
            ("enum", Value::Array(all)) => all
                .iter()
                .map(|wanted| is_same(wanted, value))
                .try_fold(false, |any, is| Some(any || is?)),
            (key, _) if SILENT.contains(&key) => Some(true),
            _ => None,
        };
        match says {
            Some(true) => (),
            Some(false) => return Some(false),
            None => fits = None,
        }
    }
    fits
}

fn is_of_type(value: &Value, name: &str) -> Option<bool> {
    Some(match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" if value.is_f64() => return None,
        "integer" => value.is_number(),
        _ => return None,
    })
}

/// Returns whether two values are equal, or `None` if they may differ only in the notation of
/// numbers, such as `1` and `1.0`.
fn is_same(one: &Value, other: &Value) -> Option<bool> {
    match (one, other) {
        (one, other) if one == other => Some(true),
        (Value::Number(_), Value::Number(_))
        | (Value::Array(_), Value::Array(_))
        | (Value::Object(_), Value::Object(_)) => None,
        _ => Some(false),
    }
}
