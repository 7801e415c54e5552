//! Checks the arguments of composite calls, and adds the defaults of the input schema for missing
//! arguments.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::{
    message::Refusal,
    schema::{self, InputSchema, walk::Walk},
    warnings::sanitize::Reason,
};

/// The maximum depth to which nested schemas are searched for defaults.
const MAX_SCHEMA_DEPTH: usize = 32;
/// The maximum number of subschemas that are visited while defaults are added to the arguments of
/// one call. This bounds the work for recursive schemas. Copying a large default counts as several
/// visits.
const MAX_DEFAULT_VISITS: usize = 10_000;
/// Copying this many bytes of a default counts as one visit of a subschema.
const BYTES_PER_VISIT: usize = 64;

/// The input schema of a tool. Checks the arguments of calls, and adds the defaults of the schema
/// to them.
#[derive(Debug)]
pub(super) struct Input {
    schema: InputSchema,
    has_defaults: bool,
}

/// Arguments that match an input schema. They include the defaults that the schema sets for missing
/// arguments.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) arguments: Value,
    /// The arguments as the caller passed them, without defaults. `None` if no defaults were added,
    /// or if [`Input::check`] was called with `keeps_given` set to `false`.
    pub(super) given: Option<Box<JsonObject>>,
}

/// Returns an error if a schema is not a valid JSON Schema or does not describe an object. Such a
/// schema cannot be the input or output schema of a tool.
pub(super) fn reject_schema(schema: &JsonObject) -> Result<(), String> {
    match schema.get("type") {
        None => (),
        Some(Value::String(name)) if name == "object" => (),
        Some(other) => return Err(format!("its `type` is {other}: expected \"object\"")),
    }
    schema::reject(schema).map_err(|unusable| format!("it is not a valid JSON Schema: {unusable}"))
}

/// Adds `"type": "object"` to the root of a schema if it has no type, because MCP requires this
/// type in the schemas of tools.
pub(super) fn with_object_type(mut schema: JsonObject) -> JsonObject {
    schema.entry("type").or_insert_with(|| "object".into());
    schema
}

// === impl Input ===

impl Input {
    pub(super) fn new(schema: Arc<JsonObject>) -> Self {
        let has_defaults = schema.values().any(|value| mentions_default(value, 0));
        Self { schema: InputSchema::new(schema), has_defaults }
    }

    /// Adds the defaults of the schema to the arguments, and then checks them. If `keeps_given` is
    /// `true`, the returned value also contains the original arguments.
    ///
    /// # Errors
    ///
    /// Returns a refusal that lists each violation of the schema with the path of the invalid
    /// argument.
    pub(super) fn check(
        &self,
        tool: &str,
        arguments: Option<JsonObject>,
        keeps_given: bool,
    ) -> Result<Checked, Refusal> {
        let arguments = arguments.unwrap_or_default();
        let given = (keeps_given && self.has_defaults).then(|| Box::new(arguments.clone()));
        let mut arguments = Value::Object(arguments);
        let is_changed = self.add_defaults(tool, &mut arguments);
        self.schema.check(tool, &arguments, |unusable| {
            let error = Reason(unusable);
            tracing::warn!(tool, %error, "arguments are not validated: the input schema is invalid");
        })?;
        Ok(Checked { arguments, given: given.filter(|_| is_changed) })
    }

    pub(super) const fn schema(&self) -> &Arc<JsonObject> {
        self.schema.schema()
    }

    /// Adds the schema's default for each missing argument. Also adds defaults for the missing
    /// members of objects that are nested in the arguments. Returns `true` if any default was
    /// added.
    pub(super) fn add_defaults(&self, tool: &str, arguments: &mut Value) -> bool {
        if !self.has_defaults {
            return false;
        }
        let walk = Walk::new(self.schema(), MAX_DEFAULT_VISITS);
        let mut defaults = Defaults { walk, has_added: false };
        defaults.apply(self.schema(), arguments, 0);
        if defaults.walk.is_exhausted() {
            tracing::warn!(tool, "some defaults are not applied: the input schema has too many");
        }
        defaults.has_added
    }

    /// Converts the arguments to the types that the schema declares, for example `"5"` to `5`, and
    /// then checks them; see [`InputSchema::fit`].
    ///
    /// # Errors
    ///
    /// Returns a refusal that lists each violation of the schema with the path of the invalid
    /// argument.
    pub(super) fn fit(&self, tool: &str, arguments: &mut Value) -> Result<(), Refusal> {
        self.schema.fit(tool, arguments, |unusable| {
            let error = Reason(unusable);
            tracing::warn!(tool, %error, "arguments are not coerced: the input schema is invalid");
        })
    }
}

fn mentions_default(schema: &Value, depth: usize) -> bool {
    if depth > MAX_SCHEMA_DEPTH {
        return false;
    }
    match schema {
        Value::Object(members) => members
            .iter()
            .any(|(key, value)| key == "default" || mentions_default(value, depth + 1)),
        Value::Array(elements) => {
            elements.iter().any(|element| mentions_default(element, depth + 1))
        }
        _ => false,
    }
}

/// Adds the defaults of a schema to a value. Visits the schema and the value together, and stops
/// when the number of visits is exhausted.
struct Defaults<'s> {
    walk: Walk<'s>,
    /// `true` if at least one default was added.
    has_added: bool,
}

// === impl Defaults ===

impl<'s> Defaults<'s> {
    /// Adds the defaults of `schema` to `value`, and to the values that are nested in it.
    fn apply(&mut self, schema: &'s JsonObject, value: &mut Value, depth: usize) {
        if depth > MAX_SCHEMA_DEPTH || !self.walk.take(1) {
            return;
        }
        for schema in self.applying(schema) {
            match value {
                Value::Object(members) => self.apply_members(schema, members, depth),
                Value::Array(elements) => {
                    for (index, element) in elements.iter_mut().enumerate() {
                        if let Some(Value::Object(schema)) = self.walk.element(schema, index) {
                            self.apply(schema, element, depth + 1);
                        }
                    }
                }
                _ => (),
            }
        }
    }

    fn apply_members(&mut self, schema: &'s JsonObject, members: &mut JsonObject, depth: usize) {
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        for (key, property) in properties {
            let Value::Object(property) = property else { continue };
            if !members.contains_key(key) {
                // A default next to a `$ref` takes precedence over the default in the referenced
                // schema.
                let mut applying = self.applying(property).into_iter();
                let Some(default) = applying.find_map(|schema| schema.get("default")) else {
                    continue;
                };
                // Copying counts as visits, because a large default can be copied into each element
                // of an array.
                if !self.walk.take(visits(default)) {
                    return;
                }
                members.insert(key.clone(), default.clone());
                self.has_added = true;
            }
            if let Some(member) = members.get_mut(key) {
                self.apply(property, member, depth + 1);
            }
        }
    }

    /// Returns `schema` and the subschemas that apply to the same value, such as those in `allOf`.
    fn applying(&mut self, schema: &'s JsonObject) -> Vec<&'s JsonObject> {
        let mut schemas = Vec::new();
        self.walk.collect(schema, &mut schemas);
        schemas
    }
}

/// Returns the number of visits that copying the default `value` counts as. A visit is counted for
/// each element and member, and for every [`BYTES_PER_VISIT`] bytes of a string.
fn visits(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() / BYTES_PER_VISIT,
        Value::Array(elements) => elements.len() + elements.iter().map(visits).sum::<usize>(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| 1 + name.len() / BYTES_PER_VISIT + visits(member))
            .sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cpu_time::ThreadTime;
    use serde_json::json;

    use super::*;

    fn input(schema: Value) -> Input {
        let Value::Object(schema) = schema else { panic!("no object") };
        Input::new(Arc::new(schema))
    }

    #[test]
    fn nested_and_combined_defaults_are_added() {
        let input = input(json!({
            "properties": { "a": { "default": 1 }, "b": { "default": 2 } },
            "allOf": [{ "properties": { "c": { "properties": { "d": { "default": 3 } } } } }],
        }));
        let mut arguments = json!({ "b": 0, "c": {} });
        assert!(input.add_defaults("t", &mut arguments));
        assert_eq!(arguments, json!({ "a": 1, "b": 0, "c": { "d": 3 } }));
    }

    #[test]
    fn defaults_of_many_arguments_are_added_in_linear_time() {
        let input = input(json!({ "properties": { "a": { "default": 1 } } }));
        let mut arguments: Value =
            (0..50_000).map(|n| (format!("k{n}"), json!(n))).collect::<JsonObject>().into();
        let begun = ThreadTime::now();
        assert!(input.add_defaults("t", &mut arguments));
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    #[test]
    fn large_default_is_copied_into_few_elements() {
        let default = "x".repeat(100_000);
        let item = json!({ "properties": { "a": { "default": default } } });
        let input = input(json!({ "properties": { "list": { "items": item } } }));
        let mut arguments = json!({ "list": vec![json!({}); 9_000] });
        input.add_defaults("t", &mut arguments);
        let list = arguments["list"].as_array().unwrap();
        let copies = list.iter().filter(|element| element.get("a").is_some()).count();
        assert!((1..10).contains(&copies), "{copies}");
    }
}
