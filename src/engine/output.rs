//! The output block: the value that a plan gives.

use std::{fmt, sync::Arc};

use serde_json::{Map, Number, Value};

use super::plan::placed;
use crate::expr::{Data, Expression, Field, Root, Use, json, kind};

/// The output block: an object made of what a run knows at its end.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) properties: Vec<(String, Property)>,
    /// Which of them must be there and not null.
    pub(crate) required: Vec<String>,
}

/// One member of an output.
#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) kind: OutputType,
    pub(crate) source: Source,
    /// The value if there is no other; it fits the type.
    pub(crate) default: Option<Value>,
}

/// Where the value of a property comes from.
#[derive(Debug)]
pub(crate) enum Source {
    Value(Expression),
    /// An object made of these.
    Properties(Vec<(String, Property)>),
}

/// The JSON type of a member of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputType {
    /// A string.
    String,
    /// A number without a fraction.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// An object.
    Object,
    /// An array.
    Array,
}

/// Where a property stands, such as `output.summary.count`.
#[derive(Clone, Copy)]
struct Place<'o> {
    within: Option<&'o Self>,
    name: &'o str,
}

// === impl Output ===

impl Output {
    /// Makes the object.
    ///
    /// # Errors
    ///
    /// Returns a text for a client that names the property that has no value of
    /// its type and no default.
    pub(crate) fn evaluate(&self, data: &Arc<dyn Data>) -> Result<Value, String> {
        let output = Place { within: None, name: "output" };
        let object = object(&self.properties, data, &output)?;
        for name in &self.required {
            if object.get(name).is_none_or(Value::is_null) {
                let place = Place { within: Some(&output), name };
                let property = self.properties.iter().find(|(other, _)| other == name);
                let why = property.and_then(|(_, property)| property.why_empty(data));
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                return Err(format!("{place}: it is required and has no value{why}"));
            }
        }
        Ok(Value::Object(object))
    }

    /// All that it refers to, each with its place in the output's definition.
    ///
    /// What stands where there is a default may be missing.
    pub(crate) fn uses(&self) -> Vec<Use<'_>> {
        uses(&self.properties)
    }
}

fn object(
    properties: &[(String, Property)],
    data: &Arc<dyn Data>,
    within: &Place<'_>,
) -> Result<Map<String, Value>, String> {
    let mut object = Map::with_capacity(properties.len());
    for (name, property) in properties {
        let place = Place { within: Some(within), name };
        if let Some(value) = property.evaluate(data, &place)? {
            object.insert(name.clone(), value);
        }
    }
    Ok(object)
}

fn uses(properties: &[(String, Property)]) -> Vec<Use<'_>> {
    let mut all = Vec::new();
    for (name, property) in properties {
        let (key, uses) = match &property.source {
            Source::Value(expression) => (Some("value"), expression.uses()),
            // Its own places begin with `properties`.
            Source::Properties(properties) => (None, uses(properties)),
        };
        let place = ["properties", name].into_iter().chain(key);
        all.extend(
            placed(place, uses)
                .map(|used| Use { optional: used.optional || property.default.is_some(), ..used }),
        );
    }
    all
}

// === impl Property ===

impl Property {
    /// Its value; none if that is null, or an optional reference to nothing.
    fn evaluate(&self, data: &Arc<dyn Data>, place: &Place<'_>) -> Result<Option<Value>, String> {
        let (error, default) = match (self.value(data, place), &self.default) {
            (Ok(value @ Some(_)), _) => return Ok(value),
            (Ok(None), None) => return Ok(None),
            (Err(error), None) => return Err(error),
            (Ok(None), Some(default)) => (format!("{place}: it has no value"), default),
            (Err(error), Some(default)) => (error, default),
        };
        tracing::warn!(error, "an output has its default");
        Ok(Some(default.clone()))
    }

    /// Why it has no value, as far as a step that it refers to, or null, is the cause.
    fn why_empty(&self, data: &Arc<dyn Data>) -> Option<String> {
        let Source::Value(expression) = &self.source else { return None };
        let uses = expression.uses();
        let cause = uses.iter().find_map(|used| {
            let Root::Step { step, .. } = used.root else { return None };
            let of_step = |field| data.get(Root::Step { step, field });
            let status = of_step(Field::Status)?;
            let status = status.as_str().filter(|status| *status != "completed")?.replace('_', " ");
            let error = of_step(Field::Error);
            let message = error.as_ref().and_then(|error| error.get("message")?.as_str());
            let message = message.map(|message| format!(": {message}")).unwrap_or_default();
            Some(format!("the step of `{}` is {status}{message}", used.text))
        });
        cause.or_else(|| match expression.evaluate_in(data) {
            Ok(Some(_)) if expression.as_literal().is_none() => {
                Some(format!("`{expression}` is null"))
            }
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        })
    }

    fn value(&self, data: &Arc<dyn Data>, place: &Place<'_>) -> Result<Option<Value>, String> {
        let expression = match &self.source {
            Source::Value(expression) => expression,
            Source::Properties(properties) => {
                return object(properties, data, place).map(Value::Object).map(Some);
            }
        };
        let value = expression.evaluate_in(data).map_err(|error| format!("{place}: {error}"))?;
        // A value that is null is none: no type has it.
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
        let found = self.kind.described_of(&value);
        match self.kind.coerce(value) {
            Some(value) => Ok(Some(value)),
            None => Err(format!("{place}: {found} where {} is declared", self.kind.described())),
        }
    }
}

// === impl OutputType ===

impl OutputType {
    /// The type's name in a JSON Schema.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Object => "object",
            Self::Array => "array",
        }
    }

    /// With its article.
    const fn described(self) -> &'static str {
        match self {
            Self::String => "a string",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::Object => "an object",
            Self::Array => "an array",
        }
    }

    /// What a value is, if it is none of this kind.
    fn described_of(self, value: &Value) -> &'static str {
        match (self, value) {
            (Self::Object | Self::Array, Value::String(text)) if json::is_too_large(text) => {
                json::TOO_LARGE
            }
            (_, value) => kind(Some(value)),
        }
    }

    /// The value as one of this kind, where that is unambiguous.
    fn coerce(self, value: Value) -> Option<Value> {
        match (self, value) {
            (Self::String, value @ Value::String(_))
            | (Self::Number, value @ Value::Number(_))
            | (Self::Boolean, value @ Value::Bool(_))
            | (Self::Object, value @ Value::Object(_))
            | (Self::Array, value @ Value::Array(_)) => Some(value),
            (Self::String, Value::Number(number)) => Some(number.to_string().into()),
            (Self::String, Value::Bool(truth)) => Some(truth.to_string().into()),
            (Self::Integer, Value::Number(number)) => integer(number).map(Value::Number),
            (Self::Integer, Value::String(text)) => parse_integer(&text).map(Value::Number),
            (Self::Number, Value::String(text)) => parse_number(&text).map(Value::Number),
            (Self::Boolean, Value::String(text)) => match &*text {
                "true" | "1" => Some(true.into()),
                "false" | "0" => Some(false.into()),
                _ => None,
            },
            (Self::Object | Self::Array, Value::String(text)) => {
                let value = json::read(&text)?;
                let fits = if self == Self::Object { value.is_object() } else { value.is_array() };
                fits.then_some(value)
            }
            _ => None,
        }
    }
}

/// The number if it is whole; what is written `3.0` is the integer 3.
fn integer(number: Number) -> Option<Number> {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return Some(number) };
    if float.fract() != 0.0 {
        return None;
    }
    // Beyond these, a float is whole but no integer that is held exactly.
    let exact = -(2_f64.powi(53))..=2_f64.powi(53);
    if !exact.contains(&float) {
        return Some(number);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and small enough")]
    let whole = float as i64;
    Some(whole.into())
}

fn parse_integer(text: &str) -> Option<Number> {
    // `+5` is no number in JSON.
    if text.starts_with('+') {
        return None;
    }
    let signed = text.parse::<i64>().map(Number::from);
    signed.or_else(|_| text.parse::<u64>().map(Number::from)).ok()
}

fn parse_number(text: &str) -> Option<Number> {
    // JSON around which nothing stands, so no `inf`, no `0x10` and no spaces.
    let is_trimmed = text.trim().len() == text.len();
    is_trimmed.then(|| serde_json::from_str(text).ok()).flatten()
}

// === impl Place ===

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.within {
            Some(within) => write!(f, "{within}.{}", self.name),
            None => f.write_str(self.name),
        }
    }
}
