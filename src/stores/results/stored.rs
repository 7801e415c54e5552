//! An in-memory store of results.

use std::time::Duration;

use futures::future::BoxFuture;

use super::{PutError, ResultStore, TakeError};
use crate::expiring_store::{ExpiringStore, Share, WhenFull};

/// The default time after which a result expires.
const TTL: Duration = Duration::from_secs(10 * 60);
/// The default maximum size of a result.
const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;
/// The default maximum size of all results.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// An in-memory store of results.
///
/// Handles are random. A result is removed when it expires, when the process ends, or when a new
/// one needs its space. A new result evicts the oldest results of its own caller while they exceed
/// the caller's [share](Self::max_caller_bytes), then those of the caller whose results take the
/// most bytes, the new one included. So a caller that stores a lot evicts its own results, not
/// those of callers that store less. Results are not available to other processes: use this for one
/// process, or behind a load balancer with session affinity.
///
/// See the [module docs](super) for an example.
#[derive(Debug)]
pub struct StoredResults(ExpiringStore);

// === impl StoredResults ===

impl StoredResults {
    /// Creates a store that keeps results for 10 minutes, of up to 16 MiB each and 64 MiB together.
    #[must_use]
    pub fn new() -> Self {
        let share = Share::Part(1);
        Self(ExpiringStore::new(
            TTL,
            MAX_RESULT_BYTES,
            MAX_TOTAL_BYTES,
            share,
            WhenFull::DropOldest,
        ))
    }

    /// Sets the time after which a result expires. Defaults to 10 minutes.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = ttl;
        self
    }

    /// Sets the maximum size of a result, as JSON. Defaults to 16 MiB.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.0.max_item_bytes = bytes;
        self
    }

    /// Sets the maximum size of all results. Each counts half a KiB in addition to its own size.
    /// Defaults to 64 MiB.
    #[must_use]
    pub const fn max_total_bytes(mut self, bytes: usize) -> Self {
        self.0.max_total_bytes = bytes;
        self
    }

    /// Sets the maximum size of the results of one caller, counted like all results. Defaults
    /// to [`max_total_bytes`](Self::max_total_bytes).
    ///
    /// All requests without a caller count as one caller.
    #[must_use]
    pub const fn max_caller_bytes(mut self, bytes: usize) -> Self {
        self.0.max_caller_bytes = Share::Bytes(bytes);
        self
    }
}

impl Default for StoredResults {
    fn default() -> Self {
        Self::new()
    }
}

impl ResultStore for StoredResults {
    fn put<'a>(
        &'a self,
        result: Vec<u8>,
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(async move { Ok(self.0.put(result, caller, Some(caller))?) })
    }

    fn get<'a>(
        &'a self,
        handle: &'a str,
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(async move { Ok(self.0.get(handle, caller)?) })
    }
}
