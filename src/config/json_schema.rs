//! The JSON Schema of a configuration file, and functions that look up the schemas of its keys.

use std::sync::LazyLock;

use serde_json::Value;

/// The JSON Schema of configuration files, as JSON text.
pub(super) const JSON_SCHEMA: &str = include_str!("mcp-composite.schema.json");

/// The JSON Schema of configuration files, as a parsed value.
pub(super) static SCHEMA: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(JSON_SCHEMA).unwrap_or_default());

/// Returns the schemas for the value of `key` in a table. `schemas` are the schemas of the table.
/// The result is empty if none of them allows the key.
pub(super) fn schemas_of_key(schemas: &[&'static Value], key: &str) -> Vec<&'static Value> {
    let mut found = Vec::new();
    for schema in schemas {
        match schema["properties"].get(key) {
            Some(schema) => alternatives(schema, &mut found),
            None => free_members(schema).for_each(|schema| alternatives(schema, &mut found)),
        }
    }
    found
}

/// Returns the schema for the values of keys that `schema` does not list in `properties`. The
/// iterator has one element, or none if `schema` allows only listed keys.
pub(super) fn free_members(schema: &'static Value) -> impl Iterator<Item = &'static Value> {
    let is_object = || match schema.get("type") {
        None => schema.get("enum").is_none(),
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    let has_parts = || schema.get("properties").is_some() || schema.get("items").is_some();
    let members = match schema.get("additionalProperties") {
        Some(Value::Bool(false)) => None,
        Some(members) => Some(members),
        None => (is_object() && !has_parts()).then_some(&Value::Bool(true)),
    };
    members.into_iter()
}

/// Returns the schemas to which `schema` refers with `$ref`, or which it combines with `allOf`,
/// `anyOf` or `oneOf`. Returns `schema` itself if it has none of these keywords.
pub(super) fn resolved(schema: &'static Value) -> Vec<&'static Value> {
    let mut found = Vec::new();
    alternatives(schema, &mut found);
    found
}

/// Adds the schemas that [`resolved`] returns for `schema` to `found`. Also adds the schemas of
/// array elements, because users often write a single table where an array of tables is required.
fn alternatives(schema: &'static Value, found: &mut Vec<&'static Value>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let definition = reference.strip_prefix('#').and_then(|place| SCHEMA.pointer(place));
        definition.into_iter().for_each(|schema| alternatives(schema, found));
        return;
    }
    let mut is_choice = false;
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for schema in schema[keyword].as_array().into_iter().flatten() {
            is_choice = true;
            alternatives(schema, found);
        }
    }
    if let Some(elements) = schema.get("items") {
        alternatives(elements, found);
    }
    if !is_choice || schema.get("properties").is_some() {
        found.push(schema);
    }
}
