//! Rewrites a tool's input schema so that it contains the argument names that clients use.
//!
//! The rewritten schema contains the properties and required arguments that the tool's schema
//! declares at its root, under the client's names, and the `additionalProperties` of the root.
//! Other keywords at the root, such as `anyOf`, are omitted.
//!
//! If every part of an argument's schema is understood, the schema is copied with the definitions
//! that it refers to. Otherwise only the argument's type, title and description are copied. The
//! rewritten schema can therefore allow more than the tool accepts, but never less. The tool, or a
//! layer below, checks the arguments of each call again.
//!
//! The rewritten schema must not reveal hidden arguments and original names. For this reason, it
//! contains no unknown keywords. It also contains no definitions that describe the whole arguments
//! object. Such definitions occur in recursive schemas, for example if a tool accepts a tree.
//!
//! The number of visited schemas and the number of copied bytes are limited. If an argument's
//! schema exceeds a limit, only its type, title and description are copied.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::JsonObject;
use serde_json::{Map, Value};

use super::arguments::{Argument, Arguments, Fate};
use crate::{
    json_size::BoundedCounter,
    message::is_deeper,
    schema::keywords::{self, AppliesTo, Subschema},
};

/// The JSON Schema keywords under which a schema defines other schemas, to which `$ref` can refer.
pub(super) const DEFINING: [&str; 2] = ["$defs", "definitions"];
/// JSON Schema keywords that are copied unchanged, because their values contain no schemas.
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
/// Schema keyword that names an HTTP header. Clients also send the value of the argument in this
/// header.
const HEADER: &str = "x-mcp-header";
/// JSON Schema keywords that are copied from the schema of an argument even if its other keywords
/// cannot be copied.
const OUTLINE: [&str; 3] = ["type", "title", "description"];
/// JSON Schema keywords that restrict a value in ways that this module does not understand. A
/// schema with one of these keywords is not copied.
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

/// Maximum number of visited schemas that describe the whole arguments object, such as the elements
/// of an `allOf`.
const MAX_IN_PLACE_SCHEMAS: usize = 1_000;
/// Maximum nesting depth of a schema that is visited or copied.
const MAX_SCHEMA_DEPTH: usize = 128;
/// Maximum total size, in bytes of JSON, of all schemas that are copied for one tool. Sizes are
/// approximate.
const MAX_SCHEMA_BYTES: usize = 1 << 20;
/// The size of `{}` in bytes.
const BRACES: usize = 2;

/// The result of [`rewrite`]: the input schema that clients receive, and the problems that the
/// layer logs.
pub(super) struct Rewritten {
    pub(super) schema: JsonObject,
    /// The original names of all arguments that the tool's schema declares.
    pub(super) declared: BTreeSet<String>,
    /// The original names of arguments that clients cannot set, because the alias of another
    /// argument uses the name.
    pub(super) shadowed: BTreeSet<String>,
    /// The original names of required arguments that no call can set. Either the argument is hidden
    /// and has no default, or the alias of another argument uses its name.
    pub(super) unset: BTreeSet<String>,
}

/// The arguments that a tool's input schema declares, in its root and in nested schemas for the
/// same object. Examples of nested schemas are those in `allOf` and the targets of `$ref`.
struct InPlace<'a> {
    root: &'a JsonObject,
    arguments: &'a Arguments,
    declared: BTreeSet<String>,
    shadowed: BTreeSet<String>,
    unset: BTreeSet<String>,
    /// The definitions visited so far, by reference, such as `#/$defs/Name`. The value is `true` if
    /// the definition applies to every tool call, and `false` if it is only an alternative, as in
    /// `anyOf`.
    definitions: BTreeMap<&'a str, bool>,
    /// `true` if all schemas that declare arguments were visited. `false` if a limit was exceeded
    /// or a reference could not be resolved.
    is_complete: bool,
    /// The number of schemas that may still be visited. Starts at [`MAX_IN_PLACE_SCHEMAS`].
    left: usize,
}

/// Copies the schemas of arguments, and the definitions that they use, to the rewritten schema.
struct Copier<'a> {
    root: &'a JsonObject,
    /// The definitions that describe the whole arguments object. The key is the reference, such as
    /// `#/$defs/Name`. These definitions are not copied.
    in_place: BTreeMap<&'a str, bool>,
    /// Argument names and values that the copied schemas must not reveal to clients.
    secrets: Vec<&'a str>,
    /// The references, such as `#/$defs/Name`, of all definitions that the copied schemas use.
    definitions: BTreeSet<&'a str>,
    /// The references in `definitions` whose targets are not copied yet.
    wanted: Vec<&'a str>,
    /// The number of bytes that may still be copied.
    left: BoundedCounter,
}

/// The copy of an argument's schema. `schema` is `None` if the original cannot be copied.
struct Copy<'a> {
    schema: Option<Value>,
    /// `true` if the schema contains a `$ref`. The copy is then valid only together with the copied
    /// definitions.
    has_references: bool,
    original: &'a Value,
}

/// Rewrites the input schema `root` of a tool so that clients see the argument names, descriptions
/// and defaults of the aliases.
pub(super) fn rewrite(root: &JsonObject, arguments: &Arguments) -> Rewritten {
    let in_place = InPlace::new(root, arguments);
    let InPlace { declared, shadowed, unset, definitions, is_complete, .. } = in_place;
    let mut copier = Copier {
        root,
        in_place: definitions,
        secrets: arguments.secrets().collect(),
        definitions: BTreeSet::new(),
        wanted: Vec::new(),
        // If some schemas were not visited, any definition could describe the whole arguments
        // object. Copy nothing, because it could reveal hidden arguments.
        left: BoundedCounter::new(if is_complete { MAX_SCHEMA_BYTES } else { 0 }),
    };
    let mut copies = Vec::new();
    for name in &declared {
        let (argument, client_name) = match arguments.fate(name) {
            Fate::Kept => (None, &**name),
            Fate::Named(argument, name) => (Some(argument), name),
            Fate::Hidden(_) | Fate::Shadowed => continue,
        };
        copies.push((client_name, argument, copier.of_argument(name)));
    }
    let additional = additional_properties(root).map(|schema| copier.copy_apart(schema));
    let definitions = copier.copy_definitions();
    let has_definitions = definitions.is_some();
    let kept = |copy: Copy<'_>| match copy.schema {
        Some(schema) if has_definitions || !copy.has_references => schema,
        _ => outline(copy.original),
    };

    let mut rewritten = Map::new();
    for key in ["$schema", "title", "description", "type"] {
        let value = root.get(key).filter(|value| value.is_string() || value.is_array());
        rewritten.extend(value.map(|value| (key.to_owned(), value.clone())));
    }
    // The protocol requires `type`.
    rewritten.entry("type").or_insert_with(|| Value::from("object"));
    if !declared.is_empty() {
        let properties = copies.into_iter().map(|(name, argument, copy)| {
            let schema = match argument {
                None => kept(copy),
                Some(argument) => described(kept(copy), argument),
            };
            (name.to_owned(), schema)
        });
        rewritten.insert("properties".to_owned(), Value::Object(properties.collect()));
    }
    let required = required(root, arguments);
    // Old dialects of JSON Schema require at least one element in `required`.
    if !required.is_empty() {
        rewritten.insert("required".to_owned(), required.into());
    }
    if let Some(copy) = additional {
        let schema = copy.schema.filter(|_| has_definitions || !copy.has_references);
        rewritten.extend(schema.map(|schema| ("additionalProperties".to_owned(), schema)));
    }
    for (keyword, named) in definitions.into_iter().flatten() {
        rewritten.insert(keyword.to_owned(), named.into());
    }
    Rewritten { schema: rewritten, declared, shadowed, unset }
}

/// Returns the value of `additionalProperties`, which is the schema of undeclared arguments.
/// Returns `None` if `root` contains no such keyword. Also returns `None` if `root` contains
/// `patternProperties` or `$ref`, because these may describe undeclared arguments, too.
fn additional_properties(root: &JsonObject) -> Option<&Value> {
    let is_alone = !root.contains_key("patternProperties") && !root.contains_key("$ref");
    root.get("additionalProperties").filter(|_| is_alone)
}

/// Returns the names of the required arguments, as clients know them. Omits hidden arguments, and
/// arguments whose alias has a default.
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

/// Returns the type, title and description of an argument's schema as a schema. Used if the whole
/// schema cannot be copied.
fn outline(schema: &Value) -> Value {
    let mut outline = Map::new();
    if let Value::Object(members) = schema {
        // Up to draft 7, keywords beside a `$ref` are ignored.
        let of = |key: &&str| *key != "type" || !members.contains_key("$ref");
        for key in OUTLINE.into_iter().filter(of) {
            let value = members.get(key).filter(|value| value.is_string());
            outline.extend(value.map(|value| (key.to_owned(), value.clone())));
        }
    }
    outline.into()
}

/// Adds the description and the default of an argument's alias to the schema of the argument.
fn described(schema: Value, argument: &Argument) -> Value {
    let mut members = match schema {
        Value::Object(members) => members,
        Value::Bool(true) => Map::new(),
        other => return other,
    };
    if let Some(description) = &argument.description {
        members.insert("description".to_owned(), description.clone().into());
    }
    if let Some(default) = &argument.default {
        members.insert("default".to_owned(), default.clone());
    }
    members.into()
}

/// Splits a reference such as `#/$defs/Name` into `$defs` and `Name`. Returns `None` if the
/// reference has another form or contains an escape.
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

    /// Collects the arguments that `schema` and its subschemas for the same object declare.
    /// `applies` is `true` if the schema applies to every tool call, and `false` if it is only one
    /// of several alternatives.
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
        // Visit a known definition again if it turns out that it applies to every tool call.
        let known = self.definitions.get(reference).copied();
        if known.is_none_or(|known| applies && !known) {
            self.definitions.insert(reference, applies);
            self.visit(target, depth + 1, applies);
        }
    }
}

// === impl Copier ===

impl<'a> Copier<'a> {
    /// Copies the schema of the argument that the tool calls `name`.
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

    /// Copies a schema, and sets `refers` to `true` if it contains a `$ref`. Returns `None` if the
    /// schema uses a keyword that cannot be copied, is nested too deeply, or exceeds the remaining
    /// number of bytes.
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
                // Omit unknown keywords. They do not restrict values, but may reveal the names of
                // arguments.
                _ => continue,
            };
            copied.insert(key.clone(), value);
        }
        Some(copied.into())
    }

    /// Copies a value that contains no schema. Returns `None` if the value exceeds the remaining
    /// number of bytes.
    fn copy_data(&mut self, data: &Value) -> Option<Value> {
        self.left.holds(data).then(|| data.clone())
    }

    /// Returns the value of a copied `$ref`, and schedules its target for copying. Returns `None`
    /// if the target does not exist, describes the whole arguments object, or has a name that
    /// clients must not see.
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

    /// Copies all definitions to which the copied schemas refer. Returns the copies by keyword
    /// (`$defs` or `definitions`) and name. Returns `None` if a definition cannot be copied.
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
