//! Translates tool arguments by their aliases.

use std::collections::HashMap;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::{json_pointer, message::Violation};

/// The error message for an argument that clients cannot set: a hidden argument, or the original
/// name of a renamed argument.
const NOT_KNOWN: &str = "is not known to the tool";
/// The error message if a tool rejects a value that the client did not send, for example the
/// default of a hidden argument.
const NOT_ITS_OWN: &str = "an argument that the server sets does not fit";

/// The aliases of all arguments of a tool.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    list: Vec<Argument>,
    by_original: HashMap<String, usize>,
    /// Maps client names of arguments to indices into `list`. Hidden arguments are not in the map,
    /// because clients have no name for them.
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

/// The effect of argument aliases on an argument of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate<'a> {
    /// No alias affects the argument. Clients see it under its original name.
    Kept,
    /// Clients see the argument under this name.
    Named(&'a Argument, &'a str),
    /// The alias of the argument hides it from clients.
    Hidden(&'a Argument),
    /// Clients cannot set the argument, because the alias of another argument uses its name.
    Shadowed,
}

// === impl Arguments ===

impl Arguments {
    /// Creates a lookup table from argument aliases. No two aliases may have the same original name
    /// or the same client name.
    pub(super) fn new(list: Vec<Argument>) -> Self {
        let places = list.iter().enumerate();
        let by_original = places.clone().map(|(place, a)| (a.original.clone(), place)).collect();
        let by_name = places.filter_map(|(place, a)| Some((a.name.clone()?, place))).collect();
        Self { list, by_original, by_name }
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Argument> {
        self.list.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the strings that clients must not find in the rewritten schema: the original names
    /// of hidden and renamed arguments, and the string defaults of hidden arguments.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let unseen = self.list.iter().filter(|a| a.name.is_none() || a.is_renamed());
        let texts = unseen.flat_map(|argument| {
            let default = argument.default.as_ref().filter(|_| argument.name.is_none());
            [Some(&*argument.original), default.and_then(Value::as_str)]
        });
        texts.flatten().filter(|text| !text.is_empty())
    }

    /// Returns the effect of the aliases on the argument that the tool calls `original`.
    pub(super) fn fate(&self, original: &str) -> Fate<'_> {
        let at = |place: &usize| &self.list[*place];
        match self.by_original.get(original).map(at) {
            Some(argument) => match &argument.name {
                Some(name) => Fate::Named(argument, name),
                None => Fate::Hidden(argument),
            },
            None if self.by_name.contains_key(original) => Fate::Shadowed,
            None => Fate::Kept,
        }
    }

    /// Translates the arguments of a tool call before it is forwarded: replaces the client's
    /// argument names with the tool's, and adds the defaults of missing arguments.
    ///
    /// # Errors
    ///
    /// Returns a violation for each hidden argument that the call sets, and for each renamed
    /// argument that the call sets by its original name.
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

    /// Translates violations for the client: replaces the tool's argument names with the client's.
    /// Violations of arguments that clients cannot set are removed and returned, so that they can
    /// be logged. In their place, the client receives a single general violation.
    pub(super) fn translate_violations(&self, violations: &mut Vec<Violation>) -> Vec<Violation> {
        let mut kept_back = Vec::new();
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
                    if kept_back.is_empty() {
                        let message = NOT_ITS_OWN.to_owned();
                        violations.push(Violation { path: String::new(), message });
                    }
                    kept_back.push(violation);
                }
            }
        }
        kept_back
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
