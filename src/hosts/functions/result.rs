use std::fmt::Display;

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::Value;

/// What a function may give.
///
/// | given | becomes |
/// |---|---|
/// | `String`, `&'static str` | a text |
/// | a JSON object | the structured content, and a text that mirrors it |
/// | a JSON string | its text |
/// | any other JSON | a text of it: structured content has long been objects only |
/// | `()` | no content |
/// | `CallToolResult` | what it is |
/// | `Result` | what it holds; an error its text, as a result that is an error |
///
/// Of an error only its own text is told, not what caused it.
pub trait IntoToolResult {
    /// Makes it the result of a tool.
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
