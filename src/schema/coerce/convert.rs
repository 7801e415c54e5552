//! Conversions between JSON types.

use serde_json::Value;

use crate::expr::{
    json,
    number::{parse_integer, parse_number, to_integer},
};

/// A JSON Schema type that values can be converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Number,
    Boolean,
    Array,
    Object,
    String,
}

/// A conversion that a schema suggests for a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wish<'s> {
    Kind(Kind),
    /// One of the values of an `enum`, or a `const`.
    Value(&'s Value),
}

// === impl Kind ===

impl Kind {
    /// All types, in the order in which a list of types is tried.
    pub(super) const ALL: [Self; 6] =
        [Self::Integer, Self::Number, Self::Boolean, Self::Array, Self::Object, Self::String];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
            Self::String => "string",
        }
    }

    /// Converts a value to this type if the conversion is unambiguous: a text becomes a number if
    /// it is one in JSON, and a float becomes an integer if it is whole.
    pub(crate) fn convert(self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Self::Integer, Value::Number(number)) => to_integer(number).map(Value::Number),
            (Self::Integer, Value::String(text)) => parse_integer(text).map(Value::Number),
            (Self::Number, Value::String(text)) => parse_number(text).map(Value::Number),
            (Self::Boolean, Value::String(text)) => match text.as_str() {
                "true" | "1" => Some(Value::Bool(true)),
                "false" | "0" => Some(Value::Bool(false)),
                _ => None,
            },
            (Self::Array, Value::String(text)) => read(text, '[', ']'),
            (Self::Object, Value::String(text)) => read(text, '{', '}'),
            (Self::String, Value::Number(_) | Value::Bool(_)) => {
                Some(Value::String(value.to_string()))
            }
            _ => None,
        }
    }
}

// === impl Wish ===

impl Wish<'_> {
    pub(super) fn convert(self, value: &Value) -> Option<Value> {
        match self {
            Wish::Kind(kind) => kind.convert(value),
            Wish::Value(wanted) => {
                let spelt = wanted.to_string();
                (value.as_str()? == spelt).then(|| wanted.clone())
            }
        }
    }
}

fn read(text: &str, open: char, close: char) -> Option<Value> {
    let text = text.trim_ascii();
    if text.starts_with(open) && text.ends_with(close) { json::read(text) } else { None }
}
