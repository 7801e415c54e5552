//! Walks through a schema and a value at the same time. The number of visits to subschemas is
//! limited, which bounds the time of a walk.

use std::ptr;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::refs;

/// Maximum depth of a walk through a schema. Also the maximum number of schemas that are collected
/// for the same value.
const MAX_WALK_DEPTH: usize = 256;

/// A walk through a schema and its subschemas, with a limit on the number of visits. Without the
/// limit, a schema that refers to itself could require an exponential number of visits.
pub(crate) struct Walk<'s> {
    root: &'s JsonObject,
    dialect: Dialect,
    /// The number of visits to subschemas that are left.
    left: usize,
}

/// A group of JSON Schema drafts that have the same rules for references and for `items`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// All drafts up to 7. If a schema contains a `$ref`, these drafts ignore its other keywords.
    Draft7,
    /// Draft 2019-09. As in earlier drafts, `items` can be an array of schemas. Keywords next to a
    /// `$ref` are not ignored.
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

    /// Returns the number of visits to subschemas that are left.
    pub(crate) const fn left(&self) -> usize {
        self.left
    }

    pub(crate) const fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// Counts a visit to a subschema at the given depth. Returns `false` if the walk must not enter
    /// the subschema, because no visits are left or because the depth has reached its maximum.
    pub(crate) const fn enter(&mut self, depth: usize) -> bool {
        self.take(1) && depth < MAX_WALK_DEPTH
    }

    /// Counts `visits` visits. Returns `false` if no visits are left after that.
    pub(crate) const fn take(&mut self, visits: usize) -> bool {
        self.left = self.left.saturating_sub(visits);
        self.left > 0
    }

    /// Returns the target of a subschema's `$ref`. Returns `None` if there is no `$ref`, or if its
    /// target is not an object in the same document.
    pub(crate) fn target(&self, schema: &'s JsonObject) -> Option<&'s JsonObject> {
        refs::target(self.root, schema)
    }

    /// Returns `true` if the `$ref` of a subschema replaces its other keywords, as in draft 7 and
    /// earlier.
    pub(crate) fn replaces(&self, schema: &JsonObject) -> bool {
        self.dialect == Dialect::Draft7 && schema.contains_key("$ref")
    }

    /// Returns `true` if a subschema is an embedded document: it has its own `$id` or `$schema`, so
    /// that references in it are resolved differently.
    pub(crate) fn is_embedded(&self, schema: &JsonObject) -> bool {
        (schema.contains_key("$id") || schema.contains_key("$schema"))
            && !ptr::eq(self.root, schema)
    }

    /// Appends a subschema to `schemas`, and all subschemas that must match the same value, such as
    /// those in its `allOf`. Skips subschemas that `schemas` already contains.
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

    /// Returns the subschema that applies to the object member `name`. Returns `None` if there is
    /// none. If the schema contains `patternProperties`, only `properties` is searched.
    pub(crate) fn member(&self, schema: &'s JsonObject, name: &str) -> Option<&'s Value> {
        let named = schema.get("properties").and_then(|named| named.get(name));
        named.or_else(|| match schema.get("patternProperties") {
            Some(_) => None,
            None => schema.get("additionalProperties"),
        })
    }

    /// Returns the subschema that applies to the array element at `index`. Returns `None` if there
    /// is none.
    pub(crate) fn element(&self, schema: &'s JsonObject, index: usize) -> Option<&'s Value> {
        let (first, others) = match (self.dialect, schema.get("items")) {
            (Dialect::Draft2020, items) => (schema.get("prefixItems"), items),
            (_, first @ Some(Value::Array(_))) => (first, schema.get("additionalItems")),
            (_, items) => (None, items),
        };
        first.and_then(|first| first.get(index)).or(others)
    }
}
