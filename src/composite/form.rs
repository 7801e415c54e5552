//! The form that a person is asked to fill in: what MCP takes of JSON Schema there.

mod check;

use std::{fmt, sync::Arc};

use rmcp::model::{ElicitationSchema, JsonObject};
use serde_json::Value;

use self::check::Mistakes;
use super::error::{DefinitionErrorKind as Kind, DidYouMean, Segment};
use crate::{
    expr::{Expression, ScopeNames, kind},
    schema::InputSchema,
};

/// How large its schema may be, as JSON.
const MAX_BYTES: usize = 64 * 1024;

/// What clients can check of a text besides its length.
const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

/// A form that clients can show.
#[derive(Debug)]
pub(super) struct Form {
    /// Its schema, with what its texts refer to.
    pub(super) expression: Expression,
    /// What answers must fit: the schema without such texts.
    pub(super) schema: InputSchema,
}

/// What is wrong in the form of a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// A value is of another kind than it must be.
    #[error("{what} is {found}: expected {expected}")]
    WrongKind {
        /// What it is the value of.
        what: String,
        /// What it is.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A keyword that forms do not have there.
    #[error("unknown keyword `{keyword}` of {of}{}", Instead { near: near.as_deref(), expected })]
    UnknownKeyword {
        /// The keyword.
        keyword: String,
        /// Where it stands.
        of: &'static str,
        /// What was probably meant.
        near: Option<String>,
        /// What can stand there.
        expected: Vec<&'static str>,
    },
    /// A keyword that must be there.
    #[error("missing `{keyword}`: {of} needs it")]
    MissingKeyword {
        /// The keyword.
        keyword: &'static str,
        /// What needs it.
        of: &'static str,
    },
    /// A type that no answer can have.
    #[error(
        "unknown type `{found}` of a property{}: a form is flat, expected `string`, `number`, `integer`, `boolean`, or `array` for several choices",
        DidYouMean(near.as_deref())
    )]
    Type {
        /// The type.
        found: String,
        /// What was probably meant.
        near: Option<String>,
    },
    /// A format that clients do not know.
    #[error("unknown format `{found}`{}", Instead { near: near.as_deref(), expected: &FORMATS })]
    Format {
        /// The format.
        found: String,
        /// What was probably meant.
        near: Option<String>,
    },
    /// A choice without anything to choose.
    #[error("no choices: expected at least one")]
    NoChoices,
    /// Two choices are the same.
    #[error("duplicate choice `{choice}`")]
    DuplicateChoice {
        /// The choice.
        choice: String,
    },
    /// Choices and their names do not match.
    #[error("{names} names of {choices} choices: expected one for each")]
    EnumNames {
        /// How many names there are.
        names: usize,
        /// How many choices there are.
        choices: usize,
    },
    /// Bounds that nothing is within.
    #[error("`{low}` is more than `{high}`")]
    Bounds {
        /// The lower bound.
        low: &'static str,
        /// The upper bound.
        high: &'static str,
    },
    /// A default that would not be a valid answer.
    #[error("the default does not fit: {reason}")]
    Default {
        /// Why not.
        reason: String,
    },
    /// A reference or template in what a client must know before.
    #[error(
        "only texts can be evaluated: expected references and templates in `title`, `description` and the names of choices, and `$$` for a literal `$`"
    )]
    Evaluated,
    /// More properties than somebody would fill in.
    #[error("{count} properties: expected at most {max}")]
    TooManyProperties {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// A schema that is too large.
    #[error("{bytes} bytes of JSON: expected at most {max}")]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        max: usize,
    },
    /// A schema that clients cannot be sent.
    #[error("it cannot be sent to clients: {reason}")]
    Unusable {
        /// Why not.
        reason: String,
    },
}

/// What properties are called that ask for secrets: words of a name, each between
/// two `_`.
const SECRETS: [&str; 18] = [
    "_password_",
    "_passwd_",
    "_passphrase_",
    "_passcode_",
    "_secret_",
    "_token_",
    "_credential_",
    "_credentials_",
    "_pin_",
    "_otp_",
    "_cvv_",
    "_cvc_",
    "_apikey_",
    "_api_key_",
    "_access_key_",
    "_private_key_",
    "_credit_card_",
    "_card_number_",
];

// === impl Form ===

impl Form {
    /// Reads the schema of a form, whose texts may refer to what has a name.
    ///
    /// # Errors
    ///
    /// Returns every mistake, and where in the schema it is.
    pub(super) fn parse(
        schema: &Value,
        names: &ScopeNames<'_>,
    ) -> Result<Self, Vec<(Vec<Segment>, Kind)>> {
        let whole = |error: FormError| vec![(Vec::new(), error.into())];
        let Value::Object(schema) = schema else {
            return Err(whole(wrong_kind("`schema`", schema, "an object")));
        };
        let bytes = serde_json::to_string(schema).map_or(0, |json| json.len());
        if bytes > MAX_BYTES {
            return Err(whole(FormError::TooLarge { bytes, max: MAX_BYTES }));
        }
        let mut schema = schema.clone();
        schema.entry("type").or_insert_with(|| "object".into());
        schema.entry("properties").or_insert_with(|| JsonObject::new().into());
        let mut mistakes = Mistakes::default();
        let expression = match Expression::parse_in(&schema.clone().into(), names) {
            Ok(expression) => expression,
            Err(errors) => {
                for (path, error) in errors.iter() {
                    mistakes.within(path.to_vec(), |mistakes| mistakes.push(error.clone()));
                }
                mistakes.form(&schema);
                return Err(mistakes.found);
            }
        };

        let (texts, others): (Vec<_>, Vec<_>) =
            expression.evaluated().into_iter().partition(|place| is_text(place));
        for place in others {
            mistakes.within(place, |mistakes| mistakes.push(FormError::Evaluated));
        }
        let written = expression.written();
        if let Value::Object(schema) = &written {
            mistakes.form(schema);
        }
        if !mistakes.found.is_empty() {
            return Err(mistakes.found);
        }
        if let Err(error) = serde_json::from_value::<ElicitationSchema>(written.clone()) {
            return Err(whole(FormError::Unusable { reason: error.to_string() }));
        }
        let schema = InputSchema::new(Arc::new(without(written, &texts)));
        Ok(Self { expression, schema })
    }

    /// The names of its properties that seem to ask for secrets.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let properties = self.schema.schema().get("properties").and_then(Value::as_object);
        let names = properties.into_iter().flatten().map(|(name, _)| name.as_str());
        names.filter(|name| is_secret(name))
    }
}

/// Without properties: a question to which there is only yes and no.
impl Default for Form {
    fn default() -> Self {
        Self {
            expression: Expression::literal(JsonObject::new().into()),
            schema: InputSchema::new(Arc::default()),
        }
    }
}

/// Whether what stands there is only shown.
fn is_text(place: &[Segment]) -> bool {
    const TEXTS: [&str; 2] = ["title", "description"];
    let names: Vec<_> = place
        .iter()
        .map(|segment| match segment {
            Segment::Key(key) => key.as_str(),
            // No key of a place where an element can be.
            Segment::Index(_) => "[]",
        })
        .collect();
    match *names {
        [key] | ["properties", _, key] => TEXTS.contains(&key),
        ["properties", _, "enumNames", "[]"] => true,
        ["properties", _, "oneOf", "[]", "title"] => true,
        ["properties", _, "items", "anyOf", "[]", "title"] => true,
        _ => false,
    }
}

/// The schema without these texts, which are not known before a run.
fn without(mut schema: Value, texts: &[Vec<Segment>]) -> JsonObject {
    for place in texts {
        // Names of choices go together.
        let keys = place.iter().rposition(|segment| matches!(segment, Segment::Key(_)));
        let Some((Segment::Key(key), way)) = keys.and_then(|end| place[..=end].split_last()) else {
            continue;
        };
        let parent = way.iter().try_fold(&mut schema, |value, segment| match segment {
            Segment::Key(key) => value.get_mut(key),
            Segment::Index(index) => value.get_mut(index),
        });
        if let Some(Value::Object(parent)) = parent {
            parent.remove(key);
        }
    }
    match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

fn is_secret(name: &str) -> bool {
    let mut words = "_".to_owned();
    let mut after_lowercase = false;
    for c in name.chars() {
        if c.is_uppercase() && after_lowercase {
            words.push('_');
        }
        after_lowercase = c.is_lowercase();
        words.push(if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
    }
    words.push('_');
    SECRETS.iter().any(|secret| words.contains(secret))
}

fn wrong_kind(what: &str, found: &Value, expected: &'static str) -> FormError {
    let found = match found {
        // They have the kind, perhaps, but are none of those that fit.
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{text:?}"),
        other => kind(Some(other)).to_owned(),
    };
    FormError::WrongKind { what: what.to_owned(), found, expected }
}

/// Prints what should stand there.
struct Instead<'a> {
    near: Option<&'a str>,
    expected: &'a [&'a str],
}

impl fmt::Display for Instead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.near.is_some() {
            return DidYouMean(self.near).fmt(f);
        }
        for (place, word) in self.expected.iter().enumerate() {
            let before = if place == 0 { ": expected one of" } else { "," };
            write!(f, "{before} `{word}`")?;
        }
        Ok(())
    }
}
