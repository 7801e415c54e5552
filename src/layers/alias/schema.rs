//! Rewrites a tool's input schema for the arguments that clients know.
//!
//! The `properties` and `required` of the root are rewritten, and its `additionalProperties` are
//! kept. Other keywords of the root that describe the arguments, such as `anyOf`, are omitted. The
//! schema of an argument is copied with the definitions that it refers to, if each part of it is
//! understood; otherwise only its type, title and description are kept. So the rewritten schema may
//! allow more than the tool accepts, since a layer below checks that, but never less.
//!
//! The rewritten schema contains nothing about hidden arguments and original names: unknown
//! keywords are omitted, and a definition that describes the arguments as a whole, as in a tool
//! that takes a tree of its own arguments, is not copied.
//!
//! The amount of work is bounded. Arguments beyond the bound are listed without their schema.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::JsonObject;
use serde_json::{Map, Value};

use super::arguments::{Argument, Arguments, Fate};
use crate::{
    json_size::BoundedCounter,
    message::is_deeper,
    schema::keywords::{self, AppliesTo, Subschema},
};

/// Keywords that hold definitions.
const DEFINING: [&str; 2] = ["$defs", "definitions"];
/// Other known keywords, whose values describe the argument that they are in.
const PLAIN: [&str; 26] = [
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
    "readOnly",
    "required",
    "title",
    "type",
    "uniqueItems",
    "writeOnly",
];
/// A parameter that a client sends as an HTTP header, of which only the argument's value is sent.
const HEADER: &str = "x-mcp-header";
/// Keywords of an argument that are kept if the others are not.
const OUTLINE: [&str; 3] = ["type", "title", "description"];
/// Keywords that restrict a value, but are not understood: the schema in which they are is not
/// copied.
const FOREIGN: [&str; 8] = [
    "$dynamicRef",
    "$id",
    "$recursiveRef",
    "dependencies",
    "disallow",
    "divisibleBy",
    "extends",
    "id",
];

/// Maximum number of schemas that describe all arguments.
const MAX_IN_PLACE_SCHEMAS: usize = 1_000;
/// Maximum depth of a schema.
const MAX_SCHEMA_DEPTH: usize = 128;
/// Maximum size of the copied schemas in total, in approximate bytes of JSON.
const MAX_SCHEMA_BYTES: usize = 1 << 20;
/// Size of the braces of a schema.
const BRACES: usize = 2;

/// A schema as clients see it.
pub(super) struct Rewritten {
    pub(super) schema: JsonObject,
    /// The tool's names of its arguments, as far as the schema declares them.
    pub(super) declared: BTreeSet<String>,
    /// Arguments that clients cannot set, because their name refers to another.
    pub(super) shadowed: BTreeSet<String>,
    /// Required arguments that no call can set.
    pub(super) unset: BTreeSet<String>,
}

/// The parts of a schema that describe all arguments, in its root and in the schemas that apply in
/// place.
struct InPlace<'a> {
    root: &'a JsonObject,
    arguments: &'a Arguments,
    declared: BTreeSet<String>,
    shadowed: BTreeSet<String>,
    unset: BTreeSet<String>,
    /// References to the definitions among them, and whether they apply to every call.
    definitions: BTreeMap<&'a str, bool>,
    /// Whether all of them are known.
    is_complete: bool,
    /// The remaining number of schemas.
    left: usize,
}

/// Copies the schemas of arguments.
struct Copier<'a> {
    root: &'a JsonObject,
    /// References to the definitions that describe all arguments.
    in_place: BTreeMap<&'a str, bool>,
    /// Names and values that clients must not see.
    secrets: Vec<&'a str>,
    /// References to definitions that are copied or will be.
    definitions: BTreeSet<&'a str>,
    /// Definitions still to be copied.
    wanted: Vec<&'a str>,
    /// The remaining size.
    left: BoundedCounter,
}

/// The copied schema of an argument.
struct Copy<'a> {
    schema: Option<Value>,
    /// Whether it refers to definitions.
    has_references: bool,
    original: &'a Value,
}

/// Rewrites the schema of a tool for the arguments that clients know.
pub(super) fn rewrite(root: &JsonObject, arguments: &Arguments) -> Rewritten {
    let in_place = InPlace::new(root, arguments);
    let InPlace { declared, shadowed, unset, definitions, is_complete, .. } = in_place;
    let mut copier = Copier {
        root,
        in_place: definitions,
        secrets: arguments.secrets().collect(),
        definitions: BTreeSet::new(),
        wanted: Vec::new(),
        // Nothing is copied if any part could describe all arguments.
        left: BoundedCounter::new(if is_complete { MAX_SCHEMA_BYTES } else { 0 }),
    };
    let mut copies = Vec::new();
    for name in &declared {
        let (argument, shown) = match arguments.fate(name) {
            Fate::Kept => (None, &**name),
            Fate::Named(argument, name) => (Some(argument), name),
            Fate::Hidden(_) | Fate::Shadowed => continue,
        };
        copies.push((shown, argument, copier.of_argument(name)));
    }
    let additional = additional_properties(root).map(|schema| copier.copy_apart(schema));
    let definitions = copier.copy_definitions();
    let has_definitions = definitions.is_some();
    let kept = |copy: Copy<'_>| match copy.schema {
        Some(schema) if has_definitions || !copy.has_references => schema,
        _ => outline(copy.original),
    };

    let mut shown = Map::new();
    for key in ["$schema", "title", "description", "type"] {
        let value = root.get(key).filter(|value| value.is_string() || value.is_array());
        shown.extend(value.map(|value| (key.to_owned(), value.clone())));
    }
    // The protocol requires `type`.
    shown.entry("type").or_insert_with(|| Value::from("object"));
    if !declared.is_empty() {
        let properties = copies.into_iter().map(|(name, argument, copy)| {
            let schema = match argument {
                None => kept(copy),
                Some(argument) => described(kept(copy), argument),
            };
            (name.to_owned(), schema)
        });
        shown.insert("properties".to_owned(), Value::Object(properties.collect()));
    }
    let required = required(root, arguments);
    // Old dialects require at least one element.
    if !required.is_empty() {
        shown.insert("required".to_owned(), required.into());
    }
    if let Some(copy) = additional {
        let schema = copy.schema.filter(|_| has_definitions || !copy.has_references);
        shown.extend(schema.map(|schema| ("additionalProperties".to_owned(), schema)));
    }
    for (keyword, named) in definitions.into_iter().flatten() {
        shown.insert(keyword.to_owned(), named.into());
    }
    Rewritten { schema: shown, declared, shadowed, unset }
}

/// Returns the schema of all other arguments, unless another keyword describes some of them.
fn additional_properties(root: &JsonObject) -> Option<&Value> {
    let is_alone = !root.contains_key("patternProperties") && !root.contains_key("$ref");
    root.get("additionalProperties").filter(|_| is_alone)
}

/// Returns the arguments that clients must set.
fn required(root: &JsonObject, arguments: &Arguments) -> Vec<Value> {
    if root.contains_key("$ref") {
        return Vec::new();
    }
    let names = root.get("required").and_then(Value::as_array).into_iter().flatten();
    let names = names.filter_map(Value::as_str).filter_map(|name| match arguments.fate(name) {
        Fate::Kept => Some(name),
        Fate::Named(argument, name) => argument.default.is_none().then_some(name),
        Fate::Hidden(_) | Fate::Shadowed => None,
    });
    names.map(Value::from).collect()
}

/// Returns the part of an argument's schema that is understood in any case.
fn outline(schema: &Value) -> Value {
    let mut shown = Map::new();
    if let Value::Object(members) = schema {
        // Up to draft 7, keywords beside a `$ref` are ignored.
        let of = |key: &&str| *key != "type" || !members.contains_key("$ref");
        for key in OUTLINE.into_iter().filter(of) {
            let value = members.get(key).filter(|value| value.is_string());
            shown.extend(value.map(|value| (key.to_owned(), value.clone())));
        }
    }
    shown.into()
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

/// Returns the keyword and the name of a reference to a definition of the root, unless the name is
/// escaped.
fn definition(reference: &str) -> Option<(&str, &str)> {
    let (keyword, name) = reference.strip_prefix("#/")?.split_once('/')?;
    let is_plain = !name.contains(['/', '~', '%']);
    (DEFINING.contains(&keyword) && is_plain).then_some((keyword, name))
}

// === impl InPlace ===

impl<'a> InPlace<'a> {
    fn new(root: &'a JsonObject, arguments: &'a Arguments) -> Self {
        let mut in_place = Self {
            root,
            arguments,
            declared: BTreeSet::new(),
            shadowed: BTreeSet::new(),
            unset: BTreeSet::new(),
            definitions: BTreeMap::new(),
            is_complete: true,
            left: MAX_IN_PLACE_SCHEMAS,
        };
        in_place.visit(root, 0, true);
        in_place
    }

    /// Collects the names in a schema that describes all arguments. `applies` is `true` if it
    /// applies to every call.
    fn visit(&mut self, schema: &'a JsonObject, depth: usize, applies: bool) {
        if depth > MAX_SCHEMA_DEPTH || self.left == 0 {
            self.is_complete = false;
            return;
        }
        self.left -= 1;
        for Subschema { keyword, applies_to, schema } in keywords::subschemas(schema) {
            match (applies_to, schema) {
                (AppliesTo::Member(name), _) => {
                    self.declared.insert(name.to_owned());
                    if matches!(self.arguments.fate(name), Fate::Shadowed) {
                        self.shadowed.insert(name.to_owned());
                    }
                }
                (AppliesTo::Whole, Value::Object(part)) => {
                    self.visit(part, depth + 1, applies && keyword == "allOf");
                }
                _ => (),
            }
        }
        if let Some(Value::Array(names)) = schema.get("required")
            && applies
        {
            let names = names.iter().filter_map(Value::as_str);
            let unset = names.filter(|name| match self.arguments.fate(name) {
                Fate::Hidden(argument) => argument.default.is_none(),
                Fate::Shadowed => true,
                Fate::Kept | Fate::Named(..) => false,
            });
            self.unset.extend(unset.map(str::to_owned));
        }
        if let Some(Value::String(reference)) = schema.get("$ref") {
            self.follow(reference, depth, applies);
        }
        self.is_complete &=
            !["$dynamicRef", "$recursiveRef"].iter().any(|key| schema.contains_key(*key));
    }

    fn follow(&mut self, reference: &'a str, depth: usize, applies: bool) {
        if reference == "#" {
            return;
        }
        let target = definition(reference)
            .and_then(|(keyword, name)| self.root.get(keyword)?.get(name)?.as_object());
        let Some(target) = target else {
            self.is_complete = false;
            return;
        };
        // Visited again if only now it is known to apply to every call.
        let known = self.definitions.get(reference).copied();
        if known.is_none_or(|known| applies && !known) {
            self.definitions.insert(reference, applies);
            self.visit(target, depth + 1, applies);
        }
    }
}

// === impl Copier ===

impl<'a> Copier<'a> {
    /// Copies the schema of an argument.
    fn of_argument(&mut self, name: &str) -> Copy<'a> {
        let declared = self.root.get("properties").and_then(|properties| properties.get(name));
        // Up to draft 7, keywords beside a `$ref` are ignored.
        match declared.filter(|_| !self.root.contains_key("$ref")) {
            Some(schema) => self.copy_apart(schema),
            None => Copy { schema: None, has_references: false, original: &Value::Null },
        }
    }

    fn copy_apart(&mut self, schema: &'a Value) -> Copy<'a> {
        let mut has_references = false;
        let copied = self.copy_schema(schema, &mut has_references);
        Copy { schema: copied, has_references, original: schema }
    }

    /// Copies a schema; `None` if a part of it is not understood, or it is nested too deep.
    fn copy_schema(&mut self, schema: &'a Value, refers: &mut bool) -> Option<Value> {
        if is_deeper(schema, MAX_SCHEMA_DEPTH) { None } else { self.copy(schema, refers) }
    }

    fn copy(&mut self, schema: &'a Value, refers: &mut bool) -> Option<Value> {
        let Value::Object(members) = schema else { return self.copy_data(schema) };
        self.left.take(BRACES)?;
        let mut copied = Map::new();
        for (key, value) in members {
            self.left.take(key.len())?;
            let value = match (key.as_str(), value) {
                ("$ref", Value::String(reference)) => {
                    *refers = true;
                    self.refer(reference)?
                }
                ("$ref", _) => return None,
                (key, _) if FOREIGN.contains(&key) => return None,
                (key, _) if DEFINING.contains(&key) => continue,
                (key, value) if keywords::is_applicator(key) => {
                    if let Value::Object(members) = value
                        && keywords::is_map(key)
                    {
                        self.left.take(members.keys().map(String::len).sum())?;
                    }
                    let copy = |schema| self.copy(schema, refers).ok_or(());
                    keywords::try_map(key, value, copy).ok()?
                }
                (key, value) if keywords::is_data(key) || PLAIN.contains(&key) || key == HEADER => {
                    self.copy_data(value)?
                }
                // It restricts nothing, and may mention any argument.
                _ => continue,
            };
            copied.insert(key.clone(), value);
        }
        Some(copied.into())
    }

    /// Copies a value that is not a schema.
    fn copy_data(&mut self, data: &Value) -> Option<Value> {
        self.left.holds(data).then(|| data.clone())
    }

    /// Requests a definition, and returns the reference to it.
    fn refer(&mut self, reference: &'a str) -> Option<Value> {
        let (keyword, name) = definition(reference)?;
        let exists = self.root.get(keyword).is_some_and(|all| all.get(name).is_some());
        let is_secret = self.secrets.iter().any(|secret| name.contains(secret));
        if !exists || is_secret || self.in_place.contains_key(reference) {
            return None;
        }
        if self.definitions.insert(reference) {
            self.wanted.push(reference);
        }
        Some(reference.into())
    }

    /// Copies all referenced definitions, by keyword and name. `None` if one of them is not
    /// understood.
    fn copy_definitions(&mut self) -> Option<BTreeMap<&'a str, JsonObject>> {
        let mut copied: BTreeMap<_, JsonObject> = BTreeMap::new();
        while let Some(reference) = self.wanted.pop() {
            let (keyword, name) = definition(reference)?;
            let schema = self.copy_schema(self.root.get(keyword)?.get(name)?, &mut false)?;
            copied.entry(keyword).or_default().insert(name.to_owned(), schema);
        }
        Some(copied)
    }
}

#[cfg(test)]
mod tests;
