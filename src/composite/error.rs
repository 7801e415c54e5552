use std::{fmt, time::Duration};

use super::form::FormError;
pub use crate::expr::PathSegment as Segment;
use crate::{expr::ExpressionError, names::is_plain};

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
    /// A pipeline or workflow does nothing.
    #[error("no steps: expected at least one")]
    NoSteps,
    /// A pipeline or workflow does too much.
    #[error("{count} steps: expected at most {max}")]
    TooManySteps {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// Steps of which nothing says how they are run.
    #[error("`steps` need `strategy = \"pipeline\"` or `strategy = \"workflow\"`")]
    NoStrategy,
    /// A key that must be there.
    #[error("missing key `{key}`: {in_} needs it")]
    Missing {
        /// The key.
        key: &'static str,
        /// What needs it.
        in_: &'static str,
    },
    /// A switch without a tool to choose.
    #[error("no cases: expected at least one")]
    NoCases,
    /// A number that is too small or too large.
    #[error("`{key}` is {value}: expected 1 to {max}")]
    OutOfBounds {
        /// The key.
        key: &'static str,
        /// The number.
        value: usize,
        /// How large it may be.
        max: usize,
    },
    /// A retry that waits longer at first than it ever may.
    #[error("`delay` is {delay:?}: expected at most the `max_delay` of {max_delay:?}")]
    DelayTooLong {
        /// How long it waits at first.
        delay: Duration,
        /// How long it may wait.
        max_delay: Duration,
    },
    /// A step that depends on one that there is not.
    #[error("unknown step `{step}`{}", DidYouMean(near.as_deref()))]
    UnknownStep {
        /// The step.
        step: String,
        /// What was probably meant.
        near: Option<String>,
    },
    /// Steps that wait for each other in a circle.
    #[error("a cycle of steps: {}", Chain(steps))]
    StepCycle {
        /// The steps, the first again at the end.
        steps: Vec<String>,
    },
    /// A name that an element of a loop cannot have.
    #[error(
        "illegal item_var {name:?}: expected letters, digits and `_`, no digit first, and no word with a meaning of its own"
    )]
    IllegalItemVar {
        /// The name.
        name: String,
    },
    /// A reference to what a step may not have.
    #[error("{}", NoDefault { step, by: by.as_deref(), reference, lacks: lacks.as_deref() })]
    NoDefault {
        /// The step that can be skipped or fail.
        step: String,
        /// The step that refers to it; the output, if there is none.
        by: Option<String>,
        /// The reference, as it is written.
        reference: String,
        /// What its default results lack, if it has some.
        lacks: Option<String>,
    },
    /// A reference to an input that the composite does not have.
    #[error("the input has no `{name}`{}", DidYouMean(near.as_deref()))]
    UnknownInput {
        /// The input.
        name: String,
        /// What was probably meant.
        near: Option<String>,
    },
    /// An output without members.
    #[error("no properties: expected at least one")]
    NoProperties,
    /// Two members of an output have one name.
    #[error("duplicate property `{name}`")]
    DuplicateProperty {
        /// The name.
        name: String,
    },
    /// A member is required that the output does not have.
    #[error("unknown property `{name}`{}", DidYouMean(near.as_deref()))]
    UnknownProperty {
        /// The name.
        name: String,
        /// What was probably meant.
        near: Option<String>,
    },
    /// Members of members, too many.
    #[error("properties nested too deep: expected at most {max} levels")]
    PropertiesTooDeep {
        /// How many levels there may be.
        max: usize,
    },
    /// A member of which it is not clear what it is made of.
    #[error("expected either `value` or `properties`")]
    ValueOrProperties,
    /// A default that does not have the type of its member.
    #[error("the default is not of type {kind}")]
    DefaultType {
        /// The type.
        kind: &'static str,
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
    /// Default results of a step that always has its own.
    #[error(
        "`default_results` are never used: the step cannot be skipped, and if it fails, so does the run"
    )]
    UnusedDefault,
    /// A schema that cannot describe a tool.
    #[error("`{key}` cannot be used: {reason}")]
    Schema {
        /// Which schema.
        key: &'static str,
        /// Why not.
        reason: String,
    },
    /// A reference or template that does not parse, or that refers to nothing.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// A form that nobody can be asked to fill in.
    #[error(transparent)]
    Form(#[from] FormError),
    /// A reference to what a step that asks does not give.
    #[error("step `{step}` asks a person and has no `{field}`: its answer is `{near}`")]
    NoToolResult {
        /// The step that asks.
        step: String,
        /// What is referred to.
        field: &'static str,
        /// Where its answer is.
        near: String,
    },
    /// A reference to what the answer of a person does not have.
    #[error("the answer to step `{step}` has no `{name}`{}", DidYouMean(near.as_deref()))]
    UnknownAnswer {
        /// The step that asks.
        step: String,
        /// What is referred to.
        name: String,
        /// What was probably meant.
        near: Option<String>,
    },
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

/// Prints what was probably meant.
pub(super) struct DidYouMean<'a>(pub(super) Option<&'a str>);

/// Prints that what is referred to may not be there.
struct NoDefault<'a> {
    step: &'a str,
    by: Option<&'a str>,
    reference: &'a str,
    lacks: Option<&'a str>,
}

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

// What is wrong is part of what it prints, and so no source of it.
impl std::error::Error for DefinitionError {}

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

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(near) => write!(f, ": did you mean `{near}`?"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for NoDefault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, by, reference, lacks } = self;
        write!(f, "step `{step}` can be skipped or fail, and ")?;
        match lacks {
            Some(lacks) => write!(f, "its `default_results` have no `{lacks}`")?,
            None => f.write_str("has no `default_results` for this")?,
        }
        match by {
            Some(by) => write!(f, ", which step `{by}` needs as `{reference}`"),
            None => write!(f, ", which the output needs as `{reference}`"),
        }
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
