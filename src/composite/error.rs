use std::fmt;

use crate::{expr::ReferenceError, names::is_plain};

/// Every mistake in a set of composite definitions.
///
/// Prints one mistake a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionErrors(Vec<DefinitionError>);

/// One mistake in a composite definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionError {
    composite: String,
    path: Vec<Segment>,
    kind: DefinitionErrorKind,
}

/// One step of the way to a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Segment {
    /// A key of a table.
    Key(String),
    /// A place in an array, from zero.
    Index(usize),
}

/// What is wrong in a composite definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionErrorKind {
    /// A text that must say something is blank.
    #[error("`{key}` is blank")]
    Blank {
        /// Which text.
        key: &'static str,
    },
    /// The name breaks the protocol's rule for tool names.
    #[error(
        "illegal tool name {name:?}: expected 1 to 128 of {}",
        Characters { separator }
    )]
    IllegalName {
        /// The name.
        name: String,
        /// What may stand in names besides what the protocol allows; or empty.
        separator: String,
    },
    /// The separator is empty, too long, or has characters that none may have.
    #[error(
        "illegal separator {separator:?}: expected 1 to {max} visible ASCII characters, such as `/`"
    )]
    IllegalSeparator {
        /// The separator.
        separator: String,
        /// How long it may be.
        max: usize,
    },
    /// Two composites have one name.
    #[error("duplicate composite name `{name}`")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A composite calls nothing.
    #[error("no targets: expected at least one tool to call")]
    NoTargets,
    /// A composite calls too much.
    #[error("{count} targets: expected at most {max}")]
    TooManyTargets {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// The id breaks the rule for ids.
    #[error("illegal id {id:?}: expected 1 to 64 letters, digits, `_` and `-`")]
    IllegalId {
        /// The id.
        id: String,
    },
    /// Two targets have one id.
    #[error("duplicate id `{id}`")]
    DuplicateId {
        /// The id.
        id: String,
    },
    /// A quorum that no run can meet, or that every run meets.
    #[error("a quorum of {quorum} of {targets} targets: expected 1 to {targets}")]
    Quorum {
        /// How many successes are asked for.
        quorum: usize,
        /// How many targets there are.
        targets: usize,
    },
    /// A key that would do nothing.
    #[error("`{key}` has no meaning with `{with}`")]
    Meaningless {
        /// The key.
        key: &'static str,
        /// What it does not go with.
        with: String,
    },
    /// A number or duration that must be more than zero.
    #[error("`{key}` is zero: expected more, or leave the key out")]
    Zero {
        /// The key.
        key: &'static str,
    },
    /// A schema that cannot describe a tool.
    #[error("`{key}` cannot be used: {reason}")]
    Schema {
        /// Which schema.
        key: &'static str,
        /// Why not.
        reason: String,
    },
    /// A reference that does not parse, or that refers to nothing.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// Composites that call each other in a circle.
    #[error("a cycle of composites: {}", Chain(composites))]
    Cycle {
        /// The composites, the first again at the end.
        composites: Vec<String>,
    },
    /// Composites within composites, too many.
    #[error("composites nested {depth} deep, expected at most {max}: {}", Chain(composites))]
    TooDeep {
        /// The composites, from the outermost.
        composites: Vec<String>,
        /// How deep they are nested.
        depth: usize,
        /// How deep they may be.
        max: usize,
    },
}

/// Prints names as a chain of calls.
struct Chain<'a>(&'a [String]);

/// Prints what tool names are made of.
struct Characters<'a> {
    separator: &'a str,
}

// === impl DefinitionErrors ===

impl DefinitionErrors {
    pub(crate) const fn new(errors: Vec<DefinitionError>) -> Self {
        Self(errors)
    }

    /// Iterates over the mistakes, in the order of the definitions.
    pub fn iter(&self) -> std::slice::Iter<'_, DefinitionError> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a DefinitionErrors {
    type Item = &'a DefinitionError;
    type IntoIter = std::slice::Iter<'a, DefinitionError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for DefinitionErrors {
    type Item = DefinitionError;
    type IntoIter = std::vec::IntoIter<DefinitionError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for DefinitionErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for DefinitionErrors {}

// === impl DefinitionError ===

impl DefinitionError {
    pub(crate) const fn new(
        composite: String,
        path: Vec<Segment>,
        kind: DefinitionErrorKind,
    ) -> Self {
        Self { composite, path, kind }
    }

    /// The name of the composite, as it was given; empty if what is wrong is in
    /// none of them.
    #[must_use]
    pub fn composite(&self) -> &str {
        &self.composite
    }

    /// Where the mistake is: the composite's place among the definitions, then
    /// the keys, as in the TOML form of the long `targets`. Empty if it is in
    /// none of them.
    #[must_use]
    pub fn path(&self) -> &[Segment] {
        &self.path
    }

    /// What is wrong.
    #[must_use]
    pub const fn kind(&self) -> &DefinitionErrorKind {
        &self.kind
    }
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return self.kind.fmt(f);
        }
        write!(f, "composite `{}`", self.composite)?;
        // The first segment is the place of the composite, which its name tells better.
        match self.path.get(1..).unwrap_or_default() {
            [] => (),
            path => write!(f, " at `{}`", DisplayPath(path))?,
        }
        write!(f, ": {}", self.kind)
    }
}

impl std::error::Error for DefinitionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.kind)
    }
}

// === impl Segment ===

impl From<&str> for Segment {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Segment {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Prints a path as TOML would write it: `targets[0].arguments."odd key"`.
pub(crate) struct DisplayPath<'a>(pub(crate) &'a [Segment]);

impl fmt::Display for DisplayPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
                    f.write_str(if place == 0 { "" } else { "." })?;
                    if is_bare(key) {
                        f.write_str(key)?;
                    } else {
                        write!(f, "{:?}", key.chars().take(MAX_KEY).collect::<String>())?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// How much of a key is printed.
const MAX_KEY: usize = 64;

/// Whether a key needs no quotes in TOML.
fn is_bare(key: &str) -> bool {
    (1..=MAX_KEY).contains(&key.len())
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, name) in self.0.iter().enumerate() {
            let arrow = if place == 0 { "" } else { " → " };
            write!(f, "{arrow}`{name}`")?;
        }
        Ok(())
    }
}

impl fmt::Display for Characters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`A-Z`, `a-z`, `0-9`, `_`, `-`")?;
        match self.separator {
            plain if plain.chars().all(is_plain) => f.write_str(" and `.`"),
            separator => write!(f, ", `.`, and `{separator}` between them"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_keys_are_quoted() {
        let path = ["a".into(), 1.into(), "b-c".into(), "d e".into(), "".into(), "\u{7}".into()];
        assert_eq!(DisplayPath(&path).to_string(), "a[1].b-c.\"d e\".\"\".\"\\u{7}\"");
    }
}
