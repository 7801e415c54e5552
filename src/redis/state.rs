use std::time::Duration;

use futures::future::BoxFuture;

use super::expiring_store::{RedisExpiringStore, Times};
use crate::state::{PutError, StateStore, TakeError};

/// Runs that wait for a person, in Redis: any replica takes them, and one of them.
///
/// Clients get handles that nobody can guess. So they cannot read a state, it can be
/// large, and it is gone when it is taken: no question is answered twice, at whatever
/// replica. For a minute more the server keeps it for the one who took it, if the answer
/// is lost on the way and asked for again. Whoever can read the server's data can read the states in it: what tools
/// have answered so far, as far as later steps need it.
///
/// How large all may be together is the server's to say, with its `maxmemory`; one
/// that is full refuses further states. Each is kept under
/// `PREFIX:state:SHA-256 OF THE HANDLE`, with the SHA-256 of its binding before it, or by
/// whom it was taken.
#[derive(Clone, Debug)]
pub struct RedisState(pub(super) RedisExpiringStore);

// === impl RedisState ===

impl RedisState {
    /// Sets how long a state may wait for a person; an hour by default.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = ttl;
        self
    }

    /// Sets how large a state may be; 4 MiB by default.
    #[must_use]
    pub const fn max_state_bytes(mut self, bytes: usize) -> Self {
        self.0.max_bytes = bytes;
        self
    }

    /// Sets the maximum size of the states of one caller. Defaults to 16 MiB.
    ///
    /// Each state counts half a KiB besides itself, until it expires or for a minute after it was
    /// taken, as long as the server keeps it. Callers are known if the composite layer has a
    /// [`caller`](crate::composite::CompositeLayer::caller) function; all requests for which it
    /// returns `None` count as one caller. Without such a function there is no share.
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
