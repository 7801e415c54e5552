//! Arrays in the member `result` of an object.
//!
//! Structured content must be an object. Some server frameworks, such as FastMCP, therefore wrap
//! other results in an object with the single member `result`.

use serde_json::Value;

use super::path_segment::{PathSegment, place};

pub(crate) const WRAPPED_ARRAY: &str = "an object whose only member is the array `result`";
pub(crate) const UNWRAPPED_ARRAY: &str = "an array, so append `.result`";

/// Returns `true` if the value is an object with an array `result` as its only member.
pub(crate) fn is_wrapped_array(value: &Value) -> bool {
    let members = value.as_object().filter(|members| members.len() == 1);
    members.and_then(|members| members.get("result")).is_some_and(Value::is_array)
}

/// Returns `true` if a path has no value because it lacks `result` before an index. For example,
/// `0` should be `result.0`.
pub(super) fn misses_result(mut value: &Value, path: &[PathSegment]) -> bool {
    for segment in path {
        match segment.of(value) {
            Some(part) => value = part,
            None => return is_index(segment) && is_wrapped_array(value),
        }
    }
    false
}

fn is_index(segment: &PathSegment) -> bool {
    match segment {
        PathSegment::Index(_) => true,
        PathSegment::Key(key) => place(key).is_some(),
    }
}
