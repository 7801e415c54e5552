//! Computes how many steps the validation of a value takes, before the value is validated.
//!
//! Validation can take very long even if the schema is small, because the validator follows a
//! reference every time it reaches the reference. For example, if each definition in a schema
//! refers twice to the next definition, the number of steps grows exponentially. The same happens
//! if a schema refers to itself from two places, and the arguments are deeply nested. A single
//! keyword can also take long: for example, a regular expression that is matched with a long
//! string, or a long list of allowed values.

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

/// The base URI of schemas that do not define their own base URI.
const BASE: &str = "json-schema:///";
/// Maximum number of subschemas in a schema.
const MAX_SUBSCHEMAS: usize = 5_000;
/// Maximum number of subschemas that contain an `$id`.
const MAX_IDENTITIES: usize = 256;
/// Maximum number of subschemas in the dynamic scope of a reference: the subschemas with an `$id`
/// through which the validator has reached the reference.
const MAX_SCOPES: usize = 64;
/// Maximum length in bytes of an `$id` or a reference.
const MAX_REFERENCE: usize = 1_024;
/// Maximum total length in bytes of all `$id`s, anchors and references in a schema.
const MAX_REFERENCE_BYTES: usize = 256 * 1024;
/// Maximum number of in-place steps for a subschema. In such a step, the validator applies another
/// subschema to the same value, for example a subschema in `allOf`.
const MAX_STEPS_IN_PLACE: usize = 4_096;
/// Maximum nesting depth of subschemas that the validator applies to the same value, as with an
/// `allOf` within an `allOf`.
const MAX_LEVELS_IN_PLACE: usize = 256;
/// Maximum number of copies of subschemas that the validator makes for the keywords
/// `unevaluatedProperties` and `unevaluatedItems`.
const MAX_COPIED_STEPS: usize = 4_096;
/// Copying this many member names counts as one copied subschema toward [`MAX_COPIED_STEPS`].
const NAMES_PER_STEP: usize = 16;
/// Maximum number of different regular expressions in a schema.
const MAX_PATTERNS: usize = 100;
/// Maximum total length in bytes of all regular expressions in a schema.
const MAX_PATTERN_BYTES: usize = 16 * 1024;
/// Maximum total time for parsing all regular expressions in a schema. The unit is the time for one
/// byte of a plain expression; see [`pattern::size`].
const MAX_PATTERN_SIZE: usize = 400_000;
/// Maximum total size in bytes of all compiled regular expressions in a schema.
pub(super) const MAX_REGEX_BYTES: usize = 1024 * 1024;
/// Maximum recursion depth of the validator. Each level of recursion applies a subschema to a value
/// or to a part of it, and uses stack memory.
const MAX_VALIDATION_DEPTH: usize = 512;
/// Maximum number of comparisons that the validator makes to find duplicates in the lists of a
/// schema, such as the values of an `enum`.
const MAX_COMPARISONS: usize = 1_000_000;
/// Minimum length of a list for which the validator uses hashes to find duplicates.
const MIN_HASHED: usize = 16;
/// Keywords whose value can be a list without duplicates.
const UNIQUE_LISTS: [&str; 3] = ["enum", "required", "type"];
/// Keywords whose values are objects that map names to lists without duplicates.
const DEPENDENT_LISTS: [&str; 2] = ["dependencies", "dependentRequired"];
/// The subschemas of a schema, each with its cost. Computes how many steps the validation of a
/// value takes. A step takes about ten nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// All subschemas. The first element is the whole schema.
    parts: Vec<Part>,
}

/// A subschema. It refers to other subschemas by their index in [`Steps::parts`].
#[derive(Debug, Default)]
struct Part {
    /// The number of steps that the keywords of this subschema take. The subschema itself takes
    /// another step.
    cost: Cost,
    /// The indices of the subschemas that the validator applies to the same value, such as those in
    /// `allOf` and the targets of `$ref`.
    in_place: Vec<usize>,
    /// Whether the subschema contains `unevaluatedProperties` or `unevaluatedItems`. If so, the
    /// validator applies the subschemas in `in_place` again, to find unevaluated parts.
    looks_back: bool,
    /// The indices of the subschemas in `properties`, by the names of the members to which they
    /// apply.
    by_name: BTreeMap<String, usize>,
    /// The indices of the subschemas that may apply to every member of an object, such as the value
    /// of `additionalProperties`.
    members: Vec<usize>,
    /// The indices of the subschemas that apply to the name of each member, such as the value of
    /// `propertyNames`.
    names: Vec<usize>,
    /// The indices of the subschemas that apply to elements of an array, such as the value of
    /// `items`.
    elements: Vec<usize>,
}

/// The state of reading a schema: it collects the subschemas, and computes the cost of each.
struct Reader<'s> {
    steps: Steps,
    places: HashMap<Key, usize>,
    unread: Vec<(usize, &'s JsonObject, Scope<'s>)>,
    patterns: HashMap<&'s str, Pattern>,
    pattern_bytes: usize,
    pattern_size: usize,
    /// The total size in bytes that further regular expressions may have after compilation.
    regex_bytes: usize,
}

/// The key that identifies a subschema: its address, and the URIs that determine the targets of its
/// references. A subschema can have several keys, because the target of a dynamic reference depends
/// on the scope from which the subschema is reached.
type Key = (*const Value, Vec<String>);

/// The context in which the references of a subschema are resolved.
#[derive(Clone)]
struct Scope<'s> {
    resolver: Resolver<'s>,
    draft: Draft,
}

/// The progress of computing the [`Tree`] of a subschema.
#[derive(Clone, Copy)]
enum InPlace {
    Unknown,
    /// The tree is currently being computed. If the subschema is reached again in this state, it
    /// applies itself to the same value, and validation would never end. The schema is then
    /// rejected.
    Open,
    Known(Tree),
}

/// The size of a tree of subschemas that the validator applies to the same value. The root is one
/// subschema, and its children are the subschemas that it contains in keywords such as `allOf` or
/// refers to.
#[derive(Clone, Copy)]
struct Tree {
    steps: usize,
    /// The number of levels of the tree. It is 1 if the subschema has no children.
    levels: usize,
    /// The total number of member names in the `properties` of all subschemas in the tree.
    names: usize,
}

// === impl Steps ===

impl Steps {
    /// Collects the subschemas of a schema, and computes the cost of each.
    ///
    /// # Errors
    ///
    /// Returns the reason why the schema cannot be used for validation, for example because the
    /// validation of any value would take too long.
    pub(super) fn read(schema: &Value) -> Result<Self, Unusable> {
        check_references(schema)?;
        check_lists(schema, &mut { MAX_COMPARISONS }).ok_or_else(|| {
            unusable("a list in it has too many values that are similar to each other")
        })?;
        let base = uri::from_str(BASE).map_err(|error| unresolved(&error))?;
        // The registry contains only this schema and the metaschemas, and does not fetch other
        // schemas.
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

    /// Returns the number of steps that the validation of a value takes. Returns `None` if it takes
    /// more than `most` steps.
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

    /// Rejects a schema if one of its subschemas makes the validator apply too many subschemas to
    /// the same value. Otherwise, even the validation of a small value would take too long.
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
        // The validator compiles a copy of the in-place subschemas for each `unevaluatedProperties`
        // and `unevaluatedItems` keyword.
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

    /// Computes the size of the tree of subschemas that the validator applies to the same value as
    /// the subschema at the index `place`. `above` is the number of levels above this subschema.
    /// Returns `None` if a limit is exceeded.
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
    /// Returns how often the validator applies the subschemas in `in_place` to a value. This is
    /// three times if the subschema contains `unevaluatedProperties` or `unevaluatedItems`, because
    /// the validator then searches for unevaluated parts.
    const fn times(&self) -> usize {
        if self.looks_back { 3 } else { 1 }
    }
}

// === impl Reader ===

impl<'s> Reader<'s> {
    /// Returns the index of a subschema in [`Steps::parts`]. If the subschema is new, adds it to
    /// the subschemas that must still be read.
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
            // Skips `contentSchema`, because the validator does not decode strings.
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
            // Skips references of a subschema to itself, because the validator does not follow
            // them.
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

    /// Returns the indices of the subschemas to which the references in `schema` refer.
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
                // Skips an empty reference, because the validator ignores it.
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
    /// Returns the URIs that determine the targets of references in this scope: the base URI,
    /// followed by the URIs of the dynamic scope. The latter are in order from the outermost to the
    /// innermost scope, without duplicates.
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

/// Rejects a schema if resolving its references would take too long, because it contains too many
/// or too long `$id`s and references.
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

/// Subtracts from `left` the number of comparisons for finding duplicates in lists of a schema,
/// such as the values of `enum`. The validator makes these comparisons when it checks the schema
/// itself. Returns `None` if too few comparisons are left.
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

/// Returns the maximum number of comparisons for finding duplicates in a list. The validator
/// compares all values that have the same hash with each other. One such comparison counts once for
/// each part of the value, such as an element of an array.
///
/// Returns zero for short lists, for which the validator computes no hashes.
fn comparisons(values: &[Value]) -> usize {
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

/// Computes the hash of a value in the same way as the validator, which ignores how arrays are
/// nested, and treats all numbers as floats. Returns the number of parts of the value.
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

/// Calls `see` for each object member whose value is a string, at any depth, with the name and the
/// value of the member.
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
