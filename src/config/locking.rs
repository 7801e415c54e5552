//! Creates a lock from the tool definitions that the backends currently return.

use std::fmt;

use futures::future::join_all;

use super::Backends;
use crate::{
    adapter::RemoteService,
    catalog::{self, ListError},
    lock::{Ambiguous, Lock},
    message::Context,
    warnings::sanitize::{Reason, Sanitized},
};

/// The error returned if the tools of a backend cannot be added to a [lock](crate::lock), a list of
/// approved tool definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockingError(Kind);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Kind {
    #[error("backend `{}` is not connected: {}", Sanitized(backend), Reason(reason))]
    NotConnected { backend: String, reason: String },
    #[error("backend `{}` does not list its tools: {}", Sanitized(backend), Reason(error))]
    NotListed { backend: String, error: ListError },
    #[error("{0}")]
    Ambiguous(Ambiguous),
}

// === impl Backends ===

impl Backends {
    /// Requests the tool lists of all backends, and returns a [lock](crate::lock) with the current
    /// tool definitions. The definitions are those of the backends, without changes by the layers
    /// of the file.
    ///
    /// # Errors
    ///
    /// Returns an error if a backend cannot be connected or does not list its tools, or if it lists
    /// several tools with the same name and different definitions.
    pub async fn lock_tools(&self) -> Result<Lock, LockingError> {
        let mut lock = Lock::new();
        for (remote, tools) in
            self.remotes().iter().zip(join_all(self.remotes().iter().map(list)).await)
        {
            let tools = tools?;
            for tool in tools.iter().chain(tools.shadowed()) {
                let pinned = lock.pin(remote.name(), tool);
                pinned.map_err(|error| LockingError(Kind::Ambiguous(error)))?;
            }
        }
        Ok(lock)
    }
}

async fn list(remote: &RemoteService) -> Result<catalog::Tools, LockingError> {
    let backend = || remote.name().to_owned();
    remote
        .connected()
        .await
        .map_err(|reason| LockingError(Kind::NotConnected { backend: backend(), reason }))?;
    let listed = catalog::list_all(remote.clone(), Context::default()).await;
    listed.map_err(|error| LockingError(Kind::NotListed { backend: backend(), error }))
}

// === impl LockingError ===

impl fmt::Display for LockingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for LockingError {}
