//! Collects definition errors with their paths.

use serde_json::Value;

use crate::{
    composite::error::{DefinitionError, DefinitionErrorKind, Segment},
    expr::{Expression, ExpressionError, ExpressionErrors, ScopeNames},
};

/// Collects the errors of all definitions of a layer, each with its path.
#[derive(Default)]
pub(super) struct Mistakes {
    pub(super) errors: Vec<DefinitionError>,
}

/// A path in a definition, such as `steps[0].timeout`, together with the collection of errors.
/// Errors are added at this path or at paths below it.
pub(super) struct DefinitionPath<'m> {
    mistakes: &'m mut Mistakes,
    composite: String,
    path: Vec<Segment>,
}

// === impl Mistakes ===

impl Mistakes {
    /// Returns the path of the composite with this name and index in the definitions.
    pub(super) fn at(&mut self, index: usize, name: &str) -> DefinitionPath<'_> {
        DefinitionPath { mistakes: self, composite: name.to_owned(), path: vec![index.into()] }
    }
}

// === impl DefinitionPath ===

impl DefinitionPath<'_> {
    /// Returns a path that extends this one by the given keys or indexes.
    pub(super) fn within<P: Into<Segment>>(
        &mut self,
        path: impl IntoIterator<Item = P>,
    ) -> DefinitionPath<'_> {
        let path = self.path.iter().cloned().chain(path.into_iter().map(Into::into)).collect();
        DefinitionPath { mistakes: self.mistakes, composite: self.composite.clone(), path }
    }

    /// Adds an error at a path that extends this one by the given keys or indexes.
    pub(super) fn push<P: Into<Segment>>(
        &mut self,
        path: impl IntoIterator<Item = P>,
        kind: DefinitionErrorKind,
    ) {
        let DefinitionPath { composite, path, mistakes } = self.within(path);
        mistakes.errors.push(DefinitionError::new(composite, path, kind));
    }

    /// Adds the errors of the expression at `key`.
    pub(super) fn push_all(&mut self, key: &str, errors: &ExpressionErrors) {
        for (path, error) in errors.iter() {
            let path = [&[key.into()], path].concat();
            self.push(path, error.clone().into());
        }
    }

    /// Parses the expression at `key`, and adds its errors to the collection. If there are errors,
    /// the result must not be used.
    pub(super) fn expression(
        &mut self,
        key: &'static str,
        value: &Value,
        names: &ScopeNames<'_>,
    ) -> Expression {
        let parsed = Expression::parse_in(value, names);
        let parsed = parsed.map_err(|errors| self.push_all(key, &errors));
        parsed.unwrap_or_else(|()| Expression::literal(Value::Null))
    }

    /// Returns the parsed value of `key`. If parsing failed, adds the error to the collection and
    /// returns `None`.
    pub(super) fn parsed<T>(
        &mut self,
        key: &'static str,
        parsed: Result<T, ExpressionError>,
    ) -> Option<T> {
        parsed.map_err(|error| self.push([key], error.into())).ok()
    }

    /// Adds an error if the text of `key` is blank.
    pub(super) fn not_blank(&mut self, key: &'static str, text: &str) {
        if text.trim().is_empty() {
            self.push([key], DefinitionErrorKind::Blank { key });
        }
    }

    /// Adds an error if the value of `key` is zero.
    pub(super) fn not_zero(&mut self, key: &'static str, is_zero: bool) {
        if is_zero {
            self.push([key], DefinitionErrorKind::Zero { key });
        }
    }

    /// If `key` is set, adds an error that says that `key` has no effect in combination with the
    /// setting `with`.
    pub(super) fn meaningless(&mut self, key: &'static str, given: bool, with: &str) {
        if given {
            self.push([key], DefinitionErrorKind::Meaningless { key, with: with.to_owned() });
        }
    }

    /// Adds an error if the number is not between 1 and `max`.
    pub(super) fn within_bounds(&mut self, key: &'static str, value: usize, max: usize) {
        if !(1..=max).contains(&value) {
            self.push([key], DefinitionErrorKind::OutOfBounds { key, value, max });
        }
    }
}

/// Returns the path of a step in a definition.
pub(super) fn in_steps(index: usize) -> [Segment; 2] {
    ["steps".into(), index.into()]
}
