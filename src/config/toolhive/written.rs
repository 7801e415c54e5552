//! Builds expressions as text, with parentheses where the precedence of operators requires them.

use serde_json::Value;

use crate::expr::KEYWORDS;

/// An expression translated from a Go template, and the precedence of its outermost operator.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) level: Level,
    /// `true` if the value of the expression is always a boolean.
    pub(super) is_bool: bool,
    /// `true` if the expression is only a path, such as `steps.a.output`. Then `$` followed by the
    /// text is a valid reference.
    pub(super) is_path: bool,
}

/// The precedence of the outermost operator of an expression. The first variant has the lowest
/// precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    If,
    Or,
    And,
    Not,
    Compare,
    Join,
    Filter,
    Value,
}

/// A segment of the path in a Go template, such as `a` in `.a`.
#[derive(Clone, Debug)]
pub(super) enum Segment {
    Key(String),
    Index(u64),
    /// A key or index that is the value of an expression. Contains the text of the expression.
    Computed(String),
}

// === impl Written ===

impl Written {
    pub(super) const fn value(text: String) -> Self {
        Self { text, level: Level::Value, is_bool: false, is_path: false }
    }

    /// Returns `true` if the expression is the status of a step, such as `steps.a.status`.
    pub(super) fn is_status(&self) -> bool {
        let id = self.text.strip_prefix("steps").and_then(|rest| rest.strip_suffix(".status"));
        // The id is one segment: `.a`, or `['my-step']`.
        let is_one = |id: &str| match id.strip_prefix('.') {
            Some(word) => !word.contains(['.', '[']),
            None => id.find("']") == Some(id.len().saturating_sub(2)),
        };
        self.is_path && id.is_some_and(is_one)
    }

    pub(super) fn boolean(text: &str) -> Self {
        Self { is_bool: true, ..Self::value(text.to_owned()) }
    }

    /// Returns the text of the expression for use as an operand that requires at least the
    /// precedence `level`. Adds parentheses if the expression has a lower precedence.
    pub(super) fn at(&self, level: Level) -> String {
        if self.level >= level { self.text.clone() } else { format!("({})", self.text) }
    }

    pub(super) fn filter(self, filter: &str) -> Self {
        let text = format!("{} | {filter}", self.at(Level::Filter));
        Self { text, level: Level::Filter, is_bool: false, is_path: false }
    }

    pub(super) fn not(self) -> Self {
        let text = match self.text.as_str() {
            "true" => return Self::boolean("false"),
            "false" => return Self::boolean("true"),
            _ => format!("not {}", self.at(Level::Not)),
        };
        Self { text, level: Level::Not, is_bool: true, is_path: false }
    }

    /// Creates the expression `then if test else otherwise`, or a shorter one with the same value.
    /// For example, `true if test else false` becomes `test` if `test` is a boolean.
    pub(super) fn choice(test: &Self, then: &Self, otherwise: &Self) -> Self {
        match (then.text.as_str(), otherwise.text.as_str()) {
            ("true", "false") if test.is_bool => test.clone(),
            ("false", "true") => test.clone().not(),
            _ => Self {
                text: format!(
                    "{} if {} else {}",
                    then.at(Level::Or),
                    test.at(Level::Or),
                    otherwise.at(Level::If)
                ),
                level: Level::If,
                is_bool: then.is_bool && otherwise.is_bool,
                is_path: false,
            },
        }
    }
}

// === impl Segment ===

impl Segment {
    /// Returns `true` if a reference such as `$steps.a.b` can contain this segment. A computed
    /// segment and a key with special characters, such as quotes or braces, are possible only in a
    /// template.
    pub(super) fn is_literal(&self) -> bool {
        match self {
            Self::Key(word) => !word.contains(['\'', '\\', '{', '}', '%', '\n', '\r', '\t']),
            Self::Index(_) => true,
            Self::Computed(_) => false,
        }
    }

    pub(super) fn written(&self) -> String {
        match self {
            Self::Key(word) => key(word),
            Self::Index(index) => format!("[{index}]"),
            Self::Computed(code) => format!("[{code}]"),
        }
    }
}

/// Formats a key that follows a value in a path: `.name`, or `['my-name']` if the key is not a
/// plain word.
pub(super) fn key(word: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_plain = word.chars().all(is_word)
        && !word.starts_with(|c: char| c.is_ascii_digit())
        && !word.is_empty()
        && !KEYWORDS.contains(&word);
    if is_plain { format!(".{word}") } else { format!("[{}]", string(word)) }
}

pub(super) fn literal(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => string(text),
        other => other.to_string(),
    }
}

/// Formats a string as a literal in an expression, in single quotes.
pub(super) fn string(text: &str) -> String {
    let mut quoted = String::from("'");
    for character in text.chars() {
        match character {
            '\'' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted += "\\n",
            '\r' => quoted += "\\r",
            '\t' => quoted += "\\t",
            // Braces would end the expression.
            '{' | '}' | '%' => quoted.extend(["\\u00", &format!("{:02x}", u32::from(character))]),
            other => quoted.push(other),
        }
    }
    quoted + "'"
}
