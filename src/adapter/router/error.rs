//! The mistakes in the settings of a router.

use std::fmt;

use crate::warnings::sanitize::Sanitized;

/// Every mistake in the settings of a router.
///
/// Displays one mistake per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterError(Vec<RouterMistake>);

/// One mistake in the settings of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterMistake {
    backend: Option<usize>,
    kind: RouterMistakeKind,
}

/// The kind of a mistake in the settings of a router.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouterMistakeKind {
    /// There are no backends.
    #[error("no backends: expected at least one")]
    NoBackends,
    /// The separator is empty, too long or has characters that names cannot have.
    #[error(
        "illegal separator `{}`: expected 1 to {max} visible ASCII characters",
        Sanitized(separator)
    )]
    IllegalSeparator {
        /// The separator.
        separator: String,
        /// The maximum length.
        max: usize,
    },
    /// The name of a backend is empty, too long or has characters that tool names cannot have.
    #[error(
        "illegal backend name `{}`: expected 1 to {max} of `A-Z`, `a-z`, `0-9`, `_`, `-`, `.` and \
         the separator",
        Sanitized(name)
    )]
    IllegalName {
        /// The name.
        name: String,
        /// The maximum length.
        max: usize,
    },
    /// Two backends have the same name.
    #[error("duplicate backend name `{}`", Sanitized(name))]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The prefix is too long or has characters that tool names cannot have.
    #[error(
        "illegal prefix `{}` of backend `{}`: expected at most {max} of `A-Z`, `a-z`, `0-9`, `_`, \
         `-`, `.` and the separator",
        Sanitized(prefix),
        Sanitized(backend)
    )]
    IllegalPrefix {
        /// The backend.
        backend: String,
        /// The prefix.
        prefix: String,
        /// The maximum length.
        max: usize,
    },
    /// Two backends have the same prefix.
    #[error(
        "backends `{}` and `{}` have the same prefix `{}`",
        Sanitized(&backends[0]),
        Sanitized(&backends[1]),
        Sanitized(prefix)
    )]
    DuplicatePrefix {
        /// The backends.
        backends: [String; 2],
        /// The prefix.
        prefix: String,
    },
    /// A backend has a prefix, but the conflict rule does not use prefixes.
    #[error(
        "the prefix of backend `{}` has no meaning with `conflicts = \"{conflicts}\"`",
        Sanitized(backend)
    )]
    MeaninglessPrefix {
        /// The backend.
        backend: String,
        /// The conflict rule.
        conflicts: &'static str,
    },
}

// === impl RouterError ===

impl RouterError {
    pub(super) const fn new(mistakes: Vec<RouterMistake>) -> Self {
        Self(mistakes)
    }

    /// Returns an iterator over the mistakes, in the order of the backends.
    pub fn iter(&self) -> std::slice::Iter<'_, RouterMistake> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a RouterError {
    type Item = &'a RouterMistake;
    type IntoIter = std::slice::Iter<'a, RouterMistake>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for RouterError {
    type Item = RouterMistake;
    type IntoIter = std::vec::IntoIter<RouterMistake>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for RouterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for RouterError {}

// === impl RouterMistake ===

impl RouterMistake {
    pub(super) const fn new(backend: Option<usize>, kind: RouterMistakeKind) -> Self {
        Self { backend, kind }
    }

    /// Returns the index of the backend, from zero, or `None` if the mistake concerns no single
    /// one.
    #[must_use]
    pub const fn backend(&self) -> Option<usize> {
        self.backend
    }

    /// Returns the kind of the mistake.
    #[must_use]
    pub const fn kind(&self) -> &RouterMistakeKind {
        &self.kind
    }
}

impl fmt::Display for RouterMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

// The kind is part of the message, so it is not returned as a source.
impl std::error::Error for RouterMistake {}
