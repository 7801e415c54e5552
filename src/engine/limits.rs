use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    caller::{Called, ToolReply},
    outcome::{ErrorKind, StepError},
};
use crate::message::size;

/// Longer than any run.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How long nothing moves before a run says that it still goes on.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// How much more memory than their texts the values may take together that are
/// read from results.
const PARSED_TIMES: usize = 16;

/// What one call of a composite may use, everything nested in it included.
///
/// A limit that is hit fails the branch that hit it, with a text that names the
/// limit; the other branches are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    max_calls: usize,
    max_result_bytes: usize,
    max_rounds: usize,
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
    /// How long nothing moves before it says that it still goes on; never, if zero.
    pub(super) heartbeat: Duration,
    /// Why nothing more may be asked, if nothing may.
    pub(crate) closed: Option<Arc<str>>,
}

/// What a run has used, when it is put away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Used {
    calls: usize,
    result_bytes: usize,
    parsed_bytes: usize,
}

#[derive(Debug, Default)]
struct Meter {
    calls: AtomicUsize,
    result_bytes: AtomicUsize,
    parsed_bytes: AtomicUsize,
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
        Self { max_calls: 10_000, max_result_bytes: 4 << 20, max_rounds: 10 }
    }
}

impl Limits {
    /// Tells that a run asks once more than it may.
    pub(crate) fn check_rounds(self, rounds: usize) -> Result<(), String> {
        let max = self.max_rounds;
        if rounds <= max {
            return Ok(());
        }
        Err(format!("the run asks more often than `max_rounds` allows, which is {max}"))
    }
}

// === impl Scope ===

impl Scope {
    /// The scope of an outermost run that starts now.
    pub(crate) fn new(limits: Limits, timeout: Duration) -> Self {
        Self::resumed(limits, timeout, Used::default())
    }

    /// The scope of an outermost run that goes on now, has used this much and may
    /// take this long.
    pub(crate) fn resumed(limits: Limits, timeout: Duration, used: Used) -> Self {
        let meter = Meter {
            calls: used.calls.into(),
            result_bytes: used.result_bytes.into(),
            parsed_bytes: used.parsed_bytes.into(),
        };
        let deadline = after(Instant::now(), timeout);
        Self { meter: Arc::new(meter), limits, deadline, heartbeat: HEARTBEAT, closed: None }
    }

    /// Says why nothing more may be asked.
    pub(crate) fn closed(self, why: Option<Arc<str>>) -> Self {
        Self { closed: why, ..self }
    }

    pub(crate) const fn heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = every;
        self
    }

    /// What has been used.
    pub(crate) fn used(&self) -> Used {
        Used {
            calls: self.meter.calls.load(Ordering::Relaxed),
            result_bytes: self.meter.result_bytes.load(Ordering::Relaxed),
            parsed_bytes: self.meter.parsed_bytes.load(Ordering::Relaxed),
        }
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
    pub(crate) fn keep(&self, answer: Called) -> Called {
        let bytes = match &answer {
            Ok(ToolReply::Result(result)) => size::of_result(result),
            Ok(ToolReply::Asks(questions)) => questions.size(),
            Err(error) => error.message.len() + error.data.as_ref().map_or(0, size::of_value),
        };
        self.count_bytes("an answer", bytes)?;
        answer
    }

    /// Counts a value that the run makes itself, and which stays until it ends, like
    /// the answer of a tool.
    ///
    /// # Errors
    ///
    /// Returns that nothing so large may be kept.
    pub(crate) fn keep_made(&self, value: &Value) -> Result<(), StepError> {
        self.count_bytes("a value", size::of_value(value))
    }

    /// Counts the memory of a value that is read from the text of an answer.
    pub(super) fn count_parsed(&self, bytes: usize) -> Result<(), StepError> {
        let max = self.limits.max_result_bytes;
        let parsed = &self.meter.parsed_bytes;
        let most = max.saturating_mul(PARSED_TIMES);
        let fits = |sum: usize| Some(sum.saturating_add(bytes)).filter(|&sum| sum <= most);
        match parsed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(StepError::new(
                ErrorKind::Limit,
                format!(
                    "the values of texts would take more than {PARSED_TIMES} times `max_result_bytes`, which is {max}"
                ),
            )),
        }
    }

    fn count_bytes(&self, what: &str, bytes: usize) -> Result<(), StepError> {
        let max = self.limits.max_result_bytes;
        let kept = &self.meter.result_bytes;
        let fits = |sum: usize| Some(sum.saturating_add(bytes)).filter(|&sum| sum <= max);
        match kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(StepError::new(
                ErrorKind::Limit,
                format!(
                    "{what} of {bytes} bytes is more than is left of `max_result_bytes`, which is {max}"
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolResult, ContentBlock};
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_and_values_that_are_made_count_together() {
        let scope = Scope::new(Limits::default().max_result_bytes(20), Duration::from_secs(1));
        let answer = CallToolResult::success(vec![ContentBlock::text("0123456789")]);
        assert!(scope.keep(Ok(answer.into())).is_ok());
        let expected =
            "a value of 11 bytes is more than is left of `max_result_bytes`, which is 20";
        let refused = scope.keep_made(&json!("01234567890"));
        assert_eq!(refused, Err(StepError::new(ErrorKind::Limit, expected)));
        assert_eq!(scope.nested(Duration::from_secs(1)).keep_made(&json!("0123456789")), Ok(()));
        assert!(scope.keep_made(&json!(null)).is_err());
    }
}
