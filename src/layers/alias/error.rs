//! The mistakes in a list of aliases.

use std::fmt;

use crate::{message::ItemKind, names::is_plain};

/// Every mistake in a list of aliases.
///
/// Prints one mistake a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasErrors(Vec<AliasError>);

/// One mistake in a list of aliases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasError {
    list: ItemKind,
    index: usize,
    keys: Vec<String>,
    kind: AliasErrorKind,
}

/// The kind of a mistake in an alias.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AliasErrorKind {
    /// A blank name.
    #[error("a blank name")]
    Blank,
    /// The name violates the rules for tool names.
    #[error(
        "illegal tool name {name:?}: expected 1 to 128 of `A-Z`, `a-z`, `0-9`, `_`, `-`, `.`{}",
        Between(separator)
    )]
    IllegalName {
        /// The name.
        name: String,
        /// The separator that names may contain, or empty.
        separator: String,
    },
    /// Two aliases of one item.
    #[error("`{original}` has an alias already")]
    DuplicateOriginal {
        /// The server's name of the item.
        original: String,
    },
    /// Two aliases with one name.
    #[error("another alias gives the name `{name}`")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A key that has no effect.
    #[error("`{key}` has no meaning with `hide`: clients see nothing of the argument")]
    Meaningless {
        /// The key.
        key: &'static str,
    },
    /// A template that cannot be translated to the server's.
    #[error(
        "`{uri}` is not a valid alias of `{original}`: expected the same from its first `{{` on"
    )]
    OtherTemplate {
        /// The server's template or URI.
        original: String,
        /// The template or URI for clients.
        uri: String,
    },
}

/// Prints the separator that names may contain.
struct Between<'a>(&'a str);

// === impl AliasErrors ===

impl AliasErrors {
    pub(super) fn check(errors: Vec<AliasError>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self(errors)) }
    }

    /// Iterates over the mistakes, in the order of the aliases.
    pub fn iter(&self) -> std::slice::Iter<'_, AliasError> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a AliasErrors {
    type Item = &'a AliasError;
    type IntoIter = std::slice::Iter<'a, AliasError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for AliasErrors {
    type Item = AliasError;
    type IntoIter = std::vec::IntoIter<AliasError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for AliasErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { "\n" } else { "" })?;
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for AliasErrors {}

// === impl AliasError ===

impl AliasError {
    pub(super) fn new(list: ItemKind, index: usize, keys: &[&str], kind: AliasErrorKind) -> Self {
        Self { list, index, keys: keys.iter().map(|&key| key.to_owned()).collect(), kind }
    }

    /// Returns the kind of the list: tools, prompts or resources.
    #[must_use]
    pub const fn list(&self) -> ItemKind {
        self.list
    }

    /// Returns the index of the alias in its list, from zero.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Returns the path of the mistake in the alias: `original`, or the builder methods that lead
    /// to it, such as `name` or `arguments`, `q`, `rename`.
    #[must_use]
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns the kind of the mistake.
    #[must_use]
    pub const fn kind(&self) -> &AliasErrorKind {
        &self.kind
    }
}

impl fmt::Display for AliasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "alias {} of {}s", self.index, self.list)?;
        if !self.keys.is_empty() {
            write!(f, " at `{}`", self.keys.join("."))?;
        }
        write!(f, ": {}", self.kind)
    }
}

// The kind is part of the `Display` output, and therefore not a source.
impl std::error::Error for AliasError {}

// === impl Between ===

impl fmt::Display for Between<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // The message lists these characters already.
            plain if plain.chars().all(is_plain) => Ok(()),
            separator => write!(f, ", and `{separator}` between them"),
        }
    }
}
