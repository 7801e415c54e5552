//! The keywords of JSON Schema, with functions that find the subschemas in the values of keywords.

use rmcp::model::JsonObject;
use serde_json::{Map, Value};

/// Keywords whose values are data instead of schemas. A `$ref` within such a value is not a
/// reference.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];
/// Keywords whose values are objects that map names to schemas, such as `properties`.
const MAPS: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];
/// Keywords that refer to another schema.
pub(crate) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// A subschema of a schema, with the keyword that contains it, and the part of a JSON value to
/// which it applies.
pub(crate) struct Subschema<'s> {
    pub(crate) keyword: &'s str,
    pub(crate) applies_to: AppliesTo<'s>,
    pub(crate) schema: &'s Value,
}

/// The part of a JSON value to which a subschema applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppliesTo<'s> {
    /// The subschema applies to the whole value, possibly under a condition, as with `then`.
    Whole,
    /// The object member with this name.
    Member(&'s str),
    /// Some or all members of an object, as with `additionalProperties`.
    Members,
    /// The names of all members of an object, as with `propertyNames`.
    Names,
    /// The array element at this index.
    Element(usize),
    /// Some or all elements of an array, as with `contains`.
    Elements,
    /// The decoded content of a string, as with `contentSchema`.
    Content,
}

/// The location of a subschema within the value of a keyword.
#[derive(Clone, Copy)]
enum Place<'s> {
    /// The whole value of the keyword is the subschema, as with `not`.
    Single,
    /// The value of the keyword is an object that maps names to subschemas, as with `properties`.
    /// Contains the name.
    Named(&'s str),
    /// The value of the keyword is an array of subschemas, as with `allOf`. Contains the index.
    Listed(usize),
}

/// Returns `true` if the value of a keyword is data instead of a schema. A `$ref` within such a
/// value is not a reference.
pub(crate) fn is_data(keyword: &str) -> bool {
    DATA.contains(&keyword)
}

/// Returns `true` if the value of a keyword is an object that maps names to schemas.
pub(crate) fn is_map(keyword: &str) -> bool {
    MAPS.contains(&keyword)
}

/// Returns `true` if a keyword contains subschemas that apply to a JSON value or to its parts.
pub(crate) fn is_applicator(keyword: &str) -> bool {
    applies_to(keyword, Place::Named("")).is_some()
}

/// Returns `true` if the subschemas of a keyword apply to the same JSON value as the schema that
/// contains the keyword. An example is `allOf`.
pub(crate) fn is_in_place(keyword: &str) -> bool {
    applies_to(keyword, Place::Single) == Some(AppliesTo::Whole)
}

/// Iterates over the subschemas of a schema that apply to a JSON value or to its parts. References
/// are not followed.
pub(crate) fn subschemas(schema: &JsonObject) -> impl Iterator<Item = Subschema<'_>> {
    schema.iter().flat_map(|(keyword, value)| {
        schemas(keyword, value).filter_map(move |(place, schema)| {
            // In `dependencies`, a name can be mapped to an array of names instead of a schema.
            let applies_to = applies_to(keyword, place).filter(|_| !schema.is_array())?;
            Some(Subschema { keyword, applies_to, schema })
        })
    })
}

/// Iterates over all schemas in the value of a keyword. Includes the values of unknown keywords,
/// because they can be targets of references.
pub(crate) fn values<'s>(keyword: &str, value: &'s Value) -> impl Iterator<Item = &'s Value> {
    schemas(keyword, value).filter(|_| !is_data(keyword)).map(|(_, schema)| schema)
}

/// Copies the value of a keyword, and replaces each schema in it with the result of `replace`.
///
/// # Errors
///
/// Returns an error as soon as `replace` returns one.
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
