//! The keywords of JSON Schema, and the subschemas in their values.

use rmcp::model::JsonObject;
use serde_json::{Map, Value};

/// Keywords whose values are data, in which `$ref` has no special meaning.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];
/// Keywords whose values are objects of schemas under arbitrary names.
const MAPS: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];
/// Keywords that refer to schemas elsewhere.
pub(crate) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// A schema in the value of a keyword.
pub(crate) struct Subschema<'s> {
    pub(crate) keyword: &'s str,
    pub(crate) applies_to: AppliesTo<'s>,
    pub(crate) schema: &'s Value,
}

/// The part of a value that a subschema applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppliesTo<'s> {
    /// The value itself, perhaps under a condition.
    Whole,
    /// The member of this name.
    Member(&'s str),
    /// Several members.
    Members,
    /// The name of each member.
    Names,
    /// The element at this index.
    Element(usize),
    /// Several elements.
    Elements,
    /// The content that a text encodes.
    Content,
}

/// The place of a schema in the value of a keyword.
#[derive(Clone, Copy)]
enum Place<'s> {
    /// The value is the schema.
    Single,
    /// The value is an object of schemas.
    Named(&'s str),
    /// The value is a list of schemas.
    Listed(usize),
}

/// Returns `true` if the value of a keyword is data.
pub(crate) fn is_data(keyword: &str) -> bool {
    DATA.contains(&keyword)
}

/// Returns `true` if the value of a keyword is an object of schemas under arbitrary names.
pub(crate) fn is_map(keyword: &str) -> bool {
    MAPS.contains(&keyword)
}

/// Returns `true` if the value of a keyword consists of schemas that apply to a value.
pub(crate) fn is_applicator(keyword: &str) -> bool {
    applies_to(keyword, Place::Named("")).is_some()
}

/// Returns `true` if the value of a keyword consists of schemas that apply to the same value.
pub(crate) fn is_in_place(keyword: &str) -> bool {
    applies_to(keyword, Place::Single) == Some(AppliesTo::Whole)
}

/// Returns the schemas that a schema applies to a value or to parts of it, without those that it
/// refers to.
pub(crate) fn subschemas(schema: &JsonObject) -> impl Iterator<Item = Subschema<'_>> {
    schema.iter().flat_map(|(keyword, value)| {
        schemas(keyword, value).filter_map(move |(place, schema)| {
            // The value of `dependencies` can also be lists of names.
            let applies_to = applies_to(keyword, place).filter(|_| !schema.is_array())?;
            Some(Subschema { keyword, applies_to, schema })
        })
    })
}

/// Returns all schemas in the value of a keyword. The value of an unknown keyword counts as a
/// schema, since references can lead there.
pub(crate) fn values<'s>(keyword: &str, value: &'s Value) -> impl Iterator<Item = &'s Value> {
    schemas(keyword, value).filter(|_| !is_data(keyword)).map(|(_, schema)| schema)
}

/// Copies the value of a keyword and replaces each schema in it.
///
/// # Errors
///
/// Returns the error of `replace`.
pub(crate) fn try_map<'s, E>(
    keyword: &str,
    value: &'s Value,
    mut replace: impl FnMut(&'s Value) -> Result<Value, E>,
) -> Result<Value, E> {
    match value {
        value if is_data(keyword) => Ok(value.clone()),
        Value::Object(named) if is_map(keyword) => {
            let named = named.iter().map(|(name, schema)| Ok((name.clone(), replace(schema)?)));
            named.collect::<Result<Map<_, _>, E>>().map(Value::Object)
        }
        Value::Array(listed) => listed.iter().map(replace).collect(),
        schema => replace(schema),
    }
}

fn schemas<'s>(keyword: &str, value: &'s Value) -> impl Iterator<Item = (Place<'s>, &'s Value)> {
    let (named, listed, single) = match value {
        Value::Object(named) if is_map(keyword) => (Some(named), None, None),
        Value::Array(listed) => (None, Some(listed), None),
        schema => (None, None, Some(schema)),
    };
    let named = named.into_iter().flatten().map(|(name, schema)| (Place::Named(name), schema));
    let listed = listed.into_iter().flatten().enumerate();
    let listed = listed.map(|(index, schema)| (Place::Listed(index), schema));
    named.chain(listed).chain(single.map(|schema| (Place::Single, schema)))
}

fn applies_to<'s>(keyword: &str, place: Place<'s>) -> Option<AppliesTo<'s>> {
    Some(match (keyword, place) {
        ("allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else", _)
        | ("dependentSchemas" | "dependencies", _) => AppliesTo::Whole,
        ("properties", Place::Named(name)) => AppliesTo::Member(name),
        ("patternProperties" | "additionalProperties" | "unevaluatedProperties", _) => {
            AppliesTo::Members
        }
        ("propertyNames", _) => AppliesTo::Names,
        ("prefixItems" | "items", Place::Listed(index)) => AppliesTo::Element(index),
        ("items" | "prefixItems" | "additionalItems" | "unevaluatedItems" | "contains", _) => {
            AppliesTo::Elements
        }
        ("contentSchema", _) => AppliesTo::Content,
        _ => return None,
    })
}
