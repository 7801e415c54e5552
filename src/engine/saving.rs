//! Stores the state of a run while the run is running, so that another process can continue it.

use std::task::{Context as TaskContext, Poll};

use futures::{FutureExt, future::BoxFuture};

use super::{meter::Used, scheduler::Progress, state::RunState};
use crate::message::checkpoint::CheckpointError;

/// The result of storing the state of a run.
pub(crate) type Saved = Result<(), CheckpointError>;

/// A function that serializes and stores the state of one run. Its arguments are the state, and the
/// resource usage of the whole call of the composite.
pub(crate) type SaveState = dyn Fn(&RunState, Used) -> BoxFuture<'static, Saved> + Send + Sync;

/// The progress of storing a run while it is running.
pub(crate) struct Saving {
    pub(super) store: Box<SaveState>,
    /// If `true`, the run has not stored a state yet, and therefore has not called a tool.
    pub(super) is_new: bool,
    /// The progress of the run when its state was last stored. `None` if it was not stored yet.
    pub(super) saved: Option<Progress>,
    /// The future that is storing a state. `None` if no state is being stored.
    pub(super) pending: Option<BoxFuture<'static, Saved>>,
    pub(super) failure: Option<Unsaved>,
}

/// The error of a run that ended because storing its state failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsaved {
    pub(crate) error: CheckpointError,
    /// If `true`, the run has not called a tool.
    pub(crate) is_new: bool,
}

// === impl Saving ===

impl Saving {
    /// Creates a value for a run. The function `store` stores the state of the run. `is_new` is
    /// `true` for a new run, and `false` for a run that resumes.
    pub(crate) fn new(store: Box<SaveState>, is_new: bool) -> Self {
        Self { store, is_new, saved: None, pending: None, failure: None }
    }

    /// Polls the pending attempt to store a state. Returns `Pending` if there is none.
    pub(super) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Saved> {
        let Some(pending) = &mut self.pending else { return Poll::Pending };
        let saved = pending.poll_unpin(cx);
        if saved.is_ready() {
            self.pending = None;
        }
        saved
    }
}
