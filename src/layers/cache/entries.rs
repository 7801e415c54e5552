//! The cached results of a rule, with a maximum total size.

use std::{
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

/// The estimated memory overhead of a cache entry, in bytes, in addition to its key and its result.
const ENTRY_BYTES: usize = 512;
/// The cache evicts entries each time `1 / SLACK` of its maximum size has been added.
const SLACK: usize = 16;

/// The cached results of one cache rule. Evicts results to bound their total size.
pub(super) struct Entries {
    results: moka::sync::Cache<Arc<Key>, CachedReply, RandomState>,
    pub(super) ttl: Duration,
    /// The maximum total size of the entries, in bytes. Each eviction leaves `slack` bytes free for
    /// new entries.
    max_bytes: usize,
    slack: usize,
    /// The number of bytes that were added since the last eviction.
    added: AtomicUsize,
}

#[derive(Clone)]
struct CachedReply {
    reply: Reply,
    bytes: usize,
    /// The time from which the result is not returned any more. The `moka` cache also drops expired
    /// entries, but uses another clock.
    expires: Instant,
}

// === impl Entries ===

impl Entries {
    /// Creates an empty cache. `ttl` is the lifetime of its entries, which must be shorter than
    /// 1000 years. `max_bytes` is their maximum total size.
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

    /// Returns the cached result for a key. Returns `None` if the cache has no result, or if the
    /// result has expired by `now`.
    pub(super) fn get(&self, key: &KeyRef<'_>, now: Instant) -> Option<Reply> {
        let entry = self.results.get(key)?;
        (now < entry.expires).then_some(entry.reply)
    }

    /// Adds a result that expires after `ttl`. Does nothing if the entry is larger than 15/16 of
    /// the maximum total size.
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
