//! Forms for elicitation steps, which ask the user a question. The schema of a form can use only
//! the subset of JSON Schema that MCP allows in elicitation requests.

mod check;

use std::sync::Arc;

use rmcp::model::{ElicitationSchema, JsonObject};
use serde_json::Value;

use self::check::Mistakes;
use super::{
    error::{DefinitionErrorKind as Kind, Segment},
    form_error::{FormError, wrong_kind},
};
use crate::{
    engine::form::MAX_FORM_BYTES,
    expr::{Expression, ScopeNames},
    schema::InputSchema,
};

/// The form of an elicitation step, whose schema was checked so that clients can display it.
#[derive(Debug)]
pub(super) struct Form {
    /// The schema of the form as written in the definition. It can contain references and templates
    /// in its titles, descriptions, choices and defaults, which are evaluated during each run.
    pub(super) expression: Expression,
    /// The schema against which the user's answer is checked. It equals the schema of the form, but
    /// without the parts that contain references or templates.
    pub(super) schema: InputSchema,
    /// `true` if the choices or defaults of the form contain references or templates. Their values
    /// are then known only during a run.
    pub(super) is_computed: bool,
}

/// Words in property names that suggest a secret, for example `password`. Each entry begins and
/// ends with `_`, so that it matches only whole words of a name like `api_password`.
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
    /// Parses the JSON Schema of a form. Its texts, choices and defaults may contain references,
    /// which may use the given `names`.
    ///
    /// # Errors
    ///
    /// Returns all errors in the schema, each with its path.
    pub(super) fn parse(
        schema: &Value,
        names: &ScopeNames<'_>,
    ) -> Result<Self, Vec<(Vec<Segment>, Kind)>> {
        let whole = |error: FormError| vec![(Vec::new(), error.into())];
        let Value::Object(schema) = schema else {
            return Err(whole(wrong_kind("`schema`", schema, "an object")));
        };
        let bytes = serde_json::to_string(schema).map_or(0, |json| json.len());
        if bytes > MAX_FORM_BYTES {
            return Err(whole(FormError::TooLarge { bytes, max: MAX_FORM_BYTES }));
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

        let mut texts = Vec::new();
        let mut computed = Vec::new();
        for place in expression.evaluated() {
            if is_text(&place) {
                texts.push(place);
            } else if is_computed(&place) {
                computed.push(place);
            } else {
                mistakes.within(place, |mistakes| mistakes.push(FormError::Evaluated));
            }
        }
        let mut written = expression.written();
        for place in &computed {
            stand_in(&mut written, place);
        }
        if let Value::Object(schema) = &written {
            mistakes.form(schema);
        }
        if !mistakes.found.is_empty() {
            return Err(mistakes.found);
        }
        if let Err(error) = serde_json::from_value::<ElicitationSchema>(written.clone()) {
            return Err(whole(FormError::Unusable { reason: error.to_string() }));
        }
        let is_computed = !computed.is_empty();
        texts.append(&mut computed);
        let schema = InputSchema::new(Arc::new(without(written, &texts)));
        Ok(Self { expression, schema, is_computed })
    }

    /// Returns the names of the form's properties that seem to ask for secrets, such as passwords.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let properties = self.schema.schema().get("properties").and_then(Value::as_object);
        let names = properties.into_iter().flatten().map(|(name, _)| name.as_str());
        names.filter(|name| is_secret(name))
    }
}

/// The default form has no properties. The user can only accept or decline it.
impl Default for Form {
    fn default() -> Self {
        Self {
            expression: Expression::literal(JsonObject::new().into()),
            schema: InputSchema::new(Arc::default()),
            is_computed: false,
        }
    }
}

/// Returns `true` if `place` is the path of a text that clients only display, such as the `title`
/// of a property.
fn is_text(place: &[Segment]) -> bool {
    const TEXTS: [&str; 2] = ["title", "description"];
    let names: Vec<_> = place
        .iter()
        .map(|segment| match segment {
            Segment::Key(key) => key.as_str(),
            // `[]` stands for any index in the patterns below. No key can be `[]` at these
            // positions.
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

/// Returns `true` if `place` is the path of the choices or the default of a property. These may
/// contain references, which are evaluated during a run.
fn is_computed(place: &[Segment]) -> bool {
    let key = |segment: &Segment| match segment {
        Segment::Key(key) => Some(key.clone()),
        Segment::Index(_) => None,
    };
    let place = match place {
        [place @ .., Segment::Index(_)] => place,
        place => place,
    };
    let names: Option<Vec<_>> = place.iter().map(key).collect();
    let names = names.unwrap_or_default();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    matches!(*names, ["properties", _, "enum" | "default"] | ["properties", _, "items", "enum"])
}

/// Prepares a form with a reference in the choices or the default at `place`, so that the rest of
/// the form can be checked before a run. Replaces the choices by placeholders, and removes the
/// default of the property.
fn stand_in(form: &mut Value, place: &[Segment]) {
    let [properties, name, way @ ..] = place else { return };
    let (Segment::Key(properties), Segment::Key(name)) = (properties, name) else { return };
    let property = form.get_mut(properties).and_then(|all| all.get_mut(name));
    let Some(Value::Object(property)) = property else { return };
    property.remove("default");
    let schema = match way {
        [Segment::Key(items), Segment::Key(_), ..] if items == "items" => {
            property.get_mut("items").and_then(Value::as_object_mut)
        }
        _ => Some(property),
    };
    let is_default = matches!(way, [Segment::Key(key), ..] if key == "default");
    if let Some(schema) = schema.filter(|_| !is_default) {
        let names = schema.get("enumNames").and_then(Value::as_array).map_or(1, Vec::len);
        let choices: Vec<_> = (0..names).map(|index| index.to_string()).collect();
        schema.insert("enum".to_owned(), choices.into());
    }
}

/// Removes the parts at the paths `texts` from the schema of a form, because they contain
/// references, whose values are not known before a run. Returns the remaining schema.
fn without(mut schema: Value, texts: &[Vec<Segment>]) -> JsonObject {
    for place in texts {
        // If the text is an element of an array, such as the names of options, the whole array is
        // removed.
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
