//! The `[vars]` section, which defines variables for expressions.

use std::{collections::BTreeMap, mem};

use serde_json::{Map, Value};

use super::{literal::Literal, read::Reader};
use crate::{adapter::Secrets, composite::Segment, expr::Variables};

pub(super) const SECTION: &str = "vars";
/// The key of a variable's value, as in `{ value = "…", secret = true }`.
const VALUE: &str = "value";
/// The key that marks a variable as secret, as in `{ value = "…", secret = true }`.
const SECRET: &str = "secret";

/// The minimum length of a secret, in characters. Shorter secrets are rejected, because they cannot
/// be removed from logs.
const MIN_SECRET: usize = 4;

/// The variables that the section `[vars]` of a configuration file defines.
#[derive(Clone, Debug, Default)]
pub(super) struct Vars {
    pub(super) variables: Variables,
    /// The values of the secret variables.
    pub(super) secrets: Secrets,
}

/// Converts the section `[vars]` to variables. Reports invalid variables to `reader`, and omits
/// them.
pub(super) fn build(table: BTreeMap<String, Literal<Value>>, reader: &mut Reader<'_, '_>) -> Vars {
    let mut variables = Variables::new();
    let mut secrets = Vec::new();
    for (name, value) in table {
        let mut at = vec![SECTION.into(), Segment::Key(name.clone())];
        let (mut value, is_secret) = match value.into_inner() {
            Value::Object(members) => {
                let Some(parts) = parts(members, &at, reader) else { continue };
                at.push(VALUE.into());
                parts
            }
            value => (value, false),
        };
        if expand(&mut value, &at, reader).is_none() {
            continue;
        }
        if !is_secret {
            variables = variables.with(name, value);
        } else if let Value::String(text) = value
            && text.chars().count() >= MIN_SECRET
        {
            secrets.push(text.clone());
            variables = variables.with_secret(name, text.into());
        } else {
            let message =
                format!("a secret variable must be a text with at least {MIN_SECRET} characters");
            reader.report(&at, message);
        }
    }
    Vars { variables, secrets: Secrets::new(secrets) }
}

/// Reads a variable that is defined by a table, such as `{ value = "…", secret = true }`. Returns
/// its value, and `true` if it is secret. If the table is invalid, reports the error and returns
/// `None`.
fn parts(
    mut table: Map<String, Value>,
    at: &[Segment],
    reader: &mut Reader<'_, '_>,
) -> Option<(Value, bool)> {
    let value = table.remove(VALUE);
    let is_secret = table.remove(SECRET);
    let within = |key: &str| [at, &[key.into()]].concat();
    if let Some(key) = table.keys().next() {
        let expected = "expected `value` and `secret`; write an object as `{ value = { … } }`";
        reader.report(&within(key), format!("unknown key of a variable: {expected}"));
    } else if value.is_none() {
        reader.report(at, format!("missing key `{VALUE}`"));
    }
    let is_secret = match is_secret {
        None => false,
        Some(Value::Bool(is_secret)) => is_secret,
        Some(_) => {
            reader.report(&within(SECRET), format!("`{SECRET}` must be `true` or `false`"));
            return None;
        }
    };
    Some((value?, is_secret)).filter(|_| table.is_empty())
}

/// Replaces each `${VAR}` in the strings of a JSON value with the value of the environment variable
/// `VAR`. Also replaces the variables in the strings of nested arrays and objects. `at` is the path
/// of the variable. Reports the first error, and returns `None` for it.
fn expand(value: &mut Value, at: &[Segment], reader: &mut Reader<'_, '_>) -> Option<()> {
    match value {
        Value::String(text) => *text = reader.expand(at, mem::take(text))?.value,
        Value::Array(elements) => {
            elements.iter_mut().try_for_each(|element| expand(element, at, reader))?;
        }
        Value::Object(members) => {
            members.values_mut().try_for_each(|member| expand(member, at, reader))?;
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
    Some(())
}
