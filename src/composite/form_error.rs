//! Errors in the form of an elicitation.

use serde_json::Value;

use crate::{expr::kind, suggest::DidYouMean};

/// The `format` values that a string property of a form can have.
pub(super) const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

/// An error in the JSON Schema of a form, with which an [`Elicitation`](super::Elicitation) step
/// asks the user a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// A value in the schema of the form has the wrong type, for example a number as a `title`.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// The name of the value or keyword that has the wrong type, for example `title`.
        what: String,
        /// The value that was found, if it is a number or a string. Otherwise, the name of its
        /// type.
        found: String,
        /// The description of the expected type, such as `an object`.
        expected: &'static str,
    },
    /// The schema of the form contains an unknown keyword.
    #[error("unknown keyword `{keyword}` of {of}{}", instead(near.as_deref(), expected))]
    UnknownKeyword {
        /// The unknown keyword.
        keyword: String,
        /// The kind of schema that contains the unknown keyword, for example `a string`.
        of: &'static str,
        /// The allowed keyword that is most similar to the unknown one. The error message suggests
        /// it. `None` if no allowed keyword is similar.
        near: Option<String>,
        /// The keywords that are allowed in this kind of schema. The error message lists them if
        /// `near` is `None`.
        expected: Vec<&'static str>,
    },
    /// A keyword that is required in the schema of a form is missing.
    #[error("missing `{keyword}`: {of} needs it")]
    MissingKeyword {
        /// The missing keyword.
        keyword: &'static str,
        /// The kind of schema in which the keyword is missing, for example `a form`.
        of: &'static str,
    },
    /// A property of the form has a type that MCP does not allow in elicitation forms.
    #[error(
        "unknown type `{found}` of a property{}: a form is flat, expected `string`, `number`, `integer`, `boolean`, or `array` for several choices",
        DidYouMean(near.as_deref())
    )]
    Type {
        /// The unsupported type.
        found: String,
        /// The supported type that is most similar to the unsupported one. The error message
        /// suggests it. `None` if no supported type is similar.
        near: Option<String>,
    },
    /// A string property of the form has a `format` that clients do not support.
    #[error("unknown format `{found}`{}", instead(near.as_deref(), &FORMATS))]
    Format {
        /// The unsupported format.
        found: String,
        /// The supported format that is most similar to the unsupported one. The error message
        /// suggests it. `None` if no supported format is similar.
        near: Option<String>,
    },
    /// A property for which the user selects a value (`enum`, `oneOf` or `anyOf`) has no options.
    #[error("no choices: expected at least one")]
    NoChoices,
    /// A property of the form lists the same option twice.
    #[error("duplicate choice `{choice}`")]
    DuplicateChoice {
        /// The option that occurs twice.
        choice: String,
    },
    /// The list of display names (`enumNames`) is longer or shorter than the list of options
    /// (`enum`) among which the user chooses.
    #[error("{names} names of {choices} choices: expected one for each")]
    EnumNames {
        /// The number of display names in `enumNames`.
        names: usize,
        /// The number of options in `enum`.
        choices: usize,
    },
    /// The lower bound of a property of the form exceeds its upper bound.
    #[error("`{low}` is more than `{high}`")]
    Bounds {
        /// The keyword of the lower bound, such as `minimum`.
        low: &'static str,
        /// The keyword of the upper bound, such as `maximum`.
        high: &'static str,
    },
    /// The default value of a property of the form does not match the schema of the property.
    #[error("the default does not fit: {reason}")]
    Default {
        /// The description of the mismatch, for the error message.
        reason: String,
    },
    /// A reference or template, such as `$input.name`, is used in a part of the form's schema that
    /// must be constant. References and templates are allowed only in titles, descriptions, options
    /// and defaults.
    #[error(
        "it must be constant: expected references and templates in `title`, `description`, `enum`, `default` and the names of choices, and `$$` for a literal `$`"
    )]
    Evaluated,
    /// The form has too many properties.
    #[error("{count} properties: expected at most {max}")]
    TooManyProperties {
        /// The number of properties of the form.
        count: usize,
        /// The maximum number of properties of a form.
        max: usize,
    },
    /// The JSON of the form's schema is too large.
    #[error("{bytes} bytes of JSON: expected at most {max}")]
    TooLarge {
        /// The size of the schema in bytes.
        bytes: usize,
        /// The maximum size of the schema in bytes.
        max: usize,
    },
    /// The schema of the form cannot be sent to clients, for example because it is not a valid JSON
    /// Schema.
    #[error("it cannot be sent to clients: {reason}")]
    Unusable {
        /// The reason why the schema cannot be sent.
        reason: String,
    },
}

/// Creates a [`FormError::WrongKind`]. `what` is the name of the value, and `found` is the value.
pub(super) fn wrong_kind(what: &str, found: &Value, expected: &'static str) -> FormError {
    let found = match found {
        // The type of a number or string may be correct although its value is wrong, so the message
        // contains the value.
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{text:?}"),
        other => kind(Some(other)).to_owned(),
    };
    FormError::WrongKind { what: what.to_owned(), found, expected }
}

/// Returns the end of an error message about an unknown name: suggests `near`, or lists all
/// `expected` names if `near` is `None`.
fn instead(near: Option<&str>, expected: &[&str]) -> String {
    if near.is_some() {
        return DidYouMean(near).to_string();
    }
    let expected: Vec<_> = expected.iter().map(|name| format!("`{name}`")).collect();
    format!(": expected one of {}", expected.join(", "))
}
