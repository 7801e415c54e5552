//! Checks the arguments of a step against the input schema of its tool before the run. At that
//! time, the values that depend on the outputs of earlier steps are unknown.
//!
//! Reports probable typos in argument names. Also reports violations that occur regardless of the
//! unknown values.

use std::collections::HashSet;

use jsonschema::{
    JsonType, ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use rmcp::model::JsonObject;
use serde_json::Value;

use super::{MAX_VIOLATIONS, coerce::coerce, compile, keywords, member, violations_of, walk::Walk};
use crate::{
    expr::{PartialValue, PathSegment},
    json_pointer,
    message::{MAX_JSON_DEPTH, Violation, is_deeper},
    suggest,
};

/// Maximum number of values in the arguments of a step that are compared with the schema before a
/// run.
const MAX_INSPECTED_PARTS: usize = 10_000;
/// Maximum number of validation steps for the arguments of a step before a run. If the validation
/// would take more steps, it is skipped.
const MAX_FIT_STEPS: usize = 16_000;
/// Maximum number of property names that are compared with a misspelled name to find a suggestion.
const MAX_CANDIDATES: usize = 1_000;
/// Keywords with which the validity of one part of a value can depend on other parts. References
/// and keywords such as `anyOf` have this effect too, but are checked separately.
const COMPOUND: [&str; 3] = ["contains", "unevaluatedItems", "unevaluatedProperties"];
/// Keywords that do not restrict values, and `$ref`. A schema with only these keywords is
/// equivalent to the target of its `$ref`.
const SILENT: [&str; 7] =
    ["$comment", "$defs", "$ref", "$schema", "definitions", "description", "title"];

/// A mistake in the arguments of a step: a part that does not match the input schema of the called
/// tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// The path of the invalid part within the arguments of the step. Empty if the arguments as a
    /// whole are invalid.
    pub(crate) path: Vec<PathSegment>,
    pub(crate) message: String,
}

/// Returns the parts of a step's arguments that cannot match the tool's input schema. Ignores parts
/// whose values are known only during the run.
///
/// Also reports members that the schema does not declare, even if the schema allows additional
/// members. Such a member is most likely a typo that the tool would ignore.
pub(crate) fn misfits(schema: &JsonObject, arguments: &PartialValue) -> Vec<Misfit> {
    let mut survey = Survey {
        walk: Walk::new(schema, MAX_INSPECTED_PARTS),
        path: Vec::new(),
        known: HashSet::new(),
        reported: Vec::new(),
    };
    survey.visit(schema, arguments);
    survey.validate(arguments);
    survey.reported.truncate(MAX_VIOLATIONS);
    survey.reported
}

/// The state of comparing the arguments of a step with the input schema of a tool.
struct Survey<'s> {
    walk: Walk<'s>,
    /// The path of the part that is currently compared with the schema.
    path: Vec<PathSegment>,
    /// The JSON Pointers of the parts that can be validated before the run. The values of these
    /// parts are completely known, and their validity does not depend on other parts.
    known: HashSet<String>,
    reported: Vec<Misfit>,
}

// === impl Survey ===

impl<'s> Survey<'s> {
    fn visit(&mut self, schema: &'s JsonObject, arguments: &PartialValue) {
        if !self.walk.enter(self.path.len()) {
            return;
        }
        if arguments.is_known() {
            self.known.insert(pointer(&self.path));
        }
        let schema = self.without_references(schema);
        match arguments {
            PartialValue::Known(value) => self.check_known(schema, value),
            PartialValue::Unknown { .. } => (),
            PartialValue::Array(elements) => {
                if self.expects(schema, "array", "is an array") {
                    self.each_element(schema, elements, Self::visit);
                }
            }
            PartialValue::Object(members) => {
                if self.expects(schema, "object", "is an object") {
                    let names: Vec<_> = members.iter().map(|(name, _)| name.as_str()).collect();
                    self.compare_names(schema, &names);
                    let members = members.iter().map(|(name, member)| (name, member));
                    self.each_member(schema, members, Self::visit);
                }
            }
        }
    }

    /// Reports probable typos in the member names of a value that is completely known before the
    /// run. Other errors in the value are reported by [`validate`](Self::validate).
    fn check_known(&mut self, schema: &'s JsonObject, value: &Value) {
        if !self.walk.enter(self.path.len()) {
            return;
        }
        let schema = self.without_references(schema);
        match value {
            Value::Array(elements) => self.each_element(schema, elements, Self::check_known),
            Value::Object(members) if is_expected(schema, "object") => {
                let names: Vec<_> = members.keys().map(String::as_str).collect();
                self.compare_names(schema, &names);
                self.each_member(schema, members.iter(), Self::check_known);
            }
            _ => (),
        }
    }

    fn each_element<E>(
        &mut self,
        schema: &'s JsonObject,
        elements: &[E],
        mut look: impl FnMut(&mut Self, &'s JsonObject, &E),
    ) {
        if !self.is_plain(schema) {
            return;
        }
        for (index, element) in elements.iter().enumerate() {
            let Some(Value::Object(schema)) = self.walk.element(schema, index) else { continue };
            self.path.push(PathSegment::Index(index));
            look(self, schema, element);
            self.path.pop();
        }
    }

    fn each_member<'m, M: 'm>(
        &mut self,
        schema: &'s JsonObject,
        members: impl Iterator<Item = (&'m String, &'m M)>,
        mut look: impl FnMut(&mut Self, &'s JsonObject, &M),
    ) {
        if !self.is_plain(schema) {
            return;
        }
        for (name, member) in members {
            let Some(Value::Object(schema)) = self.walk.member(schema, name) else { continue };
            self.path.push(PathSegment::Key(name.clone()));
            look(self, schema, member);
            self.path.pop();
        }
    }

    /// Follows the `$ref` of a schema to its target, and then the `$ref` of the target, and so on.
    /// Returns the last target. Stops at a schema that restricts values with other keywords next to
    /// `$ref`.
    fn without_references(&self, schema: &'s JsonObject) -> &'s JsonObject {
        let is_silent = |schema: &JsonObject| schema.keys().all(|key| SILENT.contains(&&**key));
        let mut schema = schema;
        for _ in 0..MAX_JSON_DEPTH {
            match self.walk.target(schema) {
                Some(target) if is_silent(schema) => schema = target,
                _ => break,
            }
        }
        schema
    }

    /// Returns `true` if the schema restricts each part of a value separately, so that the validity
    /// of a part does not depend on other parts.
    fn is_plain(&self, schema: &JsonObject) -> bool {
        // An embedded document is excluded, because references in it are resolved differently.
        !self.walk.is_embedded(schema) && !schema.keys().any(|keyword| is_compound(keyword))
    }

    fn expects(&mut self, schema: &JsonObject, kind: &str, is: &str) -> bool {
        let expected = is_expected(schema, kind);
        if !expected {
            let names = match schema.get("type") {
                Some(Value::Array(names)) => names.as_slice(),
                name => name.map(std::slice::from_ref).unwrap_or_default(),
            };
            let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            self.report(format!("{is}: expected {}", in_words(&names)));
        }
        expected
    }

    /// Reports members that the schema requires and the object lacks, and members that the schema
    /// does not declare. `names` contains the member names of the object.
    fn compare_names(&mut self, schema: &JsonObject, names: &[&str]) {
        // In drafts up to 7, other keywords next to a `$ref` are ignored.
        if schema.contains_key("$ref") {
            return;
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str).take(MAX_VIOLATIONS) {
            if !names.contains(&name) {
                self.report(required_by_schema(name));
            }
        }
        let Some(Value::Object(properties)) = schema.get("properties") else { return };
        if !self.is_plain(schema) || is_open(schema) {
            return;
        }
        for name in names.iter().filter(|name| !properties.contains_key(**name)) {
            let candidates: Vec<_> =
                properties.keys().map(String::as_str).take(MAX_CANDIDATES).collect();
            let message = not_in_schema(name);
            self.report(match suggest::nearest(name, &candidates) {
                Some(near) => format!("{message}: did you mean `{near}`?"),
                None => message,
            });
        }
    }

    /// Validates the parts of the arguments that are known before the run. Reports only errors in
    /// parts whose values are completely known.
    fn validate(&mut self, arguments: &PartialValue) {
        let Some(mut value) = outline(arguments, MAX_JSON_DEPTH) else { return };
        if self.known.is_empty() || is_deeper(&value, MAX_JSON_DEPTH) {
            return;
        }
        let mut left = super::MAX_VALIDATION_STEPS;
        coerce(self.walk.root(), &mut value, &mut left);
        let Ok(compiled) = compile(self.walk.root()) else { return };
        if is_deeper(&value, MAX_JSON_DEPTH)
            || compiled.steps.count(&value, MAX_FIT_STEPS).is_none()
        {
            return;
        }
        for error in compiled.validator.iter_errors(&value).take(MAX_INSPECTED_PARTS) {
            let place = error.instance_path().as_str();
            let above = place.match_indices('/').map(|(end, _)| &place[..end]);
            if above.chain([place]).any(|place| self.known.contains(place)) {
                self.path = segments(place, &value);
                self.report_error(&error, &value);
            }
        }
    }

    fn report_error(&mut self, error: &ValidationError<'_>, arguments: &Value) {
        use ValidationErrorKind as Kind;

        match error.kind() {
            Kind::Required { property } => {
                self.report(required_by_schema(property.as_str().unwrap_or_default()));
            }
            Kind::AdditionalProperties { unexpected }
            | Kind::UnevaluatedProperties { unexpected } => {
                for name in unexpected {
                    self.report(not_in_schema(name));
                }
            }
            Kind::Type { kind } => {
                let expected: Vec<_> = match kind {
                    TypeKind::Single(kind) => vec![kind.as_str()],
                    TypeKind::Multiple(kinds) => kinds.iter().map(|kind| kind.as_str()).collect(),
                };
                let is = in_words(&[JsonType::from(error.instance().as_ref()).as_str()]);
                self.report(format!("is {is}: expected {}", in_words(&expected)));
            }
            _ => {
                for Violation { path, message } in violations_of(error, arguments) {
                    self.path = segments(&path, arguments);
                    self.report(message);
                }
            }
        }
    }

    /// Reports a mistake at the current path. Ignores it if a mistake at this path has a message
    /// that starts with `message`. The reason is that the validator reports some errors twice, the
    /// second time with a shorter message.
    fn report(&mut self, message: String) {
        let is_reported = |reported: &Misfit| {
            reported.path == self.path && reported.message.starts_with(&message)
        };
        if self.reported.len() < MAX_VIOLATIONS && !self.reported.iter().any(is_reported) {
            self.reported.push(Misfit { path: self.path.clone(), message });
        }
    }
}

/// Returns `true` for keywords, such as `anyOf`, with which the validity of one part of a value can
/// depend on other parts.
fn is_compound(keyword: &str) -> bool {
    let lists = [keywords::REFERENCES, COMPOUND];
    keywords::is_in_place(keyword) || lists.iter().any(|list| list.contains(&keyword))
}

/// Returns `true` if the schema has a subschema for members that its `properties` do not list. The
/// keywords are `patternProperties` and `additionalProperties`.
fn is_open(schema: &JsonObject) -> bool {
    schema.contains_key("patternProperties")
        || schema.get("additionalProperties").is_some_and(|others| *others != Value::Bool(false))
}

/// Returns `true` if the keyword `type` of the schema allows values of the type `kind`, such as
/// `object`. Also returns `true` if the schema has no `type`, or if it contains a `$ref`.
fn is_expected(schema: &JsonObject, kind: &str) -> bool {
    match schema.get("type") {
        // In drafts up to 7, other keywords next to a `$ref` are ignored.
        _ if schema.contains_key("$ref") => true,
        Some(Value::String(name)) => name == kind,
        Some(Value::Array(names)) => names.iter().any(|name| name == kind),
        _ => true,
    }
}

fn required_by_schema(name: &str) -> String {
    format!("`{name}` is required by the tool's schema")
}

fn not_in_schema(name: &str) -> String {
    format!("the tool's schema has no `{name}`")
}

/// Joins the names of JSON types to a phrase for an error message, such as `an integer or null`.
fn in_words(kinds: &[&str]) -> String {
    let mut words: Vec<_> = kinds
        .iter()
        .map(|kind| match *kind {
            "null" => "null".to_owned(),
            kind if kind.starts_with(['a', 'i', 'o']) => format!("an {kind}"),
            kind => format!("a {kind}"),
        })
        .collect();
    words.sort_by_key(|word| word == "null");
    words.join(" or ")
}

/// Returns the arguments without values that are unknown before the run, and without values nested
/// more than `levels` deep. Such an object member is omitted, and such an array element becomes
/// `null`. Returns `None` if the whole value is unknown.
fn outline(arguments: &PartialValue, levels: usize) -> Option<Value> {
    let levels = levels.checked_sub(1)?;
    match arguments {
        PartialValue::Known(value) => Some(value.clone()),
        PartialValue::Unknown { .. } => None,
        PartialValue::Array(elements) => Some(
            elements.iter().map(|element| outline(element, levels).unwrap_or_default()).collect(),
        ),
        PartialValue::Object(members) => {
            let members = members
                .iter()
                .filter_map(|(name, member)| Some((name.clone(), outline(member, levels)?)));
            Some(Value::Object(members.collect()))
        }
    }
}

fn pointer(path: &[PathSegment]) -> String {
    path.iter().fold(String::new(), |pointer, segment| match segment {
        PathSegment::Key(key) => member(&pointer, key),
        PathSegment::Index(index) => format!("{pointer}/{index}"),
    })
}

/// Converts the JSON Pointer of a part of `value` to a path.
fn segments(pointer: &str, mut value: &Value) -> Vec<PathSegment> {
    let mut segments = Vec::new();
    for part in pointer.split('/').skip(1) {
        let part = json_pointer::unescape(part);
        match (value, part.parse()) {
            (Value::Array(elements), Ok(index)) => {
                value = elements.get(index).unwrap_or(&Value::Null);
                segments.push(PathSegment::Index(index));
            }
            _ => {
                value = value.get(&*part).unwrap_or(&Value::Null);
                segments.push(PathSegment::Key(part.into_owned()));
            }
        }
    }
    segments
}

#[cfg(test)]
mod tests;
