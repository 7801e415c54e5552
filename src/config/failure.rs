//! Deserialization errors and their messages.

use std::{fmt, ops::Range};

use serde::de::{self, Expected, Unexpected};

use super::{
    hints,
    node::{Node, address},
    source::sanitized,
    word::is_word,
};
use crate::{composite::Segment, suggest::nearest};

/// The error returned if a TOML value cannot be deserialized: the error message, and the location
/// of the invalid value, if it is known.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Failure {
    pub(super) message: String,
    pub(super) culprit: Option<Culprit>,
}

/// The location of the invalid value that caused a [`Failure`].
#[derive(Debug)]
pub(super) struct Culprit {
    pub(super) address: usize,
    pub(super) path: Vec<Segment>,
    pub(super) span: Range<usize>,
}

// === impl Failure ===

impl Failure {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), culprit: None }
    }

    /// Records that the value `node` at `path` caused the error. If a value nested in `node` was
    /// recorded before, keeps the nested value, because it is the more precise location.
    pub(super) fn of(mut self, path: &[Segment], node: &Node<'_>) -> Self {
        self.culprit.get_or_insert_with(|| Culprit {
            address: address(node),
            path: path.to_vec(),
            span: node.span(),
        });
        self
    }
}

impl de::Error for Failure {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match unexpected {
            Unexpected::Bool(_) => "a boolean",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) => "an integer",
            Unexpected::Float(_) => "a float",
            Unexpected::Str(_) => "a string",
            Unexpected::Seq => "an array",
            Unexpected::Map => "a table",
            Unexpected::Other(found) => found,
            other => return Self::new(format!("expected {}, found {other}", words(expected))),
        };
        Self::new(format!("expected {}, found {found}", words(expected)))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = words(expected);
        Self::new(match unexpected {
            Unexpected::Str(text) => format!("expected {expected}, found {:?}", sanitized(text)),
            Unexpected::Signed(number) => format!("expected {expected}, found {number}"),
            Unexpected::Unsigned(number) => format!("expected {expected}, found {number}"),
            other => format!("expected {expected}, found {other}"),
        })
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(unknown("value", variant, expected))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(unknown("key", field, expected))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("missing key `{field}`"))
    }
}

/// Translates the description of an expected type from serde's terms to TOML terms. For example, `a
/// sequence` becomes `an array`.
fn words(expected: &dyn Expected) -> String {
    let expected = expected.to_string();
    match expected.as_str() {
        "a sequence" => "an array".to_owned(),
        "a map" => "a table".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from zero".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        other if other.starts_with("struct ") => "a table".to_owned(),
        _ => expected,
    }
}

/// Returns the error message for an unknown key or value. Suggests the most similar of the
/// `expected` words. Quotes `word` only if it is a plain word, because other text may be a secret.
pub(super) fn unknown(what: &str, word: &str, expected: &[&str]) -> String {
    if let Some(hint) = hints::of_value(word, expected) {
        return format!("unknown {what} `{word}`: {hint}");
    }
    let near = nearest(word, expected).or_else(|| hints::synonym(word, expected));
    let hint = match (near, expected) {
        (Some(near), [_]) => format!("did you mean `{near}`?"),
        (Some(near), _) => format!("did you mean `{near}`? expected {}", one_of(expected)),
        (None, _) => format!("expected {}", one_of(expected)),
    };
    match is_word(word) {
        true => format!("unknown {what} `{word}`: {hint}"),
        false => format!("unknown {what}: {hint}"),
    }
}

pub(super) fn one_of(words: &[&str]) -> String {
    let one_of = if words.len() == 1 { "" } else { "one of " };
    let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    format!("{one_of}{}", words.join(", "))
}
