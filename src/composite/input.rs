use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, ValidationError, Validator};
use rmcp::model::JsonObject;
use serde_json::Value;

use crate::message::{Refusal, Violation};

/// How many schemas within schemas are followed to find defaults.
const MAX_SCHEMA_DEPTH: usize = 32;
/// How many violations are looked for.
const MAX_VIOLATIONS: usize = 64;

/// Checks what a composite is called with.
#[derive(Debug)]
pub(super) struct Input {
    schema: Arc<JsonObject>,
    /// Compiled when it is first needed: most composites of a list are not called.
    validator: OnceLock<Option<Validator>>,
    has_defaults: bool,
}

/// Arguments that fit the schema, its defaults put in.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) arguments: Value,
    /// Which of the arguments are there only because they have a default.
    pub(super) defaulted: Vec<String>,
}

/// Tells why a schema cannot describe the input or output of a tool.
pub(super) fn reject_schema(schema: &JsonObject) -> Result<(), String> {
    match schema.get("type") {
        None => (),
        Some(Value::String(name)) if name == "object" => (),
        Some(other) => return Err(format!("its `type` is {other}: expected \"object\"")),
    }
    compile(&Value::Object(schema.clone())).map(drop).map_err(|error| {
        let path = error.instance_path().as_str();
        let place = if path.is_empty() { String::new() } else { format!(" (at `{path}`)") };
        format!("it is no valid JSON Schema: {error}{place}")
    })
}

/// The protocol wants the root of a tool's schema to say that it is an object.
pub(super) fn with_object_type(mut schema: JsonObject) -> JsonObject {
    schema.entry("type").or_insert_with(|| "object".into());
    schema
}

/// Compiles a schema, without touching network or files, and with the regular
/// expressions that need linear time.
fn compile(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    jsonschema::options().with_pattern_options(PatternOptions::regex()).build(schema)
}

/// Follows a `$ref` within the same schema.
pub(super) fn resolve<'s>(root: &'s JsonObject, mut schema: &'s Value) -> &'s Value {
    for _ in 0..MAX_SCHEMA_DEPTH {
        let Some(pointer) =
            schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/"))
        else {
            break;
        };
        let mut parts = pointer.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
        let first = parts.next().and_then(|part| root.get(&part));
        match parts.try_fold(first, |value, part| Some(value?.get(part))) {
            Some(Some(found)) => schema = found,
            _ => break,
        }
    }
    schema
}

// === impl Input ===

impl Input {
    pub(super) fn new(schema: Arc<JsonObject>) -> Self {
        let has_defaults = schema.values().any(|value| mentions_default(value, 0));
        Self { schema, validator: OnceLock::new(), has_defaults }
    }

    /// Puts in defaults and checks the result.
    ///
    /// # Errors
    ///
    /// Returns a refusal that tells every place where the arguments do not fit.
    pub(super) fn check(
        &self,
        tool: &str,
        arguments: Option<JsonObject>,
    ) -> Result<Checked, Refusal> {
        let mut arguments = Value::Object(arguments.unwrap_or_default());
        let mut defaulted = Vec::new();
        if self.has_defaults {
            let given: Vec<String> = keys(&arguments);
            let mut defaults = Defaults { root: &self.schema };
            defaults.apply_object(&self.schema, &mut arguments, 0);
            defaulted = keys(&arguments);
            defaulted.retain(|key| !given.contains(key));
        }

        let validator = self.validator.get_or_init(|| {
            compile(&Value::Object((*self.schema).clone()))
                .inspect_err(|error| {
                    tracing::warn!(tool, %error, "calls are not checked: the input schema cannot be used");
                })
                .ok()
        });
        match validator {
            Some(validator) if !validator.is_valid(&arguments) => Err(Refusal::InvalidArguments {
                tool: tool.to_owned().into(),
                violations: validator
                    .iter_errors(&arguments)
                    .take(MAX_VIOLATIONS)
                    .map(|error| Violation {
                        path: error.instance_path().as_str().to_owned(),
                        // What was sent stays out of answers and logs.
                        message: error.masked_with("the value").to_string(),
                    })
                    .collect(),
            }),
            _ => Ok(Checked { arguments, defaulted }),
        }
    }
}

fn keys(value: &Value) -> Vec<String> {
    value.as_object().map(|members| members.keys().cloned().collect()).unwrap_or_default()
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

/// Puts the defaults of a schema into a value.
struct Defaults<'s> {
    root: &'s JsonObject,
}

// === impl Defaults ===

impl Defaults<'_> {
    fn apply(&mut self, schema: &Value, value: &mut Value, depth: usize) {
        if depth > MAX_SCHEMA_DEPTH {
            return;
        }
        let root = self.root;
        let Value::Object(schema) = resolve(root, schema) else {
            return;
        };
        match value {
            Value::Object(_) => self.apply_object(schema, value, depth),
            Value::Array(elements) => {
                if let Some(items) = schema.get("items") {
                    for element in elements {
                        self.apply(items, element, depth + 1);
                    }
                }
            }
            _ => (),
        }
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.apply(part, value, depth + 1);
        }
    }

    fn apply_object(&mut self, schema: &JsonObject, value: &mut Value, depth: usize) {
        let (Some(Value::Object(properties)), Value::Object(members)) =
            (schema.get("properties"), value)
        else {
            return;
        };
        for (key, property) in properties {
            if !members.contains_key(key) {
                match resolve(self.root, property)
                    .get("default")
                    .or_else(|| property.get("default"))
                {
                    Some(default) => members.insert(key.clone(), default.clone()),
                    None => continue,
                };
            }
            if let Some(member) = members.get_mut(key) {
                self.apply(property, member, depth + 1);
            }
        }
    }
}
