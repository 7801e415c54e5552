//! Stores the state of a run before its steps start, so that another process can continue the run.

use super::Run;
use crate::engine::{
    caller::Caller,
    saving::{Saved, Saving, Unsaved},
    scheduler::Pause,
    state::RunState,
};

// === impl Run ===

impl<C: Caller> Run<'_, C> {
    /// Makes the run store its state before it starts a step, and whenever it has made progress.
    /// With `None`, the run is not stored.
    pub(crate) fn set_saving(&mut self, saving: Option<Box<Saving>>) {
        if saving.is_some() {
            self.scheduler.keep_arguments();
        }
        self.saving = saving;
    }

    /// Returns the reason if the run has ended because storing its state failed.
    pub(crate) fn unsaved(&self) -> Option<&Unsaved> {
        self.saving.as_ref()?.failure.as_ref()
    }

    /// Returns `true` while the state of the run is being stored. No step starts during this time.
    pub(super) fn is_saving(&self) -> bool {
        self.saving.as_ref().is_some_and(|saving| saving.pending.is_some())
    }

    #[inline]
    pub(super) fn must_save(&mut self) -> bool {
        self.saving.is_some() && self.has_progress() && self.scheduler.must_store(self.now)
    }

    fn has_progress(&self) -> bool {
        let saved = self.saving.as_ref().and_then(|saving| saving.saved);
        saved.is_none_or(|saved| self.scheduler.progress().is_beyond(saved))
    }

    /// Starts to store the state of the run, and pauses the run until this has ended.
    pub(super) fn save(&mut self) {
        let watched = self.scheduler.effects.watching.as_ref().map(|watching| watching.id());
        let Some(saving) = &mut self.saving else { return };
        let (spent, used) = (self.scope.spent(), self.scope.used());
        let save = |state: &RunState| (saving.store)(state, used);
        let pending = self.scheduler.with_stored_state(spent, watched, self.now, save);
        saving.pending = Some(pending);
        saving.saved = Some(self.scheduler.progress());
        self.pause = Pause::Wait;
    }

    /// Continues the run after its state was stored. Ends the run if storing the state failed.
    pub(super) fn handle_saved(&mut self, saved: Saved) {
        let Some(saving) = &mut self.saving else { return };
        match saved {
            Ok(()) => {
                saving.is_new = false;
                self.resume();
            }
            Err(error) => {
                saving.failure = Some(Unsaved { error, is_new: saving.is_new });
                let ended = self.scheduler.abandon(self.now);
                self.execute(ended);
            }
        }
    }
}
