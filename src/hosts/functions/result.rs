//! Conversion of the return values of functions to tool results.

use std::fmt::Display;

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::Value;

/// A value that a [function](super) can return as the result of a tool call.
///
/// | value | result |
/// |---|---|
/// | `String`, `&'static str` | text |
/// | a JSON object | structured content, and a text that mirrors it |
/// | a JSON string | its text |
/// | any other JSON | the JSON as text: older protocol versions only allow objects as structured content |
/// | `()` | no content |
/// | `CallToolResult` | unchanged |
/// | `Result` | for `Ok`, the result of the value; for `Err`, the text of the error, with `isError` |
///
/// If a function returns an `Err`, the tool result contains the `Display` output of the error. It
/// does not contain the error's [sources](std::error::Error::source).
pub trait IntoToolResult {
    /// Converts the return value of a function to the tool result that the caller receives.
    fn into_tool_result(self) -> CallToolResult;
}

// === impl IntoToolResult ===

impl IntoToolResult for CallToolResult {
    fn into_tool_result(self) -> CallToolResult {
        self
    }
}

impl IntoToolResult for String {
    fn into_tool_result(self) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::text(self)])
    }
}

impl IntoToolResult for &'static str {
    fn into_tool_result(self) -> CallToolResult {
        self.to_owned().into_tool_result()
    }
}

impl IntoToolResult for () {
    fn into_tool_result(self) -> CallToolResult {
        CallToolResult::success(Vec::new())
    }
}

impl IntoToolResult for Value {
    fn into_tool_result(self) -> CallToolResult {
        match self {
            Self::Object(_) => CallToolResult::structured(self),
            Self::String(text) => text.into_tool_result(),
            other => other.to_string().into_tool_result(),
        }
    }
}

impl<T: IntoToolResult, E: Display> IntoToolResult for Result<T, E> {
    fn into_tool_result(self) -> CallToolResult {
        match self {
            Ok(result) => result.into_tool_result(),
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error.to_string())]),
        }
    }
}
