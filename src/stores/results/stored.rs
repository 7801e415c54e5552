use std::time::Duration;

use futures::future::BoxFuture;

use super::{PutError, ResultStore, TakeError};
use crate::expiring_store::{ExpiringStore, Share, WhenFull};

/// How long a result is kept, unless it is said otherwise.
const TTL: Duration = Duration::from_secs(10 * 60);
/// How large a result may be, unless it is said otherwise.
const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;
/// How large all may be together, unless it is said otherwise.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// Results that this process keeps.
///
/// Clients get handles that nobody can guess. A result is gone when it expires, when
/// the process ends, and when a new one needs its room. A new result evicts the oldest
/// results of its own caller while they exceed the caller's
/// [share](Self::max_caller_bytes), then those of the caller whose results take the most bytes,
/// the new one included. So a caller that stores a lot evicts its own results, not those of
/// callers that store less. Another process does not
/// have it: this is for one process, or behind a load balancer that sends a client
/// always to the same.
///
/// See the [module docs](super) for an example.
#[derive(Debug)]
pub struct StoredResults(ExpiringStore);

// === impl StoredResults ===

impl StoredResults {
    /// Keeps results for 10 minutes, of up to 16 MiB, and of 64 MiB together.
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

    /// Sets how long a result is kept; 10 minutes by default.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = ttl;
        self
    }

    /// Sets how large a result may be, as JSON; 16 MiB by default.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.0.max_item_bytes = bytes;
        self
    }

    /// Sets how large all results may be together; 64 MiB by default. Each counts half
    /// a KiB besides itself.
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
