//! Translates tool arguments by their aliases.

use std::collections::HashMap;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::{json_pointer, message::Violation};

/// Error message for an argument that clients cannot see: a hidden argument, or a renamed argument
/// under its original name.
const NOT_KNOWN: &str = "is not known to the tool";
/// Error message if a tool rejects the value of an argument that clients cannot set. An example is
/// the default of a hidden argument.
const NOT_ITS_OWN: &str = "an argument that the server sets does not fit";

/// The aliases of the arguments of one tool, with indices by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    list: Vec<Argument>,
    by_original: HashMap<String, usize>,
    /// Maps each argument name that clients use to an index into `list`. Hidden arguments have no
    /// entry.
    by_name: HashMap<String, usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Argument {
    pub(super) original: String,
    /// The argument name that clients use, or `None` if the argument is hidden from clients.
    pub(super) name: Option<String>,
    pub(super) default: Option<Value>,
    pub(super) description: Option<String>,
}

/// Whether clients see an argument of a tool, and under which name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate<'a> {
    /// Clients see the argument under its original name, because it has no alias.
    Kept,
    /// The argument has this alias, and clients see it under this name. The name may be the
    /// original one.
    Named(&'a Argument, &'a str),
    /// Clients do not see the argument, because this alias hides it.
    Hidden(&'a Argument),
    /// Clients do not see the argument, because the alias of another argument uses its name.
    Shadowed,
}

// === impl Arguments ===

impl Arguments {
    /// Creates a lookup table from argument aliases. No two aliases may have the same original name
    /// or the same client name.
    pub(super) fn new(list: Vec<Argument>) -> Self {
        let entries = list.iter().enumerate();
        let by_original = entries.clone().map(|(index, a)| (a.original.clone(), index)).collect();
        let by_name = entries.filter_map(|(index, a)| Some((a.name.clone()?, index))).collect();
        Self { list, by_original, by_name }
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Argument> {
        self.list.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the strings that the rewritten input schema must not reveal to clients: the original
    /// names of hidden and renamed arguments, and the defaults of hidden arguments that are
    /// strings.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let concealed = self.list.iter().filter(|a| a.name.is_none() || a.is_renamed());
        let texts = concealed.flat_map(|argument| {
            let default = argument.default.as_ref().filter(|_| argument.name.is_none());
            [Some(&*argument.original), default.and_then(Value::as_str)]
        });
        texts.flatten().filter(|text| !text.is_empty())
    }

    /// Returns whether clients see the argument that the tool calls `original`, and under which
    /// name.
    pub(super) fn fate(&self, original: &str) -> Fate<'_> {
        let at = |index: &usize| &self.list[*index];
        match self.by_original.get(original).map(at) {
            Some(argument) => match &argument.name {
                Some(name) => Fate::Named(argument, name),
                None => Fate::Hidden(argument),
            },
            None if self.by_name.contains_key(original) => Fate::Shadowed,
            None => Fate::Kept,
        }
    }

    /// Converts the arguments of a client's tool call to those that the tool expects: renames the
    /// arguments, and adds the defaults of missing and hidden arguments.
    ///
    /// # Errors
    ///
    /// Returns a violation for each hidden argument in the call, and for each renamed argument
    /// under its original name.
    pub(super) fn translate(&self, given: &mut Option<JsonObject>) -> Result<(), Vec<Violation>> {
        if let Some(given) = given {
            self.check(given)?;
            let renamed: Vec<(&str, Value)> = self
                .list
                .iter()
                .filter(|argument| argument.is_renamed())
                .filter_map(|a| Some((&*a.original, given.remove(a.name.as_deref()?)?)))
                .collect();
            given.extend(renamed.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
        for argument in &self.list {
            let Some(default) = &argument.default else { continue };
            let given = given.get_or_insert_default();
            if argument.name.is_none() || !given.contains_key(&argument.original) {
                given.insert(argument.original.clone(), default.clone());
            }
        }
        Ok(())
    }

    fn check(&self, given: &JsonObject) -> Result<(), Vec<Violation>> {
        let refused = |name: &&String| {
            self.by_original.contains_key(*name) && !self.by_name.contains_key(*name)
        };
        let violations: Vec<_> = given
            .keys()
            .filter(refused)
            .map(|name| Violation { path: pointer(name, ""), message: NOT_KNOWN.to_owned() })
            .collect();
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }

    /// Prepares the violations that a tool has reported for the client. In their paths, replaces
    /// the tool's argument names with the client's names. Removes and returns the violations of
    /// arguments that clients cannot set, so that the caller can log them. The client receives one
    /// general violation instead.
    pub(super) fn translate_violations(&self, violations: &mut Vec<Violation>) -> Vec<Violation> {
        let mut withheld = Vec::new();
        for mut violation in std::mem::take(violations) {
            let Some((first, rest)) = first_of(&violation.path) else {
                violations.push(violation);
                continue;
            };
            match self.fate(&first) {
                Fate::Kept => violations.push(violation),
                Fate::Named(_, name) => {
                    violation.path = pointer(name, rest);
                    violations.push(violation);
                }
                Fate::Hidden(_) | Fate::Shadowed => {
                    if withheld.is_empty() {
                        let message = NOT_ITS_OWN.to_owned();
                        violations.push(Violation { path: String::new(), message });
                    }
                    withheld.push(violation);
                }
            }
        }
        withheld
    }
}

// === impl Argument ===

impl Argument {
    /// Returns `true` if clients see the argument under a name other than the original one.
    pub(super) fn is_renamed(&self) -> bool {
        self.name.as_ref().is_some_and(|name| *name != self.original)
    }
}

/// Splits a JSON Pointer into its unescaped first segment and the rest. Returns `None` if the
/// pointer is empty.
pub(super) fn first_of(path: &str) -> Option<(String, &str)> {
    let path = path.strip_prefix('/')?;
    let (first, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    Some((json_pointer::unescape(first).into_owned(), rest))
}

fn pointer(first: &str, rest: &str) -> String {
    format!("/{}{rest}", json_pointer::escape(first))
}
