//! The settings of finally steps, which run after all other steps of a run.

use std::time::Duration;

/// The default maximum duration of all finally steps of a run.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// The settings of a finally step. A finally step of a pipeline or workflow runs after all other
/// steps, for example to delete a temporary branch. It runs whatever the outcome of the run is:
/// success, failure, timeout, a limit, a question that the user declined, or a
/// [`Stop`](super::Stop).
///
/// To make a step a finally step, pass the settings to [`Step::finally`](super::Step::finally).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finally {
    pub(crate) grace: Duration,
    pub(crate) on_cancel: bool,
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
    /// [limited](super::CancelledRuns::with_max_runs). These steps cannot ask the user questions.
    /// Their results are only logged and reported to [observers](crate::observe). To wait for such
    /// tasks before the process ends, call
    /// [`CancelledRuns::finished`](super::CancelledRuns::finished).
    ///
    /// A call that is cancelled before its first step has started, or while it waits for the user's
    /// answer to a question, ends without running its finally steps.
    #[must_use]
    pub const fn on_cancel(mut self, on_cancel: bool) -> Self {
        self.on_cancel = on_cancel;
        self
    }
}

impl Default for Finally {
    fn default() -> Self {
        Self::new()
    }
}
