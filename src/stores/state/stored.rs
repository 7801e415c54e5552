use std::time::Duration;

use futures::future::BoxFuture;

use super::{PutError, StateStore, TakeError, signed::TTL};
use crate::expiring_store::{ExpiringStore, Share, WhenFull};

/// How large a state may be, unless it is said otherwise.
const MAX_STATE_BYTES: usize = 4 * 1024 * 1024;
/// How large all may be together, unless it is said otherwise.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;
/// Number of callers that can fill their shares at once, by default.
const CALLER_SHARES: usize = 4;

/// States that this process keeps, each of which can be taken once.
///
/// Clients get handles that nobody can guess. So they cannot read a state, it can be
/// large, and it is gone when it is taken: no question is answered twice. It is
/// also gone when the process ends, and another process does not have it: it is for
/// one process, or behind a load balancer that sends a client always to the same.
///
/// A state that was put in stays until it is taken or expires; when there is no more
/// room, no further one is put in.
///
/// The states of one caller take at most the caller's [share](Self::max_caller_bytes), so that
/// others can still suspend runs.
#[derive(Debug)]
pub struct StoredState(ExpiringStore);

// === impl StoredState ===

impl StoredState {
    /// Keeps states for an hour, of up to 4 MiB, of 64 MiB together, and of 16 MiB for each
    /// caller.
    #[must_use]
    pub fn new() -> Self {
        let share = Share::Part(CALLER_SHARES);
        Self(ExpiringStore::new(TTL, MAX_STATE_BYTES, MAX_TOTAL_BYTES, share, WhenFull::Refuse))
    }

    /// Sets how long a state may wait for a person; an hour by default.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = ttl;
        self
    }

    /// Sets how large a state may be; 4 MiB by default.
    #[must_use]
    pub const fn max_state_bytes(mut self, bytes: usize) -> Self {
        self.0.max_item_bytes = bytes;
        self
    }

    /// Sets how large all states may be together; 64 MiB by default. Each counts half
    /// a KiB besides itself.
    #[must_use]
    pub const fn max_total_bytes(mut self, bytes: usize) -> Self {
        self.0.max_total_bytes = bytes;
        self
    }

    /// Sets the maximum size of the states of one caller, counted like all states. Defaults to
    /// a quarter of [`max_total_bytes`](Self::max_total_bytes).
    ///
    /// Callers are known if the composite layer has a
    /// [`caller`](crate::composite::CompositeLayer::caller) function; all requests for which it
    /// returns `None` count as one caller. Without such a function there is no share.
    #[must_use]
    pub const fn max_caller_bytes(mut self, bytes: usize) -> Self {
        self.0.max_caller_bytes = Share::Bytes(bytes);
        self
    }
}

impl Default for StoredState {
    fn default() -> Self {
        Self::new()
    }
}

impl StateStore for StoredState {
    fn put<'a>(
        &'a self,
        state: Vec<u8>,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(async move { Ok(self.0.put(state, binding, None)?) })
    }

    fn put_for<'a>(
        &'a self,
        state: Vec<u8>,
        binding: &'a [u8],
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(async move { Ok(self.0.put(state, binding, Some(caller))?) })
    }

    fn take<'a>(
        &'a self,
        text: &'a str,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(async move { Ok(self.0.take(text, binding)?) })
    }

    fn max_bytes(&self) -> Option<usize> {
        Some(self.0.max_item_bytes.min(self.0.max_total_bytes))
    }
}
