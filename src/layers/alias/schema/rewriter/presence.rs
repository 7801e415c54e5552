//! Rewrites the keywords about the presence, number and names of arguments.

use std::collections::BTreeSet;

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use super::{Object, Rewriter};
use crate::alias::arguments::{Argument, Fate};

/// Whether the server receives an argument.
enum Presence {
    /// Only if the client sends it, under this name.
    Client(String),
    Always,
    Never,
}

// === impl Rewriter ===

impl<'a> Rewriter<'a> {
    pub(super) fn required(&mut self, names: &[Value], applies: bool, object: &mut Object) {
        let mut shown = Vec::new();
        for name in names {
            let Some(original) = name.as_str() else { continue };
            match self.presence(original) {
                Presence::Client(name) => shown.push(Value::from(name)),
                Presence::Always => (),
                Presence::Never => {
                    object.is_impossible = true;
                    if applies {
                        self.unset.insert(original.to_owned());
                    }
                }
            }
        }
        // Old dialects require at least one element.
        if !shown.is_empty() {
            object.shown.insert("required".to_owned(), shown.into());
        }
    }

    pub(super) fn dependent_required(&self, name: &str, needed: &Value, object: &mut Object) {
        if self.definitions.only_refs() {
            // The dialect does not have this keyword.
            return;
        }
        let needed = needed.as_array().into_iter().flatten().filter_map(Value::as_str);
        let (mut shown, mut can_be) = (Vec::new(), true);
        for name in needed {
            match self.presence(name) {
                Presence::Client(name) => shown.push(Value::from(name)),
                Presence::Always => (),
                Presence::Never => can_be = false,
            }
        }
        match self.presence(name) {
            Presence::Client(name) if !can_be => {
                object.all_of.push(json!({ "not": { "required": [name] } }));
            }
            Presence::Client(name) => {
                let all = object.shown.entry("dependentRequired").or_insert_with(|| json!({}));
                if let Value::Object(all) = all {
                    all.insert(name, shown.into());
                }
            }
            Presence::Always if !can_be => object.is_impossible = true,
            Presence::Always if !shown.is_empty() => {
                object.all_of.push(json!({ "required": shown }));
            }
            Presence::Always | Presence::Never => (),
        }
    }

    pub(super) fn dependent_schemas(
        &mut self,
        all: &'a JsonObject,
        depth: usize,
        object: &mut Object,
    ) {
        if self.definitions.only_refs() {
            return;
        }
        let mut shown = Map::new();
        for (name, schema) in all {
            let presence = self.presence(name);
            if matches!(presence, Presence::Never) {
                continue;
            }
            let part = self.part(schema, depth + 1, false);
            let schema = object.take(part);
            match presence {
                Presence::Client(name) => drop(shown.insert(name, schema)),
                Presence::Always | Presence::Never => object.all_of.push(schema),
            }
        }
        object.shown.insert("dependentSchemas".to_owned(), shown.into());
    }

    /// Rewrites `dependencies`, which combines both keywords above and is unknown to some dialects.
    pub(super) fn dependencies(&mut self, all: &'a JsonObject, depth: usize, object: &mut Object) {
        let mut shown = Map::new();
        for (name, needed) in all {
            let name = match self.presence(name) {
                Presence::Client(name) => name,
                Presence::Always => {
                    object.give_up();
                    continue;
                }
                Presence::Never => continue,
            };
            let needed = match needed {
                Value::Array(names) => {
                    let mut shown = Vec::new();
                    for name in names.iter().filter_map(Value::as_str) {
                        match self.presence(name) {
                            Presence::Client(name) => shown.push(Value::from(name)),
                            Presence::Always => (),
                            Presence::Never => object.is_lax = true,
                        }
                    }
                    shown.into()
                }
                schema => {
                    let part = self.part(schema, depth + 1, false);
                    object.take(part)
                }
            };
            shown.insert(name, needed);
        }
        object.shown.insert("dependencies".to_owned(), shown.into());
    }

    /// Rewrites `minProperties` and `maxProperties`. The server also receives the arguments that
    /// have a default.
    pub(super) fn count(&self, key: &str, count: &Value, object: &mut Object) {
        let Some(count) = count.as_u64() else {
            object.is_lax = true;
            return;
        };
        let defaulted = || self.arguments.iter().filter(|argument| argument.default.is_some());
        let hidden = defaulted().filter(|argument| argument.name.is_none()).count() as u64;
        let open = defaulted().count() as u64 - hidden;
        object.is_lax |= open > 0;
        let shown = match key {
            "minProperties" => count.saturating_sub(hidden + open),
            _ if count < hidden => {
                object.is_impossible = true;
                return;
            }
            _ => count - hidden,
        };
        object.shown.insert(key.to_owned(), shown.into());
    }

    /// Rewrites `propertyNames`: a list of names, or a pattern without secrets.
    pub(super) fn property_names(&mut self, schema: &Value, object: &mut Object) {
        let renamed = self.arguments.iter().filter(|argument| argument.is_renamed());
        let renamed: Vec<_> = renamed.filter_map(|argument| argument.name.clone()).collect();
        object.is_lax |= self.has_defaults || !renamed.is_empty();
        let Value::Object(keywords) = schema else {
            match schema {
                Value::Bool(_) if renamed.is_empty() => {
                    object.shown.insert("propertyNames".to_owned(), schema.clone());
                }
                _ => object.is_lax = true,
            }
            return;
        };
        let schema = if let Some(Value::Array(names)) = keywords.get("enum") {
            object.is_lax |= keywords.len() > 1;
            let names = names.iter().filter_map(|name| match self.arguments.fate(name.as_str()?) {
                Fate::Kept => Some(name.as_str()?.to_owned()),
                Fate::Named(_, name) => Some(name.to_owned()),
                Fate::Hidden(_) | Fate::Shadowed => None,
            });
            let names: BTreeSet<_> = names.collect();
            // Old dialects require at least one element.
            if names.is_empty() {
                object.is_lax = true;
                return;
            }
            json!({ "enum": names })
        } else {
            let is_harmless = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                ("maxLength" | "minLength", Value::Number(_)) => true,
                ("type", Value::String(_)) => true,
                ("pattern", Value::String(pattern)) => !self.definitions.tells(pattern),
                _ => false,
            };
            if !keywords.iter().all(is_harmless) {
                object.is_lax = true;
                return;
            }
            let schema = self.definitions.copy_data(schema);
            match renamed.is_empty() {
                true => schema,
                false => json!({ "anyOf": [{ "enum": renamed }, schema] }),
            }
        };
        object.shown.insert("propertyNames".to_owned(), schema);
    }

    fn presence(&self, original: &str) -> Presence {
        match self.arguments.fate(original) {
            Fate::Kept => Presence::Client(original.to_owned()),
            Fate::Named(argument, name) if argument.default.is_none() => {
                Presence::Client(name.to_owned())
            }
            Fate::Named(..) | Fate::Hidden(Argument { default: Some(_), .. }) => Presence::Always,
            Fate::Hidden(_) | Fate::Shadowed => Presence::Never,
        }
    }
}
