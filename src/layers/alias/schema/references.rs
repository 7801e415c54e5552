//! Resolves references within a schema.

use std::collections::HashMap;

use serde_json::Value;

use crate::schema::keywords;

/// Maximum depth of a schema.
pub(super) const MAX_SCHEMA_DEPTH: usize = 128;

/// The references within a schema.
pub(super) struct References<'a> {
    root: &'a Value,
    /// The `$id` of the root, which references may have before `#`.
    base: &'a str,
    /// Schemas with an anchor, collected when first needed.
    anchors: Option<HashMap<&'a str, &'a Value>>,
}

// === impl References ===

impl<'a> References<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let base = root.get("$id").and_then(Value::as_str).unwrap_or_default();
        Self { root, base: base.trim_end_matches('#'), anchors: None }
    }

    /// Returns the schema that a reference points to, if it is in this document.
    pub(super) fn resolve(&mut self, reference: &str) -> Option<&'a Value> {
        let fragment = decoded(self.fragment(reference)?)?;
        let found = if fragment.is_empty() || fragment.starts_with('/') {
            find(self.root, &fragment)
        } else {
            self.anchors().get(&*fragment).copied()
        };
        found.filter(|found| found.is_object() || found.is_boolean())
    }

    /// Returns the two names of a reference whose path has two segments, such as that of a
    /// definition or a property of the root.
    pub(super) fn pair(&self, reference: &str) -> Option<[String; 2]> {
        let fragment = decoded(self.fragment(reference)?)?;
        let names: Vec<_> = parts(&fragment).collect();
        names.try_into().ok()
    }

    /// Returns the fragment of a reference into this document.
    pub(super) fn fragment<'r>(&self, reference: &'r str) -> Option<&'r str> {
        let local = reference.strip_prefix(self.base).unwrap_or(reference);
        match local.is_empty() {
            true => Some(local),
            false => local.strip_prefix('#').or_else(|| reference.strip_prefix('#')),
        }
    }

    fn anchors(&mut self) -> &HashMap<&'a str, &'a Value> {
        let root = self.root;
        self.anchors.get_or_insert_with(|| {
            let mut anchors = HashMap::new();
            collect(root, 0, &mut anchors);
            anchors
        })
    }
}

/// Returns `true` if a schema is an embedded document, in which references have another base.
pub(super) fn is_embedded(schema: &Value) -> bool {
    let id = schema.get("$id").and_then(Value::as_str);
    id.is_some_and(|id| !id.starts_with('#'))
}

fn collect<'a>(value: &'a Value, depth: usize, anchors: &mut HashMap<&'a str, &'a Value>) {
    if depth > MAX_SCHEMA_DEPTH || (depth > 0 && is_embedded(value)) {
        return;
    }
    match value {
        Value::Object(members) => {
            let name = |key: &str| members.get(key).and_then(Value::as_str);
            // Up to draft 7, an `$id` could be an anchor.
            let old = ["$id", "id"].into_iter().filter_map(|key| name(key)?.strip_prefix('#'));
            let new = ["$anchor", "$dynamicAnchor"].into_iter().filter_map(name);
            for name in new.chain(old) {
                anchors.entry(name).or_insert(value);
            }
            let others = members.iter().filter(|(key, _)| !keywords::DATA.contains(&key.as_str()));
            others.for_each(|(_, value)| collect(value, depth + 1, anchors));
        }
        Value::Array(elements) => {
            elements.iter().for_each(|element| collect(element, depth + 1, anchors));
        }
        _ => (),
    }
}

/// Returns the value at a JSON Pointer, unless it is within an embedded document.
fn find<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    parts(path).enumerate().try_fold(root, |found, (depth, part)| match found {
        _ if depth > 0 && is_embedded(found) => None,
        Value::Object(members) => members.get(&part),
        Value::Array(elements) => elements.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

fn parts(path: &str) -> impl Iterator<Item = String> + '_ {
    path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"))
}

/// Decodes the percent-encoding in a part of a URI.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
                after
            }
            (b'%', _) => return None,
            (byte, after) => {
                bytes.push(*byte);
                after
            }
        };
    }
    String::from_utf8(bytes).ok()
}
