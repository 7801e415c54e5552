//! The errors of parsing and evaluating expressions.

use std::fmt;

use super::PathSegment;
use crate::suggest::DidYouMean;

/// An error in a reference or template, such as `$input.query`. It is found when the definition is
/// parsed, before any run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// A reference begins with an unknown name, such as `$inptu`.
    #[error("unknown reference `{text}`: expected {expected}, or `$$` for a literal `$`")]
    UnknownRoot {
        /// The reference as written in the definition.
        text: String,
        /// The valid first names of a reference in this field, such as `$input` and `$steps`. Part
        /// of the error message.
        expected: String,
    },
    /// A reference names a step that does not exist.
    #[error("there is no step `{step}`, which `{text}` refers to{}", DidYouMean(near.as_deref()))]
    UnknownStep {
        /// The reference as written in the definition.
        text: String,
        /// The name or index of the step in the reference.
        step: String,
        /// The most similar name of a step, as a suggestion in the error message. `None` if no name
        /// is similar.
        near: Option<String>,
    },
    /// A reference in a pipeline names its own step or a later one, which has not run yet.
    #[error("`{text}` refers to step `{step}`, which has not run by then")]
    LaterStep {
        /// The reference as written in the definition.
        text: String,
        /// The name or index of the step in the reference.
        step: String,
    },
    /// The reference `$prev` is used in the first step of a pipeline, which has no previous step.
    #[error("`{text}` refers to the previous step, but this step is the first")]
    NoPrevious {
        /// The reference as written in the definition.
        text: String,
    },
    /// A reference names a field that steps do not have, such as `$steps.search.result`.
    #[error("a step has no `{field}`: did you mean {}`{near}`?", first_of_two(similar.as_deref()))]
    UnknownField {
        /// The name of the unknown field.
        field: String,
        /// A suggestion in the error message: a reference to the member of the step's output with
        /// this name.
        near: String,
        /// A suggestion in the error message: a reference to an existing field with a similar name,
        /// such as `$steps.a.output`. `None` if no field has a similar name.
        similar: Option<String>,
    },
    /// A reference names a variable that does not exist.
    #[error("there is no variable `{name}`, which `{text}` refers to{}", DidYouMean(near.as_deref()))]
    UnknownVariable {
        /// The reference as written in the definition.
        text: String,
        /// The name of the unknown variable.
        name: String,
        /// The most similar name of a variable, as a suggestion in the error message. `None` if no
        /// name is similar.
        near: Option<String>,
    },
    /// A reference reads a part of a variable that does not exist. For example, `$vars.team.name`
    /// is invalid if `team` is a string.
    #[error("the variable has no such part: `{text}`")]
    NoPartOfVariable {
        /// The reference as written in the definition.
        text: String,
    },
    /// A reference reads a secret variable, but clients could see the resulting value.
    #[error("`{text}` is secret: expected it in the arguments of a tool that is not a composite")]
    SecretVariable {
        /// The reference as written in the definition.
        text: String,
    },
    /// A reference has a syntax error, such as `$input[`.
    #[error("malformed reference `{text}` at character {position}: expected {expected}")]
    Malformed {
        /// The reference as written in the definition.
        text: String,
        /// The position of the error within the reference, in characters, starting at one.
        position: usize,
        /// The syntax that was expected at this position, such as a closing quote.
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
    /// A value in the definition has the wrong type. For example, the collection of a loop is an
    /// object.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// The name of the value in the error message, such as `the collection`.
        what: &'static str,
        /// The actual type of the value, such as `a number`.
        found: &'static str,
        /// The expected type, such as `an array`.
        expected: &'static str,
    },
}

/// All errors of parsing an [`Expression`](super::Expression). Each error has the path to the
/// string with the invalid reference or template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionErrors(Vec<(Vec<PathSegment>, ExpressionError)>);

/// An error that occurs while an [`Expression`](super::Expression) is evaluated.
///
/// Clients may see the message of an evaluation error. It contains parts of the expression, but no
/// data of the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// A reference, such as `$input.query`, has no value and is not optional.
    #[error("`{reference}` has no value")]
    Missing {
        /// The reference to the missing value, as written in the definition.
        reference: String,
    },
    /// A reference reads an element of an array, but the array is in the member `result` of an
    /// object. Servers that use FastMCP return arrays in such objects.
    #[error(
        "`{reference}` has no value: the array is in `result`, so write `.result` before the index"
    )]
    WrappedArray {
        /// The reference to the array element, as written in the definition.
        reference: String,
    },
    /// A template cannot be evaluated, for example because it divides by zero.
    #[error("{reason} in the template `{template}`")]
    Template {
        /// The text of the template or of the part that failed. Truncated if it is long.
        template: String,
        /// The reason of the failure.
        reason: String,
    },
    /// A template produced a string that exceeds the maximum size.
    #[error("the output of the template `{template}` has more than {max} bytes")]
    TooLarge {
        /// The text of the template or of the part that failed. Truncated if it is long.
        template: String,
        /// The maximum size of the produced string, in bytes.
        max: usize,
    },
    /// A condition is not a boolean, or the collection of a loop is not an array.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// The name of the value in the error message, such as `it`.
        what: &'static str,
        /// The actual type of the value, such as `a number`.
        found: &'static str,
        /// The expected type, such as `an array`.
        expected: &'static str,
    },
}

/// Formats the first of two suggestions in an error message, with the word "or" after it. Returns
/// an empty string for `None`.
fn first_of_two(similar: Option<&str>) -> String {
    similar.map(|similar| format!("`{similar}` or ")).unwrap_or_default()
}

// === impl ExpressionErrors ===

impl ExpressionErrors {
    pub(super) const fn new(errors: Vec<(Vec<PathSegment>, ExpressionError)>) -> Self {
        Self(errors)
    }

    /// Iterates over the errors, each with the path to the string that contains the invalid
    /// reference or template.
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
