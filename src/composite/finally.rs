//! Steps that run after the outcome of a run is decided.

use std::time::Duration;

/// The default time for the finally steps of a run.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// The settings of a finally step, which runs after all other steps whatever the outcome of the
/// run: success, failure, timeout, a limit, a question that the user declined, or a
/// [`Stop`](super::Stop).
///
/// See [`Step::finally`](super::Step::finally).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finally {
    pub(crate) grace: Duration,
    pub(crate) on_cancel: bool,
}

// === impl Finally ===

impl Finally {
    /// Creates the default settings.
    #[must_use]
    pub const fn new() -> Self {
        Self { grace: GRACE, on_cancel: false }
    }

    /// Sets the time that the finally steps of the run have, from the end of the other steps.
    /// Defaults to 30 seconds. If several finally steps set a time, the longest one applies to all.
    #[must_use]
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets whether the step also runs if the call of the composite is cancelled: by the client, by
    /// a lost connection, by the end of an outer run, or by dropping the future of the call.
    /// Defaults to `false`.
    ///
    /// A cancelled call has no task any more, so these steps run in a Tokio task of their own,
    /// without a connection to the client. They cannot ask the user, and their results are only
    /// logged and [observed](crate::observe). The task ends after the [grace](Self::grace) period.
    /// See [`CancelledRuns`](super::CancelledRuns) for how to wait for it before the process ends.
    ///
    /// Nothing runs if the call had not started its first step yet, or if the run was waiting for
    /// the user's answer.
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
