//! The cost of checking a value, computed before the check.
//!
//! A validator follows a reference each time it reaches it. So a schema of a few lines, in which
//! each definition refers twice to the next one, can take practically forever to check. So can one
//! that refers to itself from two places, with arguments that are nested deep enough. And a single
//! keyword can take long: a regular expression with a long text, or a long list of allowed values.

mod cost;
mod pattern;

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    hash::{DefaultHasher, Hash, Hasher},
};

use referencing::{Draft, Error, Resolver, SPECIFICATIONS, uri};
use rmcp::model::JsonObject;
use serde_json::Value;

use self::{
    cost::{Cost, Instance, members, take},
    pattern::Pattern,
};
use super::{
    keywords::{self, AppliesTo, Subschema},
    unusable::Unusable,
};

/// The base URI of a schema without one.
const BASE: &str = "json-schema:///";
/// The maximum number of subschemas.
const MAX_SUBSCHEMAS: usize = 5_000;
/// The maximum number of subschemas with an identity (`$id`).
const MAX_IDENTITIES: usize = 256;
/// The maximum number of nested identities.
const MAX_SCOPES: usize = 64;
/// The maximum length of an identity or a reference in bytes.
const MAX_REFERENCE: usize = 1_024;
/// The maximum length of all of them together.
const MAX_REFERENCE_BYTES: usize = 256 * 1024;
/// The maximum number of steps without descending into a value.
const MAX_STEPS_IN_PLACE: usize = 4_096;
/// The maximum depth of these steps.
const MAX_LEVELS_IN_PLACE: usize = 256;
/// The maximum number of these steps of all subschemas with `unevaluatedProperties` or
/// `unevaluatedItems` together.
const MAX_COPIED_STEPS: usize = 4_096;
/// The number of member names that are copied in the time of copying such a step.
const NAMES_PER_STEP: usize = 16;
/// The maximum number of regular expressions in a schema.
const MAX_PATTERNS: usize = 100;
/// The maximum length of all of them together.
const MAX_PATTERN_BYTES: usize = 16 * 1024;
/// The maximum time to parse all of them, in bytes of an expression without classes.
const MAX_PATTERN_SIZE: usize = 400_000;
/// The maximum size of all of them when compiled, in bytes.
pub(super) const MAX_REGEX_BYTES: usize = 1024 * 1024;
/// The maximum depth of steps, including those into a value: a validator uses the stack for each.
const MAX_VALIDATION_DEPTH: usize = 512;
/// The maximum number of comparisons between parts of values to find duplicates in the lists of a
/// schema.
const MAX_COMPARISONS: usize = 1_000_000;
/// The number of values from which a validator hashes a list.
const MIN_HASHED: usize = 16;
/// Keywords whose values are lists without duplicates.
const UNIQUE_LISTS: [&str; 3] = ["enum", "required", "type"];
/// Keywords whose values are objects of such lists.
const DEPENDENT_LISTS: [&str; 2] = ["dependencies", "dependentRequired"];
/// The subschemas of a schema and the parts of a value that they apply to.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The subschemas; the whole schema is the first.
    parts: Vec<Part>,
}

/// A subschema; it refers to other subschemas by index.
#[derive(Debug, Default)]
struct Part {
    /// The cost of its own keywords, in addition to one step for each subschema.
    cost: Cost,
    in_place: Vec<usize>,
    /// Whether it checks the members that they leave unevaluated, for which they are applied again.
    looks_back: bool,
    by_name: BTreeMap<String, usize>,
    members: Vec<usize>,
    /// The schemas for the name of each member.
    names: Vec<usize>,
    elements: Vec<usize>,
}

/// Collects the subschemas of a schema.
struct Reader<'s> {
    steps: Steps,
    places: HashMap<Key, usize>,
    unread: Vec<(usize, &'s JsonObject, Scope<'s>)>,
    patterns: HashMap<&'s str, Pattern>,
    pattern_bytes: usize,
    pattern_size: usize,
    /// The remaining size of further expressions when compiled, in bytes.
    regex_bytes: usize,
}

/// The identity of a subschema: a dynamic reference has another target in another scope.
type Key = (*const Value, Vec<String>);

/// The scope in which the references of a subschema are resolved.
#[derive(Clone)]
struct Scope<'s> {
    resolver: Resolver<'s>,
    draft: Draft,
}

/// The in-place steps of a subschema, as far as they are known.
#[derive(Clone, Copy)]
enum InPlace {
    Unknown,
    /// Being counted: reaching it again means a cycle.
    Open,
    Known(Tree),
}

/// A subschema with those that it applies in place.
#[derive(Clone, Copy)]
struct Tree {
    steps: usize,
    /// The depth of the steps.
    levels: usize,
    /// The number of members with schemas of their own.
    names: usize,
}

// === impl Steps ===

impl Steps {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// Returns the reason why checking any value would take too long.
    pub(super) fn read(schema: &Value) -> Result<Self, Unusable> {
        check_references(schema)?;
        check_lists(schema, &mut { MAX_COMPARISONS }).ok_or_else(|| {
            unusable("a list in it has too many values that are similar to each other")
        })?;
        let base = uri::from_str(BASE).map_err(|error| unresolved(&error))?;
        // In addition to the metaschemas; no other schema is fetched.
        let registry = SPECIFICATIONS.add(BASE, schema).and_then(|all| all.prepare());
        let registry = registry.map_err(|error| unresolved(&error))?;
        let scope = Scope { resolver: registry.resolver(base), draft: Draft::default() };
        let mut reader = Reader {
            steps: Self::default(),
            places: HashMap::new(),
            unread: Vec::new(),
            patterns: HashMap::new(),
            pattern_bytes: 0,
            pattern_size: 0,
            regex_bytes: MAX_REGEX_BYTES,
        };
        reader.part(schema, &scope)?;
        while let Some((place, schema, scope)) = reader.unread.pop() {
            reader.steps.parts[place] = reader.read(place, schema, &scope)?;
        }
        reader.steps.count_in_place()?;
        Ok(reader.steps)
    }

    /// Returns the number of steps to check a value, or `None` if it exceeds `most`.
    pub(super) fn count(&self, value: &Value, most: usize) -> Option<usize> {
        let mut left = most;
        self.walk(0, Instance::Value(value), MAX_VALIDATION_DEPTH, &mut left)?;
        Some(most - left)
    }

    fn walk(
        &self,
        place: usize,
        instance: Instance<'_>,
        levels: usize,
        left: &mut usize,
    ) -> Option<()> {
        let part = &self.parts[place];
        let levels = levels.checked_sub(1)?;
        take(left, 1)?;
        part.cost.charge(instance, left)?;
        for _ in 0..part.times() {
            for &place in &part.in_place {
                self.walk(place, instance, levels, left)?;
            }
        }
        match instance {
            Instance::Value(Value::Object(members)) => {
                self.walk_members(part, members, levels, left)
            }
            Instance::Value(Value::Array(elements)) => {
                for &place in &part.elements {
                    for element in elements {
                        self.walk(place, Instance::Value(element), levels, left)?;
                    }
                }
                Some(())
            }
            _ => Some(()),
        }
    }

    fn walk_members(
        &self,
        part: &Part,
        members: &JsonObject,
        levels: usize,
        left: &mut usize,
    ) -> Option<()> {
        if members.len() <= part.by_name.len() {
            for (name, member) in members {
                take(left, 1 + name.len() / 8)?;
                if let Some(&place) = part.by_name.get(name) {
                    self.walk(place, Instance::Value(member), levels, left)?;
                }
            }
        } else {
            take(left, part.by_name.len() * cost::times(members))?;
            for (name, &place) in &part.by_name {
                if let Some(member) = members.get(name) {
                    self.walk(place, Instance::Value(member), levels, left)?;
                }
            }
        }
        for &place in &part.members {
            for member in members.values() {
                self.walk(place, Instance::Value(member), levels, left)?;
            }
        }
        for &place in &part.names {
            for name in members.keys() {
                self.walk(place, Instance::Name(name), levels, left)?;
            }
        }
        Some(())
    }

    /// Rejects a schema that exceeds the in-place limits for any value.
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
        // A validator compiles a copy of the in-place schemas for each `unevaluatedProperties`.
        let copied = self.parts.iter().zip(&known).map(|(part, known)| match known {
            InPlace::Known(tree) if part.looks_back => tree.steps + tree.names / NAMES_PER_STEP,
            _ => 0,
        });
        if copied.sum::<usize>() > MAX_COPIED_STEPS {
            return Err(unusable(&format!(
                "`unevaluatedProperties` and `unevaluatedItems` apply to more than \
                 {MAX_COPIED_STEPS} parts of it"
            )));
        }
        Ok(())
    }

    /// Counts the schemas that a subschema applies in place.
    fn in_place(&self, place: usize, above: usize, known: &mut [InPlace]) -> Option<Tree> {
        match known[place] {
            InPlace::Known(tree) => return Some(tree),
            InPlace::Open => return None,
            InPlace::Unknown if above >= MAX_LEVELS_IN_PLACE => return None,
            InPlace::Unknown => known[place] = InPlace::Open,
        }
        let part = &self.parts[place];
        let mut tree = Tree { steps: 0, levels: 0, names: part.by_name.len() };
        for &place in &part.in_place {
            let below = self.in_place(place, above + 1, known)?;
            tree.steps = tree.steps.saturating_add(below.steps);
            tree.levels = tree.levels.max(below.levels);
            tree.names = tree.names.saturating_add(below.names);
        }
        tree.steps = tree.steps.saturating_mul(part.times()).saturating_add(1);
        tree.levels += 1;
        if tree.steps > MAX_STEPS_IN_PLACE || tree.levels > MAX_LEVELS_IN_PLACE {
            return None;
        }
        known[place] = InPlace::Known(tree);
        Some(tree)
    }
}

// === impl Part ===

impl Part {
    /// Returns how often the in-place schemas are applied: once, and again to find what is
    /// unevaluated, in which each is checked and searched itself.
    const fn times(&self) -> usize {
        if self.looks_back { 3 } else { 1 }
    }
}

// === impl Reader ===

impl<'s> Reader<'s> {
    /// Returns the index of a subschema, and queues it if it was not read yet.
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
        if next == MAX_SUBSCHEMAS {
            return Err(unusable(&format!("it has more than {MAX_SUBSCHEMAS} parts")));
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
        for Subschema { applies_to, schema, .. } in keywords::subschemas(schema) {
            // A validator does not decode texts.
            if applies_to == AppliesTo::Content {
                continue;
            }
            let index = self.part(schema, scope)?;
            match applies_to {
                AppliesTo::Whole => part.in_place.push(index),
                AppliesTo::Member(name) => {
                    part.by_name.insert(name.to_owned(), index);
                }
                AppliesTo::Members => part.members.push(index),
                AppliesTo::Names => part.names.push(index),
                AppliesTo::Element(_) | AppliesTo::Elements => part.elements.push(index),
                AppliesTo::Content => (),
            }
        }
        for target in self.targets(schema, scope)? {
            // A validator does not follow a reference to itself.
            if target != place {
                part.in_place.push(target);
            }
        }
        for (pattern, _) in members(schema, "patternProperties") {
            self.pattern(pattern)?;
        }
        if let Some(Value::String(pattern)) = schema.get("pattern") {
            self.pattern(pattern)?;
        }
        part.cost = Cost::new(schema, &self.patterns);
        Ok(part)
    }

    /// Returns the targets of the references of a subschema.
    fn targets(
        &mut self,
        schema: &'s JsonObject,
        scope: &Scope<'s>,
    ) -> Result<Vec<usize>, Unusable> {
        let mut targets = Vec::new();
        for keyword in keywords::REFERENCES {
            let Some(Value::String(reference)) = schema.get(keyword) else { continue };
            let resolved = match keyword {
                "$recursiveRef" => scope.resolver.lookup_recursive_ref(),
                // A validator ignores an empty reference.
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
        self.pattern_size = self.pattern_size.saturating_add(pattern::size(pattern));
        if self.pattern_size > MAX_PATTERN_SIZE {
            return Err(unusable("its regular expressions have too many classes of characters"));
        }
        let compiled = Pattern::new(pattern, &mut self.regex_bytes).ok_or_else(|| Unusable {
            too_long: false,
            ..unusable(&format!(
                "its regular expressions take more than {MAX_REGEX_BYTES} bytes when compiled"
            ))
        })?;
        self.patterns.insert(pattern, compiled);
        Ok(())
    }
}

// === impl Scope ===

impl Scope<'_> {
    /// Returns the names that determine the targets of references: the base URI and the dynamic
    /// scope, each name once, at its outermost place.
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
    let mut bytes = 0;
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
        bytes += text.len();
    });
    if is_legacy {
        identities += legacy_identities;
    }
    if !is_short {
        return Err(unusable(&format!("a reference is longer than {MAX_REFERENCE} bytes")));
    }
    if bytes > MAX_REFERENCE_BYTES {
        let reason = format!("its references have more than {MAX_REFERENCE_BYTES} bytes");
        return Err(unusable(&reason));
    }
    if identities > MAX_IDENTITIES {
        return Err(unusable(&format!("it has more than {MAX_IDENTITIES} identities")));
    }
    Ok(())
}

/// Subtracts the comparisons of `uniqueItems` in the metaschema, which compares values with equal
/// hashes.
fn check_lists(schema: &Value, left: &mut usize) -> Option<()> {
    match schema {
        Value::Object(members) => members.iter().try_for_each(|(keyword, value)| {
            match value {
                Value::Array(values) if UNIQUE_LISTS.contains(&&**keyword) => {
                    take(left, comparisons(values))?;
                }
                Value::Object(lists) if DEPENDENT_LISTS.contains(&&**keyword) => {
                    let lists = lists.values().filter_map(Value::as_array);
                    take(left, lists.map(|values| comparisons(values)).sum())?;
                }
                _ => (),
            }
            check_lists(value, left)
        }),
        Value::Array(elements) => {
            elements.iter().try_for_each(|element| check_lists(element, left))
        }
        _ => Some(()),
    }
}

/// Returns the number of parts of values that are compared because of equal hashes.
fn comparisons(values: &[Value]) -> usize {
    // Short lists are not hashed.
    if values.len() < MIN_HASHED {
        return 0;
    }
    let mut groups: HashMap<u64, (usize, usize)> = HashMap::new();
    for value in values {
        let mut hasher = DefaultHasher::new();
        let parts = hash(value, &mut hasher);
        let group = groups.entry(hasher.finish()).or_default();
        *group = (group.0 + 1, group.1 + parts);
    }
    groups.values().map(|(values, parts)| (values - 1).saturating_mul(*parts)).sum()
}

/// Hashes a value like a validator: without the nesting of arrays, and numbers as floats. Returns
/// the number of its parts.
fn hash(value: &Value, hasher: &mut DefaultHasher) -> usize {
    1 + match value {
        Value::Null => 0,
        Value::Bool(value) => {
            value.hash(hasher);
            0
        }
        Value::Number(number) => {
            number.as_f64().map(f64::to_bits).hash(hasher);
            0
        }
        Value::String(text) => {
            text.hash(hasher);
            0
        }
        Value::Array(elements) => elements.iter().map(|element| hash(element, hasher)).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| {
                name.hash(hasher);
                hash(member, hasher)
            })
            .sum(),
    }
}

/// Calls `see` for each text that is a member of an object.
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

fn unresolved(error: &Error) -> Unusable {
    Unusable { too_long: false, ..unusable(&error.to_string()) }
}

fn unusable(reason: &str) -> Unusable {
    let reason = super::shortened(&reason);
    Unusable { path: String::new(), reason, too_long: true }
}

#[cfg(test)]
mod tests;
