//! Checks the defaults of arguments against the input schema of their tool.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::{
    arguments::{Arguments, first_of},
    schema::DEFINING,
};
use crate::{message::Refusal, schema::InputSchema};

/// A default value in an argument alias that violates the input schema of the tool.
pub(super) struct InvalidDefault {
    /// The name that the tool uses for the argument.
    pub(super) argument: String,
    /// The JSON Pointer to the invalid part of the default, such as `/0/name`. Empty if the whole
    /// value is invalid.
    pub(super) path: String,
    /// The description of the error. Does not contain the default, which may be secret.
    pub(super) violation: String,
}

/// Returns the defaults that violate the schemas of their arguments in `schema`, the input schema
/// of the tool. Checks each default on its own, so it ignores keywords such as `required` that
/// apply to the whole arguments object.
pub(super) fn invalid(schema: &JsonObject, arguments: &Arguments) -> Vec<InvalidDefault> {
    let declared = schema.get("properties").and_then(Value::as_object);
    let (mut defaults, mut properties) = (JsonObject::new(), JsonObject::new());
    for argument in arguments.iter() {
        let name = &argument.original;
        let property = declared.and_then(|declared| declared.get(name));
        if let (Some(default), Some(property)) = (&argument.default, property) {
            defaults.insert(name.clone(), default.clone());
            properties.insert(name.clone(), property.clone());
        }
    }
    if defaults.is_empty() {
        return Vec::new();
    }
    let defining = ["$schema"].iter().chain(&DEFINING).filter_map(|key| schema.get_key_value(*key));
    let mut reduced: JsonObject =
        defining.map(|(key, value)| (key.clone(), value.clone())).collect();
    reduced.insert("properties".to_owned(), Value::Object(properties));
    let checked = InputSchema::new(Arc::new(reduced)).check("", &Value::Object(defaults), drop);
    let Err(Refusal::InvalidArguments { violations, .. }) = checked else { return Vec::new() };
    let invalid = violations.into_iter().filter_map(|violation| {
        let (argument, path) = first_of(&violation.path)?;
        Some(InvalidDefault { argument, path: path.to_owned(), violation: violation.message })
    });
    invalid.collect()
}
