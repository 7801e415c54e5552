//! Computes the cost of the keywords of one subschema, in validation steps.
//!
//! A step is a unit of time of about ten nanoseconds. This is the time in which the validator
//! applies an empty schema to a value.

use std::collections::HashMap;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::pattern::{BYTES_PER_STEP, Pattern};

/// The cost of checking the `format` of a string, in validation steps for every [`BYTES_PER_STEP`]
/// bytes of the string.
const FORMAT: usize = 32;
/// The cost of decoding a string for the keywords `contentEncoding` and `contentMediaType`, in
/// validation steps for every [`BYTES_PER_STEP`] bytes of the string.
const CONTENT: usize = 128;
/// The cost in steps of looking up an object member by its name.
const LOOKUP: usize = 3;
/// The cost in steps of copying the name of an object member.
const NAME: usize = 4;
/// The cost in steps of a division for the keyword `multipleOf`.
const DIVISION: usize = 12;
/// The cost in steps of a division for the keyword `multipleOf` if the quotient has hundreds of
/// digits.
const LONG_DIVISION: usize = 300;
/// The cost in steps of adding an array element to the set in which the keyword `uniqueItems`
/// searches for duplicates.
const UNIQUE: usize = 16;

/// A JSON Schema instance: the value, or the name of an object member, to which the validator
/// applies a subschema.
#[derive(Clone, Copy)]
pub(super) enum Instance<'v> {
    Value(&'v Value),
    /// The name of an object member. The validator applies `propertyNames` to it, after it has
    /// copied the name into a string value.
    Name(&'v str),
}

/// The number of steps that the keywords of one subschema add to the validation of a value. Nested
/// subschemas are not included.
#[derive(Debug, Default)]
pub(super) struct Cost {
    /// The validation steps of keywords that apply to values of any type, such as `enum`.
    value: usize,
    /// The validation steps of keywords that apply to strings, such as `pattern`.
    text: Reading,
    /// The validation steps for looking up members of an object, as the keyword `required` does.
    lookups: usize,
    /// The validation steps for the name of each member of an object, because of keywords such as
    /// `patternProperties`.
    names: Reading,
    /// The validation steps of keywords that apply to numbers, such as `minimum`.
    number: usize,
    /// The additional validation steps of `multipleOf` for a number that is very large or very
    /// close to zero.
    long_number: usize,
    /// Whether the subschema contains `uniqueItems: true`. The number of steps for an array then
    /// depends on the size of its elements.
    is_unique: bool,
}

/// The cost of validating a string against the keywords of a schema, as a function of the length of
/// the string.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// The number of validation steps for any string, even an empty one.
    each: usize,
    /// The number of additional validation steps for every [`BYTES_PER_STEP`] bytes of the string.
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
                        // To find the members that match no pattern, the validator searches the
                        // names a second time.
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
                // Includes the cost of copying each name, which the validator does.
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

    /// Subtracts the steps for applying the keywords to `instance` from `left`. Returns `None` if
    /// too few steps are left.
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

/// Returns the factor by which looking up a member in this object takes longer than in a small
/// object.
pub(super) fn times(members: &JsonObject) -> usize {
    1 + 4 * (1 + members.len() / 512).ilog2() as usize
}

pub(super) fn take(left: &mut usize, steps: usize) -> Option<()> {
    *left = left.checked_sub(steps)?;
    Some(())
}

/// Subtracts the steps for comparing an array element with the other elements from `left`. The
/// keyword `uniqueItems` needs these comparisons. Returns `None` if too few steps are left.
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

/// Returns the number of steps that it takes to compare `value` with an equal value, for the
/// keywords `enum` and `const`.
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

/// Returns `true` if `multipleOf` is slow for a number, because the number is very large or very
/// close to zero.
fn is_extreme(number: f64) -> bool {
    let magnitude = number.abs();
    magnitude > 1e18 || (magnitude > 0.0 && magnitude < 1e-18)
}

fn is_text(value: &Value) -> bool {
    value.is_string() || value.is_null()
}

/// Iterates over the members of the object that is the value of the keyword `keyword` in a schema.
/// The iterator is empty if the keyword is missing, or if its value is not an object.
pub(super) fn members<'s>(
    schema: &'s JsonObject,
    keyword: &str,
) -> impl Iterator<Item = (&'s String, &'s Value)> {
    schema.get(keyword).and_then(Value::as_object).into_iter().flatten()
}
