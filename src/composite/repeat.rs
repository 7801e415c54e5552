//! Steps that repeat a call until a condition holds.

use std::time::Duration;

use serde_json::{Value, json};

use super::{encoding::encode_duration, tool_call::ToolCall};

/// The default of [`Repeat::max_iterations`]: the maximum number of iterations of a repeated call.
const REPETITIONS: usize = 100;
/// The default upper bound of a delay that grows with each iteration.
pub(super) const MAX_REPEAT_DELAY: Duration = Duration::from_secs(60);

/// A loop that calls a tool until a condition holds, such as one that polls a job or reads all
/// pages of a list.
///
/// In the arguments of the call, `$last` refers to the output of the previous iteration, and
/// `$index` to the number of previous iterations. In the first iteration, `$last` is absent, so a
/// reference to it must be optional (`$last.cursor?`) or have a default. In the condition `until`,
/// `$last` is the output of the iteration that has just ended.
///
/// The output of the step is an object with these members:
/// - `last`: the output of the last iteration
/// - `iterations`: an array with an object for each iteration. The object has the members `index`,
///   `status`, and `output` or `error`.
/// - `count`: the number of iterations
///
/// The step fails if an iteration fails, if the condition cannot be evaluated, or if the condition
/// is still false after the maximum number of iterations. With
/// [`OnError::Retry`](super::OnError::Retry), the call of each iteration is retried. The
/// [`timeout`](super::Step::timeout) of the step limits the whole loop, including delays. Without a
/// timeout, each call has 5 minutes.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use mcp_composite::composite::{CompositeLayer, CompositeTool, Repeat, Step, ToolCall};
/// use serde_json::json;
///
/// let status = ToolCall::new("job_status").arguments(json!({ "job": "$steps.start.output.id" }));
/// let wait = Repeat::new(status, "last.state == 'done'")
///     .delay(Duration::from_secs(1))
///     .backoff(2.0)
///     .max_delay(Duration::from_secs(30));
/// let export = CompositeTool::pipeline(
///     "export",
///     "Exports a report",
///     [
///         Step::new("start", ToolCall::new("start_job").arguments(json!({ "report": "$input.report" }))),
///         Step::new("wait", wait).timeout(Duration::from_secs(600)),
///         Step::new("result", ToolCall::new("job_result").arguments(json!({ "at": "$prev.last.url" }))),
///     ],
/// );
///
/// assert!(CompositeLayer::new([export]).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    pub(crate) call: ToolCall,
    pub(crate) until: String,
    pub(crate) delay: Duration,
    pub(crate) backoff: f64,
    pub(crate) max_delay: Option<Duration>,
    pub(crate) max_iterations: usize,
}

// === impl Repeat ===

impl Repeat {
    /// The value of `type` in a configuration file for a step that repeats a call.
    pub(crate) const TYPE: &'static str = "repeat";

    /// Creates a loop that makes `call` until the condition `until` is true. The condition is
    /// written like the [condition](super::Step::condition) of a step.
    pub fn new(call: impl Into<ToolCall>, until: impl Into<String>) -> Self {
        Self {
            call: call.into(),
            until: until.into(),
            delay: Duration::ZERO,
            backoff: 1.0,
            max_delay: None,
            max_iterations: REPETITIONS,
        }
    }

    /// Sets the delay between the end of an iteration and the start of the next one. Defaults to
    /// none.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the factor by which the delay grows with each iteration, from 1 to 100. Defaults to 1,
    /// so that all delays are equal.
    #[must_use]
    pub const fn backoff(mut self, factor: f64) -> Self {
        self.backoff = factor;
        self
    }

    /// Sets the upper bound of a growing delay. Defaults to 60 seconds, or to the
    /// [`delay`](Self::delay) if it is longer.
    #[must_use]
    pub const fn max_delay(mut self, max_delay: Duration) -> Self {
        self.max_delay = Some(max_delay);
        self
    }

    /// Sets the maximum number of iterations, after which the step fails. Defaults to 100, and must
    /// be at most 1000.
    #[must_use]
    pub const fn max_iterations(mut self, max_iterations: usize) -> Self {
        self.max_iterations = max_iterations;
        self
    }

    /// Encodes all settings as JSON. The fingerprint of the composite is computed from them.
    pub(super) fn encode(&self) -> Value {
        let Self { call, until, delay, backoff, max_delay, max_iterations } = self;
        json!({
            "call": call.encode(),
            "until": until,
            "delay": encode_duration(*delay),
            "backoff": backoff.to_bits(),
            "max_delay": max_delay.map(encode_duration),
            "max_iterations": max_iterations,
        })
    }
}
