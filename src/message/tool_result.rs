//! A tool result that stays in the [`Reply`] with which it arrived.

use std::ops::{Deref, DerefMut};

use rmcp::model::{CallToolResult, ServerResult};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Reply;

/// The result of a `tools/call` request, which stays in the [`Reply`] with which it arrived.
///
/// A `ToolResult` is only as large as a pointer, so that it is cheap to move.
#[derive(Clone, Debug)]
pub(crate) struct ToolResult(
    // Always contains a `CallToolResult`, which `of` and `from` ensure.
    Reply,
);

// === impl ToolResult ===

impl ToolResult {
    /// Converts a reply to a tool result.
    ///
    /// # Errors
    ///
    /// Returns the unchanged reply if it contains no tool result.
    pub(crate) fn of(reply: Reply) -> Result<Self, Reply> {
        match reply.result() {
            Some(ServerResult::CallToolResult(_)) => Ok(Self(reply)),
            _ => Err(reply),
        }
    }

    pub(crate) fn into_inner(self) -> CallToolResult {
        match self.0.into_result() {
            Ok(ServerResult::CallToolResult(result)) => result,
            _ => unreachable!("it is the result of a tool"),
        }
    }
}

impl From<CallToolResult> for ToolResult {
    fn from(result: CallToolResult) -> Self {
        Self(result.into())
    }
}

impl Deref for ToolResult {
    type Target = CallToolResult;

    fn deref(&self) -> &CallToolResult {
        match self.0.result() {
            Some(ServerResult::CallToolResult(result)) => result,
            _ => unreachable!("it is the result of a tool"),
        }
    }
}

impl DerefMut for ToolResult {
    fn deref_mut(&mut self) -> &mut CallToolResult {
        match self.0.result_mut() {
            Some(ServerResult::CallToolResult(result)) => result,
            _ => unreachable!("it is the result of a tool"),
        }
    }
}

impl PartialEq for ToolResult {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Serialize for ToolResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        CallToolResult::deserialize(deserializer).map(Self::from)
    }
}
