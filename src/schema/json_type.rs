//! The types of JSON values, and conversions between them.

use serde_json::Value;

use crate::{
    expr::{
        json,
        number::{is_whole_float, parse_integer, parse_number, to_integer},
    },
    named::named,
};

/// A type of JSON values, as in the JSON Schema keyword `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonType {
    /// A JSON string.
    String,
    /// A number without a fraction.
    Integer,
    /// A number, with or without a fraction.
    Number,
    /// A boolean: `true` or `false`.
    Boolean,
    /// A JSON object.
    Object,
    /// A JSON array.
    Array,
}

// === impl JsonType ===

named! {
    JsonType {
        String => "string",
        Integer => "integer",
        Number => "number",
        Boolean => "boolean",
        Object => "object",
        Array => "array",
    }
}

impl JsonType {
    /// All types, in order of preference: if a schema allows several types, a value is converted to
    /// the first type for which this is possible.
    pub(crate) const BY_PREFERENCE: [Self; 6] =
        [Self::Integer, Self::Number, Self::Boolean, Self::Array, Self::Object, Self::String];

    /// Returns the name of the type with an indefinite article, such as `an object`.
    pub(crate) const fn described(self) -> &'static str {
        match self {
            Self::String => "a string",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::Object => "an object",
            Self::Array => "an array",
        }
    }

    /// Returns `true` if a value has this type. Floats such as `42.0` are not considered integers.
    /// JSON Schema accepts them as integers, but many tools reject them.
    pub(crate) fn includes(self, value: &Value) -> bool {
        match (self, value) {
            (Self::String, Value::String(_))
            | (Self::Number, Value::Number(_))
            | (Self::Boolean, Value::Bool(_))
            | (Self::Object, Value::Object(_))
            | (Self::Array, Value::Array(_)) => true,
            (Self::Integer, Value::Number(number)) => {
                to_integer(number).is_some() && !is_whole_float(number)
            }
            _ => false,
        }
    }

    /// Converts a value of another type to this type, for example the string `"42"` to an integer,
    /// or the float `42.0` to an integer. Returns `None` if the value cannot be converted
    /// unambiguously.
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
            (Self::Array, Value::String(text)) => parse_between(text, '[', ']'),
            (Self::Object, Value::String(text)) => parse_between(text, '{', '}'),
            (Self::String, Value::Number(_) | Value::Bool(_)) => {
                Some(Value::String(value.to_string()))
            }
            _ => None,
        }
    }

    /// Returns `value` unchanged if it already has this type. Otherwise, [converts](Self::convert)
    /// the value to this type. Returns `None` if this is not possible.
    pub(crate) fn coerce(self, value: Value) -> Option<Value> {
        if self.includes(&value) { Some(value) } else { self.convert(&value) }
    }
}

fn parse_between(text: &str, open: char, close: char) -> Option<Value> {
    let text = text.trim_ascii();
    if text.starts_with(open) && text.ends_with(close) { json::read(text) } else { None }
}
