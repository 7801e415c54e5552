//! Limits of runs.

use std::time::Duration;

use tokio::time::Instant;

/// A duration longer than any run.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The default maximum number of tool calls of one composite call.
const MAX_RUN_CALLS: usize = 10_000;
/// The default maximum size of their answers together.
const MAX_RUN_RESULT_BYTES: usize = 4 << 20;
/// The default maximum number of rounds of questions.
const MAX_ROUNDS: usize = 10;
/// The time without progress after which a run sends a heartbeat.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// The resource limits of one composite call, including all nested runs.
///
/// Reaching a limit fails the branch that reached it, with a message that names the limit; the
/// other branches are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(super) max_calls: usize,
    pub(super) max_result_bytes: usize,
    max_rounds: usize,
}

/// Returns the deadline of a timeout; a timeout that overflows becomes a very distant deadline.
pub(super) fn after(start: Instant, timeout: Duration) -> Instant {
    start.checked_add(timeout).unwrap_or_else(|| start + A_LIFETIME)
}

/// The resource limits of each run of one composite, including all nested runs.
///
/// Unlike with [`Limits`], reaching a limit ends the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunLimits {
    pub(crate) max_calls: Option<usize>,
    pub(crate) max_result_bytes: Option<usize>,
    pub(crate) max_cost: Option<u64>,
}

// === impl Limits ===

impl Limits {
    /// Sets the maximum number of tool calls. Defaults to 10 000.
    #[must_use]
    pub const fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls;
        self
    }

    /// Sets the maximum size of the answers of the tools together, in bytes of their texts, data
    /// and values. Defaults to 4 MiB.
    ///
    /// The answer of the composite can be larger: its report repeats the texts of tools that have
    /// no structured content.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.max_result_bytes = bytes;
        self
    }

    /// Sets the maximum number of rounds of questions; a round has all questions that can be asked
    /// at that time. Defaults to 10, the number of rounds that clients handle automatically.
    #[must_use]
    pub const fn max_rounds(mut self, rounds: usize) -> Self {
        self.max_rounds = rounds;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_calls: MAX_RUN_CALLS,
            max_result_bytes: MAX_RUN_RESULT_BYTES,
            max_rounds: MAX_ROUNDS,
        }
    }
}

impl Limits {
    /// Returns the maximum size of the answers of tools in a run with these limits of its own.
    pub(crate) fn result_bytes(self, own: RunLimits) -> usize {
        own.max_result_bytes.map_or(self.max_result_bytes, |max| max.min(self.max_result_bytes))
    }

    /// Returns an error if the run exceeds the maximum number of rounds.
    pub(crate) fn check_rounds(self, rounds: usize) -> Result<(), String> {
        let max = self.max_rounds;
        if rounds <= max {
            return Ok(());
        }
        Err(format!("the run asks more often than `max_rounds` allows, which is {max}"))
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
