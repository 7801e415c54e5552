//! Coerces tool arguments to the types in the input schema of the tool, where the conversion is
//! unambiguous.
//!
//! For example, a template may produce the string `"5"` where the schema requires a number, and a
//! model may write the number `5` where the schema requires a string. Valid values are never
//! changed. An invalid value is converted only if the result is valid. The parts of arrays and
//! objects are converted independently of each other. Coercion never fails: values that cannot be
//! converted stay unchanged, and the validation that follows rejects them.

mod shape;

use rmcp::model::JsonObject;
use serde_json::Value;

use self::shape::Wish;
use super::{json_type::JsonType, walk::Walk};
use crate::expr::PathSegment;

/// Maximum number of visits to subschemas during the coercion of the arguments of one call. Without
/// the limit, a schema that refers to itself could require an exponential number of visits.
const MAX_VISITS: usize = 200_000;
/// One visit to a subschema during coercion takes as long as this many validation steps.
const STEPS_PER_VISIT: usize = 5;

/// Converts invalid strings to the types that the schema declares, and invalid numbers and Booleans
/// to strings if the schema declares strings. Returns `true` if any value was changed.
///
/// Subtracts the number of steps of the coercion from `left`. If too few steps are left, some
/// values are not converted.
pub(crate) fn coerce(schema: &JsonObject, arguments: &mut Value, left: &mut usize) -> bool {
    let visits = MAX_VISITS.min(*left / STEPS_PER_VISIT);
    let walk = Walk::new(schema, visits);
    let mut coercion = Coercion { walk, path: Vec::new(), edits: Vec::new() };
    if !coercion.walk.fits_rule(schema, arguments, 0) {
        let mut rules = Vec::new();
        coercion.walk.collect(schema, &mut rules);
        coercion.visit(rules, arguments, 0);
    }
    *left -= (visits - coercion.walk.left()) * STEPS_PER_VISIT;
    let is_changed = !coercion.edits.is_empty();
    apply(coercion.edits, arguments);
    is_changed
}

/// How well a value matches a schema. The variants are in order from the worst to the best match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// The value does not match the schema, and no conversion would make it match.
    Never,
    /// The value matches the schema only after the collected edits are applied.
    Edited,
    Already,
}

/// The state of coercing one value. The edits are collected first and applied at the end, because
/// several branches of a schema may have to be tried for the same value.
struct Coercion<'s> {
    walk: Walk<'s>,
    /// The path of the part that is currently coerced. Empty for the whole value.
    path: Vec<PathSegment>,
    edits: Vec<Edit>,
}

/// A replacement of a part of the coerced value: the path of the part, and its new value.
type Edit = (Vec<PathSegment>, Value);

fn apply(edits: Vec<Edit>, value: &mut Value) {
    for (path, new) in edits {
        let place = path.iter().try_fold(&mut *value, |value, segment| match segment {
            PathSegment::Key(key) => value.get_mut(key),
            PathSegment::Index(index) => value.get_mut(index),
        });
        if let Some(place) = place {
            *place = new;
        }
    }
}

// === impl Coercion ===

impl<'s> Coercion<'s> {
    /// Tries to make a value match all schemas in `rules`, and collects the necessary edits.
    /// Returns how well the value matches.
    fn visit(&mut self, mut rules: Vec<&'s JsonObject>, value: &Value, depth: usize) -> Fit {
        if !self.walk.enter(depth) || self.fits_all(&rules, value, depth) {
            return Fit::Already;
        }
        match value {
            Value::Array(_) | Value::Object(_) => {
                let fit = self.choose(&mut rules, value, depth);
                let itself = rules.iter().all(|rule| self.walk.is_shape(rule, value));
                let fit = if itself { fit } else { Fit::Never };
                fit.min(self.look_inside(&rules, value, depth))
            }
            value => self.fit_scalar(&rules, value, depth),
        }
    }

    fn fits_all(&mut self, rules: &[&'s JsonObject], value: &Value, depth: usize) -> bool {
        rules.iter().all(|rule| self.walk.fits_rule(rule, value, depth))
    }

    /// Selects a branch for each `anyOf` and `oneOf` keyword that the value does not match: the
    /// first branch that the value would match after edits. Adds these branches to `rules`. Returns
    /// [`Fit::Never`] if a keyword has no such branch, and [`Fit::Edited`] otherwise.
    fn choose(&mut self, rules: &mut Vec<&'s JsonObject>, value: &Value, depth: usize) -> Fit {
        let mut fit = Fit::Edited;
        let mut next = 0;
        // The loop includes added branches, which may contain branches themselves.
        while let Some(&rule) = rules.get(next) {
            next += 1;
            for branches in shape::branches(rule) {
                if branches.iter().any(|branch| self.walk.fits(branch, value, depth + 1)) {
                    continue;
                }
                let objects = branches.iter().filter_map(Value::as_object);
                match objects.into_iter().find(|branch| self.would_fit(branch, value, depth)) {
                    Some(branch) => self.walk.collect(branch, rules),
                    None => fit = Fit::Never,
                }
            }
        }
        fit
    }

    /// Returns `true` if edits could make the value match the subschema `branch` of an `anyOf` or
    /// `oneOf`. Leaves the collected edits unchanged.
    fn would_fit(&mut self, branch: &'s JsonObject, value: &Value, depth: usize) -> bool {
        let before = self.edits.len();
        let mut rules = Vec::new();
        self.walk.collect(branch, &mut rules);
        let fit = self.visit(rules, value, depth + 1);
        self.edits.truncate(before);
        fit > Fit::Never
    }

    fn look_inside(&mut self, rules: &[&'s JsonObject], value: &Value, depth: usize) -> Fit {
        if !self.walk.may_look_inside(rules.len(), value) {
            return Fit::Already;
        }
        let mut fit = Fit::Already;
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let segment = || PathSegment::Key(key.clone());
                    let schemas = |walk: &Walk<'s>, rule| walk.member(rule, key);
                    fit = fit.min(self.fit_part(rules, schemas, segment, member, depth));
                }
            }
            Value::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    let segment = || PathSegment::Index(index);
                    let schemas = |walk: &Walk<'s>, rule| walk.element(rule, index);
                    fit = fit.min(self.fit_part(rules, schemas, segment, element, depth));
                }
            }
            _ => (),
        }
        fit
    }

    fn fit_part(
        &mut self,
        rules: &[&'s JsonObject],
        schema: impl Fn(&Walk<'s>, &'s JsonObject) -> Option<&'s Value>,
        segment: impl Fn() -> PathSegment,
        part: &Value,
        depth: usize,
    ) -> Fit {
        let schemas = || rules.iter().copied();
        let all_fit = schemas().all(|rule| {
            let schema = schema(&self.walk, rule);
            schema.is_none_or(|schema| self.walk.fits(schema, part, depth + 1))
        });
        if all_fit {
            return Fit::Already;
        }
        let mut inner = Vec::new();
        for rule in schemas() {
            match schema(&self.walk, rule) {
                Some(Value::Object(schema)) => self.walk.collect(schema, &mut inner),
                Some(Value::Bool(false)) => return Fit::Never,
                _ => (),
            }
        }
        self.path.push(segment());
        let fit = self.visit(inner, part, depth + 1);
        self.path.pop();
        fit
    }

    fn fit_scalar(&mut self, rules: &[&'s JsonObject], value: &Value, depth: usize) -> Fit {
        let mut declared = Vec::new();
        for rule in rules {
            self.walk.wishes(rule, &mut declared, depth);
        }
        if value.is_number() {
            // Prefers the conversion of a number to an integer over its conversion to a string.
            declared.sort_by_key(|wish| *wish != Wish::Type(JsonType::Integer));
        }
        let mut tried = None;
        for wish in declared {
            // Skips a type that was just tried, to avoid parsing the same string twice.
            if tried == Some(wish) || !self.walk.may_read(value, wish) {
                continue;
            }
            tried = Some(wish);
            let Some(mut new) = wish.convert(value) else { continue };
            let fit = self.coerced(rules, &mut new, depth);
            // If no visits are left, it is unknown whether the new value matches.
            if self.walk.is_exhausted() {
                return Fit::Already;
            }
            match fit {
                // The schema allows only this type, so the conversion is unambiguous, even if a
                // part of the new value does not match.
                Fit::Never if is_declared(rules, &new) => {
                    self.edit(new);
                    return Fit::Never;
                }
                Fit::Never => (),
                _ => {
                    self.edit(new);
                    return Fit::Edited;
                }
            }
        }
        Fit::Never
    }

    /// Adds an edit that replaces the value at the current path with `new`. Does nothing if too few
    /// visits are left for copying the path.
    fn edit(&mut self, new: Value) {
        if self.walk.may_copy(&self.path) {
            self.edits.push((self.path.clone(), new));
        }
    }

    /// If a converted value is an array or object, coerces its parts. Returns how well the value
    /// then matches the schemas in `rules`.
    fn coerced(&mut self, rules: &[&'s JsonObject], value: &mut Value, depth: usize) -> Fit {
        if self.fits_all(rules, value, depth) {
            return Fit::Already;
        }
        if !matches!(value, Value::Array(_) | Value::Object(_)) {
            return Fit::Never;
        }
        let path = std::mem::take(&mut self.path);
        let edits = std::mem::take(&mut self.edits);
        let fit = self.visit(rules.to_vec(), value, depth);
        apply(std::mem::replace(&mut self.edits, edits), value);
        self.path = path;
        fit
    }
}

/// Returns `true` if the value is an array or object, and the schemas in `rules` require exactly
/// this type.
fn is_declared(rules: &[&JsonObject], value: &Value) -> bool {
    let kind = match value {
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        _ => return false,
    };
    let mut names = rules.iter().filter_map(|rule| rule.get("type")).peekable();
    names.peek().is_some() && names.all(|name| name == kind)
}

#[cfg(test)]
mod tests;
