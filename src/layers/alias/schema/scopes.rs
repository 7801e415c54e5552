//! Finds the subschemas that describe a tool's arguments.

use std::{collections::HashSet, ptr};

use serde_json::Value;

use super::references::References;
use crate::alias::arguments::{Arguments, Fate};

/// The subschemas that describe the tool's arguments, even if they are also referred to elsewhere.
#[derive(Default)]
pub(super) struct Scopes {
    /// Schemas that describe all arguments, by address.
    of_all: HashSet<*const Value>,
    /// Schemas of an argument that clients do not see, by address.
    of_unseen: HashSet<*const Value>,
}

// === impl Scopes ===

impl Scopes {
    /// Collects the schemas by following every keyword that applies in place, each schema once.
    pub(super) fn new<'a>(
        root: &'a Value,
        references: &mut References<'a>,
        arguments: &Arguments,
    ) -> Self {
        let mut speaking = Self::default();
        let mut left = vec![root];
        while let Some(schema) = left.pop() {
            let Value::Object(members) = schema else { continue };
            if !speaking.of_all.insert(schema) {
                continue;
            }
            for (key, value) in members {
                match (key.as_str(), value) {
                    ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => left.extend(parts),
                    ("not" | "if" | "then" | "else", part) => left.push(part),
                    ("dependentSchemas" | "dependencies", Value::Object(parts)) => {
                        left.extend(parts.values());
                    }
                    ("$ref", Value::String(reference)) => {
                        left.extend(references.resolve(reference));
                    }
                    ("properties", Value::Object(properties)) => {
                        let unseen = properties.iter().filter(|(name, _)| {
                            matches!(arguments.fate(name), Fate::Hidden(_) | Fate::Shadowed)
                        });
                        speaking.of_unseen.extend(unseen.map(|(_, schema)| ptr::from_ref(schema)));
                    }
                    _ => (),
                }
            }
        }
        speaking
    }

    pub(super) fn is_of_all(&self, schema: &Value) -> bool {
        self.of_all.contains(&ptr::from_ref(schema))
    }

    pub(super) fn is_of_unseen(&self, schema: &Value) -> bool {
        self.of_unseen.contains(&ptr::from_ref(schema))
    }
}
