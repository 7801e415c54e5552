//! The errors that occur when expressions are parsed or evaluated.

use std::fmt;

use super::PathSegment;
use crate::suggest::DidYouMean;

/// An error that is found when a reference or template, such as `$input.query`, is parsed, before
/// any run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// A reference begins with an unknown name, such as `$inptu`.
    #[error("unknown reference `{text}`: expected {expected}, or `$$` for a literal `$`")]
    UnknownRoot {
        /// The reference as written in the definition.
        text: String,
        /// The names with which references can begin at this place of the definition, for the error
        /// message.
        expected: String,
    },
    /// A reference names a step that does not exist.
    #[error("there is no step `{step}`, which `{text}` refers to{}", DidYouMean(near.as_deref()))]
    UnknownStep {
        /// The reference as written in the definition.
        text: String,
        /// The name or index by which the reference identifies the step.
        step: String,
        /// The name of the step that is most similar to the unknown name. Suggested in the error
        /// message. `None` if no name is similar.
        near: Option<String>,
    },
    /// A reference in a step of a pipeline names this step or a later one, which has not run yet.
    #[error("`{text}` refers to step `{step}`, which has not run by then")]
    LaterStep {
        /// The reference as written in the definition.
        text: String,
        /// The name or index by which the reference identifies the step.
        step: String,
    },
    /// The reference `$prev` is used in the first step of a pipeline, which has no previous step.
    #[error("`{text}` refers to the previous step, but this step is the first")]
    NoPrevious {
        /// The reference as written in the definition.
        text: String,
    },
    /// A reference names a field that steps do not have, such as `$steps.search.result`.
    #[error("a step has no `{field}`: did you mean {}`{near}`?", Either(similar.as_deref()))]
    UnknownField {
        /// The name of the unknown field.
        field: String,
        /// A reference to the member of the step's output that has this name. Suggested in the
        /// error message.
        near: String,
        /// A reference to an existing field with a similar name, such as `$steps.a.output`.
        /// Suggested in the error message before `near`. `None` if no field has a similar name.
        similar: Option<String>,
    },
    /// A reference names a variable that does not exist.
    #[error("there is no variable `{name}`, which `{text}` refers to{}", DidYouMean(near.as_deref()))]
    UnknownVariable {
        /// The reference as written in the definition.
        text: String,
        /// The unknown name of the variable.
        name: String,
        /// The existing variable with the most similar name. Suggested in the error message. `None`
        /// if no name is similar.
        near: Option<String>,
    },
    /// A reference leads to a part of a variable's value that does not exist, such as
    /// `$vars.team.name` if `team` is a string.
    #[error("the variable has no such part: `{text}`")]
    NoPartOfVariable {
        /// The reference as written in the definition.
        text: String,
    },
    /// A reference uses a secret variable in a place whose value clients can see.
    #[error("`{text}` is secret: expected it in the arguments of a tool that is not a composite")]
    SecretVariable {
        /// The reference as written in the definition.
        text: String,
    },
    /// A reference begins with a known name but has a syntax error, such as `$input[`.
    #[error("malformed reference `{text}` at character {position}: expected {expected}")]
    Malformed {
        /// The reference as written in the definition.
        text: String,
        /// The position of the error within the reference, in characters, starting at one.
        position: usize,
        /// A description of the syntax that was expected at this position.
        expected: &'static str,
    },
    /// A template has a syntax error, or uses a feature that templates do not support.
    #[error("at line {line}, character {column} of the template: {reason}")]
    Template {
        /// A description of the error in the template.
        reason: String,
        /// The line of the error in the template, starting at one.
        line: usize,
        /// The column of the error in its line, in characters, starting at one.
        column: usize,
    },
    /// A value cannot have the type that its place requires, in any run. For example, the
    /// collection of a loop is an object.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// The value that has the wrong type, as the error message names it: `the collection`, for
        /// example.
        what: &'static str,
        /// The actual type of the value, such as `a number`.
        found: &'static str,
        /// The expected type of the value.
        expected: &'static str,
    },
}

/// All errors that were found when an [`Expression`](super::Expression) was parsed. Each error
/// comes with the path to the string that contains the invalid reference or template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionErrors(Vec<(Vec<PathSegment>, ExpressionError)>);

/// An error that occurs while an [`Expression`](super::Expression) is evaluated.
///
/// The message of an evaluation error may be sent to clients. It contains only parts of the
/// expression, and no data of the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// A reference that is not optional, such as `$input.query`, refers to a missing value.
    #[error("`{reference}` has no value")]
    Missing {
        /// The reference to the missing value, as written in the definition.
        reference: String,
    },
    /// A reference selects an element of an array, but the array is in the member `result` of an
    /// object. Servers that use FastMCP return arrays in such objects.
    #[error(
        "`{reference}` has no value: the array is in `result`, so write `.result` before the index"
    )]
    WrappedArray {
        /// The reference to the array element, as written in the definition.
        reference: String,
    },
    /// A template could not be evaluated, for a reason other than a missing value.
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
        /// The maximum size of the produced string, in bytes.
        max: usize,
    },
    /// The value of a condition is neither a boolean nor one of the strings `true` and `false`, or
    /// the value of a loop's collection is not an array.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// The value that has the wrong type, as the error message names it.
        what: &'static str,
        /// The actual type of the value, such as `a number`.
        found: &'static str,
        /// The expected type of the value.
        expected: &'static str,
    },
}

/// The first of two suggestions in an error message. Formats it together with the word "or".
/// Formats nothing if it is `None`.
struct Either<'a>(Option<&'a str>);

// === impl ExpressionErrors ===

impl ExpressionErrors {
    pub(super) const fn new(errors: Vec<(Vec<PathSegment>, ExpressionError)>) -> Self {
        Self(errors)
    }

    /// Iterates over the errors. Each error comes with the path to the string that contains the
    /// invalid reference or template.
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
