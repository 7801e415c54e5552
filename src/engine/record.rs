//! The record of a step: its data for expressions.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The data of a step that expressions may read, besides its status.
///
/// It does not repeat data of the step's result, if that is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `None` also if it is the structured content of a kept result, or the same as `content`.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "present")]
    pub(super) output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) content: Option<Value>,
    /// `None` also if it is part of `content`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) text: Option<Value>,
    /// The error of the step as it is read, so that reading it copies no data.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) error: Option<Value>,
}

/// Deserializes a value that is present, even if it is null.
pub(super) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Joins the lines, or returns `None` if the text is empty.
pub(super) fn joined(lines: impl Iterator<Item = String>) -> Option<Value> {
    let lines: Vec<_> = lines.collect();
    Some(lines.join("\n")).filter(|text| !text.is_empty()).map(Value::from)
}

// === impl Record ===

impl Record {
    /// Returns the output, or the texts of the content and the names of its other parts.
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
