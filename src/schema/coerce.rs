//! Arguments become what the schema of a tool declares, where it is plain what is
//! meant.
//!
//! Text that a template has rendered is text, whatever it stands for, and the model
//! that wrote a number may have meant its digits. A value that fits is never
//! touched; one that does not becomes another only if that fits; in an array or
//! object, each part on its own. Nothing here fails: what is left as it was is for
//! the check that follows.

mod convert;
mod shape;

use rmcp::model::JsonObject;
use serde_json::Value;

pub(crate) use self::convert::Kind;
use self::{convert::Wish, shape::Shapes};
use crate::expr::PathSegment;

/// How many parts of schemas are looked at for one value: a schema that refers to
/// itself has more than there are atoms.
const MAX_VISITS: usize = 200_000;
/// Steps of a check in the time of which one part is looked at.
const STEPS_PER_VISIT: usize = 5;

/// Turns text into what the schema declares, and numbers and booleans into text where text
/// is declared. Returns `true` if anything has changed.
///
/// Takes the steps of that. If there are too few, parts of the arguments stay as they are.
pub(crate) fn coerce(schema: &JsonObject, arguments: &mut Value, left: &mut usize) -> bool {
    let visits = MAX_VISITS.min(*left / STEPS_PER_VISIT);
    let mut coercion =
        Coercion { shapes: Shapes::new(schema, visits), path: Vec::new(), edits: Vec::new() };
    if !coercion.shapes.fits_rule(schema, arguments, 0) {
        let mut rules = Vec::new();
        coercion.shapes.collect(schema, &mut rules);
        coercion.visit(rules, arguments, 0);
    }
    *left -= (visits - coercion.shapes.left()) * STEPS_PER_VISIT;
    let is_changed = !coercion.edits.is_empty();
    apply(coercion.edits, arguments);
    is_changed
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// It does not fit, whatever becomes of it.
    Never,
    /// It fits once it has been edited.
    Edited,
    Already,
}

/// Looks what has to change in a value, before anything does: one branch after the
/// other is tried on it.
struct Coercion<'s> {
    shapes: Shapes<'s>,
    /// Where in the value it looks.
    path: Vec<PathSegment>,
    edits: Vec<Edit>,
}

/// A place in a value, and what it becomes.
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
    /// Looks at a value to which all these rules apply.
    fn visit(&mut self, mut rules: Vec<&'s JsonObject>, value: &Value, depth: usize) -> Fit {
        if !self.shapes.may_go_on(depth) || self.fits_all(&rules, value, depth) {
            return Fit::Already;
        }
        match value {
            Value::Array(_) | Value::Object(_) => {
                let fit = self.choose(&mut rules, value, depth);
                let itself = rules.iter().all(|rule| self.shapes.is_shape(rule, value));
                let fit = if itself { fit } else { Fit::Never };
                fit.min(self.look_inside(&rules, value, depth))
            }
            value => self.look_at_scalar(&rules, value, depth),
        }
    }

    fn fits_all(&mut self, rules: &[&'s JsonObject], value: &Value, depth: usize) -> bool {
        rules.iter().all(|rule| self.shapes.fits_rule(rule, value, depth))
    }

    /// Adds to the rules the branches that the value is meant for.
    fn choose(&mut self, rules: &mut Vec<&'s JsonObject>, value: &Value, depth: usize) -> Fit {
        let mut fit = Fit::Edited;
        let mut next = 0;
        // A branch can have branches.
        while let Some(&rule) = rules.get(next) {
            next += 1;
            for branches in shape::branches(rule) {
                if branches.iter().any(|branch| self.shapes.fits(branch, value, depth + 1)) {
                    continue;
                }
                let objects = branches.iter().filter_map(Value::as_object);
                match objects.into_iter().find(|branch| self.would_fit(branch, value, depth)) {
                    Some(branch) => self.shapes.collect(branch, rules),
                    None => fit = Fit::Never,
                }
            }
        }
        fit
    }

    /// Whether a value fits a branch once it has been edited.
    fn would_fit(&mut self, branch: &'s JsonObject, value: &Value, depth: usize) -> bool {
        let before = self.edits.len();
        let mut rules = Vec::new();
        self.shapes.collect(branch, &mut rules);
        let fit = self.visit(rules, value, depth + 1);
        self.edits.truncate(before);
        fit > Fit::Never
    }

    fn look_inside(&mut self, rules: &[&'s JsonObject], value: &Value, depth: usize) -> Fit {
        if !self.shapes.may_look_inside(rules.len(), value) {
            return Fit::Already;
        }
        let mut fit = Fit::Already;
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let segment = || PathSegment::Key(key.clone());
                    let schemas = |shapes: &Shapes<'s>, rule| shapes.of_member(rule, key);
                    fit = fit.min(self.look_at_part(rules, schemas, segment, member, depth));
                }
            }
            Value::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    let segment = || PathSegment::Index(index);
                    let schemas = |shapes: &Shapes<'s>, rule| shapes.of_element(rule, index);
                    fit = fit.min(self.look_at_part(rules, schemas, segment, element, depth));
                }
            }
            _ => (),
        }
        fit
    }

    fn look_at_part(
        &mut self,
        rules: &[&'s JsonObject],
        schema: impl Fn(&Shapes<'s>, &'s JsonObject) -> Option<&'s Value>,
        segment: impl Fn() -> PathSegment,
        part: &Value,
        depth: usize,
    ) -> Fit {
        let schemas = || rules.iter().copied();
        let all_fit = schemas().all(|rule| {
            let schema = schema(&self.shapes, rule);
            schema.is_none_or(|schema| self.shapes.fits(schema, part, depth + 1))
        });
        if all_fit {
            return Fit::Already;
        }
        let mut inner = Vec::new();
        for rule in schemas() {
            match schema(&self.shapes, rule) {
                Some(Value::Object(schema)) => self.shapes.collect(schema, &mut inner),
                Some(Value::Bool(false)) => return Fit::Never,
                _ => (),
            }
        }
        self.path.push(segment());
        let fit = self.visit(inner, part, depth + 1);
        self.path.pop();
        fit
    }

    fn look_at_scalar(&mut self, rules: &[&'s JsonObject], value: &Value, depth: usize) -> Fit {
        let mut declared = Vec::new();
        for rule in rules {
            self.shapes.wishes(rule, &mut declared, depth);
        }
        if value.is_number() {
            // Rather a number than its digits.
            declared.sort_by_key(|wish| *wish != Wish::Kind(Kind::Integer));
        }
        let mut tried = None;
        for wish in declared {
            // The same text is read only once.
            if tried == Some(wish) || !self.shapes.may_read(value, wish) {
                continue;
            }
            tried = Some(wish);
            let Some(mut new) = wish.convert(value) else { continue };
            let fit = self.coerced(rules, &mut new, depth);
            // Nobody has seen whether it fits.
            if self.shapes.are_seen() {
                return Fit::Already;
            }
            match fit {
                // What was meant is plain, though a part of it does not fit.
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

    /// Records the new value, unless it takes too long to copy its path.
    fn edit(&mut self, new: Value) {
        if self.shapes.may_copy(&self.path) {
            self.edits.push((self.path.clone(), new));
        }
    }

    /// Coerces what a text was read into.
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

/// Whether an array or object is what the rules name, and nothing else.
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
