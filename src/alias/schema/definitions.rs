use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use rmcp::model::JsonObject;
use serde_json::{Map, Value};

use crate::{
    alias::arguments::{Arguments, Fate, escape},
    input_schema::keywords,
};

/// Keywords that hold definitions.
pub(super) const DEFINING: [&str; 2] = ["$defs", "definitions"];
/// Keywords that give a schema a name or a base of its own, which must not be there
/// twice.
const IDENTIFYING: [&str; 7] =
    ["$anchor", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema", "$vocabulary", "id"];
/// How many levels of one schema are looked at.
const MAX_DEPTH: usize = 128;
/// How many values of a schema are copied in all: one that refers to its parts can
/// say a lot in a few words.
const MAX_VALUES: usize = 100_000;

/// What the schemas in arguments refer to: copied when something does, so that
/// nothing else of the original schema can be seen.
pub(super) struct Definitions<'a> {
    root: &'a JsonObject,
    arguments: &'a Arguments,
    /// Definitions that are copied or will be, by keyword and name.
    wanted: BTreeSet<(&'static str, String)>,
    /// Definitions made of what is none, by where that is in the original.
    shared: BTreeMap<String, String>,
    /// How many names were tried for these.
    named: usize,
    /// What is still to be copied.
    next: Vec<Wanted<'a>>,
    /// How much may still be copied.
    left: usize,
    /// Whether there are references by names, which may lead anywhere.
    has_anchors: bool,
    pub(super) has_given_up: bool,
}

/// A definition to be copied.
struct Wanted<'a> {
    keyword: &'static str,
    name: String,
    original: Cow<'a, Value>,
}

// === impl Definitions ===

impl<'a> Definitions<'a> {
    pub(super) fn new(root: &'a JsonObject, arguments: &'a Arguments) -> Self {
        Self {
            root,
            arguments,
            wanted: BTreeSet::new(),
            shared: BTreeMap::new(),
            named: 0,
            next: Vec::new(),
            left: MAX_VALUES,
            has_anchors: false,
            has_given_up: false,
        }
    }

    /// Copies a schema that is nested in an argument; its references lead to where
    /// what they mean will be.
    pub(super) fn copy(&mut self, schema: &Value) -> Value {
        self.copy_at(schema, 0)
    }

    fn copy_at(&mut self, schema: &Value, depth: usize) -> Value {
        if depth > MAX_DEPTH || self.left == 0 {
            self.has_given_up = true;
            return Value::Bool(true);
        }
        self.left -= 1;
        match schema {
            Value::Object(members) => {
                let copied = members.iter().map(|(key, value)| {
                    let value = match (key.as_str(), value) {
                        ("$ref", Value::String(reference)) => self.refer(reference).into(),
                        (key, Value::Object(named)) if keywords::NAMING.contains(&key) => {
                            let copy = |(name, schema): (&String, _)| {
                                (name.clone(), self.copy_at(schema, depth + 2))
                            };
                            named.iter().map(copy).collect::<Map<_, _>>().into()
                        }
                        (key, value) if keywords::DATA.contains(&key) => value.clone(),
                        (key, value) => {
                            self.has_anchors |= matches!(key, "$dynamicRef" | "$recursiveRef");
                            self.copy_at(value, depth + 1)
                        }
                    };
                    (key.clone(), value)
                });
                copied.collect::<Map<_, _>>().into()
            }
            Value::Array(elements) => {
                elements.iter().map(|element| self.copy_at(element, depth + 1)).collect()
            }
            _ => schema.clone(),
        }
    }

    /// Where a reference leads from now on.
    fn refer(&mut self, reference: &str) -> String {
        let Some(path) = reference.strip_prefix('#') else { return reference.to_owned() };
        if path.is_empty() {
            // The arguments as the tool has them, within one of them.
            let root = Value::Object(self.root.clone());
            return self.share(path, Cow::Owned(without_identity(&root)));
        }
        let Some(found) = find(self.root, path) else {
            self.has_anchors = true;
            return reference.to_owned();
        };
        let parts: Vec<_> = parts(path).collect();
        match parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["properties", name, ..] => {
                let rest = path.splitn(4, '/').nth(3).map(|rest| format!("/{rest}"));
                match self.arguments.fate(name) {
                    Fate::Kept => return reference.to_owned(),
                    Fate::Named(_, name) => {
                        let rest = rest.unwrap_or_default();
                        return format!("#/properties/{}{rest}", escape(name));
                    }
                    Fate::Hidden(_) | Fate::Shadowed => (),
                }
            }
            [keyword, name, ..] => {
                if let Some(keyword) = DEFINING.into_iter().find(|defining| *defining == keyword) {
                    self.want(keyword, name);
                    return reference.to_owned();
                }
            }
            _ => (),
        }
        self.share(path, Cow::Owned(without_identity(found)))
    }

    fn want(&mut self, keyword: &'static str, name: &str) {
        let Some(original) = self.root.get(keyword).and_then(|all| all.get(name)) else { return };
        if self.wanted.insert((keyword, name.to_owned())) {
            let original = Cow::Borrowed(original);
            self.next.push(Wanted { keyword, name: name.to_owned(), original });
        }
    }

    /// Makes a definition of something that is none.
    fn share(&mut self, path: &str, original: Cow<'a, Value>) -> String {
        if let Some(name) = self.shared.get(path) {
            return format!("#/$defs/{name}");
        }
        let name = loop {
            self.named += 1;
            let name = format!("shared_{}", self.named);
            if self.root.get("$defs").is_none_or(|all| all.get(&name).is_none()) {
                break name;
            }
        };
        self.shared.insert(path.to_owned(), name.clone());
        let reference = format!("#/$defs/{name}");
        self.next.push(Wanted { keyword: "$defs", name, original });
        reference
    }

    /// Puts all that is referred to into a schema.
    pub(super) fn add_to(&mut self, schema: &mut JsonObject) {
        loop {
            let Some(Wanted { keyword, name, original }) = self.next.pop() else {
                if !std::mem::take(&mut self.has_anchors) {
                    return;
                }
                for keyword in DEFINING {
                    let all = self.root.get(keyword).and_then(Value::as_object);
                    all.into_iter().flat_map(Map::keys).for_each(|name| self.want(keyword, name));
                }
                continue;
            };
            let copy = self.copy(&original);
            let all = schema.entry(keyword).or_insert_with(|| Map::new().into());
            if let Value::Object(all) = all {
                all.insert(name, copy);
            }
        }
    }
}

/// The schema that a path leads to, if it is one.
pub(super) fn find<'a>(root: &'a JsonObject, path: &str) -> Option<&'a Value> {
    let mut parts = parts(path);
    if !path.starts_with('/') {
        return None;
    }
    let first = root.get(&parts.next()?)?;
    parts.try_fold(first, |found, part| match found {
        Value::Object(members) => members.get(&part),
        Value::Array(elements) => elements.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

fn parts(path: &str) -> impl Iterator<Item = String> + '_ {
    path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"))
}

/// A copy without what names it, for another place in the same document.
fn without_identity(schema: &Value) -> Value {
    let Value::Object(members) = schema else { return schema.clone() };
    let kept = members.iter().filter(|(key, _)| {
        let key = key.as_str();
        !IDENTIFYING.contains(&key) && !DEFINING.contains(&key)
    });
    kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>().into()
}
