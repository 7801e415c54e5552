//! Forms of questions whose choices or defaults are computed during a run.

use std::{collections::HashSet, sync::Arc};

use rmcp::model::{ElicitRequestParams, InputRequest, JsonObject};
use serde_json::{Map, Value};

use super::{outcome::StepError, question::Question};
use crate::{
    expr::{UNWRAPPED_ARRAY, WRAPPED_ARRAY, is_wrapped_array, kind},
    json_size::json_bytes,
    schema::InputSchema,
};

/// The maximum size of the JSON Schema of a question's form, in bytes.
pub(crate) const MAX_FORM_BYTES: usize = 64 * 1024;

/// Prepares the schema of a form for the client after its references are evaluated.
///
/// Removes repeated choices and null defaults. Converts each other default to the type of its
/// property, such as `"5"` to `5` for a number.
///
/// # Errors
///
/// Returns an error that names the property if a choice is not a string, if there are no choices,
/// if a default does not fit its property, or if the form is too large.
pub(super) fn complete(form: &mut Value) -> Result<(), StepError> {
    let properties = form.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        let Value::Object(property) = property else { continue };
        let failed = |what: &str, why: String| {
            Err(StepError::definition(format!("schema: `properties.{name}.{what}`: {why}")))
        };
        if let Err(why) = complete_choices(property) {
            return failed("enum", why);
        }
        if let Some(Value::Object(items)) = property.get_mut("items")
            && let Err(why) = complete_choices(items)
        {
            return failed("items.enum", why);
        }
        if let Err(why) = complete_default(property) {
            return failed("default", why);
        }
    }
    let bytes = json_bytes(&*form);
    if bytes > MAX_FORM_BYTES {
        let why = format!("schema: {bytes} bytes of JSON: expected at most {MAX_FORM_BYTES}");
        return Err(StepError::definition(why));
    }
    Ok(())
}

fn complete_choices(schema: &mut Map<String, Value>) -> Result<(), String> {
    let has_names = schema.contains_key("enumNames");
    let names = schema.get("enumNames").and_then(Value::as_array).map(Vec::len);
    let Some(choices) = schema.get_mut("enum") else { return Ok(()) };
    let Value::Array(choices) = choices else {
        return Err(match is_wrapped_array(choices) {
            true => format!("it is {WRAPPED_ARRAY}: expected {UNWRAPPED_ARRAY}"),
            false => format!("it is {}: expected an array of strings", kind(Some(choices))),
        });
    };
    if let Some(other) = choices.iter().find(|choice| !choice.is_string()) {
        return Err(format!("a choice is {}: expected a string", kind(Some(other))));
    }
    if choices.is_empty() {
        return Err("there are no choices: expected at least one".to_owned());
    }
    if has_names && names != Some(choices.len()) {
        let names = names.unwrap_or_default();
        return Err(format!("{names} names of {} choices: expected one for each", choices.len()));
    }
    if !has_names {
        let mut known = HashSet::new();
        choices.retain(|choice| known.insert(choice.clone()));
    }
    Ok(())
}

fn complete_default(property: &mut JsonObject) -> Result<(), String> {
    let Some(mut default) = property.remove("default").filter(|default| !default.is_null()) else {
        return Ok(());
    };
    let schema = InputSchema::new(Arc::new(property.clone()));
    schema.fit("", &mut default, drop).map_err(|refusal| refusal.reason())?;
    property.insert("default".to_owned(), default);
    Ok(())
}

// === impl Question ===

impl Question {
    /// Returns the JSON Schema of the form that was sent to the client. Returns `None` if the
    /// question has no form.
    pub(super) fn schema(&self) -> Option<InputSchema> {
        let InputRequest::Elicitation(request) = &self.request else { return None };
        let ElicitRequestParams::FormElicitationParams { requested_schema, .. } = &request.params
        else {
            return None;
        };
        match serde_json::to_value(requested_schema) {
            Ok(Value::Object(schema)) => Some(InputSchema::new(Arc::new(schema))),
            _ => None,
        }
    }
}
