//! Collects definition errors with their paths.

use serde_json::Value;

use crate::{
    composite::error::{DefinitionError, DefinitionErrorKind, Segment},
    expr::{Expression, ExpressionError, ExpressionErrors, ScopeNames},
};

/// A path in a composite definition, such as `steps[0].timeout`. Its methods add errors at this
/// path, or at a longer path that begins with it.
pub(super) struct DefinitionPath<'m> {
    /// The errors in all composite definitions that are passed to a layer.
    mistakes: &'m mut Vec<DefinitionError>,
    composite: String,
    path: Vec<Segment>,
}

// === impl DefinitionPath ===

impl<'m> DefinitionPath<'m> {
    /// Returns the path of the composite definition with this index and name. Its methods add
    /// errors to `mistakes`.
    pub(super) fn new(mistakes: &'m mut Vec<DefinitionError>, index: usize, name: &str) -> Self {
        Self { mistakes, composite: name.to_owned(), path: vec![index.into()] }
    }

    /// Returns a longer path: this path followed by the given keys and indexes.
    pub(super) fn within<P: Into<Segment>>(
        &mut self,
        path: impl IntoIterator<Item = P>,
    ) -> DefinitionPath<'_> {
        let path = self.path.iter().cloned().chain(path.into_iter().map(Into::into)).collect();
        DefinitionPath { mistakes: self.mistakes, composite: self.composite.clone(), path }
    }

    /// Adds an error. Its path is this path, followed by the given keys and indexes.
    pub(super) fn push<P: Into<Segment>>(
        &mut self,
        path: impl IntoIterator<Item = P>,
        kind: DefinitionErrorKind,
    ) {
        let DefinitionPath { composite, path, mistakes } = self.within(path);
        mistakes.push(DefinitionError::new(composite, path, kind));
    }

    /// Adds the errors of an expression that is the value of `key`. Each error has its own path
    /// within the expression.
    pub(super) fn push_all(&mut self, key: &str, errors: &ExpressionErrors) {
        for (path, error) in errors.iter() {
            let path = [&[key.into()], path].concat();
            self.push(path, error.clone().into());
        }
    }

    /// Parses the value of `key` as an expression. If the value contains errors, adds all of them,
    /// and returns a placeholder that must not be used.
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

    /// Returns the parsed value of the setting `key`. If the setting could not be parsed, adds the
    /// error and returns `None`.
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

    /// Adds an error if the optional text of `key` is set and blank. `None` means that the text is
    /// not set.
    pub(super) fn not_blank_if_set(&mut self, key: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.not_blank(key, text);
        }
    }

    /// Adds an error for the setting `key` if `is_zero` is `true`.
    pub(super) fn not_zero(&mut self, key: &'static str, is_zero: bool) {
        if is_zero {
            self.push([key], DefinitionErrorKind::Zero { key });
        }
    }

    /// Adds an error if `given` is `true`, because the setting `key` has no effect in combination
    /// with the setting `with`, such as `type = "stop"`.
    pub(super) fn meaningless(&mut self, key: &'static str, given: bool, with: &str) {
        if given {
            self.push([key], DefinitionErrorKind::Meaningless { key, with: with.to_owned() });
        }
    }

    /// Adds an error if `value`, the value of the setting `key`, is not between 1 and `max`.
    pub(super) fn within_bounds(&mut self, key: &'static str, value: usize, max: usize) {
        if !(1..=max).contains(&value) {
            self.push([key], DefinitionErrorKind::OutOfBounds { key, value, max });
        }
    }
}

/// Returns the path of the step with this index in a composite definition, for example `steps[2]`.
pub(super) fn in_steps(index: usize) -> [Segment; 2] {
    ["steps".into(), index.into()]
}
