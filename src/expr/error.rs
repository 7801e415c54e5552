//! Errors of expressions.

use std::fmt;

use super::PathSegment;
use crate::suggest::DidYouMean;

/// An error in the text of an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// An unknown root.
    #[error("unknown reference `{text}`: expected {expected}, or `$$` for a literal `$`")]
    UnknownRoot {
        /// The text.
        text: String,
        /// The known roots.
        expected: String,
    },
    /// A reference to an unknown step.
    #[error("there is no step `{step}`, which `{text}` refers to{}", DidYouMean(near.as_deref()))]
    UnknownStep {
        /// The text.
        text: String,
        /// The step.
        step: String,
        /// The closest known step, as a suggestion.
        near: Option<String>,
    },
    /// A reference to a step that runs later.
    #[error("`{text}` refers to step `{step}`, which has not run by then")]
    LaterStep {
        /// The text.
        text: String,
        /// The step.
        step: String,
    },
    /// A reference to the previous step in the first step.
    #[error("`{text}` refers to the step before this one, which is the first")]
    NoPrevious {
        /// The text.
        text: String,
    },
    /// An unknown field of a step.
    #[error("a step has no `{field}`: did you mean {}`{near}`?", Either(similar.as_deref()))]
    UnknownField {
        /// The field.
        field: String,
        /// The same name as a part of the output, as a suggestion.
        near: String,
        /// A field with a similar name, which is suggested first.
        similar: Option<String>,
    },
    /// A syntax error in a reference.
    #[error("malformed reference `{text}` at character {position}: expected {expected}")]
    Malformed {
        /// The text.
        text: String,
        /// The position of the error in characters, from one.
        position: usize,
        /// The expected syntax.
        expected: &'static str,
    },
    /// A template with a syntax error or unsupported features.
    #[error("at line {line}, character {column} of the template: {reason}")]
    Template {
        /// The reason.
        reason: String,
        /// The line in the text, from one.
        line: usize,
        /// The column in characters, from one.
        column: usize,
    },
    /// A value that always has the wrong type.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// The use of the value.
        what: &'static str,
        /// The actual type.
        found: &'static str,
        /// The expected type.
        expected: &'static str,
    },
}

/// All errors in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionErrors(Vec<(Vec<PathSegment>, ExpressionError)>);

/// An error in the evaluation of an expression.
///
/// The message may be sent to clients: it contains the expression, and no data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// A referenced value is missing.
    #[error("`{reference}` has no value")]
    Missing {
        /// The reference as it was written.
        reference: String,
    },
    /// The evaluation of a template failed.
    #[error("{reason} in the template `{template}`")]
    Template {
        /// The template, shortened.
        template: String,
        /// The reason.
        reason: String,
    },
    /// A template exceeded its size limit.
    #[error("the template `{template}` makes more than {max} bytes")]
    TooLarge {
        /// The template, shortened.
        template: String,
        /// The limit in bytes.
        max: usize,
    },
    /// A value has the wrong type.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// The use of the value.
        what: &'static str,
        /// The actual type.
        found: &'static str,
        /// The expected type.
        expected: &'static str,
    },
}

/// Prints a suggestion that precedes another one.
struct Either<'a>(Option<&'a str>);

// === impl ExpressionErrors ===

impl ExpressionErrors {
    pub(super) const fn new(errors: Vec<(Vec<PathSegment>, ExpressionError)>) -> Self {
        Self(errors)
    }

    /// Iterates over the errors and their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&[PathSegment], &ExpressionError)> {
        self.0.iter().map(|(path, error)| (path.as_slice(), error))
    }
}

impl fmt::Display for ExpressionErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (_, error)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ExpressionErrors {}

impl fmt::Display for Either<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(similar) => write!(f, "`{similar}` or "),
            None => Ok(()),
        }
    }
}
