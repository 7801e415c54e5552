//! JSON values in a file that are used as they are written, such as defaults and schemas.

use rmcp::model::JsonObject;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The string that represents null in a configuration file, as in expressions. TOML itself has no
/// null.
const NULL: &str = "$null";
/// The string that represents the text `$null` in a configuration file.
const ESCAPED_NULL: &str = "$$null";

/// A JSON value from a configuration file in which expressions are not evaluated. Each string
/// `$null` in it was replaced by null, and each string `$$null` by `$null`. Keys are unchanged.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Literal<T>(T);

/// A JSON value in which the string `$null` can represent null.
pub(super) trait Texts {
    /// Replaces each string `$null` in the value by null, and each string `$$null` by `$null`. Does
    /// not replace keys.
    fn replace_nulls(&mut self);
}

// === impl Literal ===

impl<T> Literal<T> {
    pub(super) fn into_inner(self) -> T {
        self.0
    }
}

impl<'de, T: Deserialize<'de> + Texts> Deserialize<'de> for Literal<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = T::deserialize(deserializer)?;
        value.replace_nulls();
        Ok(Self(value))
    }
}

#[cfg(test)]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Literal<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}

// === impl Texts ===

impl Texts for Value {
    fn replace_nulls(&mut self) {
        match self {
            Self::String(text) if text == NULL => *self = Self::Null,
            Self::String(text) if text == ESCAPED_NULL => NULL.clone_into(text),
            Self::Array(elements) => elements.iter_mut().for_each(Texts::replace_nulls),
            Self::Object(members) => members.replace_nulls(),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => (),
        }
    }
}

impl Texts for JsonObject {
    fn replace_nulls(&mut self) {
        self.values_mut().for_each(Texts::replace_nulls);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_written_as_a_text() {
        for (written, expected) in [
            (json!("$null"), json!(null)),
            (json!("$$null"), json!("$null")),
            (json!("$$$null"), json!("$$$null")),
            (json!("null"), json!("null")),
            (json!("$null?"), json!("$null?")),
            (
                json!({ "$null": ["$null", { "a": "$$null" }], "b": [1, true, "$input"] }),
                json!({ "$null": [null, { "a": "$null" }], "b": [1, true, "$input"] }),
            ),
        ] {
            let value = serde_json::from_value::<Literal<Value>>(written.clone()).unwrap();
            assert_eq!(value.into_inner(), expected, "{written}");
        }
    }
}
