//! Finally steps, which run after the outcome of a run is decided, for example to clean up.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{branches::BranchId, meter::Reached, step_set::StepSet};

/// The default maximum duration of all finally steps of a run.
const GRACE: Duration = Duration::from_secs(30);

/// The settings of a finally step. A finally step of a pipeline or workflow runs after all other
/// steps, for example to delete a temporary branch. It runs whatever the outcome of the run is:
/// success, failure, timeout, a limit, a question that the user declined, or a
/// [`Stop`](crate::composite::Stop).
///
/// To make a step a finally step, pass the settings to
/// [`Step::finally`](crate::composite::Step::finally).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finally {
    /// The time limit for all finally steps of the run together. If several steps set one, the
    /// longest applies.
    pub(crate) grace: Duration,
    /// Whether the step also runs after the client has cancelled the call of the composite.
    pub(crate) on_cancel: bool,
}

/// The outcome of a run before its finally steps, which cannot change it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Settled {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) failed: Option<usize>,
    #[serde(default)]
    pub(super) timed_out: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) ended_by: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) reached: Option<Reached>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) skipped_elements: Vec<BranchId>,
}

// === impl Finally ===

impl Finally {
    /// Creates the default settings: the finally steps have 30 seconds in total, and do not run if
    /// the call of the composite is cancelled.
    #[must_use]
    pub const fn new() -> Self {
        Self { grace: GRACE, on_cancel: false }
    }

    /// Sets the maximum total duration of the finally steps of a run, measured from the end of the
    /// other steps. Defaults to 30 seconds. If several finally steps set a duration, the longest
    /// one applies to all of them.
    ///
    /// The finally steps start when all calls that the run has cancelled have ended. If a tool
    /// keeps its thread busy, this can take some time. The run then waits for it, for this duration
    /// at most.
    #[must_use]
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets whether the finally step also runs if the call of the composite is cancelled, for
    /// example because the client cancels it or disconnects. Defaults to `false`.
    ///
    /// After the cancellation, the finally steps run in a separate Tokio task, at most for the
    /// [grace](Self::grace) period. The number of such tasks is
    /// [limited](crate::composite::CancelledRuns::with_max_runs). These steps cannot ask the user
    /// questions. Their results are only logged and reported to [observers](crate::observe). To
    /// wait for such tasks before the process ends, call
    /// [`CancelledRuns::finished`](crate::composite::CancelledRuns::finished).
    ///
    /// A call that is cancelled before its first step has started, or while it waits for the user's
    /// answer to a question, ends without running its finally steps.
    #[must_use]
    pub const fn on_cancel(mut self, on_cancel: bool) -> Self {
        self.on_cancel = on_cancel;
        self
    }

    /// Returns the note that marks a finally step in a preview or a diagram.
    pub(crate) const fn note(on_cancel: bool) -> &'static str {
        if on_cancel { "finally, also after a cancellation" } else { "finally" }
    }
}

impl Default for Finally {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Settled ===

impl Settled {
    /// Returns `true` if all steps of this outcome, such as the failed step, are in `finished`.
    /// Used to reject invalid stored states.
    pub(super) fn fits(&self, finished: StepSet) -> bool {
        let steps = [self.failed, self.ended_by].into_iter().flatten();
        steps
            .chain(self.skipped_elements.iter().map(|id| id.step))
            .all(|step| { finished }.any(|it| it == step))
    }
}
