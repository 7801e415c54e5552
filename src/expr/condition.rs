//! Conditions, which evaluate to a boolean, and collections of loops, which evaluate to an array.

use std::fmt;

use serde_json::Value;

use super::{
    EvaluationError, ExpressionError, ExpressionErrors,
    data::Data,
    expression::Expression,
    json,
    names::ScopeNames,
    reference::Use,
    template::Template,
    wrapped_array::{UNWRAPPED_ARRAY, WRAPPED_ARRAY, is_wrapped_array},
};

/// A condition: a reference such as `$input.ok`, or a template such as `{{ input.count > 3 }}`. The
/// braces of a template may be omitted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition(Expression);

/// The collection of a loop: an array, or an expression that evaluates to an array, such as
/// `$steps.search.output.hits`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Collection(Expression);

const TRUTH: &str = "a boolean, or the text `true` or `false`";
const ARRAY: &str = "an array, or a text that is a JSON array";

// === impl Condition ===

impl Condition {
    /// Parses a condition. Examples are `$steps.a.output.ok`, `{{ input.count > 3 }}` and, without
    /// braces, `input.count > 3`.
    pub(crate) fn parse(text: &str, names: &ScopeNames<'_>) -> Result<Self, ExpressionError> {
        Expression::parse_logic(text, names).map(Self)
    }

    /// Evaluates the condition to a boolean.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is neither a boolean nor one of the strings `true` and
    /// `false`.
    pub(crate) fn evaluate(&self, data: &dyn Data) -> Result<bool, EvaluationError> {
        match self.0.evaluate_in(data)? {
            Some(Value::Bool(truth)) => Ok(truth),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            other => Err(EvaluationError::WrongKind {
                what: "it",
                found: kind(other.as_ref()),
                expected: TRUTH,
            }),
        }
    }

    pub(crate) fn uses(&self) -> Vec<Use<'_>> {
        self.0.uses()
    }
}

/// A condition that is always true.
impl Default for Condition {
    fn default() -> Self {
        Self(Expression::literal(Value::Bool(true)))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl Collection ===

impl Collection {
    /// Parses a collection. It is an array, or a string with a JSON array, a reference or a
    /// template. The braces of a template may be omitted.
    pub(crate) fn parse(value: &Value, names: &ScopeNames<'_>) -> Result<Self, ExpressionErrors> {
        let wrong = |found| {
            let error =
                ExpressionError::WrongKind { what: "the collection", found, expected: ARRAY };
            Err(ExpressionErrors::new(vec![(Vec::new(), error)]))
        };
        match value {
            Value::Array(_) => Expression::parse_in(value, names).map(Self),
            Value::String(text) => {
                let json = || serde_json::from_str::<Value>(text).ok();
                // A string with template syntax is always a template, even if it is also valid
                // JSON, such as `["{{ input.a }}"]`.
                match Some(text).filter(|text| !Template::is_one(text)).and_then(|_| json()) {
                    // Any other string with valid JSON is a literal.
                    Some(array @ Value::Array(_)) => Ok(Self(Expression::literal(array))),
                    Some(other) => wrong(kind(Some(&other))),
                    None => Expression::parse_logic(text, names)
                        .map(Self)
                        .map_err(|error| ExpressionErrors::new(vec![(Vec::new(), error)])),
                }
            }
            other => wrong(kind(Some(other))),
        }
    }

    /// Evaluates the collection to its elements.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is neither an array nor a string with a JSON array.
    pub(crate) fn evaluate(&self, data: &dyn Data) -> Result<Vec<Value>, EvaluationError> {
        let wrong = |found| Err(EvaluationError::WrongKind { what: "it", found, expected: ARRAY });
        let other = |value: Option<&Value>| match value {
            Some(value) if is_wrapped_array(value) => Err(EvaluationError::WrongKind {
                what: "it",
                found: WRAPPED_ARRAY,
                expected: UNWRAPPED_ARRAY,
            }),
            value => wrong(kind(value)),
        };
        match self.0.evaluate_in(data)? {
            Some(Value::Array(elements)) => Ok(elements),
            Some(Value::String(text)) if json::is_too_large(&text) => wrong(json::TOO_LARGE),
            Some(Value::String(text)) => match serde_json::from_str(&text) {
                Ok(Value::Array(elements)) => Ok(elements),
                Ok(value) => other(Some(&value)),
                Err(_) => wrong("a text that is not JSON"),
            },
            value => other(value.as_ref()),
        }
    }

    pub(crate) fn uses(&self) -> Vec<Use<'_>> {
        self.0.uses()
    }
}

/// An empty collection.
impl Default for Collection {
    fn default() -> Self {
        Self(Expression::literal(Value::Array(Vec::new())))
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the type of a value for error messages, such as `an array`. `None` is a missing value.
pub(crate) const fn kind(value: Option<&Value>) -> &'static str {
    match value {
        None => "nothing",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a boolean",
        Some(Value::Number(_)) => "a number",
        Some(Value::String(_)) => "a string",
        Some(Value::Array(_)) => "an array",
        Some(Value::Object(_)) => "an object",
    }
}
