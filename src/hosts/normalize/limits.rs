//! Limits on the tool calls of a model.

use super::call::{MalformedKind, Problem};
use crate::message::MAX_JSON_DEPTH;

/// Default maximum size in bytes of the arguments of one call, or of a text that is searched for
/// calls.
const MAX_ARGUMENT_BYTES: usize = 1 << 20;
/// Default maximum number of calls in one model response.
const MAX_PARSED_CALLS: usize = 128;

/// Limits on the size, depth and number of tool calls that are parsed from a model's output.
///
/// ```
/// use mcp_composite::normalize::{ParseLimits, MalformedKind, Provider};
/// use serde_json::json;
///
/// let output = json!([{ "type": "tool_use", "id": "a", "name": "f", "input": { "x": [[1]] } }]);
/// let limits = ParseLimits::new().max_depth(2);
/// let calls = Provider::Anthropic.calls_within(&output, &limits)?;
/// let malformed = calls[0].as_ref().unwrap_err();
/// assert_eq!(malformed.kind(), MalformedKind::OverLimit);
/// assert_eq!(malformed.message(), "the arguments have more than 2 levels of nesting");
/// # Ok::<_, mcp_composite::normalize::OutputError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseLimits {
    pub(super) max_bytes: usize,
    pub(super) max_depth: usize,
    pub(super) max_calls: usize,
}

// === impl ParseLimits ===

impl ParseLimits {
    /// Creates the default limits: 1 MiB, 128 levels of nesting and 128 calls.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            max_bytes: MAX_ARGUMENT_BYTES,
            max_depth: MAX_JSON_DEPTH,
            max_calls: MAX_PARSED_CALLS,
        }
    }

    /// Sets the maximum size in bytes of the arguments of one call, and of a text that is searched
    /// for calls. Defaults to 1 MiB.
    #[must_use]
    pub const fn max_bytes(self, bytes: usize) -> Self {
        Self { max_bytes: bytes, ..self }
    }

    /// Sets the maximum nesting depth of call arguments, including the arguments object: `{"x": 1}`
    /// has one level. Defaults to 128, which is also the highest possible value. Arguments in a
    /// JSON string can have at most 127 levels.
    #[must_use]
    pub const fn max_depth(self, levels: usize) -> Self {
        Self { max_depth: if levels < MAX_JSON_DEPTH { levels } else { MAX_JSON_DEPTH }, ..self }
    }

    /// Sets the maximum number of calls in one model response. Defaults to 128. Each further call
    /// is malformed. If the model writes its calls as text, all further calls together are reported
    /// as one malformed call.
    #[must_use]
    pub const fn max_calls(self, calls: usize) -> Self {
        Self { max_calls: calls, ..self }
    }

    /// Returns the maximum number of calls that are read from a text: one more than `max_calls`.
    /// The additional call becomes a malformed call, which represents all further calls in the
    /// text.
    pub(super) const fn found_in_text(&self) -> usize {
        self.max_calls.saturating_add(1)
    }

    pub(super) fn too_large(&self) -> Problem {
        let message = format!("the arguments have more than {} bytes", self.max_bytes);
        Problem::new(MalformedKind::OverLimit, message)
    }

    pub(super) fn too_deep(&self) -> Problem {
        let message = format!("the arguments have more than {} levels of nesting", self.max_depth);
        Problem::new(MalformedKind::OverLimit, message)
    }

    pub(super) fn too_many(&self) -> Problem {
        let message = format!("an answer may have at most {} calls", self.max_calls);
        Problem::new(MalformedKind::OverLimit, message)
    }
}

impl Default for ParseLimits {
    fn default() -> Self {
        Self::new()
    }
}
