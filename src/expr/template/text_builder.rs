//! Builds strings of limited size.

use std::io;

use serde_json::Value as Json;

use super::{
    budget::{Budget, Evaluated, Failure, MAX_RENDERED_BYTES, nothing},
    value::Value,
};

/// Builds the string that a template produces. It has at most [`MAX_RENDERED_BYTES`] bytes.
#[derive(Debug, Default)]
pub(super) struct TextBuilder {
    text: String,
}

// === impl TextBuilder ===

impl TextBuilder {
    pub(super) fn push(&mut self, text: &str) -> Evaluated<()> {
        if self.text.len() + text.len() > MAX_RENDERED_BYTES {
            return Err(Failure::TooLarge);
        }
        self.text.push_str(text);
        Ok(())
    }

    /// Appends a value. Strings are appended without quotes, and other values as JSON.
    pub(super) fn push_value(&mut self, budget: &Budget, value: &Value<'_>) -> Evaluated<()> {
        match value.as_str() {
            Some(text) => self.push(text),
            None => self.push_quoted(budget, value),
        }
    }

    /// Appends a JSON value from the data of the run. Strings are appended without quotes, and
    /// other values as JSON.
    pub(super) fn push_data(&mut self, value: &Json) -> Evaluated<()> {
        match value {
            Json::String(text) => self.push(text),
            other => self.push_json(other),
        }
    }

    /// Appends a value as JSON. Unlike in [`push_value`](Self::push_value), strings have quotes.
    pub(super) fn push_quoted(&mut self, budget: &Budget, value: &Value<'_>) -> Evaluated<()> {
        budget.nested(|| self.push_nested(budget, value))
    }

    fn push_nested(&mut self, budget: &Budget, value: &Value<'_>) -> Evaluated<()> {
        budget.step(1)?;
        match value {
            Value::Undefined => Err(nothing()),
            Value::Null => self.push("null"),
            Value::Bool(truth) => self.push(if *truth { "true" } else { "false" }),
            Value::Integer(_) | Value::Float(_) => self.push(&value.to_number()?.to_string()),
            Value::Text(text) => self.push_json(&**text),
            Value::Array(elements) => self.push_json(elements),
            Value::Object(members) => self.push_json(members),
            Value::Map(members) => {
                self.push("{")?;
                for (index, (name, member)) in members.iter().enumerate() {
                    self.push(if index == 0 { "" } else { "," })?;
                    self.push_json(&**name)?;
                    self.push(":")?;
                    self.push_quoted(budget, member)?;
                }
                self.push("}")
            }
            Value::List(_) | Value::Group(_) => {
                self.push("[")?;
                for (index, element) in value.iterate(budget)?.enumerate() {
                    self.push(if index == 0 { "" } else { "," })?;
                    self.push_quoted(budget, &element?)?;
                }
                self.push("]")
            }
        }
    }

    pub(super) fn push_json<T: serde::Serialize + ?Sized>(&mut self, value: &T) -> Evaluated<()> {
        serde_json::to_writer(&mut *self, value).map_err(|_| Failure::TooLarge)
    }

    pub(super) fn into_string(self) -> String {
        self.text
    }
}

/// Receives the output of `serde_json`, which never splits a character between two writes.
impl io::Write for TextBuilder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(bytes).map_err(io::Error::other)?;
        self.push(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
