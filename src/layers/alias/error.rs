//! The errors in a list of aliases.

use std::fmt;

use crate::{message::ItemKind, names::is_plain};

/// All errors found in a list of aliases.
///
/// The `Display` output has one line per [`AliasError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasErrors(Vec<AliasError>);

/// One error in a list of aliases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasError {
    list: ItemKind,
    index: usize,
    keys: Vec<String>,
    kind: AliasErrorKind,
}

/// The kind of an error in an alias.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AliasErrorKind {
    /// A name or URI in an alias is blank.
    #[error("a blank name")]
    Blank,
    /// MCP does not allow this name for tools.
    #[error(
        "illegal tool name {name:?}: expected 1 to 128 of `A-Z`, `a-z`, `0-9`, `_`, `-`, `.`{}",
        Between(separator)
    )]
    IllegalName {
        /// The illegal name.
        name: String,
        /// The separator that the [`AliasLayer`](super::AliasLayer) allows in tool names, such as
        /// `/`, or an empty string if none is set.
        separator: String,
    },
    /// Two aliases in the list are for the same tool, prompt, resource or argument.
    #[error("`{original}` has an alias already")]
    DuplicateOriginal {
        /// The name or URI that the server uses for the item.
        original: String,
    },
    /// Two aliases in the list set the same name for clients.
    #[error("another alias gives the name `{name}`")]
    DuplicateName {
        /// The name or URI that both aliases set.
        name: String,
    },
    /// The alias hides an argument, and also sets a property that has no effect on a hidden
    /// argument, such as a new name.
    #[error("`{key}` cannot be used with `hide`: clients see nothing of the argument")]
    Meaningless {
        /// The name of the property that has no effect.
        key: &'static str,
    },
    /// The alias of a URI template, such as `db://{table}`, changes more than the prefix before the
    /// first `{`.
    #[error(
        "`{uri}` is not a valid alias of `{original}`: expected the same from its first `{{` on"
    )]
    OtherTemplate {
        /// The URI or template that the server uses.
        original: String,
        /// The URI or template that the alias sets.
        uri: String,
    },
}

/// Formats the separator that tool names may contain, as the last part of an error message. Formats
/// nothing if the separator consists of characters that are always allowed.
struct Between<'a>(&'a str);

// === impl AliasErrors ===

impl AliasErrors {
    pub(super) fn check(errors: Vec<AliasError>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self(errors)) }
    }

    /// Iterates over the errors, in the order of the aliases.
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

    /// Returns the kind of item that the invalid alias is for: a tool, a prompt or a resource.
    #[must_use]
    pub const fn list(&self) -> ItemKind {
        self.list
    }

    /// Returns the zero-based index of the invalid alias in its list.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Returns the path of the invalid property in the alias, for example `["name"]`, or
    /// `["arguments", "q", "rename"]` for the new name of the argument `q`. Returns `["original"]`
    /// if the name of the item on the server is invalid.
    #[must_use]
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns the kind of the error.
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

// The kind is part of the `Display` output, and therefore not returned as the error's source.
impl std::error::Error for AliasError {}

// === impl Between ===

impl fmt::Display for Between<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // The characters are part of the list in the message.
            plain if plain.chars().all(is_plain) => Ok(()),
            separator => write!(f, ", and `{separator}` between them"),
        }
    }
}
