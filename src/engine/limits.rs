use std::time::Duration;

use tokio::time::Instant;

/// Longer than any run.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How many tools one call of a composite may call, unless it is said otherwise.
const MAX_CALLS: usize = 10_000;
/// How large their answers may be together, unless it is said otherwise.
const MAX_RESULT_BYTES: usize = 4 << 20;
/// How often a run may stop to ask, unless it is said otherwise.
const MAX_ROUNDS: usize = 10;
/// How long nothing moves before a run says that it still goes on.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// What one call of a composite may use, everything nested in it included.
///
/// A limit that is hit fails the branch that hit it, with a text that names the
/// limit; the other branches are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(super) max_calls: usize,
    pub(super) max_result_bytes: usize,
    max_rounds: usize,
}

/// The time that a timeout leads to, also one that is as good as none.
pub(super) fn after(start: Instant, timeout: Duration) -> Instant {
    start.checked_add(timeout).unwrap_or_else(|| start + A_LIFETIME)
}

/// What one composite may use, each time it runs, everything nested in it included.
///
/// Other than with [`Limits`], what is reached ends the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunLimits {
    pub(crate) max_calls: Option<usize>,
    pub(crate) max_result_bytes: Option<usize>,
    pub(crate) max_cost: Option<u64>,
}

// === impl Limits ===

impl Limits {
    /// How many tools may be called; 10 000 by default.
    #[must_use]
    pub const fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls;
        self
    }

    /// How large the answers of the tools may be together, in bytes of their
    /// texts, data and values; 4 MiB by default.
    ///
    /// The answer of the composite can be larger: its report repeats the texts
    /// of tools that have no structured content.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.max_result_bytes = bytes;
        self
    }

    /// How often a run may stop to ask, each time all that can be asked then; 10
    /// by default, which is as often as clients go along by themselves.
    #[must_use]
    pub const fn max_rounds(mut self, rounds: usize) -> Self {
        self.max_rounds = rounds;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_calls: MAX_CALLS, max_result_bytes: MAX_RESULT_BYTES, max_rounds: MAX_ROUNDS }
    }
}

impl Limits {
    /// The size of the answers of tools in a run with these limits of its own.
    pub(crate) fn result_bytes(self, own: RunLimits) -> usize {
        own.max_result_bytes.map_or(self.max_result_bytes, |max| max.min(self.max_result_bytes))
    }

    /// Tells that a run asks once more than it may.
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
    /// Whether there is none.
    pub(crate) const fn is_empty(self) -> bool {
        self.max_calls.is_none() && self.max_result_bytes.is_none() && self.max_cost.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_that_a_clock_can_show_lasts_a_lifetime() {
        let (now, day) = (Instant::now(), Duration::from_secs(86_400));
        assert_eq!(after(now, Duration::MAX) - now, day * 36_500);
        assert_eq!(after(now, day), now + day);
    }
}
