use std::time::Duration;

use futures::future::BoxFuture;

use super::expiring_store::{RedisExpiringStore, Times};
use crate::results::{PutError, ResultStore, TakeError};

/// Whole results of which clients got a part, in Redis: any replica gives the rest.
///
/// A result is given as often as its caller asks, until it expires. Whoever can read
/// the server's data can read the results in it.
///
/// How large all may be together is the server's to say, with its `maxmemory`; one
/// that is full refuses further results. Each is kept under
/// `PREFIX:result:SHA-256 OF THE HANDLE`, with the SHA-256 of its caller before it.
#[derive(Clone, Debug)]
pub struct RedisResults(pub(super) RedisExpiringStore);

// === impl RedisResults ===

impl RedisResults {
    /// Sets how long a result is kept; ten minutes by default.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = ttl;
        self
    }

    /// Sets how large a result may be; 16 MiB by default.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.0.max_bytes = bytes;
        self
    }

    /// Sets the maximum size of the results of one caller, each with half a KiB besides itself.
    /// Unlimited by default.
    ///
    /// A result that exceeds it replaces the caller's oldest ones. All requests without a caller
    /// count as one caller. The results of a caller are counted in a sorted set under
    /// `PREFIX:result:caller:SHA-256 OF THE CALLER`.
    #[must_use]
    pub const fn max_caller_bytes(mut self, bytes: usize) -> Self {
        self.0.max_caller_bytes = Some(bytes);
        self
    }
}

impl ResultStore for RedisResults {
    fn put<'a>(
        &'a self,
        result: Vec<u8>,
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(self.0.put(result, caller, Some(caller)))
    }

    fn get<'a>(
        &'a self,
        handle: &'a str,
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(self.0.give(handle, caller, None, Times::Many))
    }
}
