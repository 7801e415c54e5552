use std::collections::HashMap;

use serde_json::Value;

use super::definitions::MAX_DEPTH;
use crate::schema::keywords;

/// What references within a schema lead to.
pub(super) struct References<'a> {
    root: &'a Value,
    /// What a reference to the root may begin with besides `#`.
    base: &'a str,
    /// Schemas that have a name of their own; found when one is asked for.
    anchors: Option<HashMap<&'a str, &'a Value>>,
}

// === impl References ===

impl<'a> References<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let base = root.get("$id").and_then(Value::as_str).unwrap_or_default();
        Self { root, base: base.trim_end_matches('#'), anchors: None }
    }

    /// The schema that a reference leads to, if it is in this document.
    pub(super) fn resolve(&mut self, reference: &str) -> Option<&'a Value> {
        let fragment = decoded(self.fragment(reference)?)?;
        let found = if fragment.is_empty() || fragment.starts_with('/') {
            find(self.root, &fragment)
        } else {
            self.anchors().get(&*fragment).copied()
        };
        found.filter(|found| found.is_object() || found.is_boolean())
    }

    /// The names of a reference that is a path of a definition or a property of the
    /// root: nothing else has two.
    pub(super) fn pair(&self, reference: &str) -> Option<[String; 2]> {
        let fragment = decoded(self.fragment(reference)?)?;
        let names: Vec<_> = parts(&fragment).collect();
        names.try_into().ok()
    }

    /// What a reference says of the place in this document.
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

/// Whether a schema is a document within the document: references in it lead
/// somewhere else.
pub(super) fn is_embedded(schema: &Value) -> bool {
    let id = schema.get("$id").and_then(Value::as_str);
    id.is_some_and(|id| !id.starts_with('#'))
}

fn collect<'a>(value: &'a Value, depth: usize, anchors: &mut HashMap<&'a str, &'a Value>) {
    if depth > MAX_DEPTH || (depth > 0 && is_embedded(value)) {
        return;
    }
    match value {
        Value::Object(members) => {
            let name = |key: &str| members.get(key).and_then(Value::as_str);
            // Up to draft 7, an `$id` could be one.
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

/// What a JSON Pointer leads to.
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

/// A part of a URI with its `%20` and the like in plain.
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
