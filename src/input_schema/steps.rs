//! How much work it is to check a value, told before it is done.
//!
//! A validator follows a reference as often as it comes to it. So a schema of a few
//! lines, in which each definition refers twice to the next one, can take longer
//! than anybody waits, and so can one that refers to itself from two places, with
//! arguments that are nested deep enough. And a single keyword can take long: a regular
//! expression with a long text, or a long list of values that a value may be.

mod cost;
mod pattern;

use std::collections::{HashMap, HashSet, hash_map::Entry};

use referencing::{Draft, Error, Resolver, SPECIFICATIONS, uri};
use rmcp::model::JsonObject;
use serde_json::Value;

use self::{
    cost::{Cost, take},
    pattern::Pattern,
};
use super::Unusable;

/// Where a schema is that does not say so.
const BASE: &str = "json-schema:///";
/// How many parts a schema may have.
const MAX_PARTS: usize = 5_000;
/// How many parts may have an identity of their own.
const MAX_IDENTITIES: usize = 256;
/// How many of them may lead to a part, one after the other.
const MAX_SCOPES: usize = 64;
/// How long an identity or a reference may be.
const MAX_REFERENCE: usize = 1_024;
/// How many steps may be taken without going into a value.
const MAX_STEPS_IN_PLACE: usize = 4_096;
/// How many of them may be within each other.
const MAX_LEVELS_IN_PLACE: usize = 256;
/// How many regular expressions a schema may have.
const MAX_PATTERNS: usize = 100;
/// How long all of them may be.
const MAX_PATTERN_BYTES: usize = 16 * 1024;
/// How many steps may be within each other, with those into a value: a validator
/// takes room on the stack for each.
const MAX_LEVELS: usize = 512;
/// Keywords whose schemas apply to the same value.
const IN_PLACE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];
/// Keywords whose schemas apply to it by the members that it has.
const DEPENDENT: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords whose schema applies to any member of an object.
const OF_MEMBERS: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// Keywords whose schemas apply to any element of an array.
const OF_ELEMENTS: [&str; 5] =
    ["items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"];

/// What of a schema applies to what of a value.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The whole schema is the first.
    parts: Vec<Part>,
    patterns: usize,
}

/// A schema within a schema; what it applies are places among all parts.
#[derive(Debug, Default)]
struct Part {
    /// What its own keywords cost, beyond the step that each part is.
    cost: Cost,
    in_place: Vec<usize>,
    /// Whether it looks for what they have left over, for which they are gone
    /// through again.
    looks_back: bool,
    by_name: HashMap<String, usize>,
    members: Vec<usize>,
    /// What applies to the name of each member.
    names: Vec<usize>,
    elements: Vec<usize>,
}

/// Finds the parts of a schema.
struct Reader<'s> {
    steps: Steps,
    places: HashMap<Key, usize>,
    unread: Vec<(usize, &'s JsonObject, Scope<'s>)>,
    patterns: HashMap<&'s str, Pattern>,
    pattern_bytes: usize,
}

/// What tells parts apart: a dynamic reference leads elsewhere in another scope.
type Key = (*const Value, Vec<String>);

/// How the references of a part are followed.
#[derive(Clone)]
struct Scope<'s> {
    resolver: Resolver<'s>,
    draft: Draft,
}

/// What is known of the steps that a part takes in place.
#[derive(Clone, Copy)]
enum InPlace {
    Unknown,
    /// It is being counted: who comes here again goes round in a circle.
    Open,
    Known {
        steps: usize,
        levels: usize,
    },
}

// === impl Steps ===

impl Steps {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// Returns why it would take too long to check any value at all.
    pub(super) fn read(schema: &Value) -> Result<Self, Unusable> {
        check_references(schema)?;
        let base = uri::from_str(BASE).map_err(|error| unresolved(&error))?;
        // Beside the schemas of schemas; nothing else is fetched.
        let registry = SPECIFICATIONS.add(BASE, schema).and_then(|all| all.prepare());
        let registry = registry.map_err(|error| unresolved(&error))?;
        let scope = Scope { resolver: registry.resolver(base), draft: Draft::default() };
        let mut reader = Reader {
            steps: Self::default(),
            places: HashMap::new(),
            unread: Vec::new(),
            patterns: HashMap::new(),
            pattern_bytes: 0,
        };
        reader.part(schema, &scope)?;
        while let Some((place, schema, scope)) = reader.unread.pop() {
            reader.steps.parts[place] = reader.read(place, schema, &scope)?;
        }
        reader.steps.count_in_place()?;
        reader.steps.patterns = reader.patterns.len();
        Ok(reader.steps)
    }

    /// How many regular expressions the schema has.
    pub(super) const fn patterns(&self) -> usize {
        self.patterns
    }

    /// How many steps it takes to check a value, unless they are more than `most`.
    pub(super) fn count(&self, value: &Value, most: usize) -> Option<usize> {
        let mut left = most;
        self.walk(0, value, MAX_LEVELS, &mut left)?;
        Some(most - left)
    }

    fn walk(&self, place: usize, value: &Value, levels: usize, left: &mut usize) -> Option<()> {
        let part = &self.parts[place];
        let levels = levels.checked_sub(1)?;
        take(left, 1)?;
        part.cost.charge(value, left)?;
        for _ in 0..part.times() {
            for &place in &part.in_place {
                self.walk(place, value, levels, left)?;
            }
        }
        match value {
            Value::Object(members) if members.len() < part.by_name.len() => {
                for (name, member) in members {
                    take(left, 1 + name.len() / 8)?;
                    if let Some(&place) = part.by_name.get(name) {
                        self.walk(place, member, levels, left)?;
                    }
                }
            }
            Value::Object(members) => {
                take(left, part.by_name.len() * cost::times(members))?;
                for (name, &place) in &part.by_name {
                    if let Some(member) = members.get(name) {
                        self.walk(place, member, levels, left)?;
                    }
                }
            }
            _ => (),
        }
        match value {
            Value::Object(members) => {
                for &place in &part.members {
                    members
                        .values()
                        .try_for_each(|member| self.walk(place, member, levels, left))?;
                }
                for &place in &part.names {
                    members
                        .keys()
                        .map(|name| Value::String(name.clone()))
                        .try_for_each(|name| self.walk(place, &name, levels, left))?;
                }
            }
            Value::Array(elements) => {
                for &place in &part.elements {
                    elements
                        .iter()
                        .try_for_each(|element| self.walk(place, element, levels, left))?;
                }
            }
            _ => (),
        }
        Some(())
    }

    /// Rejects what no value can be checked against.
    fn count_in_place(&self) -> Result<(), Unusable> {
        let mut known = vec![InPlace::Unknown; self.parts.len()];
        for place in 0..self.parts.len() {
            self.in_place(place, 0, &mut known).ok_or_else(|| {
                unusable(&format!(
                    "parts of it apply to one value more than {MAX_STEPS_IN_PLACE} times, or \
                     within each other more than {MAX_LEVELS_IN_PLACE} times"
                ))
            })?;
        }
        Ok(())
    }

    /// How many steps a part takes in place, and how many of them within each other.
    fn in_place(
        &self,
        place: usize,
        above: usize,
        known: &mut [InPlace],
    ) -> Option<(usize, usize)> {
        match known[place] {
            InPlace::Known { steps, levels } => return Some((steps, levels)),
            InPlace::Open => return None,
            InPlace::Unknown if above >= MAX_LEVELS_IN_PLACE => return None,
            InPlace::Unknown => known[place] = InPlace::Open,
        }
        let part = &self.parts[place];
        let (mut steps, mut levels) = (0_usize, 0);
        for &place in &part.in_place {
            let (of_part, below) = self.in_place(place, above + 1, known)?;
            steps = steps.saturating_add(of_part);
            levels = levels.max(below);
        }
        let steps = steps.saturating_mul(part.times()).saturating_add(1);
        let levels = levels + 1;
        if steps > MAX_STEPS_IN_PLACE || levels > MAX_LEVELS_IN_PLACE {
            return None;
        }
        known[place] = InPlace::Known { steps, levels };
        Some((steps, levels))
    }
}

// === impl Part ===

impl Part {
    /// How often what applies in place is gone through: once, and to find what is
    /// left over again, in which each part is checked and looks back itself.
    const fn times(&self) -> usize {
        if self.looks_back { 3 } else { 1 }
    }
}

// === impl Reader ===

impl<'s> Reader<'s> {
    /// The place of a part, which is read later unless it was.
    fn part(&mut self, schema: &'s Value, outer: &Scope<'s>) -> Result<usize, Unusable> {
        let draft = outer.draft.detect(schema);
        let resource = draft.create_resource_ref(schema);
        let resolver =
            outer.resolver.in_subresource(resource).map_err(|error| unresolved(&error))?;
        self.resolved(schema, Scope { resolver, draft })
    }

    fn resolved(&mut self, schema: &'s Value, scope: Scope<'s>) -> Result<usize, Unusable> {
        let next = self.steps.parts.len();
        match self.places.entry((std::ptr::from_ref(schema), scope.names()?)) {
            Entry::Occupied(place) => return Ok(*place.get()),
            Entry::Vacant(place) => place.insert(next),
        };
        if next == MAX_PARTS {
            return Err(unusable(&format!("it has more than {MAX_PARTS} parts")));
        }
        self.steps.parts.push(Part::default());
        if let Value::Object(schema) = schema {
            self.unread.push((next, schema, scope));
        }
        Ok(next)
    }

    fn read(
        &mut self,
        place: usize,
        schema: &'s JsonObject,
        scope: &Scope<'s>,
    ) -> Result<Part, Unusable> {
        let mut part = Part {
            looks_back: schema.contains_key("unevaluatedProperties")
                || schema.contains_key("unevaluatedItems"),
            ..Part::default()
        };
        for keyword in IN_PLACE {
            self.all(schema.get(keyword), scope, &mut part.in_place)?;
        }
        for keyword in DEPENDENT {
            for schema in members(schema, keyword).map(|(_, schema)| schema) {
                // Or the names of members.
                if !schema.is_array() {
                    part.in_place.push(self.part(schema, scope)?);
                }
            }
        }
        for target in self.targets(schema, scope)? {
            // A validator does not go to where it is.
            if target != place {
                part.in_place.push(target);
            }
        }
        for (name, schema) in members(schema, "properties") {
            part.by_name.insert(name.clone(), self.part(schema, scope)?);
        }
        for (pattern, schema) in members(schema, "patternProperties") {
            self.pattern(pattern)?;
            part.members.push(self.part(schema, scope)?);
        }
        if let Some(Value::String(pattern)) = schema.get("pattern") {
            self.pattern(pattern)?;
        }
        for keyword in OF_MEMBERS {
            self.all(schema.get(keyword), scope, &mut part.members)?;
        }
        self.all(schema.get("propertyNames"), scope, &mut part.names)?;
        for keyword in OF_ELEMENTS {
            self.all(schema.get(keyword), scope, &mut part.elements)?;
        }
        part.cost = Cost::new(schema, &self.patterns);
        Ok(part)
    }

    /// The places of a schema, or of several.
    fn all(
        &mut self,
        schemas: Option<&'s Value>,
        scope: &Scope<'s>,
        places: &mut Vec<usize>,
    ) -> Result<(), Unusable> {
        let schemas = match schemas {
            None => return Ok(()),
            Some(Value::Array(schemas)) => schemas,
            Some(schema) => std::slice::from_ref(schema),
        };
        for schema in schemas {
            places.push(self.part(schema, scope)?);
        }
        Ok(())
    }

    /// Where the references of a part lead.
    fn targets(
        &mut self,
        schema: &'s JsonObject,
        scope: &Scope<'s>,
    ) -> Result<Vec<usize>, Unusable> {
        let mut targets = Vec::new();
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(Value::String(reference)) = schema.get(keyword) else { continue };
            let resolved = match keyword {
                "$recursiveRef" => scope.resolver.lookup_recursive_ref(),
                // A validator does not follow it.
                _ if reference.is_empty() => continue,
                _ => scope.resolver.lookup(reference),
            };
            let (schema, resolver, draft) =
                resolved.map_err(|error| unresolved(&error))?.into_inner();
            targets.push(self.resolved(schema, Scope { resolver, draft })?);
        }
        Ok(targets)
    }

    fn pattern(&mut self, pattern: &'s str) -> Result<(), Unusable> {
        if self.patterns.contains_key(pattern) {
            return Ok(());
        }
        self.pattern_bytes += pattern.len();
        if self.patterns.len() == MAX_PATTERNS || self.pattern_bytes > MAX_PATTERN_BYTES {
            return Err(unusable(&format!(
                "it has more than {MAX_PATTERNS} regular expressions, or more than \
                 {MAX_PATTERN_BYTES} bytes of them"
            )));
        }
        self.patterns.insert(pattern, Pattern::new(pattern));
        Ok(())
    }
}

// === impl Scope ===

impl Scope<'_> {
    /// What the meaning of references depends on: where they are, and from where
    /// they were come to, each name once, where it is outermost.
    fn names(&self) -> Result<Vec<String>, Unusable> {
        let mut names = vec![self.resolver.base_uri().as_str().to_owned()];
        let from = self.resolver.dynamic_scope();
        let from: Vec<_> = from.iter().map(|uri| uri.as_str()).take(MAX_SCOPES + 1).collect();
        if from.len() > MAX_SCOPES {
            return Err(unusable(&format!("it goes through more than {MAX_SCOPES} identities")));
        }
        let mut seen = HashSet::new();
        names.extend(from.iter().rev().filter(|name| seen.insert(**name)).map(|&name| name.into()));
        Ok(names)
    }
}

/// Rejects identities and references that would take long to compare.
fn check_references(schema: &Value) -> Result<(), Unusable> {
    let mut is_legacy = false;
    let mut is_short = true;
    let mut identities = 0;
    let mut legacy_identities = 0;
    each_text(schema, &mut |key, text| {
        let counted = match key {
            "$id" => &mut identities,
            "id" => &mut legacy_identities,
            "$schema" => {
                is_legacy |= text.contains("draft-04");
                return;
            }
            "$ref" | "$dynamicRef" | "$anchor" | "$dynamicAnchor" => &mut 0,
            _ => return,
        };
        *counted += 1;
        is_short &= text.len() <= MAX_REFERENCE || key == "id";
    });
    if is_legacy {
        identities += legacy_identities;
    }
    if !is_short {
        return Err(unusable(&format!("a reference is longer than {MAX_REFERENCE} bytes")));
    }
    if identities > MAX_IDENTITIES {
        return Err(unusable(&format!("it has more than {MAX_IDENTITIES} identities")));
    }
    Ok(())
}

/// Calls back for each text that is a member of an object.
fn each_text(value: &Value, see: &mut impl FnMut(&str, &str)) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(text) => see(key, text),
                    value => each_text(value, see),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| each_text(element, see)),
        _ => (),
    }
}

/// The members of an object that is the value of a keyword.
fn members<'s>(
    schema: &'s JsonObject,
    keyword: &str,
) -> impl Iterator<Item = (&'s String, &'s Value)> {
    schema.get(keyword).and_then(Value::as_object).into_iter().flatten()
}

fn unresolved(error: &Error) -> Unusable {
    Unusable { too_long: false, ..unusable(&error.to_string()) }
}

fn unusable(reason: &str) -> Unusable {
    let reason = super::shorten(reason.to_owned());
    Unusable { path: String::new(), reason, too_long: true }
}

#[cfg(test)]
mod tests;
