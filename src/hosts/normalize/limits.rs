use super::call::{MalformedKind, Problem};
use crate::message::MAX_LEVELS;

/// How many bytes arguments, or a text with calls in it, may have, unless it is said
/// otherwise.
const MAX_BYTES: usize = 1 << 20;
/// How many calls are read, unless it is said otherwise.
const MAX_CALLS: usize = 128;

/// How much of what a model wrote is read.
///
/// ```
/// use mcp_composite::normalize::{Limits, MalformedKind, Provider};
/// use serde_json::json;
///
/// let output = json!([{ "type": "tool_use", "id": "a", "name": "f", "input": { "x": [[1]] } }]);
/// let limits = Limits::new().max_depth(2);
/// let calls = Provider::Anthropic.calls_within(&output, &limits)?;
/// let malformed = calls[0].as_ref().unwrap_err();
/// assert_eq!(malformed.kind(), MalformedKind::OverLimit);
/// assert_eq!(malformed.message(), "the arguments have more than 2 levels of nesting");
/// # Ok::<_, mcp_composite::normalize::OutputError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(super) max_bytes: usize,
    pub(super) max_depth: usize,
    pub(super) max_calls: usize,
}

// === impl Limits ===

impl Limits {
    /// 1 MiB, 128 levels and 128 calls.
    #[must_use]
    pub const fn new() -> Self {
        Self { max_bytes: MAX_BYTES, max_depth: MAX_LEVELS, max_calls: MAX_CALLS }
    }

    /// Sets how many bytes the arguments of a call may have, and a text in which calls
    /// are looked for; 1 MiB by default.
    #[must_use]
    pub const fn max_bytes(self, bytes: usize) -> Self {
        Self { max_bytes: bytes, ..self }
    }

    /// Sets how many levels of arrays and objects the arguments of a call may have,
    /// themselves included; 128 by default, and at most. Of JSON in a text, one less is
    /// read.
    #[must_use]
    pub const fn max_depth(self, levels: usize) -> Self {
        Self { max_depth: if levels < MAX_LEVELS { levels } else { MAX_LEVELS }, ..self }
    }

    /// Sets how many calls are read of one answer; 128 by default. The others are
    /// malformed; those in a text, which are not answered by their ids, are all one.
    #[must_use]
    pub const fn max_calls(self, calls: usize) -> Self {
        Self { max_calls: calls, ..self }
    }

    /// How many calls are looked for in a text: those that are read, and one more that
    /// stands for all the others.
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

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}
