//! The output block of a composite, which builds the result of a run as a JSON object.

use std::fmt;

use serde_json::{Map, Value};

use crate::{
    expr::{Data, Expression, Field, PathSegment, Root, Use, json, kind},
    schema::json_type::JsonType,
};

/// The `output` block of a composite. Its properties are evaluated at the end of a run. They form
/// the JSON object that the run returns.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) properties: Vec<(String, Property)>,
    /// The names of properties that must have a value other than null.
    pub(crate) required: Vec<String>,
    /// References to content blocks of steps, such as images. They are appended to the content of
    /// the result.
    pub(crate) content: Vec<Expression>,
}

/// A property in the `output` block of a composite.
#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) kind: JsonType,
    pub(crate) source: Source,
    /// The value to use if `source` has no value or a value of the wrong type. Without a default, a
    /// wrong type is an error.
    pub(crate) default: Option<Value>,
}

#[derive(Debug)]
pub(crate) enum Source {
    Value(Expression),
    /// Nested properties, whose values form an object.
    Properties(Vec<(String, Property)>),
}

/// The path to a property of the output block, such as `output.summary.count`.
#[derive(Clone, Copy)]
struct PropertyPath<'o> {
    within: Option<&'o Self>,
    name: &'o str,
}

// === impl Output ===

impl Output {
    /// Evaluates all properties to a JSON object.
    ///
    /// # Errors
    ///
    /// Returns an error if a property without a default cannot be evaluated or has the wrong type,
    /// or if a required property is null or missing. The message names the property, and clients
    /// may see it.
    pub(crate) fn evaluate(&self, data: &dyn Data) -> Result<Value, String> {
        let output = PropertyPath { within: None, name: "output" };
        let object = object(&self.properties, data, &output)?;
        for name in &self.required {
            if object.get(name).is_none_or(Value::is_null) {
                let place = PropertyPath { within: Some(&output), name };
                let property = self.properties.iter().find(|(other, _)| other == name);
                let why = property.and_then(|(_, property)| property.why_empty(data));
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                return Err(format!("{place}: it is required and has no value{why}"));
            }
        }
        Ok(Value::Object(object))
    }

    /// Returns the content blocks of steps, such as images, that are appended to the content of the
    /// result.
    pub(crate) fn blocks(&self, data: &dyn Data) -> Vec<Value> {
        let of_step = |expression: &Expression| match expression.evaluate_in(data) {
            Ok(Some(Value::Array(blocks))) => blocks,
            _ => Vec::new(),
        };
        self.content.iter().flat_map(of_step).collect()
    }

    /// Returns all references in the output block, each with its path within the block.
    ///
    /// References in a property with a default value are optional, because they may have no value.
    pub(crate) fn uses(&self) -> Vec<Use<'_>> {
        let mut all = uses(&self.properties);
        for (index, expression) in self.content.iter().enumerate() {
            let place = [PathSegment::from("content"), index.into()];
            all.extend(placed(place, expression.uses()));
        }
        all
    }
}

fn object(
    properties: &[(String, Property)],
    data: &dyn Data,
    within: &PropertyPath<'_>,
) -> Result<Map<String, Value>, String> {
    let mut object = Map::with_capacity(properties.len());
    for (name, property) in properties {
        let place = PropertyPath { within: Some(within), name };
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
            // The places of nested properties already begin with `properties`.
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
    /// Evaluates the property. If its value is missing, null or invalid, returns the default.
    /// Without a default, returns `None` for a missing or null value, and an error for an invalid
    /// value.
    fn evaluate(&self, data: &dyn Data, place: &PropertyPath<'_>) -> Result<Option<Value>, String> {
        let (error, default) = match (self.value(data, place), &self.default) {
            (Ok(value @ Some(_)), _) => return Ok(value),
            (Ok(None), None) => return Ok(None),
            (Err(error), None) => return Err(error),
            (Ok(None), Some(default)) => (format!("{place}: it has no value"), default),
            (Err(error), Some(default)) => (error, default),
        };
        tracing::warn!(error, "an output property has its default value");
        Ok(Some(default.clone()))
    }

    /// Returns the reason why a required property has no value, for the error message. Examples are
    /// a failed step to which the property refers, and a null value. Returns `None` if no reason is
    /// found.
    fn why_empty(&self, data: &dyn Data) -> Option<String> {
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

    fn value(&self, data: &dyn Data, place: &PropertyPath<'_>) -> Result<Option<Value>, String> {
        let expression = match &self.source {
            Source::Value(expression) => expression,
            Source::Properties(properties) => {
                return object(properties, data, place).map(Value::Object).map(Some);
            }
        };
        let value = expression.evaluate_in(data).map_err(|error| format!("{place}: {error}"))?;
        // Null counts as a missing value, because no output type includes null.
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
        let found = found(&value, self.kind);
        match self.kind.coerce(value) {
            Some(value) => Ok(Some(value)),
            None => Err(format!("{place}: {found} where {} is declared", self.kind.described())),
        }
    }
}

/// Returns the description of a value of the wrong type for an error message, such as `a string`.
fn found(value: &Value, declared: JsonType) -> &'static str {
    match (declared, value) {
        (JsonType::Object | JsonType::Array, Value::String(text)) if json::is_too_large(text) => {
            json::TOO_LARGE
        }
        (_, value) => kind(Some(value)),
    }
}

// === impl PropertyPath ===

impl fmt::Display for PropertyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.within {
            Some(within) => write!(f, "{within}.{}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// Prepends `place` to the path of each reference. `place` is the path of the part that contains
/// the references, such as `arguments`.
pub(super) fn placed<'e, P: Into<PathSegment>>(
    place: impl IntoIterator<Item = P>,
    uses: Vec<Use<'e>>,
) -> impl Iterator<Item = Use<'e>> {
    let place: Vec<_> = place.into_iter().map(Into::into).collect();
    uses.into_iter().map(move |used| Use { place: [&*place, &used.place].concat(), ..used })
}
