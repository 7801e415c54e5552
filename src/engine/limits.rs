use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rmcp::model::CallToolResult;
use tokio::time::Instant;

use super::outcome::{ErrorKind, StepError};
use crate::message::size;

/// Longer than any run.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// What one call of a composite may use, everything nested in it included.
///
/// A limit that is hit fails the branch that hit it, with a text that names the
/// limit; the other branches are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    max_calls: usize,
    max_result_bytes: usize,
}

/// The time that a timeout leads to, also one that is as good as none.
pub(super) fn after(start: Instant, timeout: Duration) -> Instant {
    start.checked_add(timeout).unwrap_or_else(|| start + A_LIFETIME)
}

/// What a run and the runs nested in it share.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    meter: Arc<Meter>,
    limits: Limits,
    /// When the outermost run ends.
    pub(crate) deadline: Instant,
}

#[derive(Debug, Default)]
struct Meter {
    calls: AtomicUsize,
    result_bytes: AtomicUsize,
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
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_calls: 10_000, max_result_bytes: 4 << 20 }
    }
}

// === impl Scope ===

impl Scope {
    /// The scope of an outermost run that starts now.
    pub(crate) fn new(limits: Limits, timeout: Duration) -> Self {
        Self { meter: Arc::default(), limits, deadline: after(Instant::now(), timeout) }
    }

    /// The scope of a run nested in this one that starts now; it may end sooner
    /// but not later.
    pub(crate) fn nested(&self, timeout: Duration) -> Self {
        let deadline = after(Instant::now(), timeout);
        Self { deadline: self.deadline.min(deadline), ..self.clone() }
    }

    /// Counts a call.
    pub(super) fn count_call(&self) -> Result<(), String> {
        let max = self.limits.max_calls;
        match self.meter.calls.fetch_add(1, Ordering::Relaxed) {
            calls if calls < max => Ok(()),
            _ => Err(format!("the run made more calls than `max_calls` allows, which is {max}")),
        }
    }

    /// The answer of a tool, if the run may keep one so large.
    pub(crate) fn keep(
        &self,
        answer: Result<CallToolResult, StepError>,
    ) -> Result<CallToolResult, StepError> {
        let bytes = match &answer {
            Ok(result) => size::of_result(result),
            Err(error) => error.message.len() + error.data.as_ref().map_or(0, size::of_value),
        };
        let max = self.limits.max_result_bytes;
        let kept = &self.meter.result_bytes;
        let fits = |sum: usize| Some(sum.saturating_add(bytes)).filter(|&sum| sum <= max);
        match kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => answer,
            Err(_) => Err(StepError::new(
                ErrorKind::Limit,
                format!(
                    "an answer of {bytes} bytes is more than is left of `max_result_bytes`, which is {max}"
                ),
            )),
        }
    }
}
