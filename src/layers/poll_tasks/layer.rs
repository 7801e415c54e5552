//! The layer that waits for the tasks of a server.

use std::{fmt, sync::Arc};

use crate::{
    message::{Context, ContextKey},
    store::{DefaultStore, Store},
};

/// Layer that waits for the tasks of a server, so that its tools always return results.
///
/// See the [module docs](crate::poll_tasks) for a description and an example.
#[derive(Clone, Debug)]
pub struct PollTasksLayer {
    pub(super) settings: Settings,
}

#[derive(Clone)]
pub(super) struct Settings {
    /// The name of the server. Identifies the server in error messages and in stored states.
    pub(super) name: Arc<str>,
    /// Stores the states of tasks that wait for answers.
    pub(super) state: Arc<dyn Store>,
    pub(super) caller: Option<ContextKey>,
}

// === impl PollTasksLayer ===

impl PollTasksLayer {
    /// Creates a layer for the server with the given name. Errors contain the name. Servers that
    /// share a [`state`](Self::state) store must have different names.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let state = Arc::new(DefaultStore::ephemeral());
        Self { settings: Settings { name: name.into(), state, caller: None } }
    }

    /// Sets the store for the states of tasks that wait for a user's answers. A state contains the
    /// ID of the task.
    ///
    /// By default, this process stores nothing: the caller receives the state,
    /// [encrypted](crate::store::SealedStore::ephemeral) with a random key of this process or,
    /// without the feature `sealed`, [signed](crate::store::SignedStore::ephemeral). If any replica
    /// must be able to continue with the answers, use a store that all replicas share, or one with
    /// the same keys in all replicas.
    #[must_use]
    pub fn state(mut self, store: impl Store + 'static) -> Self {
        self.settings.state = Arc::new(store);
        self
    }

    /// Sets the function that identifies the caller of a request, such as a user. Only the caller
    /// that started a task can answer its questions.
    ///
    /// By default, all requests are treated as if they came from a single caller. This also applies
    /// to all requests for which the function returns `None`.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.settings.caller = Some(Arc::new(caller));
        self
    }
}

// === impl Settings ===

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("name", &self.name)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
