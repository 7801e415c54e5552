//! The cached results of a rule, with a maximum total size.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::key::{Key, KeyRef};
use crate::message::Reply;

/// The assumed overhead of each entry, in bytes. It is added to the sizes of the key and the
/// result.
const ENTRY_BYTES: usize = 512;
/// Divisor of the maximum total size. The quotient is the slack of the cache: the number of bytes
/// that it may add before it runs the next eviction.
const SLACK: usize = 16;

/// The cached results of a rule, with a maximum total size.
pub(super) struct Entries {
    results: moka::sync::Cache<Arc<Key>, CachedReply, RandomState>,
    ttl: Duration,
    /// The maximum total size of the entries. Eviction runs only after `slack` bytes were added. It
    /// therefore reduces the total size to `max_bytes - slack`, so that the next additions do not
    /// exceed the maximum.
    max_bytes: usize,
    slack: usize,
    /// The total size of the entries that were added since the last eviction.
    added: AtomicUsize,
}

#[derive(Clone)]
struct CachedReply {
    reply: Reply,
    bytes: usize,
    /// The time at which the result expires. The cache library has its own expiration, which uses
    /// another clock and only frees memory.
    expires: Instant,
}

// === impl Entries ===

impl Entries {
    /// Creates an empty cache whose entries expire after the duration `ttl`, which must be shorter
    /// than 1000 years.
    pub(super) fn new(ttl: Duration, max_bytes: usize) -> Self {
        let slack = max_bytes / SLACK;
        let capacity = u64::try_from(max_bytes - slack).unwrap_or(u64::MAX);
        let results = moka::sync::Cache::builder()
            .max_capacity(capacity)
            .weigher(|_, entry: &CachedReply| u32::try_from(entry.bytes).unwrap_or(u32::MAX))
            // Free the memory of expired results, even if they are not requested again.
            .time_to_live(ttl)
            .build_with_hasher(RandomState::default());
        Self { results, ttl, max_bytes, slack, added: AtomicUsize::new(0) }
    }

    /// Returns the duration after which a new result expires.
    pub(super) const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the cached result for the key. Returns `None` if there is no result, or if the
    /// result has expired at the time `now`.
    pub(super) fn get(&self, key: &KeyRef<'_>, now: Instant) -> Option<Reply> {
        let entry = self.results.get(key)?;
        (now < entry.expires).then_some(entry.reply)
    }

    /// Adds a result to the cache, which expires after the duration `ttl`. Does nothing if the size
    /// of the entry exceeds 15/16 of the maximum total size.
    pub(super) fn insert(&self, key: Arc<Key>, reply: Reply, ttl: Duration) {
        let bytes = ENTRY_BYTES + key.size() + reply.size();
        if bytes > self.max_bytes - self.slack {
            return;
        }
        let Some(expires) = Instant::now().checked_add(ttl) else { return };
        self.results.insert(key, CachedReply { reply, bytes, expires });
        let added = self.added.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if added > self.slack {
            self.added.store(0, Ordering::Relaxed);
            self.results.run_pending_tasks();
        }
    }

    /// Returns the number and the total size of all entries, including those that the next eviction
    /// will remove.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        let entries: Vec<_> = self.results.iter().map(|(_, entry)| entry.bytes).collect();
        (entries.len(), entries.iter().sum())
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries")
            .field("ttl", &self.ttl)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
