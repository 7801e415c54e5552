//! Encodes values in definitions as JSON, for the fingerprints of composites.

use std::time::Duration;

use serde_json::{Value, json};

/// Encodes an optional JSON value so that `None` and `Some(Value::Null)` have different encodings.
pub(super) fn encode_optional(value: Option<&Value>) -> Value {
    value.map(|value| json!([value])).unwrap_or_default()
}

/// Encodes a duration as JSON without loss of precision.
pub(super) fn encode_duration(duration: Duration) -> Value {
    json!([duration.as_secs(), duration.subsec_nanos()])
}
