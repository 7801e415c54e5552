use serde_json::{Number, Value};

/// How long a text may be that is read as JSON.
const MAX_TEXT: usize = 1024 * 1024;

/// A type of JSON Schema that something can be turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Integer,
    Number,
    Boolean,
    Array,
    Object,
    String,
}

/// What a schema would like a value to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wish<'s> {
    Kind(Kind),
    /// One of the values of an `enum`, or a `const`.
    Value(&'s Value),
}

// === impl Kind ===

impl Kind {
    /// In the order in which a list of types is tried.
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

    fn convert(self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Self::Integer, Value::String(text)) => integer(text).map(Value::Number),
            (Self::Number, Value::String(text)) => number(text).map(Value::Number),
            (Self::Boolean, Value::String(text)) => match text.as_str() {
                "true" | "1" => Some(Value::Bool(true)),
                "false" | "0" => Some(Value::Bool(false)),
                _ => None,
            },
            (Self::Array, Value::String(text)) => json(text, '[', ']'),
            (Self::Object, Value::String(text)) => json(text, '{', '}'),
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

/// Base-10 integer text, exact.
fn integer(text: &str) -> Option<Number> {
    text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from)).ok()
}

/// Integer, decimal or float text. An integer that cannot be kept exact is none.
fn number(text: &str) -> Option<Number> {
    let is_written_out = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    if !text.contains(['.', 'e', 'E']) {
        return integer(text);
    }
    if !text.chars().all(is_written_out) {
        return None;
    }
    Number::from_f64(text.parse().ok()?)
}

fn json(text: &str, open: char, close: char) -> Option<Value> {
    let plain = text.trim_ascii();
    if text.len() > MAX_TEXT || !plain.starts_with(open) || !plain.ends_with(close) {
        return None;
    }
    crate::expr::json::read(plain)
}
