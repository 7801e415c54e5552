//! A result store in Redis.

use std::time::Duration;

use futures::future::BoxFuture;

use super::expiring_store::{RedisExpiringStore, Times};
use crate::results::{PutError, ResultStore, TakeError};

/// Full versions of truncated results, in Redis, readable through any replica.
///
/// A result can be retrieved by its caller any number of times, until it expires. Users with access
/// to the server can read all results.
///
/// The total size is limited by the server's `maxmemory`; a full server rejects further results.
/// Each result is stored under `PREFIX:result:SHA-256 OF THE HANDLE`, prefixed by the SHA-256 of
/// its caller.
#[derive(Clone, Debug)]
pub struct RedisResults(pub(super) RedisExpiringStore);

// === impl RedisResults ===

impl RedisResults {
    /// Sets how long a result is kept. Defaults to 10 minutes.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = ttl;
        self
    }

    /// Sets the maximum size of a result. Defaults to 16 MiB.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.0.max_bytes = bytes;
        self
    }

    /// Sets the maximum size of the results of one caller, each counted with half a KiB of
    /// overhead. Unlimited by default.
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
