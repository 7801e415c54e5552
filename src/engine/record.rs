//! The record of a step: the data that expressions can read.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The data of a step that expressions can read, except for its status.
///
/// If the tool result of the step is also stored, the record contains only data that cannot be read
/// from that result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The output of the step. `None` if no expression reads the output, or if it can be read
    /// elsewhere: from the structured content of the stored tool result, or from `content`.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "present")]
    pub(super) output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) content: Option<Value>,
    /// The content blocks of the step's result, as an array. `None` if no expression reads them
    /// here. Boxed because expressions rarely read them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) blocks: Option<Box<Value>>,
    /// The text of the step's output. `None` if no expression reads the text, or if `content`
    /// contains it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) text: Option<Value>,
    /// The error of the step as the JSON value that expressions read, so that reading it copies no
    /// data. `None` if no expression reads the error here.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) error: Option<Value>,
}

/// Deserializes a member that is present in the JSON object. Returns `Some(Value::Null)` for a null
/// member. The default of serde for an `Option` is `None`.
pub(super) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Joins lines to a single string. Returns `None` if the string is empty.
pub(super) fn joined(lines: impl Iterator<Item = String>) -> Option<Value> {
    let lines: Vec<_> = lines.collect();
    Some(lines.join("\n")).filter(|text| !text.is_empty()).map(Value::from)
}

// === impl Record ===

impl Record {
    /// Returns the output of the step. If the record has none, builds a text from `content`, with a
    /// placeholder such as `[image_0]` for each block that is not text.
    pub(super) fn into_output(self) -> Option<Value> {
        let texts = || {
            let content = self.content?;
            let lines = content.as_object()?.iter().map(|(key, value)| match value.as_str() {
                Some(text) if key.starts_with("text") => text.to_owned(),
                _ => format!("[{key}]"),
            });
            joined(lines)
        };
        self.output.or_else(texts).or(self.text)
    }
}
