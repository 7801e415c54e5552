use std::time::Duration;

use futures::future::BoxFuture;

use super::kept::{Kept, Times};
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
pub struct RedisState(pub(super) Kept);

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
}

impl StateStore for RedisState {
    fn put<'a>(
        &'a self,
        state: Vec<u8>,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(self.0.put(state, binding))
    }

    fn take<'a>(
        &'a self,
        text: &'a str,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(self.0.give(text, binding, Times::Once))
    }

    fn max_bytes(&self) -> Option<usize> {
        Some(self.0.max_bytes)
    }
}
