//! Decides the outcome of a run before its finally steps, and restores it after them.

use std::mem;

use super::{finally::Settled, state::RunState};

// === impl RunState ===

impl RunState {
    /// Returns `true` if the outcome of the run is decided, and only finally steps remain.
    pub(crate) const fn is_settled(&self) -> bool {
        self.settled.is_some()
    }

    /// Decides the outcome of the run when all steps except the finally steps have ended. Saves the
    /// outcome until [`restore_outcome`](Self::restore_outcome).
    pub(super) fn settle(&mut self) {
        self.settled.get_or_insert_with(|| {
            Box::new(Settled {
                failed: self.failed.take(),
                timed_out: mem::take(&mut self.timed_out),
                ended_by: self.ended_by.take(),
                reached: self.reached.take(),
                skipped_elements: mem::take(&mut self.skipped_elements),
            })
        });
    }

    /// Restores the saved outcome of the run after the finally steps have ended.
    pub(super) fn restore_outcome(&mut self) {
        if let Some(settled) = self.settled.take() {
            let Settled { failed, timed_out, ended_by, reached, skipped_elements } = *settled;
            self.failed = failed;
            self.timed_out = timed_out;
            self.ended_by = ended_by;
            self.reached = reached;
            self.skipped_elements = skipped_elements;
        }
    }
}
