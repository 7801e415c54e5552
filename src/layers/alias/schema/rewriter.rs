//! Rewrites the parts of a schema that describe a tool's arguments.

mod presence;

use std::{collections::BTreeSet, ptr};

use regex::RegexBuilder;
use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use super::{definitions::Definitions, fits::fits};
use crate::alias::arguments::{Argument, Arguments, Fate};

/// Maximum depth of schemas that apply in place.
const MAX_IN_PLACE_DEPTH: usize = 32;
/// Maximum number of schemas that apply in place.
const MAX_IN_PLACE_SCHEMAS: usize = 1_000;
/// Maximum number of name patterns, their maximum length, and their maximum compiled size in bytes.
/// Patterns above these limits are removed.
const MAX_REWRITTEN_PATTERNS: usize = 32;
const MAX_REWRITTEN_PATTERN: usize = 256;
const MAX_REWRITTEN_PATTERN_BYTES: usize = 1 << 17;
/// Annotations and other keywords that may stand beside an inlined reference.
const TELLING: [&str; 8] =
    ["$comment", "$id", "$schema", "default", "description", "examples", "title", "type"];

/// A rewriter of everything in a schema that describes a tool's arguments.
pub(super) struct Rewriter<'a> {
    root: &'a Value,
    arguments: &'a Arguments,
    definitions: Definitions<'a>,
    has_defaults: bool,
    /// Targets of the references that are being followed.
    following: Vec<&'a Value>,
    /// The remaining number of schemas.
    left: usize,
    /// The remaining number of patterns.
    patterns_left: usize,
    pub(super) declared: BTreeSet<String>,
    pub(super) shadowed: BTreeSet<String>,
    pub(super) unset: BTreeSet<String>,
}

/// A rewritten subschema.
struct Part {
    schema: Value,
    /// Whether it allows more than the original.
    is_lax: bool,
    /// Whether it leaves properties unevaluated that the original does not.
    is_lossy: bool,
}

/// An object schema that is being rewritten.
#[derive(Default)]
struct Object {
    shown: JsonObject,
    /// Additional schemas for `allOf`.
    all_of: Vec<Value>,
    /// The rewritten target of a `$ref`.
    inlined: Option<Value>,
    is_lax: bool,
    is_lossy: bool,
    /// Whether no arguments that clients can send are valid.
    is_impossible: bool,
}

// === impl Rewriter ===

impl<'a> Rewriter<'a> {
    /// Creates a rewriter. If `is_lenient`, keywords in arguments that allow less when another
    /// allows more are omitted.
    pub(super) fn new(root: &'a Value, arguments: &'a Arguments, is_lenient: bool) -> Self {
        Self {
            root,
            arguments,
            definitions: Definitions::new(root, arguments, is_lenient),
            has_defaults: arguments.iter().any(|argument| argument.default.is_some()),
            following: vec![root],
            left: MAX_IN_PLACE_SCHEMAS,
            patterns_left: MAX_REWRITTEN_PATTERNS,
            declared: BTreeSet::new(),
            shadowed: BTreeSet::new(),
            unset: BTreeSet::new(),
        }
    }

    /// Rewrites the root. Also returns whether the result is exact.
    pub(super) fn root(&mut self) -> (JsonObject, bool) {
        let Value::Object(root) = self.root else { return (Map::new(), false) };
        let object = self.object(root, 0, true);
        let mut is_exact = !object.is_lax && !object.is_impossible;
        let mut shown = match object.finish().schema {
            Value::Object(shown) => shown,
            _ => {
                is_exact = false;
                Map::new()
            }
        };
        self.definitions.add_to(&mut shown);
        (shown, is_exact)
    }

    /// Returns a schema with only the names of the arguments, which is always lax.
    pub(super) fn outline(&self) -> JsonObject {
        let declared = self.root.get("properties").and_then(Value::as_object);
        let names = declared.into_iter().flat_map(Map::keys);
        let shown = names.filter_map(|name| match self.arguments.fate(name) {
            Fate::Kept => Some((name.clone(), json!({}))),
            Fate::Named(_, name) => Some((name.to_owned(), json!({}))),
            Fate::Hidden(_) | Fate::Shadowed => None,
        });
        let shown: JsonObject = shown.collect();
        Map::from_iter([("properties".to_owned(), shown.into())])
    }

    /// Returns `true` if a restriction within an argument was omitted.
    pub(super) const fn is_lossy(&self) -> bool {
        self.definitions.is_lossy
    }

    /// Returns the size read and copied so far.
    #[cfg(test)]
    pub(super) const fn spent(&self) -> usize {
        self.definitions.spent()
    }

    /// Returns `true` if the schema exceeded the maximum size.
    pub(super) const fn has_given_up(&self) -> bool {
        self.definitions.has_given_up
    }

    /// Rewrites a schema that describes the arguments. `applies` is `true` if the schema applies to
    /// every call. A tool that no client can call is shown nevertheless.
    fn part(&mut self, schema: &'a Value, depth: usize, applies: bool) -> Part {
        let members = match schema {
            Value::Bool(_) => return Part::exact(schema.clone()),
            // References in an embedded document have another base.
            Value::Object(members) if !members.contains_key("$id") => members,
            _ => return Part::open(),
        };
        if depth > MAX_IN_PLACE_DEPTH || self.left == 0 || self.has_given_up() {
            return Part::open();
        }
        let mut object = self.object(members, depth, applies);
        if object.is_impossible && !applies {
            return Part::exact(Value::Bool(false));
        }
        object.is_lax |= object.is_impossible;
        object.finish()
    }

    /// Rewrites the keywords of an object schema.
    fn object(&mut self, members: &'a JsonObject, depth: usize, applies: bool) -> Object {
        self.left = self.left.saturating_sub(1);
        let mut object = Object::default();
        let is_root = depth == 0;
        let only_ref = self.definitions.only_refs() && members.contains_key("$ref");
        for (key, value) in members {
            self.definitions.spend(key.len() + length(value));
            if only_ref && !matches!(key.as_str(), "$ref" | "$schema") {
                continue;
            }
            match (key.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    self.properties(properties, &mut object);
                }
                ("required", Value::Array(names)) => self.required(names, applies, &mut object),
                ("dependentRequired", Value::Object(all)) => {
                    for (name, needed) in all {
                        self.dependent_required(name, needed, &mut object);
                    }
                }
                ("dependentSchemas", Value::Object(all)) => {
                    self.dependent_schemas(all, depth, &mut object);
                }
                ("dependencies", Value::Object(all)) => self.dependencies(all, depth, &mut object),
                ("minProperties" | "maxProperties", count) => self.count(key, count, &mut object),
                ("propertyNames", schema) => self.property_names(schema, &mut object),
                ("allOf", Value::Array(parts)) => self.all_of(parts, depth, applies, &mut object),
                ("anyOf", Value::Array(parts)) => self.any_of(parts, depth, &mut object),
                ("oneOf", Value::Array(parts)) => self.one_of(parts, depth, &mut object),
                ("not", schema) => self.negation(schema, depth, &mut object),
                ("if", condition) => self.condition(condition, members, depth, &mut object),
                ("$ref", Value::String(reference)) => {
                    self.follow(reference, depth, applies, &mut object)
                }
                ("$dynamicRef" | "$recursiveRef", _) => object.give_up(),
                // They restrict the arguments as a whole.
                ("const" | "enum", _) => object.is_lax = true,
                ("default", example) => {
                    let example = self.example(example);
                    object.shown.extend(example.map(|example| (key.clone(), example)));
                }
                ("examples", Value::Array(examples)) => self.examples(examples, &mut object),
                ("$schema", Value::String(_)) if !is_root => (),
                ("$schema" | "description" | "title" | "type", Value::String(_))
                | ("deprecated" | "readOnly" | "writeOnly", Value::Bool(_))
                | ("type", Value::Array(_)) => {
                    object.shown.insert(key.clone(), self.definitions.copy_data(value));
                }
                // `condition` and `others` handle some of these. Unknown keywords may mention any
                // argument.
                _ => (),
            }
        }
        if !only_ref {
            self.others(members, &mut object);
        }
        object
    }

    fn all_of(&mut self, parts: &'a [Value], depth: usize, applies: bool, object: &mut Object) {
        for part in parts {
            let part = self.part(part, depth + 1, applies);
            let schema = object.take(part);
            object.all_of.push(schema);
        }
    }

    fn any_of(&mut self, parts: &'a [Value], depth: usize, object: &mut Object) {
        let parts = parts.iter().map(|part| {
            let part = self.part(part, depth + 1, false);
            object.take(part)
        });
        let parts = parts.collect();
        object.shown.insert("anyOf".to_owned(), parts);
    }

    /// Rewrites `oneOf`. It becomes `anyOf` if a part allows more than its original, since more
    /// than one part could then match.
    fn one_of(&mut self, parts: &'a [Value], depth: usize, object: &mut Object) {
        let mut is_exact = true;
        let parts = parts.iter().map(|part| {
            let part = self.part(part, depth + 1, false);
            is_exact &= !part.is_lax;
            object.take(part)
        });
        let parts: Value = parts.collect();
        if is_exact {
            object.shown.insert("oneOf".to_owned(), parts);
        } else {
            object.all_of.push(json!({ "anyOf": parts }));
        }
    }

    /// Rewrites `not`. It is omitted if its schema allows more than the original, since it would
    /// then reject more.
    fn negation(&mut self, schema: &'a Value, depth: usize, object: &mut Object) {
        let part = self.part(schema, depth + 1, false);
        if part.is_lax {
            object.is_lax = true;
        } else {
            object.shown.insert("not".to_owned(), part.schema);
        }
    }

    fn examples(&mut self, examples: &[Value], object: &mut Object) {
        let examples = examples.iter().filter_map(|example| self.example(example));
        let examples = examples.collect();
        object.shown.insert("examples".to_owned(), examples);
    }

    /// Translates an example of arguments for clients. Returns `None` if it contains a secret, or
    /// is not an object.
    fn example(&mut self, example: &Value) -> Option<Value> {
        let shown = example.is_object().then(|| self.arguments.show(example))?;
        (!self.definitions.tells_in(&shown)).then(|| self.definitions.copy_data(&shown))
    }

    /// Copies a schema within an argument.
    fn copy(&mut self, schema: &'a Value, object: &mut Object) -> Value {
        object.is_lax |= self.definitions.is_lenient();
        self.definitions.copy(schema)
    }

    fn properties(&mut self, properties: &'a JsonObject, object: &mut Object) {
        let mut shown = Map::new();
        for (name, schema) in properties {
            self.definitions.spend(name.len());
            self.declared.insert(name.clone());
            match self.arguments.fate(name) {
                Fate::Kept => {
                    let schema = self.copy(schema, object);
                    shown.insert(name.clone(), schema);
                }
                Fate::Named(argument, name) => {
                    if let Some(default) = &argument.default {
                        object.is_lax |= fits(schema, default) != Some(true);
                    }
                    let schema = self.copy(schema, object);
                    shown.insert(name.to_owned(), described(schema, argument));
                }
                Fate::Hidden(Argument { default: Some(default), .. }) => {
                    self.definitions.spend(schema.get("enum").map_or(0, length));
                    match fits(schema, default) {
                        Some(true) => (),
                        Some(false) => object.is_impossible = true,
                        None => object.is_lax = true,
                    }
                }
                Fate::Hidden(_) => (),
                Fate::Shadowed => {
                    self.shadowed.insert(name.clone());
                }
            }
        }
        object.shown.insert("properties".to_owned(), shown.into());
    }

    fn condition(
        &mut self,
        condition: &'a Value,
        members: &'a JsonObject,
        depth: usize,
        object: &mut Object,
    ) {
        let condition = self.part(condition, depth + 1, false);
        if condition.is_lax {
            object.give_up();
            return;
        }
        object.shown.insert("if".to_owned(), condition.schema);
        for key in ["then", "else"] {
            if let Some(schema) = members.get(key) {
                let part = self.part(schema, depth + 1, false);
                let schema = object.take(part);
                object.shown.insert(key.to_owned(), schema);
            }
        }
    }

    /// Inlines the target of a reference.
    fn follow(&mut self, reference: &'a str, depth: usize, applies: bool, object: &mut Object) {
        let found = self.definitions.references.resolve(reference);
        let is_new = |found: &&Value| !self.following.iter().any(|known| ptr::eq(*known, *found));
        let Some(found) = found.filter(is_new) else {
            object.give_up();
            return;
        };
        self.following.push(found);
        let part = self.part(found, depth + 1, applies);
        self.following.pop();
        let schema = object.take(part);
        object.inlined = Some(schema);
    }

    /// Rewrites the keywords for arguments that no other keyword of the schema describes.
    fn others(&mut self, members: &'a JsonObject, object: &mut Object) {
        let mut has_all_patterns = true;
        if let Some(Value::Object(patterns)) = members.get("patternProperties") {
            object.is_lax |= self.has_defaults;
            let mut shown = Map::new();
            for (pattern, schema) in patterns {
                if self.speaks_of_others(pattern) {
                    let schema = self.copy(schema, object);
                    shown.insert(pattern.clone(), schema);
                } else {
                    has_all_patterns = false;
                    object.give_up();
                }
            }
            object.shown.insert("patternProperties".to_owned(), shown.into());
        }
        if let Some(schema) = members.get("additionalProperties").filter(|_| has_all_patterns) {
            let declared = members.get("properties").and_then(Value::as_object);
            let is_declared = |name: &str| declared.is_some_and(|all| all.contains_key(name));
            object.is_lax |= self
                .arguments
                .iter()
                .any(|argument| argument.default.is_some() && !is_declared(&argument.original));
            let schema = self.copy(schema, object);
            object.shown.insert("additionalProperties".to_owned(), schema);
        }
        if let Some(schema) = members.get("unevaluatedProperties") {
            if object.is_lossy {
                object.is_lax = true;
            } else {
                object.is_lax |= self.has_defaults;
                let schema = self.copy(schema, object);
                object.shown.insert("unevaluatedProperties".to_owned(), schema);
            }
        }
    }

    /// Returns `true` if a pattern matches only names that server and clients share, and contains
    /// no secret.
    fn speaks_of_others(&mut self, pattern: &str) -> bool {
        let mut others = self.arguments.iter().filter(|a| a.is_renamed() || a.name.is_none());
        if pattern.len() > MAX_REWRITTEN_PATTERN || self.definitions.tells(pattern) {
            return false;
        }
        let Some(left) = self.patterns_left.checked_sub(1) else { return false };
        self.patterns_left = left;
        let regex = RegexBuilder::new(pattern).size_limit(MAX_REWRITTEN_PATTERN_BYTES).build();
        regex.is_ok_and(|regex| {
            !others.any(|argument| {
                let names = [Some(&argument.original), argument.name.as_ref()];
                names.into_iter().flatten().any(|name| regex.is_match(name))
            })
        })
    }
}

// === impl Part ===

impl Part {
    const fn exact(schema: Value) -> Self {
        Self { schema, is_lax: false, is_lossy: false }
    }

    /// Returns a part that allows everything, in place of one that is not understood.
    const fn open() -> Self {
        Self { schema: Value::Bool(true), is_lax: true, is_lossy: true }
    }
}

// === impl Object ===

impl Object {
    /// Merges the flags of a part, and returns its schema.
    fn take(&mut self, part: Part) -> Value {
        self.is_lax |= part.is_lax;
        self.is_lossy |= part.is_lossy;
        part.schema
    }

    /// Records that a keyword was omitted because it is not understood.
    const fn give_up(&mut self) {
        self.is_lax = true;
        self.is_lossy = true;
    }

    fn finish(mut self) -> Part {
        match self.inlined.take() {
            None | Some(Value::Bool(true)) => (),
            // A schema with nothing but a reference is replaced by the target.
            Some(Value::Object(inlined)) if self.is_bare(&inlined) => {
                for (key, value) in inlined {
                    self.shown.entry(key).or_insert(value);
                }
            }
            Some(inlined) => self.all_of.push(inlined),
        }
        if !self.all_of.is_empty() {
            self.shown.insert("allOf".to_owned(), self.all_of.into());
        }
        let schema = self.shown.into();
        Part { schema, is_lax: self.is_lax, is_lossy: self.is_lossy }
    }

    /// Returns `true` if no keyword could contradict the target of a reference.
    fn is_bare(&self, inlined: &JsonObject) -> bool {
        let types = (self.shown.get("type"), inlined.get("type"));
        self.all_of.is_empty()
            && self.shown.keys().all(|key| TELLING.contains(&key.as_str()))
            && !matches!(types, (Some(one), Some(other)) if one != other)
    }
}

/// Adds the description and the default of an alias to the schema of its argument.
fn described(schema: Value, argument: &Argument) -> Value {
    let mut shown = match schema {
        Value::Object(shown) => shown,
        Value::Bool(true) => Map::new(),
        other => return other,
    };
    if let Some(description) = &argument.description {
        shown.insert("description".to_owned(), description.clone().into());
    }
    if let Some(default) = &argument.default {
        shown.insert("default".to_owned(), default.clone());
    }
    shown.into()
}

/// Returns the number of direct children of a value.
fn length(value: &Value) -> usize {
    match value {
        Value::Array(elements) => elements.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    }
}
