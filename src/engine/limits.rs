//! The resource limits of runs.

use std::time::Duration;

use tokio::time::Instant;

/// Replaces timeouts that are too long to represent the time at which they expire.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Default of [`CallLimits::max_calls`].
const MAX_RUN_CALLS: usize = 10_000;
/// Default of [`CallLimits::max_result_bytes`].
const MAX_RUN_RESULT_BYTES: usize = 4 << 20;
/// Default of [`CallLimits::max_rounds`].
const MAX_ROUNDS: usize = 10;
/// The default interval between heartbeats. A heartbeat is a progress notification for the client
/// of a run that makes no other progress, so that its request does not time out.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// Limits for one call of a composite: the number of tool calls, the total size of their results,
/// and the rounds of questions to the user. The tool calls of nested composites are included.
///
/// If a step or loop element would exceed one of these limits, it fails with an error that names
/// the limit. The other parts of the composite continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    pub(super) max_calls: usize,
    pub(super) max_result_bytes: usize,
    max_rounds: usize,
}

/// Returns `start + timeout`, or a time 100 years after `start` if the sum cannot be represented.
pub(super) fn after(start: Instant, timeout: Duration) -> Instant {
    start.checked_add(timeout).unwrap_or_else(|| start + A_LIFETIME)
}

/// The limits in the definition of a composite, such as `max_calls`. They apply to each run of the
/// composite, with the tool calls of nested runs. `None` means unlimited.
///
/// A run ends when it reaches one of these limits. [`CallLimits`], in contrast, fail only the step
/// that would exceed them.
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
    /// Returns the maximum total size of a run's tool results, in bytes. This is the lower one of
    /// `self.max_result_bytes` and the limit of the run in `own`.
    pub(crate) fn result_bytes(self, own: RunLimits) -> usize {
        own.max_result_bytes.map_or(self.max_result_bytes, |max| max.min(self.max_result_bytes))
    }

    /// Returns an error if `rounds` is greater than `max_rounds`.
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
