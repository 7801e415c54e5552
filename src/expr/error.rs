use std::fmt;

use super::PathSegment;

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// It begins with something that cannot be referred to.
    #[error("unknown reference `{text}`: expected {expected}, or `$$` for a literal `$`")]
    UnknownRoot {
        /// The text.
        text: String,
        /// What can be referred to.
        expected: String,
    },
    /// It refers to a step that there is not.
    #[error("there is no step `{step}`, which `{text}` refers to{}", Near(near.as_deref()))]
    UnknownStep {
        /// The text.
        text: String,
        /// The step.
        step: String,
        /// The step that was probably meant.
        near: Option<String>,
    },
    /// It refers to a step that has not run by then.
    #[error("`{text}` refers to step `{step}`, which has not run by then")]
    LaterStep {
        /// The text.
        text: String,
        /// The step.
        step: String,
    },
    /// It refers to the step before the first.
    #[error("`{text}` refers to the step before this one, which is the first")]
    NoPrevious {
        /// The text.
        text: String,
    },
    /// It refers to a field that records of steps do not have.
    #[error("a step has no `{field}`: did you mean {}`{near}`?", Either(similar.as_deref()))]
    UnknownField {
        /// The field.
        field: String,
        /// What was probably meant: the same of its output.
        near: String,
        /// The field that it is a slip of, which is more likely.
        similar: Option<String>,
    },
    /// It does not go on as a reference does.
    #[error("malformed reference `{text}` at character {position}: expected {expected}")]
    Malformed {
        /// The text.
        text: String,
        /// Which character, from one.
        position: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// It is a template that does not parse, or that uses what templates cannot.
    #[error("at line {line}, character {column} of the template: {reason}")]
    Template {
        /// What is wrong.
        reason: String,
        /// In which line of the text, from one.
        line: usize,
        /// At which character of the line, from one.
        column: usize,
    },
    /// It gives something else than what is needed here.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// What it is for.
        what: &'static str,
        /// What it is.
        found: &'static str,
        /// What it may be.
        expected: &'static str,
    },
}

/// Every mistake in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionErrors(Vec<(Vec<PathSegment>, ExpressionError)>);

/// Why an expression has no value.
///
/// Its text is fit for a client: it repeats what is written, and no data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// A value that it needs is not there.
    #[error("`{reference}` has no value")]
    Missing {
        /// The reference as it was written.
        reference: String,
    },
    /// A template failed.
    #[error("{reason} in the template `{template}`")]
    Template {
        /// The template, shortened.
        template: String,
        /// What went wrong.
        reason: String,
    },
    /// A template made more than it may.
    #[error("the template `{template}` makes more than {max} bytes")]
    TooLarge {
        /// The template, shortened.
        template: String,
        /// How much it may make.
        max: usize,
    },
    /// The value cannot be used where it stands.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// What it is for.
        what: &'static str,
        /// What it is.
        found: &'static str,
        /// What it may be.
        expected: &'static str,
    },
}

/// Prints what was probably meant.
struct Near<'a>(Option<&'a str>);

/// Prints what was more likely meant, before something else.
struct Either<'a>(Option<&'a str>);

// === impl ExpressionErrors ===

impl ExpressionErrors {
    pub(super) const fn new(errors: Vec<(Vec<PathSegment>, ExpressionError)>) -> Self {
        Self(errors)
    }

    /// Iterates over the mistakes and where they stand.
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

impl fmt::Display for Near<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(near) => write!(f, ": did you mean `{near}`?"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Either<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(similar) => write!(f, "`{similar}` or "),
            None => Ok(()),
        }
    }
}
