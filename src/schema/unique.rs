//! An implementation of the keyword `uniqueItems` whose time is linear in the size of the array.
//!
//! It replaces the implementation of the validator, which compares nested arrays with each other
//! even if their structure is different. For a few megabytes of empty arrays, these comparisons
//! take minutes.

use std::collections::HashSet;

use jsonschema::{Keyword, ValidationError, paths::Location};
use rmcp::model::JsonObject;
use serde_json::{Number, Value};

/// An implementation of the keyword `uniqueItems` that replaces the one of the `jsonschema` crate.
pub(super) struct UniqueItems {
    /// Whether `uniqueItems` is `true` in the schema. Otherwise, every array is valid.
    is_wanted: bool,
}

/// A form of a JSON value that can be hashed. Two forms are equal if JSON Schema considers the
/// values equal.
#[derive(PartialEq, Eq, Hash)]
enum Comparable<'v> {
    Null,
    Bool(bool),
    Integer(i128),
    Float(u64),
    Text(&'v str),
    Array(Vec<Self>),
    Object(Vec<(&'v str, Self)>),
}

// === impl UniqueItems ===

impl UniqueItems {
    pub(super) fn keyword<'s>(
        _: &'s JsonObject,
        value: &'s Value,
        _: Location,
    ) -> Result<Box<dyn for<'v> Keyword<'v>>, ValidationError<'s>> {
        Ok(Box::new(Self { is_wanted: *value == Value::Bool(true) }))
    }
}

impl<'v> Keyword<'v> for UniqueItems {
    fn validate(&self, value: &'v Value) -> Result<(), ValidationError<'v>> {
        if self.is_valid(value) {
            return Ok(());
        }
        Err(ValidationError::custom("has non-unique elements"))
    }

    fn is_valid(&self, value: &'v Value) -> bool {
        let Value::Array(elements) = value else { return true };
        let mut seen = HashSet::new();
        !self.is_wanted || elements.iter().all(|element| seen.insert(Comparable::new(element)))
    }
}

// === impl Comparable ===

impl<'v> Comparable<'v> {
    fn new(value: &'v Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::number(number),
            Value::String(text) => Self::Text(text),
            Value::Array(elements) => Self::Array(elements.iter().map(Self::new).collect()),
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| (name.as_str(), Self::new(value)));
                let mut members: Vec<_> = members.collect();
                members.sort_unstable_by_key(|(name, _)| *name);
                Self::Object(members)
            }
        }
    }

    /// Converts a number. Equal numbers have the same form, also if one is a float: JSON Schema
    /// considers `1.0` and `1` equal.
    fn number(number: &Number) -> Self {
        if let Some(integer) = number.as_i128() {
            return Self::Integer(integer);
        }
        let float = number.as_f64().unwrap_or(f64::NAN);
        #[expect(clippy::cast_possible_truncation, reason = "it is within the limits")]
        if float.fract() == 0.0 && float.abs() < 2_f64.powi(100) {
            return Self::Integer(float as i128);
        }
        Self::Float(float.to_bits())
    }
}
