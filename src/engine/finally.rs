//! Finally steps, which run after the outcome of a run is decided, for example to clean up.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{branches::BranchId, meter::Reached, step_set::StepSet};

/// The settings of a finally step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finally {
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
    /// Returns the note that marks a finally step in a preview or a diagram.
    pub(crate) const fn note(on_cancel: bool) -> &'static str {
        if on_cancel { "finally, also after a cancellation" } else { "finally" }
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
