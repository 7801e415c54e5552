//! The shape that a schema requires of a value: its type, its allowed values, and the shapes of its
//! parts.

use std::{iter, ptr};

use rmcp::model::JsonObject;
use serde_json::Value;

use super::convert::{Kind, Wish};
use crate::{
    expr::{
        PathSegment,
        number::{is_whole_float, to_integer},
    },
    schema::refs,
};

/// The maximum depth of visits.
const MAX_SHAPE_DEPTH: usize = 256;
/// The number of bytes of a text that are compared or copied in the time of a visit.
const BYTES_PER_VISIT: usize = 64;
/// The number of bytes of a text that are parsed in that time.
const PARSED_BYTES_PER_VISIT: usize = 8;

/// The shapes of a schema, within a limited number of visits.
///
/// A valid value has the shape that its schema requires. When no visits are left, every value is
/// assumed to have it, so that it stays as it is.
pub(super) struct Shapes<'s> {
    root: &'s JsonObject,
    dialect: Dialect,
    /// The number of visits left.
    left: usize,
}

/// The drafts of JSON Schema, as far as the meaning of keywords differs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// Up to draft 7, keywords beside a `$ref` are ignored.
    Draft7,
    /// Up to draft 2019-09, `items` can be a list.
    Draft2019,
    Draft2020,
}

/// Returns the lists of alternative branches of a schema.
pub(super) fn branches(rule: &JsonObject) -> impl Iterator<Item = &Vec<Value>> {
    ["anyOf", "oneOf"].into_iter().filter_map(|keyword| rule.get(keyword)?.as_array())
}

// === impl Shapes ===

impl<'s> Shapes<'s> {
    pub(super) fn new(root: &'s JsonObject, visits: usize) -> Self {
        let dialect = match root.get("$schema").and_then(Value::as_str) {
            Some(dialect) if dialect.contains("draft-0") => Dialect::Draft7,
            Some(dialect) if dialect.contains("2019-09") => Dialect::Draft2019,
            _ => Dialect::Draft2020,
        };
        Self { root, dialect, left: visits }
    }

    /// Takes a visit, if one is left.
    pub(super) const fn may_go_on(&mut self, depth: usize) -> bool {
        self.take(1) && depth < MAX_SHAPE_DEPTH
    }

    /// Takes the visits for looking up the schemas of all parts of a value in this number of rules.
    pub(super) fn may_look_inside(&mut self, rules: usize, value: &Value) -> bool {
        let parts = match value {
            _ if self.left == 0 => return false,
            Value::Object(members) => members.keys().map(of_name).sum(),
            // Elements have no names to look up.
            Value::Array(elements) => elements.len() / 8,
            _ => return true,
        };
        self.take(rules.saturating_mul(parts))
    }

    /// Takes the visits for converting a value.
    pub(super) fn may_read(&mut self, value: &Value, wish: Wish<'_>) -> bool {
        match (value, wish) {
            (Value::String(text), Wish::Kind(_)) => self.take(text.len() / PARSED_BYTES_PER_VISIT),
            _ => true,
        }
    }

    /// Takes the visits for copying the path of a value.
    pub(super) fn may_copy(&mut self, path: &[PathSegment]) -> bool {
        let of_segment = |segment: &PathSegment| match segment {
            PathSegment::Key(name) => of_name(name),
            PathSegment::Index(_) => 1,
        };
        self.take(path.iter().map(of_segment).sum())
    }

    /// Returns the number of visits left.
    pub(super) const fn left(&self) -> usize {
        self.left
    }

    /// Returns `true` if no visits are left.
    pub(super) const fn are_seen(&self) -> bool {
        self.left == 0
    }

    const fn take(&mut self, visits: usize) -> bool {
        if let Some(left) = self.left.checked_sub(visits) {
            self.left = left;
            return left > 0;
        }
        self.left = 0;
        false
    }

    /// Returns `true` if a value has the shape that a schema requires.
    pub(super) fn fits(&mut self, schema: &'s Value, value: &Value, depth: usize) -> bool {
        match schema {
            Value::Object(rule) => self.fits_rule(rule, value, depth),
            schema => *schema != Value::Bool(false),
        }
    }

    pub(super) fn fits_rule(&mut self, rule: &'s JsonObject, value: &Value, depth: usize) -> bool {
        if !self.may_go_on(depth) || self.is_elsewhere(rule) {
            return true;
        }
        let depth = depth + 1;
        if rule.contains_key("$ref") {
            let target = refs::target(self.root, rule);
            if target.is_some_and(|target| !self.fits_rule(target, value, depth)) {
                return false;
            }
            if self.dialect == Dialect::Draft7 {
                return true;
            }
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
                let schema = self.of_member(rule, key);
                schema.is_none_or(|schema| self.fits(schema, member, depth))
            }),
            Value::Array(elements) => elements.iter().enumerate().all(|(index, element)| {
                let schema = self.of_element(rule, index);
                schema.is_none_or(|schema| self.fits(schema, element, depth))
            }),
            _ => true,
        }
    }

    /// Returns `true` if a value has the shape that a schema requires, not considering parts of the
    /// value and subschemas.
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

    /// Returns `true` if an object has the required members, and no member that is not allowed.
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

    /// Returns `true` if JSON Schema may consider two values equal: `1` equals `1.0`.
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

    /// Returns the schema of a member; with `patternProperties`, only the one of its own name.
    pub(super) fn of_member(&self, rule: &'s JsonObject, key: &str) -> Option<&'s Value> {
        let named = rule.get("properties").and_then(|named| named.get(key));
        named.or_else(|| match rule.get("patternProperties") {
            Some(_) => None,
            None => rule.get("additionalProperties"),
        })
    }

    pub(super) fn of_element(&self, rule: &'s JsonObject, index: usize) -> Option<&'s Value> {
        let (first, others) = match (self.dialect, rule.get("items")) {
            (Dialect::Draft2020, items) => (rule.get("prefixItems"), items),
            (_, first @ Some(Value::Array(_))) => (first, rule.get("additionalItems")),
            (_, items) => (None, items),
        };
        first.and_then(|first| first.get(index)).or(others)
    }

    /// Adds all schemas that apply to the same value, without their branches.
    pub(super) fn collect(&mut self, rule: &'s JsonObject, rules: &mut Vec<&'s JsonObject>) {
        let rule = match self.dialect {
            // Keywords beside a reference are ignored.
            Dialect::Draft7 => refs::resolve(self.root, rule),
            _ => rule,
        };
        let known = rules.iter().any(|known| ptr::eq(*known, rule));
        if known || rules.len() == MAX_SHAPE_DEPTH || !self.take(1 + rules.len() / 16) {
            return;
        }
        if self.is_elsewhere(rule) {
            return;
        }
        rules.push(rule);
        let target = refs::target(self.root, rule);
        let parts = rule.get("allOf").and_then(Value::as_array).into_iter().flatten();
        for part in target.into_iter().chain(parts.filter_map(Value::as_object)) {
            self.collect(part, rules);
        }
    }

    /// Adds the conversions that a schema suggests, the preferred ones first.
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
                let listed = |kind: &Kind| names.iter().any(|name| name == kind.name());
                wishes.extend(Kind::ALL.into_iter().filter(listed).map(Wish::Kind));
            }
            Some(name) => {
                let named = |kind: &Kind| name == kind.name();
                wishes.extend(Kind::ALL.into_iter().filter(named).map(Wish::Kind));
            }
            None => (),
        }
        let values = rule.get("enum").and_then(Value::as_array).into_iter().flatten();
        for value in values.chain(rule.get("const")) {
            // It is compared with the text of the value.
            let len = value.as_str().map_or(0, str::len);
            if !self.take(1 + len / BYTES_PER_VISIT) {
                return;
            }
            if value.is_string() {
                wishes.push(Wish::Kind(Kind::String));
            }
            if !value.is_array() && !value.is_object() {
                wishes.push(Wish::Value(value));
            }
        }
        for branch in branches(rule).flatten().filter_map(Value::as_object) {
            if !self.may_go_on(depth) {
                return;
            }
            let mut rules = Vec::new();
            self.collect(branch, &mut rules);
            for rule in rules {
                self.wishes(rule, wishes, depth + 1);
            }
        }
    }

    /// Returns `true` if a schema is an embedded document, in which references have other targets.
    fn is_elsewhere(&self, rule: &JsonObject) -> bool {
        (rule.contains_key("$id") || rule.contains_key("$schema")) && !ptr::eq(self.root, rule)
    }
}

/// Returns the visits for looking up a member by its name, or for copying the name.
fn of_name(name: impl AsRef<str>) -> usize {
    1 + name.as_ref().len() / BYTES_PER_VISIT
}

fn is_of_named_type(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => is_integral(value),
        _ => true,
    }
}

/// Returns `true` if a value is an integer, and not a float such as `42.0` that is converted to
/// one.
fn is_integral(value: &Value) -> bool {
    let Value::Number(number) = value else { return false };
    to_integer(number).is_some() && !is_whole_float(number)
}
