use crate::{
    composite::error::{DefinitionError, DefinitionErrorKind, Segment},
    expr::{ExpressionError, ExpressionErrors},
};

/// Collects mistakes and where they are.
#[derive(Default)]
pub(super) struct Mistakes {
    pub(super) errors: Vec<DefinitionError>,
}

/// The place of something in a definition, for its mistakes.
pub(super) struct DefinitionPath<'m> {
    mistakes: &'m mut Mistakes,
    composite: String,
    path: Vec<Segment>,
}

// === impl Mistakes ===

impl Mistakes {
    /// The place of the composite with this name among the definitions.
    pub(super) fn at(&mut self, index: usize, name: &str) -> DefinitionPath<'_> {
        DefinitionPath { mistakes: self, composite: name.to_owned(), path: vec![index.into()] }
    }
}

// === impl DefinitionPath ===

impl DefinitionPath<'_> {
    /// A place within this one.
    pub(super) fn within<P: Into<Segment>>(
        &mut self,
        path: impl IntoIterator<Item = P>,
    ) -> DefinitionPath<'_> {
        let path = self.path.iter().cloned().chain(path.into_iter().map(Into::into)).collect();
        DefinitionPath { mistakes: self.mistakes, composite: self.composite.clone(), path }
    }

    /// Adds a mistake.
    pub(super) fn push<P: Into<Segment>>(
        &mut self,
        path: impl IntoIterator<Item = P>,
        kind: DefinitionErrorKind,
    ) {
        let DefinitionPath { composite, path, mistakes } = self.within(path);
        mistakes.errors.push(DefinitionError::new(composite, path, kind));
    }

    /// Adds the mistakes in an expression that stands at `key`.
    pub(super) fn push_all(&mut self, key: &str, errors: &ExpressionErrors) {
        for (path, error) in errors.iter() {
            let path = [&[key.into()], path].concat();
            self.push(path, error.clone().into());
        }
    }

    /// The value of what stands at `key`, or nothing and the mistake in it.
    pub(super) fn parsed<T>(
        &mut self,
        key: &'static str,
        parsed: Result<T, ExpressionError>,
    ) -> Option<T> {
        parsed.map_err(|error| self.push([key], error.into())).ok()
    }

    /// A key that must not be blank.
    pub(super) fn not_blank(&mut self, key: &'static str, text: &str) {
        if text.trim().is_empty() {
            self.push([key], DefinitionErrorKind::Blank { key });
        }
    }

    /// A key that must be more than zero.
    pub(super) fn not_zero(&mut self, key: &'static str, is_zero: bool) {
        if is_zero {
            self.push([key], DefinitionErrorKind::Zero { key });
        }
    }

    /// A key that does nothing if it is given here.
    pub(super) fn meaningless(&mut self, key: &'static str, given: bool, with: &str) {
        if given {
            self.push([key], DefinitionErrorKind::Meaningless { key, with: with.to_owned() });
        }
    }

    /// A number that has bounds.
    pub(super) fn within_bounds(&mut self, key: &'static str, value: Option<usize>, max: usize) {
        if let Some(value) = value
            && !(1..=max).contains(&value)
        {
            self.push([key], DefinitionErrorKind::OutOfBounds { key, value, max });
        }
    }
}
