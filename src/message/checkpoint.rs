//! Stores the state of a call while the call is running, so that another process can continue it.

use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::model::Extensions;

use super::{Context, journal};

/// Stores the state of one call of a composite.
pub(crate) trait Checkpoint: Send + Sync {
    /// Returns the last stored state. Returns `None` if the run has not stored a state, and
    /// therefore has not called a tool.
    fn stored(&self) -> Option<Arc<[u8]>>;

    /// Stores the state of the run, which replaces the previous one. The future completes when the
    /// state is durable.
    fn save(&self, state: Vec<u8>) -> BoxFuture<'_, Result<(), CheckpointError>>;
}

/// The reason why storing a state failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointError {
    /// Another process has taken over the run, so that this one must end immediately.
    Lost,
    /// The store failed, is full or is not reachable. Clients may see this message.
    Failed(String),
}

#[derive(Clone)]
struct Handle(Arc<dyn Checkpoint>);

// === impl Context ===

impl Context {
    /// Sets the store for the state of this call.
    pub(crate) fn set_checkpoint(&mut self, checkpoint: Arc<dyn Checkpoint>) {
        self.extensions.insert(Handle(checkpoint));
    }

    /// Returns the store for the state of this call. Returns `None` if the state is not stored.
    ///
    /// The contexts of steps and of nested requests have no checkpoint, because only the outermost
    /// run stores its state.
    pub(crate) fn checkpoint(&self) -> Option<&Arc<dyn Checkpoint>> {
        self.extensions.get().map(|Handle(checkpoint)| checkpoint)
    }

    /// Returns the extensions for the branches of this context, which have neither a checkpoint nor
    /// a journal.
    pub(super) fn branch_extensions(&self) -> Arc<Extensions> {
        let shared = self.extensions.to_shared();
        if self.checkpoint().is_none() && self.journal().is_none() {
            return shared;
        }
        let mut extensions = Arc::unwrap_or_clone(shared);
        extensions.remove::<Handle>();
        journal::remove(&mut extensions);
        Arc::new(extensions)
    }
}
