//! Replies to MCP requests.

use std::{borrow::Cow, sync::Arc};

use rmcp::model::{
    CallToolResult, CreateTaskResult, ErrorCode, ErrorData, InputRequiredResult, ListToolsResult,
    ServerCapabilities, ServerResult,
};

use super::{ItemKind, Refusal, content_size};

/// A server's reply to an MCP request: a result, a JSON-RPC error, or a [`Refusal`] by a layer.
///
/// Replies are cheap to clone. Clones share the content, and copy it only when one of them is
/// modified.
///
/// # Examples
///
/// ```
/// use mcp_composite::message::Reply;
/// use rmcp::model::{CallToolResult, ContentBlock, ErrorData};
///
/// let reply = Reply::from(CallToolResult::success(vec![ContentBlock::text("12")]));
/// assert_eq!(reply.tool_result().unwrap().is_error, Some(false));
///
/// let reply = Reply::from(ErrorData::internal_error("out of order", None));
/// assert_eq!(reply.error().unwrap().message, "out of order");
/// assert!(reply.into_result().is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Reply(
    // In an `Arc`, because every layer moves the reply, and results are large. The `Arc` also
    // allows several callers to receive the same result.
    Arc<Body>,
);

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one allocation around it, and results are the rule"
)]
enum Body {
    Result(ServerResult),
    Error(ErrorData),
    Refused(Refusal),
}

/// A reply to a `tools/call` request, for matching on all kinds of replies.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ToolAnswer {
    /// The result of the tool. If the tool failed, `isError` is set.
    Result(CallToolResult),
    /// The tool needs input from the client before it can return a result.
    InputRequired(InputRequiredResult),
    /// The tool continues in the background, as an MCP task with this id.
    Task(String),
    /// The server has answered the call with a JSON-RPC error.
    Error(ErrorData),
    /// A layer rejected the call before it reached the tool.
    Refused(Refusal),
    /// The reply is a result of another type, which is invalid for `tools/call`.
    Invalid,
}

// === impl Body ===

impl Clone for Body {
    // A reply is rarely copied, because its clones share it. Not inlined, so that mutable access
    // to a reply that is not shared stays small.
    #[cold]
    #[inline(never)]
    fn clone(&self) -> Self {
        match self {
            Self::Result(result) => Self::Result(result.clone()),
            Self::Error(error) => Self::Error(error.clone()),
            Self::Refused(refusal) => Self::Refused(refusal.clone()),
        }
    }
}

// === impl Reply ===

impl Reply {
    /// Creates the reply to a call of a tool that does not exist or is hidden from the client. The
    /// reply is a [`Refusal`].
    pub fn unknown_tool(tool: impl Into<Cow<'static, str>>) -> Self {
        Self::unknown(ItemKind::Tool, tool)
    }

    /// Creates the reply to a request for an item, such as a tool or resource, that does not exist
    /// or is hidden from the client. The reply is a [`Refusal`].
    pub fn unknown(kind: ItemKind, name: impl Into<Cow<'static, str>>) -> Self {
        Refusal::Unknown { kind, name: name.into() }.into()
    }

    /// Creates the JSON-RPC error that replies to a [malformed](super::Request::is_malformed)
    /// request. `method` is the MCP method of the request.
    #[must_use]
    pub fn malformed(method: &str) -> Self {
        ErrorData::invalid_params(format!("malformed `{method}`"), None).into()
    }

    /// Creates the reply to a request whose method the server does not support: the JSON-RPC error
    /// "method not found".
    pub fn method_not_found(method: impl Into<Cow<'static, str>>) -> Self {
        ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.into(), None).into()
    }

    /// Returns the JSON-RPC error for the client. Converts a [`Refusal`] to a JSON-RPC error.
    ///
    /// Returns `None` for a result, even if the tool failed (`isError`).
    #[must_use]
    pub fn error(&self) -> Option<Cow<'_, ErrorData>> {
        match &*self.0 {
            Body::Result(_) => None,
            Body::Error(error) => Some(Cow::Borrowed(error)),
            Body::Refused(refusal) => Some(Cow::Owned(refusal.to_error())),
        }
    }

    /// Returns the refusal if a layer rejected the request. Returns `None` for a result or a
    /// JSON-RPC error.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match &*self.0 {
            Body::Refused(refusal) => Some(refusal),
            Body::Result(_) | Body::Error(_) => None,
        }
    }

    /// Returns a mutable reference to the refusal if a layer rejected the request. Returns `None`
    /// for a result or a JSON-RPC error.
    pub fn refusal_mut(&mut self) -> Option<&mut Refusal> {
        match Arc::make_mut(&mut self.0) {
            Body::Refused(refusal) => Some(refusal),
            Body::Result(_) | Body::Error(_) => None,
        }
    }

    /// Returns the MCP result. Returns `None` for a JSON-RPC error or a refusal.
    #[must_use]
    #[inline]
    pub fn result(&self) -> Option<&ServerResult> {
        match &*self.0 {
            Body::Result(result) => Some(result),
            Body::Error(_) | Body::Refused(_) => None,
        }
    }

    /// Returns a mutable reference to the MCP result. Returns `None` for a JSON-RPC error or a
    /// refusal.
    pub fn result_mut(&mut self) -> Option<&mut ServerResult> {
        match Arc::make_mut(&mut self.0) {
            Body::Result(result) => Some(result),
            Body::Error(_) | Body::Refused(_) => None,
        }
    }

    /// Returns the server capabilities in the reply to `initialize` or `server/discover`. Returns
    /// `None` for all other replies.
    pub(crate) fn capabilities_mut(&mut self) -> Option<&mut ServerCapabilities> {
        match self.result_mut()? {
            ServerResult::InitializeResult(result) => Some(&mut result.capabilities),
            ServerResult::DiscoverResult(result) => Some(&mut result.capabilities),
            _ => None,
        }
    }

    /// Adds the `tools` capability to the reply to `initialize` or `server/discover`. Does not
    /// change other replies.
    pub(crate) fn declare_tools(&mut self) {
        if let Some(capabilities) = self.capabilities_mut() {
            capabilities.tools.get_or_insert_default();
        }
    }

    /// Replaces the JSON-RPC error "method not found" with an empty tool list. A server without
    /// tools returns this error for `tools/list`. Layers can then add tools.
    pub(crate) fn list_missing_tools(&mut self) {
        if self.is_method_not_found() {
            *self = ListToolsResult::default().into();
        }
    }

    pub(crate) fn is_method_not_found(&self) -> bool {
        matches!(&*self.0, Body::Error(error) if error.code == ErrorCode::METHOD_NOT_FOUND)
    }

    /// Returns the page of a tool list. Returns `None` if the reply is not a tool list.
    #[must_use]
    pub fn tools(&self) -> Option<&ListToolsResult> {
        match self.result()? {
            ServerResult::ListToolsResult(list) => Some(list),
            _ => None,
        }
    }

    /// Returns a mutable reference to the page of a tool list. Returns `None` if the reply is not a
    /// tool list.
    pub fn tools_mut(&mut self) -> Option<&mut ListToolsResult> {
        match self.result_mut()? {
            ServerResult::ListToolsResult(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the result of a tool call. Returns `None` for other replies, such as an error, a
    /// refusal, a task, or a request for input.
    #[must_use]
    pub fn tool_result(&self) -> Option<&CallToolResult> {
        match self.result()? {
            ServerResult::CallToolResult(result) => Some(result),
            _ => None,
        }
    }

    /// Returns a mutable reference to the result of a tool call. Returns `None` for other replies.
    pub fn tool_result_mut(&mut self) -> Option<&mut CallToolResult> {
        match self.result_mut()? {
            ServerResult::CallToolResult(result) => Some(result),
            _ => None,
        }
    }

    /// Returns `true` if the reply is a request for input from the client (`InputRequired`).
    pub(crate) fn asks(&self) -> bool {
        matches!(&*self.0, Body::Result(ServerResult::InputRequiredResult(_)))
    }

    /// Returns the [approximate size](content_size) of the reply, in bytes. Returns zero unless it
    /// is a tool result, a result of an unknown type, or a JSON-RPC error.
    pub(crate) fn size(&self) -> usize {
        match &*self.0 {
            Body::Result(ServerResult::CallToolResult(result)) => content_size::of_result(result),
            // rmcp returns a custom result if it could not parse the result.
            Body::Result(ServerResult::CustomResult(result)) => content_size::of_value(&result.0),
            Body::Error(error) => {
                error.message.len() + error.data.as_ref().map_or(0, content_size::of_value)
            }
            Body::Result(_) | Body::Refused(_) => 0,
        }
    }

    /// Converts the reply to the result type of rmcp's request handlers.
    ///
    /// # Errors
    ///
    /// Returns the JSON-RPC error of the reply. Converts a refusal to a JSON-RPC error.
    pub fn into_result(self) -> Result<ServerResult, ErrorData> {
        match Arc::unwrap_or_clone(self.0) {
            Body::Result(result) => Ok(result),
            Body::Error(error) => Err(error),
            Body::Refused(refusal) => Err(refusal.to_error()),
        }
    }

    /// Converts the reply to a [`ToolAnswer`], for matching on all kinds of replies to
    /// `tools/call`.
    #[must_use]
    pub fn into_tool_answer(self) -> ToolAnswer {
        match Arc::unwrap_or_clone(self.0) {
            Body::Result(ServerResult::CallToolResult(result)) => ToolAnswer::Result(result),
            Body::Result(ServerResult::InputRequiredResult(result)) => {
                ToolAnswer::InputRequired(result)
            }
            Body::Result(ServerResult::CreateTaskResult(CreateTaskResult { task, .. })) => {
                ToolAnswer::Task(task.task_id)
            }
            // A result of another type, or a result that rmcp could not parse.
            Body::Result(_) => ToolAnswer::Invalid,
            Body::Error(error) => ToolAnswer::Error(error),
            Body::Refused(refusal) => ToolAnswer::Refused(refusal),
        }
    }

    fn from_answer(answer: Body) -> Self {
        Self(Arc::new(answer))
    }
}

impl From<ServerResult> for Reply {
    fn from(result: ServerResult) -> Self {
        Self::from_answer(Body::Result(result))
    }
}

impl From<CallToolResult> for Reply {
    fn from(result: CallToolResult) -> Self {
        ServerResult::CallToolResult(result).into()
    }
}

impl From<ListToolsResult> for Reply {
    fn from(result: ListToolsResult) -> Self {
        ServerResult::ListToolsResult(result).into()
    }
}

impl From<ErrorData> for Reply {
    fn from(error: ErrorData) -> Self {
        Self::from_answer(Body::Error(error))
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::from_answer(Body::Refused(refusal))
    }
}

impl From<Result<ServerResult, ErrorData>> for Reply {
    fn from(answer: Result<ServerResult, ErrorData>) -> Self {
        match answer {
            Ok(result) => result.into(),
            Err(error) => error.into(),
        }
    }
}
