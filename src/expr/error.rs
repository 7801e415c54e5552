//! Errors in parsing and evaluating expressions.

use std::fmt;

use super::PathSegment;
use crate::suggest::DidYouMean;

/// An error in the text of an expression, found when the expression is parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// A reference begins with an unknown name.
    #[error("unknown reference `{text}`: expected {expected}, or `$$` for a literal `$`")]
    UnknownRoot {
        /// The reference as written.
        text: String,
        /// The names that references can begin with in this place of the definition.
        expected: String,
    },
    /// A reference names a step that does not exist.
    #[error("there is no step `{step}`, which `{text}` refers to{}", DidYouMean(near.as_deref()))]
    UnknownStep {
        /// The reference as written.
        text: String,
        /// The name or index of the step in the reference.
        step: String,
        /// The most similar name of a step, as a suggestion. `None` if no name is similar.
        near: Option<String>,
    },
    /// A reference names a step that runs only after the reference is evaluated.
    #[error("`{text}` refers to step `{step}`, which has not run by then")]
    LaterStep {
        /// The reference as written.
        text: String,
        /// The name or index of the step in the reference.
        step: String,
    },
    /// The first step of a pipeline contains `$prev`, which refers to the step before it.
    #[error("`{text}` refers to the previous step, but this step is the first")]
    NoPrevious {
        /// The reference as written.
        text: String,
    },
    /// A reference names a field that steps do not have.
    #[error("a step has no `{field}`: did you mean {}`{near}`?", Either(similar.as_deref()))]
    UnknownField {
        /// The name of the unknown field.
        field: String,
        /// The suggested reference to the member with this name in the step's output.
        near: String,
        /// The suggested reference to a field with a similar name, which comes first in the
        /// message. `None` if no field has a similar name.
        similar: Option<String>,
    },
    /// A reference begins with a known name but has a syntax error.
    #[error("malformed reference `{text}` at character {position}: expected {expected}")]
    Malformed {
        /// The reference as written.
        text: String,
        /// The position of the error in the reference, in characters, counted from one.
        position: usize,
        /// The expected syntax.
        expected: &'static str,
    },
    /// A template has a syntax error, or uses a feature that templates do not support.
    #[error("at line {line}, character {column} of the template: {reason}")]
    Template {
        /// A description of the error.
        reason: String,
        /// The line of the error in the template, counted from one.
        line: usize,
        /// The column of the error in its line, in characters, counted from one.
        column: usize,
    },
    /// A value has the wrong type, whatever the input of the run is.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// The role of the value in the definition, such as `the collection`.
        what: &'static str,
        /// The actual type of the value.
        found: &'static str,
        /// The expected type of the value.
        expected: &'static str,
    },
}

/// All errors in an expression, each with the path to the string that contains the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionErrors(Vec<(Vec<PathSegment>, ExpressionError)>);

/// An error that occurs while an expression is evaluated.
///
/// The message may be sent to clients, because it contains only parts of the expression and no
/// values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// A reference that is not optional refers to a missing value.
    #[error("`{reference}` has no value")]
    Missing {
        /// The reference as it was written.
        reference: String,
    },
    /// A template cannot be evaluated, for any other reason.
    #[error("{reason} in the template `{template}`")]
    Template {
        /// The text of the template, or of its part that failed. Truncated if it is long.
        template: String,
        /// A description of the failure.
        reason: String,
    },
    /// A template evaluates to a text that is too large.
    #[error("the output of the template `{template}` has more than {max} bytes")]
    TooLarge {
        /// The text of the template, or of its part that failed. Truncated if it is long.
        template: String,
        /// The maximum size of the text, in bytes.
        max: usize,
    },
    /// A condition or collection evaluates to a value of the wrong type.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// The role of the value in the message.
        what: &'static str,
        /// The actual type of the value.
        found: &'static str,
        /// The expected type of the value.
        expected: &'static str,
    },
}

/// Formats a suggestion that comes before another one in a message.
struct Either<'a>(Option<&'a str>);

// === impl ExpressionErrors ===

impl ExpressionErrors {
    pub(super) const fn new(errors: Vec<(Vec<PathSegment>, ExpressionError)>) -> Self {
        Self(errors)
    }

    /// Iterates over the errors, each with the path to the string in the expression that contains
    /// the error.
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
