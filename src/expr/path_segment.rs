//! Path segments, which select parts of JSON values.

use std::fmt;

use serde_json::Value;

/// A segment of a path that selects a part of a JSON value: an object key or an array index.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathSegment {
    /// The key of an object member, such as `name`.
    Key(String),
    /// The index of an array element, starting at zero.
    Index(usize),
}

// === impl PathSegment ===

impl PathSegment {
    /// Returns the object member or array element of `value` with this key or index.
    pub(super) fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        match (self, value) {
            (Self::Key(key), Value::Array(elements)) => elements.get(place(key)?),
            (Self::Key(key), _) => value.get(key),
            (Self::Index(index), _) => value.get(index),
        }
    }
}

/// Parses a key as an array index, because `.0` is equivalent to `[0]`. Returns `None` if the key
/// is not an index.
pub(super) fn place(key: &str) -> Option<usize> {
    // The largest possible index has 20 digits.
    if key.len() > 20 {
        return None;
    }
    let is_place = key == "0" || !key.starts_with('0') && key.bytes().all(|b| b.is_ascii_digit());
    if is_place { key.parse().ok() } else { None }
}

impl From<&str> for PathSegment {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for PathSegment {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Formats the segment as in references: `.key`, `['odd key']` or `[0]`.
impl fmt::Display for PathSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(key) if is_word(key) => write!(f, ".{key}"),
            Self::Key(key) if key.contains('\'') => write!(f, "[\"{key}\"]"),
            Self::Key(key) => write!(f, "['{key}']"),
        }
    }
}

fn is_word(key: &str) -> bool {
    !key.is_empty() && key.chars().all(is_word_character)
}

pub(super) fn is_word_character(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}
