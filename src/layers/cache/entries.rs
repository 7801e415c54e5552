//! Stores the cached results of a rule, up to a maximum total size.

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

/// The number of bytes by which each entry counts in addition to its key and its result.
const ENTRY_BYTES: usize = 512;
/// Divisor of the maximum total size. The quotient is the slack: the number of bytes that may be
/// added before the cache evicts entries.
const SLACK: usize = 16;

/// The cached results of a rule, with a maximum total size.
pub(super) struct Entries {
    results: moka::sync::Cache<Arc<Key>, CachedReply, RandomState>,
    ttl: Duration,
    /// The maximum total size of the entries. The cache evicts entries only from time to time. It
    /// therefore starts to evict when the size is one `slack` below the maximum.
    max_bytes: usize,
    slack: usize,
    /// The total size of the entries that were added since the last eviction.
    added: AtomicUsize,
}

#[derive(Clone)]
struct CachedReply {
    reply: Reply,
    bytes: usize,
    /// The time at which the result expires. Checked separately from the cache library's
    /// expiration, because the library uses its own clock.
    expires: Instant,
}

// === impl Entries ===

impl Entries {
    /// Creates an empty cache whose entries expire after `ttl`. `ttl` must be shorter than 1000
    /// years.
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

    /// Returns the result with this key. Returns `None` if there is no such result, or if it has
    /// expired at the time `now`.
    pub(super) fn get(&self, key: &KeyRef<'_>, now: Instant) -> Option<Reply> {
        let entry = self.results.get(key)?;
        (now < entry.expires).then_some(entry.reply)
    }

    /// Adds a result. Does nothing if the result alone exceeds the maximum total size.
    pub(super) fn insert(&self, key: Arc<Key>, reply: Reply) {
        let bytes = ENTRY_BYTES + key.size() + reply.size();
        if bytes > self.max_bytes - self.slack {
            return;
        }
        let Some(expires) = Instant::now().checked_add(self.ttl) else { return };
        self.results.insert(key, CachedReply { reply, bytes, expires });
        let added = self.added.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if added > self.slack {
            self.added.store(0, Ordering::Relaxed);
            self.results.run_pending_tasks();
        }
    }

    /// Returns the number and the total size of all entries, including those that will be evicted
    /// next.
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
