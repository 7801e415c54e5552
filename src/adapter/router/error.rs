//! Errors for invalid router settings.

use std::fmt;

use crate::warnings::sanitize::Sanitized;

/// The error for invalid router settings. It contains every mistake in the settings.
///
/// The `Display` output of a `RouterError` lists all mistakes, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterError(pub(super) Vec<RouterMistake>);

/// A single mistake in the settings of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterMistake {
    pub(super) backend: Option<usize>,
    pub(super) kind: RouterMistakeKind,
}

/// The kind of a mistake in the settings of a router.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouterMistakeKind {
    /// The router has no backends.
    #[error("no backends: expected at least one")]
    NoBackends,
    /// The separator between backend and tool names is empty, too long, or contains characters
    /// other than visible ASCII characters.
    #[error(
        "illegal separator `{}`: expected 1 to {max} visible ASCII characters",
        Sanitized(separator)
    )]
    IllegalSeparator {
        /// The invalid separator.
        separator: String,
        /// The maximum length of a separator in bytes.
        max: usize,
    },
    /// The name of a backend is empty, too long, or contains characters that tool names cannot
    /// contain.
    #[error(
        "illegal backend name `{}`: expected 1 to {max} of `A-Z`, `a-z`, `0-9`, `_`, `-`, `.` and \
         the separator",
        Sanitized(name)
    )]
    IllegalName {
        /// The invalid name.
        name: String,
        /// The maximum length of a name in bytes.
        max: usize,
    },
    /// Two backends have the same name.
    #[error("duplicate backend name `{}`", Sanitized(name))]
    DuplicateName {
        /// The name that both backends have.
        name: String,
    },
    /// The prefix of a backend is too long, or contains characters that tool names cannot contain.
    #[error(
        "illegal prefix `{}` of backend `{}`: expected at most {max} of `A-Z`, `a-z`, `0-9`, `_`, \
         `-`, `.` and the separator",
        Sanitized(prefix),
        Sanitized(backend)
    )]
    IllegalPrefix {
        /// The name of the backend whose prefix is invalid.
        backend: String,
        /// The invalid prefix.
        prefix: String,
        /// The maximum length of a prefix in bytes.
        max: usize,
    },
    /// Two backends have the same prefix for the names of their tools and prompts.
    #[error(
        "backends `{}` and `{}` have the same prefix `{}`",
        Sanitized(&backends[0]),
        Sanitized(&backends[1]),
        Sanitized(prefix)
    )]
    DuplicatePrefix {
        /// The names of the two backends that have the same prefix.
        backends: [String; 2],
        /// The prefix that both backends have.
        prefix: String,
    },
    /// A backend has a prefix, although the router does not use prefixes to resolve name conflicts.
    #[error(
        "the prefix of backend `{}` cannot be used with `conflicts = \"{conflicts}\"`",
        Sanitized(backend)
    )]
    MeaninglessPrefix {
        /// The name of the backend that has a prefix.
        backend: String,
        /// The conflict rule of the router as it is written in a configuration file, for example
        /// `priority`.
        conflicts: &'static str,
    },
}

// === impl RouterError ===

impl RouterError {
    /// Returns an iterator over all mistakes in the settings of the router. Mistakes that concern
    /// the whole router come first. Mistakes in the settings of a backend follow, in the order of
    /// the backends.
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
    /// Returns the index of the backend whose settings contain the mistake, in the order in which
    /// the backends were added to the builder. Returns `None` if the mistake concerns the whole
    /// router.
    #[must_use]
    pub const fn backend(&self) -> Option<usize> {
        self.backend
    }

    /// Returns the kind of the mistake, with its details.
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

// The kind is already part of the message, so `source` does not return it.
impl std::error::Error for RouterMistake {}
