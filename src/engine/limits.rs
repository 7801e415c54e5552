//! The resource limits of runs.

use std::time::Duration;

use tokio::time::Instant;

/// The duration that replaces a timeout whose end cannot be represented: 100 years.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The default maximum number of tool calls in one call of a composite, including the calls of
/// nested runs.
const MAX_RUN_CALLS: usize = 10_000;
/// The default maximum total size of the tool results in one call of a composite, in bytes.
const MAX_RUN_RESULT_BYTES: usize = 4 << 20;
/// The default maximum number of rounds in which one call of a composite asks the user questions.
const MAX_ROUNDS: usize = 10;
/// The default interval between heartbeats. A heartbeat is a progress notification that a run
/// without progress sends, so that the client's request does not time out.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// The limits on the resources that one call of a composite tool may use: the number of tool calls,
/// the total size of their results, and the rounds of questions to the user. If the composite calls
/// other composites, their calls are included.
///
/// If a target, step or loop element would exceed one of these limits, it fails with an error that
/// names the limit. The other parts of the composite continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    pub(super) max_calls: usize,
    pub(super) max_result_bytes: usize,
    max_rounds: usize,
}

/// Returns the time at which a timeout that starts at `start` expires. If this time cannot be
/// represented, returns a time 100 years after `start`.
pub(super) fn after(start: Instant, timeout: Duration) -> Instant {
    start.checked_add(timeout).unwrap_or_else(|| start + A_LIFETIME)
}

/// The limits that a composite sets for each of its runs, such as `max_calls`. The tool calls of
/// nested runs count toward these limits too. Unset limits are `None`.
///
/// A run ends when it reaches one of these limits. A limit of [`CallLimits`], in contrast, only
/// fails the step that would exceed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunLimits {
    pub(crate) max_calls: Option<usize>,
    pub(crate) max_result_bytes: Option<usize>,
    pub(crate) max_cost: Option<u64>,
}

// === impl CallLimits ===

impl CallLimits {
    /// Sets the maximum number of tool calls in one call of a composite. Defaults to 10 000.
    #[must_use]
    pub const fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls;
        self
    }

    /// Sets the maximum total size, in bytes, of the tool results that one call of a composite may
    /// receive. The size of a result is the size of its texts, binary data and JSON values.
    /// Defaults to 4 MiB.
    ///
    /// The result of a composite can be larger than `max_result_bytes`, because its report may
    /// repeat texts of the tool results.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.max_result_bytes = bytes;
        self
    }

    /// Sets the maximum number of rounds of questions to the client in one call of a composite. In
    /// one round, the client receives all questions that are pending at that time. Defaults to 10,
    /// because MCP clients automatically handle up to 10 rounds.
    #[must_use]
    pub const fn max_rounds(mut self, rounds: usize) -> Self {
        self.max_rounds = rounds;
        self
    }
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            max_calls: MAX_RUN_CALLS,
            max_result_bytes: MAX_RUN_RESULT_BYTES,
            max_rounds: MAX_ROUNDS,
        }
    }
}

impl CallLimits {
    /// Returns the maximum total size of a run's tool results, in bytes: the lower one of the limit
    /// on the whole call and of the run's own limit in `own`.
    pub(crate) fn result_bytes(self, own: RunLimits) -> usize {
        own.max_result_bytes.map_or(self.max_result_bytes, |max| max.min(self.max_result_bytes))
    }

    /// Returns an error if `rounds` is greater than the maximum number of rounds of questions.
    pub(crate) fn check_rounds(self, rounds: usize) -> Result<(), String> {
        let max = self.max_rounds;
        if rounds <= max {
            return Ok(());
        }
        Err(format!("the run asked more than {max} times (`max_rounds`)"))
    }
}

// === impl RunLimits ===

impl RunLimits {
    /// Returns `true` if no limit is set.
    pub(crate) const fn is_empty(self) -> bool {
        self.max_calls.is_none() && self.max_result_bytes.is_none() && self.max_cost.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflowing_deadline_is_a_century_away() {
        let (now, day) = (Instant::now(), Duration::from_secs(86_400));
        assert_eq!(after(now, Duration::MAX) - now, day * 36_500);
        assert_eq!(after(now, day), now + day);
    }
}
