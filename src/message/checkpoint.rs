//! Checkpoints: the state of a call that is stored while the call runs.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use rmcp::model::Extensions;

use super::Context;

/// The place where the run of a call stores its state, so that another process can continue the
/// run.
pub(crate) trait Checkpoint: Send + Sync {
    /// Returns the state that was stored last. Returns `None` if the run has not stored any, and so
    /// has called nothing.
    fn stored(&self) -> Option<Arc<[u8]>>;

    /// Stores the state of the run, and thereby replaces the previous one. Resolves when the state
    /// is durable.
    fn save(&self, state: Vec<u8>) -> BoxFuture<'_, Result<(), CheckpointError>>;
}

/// The reason why a state was not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointError {
    /// Another process has taken over the run. This run must end at once.
    Lost,
    /// The store failed, is full or not reachable. The text may be sent to clients.
    Failed(String),
}

/// The handle of a checkpoint in the extensions of a context.
#[derive(Clone)]
struct Handle(Arc<dyn Checkpoint>);

// === impl Context ===

impl Context {
    /// Sets the place where the run of this call stores its state.
    pub(crate) fn set_checkpoint(&mut self, checkpoint: Arc<dyn Checkpoint>) {
        self.extensions.insert(Handle(checkpoint));
    }

    /// Returns the place where the run of this call stores its state. Returns `None` if the run
    /// stores none.
    ///
    /// The contexts of branches and of nested requests have no checkpoint, because only the
    /// outermost run stores its state.
    pub(crate) fn checkpoint(&self) -> Option<&Arc<dyn Checkpoint>> {
        self.extensions.get().map(|Handle(checkpoint)| checkpoint)
    }

    /// Returns the extensions for the branches of this context, which have no checkpoint.
    pub(super) fn branch_extensions(&self) -> Arc<Extensions> {
        let shared = self.extensions.to_shared();
        if self.checkpoint().is_none() {
            return shared;
        }
        let mut extensions = Arc::unwrap_or_clone(shared);
        extensions.remove::<Handle>();
        Arc::new(extensions)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}
