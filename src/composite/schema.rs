//! Derives the input schema of a composite from those of the tools that it calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use rmcp::model::{JsonObject, object};
use serde_json::{Map, Value, json};

use super::input::with_object_type;
use crate::{
    engine::plan::Arguments,
    expr::{PathSegment, Use},
    schema::{keywords, refs::resolve},
    suggest::nearest,
};

/// The JSON Schema keywords that may allow properties that are not listed in `properties`.
const OPENING_KEYWORDS: [&str; 8] = [
    "$ref",
    "allOf",
    "anyOf",
    "dependentSchemas",
    "if",
    "oneOf",
    "patternProperties",
    "propertyNames",
];
/// A schema keyword that makes clients send the value of a property also as an HTTP header when
/// they call the tool (SEP-2243). The keyword is removed from the schemas of composites, because it
/// applies only to the server that defined the tool.
const HEADER_KEYWORD: &str = "x-mcp-header";

/// A target of a composite. The composite's input schema is derived from the arguments of the
/// target and the input schema of its tool.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) id: &'a str,
    /// `true` if every successful run calls this target.
    pub(super) certain: bool,
    pub(super) arguments: &'a Arguments,
    /// The input schema of the target's tool. `None` if the tool is missing.
    pub(super) schema: Option<&'a JsonObject>,
}

/// A reference to the composite's input outside the arguments of tool calls, for example in a
/// condition.
pub(super) struct Need<'a> {
    pub(super) used: Use<'a>,
    /// `true` if every successful run evaluates this reference.
    pub(super) certain: bool,
    /// The schema that the referenced property must match. `None` if the reference does not
    /// determine a schema.
    pub(super) schema: Option<Value>,
}

/// Derives the input schema of a composite from the input schemas of its targets.
///
/// If all targets have the same schema and every successful run passes its whole input to each of
/// them, the result is this schema with all its keywords. The input must not be used elsewhere, for
/// example in a condition.
///
/// Otherwise, the derived schema contains the properties of all targets and all referenced
/// properties. If targets have different schemas for a property, the schemas are combined with
/// `anyOf`. A property is required if every successful run needs it. `$schema` is included if it is
/// the same for all targets.
pub(super) fn derive_input(sources: &[Source<'_>], needs: Vec<Need<'_>>) -> JsonObject {
    if let Some(schema) = common_schema(sources).filter(|_| needs.is_empty()) {
        return adopt_whole(schema);
    }
    let mut union = Union::default();
    let mut closed = true;
    for source in sources {
        match source.arguments {
            Arguments::Input => {
                closed &= source.schema.is_some_and(is_closed);
                union.add_all(source);
            }
            Arguments::Mapped(expression) => {
                closed = false;
                for used in expression.uses() {
                    union.add_reference(source, &used);
                }
            }
        }
    }
    for Need { used, certain, schema } in needs {
        let Some(name) = used.property() else { continue };
        closed = false;
        let schema = schema.filter(|_| used.bare && used.path.len() == 1);
        union.refer(name, schema, certain && used.certain && !used.optional);
    }
    let mut schema = union.into_schema(closed);
    if let Some(dialect) = common_dialect(sources) {
        schema.insert("$schema".to_owned(), dialect.clone());
    }
    schema
}

/// Returns the value of `$schema` if it is the same in the input schemas of all targets whose tools
/// exist. Otherwise, returns `None`.
fn common_dialect<'a>(sources: &[Source<'a>]) -> Option<&'a Value> {
    let mut dialects = sources.iter().filter_map(|source| Some(source.schema?.get("$schema")));
    let first = dialects.next()??;
    dialects.all(|dialect| dialect == Some(first)).then_some(first)
}

/// Returns the input schema of the targets if it is the same for all targets, and if every
/// successful run passes its whole input to each target. Otherwise, returns `None`.
fn common_schema<'a>(sources: &[Source<'a>]) -> Option<&'a JsonObject> {
    let first = sources.first()?.schema?;
    let is_common = |source: &Source<'_>| {
        source.certain && source.schema == Some(first) && passes_input(source.arguments, first)
    };
    sources.iter().all(is_common).then_some(first)
}

/// Returns `true` if a call passes on the whole input of the composite. There are two such cases.
/// Either the call sets no arguments, or it sets an argument for each property of `schema`, and
/// each argument refers to the input property of the same name.
fn passes_input(arguments: &Arguments, schema: &JsonObject) -> bool {
    let Arguments::Mapped(expression) = arguments else { return true };
    let root = resolve_root(schema);
    let required = root.get("required").and_then(Value::as_array);
    let is_required = |name: &str| {
        required.is_some_and(|required| required.iter().any(|required| required == name))
    };
    let uses = expression.uses();
    let passes = |name: &str, property: &Value| {
        let may_be_missing = !is_required(name) && property.get("default").is_none();
        uses.iter().any(|used| {
            used.bare
                && used.place == [PathSegment::from(name)]
                && used.property() == Some(name)
                && used.path.len() == 1
                && (used.optional || !may_be_missing)
        })
    };
    let is_property = |used: &Use<'_>| {
        used.property().is_some_and(|name| properties(root).any(|(property, _)| property == name))
    };
    !uses.is_empty()
        && uses.iter().all(is_property)
        && properties(root).all(|(name, property)| passes(name, property))
}

/// Returns the input schema of a composite whose arguments are all passed to a tool with the given
/// input schema: the same schema without the keyword [`HEADER_KEYWORD`].
pub(super) fn adopt_whole(schema: &JsonObject) -> JsonObject {
    with_object_type(object(rehome(&Value::Object(schema.clone()), None)))
}

/// Returns `true` if `schema` lists the property in its `properties`.
pub(super) fn declares(schema: &JsonObject, property: &str) -> bool {
    let properties = resolve_root(schema).get("properties");
    properties.is_some_and(|properties| properties.get(property).is_some())
}

/// Returns the first key of `path` that the schema does not declare. Also returns the declared key
/// that is most similar to it, if any, as a suggestion.
///
/// Returns `None` if the schema declares all keys of the path, or if a keyword such as
/// `patternProperties` may allow other keys. In schemas without such a keyword, keys that are not
/// declared are assumed not to exist.
pub(super) fn undeclared(
    schema: &JsonObject,
    path: &[PathSegment],
) -> Option<(String, Option<String>)> {
    let mut at = resolve_root(schema);
    for segment in path {
        let open = OPENING_KEYWORDS.iter().any(|keyword| at.contains_key(*keyword))
            || at.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
        let next = match segment {
            PathSegment::Key(_) if open => return None,
            PathSegment::Key(key) => {
                let properties = at.get("properties")?.as_object()?;
                match properties.get(key) {
                    Some(property) => property,
                    None => {
                        let names: Vec<_> = properties.keys().map(String::as_str).collect();
                        return Some((key.clone(), nearest(key, &names).map(str::to_owned)));
                    }
                }
            }
            PathSegment::Index(_) => at.get("items")?,
        };
        at = resolve(schema, next.as_object()?);
    }
    None
}

/// Returns `true` if a schema rejects all properties that it does not list in `properties`.
pub(super) fn is_closed(schema: &JsonObject) -> bool {
    let root = resolve_root(schema);
    let refuses = |key| root.get(key) == Some(&Value::Bool(false));
    (refuses("additionalProperties") || refuses("unevaluatedProperties"))
        && !OPENING_KEYWORDS.iter().any(|keyword| root.contains_key(*keyword))
}

/// Merges the properties of several input schemas into one schema.
#[derive(Default)]
struct Union<'a> {
    properties: BTreeMap<String, Vec<Value>>,
    required: BTreeSet<String>,
    /// The names of the properties that every successful run uses. They become required unless
    /// their schema has a default.
    needed: BTreeSet<String>,
    /// The schemas of targets that become definitions (`$defs`), by the name of the definition.
    /// This is needed if a property that was copied from such a schema refers to another part of
    /// it.
    definitions: BTreeMap<String, (&'a JsonObject, Value)>,
}

// === impl Union ===

impl<'a> Union<'a> {
    /// Adds all properties in the input schema of a target. Used for a target that receives the
    /// whole input of the composite.
    fn add_all(&mut self, source: &Source<'a>) {
        let Some(schema) = source.schema else { return };
        let root = resolve_root(schema);
        for (name, property) in properties(root) {
            let property = self.adopt(source, schema, property);
            self.add(name, property);
        }
        if source.certain {
            let required = root.get("required").and_then(Value::as_array).into_iter().flatten();
            self.required.extend(required.filter_map(Value::as_str).map(str::to_owned));
        }
    }

    /// Adds the input property that an argument of a target refers to. `used` is the reference,
    /// such as `$input.query`.
    fn add_reference(&mut self, source: &Source<'a>, used: &Use<'_>) {
        let Some(name) = used.property() else { return };
        // The schema of the argument also applies to the input property only if the argument is a
        // bare reference to the property.
        let typed = match (&used.place[..], used.path) {
            ([PathSegment::Key(argument)], [_]) if used.bare => source.schema.and_then(|schema| {
                Some((schema, resolve_root(schema).get("properties")?.get(argument)?))
            }),
            _ => None,
        };
        let property = typed.map(|(schema, property)| self.adopt(source, schema, property));
        self.refer(name, property, source.certain && used.certain && !used.optional);
    }

    /// Adds the input property `name`, which the definition of the composite refers to. `property`
    /// is its schema, or `None` if the schema is unknown. `is_needed` is `true` if every successful
    /// run uses the property.
    fn refer(&mut self, name: &str, property: Option<Value>, is_needed: bool) {
        // Adds the property even if its schema is unknown.
        self.properties.entry(name.to_owned()).or_default();
        if let Some(property) = property {
            self.add(name, property);
        }
        if is_needed {
            self.needed.insert(name.to_owned());
        }
    }

    fn add(&mut self, name: &str, property: Value) {
        let alternatives = self.properties.entry(name.to_owned()).or_default();
        if !alternatives.contains(&property) {
            alternatives.push(property);
        }
    }

    /// Returns a copy of `property`, the schema of a property in the target's input schema
    /// `schema`.
    ///
    /// If `property` refers to other parts of `schema`, the whole `schema` is added as a
    /// definition, and the references in the copy point into this definition. As a result, equal
    /// names in the schemas of several targets do not conflict.
    fn adopt(&mut self, source: &Source<'a>, schema: &'a JsonObject, property: &Value) -> Value {
        match refers(property) {
            Refers::Nowhere => return rehome(property, None),
            // Anchors of several targets could conflict, so the schema of the property accepts any
            // value. The target itself validates the value.
            Refers::ToAnchors => return json!({}),
            Refers::ToPlaces => (),
        }
        if schema.values().map(refers).max() == Some(Refers::ToAnchors) {
            return json!({});
        }
        let known = self.definitions.iter().find(|(_, (other, _))| *other == schema);
        let name = match known {
            Some((name, _)) => name.clone(),
            None => {
                let mut name: String =
                    source
                        .id
                        .chars()
                        .map(|c| {
                            if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') {
                                c
                            } else {
                                '_'
                            }
                        })
                        .collect();
                while self.definitions.contains_key(&name) {
                    name.push('_');
                }
                let mut whole = schema.clone();
                // With these keywords, the definition would have its own base URI.
                whole.remove("$id");
                whole.remove("$schema");
                let whole = rehome(&Value::Object(whole), Some(&name));
                self.definitions.insert(name.clone(), (schema, whole));
                name
            }
        };
        rehome(property, Some(&name))
    }

    fn into_schema(mut self, closed: bool) -> JsonObject {
        let properties: Map<_, _> =
            self.properties.into_iter().map(|(name, all)| (name, any_of(all))).collect();
        let has_default = |name: &String| properties[name].get("default").is_some();
        self.required.extend(self.needed.into_iter().filter(|name| !has_default(name)));
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties.into());
        if !self.required.is_empty() {
            schema.insert(
                "required".to_owned(),
                self.required.into_iter().collect::<Vec<_>>().into(),
            );
        }
        if closed {
            schema.insert("additionalProperties".to_owned(), false.into());
        }
        if !self.definitions.is_empty() {
            let definitions: Map<_, _> =
                self.definitions.into_iter().map(|(name, (_, whole))| (name, whole)).collect();
            schema.insert("$defs".to_owned(), definitions.into());
        }
        schema
    }
}

/// Returns a schema that accepts a value if at least one of the alternatives accepts it.
fn any_of(mut alternatives: Vec<Value>) -> Value {
    if let [_] = *alternatives {
        return alternatives.remove(0);
    }
    // The union uses the first default among its alternatives.
    let default = alternatives.iter().find_map(|schema| schema.get("default")).cloned();
    // If one alternative accepts any value, so does the union.
    let mut merged =
        if alternatives.iter().all(|schema| *schema != json!({})) && !alternatives.is_empty() {
            json!({ "anyOf": alternatives })
        } else {
            json!({})
        };
    if let Some(default) = default {
        merged["default"] = default;
    }
    merged
}

/// Returns the schema to which the `$ref` at the root of `schema` refers. Returns `schema` itself
/// if it has no such reference, or if it has `properties`.
fn resolve_root(schema: &JsonObject) -> &JsonObject {
    if schema.contains_key("properties") { schema } else { resolve(schema, schema) }
}

fn properties(schema: &JsonObject) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// The kind of references that a schema contains. The last variant is the most difficult to copy to
/// another document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Refers {
    /// No references.
    Nowhere,
    /// The schema contains references by path, such as `#/$defs/name`.
    ToPlaces,
    /// The schema contains references by anchor, such as `#name`, or dynamic references.
    ToAnchors,
}

/// Returns the kind of references that a schema contains. Of several kinds, returns the one that is
/// most difficult to copy.
fn refers(schema: &Value) -> Refers {
    match schema {
        Value::Object(members) => members
            .iter()
            .filter_map(|(keyword, value)| match (keyword.as_str(), value) {
                ("$ref", Value::String(reference)) => match reference.strip_prefix('#') {
                    Some("") => Some(Refers::ToPlaces),
                    Some(path) if path.starts_with('/') => Some(Refers::ToPlaces),
                    Some(_) => Some(Refers::ToAnchors),
                    None => None,
                },
                ("$dynamicRef" | "$recursiveRef", _) => Some(Refers::ToAnchors),
                (keyword, value) => keywords::values(keyword, value).map(refers).max(),
            })
            .max()
            .unwrap_or(Refers::Nowhere),
        Value::Array(elements) => elements.iter().map(refers).max().unwrap_or(Refers::Nowhere),
        _ => Refers::Nowhere,
    }
}

/// Copies a schema, but omits the keyword [`HEADER_KEYWORD`]. If `home` is set, the copy becomes
/// the definition with this name in another document. References such as `#/properties/a` are then
/// changed to `#/$defs/{home}/properties/a`.
fn rehome(schema: &Value, home: Option<&str>) -> Value {
    let members = match schema {
        Value::Object(members) => members,
        // An array that is the value of an unknown keyword.
        Value::Array(elements) => {
            return elements.iter().map(|element| rehome(element, home)).collect();
        }
        other => return other.clone(),
    };
    let mut copy = Map::new();
    for (keyword, value) in members.iter().filter(|(keyword, _)| *keyword != HEADER_KEYWORD) {
        let value = match (keyword.as_str(), value, home) {
            ("$ref", Value::String(reference), Some(home)) if reference.starts_with('#') => {
                format!("#/$defs/{home}{}", &reference[1..]).into()
            }
            (keyword, value, _) => {
                let rehomed = |schema| Ok::<_, Infallible>(rehome(schema, home));
                let Ok(value) = keywords::try_map(keyword, value, rehomed);
                value
            }
        };
        copy.insert(keyword.clone(), value);
    }
    copy.into()
}

#[cfg(test)]
mod tests;
