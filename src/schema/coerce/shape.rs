//! Compares the shape of a value with a schema: its type, its allowed values, its members, and the
//! shapes of its parts.

use std::iter;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::{
    expr::PathSegment,
    schema::{json_type::JsonType, walk::Walk},
};

/// Comparing or copying this many bytes of a string counts as one visit to a subschema.
const BYTES_PER_VISIT: usize = 64;
/// Parsing this many bytes of a string as JSON counts as one visit to a subschema.
const PARSED_BYTES_PER_VISIT: usize = 8;

/// A conversion that could make an invalid value match a schema.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wish<'s> {
    Type(JsonType),
    /// A conversion of a string to this value, if the string is the JSON text of the value. The
    /// schema contains the value as a `const` or in an `enum`.
    Value(&'s Value),
}

/// Iterates over the values of the keywords `anyOf` and `oneOf` in a schema. Each value is a list
/// of subschemas. Skips missing keywords.
pub(super) fn branches(rule: &JsonObject) -> impl Iterator<Item = &Vec<Value>> {
    ["anyOf", "oneOf"].into_iter().filter_map(|keyword| rule.get(keyword)?.as_array())
}

// === impl Walk ===

/// Checks whether a value has the shape that a schema requires. The limited number of visits bounds
/// the time of the check.
///
/// A valid value always has the required shape. If no visits are left, every value counts as having
/// the required shape, so that coercion leaves it unchanged.
impl<'s> Walk<'s> {
    /// Counts the lookups of the members or elements of `value` as visits. Each of them is looked
    /// up in `rules` schemas. Returns `false` if too few visits are left.
    pub(super) fn may_look_inside(&mut self, rules: usize, value: &Value) -> bool {
        let parts = match value {
            _ if self.is_exhausted() => return false,
            Value::Object(members) => members.keys().map(of_name).sum(),
            // Looking up an element is faster than a member, because elements have no names.
            Value::Array(elements) => elements.len() / 8,
            _ => return true,
        };
        self.take(rules.saturating_mul(parts))
    }

    /// Counts the conversion of `value` as visits. Returns `false` if too few visits are left.
    pub(super) fn may_read(&mut self, value: &Value, wish: Wish<'_>) -> bool {
        match (value, wish) {
            (Value::String(text), Wish::Type(_)) => self.take(text.len() / PARSED_BYTES_PER_VISIT),
            _ => true,
        }
    }

    /// Counts the copying of a path in the arguments as visits. Returns `false` if too few visits
    /// are left.
    pub(super) fn may_copy(&mut self, path: &[PathSegment]) -> bool {
        let of_segment = |segment: &PathSegment| match segment {
            PathSegment::Key(name) => of_name(name),
            PathSegment::Index(_) => 1,
        };
        self.take(path.iter().map(of_segment).sum())
    }

    /// Returns `true` if a value has the shape that a schema requires: its type, its allowed
    /// values, its members, and the shapes of all its parts.
    pub(super) fn fits(&mut self, schema: &'s Value, value: &Value, depth: usize) -> bool {
        match schema {
            Value::Object(rule) => self.fits_rule(rule, value, depth),
            schema => *schema != Value::Bool(false),
        }
    }

    pub(super) fn fits_rule(&mut self, rule: &'s JsonObject, value: &Value, depth: usize) -> bool {
        if !self.enter(depth) || self.is_embedded(rule) {
            return true;
        }
        let depth = depth + 1;
        let target = self.target(rule);
        if target.is_some_and(|target| !self.fits_rule(target, value, depth)) {
            return false;
        }
        if self.replaces(rule) {
            return true;
        }
        let parts = rule.get("allOf").and_then(Value::as_array);
        self.is_shape(rule, value)
            && parts.is_none_or(|parts| parts.iter().all(|part| self.fits(part, value, depth)))
            && branches(rule)
                .all(|branches| branches.iter().any(|branch| self.fits(branch, value, depth)))
            && self.fits_inside(rule, value, depth)
    }

    fn fits_inside(&mut self, rule: &'s JsonObject, value: &Value, depth: usize) -> bool {
        if !self.may_look_inside(1, value) {
            return true;
        }
        match value {
            Value::Object(members) => members.iter().all(|(key, member)| {
                let schema = self.member(rule, key);
                schema.is_none_or(|schema| self.fits(schema, member, depth))
            }),
            Value::Array(elements) => elements.iter().enumerate().all(|(index, element)| {
                let schema = self.element(rule, index);
                schema.is_none_or(|schema| self.fits(schema, element, depth))
            }),
            _ => true,
        }
    }

    /// Returns `true` if a value has the type, the allowed values and the members that a schema
    /// requires. Ignores subschemas, so it does not check the members and elements themselves.
    pub(super) fn is_shape(&mut self, rule: &JsonObject, value: &Value) -> bool {
        if let Some(names) = rule.get("type")
            && !self.is_of_type(names, value)
        {
            return false;
        }
        if let Some(wanted) = rule.get("const")
            && !self.is_same(wanted, value)
        {
            return false;
        }
        if let Some(Value::Array(wanted)) = rule.get("enum")
            && !wanted.iter().any(|wanted| self.is_same(wanted, value))
        {
            return false;
        }
        match value {
            Value::Object(members) => self.has_members(rule, members),
            _ => true,
        }
    }

    fn is_of_type(&mut self, names: &Value, value: &Value) -> bool {
        match names {
            Value::String(name) => is_of_named_type(name, value),
            Value::Array(names) if self.take(names.len()) => {
                let mut names = names.iter();
                names.any(|name| name.as_str().is_none_or(|name| is_of_named_type(name, value)))
            }
            _ => true,
        }
    }

    /// Returns `true` if an object has all members that the schema requires, and no members that it
    /// forbids. With the keyword `patternProperties`, no member counts as forbidden.
    fn has_members(&mut self, rule: &JsonObject, members: &JsonObject) -> bool {
        if let Some(Value::Array(required)) = rule.get("required")
            && self.take(required.iter().filter_map(Value::as_str).map(of_name).sum())
            && !required.iter().filter_map(Value::as_str).all(|name| members.contains_key(name))
        {
            return false;
        }
        if rule.get("additionalProperties") != Some(&Value::Bool(false))
            || rule.contains_key("patternProperties")
            || !self.take(members.keys().map(of_name).sum())
        {
            return true;
        }
        let named = rule.get("properties").and_then(Value::as_object);
        members.keys().all(|key| named.is_some_and(|named| named.contains_key(key)))
    }

    /// Returns `true` if two values are equal according to JSON Schema, where `1` equals `1.0`.
    /// Also returns `true` if too few visits are left for the comparison.
    fn is_same(&mut self, one: &Value, other: &Value) -> bool {
        if !self.take(1) {
            return true;
        }
        match (one, other) {
            (Value::Number(one), Value::Number(other)) => {
                one == other || one.as_f64() == other.as_f64()
            }
            (Value::String(one), Value::String(other)) => {
                one.len() == other.len()
                    && (!self.take(one.len() / BYTES_PER_VISIT) || one == other)
            }
            (Value::Array(one), Value::Array(other)) => {
                one.len() == other.len()
                    && iter::zip(one, other).all(|(one, other)| self.is_same(one, other))
            }
            (Value::Object(one), Value::Object(other)) => {
                one.len() == other.len()
                    && one.iter().all(|(key, one)| {
                        !self.take(of_name(key))
                            || other.get(key).is_some_and(|other| self.is_same(one, other))
                    })
            }
            (one, other) => one == other,
        }
    }

    /// Appends to `wishes` the conversions that a schema suggests for an invalid value. The
    /// preferred conversions come first.
    pub(super) fn wishes(
        &mut self,
        rule: &'s JsonObject,
        wishes: &mut Vec<Wish<'s>>,
        depth: usize,
    ) {
        match rule.get("type") {
            Some(Value::Array(names)) => {
                if !self.take(names.len()) {
                    return;
                }
                let listed = |of: &JsonType| names.iter().any(|name| name == of.name());
                wishes.extend(JsonType::BY_PREFERENCE.into_iter().filter(listed).map(Wish::Type));
            }
            Some(name) => {
                let named = JsonType::BY_PREFERENCE.into_iter().find(|of| name == of.name());
                wishes.extend(named.map(Wish::Type));
            }
            None => (),
        }
        let values = rule.get("enum").and_then(Value::as_array).into_iter().flatten();
        for value in values.chain(rule.get("const")) {
            // Includes the cost of comparing the string in the arguments with this value later.
            let len = value.as_str().map_or(0, str::len);
            if !self.take(1 + len / BYTES_PER_VISIT) {
                return;
            }
            if value.is_string() {
                wishes.push(Wish::Type(JsonType::String));
            }
            if !value.is_array() && !value.is_object() {
                wishes.push(Wish::Value(value));
            }
        }
        for branch in branches(rule).flatten().filter_map(Value::as_object) {
            if !self.enter(depth) {
                return;
            }
            let mut rules = Vec::new();
            self.collect(branch, &mut rules);
            for rule in rules {
                self.wishes(rule, wishes, depth + 1);
            }
        }
    }
}

/// Returns the cost of looking up a member by its name or of copying the name, as a number of
/// visits.
fn of_name(name: impl AsRef<str>) -> usize {
    1 + name.as_ref().len() / BYTES_PER_VISIT
}

fn is_of_named_type(name: &str, value: &Value) -> bool {
    let named = JsonType::BY_PREFERENCE.into_iter().find(|of| of.name() == name);
    match named {
        Some(named) => named.includes(value),
        None => name != "null" || value.is_null(),
    }
}

// === impl Wish ===

impl Wish<'_> {
    pub(super) fn convert(self, value: &Value) -> Option<Value> {
        match self {
            Self::Type(of) => of.convert(value),
            Self::Value(wanted) => {
                let text = wanted.to_string();
                (value.as_str()? == text).then(|| wanted.clone())
            }
        }
    }
}
