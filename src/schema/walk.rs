//! Walks through a schema and a value at the same time, with a limited number of visits to
//! subschemas.

use std::ptr;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::refs;

/// Maximum depth of a walk, and maximum number of schemas that are collected for one value.
const MAX_WALK_DEPTH: usize = 256;

/// A walk through a schema with a limited number of visits to subschemas. Without this limit, a
/// schema that refers to itself could require an exponential number of visits.
pub(crate) struct Walk<'s> {
    root: &'s JsonObject,
    dialect: Dialect,
    /// The number of visits to subschemas that remain until the limit.
    left: usize,
}

/// The drafts of JSON Schema, grouped by their rules for references and `items`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// The drafts up to 7, in which other keywords next to a `$ref` are ignored.
    Draft7,
    /// Draft 2019-09, in which `items` can be an array of schemas, as in earlier drafts.
    Draft2019,
    Draft2020,
}

// === impl Walk ===

impl<'s> Walk<'s> {
    pub(crate) fn new(root: &'s JsonObject, visits: usize) -> Self {
        let dialect = match root.get("$schema").and_then(Value::as_str) {
            Some(dialect) if dialect.contains("draft-0") => Dialect::Draft7,
            Some(dialect) if dialect.contains("2019-09") => Dialect::Draft2019,
            _ => Dialect::Draft2020,
        };
        Self { root, dialect, left: visits }
    }

    pub(crate) const fn root(&self) -> &'s JsonObject {
        self.root
    }

    /// Returns the number of visits to subschemas that remain until the limit.
    pub(crate) const fn left(&self) -> usize {
        self.left
    }

    /// Returns `true` if the limit on visits to subschemas is reached.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// Subtracts one visit from the remaining visits. Returns `false` if the walk must stop,
    /// because no visits remain, or because `depth` has reached the maximum.
    pub(crate) const fn enter(&mut self, depth: usize) -> bool {
        self.take(1) && depth < MAX_WALK_DEPTH
    }

    /// Subtracts `visits` from the remaining visits. Returns `false` if no visits remain after
    /// that.
    pub(crate) const fn take(&mut self, visits: usize) -> bool {
        self.left = self.left.saturating_sub(visits);
        self.left > 0
    }

    /// Returns the target of the `$ref` in a subschema. Returns `None` if the subschema has no
    /// `$ref`, or if the target is not an object in the same document.
    pub(crate) fn target(&self, schema: &'s JsonObject) -> Option<&'s JsonObject> {
        refs::target(self.root, schema)
    }

    /// Returns `true` if a subschema contains a `$ref`, and all its other keywords are ignored, as
    /// in drafts up to 7.
    pub(crate) fn replaces(&self, schema: &JsonObject) -> bool {
        self.dialect == Dialect::Draft7 && schema.contains_key("$ref")
    }

    /// Returns `true` if a subschema is an embedded document with its own `$id` or `$schema`. In
    /// such a document, references are resolved differently.
    pub(crate) fn is_embedded(&self, schema: &JsonObject) -> bool {
        (schema.contains_key("$id") || schema.contains_key("$schema"))
            && !ptr::eq(self.root, schema)
    }

    /// Adds a subschema to `schemas`, together with all subschemas that always apply to the same
    /// value. Subschemas that `schemas` already contains are not added again.
    pub(crate) fn collect(&mut self, schema: &'s JsonObject, schemas: &mut Vec<&'s JsonObject>) {
        let schema = match self.dialect {
            Dialect::Draft7 => refs::resolve(self.root, schema),
            _ => schema,
        };
        let is_known = schemas.iter().any(|known| ptr::eq(*known, schema));
        if is_known
            || schemas.len() == MAX_WALK_DEPTH
            || !self.take(1 + schemas.len() / 16)
            || self.is_embedded(schema)
        {
            return;
        }
        schemas.push(schema);
        let parts = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
        for part in self.target(schema).into_iter().chain(parts.filter_map(Value::as_object)) {
            self.collect(part, schemas);
        }
    }

    /// Returns the subschema that applies to the member `name`. Returns `None` if there is no such
    /// subschema. If the schema contains `patternProperties`, considers only the subschemas in
    /// `properties`.
    pub(crate) fn member(&self, schema: &'s JsonObject, name: &str) -> Option<&'s Value> {
        let named = schema.get("properties").and_then(|named| named.get(name));
        named.or_else(|| match schema.get("patternProperties") {
            Some(_) => None,
            None => schema.get("additionalProperties"),
        })
    }

    /// Returns the subschema that applies to the element at `index`. Returns `None` if there is no
    /// such subschema.
    pub(crate) fn element(&self, schema: &'s JsonObject, index: usize) -> Option<&'s Value> {
        let (first, others) = match (self.dialect, schema.get("items")) {
            (Dialect::Draft2020, items) => (schema.get("prefixItems"), items),
            (_, first @ Some(Value::Array(_))) => (first, schema.get("additionalItems")),
            (_, items) => (None, items),
        };
        first.and_then(|first| first.get(index)).or(others)
    }
}
