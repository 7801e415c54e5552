//! Copies the schemas of arguments, and the definitions that they refer to.

use std::{
    collections::{BTreeSet, HashMap},
    ptr,
};

use serde_json::{Map, Value};

use super::{
    references::{MAX_SCHEMA_DEPTH, References, is_embedded},
    scopes::Scopes,
};
use crate::{
    alias::arguments::{Arguments, Fate},
    schema::keywords,
};

/// Keywords that hold definitions.
pub(super) const DEFINING: [&str; 2] = ["$defs", "definitions"];
/// Keywords that give a schema a name or a base of its own, which must be unique.
const IDENTIFYING: [&str; 7] =
    ["$anchor", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema", "$vocabulary", "id"];
/// Keywords whose values are schemas, or lists of them.
const APPLYING: [&str; 17] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    // Of draft 3.
    "extends",
];
/// Keywords that allow less if a schema in them, or beside them, allows more.
const TURNING: [&str; 9] = [
    "contains",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Other keywords, whose values describe the argument they are in.
const PLAIN: [&str; 24] = [
    "contentEncoding",
    "contentMediaType",
    "dependentRequired",
    "deprecated",
    "description",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "title",
    "type",
    "x-mcp-header",
];
/// Keywords that are kept of a schema that describes all arguments, where it is used within one of
/// them. Without the other keywords it allows more.
const SCRUBBED: [&str; 6] = ["$ref", "allOf", "description", "properties", "title", "type"];
/// Keywords that document an argument and restrict nothing.
const TELLING: [&str; 4] = ["default", "description", "examples", "title"];
/// Maximum size of the schemas read and copied in total, in approximate bytes. References can make
/// a short schema expand to a large one.
const MAX_SCHEMA_BYTES: usize = 1 << 20;
/// Size of a value besides its text, in bytes.
const BYTES_OF_VALUE: usize = 8;

/// The definitions that the schemas of arguments refer to. Only these are copied, so that clients
/// see nothing else of the original schema.
pub(super) struct Definitions<'a> {
    root: &'a Value,
    arguments: &'a Arguments,
    pub(super) references: References<'a>,
    /// Empty if `secrets` is.
    speaking: Scopes,
    /// Names and values that clients must not see.
    secrets: Vec<&'a str>,
    /// Whether keywords beside a `$ref` are ignored, as up to draft 7.
    only_refs: bool,
    /// Whether keywords that could reject more are omitted, because a restriction was omitted.
    is_lenient: bool,
    /// Definitions that are copied or will be, by keyword and name.
    wanted: BTreeSet<(&'static str, String)>,
    /// Names of definitions made from other subschemas, by the address of the original.
    shared: HashMap<*const Value, String>,
    /// The number of names tried for these.
    named: usize,
    /// Definitions still to be copied.
    next: Vec<Wanted<'a>>,
    /// The remaining size, in bytes.
    left: usize,
    /// Whether a restriction was omitted.
    pub(super) is_lossy: bool,
    pub(super) has_given_up: bool,
}

/// A definition to be copied.
struct Wanted<'a> {
    keyword: &'static str,
    name: String,
    original: &'a Value,
}

// === impl Definitions ===

impl<'a> Definitions<'a> {
    pub(super) fn new(root: &'a Value, arguments: &'a Arguments, is_lenient: bool) -> Self {
        let mut references = References::new(root);
        let secrets: Vec<_> = arguments.secrets().collect();
        let speaking = match secrets.is_empty() {
            true => Scopes::default(),
            false => Scopes::new(root, &mut references, arguments),
        };
        let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        Self {
            root,
            arguments,
            references,
            speaking,
            secrets,
            only_refs: dialect.contains("draft-0"),
            is_lenient,
            wanted: BTreeSet::new(),
            shared: HashMap::new(),
            named: 0,
            next: Vec::new(),
            left: MAX_SCHEMA_BYTES,
            is_lossy: false,
            has_given_up: false,
        }
    }

    pub(super) const fn only_refs(&self) -> bool {
        self.only_refs
    }

    pub(super) const fn is_lenient(&self) -> bool {
        self.is_lenient
    }

    /// Copies a schema within an argument, and rewrites its references.
    pub(super) fn copy(&mut self, schema: &'a Value) -> Value {
        self.copy_at(schema, 0)
    }

    /// Copies a value that is not a schema.
    pub(super) fn copy_data(&mut self, data: &Value) -> Value {
        if self.has_given_up || !self.spend(bytes(data)) { Value::Null } else { data.clone() }
    }

    /// Subtracts from the remaining size. Returns `false` if it is exhausted.
    pub(super) const fn spend(&mut self, bytes: usize) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) if !self.has_given_up => self.left = left,
            _ => self.has_given_up = true,
        }
        !self.has_given_up
    }

    #[cfg(test)]
    pub(super) const fn spent(&self) -> usize {
        MAX_SCHEMA_BYTES - self.left
    }

    /// Returns `true` if a text contains a secret.
    pub(super) fn tells(&self, text: &str) -> bool {
        self.secrets.iter().any(|secret| text.contains(secret))
    }

    fn copy_at(&mut self, schema: &'a Value, depth: usize) -> Value {
        if depth > MAX_SCHEMA_DEPTH || !self.spend(BYTES_OF_VALUE) {
            self.has_given_up = true;
            return Value::Bool(true);
        }
        match schema {
            Value::Object(_) if is_embedded(schema) && !ptr::eq(schema, self.root) => {
                self.is_lossy = true;
                Value::Bool(true)
            }
            Value::Object(members) => self.copy_members(schema, members, depth),
            Value::Array(elements) => {
                elements.iter().map(|element| self.copy_at(element, depth + 1)).collect()
            }
            _ => self.copy_data(schema),
        }
    }

    fn copy_members(
        &mut self,
        schema: &Value,
        members: &'a Map<String, Value>,
        depth: usize,
    ) -> Value {
        let is_of_all = self.speaking.is_of_all(schema);
        let is_of_unseen = self.speaking.is_of_unseen(schema);
        let only_ref = self.only_refs && members.contains_key("$ref");
        self.is_lossy |= is_of_all;
        let mut copied = Map::new();
        for (key, value) in members {
            let key = key.as_str();
            self.spend(key.len());
            if (is_of_all && !SCRUBBED.contains(&key))
                || (is_of_unseen && TELLING.contains(&key))
                || (only_ref && key != "$ref" && !TELLING.contains(&key))
                || (self.is_lenient && TURNING.contains(&key))
            {
                continue;
            }
            let (key, value) = match (key, value) {
                ("$ref", Value::String(reference)) => match self.refer(reference) {
                    Some(reference) => (key, reference.into()),
                    None => {
                        self.is_lossy = true;
                        continue;
                    }
                },
                ("$dynamicRef" | "$recursiveRef", _) => {
                    self.is_lossy = true;
                    continue;
                }
                (key, _) if IDENTIFYING.contains(&key) || DEFINING.contains(&key) => continue,
                ("oneOf", _) if self.is_lenient && members.contains_key("anyOf") => continue,
                ("oneOf", value) if self.is_lenient => ("anyOf", self.copy_at(value, depth + 1)),
                (key, Value::Object(named))
                    if keywords::NAMING.contains(&key) || key == "dependencies" =>
                {
                    (key, self.copy_named(named, is_of_all, depth))
                }
                (key, value) if APPLYING.contains(&key) => (key, self.copy_at(value, depth + 1)),
                (key, value) if keywords::DATA.contains(&key) || PLAIN.contains(&key) => {
                    (key, self.copy_data(value))
                }
                // An unknown keyword may mention any argument.
                (key, value) if self.tells(key) || self.tells_in(value) => continue,
                (key, value) => (key, self.copy_data(value)),
            };
            copied.insert(key.to_owned(), value);
        }
        copied.into()
    }

    /// Copies named schemas. Of arguments, copies only those with unchanged names.
    fn copy_named(
        &mut self,
        named: &'a Map<String, Value>,
        are_arguments: bool,
        depth: usize,
    ) -> Value {
        let mut copied = Map::new();
        for (name, schema) in named {
            if !are_arguments || matches!(self.arguments.fate(name), Fate::Kept) {
                self.spend(name.len());
                copied.insert(name.clone(), self.copy_at(schema, depth + 2));
            }
        }
        copied.into()
    }

    /// Returns `true` if data contains a secret.
    pub(super) fn tells_in(&self, data: &Value) -> bool {
        match data {
            Value::String(text) => self.tells(text),
            Value::Array(elements) => elements.iter().any(|element| self.tells_in(element)),
            Value::Object(members) => {
                members.iter().any(|(key, value)| self.tells(key) || self.tells_in(value))
            }
            _ => false,
        }
    }

    /// Returns the rewritten reference, or `None` if its target is not in the schema.
    fn refer(&mut self, reference: &str) -> Option<String> {
        self.spend(reference.len());
        let target = self.references.resolve(reference)?;
        let fragment = self.references.fragment(reference)?;
        if let Some([keyword, name]) = self.references.pair(reference) {
            let has_properties = !self.only_refs || self.root.get("$ref").is_none();
            if keyword == "properties" && has_properties {
                match self.arguments.fate(&name) {
                    Fate::Kept => return Some(format!("#{fragment}")),
                    Fate::Named(_, name) if is_plain(name) => {
                        return Some(format!("#/properties/{name}"));
                    }
                    Fate::Named(..) | Fate::Hidden(_) | Fate::Shadowed => (),
                }
            }
            let defining = DEFINING.into_iter().find(|defining| *defining == keyword);
            if let Some(keyword) = defining.filter(|_| !self.tells(&name)) {
                if self.wanted.insert((keyword, name.clone())) {
                    self.next.push(Wanted { keyword, name, original: target });
                }
                return Some(format!("#{fragment}"));
            }
        }
        Some(self.share(target))
    }

    /// Creates a definition from a subschema that is not one, or whose name clients must not see.
    fn share(&mut self, original: &'a Value) -> String {
        if let Some(name) = self.shared.get(&ptr::from_ref(original)) {
            return format!("#/$defs/{name}");
        }
        let name = loop {
            self.named += 1;
            let name = format!("shared_{}", self.named);
            if self.root.get("$defs").is_none_or(|all| all.get(&name).is_none()) {
                break name;
            }
        };
        self.shared.insert(original, name.clone());
        let reference = format!("#/$defs/{name}");
        self.next.push(Wanted { keyword: "$defs", name, original });
        reference
    }

    /// Adds all referenced definitions to a schema.
    pub(super) fn add_to(&mut self, schema: &mut Map<String, Value>) {
        while let Some(Wanted { keyword, name, original }) = self.next.pop() {
            let copy = self.copy(original);
            let all = schema.entry(keyword).or_insert_with(|| Map::new().into());
            if let Value::Object(all) = all {
                all.insert(name, copy);
            }
        }
    }
}

/// Returns `true` if a name needs no escaping in a reference.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// Returns the approximate size of a value, in bytes.
fn bytes(value: &Value) -> usize {
    let inner: usize = match value {
        Value::String(text) => text.len(),
        Value::Array(elements) => elements.iter().map(bytes).sum(),
        Value::Object(members) => members.iter().map(|(key, value)| key.len() + bytes(value)).sum(),
        _ => 0,
    };
    BYTES_OF_VALUE + inner
}
