//! An in-memory store of states.

use std::time::Duration;

use futures::future::BoxFuture;

use super::{PutError, StateStore, TakeError, signed::TTL};
use crate::expiring_store::{ExpiringStore, Share, WhenFull};

/// The default maximum size of a state.
const MAX_STATE_BYTES: usize = 4 * 1024 * 1024;
/// The default maximum size of all states.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;
/// The number of callers that can fill their shares at once, by default.
const CALLER_SHARES: usize = 4;

/// An in-memory store of states, each of which can be taken once.
///
/// Clients get random handles, so they cannot read a state, and it can be large. A state is removed
/// when it is taken: no question can be answered twice. It is lost when the process ends, and is
/// not available to other processes: use this for one process, or behind a load balancer with
/// session affinity.
///
/// A stored state stays until it is taken or expires; when the store is full, new states are
/// rejected.
///
/// The states of one caller take at most the caller's [share](Self::max_caller_bytes), so that
/// others can still suspend runs.
#[derive(Debug)]
pub struct StoredState(ExpiringStore);

// === impl StoredState ===

impl StoredState {
    /// Creates a store that keeps states for an hour, of up to 4 MiB each, 64 MiB together and 16
    /// MiB per caller.
    #[must_use]
    pub fn new() -> Self {
        let share = Share::Part(CALLER_SHARES);
        Self(ExpiringStore::new(TTL, MAX_STATE_BYTES, MAX_TOTAL_BYTES, share, WhenFull::Refuse))
    }

    /// Sets the time after which a state expires. Defaults to an hour.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = ttl;
        self
    }

    /// Sets the maximum size of a state. Defaults to 4 MiB.
    #[must_use]
    pub const fn max_state_bytes(mut self, bytes: usize) -> Self {
        self.0.max_item_bytes = bytes;
        self
    }

    /// Sets the maximum size of all states. Each counts half a KiB in addition to its own size.
    /// Defaults to 64 MiB.
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
