//! Resolves `$ref` references within one schema.

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::json_pointer;

/// Maximum number of references that are followed one after another.
const MAX_REFERENCES: usize = 32;

/// Follows `$ref` repeatedly: from a subschema to its target, to the target of the target, and so
/// on. Returns the last target within the same schema. Returns the subschema itself if it has no
/// `$ref`.
pub(crate) fn resolve<'s>(root: &'s JsonObject, mut schema: &'s JsonObject) -> &'s JsonObject {
    for _ in 0..MAX_REFERENCES {
        let Some(target) = target(root, schema) else { break };
        schema = target;
    }
    schema
}

/// Returns the target of a subschema's `$ref`. Returns `None` if there is no `$ref`, or if its
/// target is not an object in the same schema.
pub(crate) fn target<'s>(root: &'s JsonObject, schema: &'s JsonObject) -> Option<&'s JsonObject> {
    let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some(root);
    }
    let mut parts = pointer.split('/').skip(1).map(json_pointer::unescape);
    let first = root.get(&*parts.next()?)?;
    let found = parts.try_fold(first, |value, part| match value {
        Value::Array(elements) => elements.get(part.parse::<usize>().ok()?),
        value => value.get(&*part),
    });
    found?.as_object()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_within_the_schema_are_followed() {
        let there = json!({ "title": "there" });
        for (reference, place) in [
            ("#/$defs/a", json!({ "$defs": { "a": there } })),
            ("#/$defs/a~1b~0c", json!({ "$defs": { "a/b~c": there } })),
            ("#/anyOf/1", json!({ "anyOf": [{}, there] })),
            ("#/$defs/a", json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": there } })),
        ] {
            let schema = json!({ "$ref": reference });
            let found = resolve(place.as_object().unwrap(), schema.as_object().unwrap());
            assert_eq!(found.get("title"), there.get("title"), "{place}");
        }
    }

    #[test]
    fn unresolvable_references_have_no_target() {
        let root = json!({ "$defs": { "a": true }, "anyOf": [{}] });
        for reference in
            ["https://example.com/a", "#a", "#/$defs/b", "#/$defs/a", "#/anyOf/1", "#/anyOf/x", ""]
        {
            let schema = json!({ "$ref": reference });
            let found = target(root.as_object().unwrap(), schema.as_object().unwrap());
            assert_eq!(found, None, "{reference}");
        }
    }

    #[test]
    fn resolving_a_cyclic_reference_terminates() {
        let root = json!({ "$ref": "#" });
        let root = root.as_object().unwrap();
        assert_eq!(resolve(root, root), root);
    }
}
