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
}

// === impl Finally ===

impl Finally {
    /// Creates the default settings.
    #[must_use]
    pub const fn new() -> Self {
        Self { grace: GRACE }
    }

    /// Sets the time that the finally steps of the run have, from the end of the other steps.
    /// Defaults to 30 seconds. If several finally steps set a time, the longest one applies to all.
    #[must_use]
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
}

impl Default for Finally {
    fn default() -> Self {
        Self::new()
    }
}
