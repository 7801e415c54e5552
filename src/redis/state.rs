//! A state store in Redis.

use std::time::Duration;

use futures::future::BoxFuture;

use super::expiring_store::{RedisExpiringStore, Times};
use crate::state::{PutError, StateStore, TakeError};

/// Runs that wait for user input, in Redis: any replica can resume them, exactly once.
///
/// Clients get random handles. So they cannot read a state, and it can be large; it is deleted when
/// it is taken, so no question is answered twice, even on different replicas. The server keeps it
/// for one more minute for the replica that took it, in case the reply is lost and requested again.
/// Users with access to the server can read all states: the tool results so far that later steps
/// need.
///
/// The total size is limited by the server's `maxmemory`; a full server rejects further states.
/// Each state is stored under `PREFIX:state:SHA-256 OF THE HANDLE`, prefixed by the SHA-256 of its
/// binding, or by the id of the take.
#[derive(Clone, Debug)]
pub struct RedisState(pub(super) RedisExpiringStore);

// === impl RedisState ===

impl RedisState {
    /// Sets how long a state may wait for user input. Defaults to 1 hour.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = ttl;
        self
    }

    /// Sets the maximum size of a state. Defaults to 4 MiB.
    #[must_use]
    pub const fn max_state_bytes(mut self, bytes: usize) -> Self {
        self.0.max_bytes = bytes;
        self
    }

    /// Sets the maximum size of the states of one caller. Defaults to 16 MiB.
    ///
    /// Each state counts with half a KiB of overhead, until it expires or for a minute after it was
    /// taken, as long as the server keeps it. Callers are known if the composite layer has a
    /// [`caller`](crate::composite::CompositeLayer::caller) function; all requests for which it
    /// returns `None` count as one caller. Without such a function, there is no limit per caller.
    ///
    /// The states of a caller are counted in a sorted set under
    /// `PREFIX:state:caller:SHA-256 OF THE CALLER`.
    #[must_use]
    pub const fn max_caller_bytes(mut self, bytes: usize) -> Self {
        self.0.max_caller_bytes = Some(bytes);
        self
    }
}

impl StateStore for RedisState {
    fn put<'a>(
        &'a self,
        state: Vec<u8>,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(self.0.put(state, binding, None))
    }

    fn put_for<'a>(
        &'a self,
        state: Vec<u8>,
        binding: &'a [u8],
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(self.0.put(state, binding, Some(caller)))
    }

    fn take<'a>(
        &'a self,
        text: &'a str,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(self.0.give(text, binding, None, Times::Once))
    }

    fn take_for<'a>(
        &'a self,
        text: &'a str,
        binding: &'a [u8],
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(self.0.give(text, binding, Some(caller), Times::Once))
    }

    fn max_bytes(&self) -> Option<usize> {
        Some(self.0.max_bytes)
    }
}
