//! Stores the state of a run while it runs, so that another process can continue the run.

use std::{
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use futures::{FutureExt, future::BoxFuture};

use super::{scheduler::Progress, scope::Used, state::RunState};
use crate::message::checkpoint::CheckpointError;

/// The result of storing a state.
pub(crate) type Saved = Result<(), CheckpointError>;

/// Stores the states of one run.
pub(crate) trait SaveState: Send + Sync {
    /// Serializes the state of the run, and stores it. `used` is the resource usage of the whole
    /// composite call.
    fn save(&self, state: &RunState, used: Used) -> BoxFuture<'static, Saved>;
}

/// The stored states of a run: which of them is stored, and which is being stored.
pub(crate) struct Saving {
    pub(super) store: Arc<dyn SaveState>,
    /// If `true`, the run has not stored a state yet, and so has called nothing.
    pub(super) is_new: bool,
    /// The progress of the state that was stored last. `None` if no state was stored.
    pub(super) saved: Option<Progress>,
    /// The future that stores a state. `None` if no state is being stored.
    pub(super) pending: Option<BoxFuture<'static, Saved>>,
    pub(super) failure: Option<Unsaved>,
}

/// A run that has ended because its state was not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsaved {
    pub(crate) error: CheckpointError,
    /// If `true`, the run has called nothing.
    pub(crate) is_new: bool,
}

// === impl Saving ===

impl Saving {
    /// Creates the value for a run whose states `store` stores. `is_new` is `true` if the run
    /// starts, and `false` if it resumes.
    pub(crate) fn new(store: Arc<dyn SaveState>, is_new: bool) -> Self {
        Self { store, is_new, saved: None, pending: None, failure: None }
    }

    /// Returns the result of storing a state. Returns `Pending` if no state is being stored.
    pub(super) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Saved> {
        let Some(pending) = &mut self.pending else { return Poll::Pending };
        let saved = pending.poll_unpin(cx);
        if saved.is_ready() {
            self.pending = None;
        }
        saved
    }
}
