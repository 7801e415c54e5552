//! What the keywords of one schema cost to check, in steps.
//!
//! A step is what it takes to apply an empty schema to a value, some ten nanoseconds.

use std::collections::HashMap;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::{Instance, members, pattern::Pattern};

/// How many bytes of text are compared in the time of a step.
pub(super) const BYTES_PER_STEP: usize = 64;
/// What it costs to check the format of so many bytes.
const FORMAT: usize = 32;
/// What it costs to read so many bytes as something else.
const CONTENT: usize = 128;
/// What it costs to find a member by its name.
const LOOKUP: usize = 3;
/// The cost to copy the name of a member.
const NAME: usize = 4;
/// The cost to divide a number.
const DIVISION: usize = 12;
/// The cost if the quotient has hundreds of digits.
const LONG_DIVISION: usize = 300;
/// What it costs to keep an element of an array for the comparison with the others.
const UNIQUE: usize = 16;

/// What the keywords of one schema cost, without the schemas that they apply.
#[derive(Debug, Default)]
pub(super) struct Cost {
    /// The values that any value is compared with.
    value: usize,
    /// Texts are searched, measured or compared.
    text: Reading,
    /// The names that are looked up in an object.
    lookups: usize,
    /// The names of members are searched or compared.
    names: Reading,
    /// A number is compared or divided.
    number: usize,
    /// Additional steps for a number that is very large or close to zero.
    long_number: usize,
    /// The elements of an array are compared with each other.
    is_unique: bool,
}

/// What it costs to read a text.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    each: usize,
    /// For each [`BYTES_PER_STEP`].
    long: usize,
}

// === impl Cost ===

impl Cost {
    pub(super) fn new(schema: &JsonObject, patterns: &HashMap<&str, Pattern>) -> Self {
        let mut cost = Self {
            is_unique: schema.get("uniqueItems") == Some(&Value::Bool(true)),
            ..Self::default()
        };
        for (keyword, value) in schema {
            match (keyword.as_str(), value) {
                ("enum", Value::Array(values)) if values.iter().all(is_text) => {
                    cost.text.add(Reading { each: 2, long: 1 });
                }
                ("enum" | "const", value) => cost.value += size(value),
                ("type", Value::Array(names)) => cost.value += names.len() / 8,
                ("minLength" | "maxLength", _) => cost.text.add(Reading { each: 0, long: 1 }),
                ("format", _) => cost.text.add(Reading { each: 8, long: FORMAT }),
                ("contentMediaType" | "contentEncoding", _) => {
                    cost.text.add(Reading { each: 8, long: CONTENT });
                }
                ("pattern", Value::String(pattern)) => cost.text.add_search(patterns, pattern),
                ("patternProperties", Value::Object(named)) => {
                    for pattern in named.keys() {
                        cost.names.add_search(patterns, pattern);
                        // They are searched again for what is left over.
                        cost.names.add_search(patterns, pattern);
                    }
                }
                ("properties", Value::Object(named)) => {
                    cost.lookups +=
                        named.keys().map(|name| name.len() / BYTES_PER_STEP).sum::<usize>();
                }
                ("additionalProperties" | "unevaluatedProperties", _) => {
                    cost.names.add(Reading { each: LOOKUP, long: 1 });
                }
                // Each name is copied.
                ("propertyNames", _) => cost.names.add(Reading { each: NAME, long: 1 }),
                ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum", _) => {
                    cost.number += 1;
                }
                ("multipleOf", multiple) => {
                    cost.number += DIVISION;
                    cost.long_number += LONG_DIVISION;
                    if multiple.as_f64().is_some_and(is_extreme) {
                        cost.number += LONG_DIVISION;
                    }
                }
                ("required", Value::Array(names)) => cost.lookups += lookups(names),
                ("dependentRequired" | "dependencies" | "dependentSchemas", _) => {
                    for (name, required) in members(schema, keyword) {
                        cost.lookups += lookup(name);
                        cost.lookups += required.as_array().map_or(0, |names| lookups(names));
                    }
                }
                _ => (),
            }
        }
        cost
    }

    /// Takes what it costs to check a value; none if that is more than is left.
    pub(super) fn charge(&self, instance: Instance<'_>, left: &mut usize) -> Option<()> {
        take(left, self.value)?;
        let value = match instance {
            Instance::Value(value) => value,
            Instance::Name(name) => return take(left, self.text.of(name)),
        };
        match value {
            Value::String(text) => take(left, self.text.of(text)),
            Value::Number(number) => {
                take(left, self.number)?;
                match self.long_number {
                    0 => Some(()),
                    more if number.as_f64().is_some_and(is_extreme) => take(left, more),
                    _ => Some(()),
                }
            }
            Value::Array(elements) if self.is_unique => {
                elements.iter().try_for_each(|element| take_size(element, left))
            }
            Value::Object(members) => {
                take(left, self.lookups.saturating_mul(times(members)))?;
                if self.names.is_none() {
                    return Some(());
                }
                members.keys().try_for_each(|name| take(left, self.names.of(name)))
            }
            _ => Some(()),
        }
    }
}

// === impl Reading ===

impl Reading {
    const fn add(&mut self, other: Self) {
        self.each = self.each.saturating_add(other.each);
        self.long = self.long.saturating_add(other.long);
    }

    fn add_search(&mut self, patterns: &HashMap<&str, Pattern>, pattern: &str) {
        let long = patterns.get(pattern).map_or(0, |pattern| pattern.cost());
        self.add(Self { each: 4, long });
    }

    const fn is_none(self) -> bool {
        self.each == 0 && self.long == 0
    }

    const fn of(self, text: &str) -> usize {
        self.each.saturating_add(self.long.saturating_mul(text.len()) / BYTES_PER_STEP)
    }
}

/// How much longer it takes to find a member of this object than one of a small one.
pub(super) fn times(members: &JsonObject) -> usize {
    1 + 4 * (1 + members.len() / 512).ilog2() as usize
}

pub(super) fn take(left: &mut usize, steps: usize) -> Option<()> {
    *left = left.checked_sub(steps)?;
    Some(())
}

/// Takes what it costs to compare a value with many others.
fn take_size(value: &Value, left: &mut usize) -> Option<()> {
    take(left, UNIQUE)?;
    match value {
        Value::String(text) => take(left, text.len() / 8),
        Value::Array(elements) => elements.iter().try_for_each(|element| take_size(element, left)),
        Value::Object(members) => members.iter().try_for_each(|(name, member)| {
            take(left, name.len() / 8)?;
            take_size(member, left)
        }),
        _ => Some(()),
    }
}

/// What it costs to compare a value with another that can be as large.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len() / BYTES_PER_STEP,
        Value::Array(elements) => elements.iter().map(size).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| lookup(name) + size(member)).sum()
        }
        _ => 0,
    }
}

fn lookups(names: &[Value]) -> usize {
    names.iter().filter_map(Value::as_str).map(lookup).sum()
}

const fn lookup(name: &str) -> usize {
    LOOKUP + name.len() / BYTES_PER_STEP
}

/// Whether a number is written with many digits.
fn is_extreme(number: f64) -> bool {
    let magnitude = number.abs();
    magnitude > 1e18 || (magnitude > 0.0 && magnitude < 1e-18)
}

fn is_text(value: &Value) -> bool {
    value.is_string() || value.is_null()
}
