//! The difference between two definitions of a tool.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use super::definition::Definition;
use crate::warnings::sanitize::Sanitized;

/// A tool whose definition differs between two locks, such as the approved lock and the current
/// state.
///
/// The `Display` output contains each value that differs: its path, its version in the first lock
/// after `-`, and its version in the second lock after `+`. Invisible and control characters are
/// escaped, so that they cannot hide a change. If the two versions differ in a non-ASCII character,
/// such as a Cyrillic letter, all non-ASCII characters are escaped.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    backend: String,
    tool: String,
    locked: Option<Value>,
    listed: Option<Value>,
}

/// A difference between two versions of a tool's definition. `locked` or `listed` is `None` if that
/// version does not contain the value.
struct Change<'v> {
    path: String,
    locked: Option<&'v Value>,
    listed: Option<&'v Value>,
}

// === impl Difference ===

impl Difference {
    pub(super) fn new(
        backend: &str,
        tool: &str,
        locked: Option<&Definition>,
        listed: Option<&Definition>,
    ) -> Self {
        let [locked, listed] = [locked, listed].map(|it| it.map(Definition::to_json));
        Self { backend: backend.to_owned(), tool: tool.to_owned(), locked, listed }
    }

    /// Returns the name of the backend that has the tool.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns `true` if the tool is new: the first of the two compared locks does not contain it.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.locked.is_none()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, note) = match (&self.locked, &self.listed) {
            (None, _) => ('+', " (new)"),
            (_, None) => ('-', " (not listed)"),
            _ => ('~', ""),
        };
        let (backend, tool) = (Sanitized(&self.backend), Sanitized(&self.tool));
        writeln!(f, "{sign} tool `{tool}` of backend `{backend}`{note}")?;
        let mut changes = Vec::new();
        compare(String::new(), self.locked.as_ref(), self.listed.as_ref(), &mut changes);
        changes.iter().try_for_each(|change| change.fmt(f))
    }
}

/// Appends all differences between two values to `changes`. Compares objects member by member, and
/// other values as a whole. `path` is the path to the values.
fn compare<'v>(
    path: String,
    locked: Option<&'v Value>,
    listed: Option<&'v Value>,
    changes: &mut Vec<Change<'v>>,
) {
    if locked == listed {
        return;
    }
    let is_definition = path.is_empty();
    let [one, other] = [locked, listed].map(|value| value.and_then(Value::as_object));
    if !is_definition && (one.is_none() || other.is_none()) {
        return changes.push(Change { path, locked, listed });
    }
    let names: BTreeSet<&String> =
        [one, other].into_iter().flatten().flat_map(|members| members.keys()).collect();
    for name in names {
        let separator = if is_definition { "" } else { "/" };
        let [locked, listed] = [one, other].map(|members| members.and_then(|it| it.get(name)));
        // Skip the name of the tool, which was already printed.
        if !(is_definition && name == "name") {
            compare(format!("{path}{separator}{name}"), locked, listed, changes);
        }
    }
}

// === impl Change ===

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = [self.locked, self.listed].map(|value| value.map(Value::to_string));
        let [one, other] = texts.each_ref().map(|text| text.as_deref().map(unusual));
        let escapes_all = one.is_some() && other.is_some() && one != other;
        writeln!(f, "    {}", Sanitized(&self.path))?;
        for (sign, text) in ['-', '+'].into_iter().zip(texts) {
            if let Some(text) = text {
                writeln!(f, "      {sign} {}", escaped(&text, escapes_all))?;
            }
        }
        Ok(())
    }
}

/// Returns the non-ASCII characters of a text.
fn unusual(text: &str) -> String {
    text.chars().filter(|character| !character.is_ascii()).collect()
}

/// Escapes invisible and control characters. If `all` is `true`, escapes all non-ASCII characters.
fn escaped(text: &str, all: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\'' | '"' | '\\' => escaped.push(character),
            _ if all && !character.is_ascii() => escaped.extend(character.escape_unicode()),
            _ => escaped.extend(character.escape_debug()),
        }
    }
    escaped
}
