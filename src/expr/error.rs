//! The errors that occur when expressions are parsed or evaluated.

use std::fmt;

use super::PathSegment;
use crate::suggest::DidYouMean;

/// An error that is found when an expression is parsed, before any run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// A reference begins with an unknown name.
    #[error("unknown reference `{text}`: expected {expected}, or `$$` for a literal `$`")]
    UnknownRoot {
        /// The reference as written.
        text: String,
        /// The names with which references can begin at this place of the definition, for the error
        /// message.
        expected: String,
    },
    /// A reference names a step that does not exist.
    #[error("there is no step `{step}`, which `{text}` refers to{}", DidYouMean(near.as_deref()))]
    UnknownStep {
        /// The reference as written.
        text: String,
        /// The name or index by which the reference identifies the step.
        step: String,
        /// The name of the step that is most similar to the unknown name. Suggested in the error
        /// message. `None` if no name is similar.
        near: Option<String>,
    },
    /// A reference names a step that will not have run when the reference is evaluated.
    #[error("`{text}` refers to step `{step}`, which has not run by then")]
    LaterStep {
        /// The reference as written.
        text: String,
        /// The name or index by which the reference identifies the step.
        step: String,
    },
    /// The reference `$prev` is used in the first step of a pipeline, which has no previous step.
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
        /// A reference to the member of the step's output that has this name. Suggested in the
        /// error message.
        near: String,
        /// A reference to an existing field with a similar name. Suggested in the error message,
        /// before `near`. `None` if no field has a similar name.
        similar: Option<String>,
    },
    /// A reference names a variable that does not exist.
    #[error("there is no variable `{name}`, which `{text}` refers to{}", DidYouMean(near.as_deref()))]
    UnknownVariable {
        /// The reference as written.
        text: String,
        /// The name of the variable.
        name: String,
        /// The most similar name of a variable, as a suggestion. `None` if no name is similar.
        near: Option<String>,
    },
    /// A reference leads to a part that its variable does not have.
    #[error("the variable has no such part: `{text}`")]
    NoPartOfVariable {
        /// The reference as written.
        text: String,
    },
    /// A reference to a secret variable is in a place whose value clients can see.
    #[error("`{text}` is secret: expected it in the arguments of a tool that is not a composite")]
    SecretVariable {
        /// The reference as written.
        text: String,
    },
    /// A reference begins with a known name but has a syntax error.
    #[error("malformed reference `{text}` at character {position}: expected {expected}")]
    Malformed {
        /// The reference as written.
        text: String,
        /// The position of the error within the reference, in characters, starting at one.
        position: usize,
        /// The expected syntax.
        expected: &'static str,
    },
    /// A template has a syntax error, or uses a feature that templates do not support.
    #[error("at line {line}, character {column} of the template: {reason}")]
    Template {
        /// A description of the error.
        reason: String,
        /// The line of the error in the template, starting at one.
        line: usize,
        /// The column of the error in its line, in characters, starting at one.
        column: usize,
    },
    /// A value cannot have the required type, regardless of the data of a run.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// The description of the value in the error message, such as `the collection`.
        what: &'static str,
        /// The actual type of the value.
        found: &'static str,
        /// The expected type of the value.
        expected: &'static str,
    },
}

/// All errors in an expression. Each error comes with the path to the string that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionErrors(Vec<(Vec<PathSegment>, ExpressionError)>);

/// An error that occurs while an expression is evaluated.
///
/// The error message may be sent to clients. It contains only parts of the expression, and no data
/// of the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// A reference refers to a missing value, and is not optional.
    #[error("`{reference}` has no value")]
    Missing {
        /// The reference as it was written.
        reference: String,
    },
    /// A reference selects an element of an array, but the array is in the member `result` of an
    /// object. Servers that use FastMCP return arrays in such objects.
    #[error(
        "`{reference}` has no value: the array is in `result`, so write `.result` before the index"
    )]
    WrappedArray {
        /// The reference as it was written.
        reference: String,
    },
    /// The evaluation of a template failed, but not because of a missing value.
    #[error("{reason} in the template `{template}`")]
    Template {
        /// The text of the template, or of the part of it that failed. Truncated if it is too long.
        template: String,
        /// A description of the failure.
        reason: String,
    },
    /// A template produced a string that exceeds the maximum size.
    #[error("the output of the template `{template}` has more than {max} bytes")]
    TooLarge {
        /// The text of the template, or of the part of it that failed. Truncated if it is too long.
        template: String,
        /// The maximum size of the string, in bytes.
        max: usize,
    },
    /// The value of a condition or collection has the wrong type.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// The name of the value in the message.
        what: &'static str,
        /// The actual type of the value.
        found: &'static str,
        /// The expected type of the value.
        expected: &'static str,
    },
}

/// Formats an optional suggestion, followed by the word "or", for an error message that contains
/// another suggestion.
struct Either<'a>(Option<&'a str>);

// === impl ExpressionErrors ===

impl ExpressionErrors {
    pub(super) const fn new(errors: Vec<(Vec<PathSegment>, ExpressionError)>) -> Self {
        Self(errors)
    }

    /// Iterates over the errors. Each error comes with the path to the string that caused it.
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
