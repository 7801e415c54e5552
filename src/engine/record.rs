//! The record of a step: the data that expressions can read, such as its output.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The data of a step that expressions can read, such as its output. Excludes the status. Excludes
/// data that can be read from the tool result of the step, if the result is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `None` if no expression reads the output, or if it can be read from the structured content
    /// of the stored tool result or from `content`.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "present")]
    pub(super) output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) content: Option<Value>,
    /// The content blocks of the tool result, as an array. `None` if no expression reads them, or
    /// if they can be read from the stored tool result. Boxed because expressions rarely read them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) blocks: Option<Box<Value>>,
    /// `None` if no expression reads the text, or if `content` contains it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) text: Option<Value>,
    /// The error of the step as a JSON object, so that expressions read it without a copy. `None`
    /// if no expression reads it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) error: Option<Value>,
}

/// Deserializes null to `Some(Value::Null)`. By default, serde deserializes it to `None`.
pub(super) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Joins lines with line breaks. Returns `None` if the text is empty.
pub(super) fn joined(lines: impl Iterator<Item = String>) -> Option<Value> {
    let lines: Vec<_> = lines.collect();
    Some(lines.join("\n")).filter(|text| !text.is_empty()).map(Value::from)
}

// === impl Record ===

impl Record {
    /// Returns the output of the step. Without an output, returns the texts in `content`, with a
    /// placeholder such as `[image_0]` for each other block.
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
