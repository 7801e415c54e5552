//! An in-memory store whose values have random handles and expiry times.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::{PutError, Store, TakeError, stateless::STATE_TTL};
use crate::{mutex::lock, random};

/// The number of random bytes in a handle, which clients cannot guess.
const HANDLE: usize = 32;
/// The number of bytes that count for each value in addition to its size, so that many small values
/// also reach the size limit.
const OVERHEAD: usize = 512;
/// The default lifetime of a stored tool result.
pub(crate) const RESULT_TTL: Duration = Duration::from_secs(10 * 60);
/// The default maximum size of the state of a suspended run, in bytes.
pub(crate) const MAX_STATE_BYTES: usize = 4 * 1024 * 1024;
/// The default maximum size of a stored tool result, in bytes.
pub(crate) const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;
/// The default maximum total size of all values in a store, in bytes.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;
/// By default, one caller may use the maximum size of the store divided by this number. Applies to
/// the states of runs.
const CALLER_SHARES: usize = 4;
/// Replaces lifetimes that are too long to add them to the current time.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// An in-memory store whose values have random handles and expiry times.
///
/// The client receives a random handle for each value, and cannot read the value itself. Other
/// processes cannot access the values. Use this store for a single process, or behind a load
/// balancer with session affinity. All values are lost when the process ends.
///
/// A `MemoryStore` [for runs](Self::for_runs) keeps each state until it is taken or expires. A full
/// store rejects new states.
///
/// A `MemoryStore` [for results](Self::for_results) evicts older results to make room for a new
/// one. If the caller exceeds its [limit](Self::max_caller_bytes), its own oldest results are
/// evicted. If the store exceeds its [total size](Self::max_total_bytes), the oldest results of the
/// caller that uses the most bytes are evicted. A caller that stores many results therefore evicts
/// its own results first.
///
/// See the [module docs](super) for an example.
#[derive(Debug)]
pub struct MemoryStore {
    ttl: Duration,
    max_item_bytes: usize,
    max_total_bytes: usize,
    max_caller_bytes: Share,
    when_full: WhenFull,
    kept: Mutex<Entries>,
}

/// The reaction of a store to a new value for which it has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// Rejects the new value. Used for the states of runs, which must not be evicted.
    Refuse,
    /// Evicts older values. Used for tool results. Each store documents which values it evicts
    /// first.
    DropOldest,
}

/// The limit for the values of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Bytes(usize),
    /// The maximum size of the store, divided by this number. For example, `Part(4)` is a quarter.
    Part(usize),
}

#[derive(Default)]
struct Entries {
    items: HashMap<Handle, Item>,
    /// The expiry times and handles of all items, so that the item that expires next comes first.
    expiries: BTreeSet<(Instant, Handle)>,
    bytes: usize,
    /// The items of each caller. Callers without items are not included.
    callers: HashMap<Caller, Account>,
    /// The callers, sorted by the total size of their items. A full store evicts the oldest item of
    /// the last caller.
    ranks: BTreeSet<(Rank, Caller)>,
}

type Handle = Arc<str>;
type Caller = Arc<[u8]>;
/// The total size of a caller's items in bytes, and the expiry time of its oldest item. A full
/// store evicts items of the caller with the highest rank.
type Rank = (usize, Reverse<Instant>);

/// The items of one caller, and their total size in bytes.
#[derive(Default)]
struct Account {
    bytes: usize,
    /// The expiry times and handles of the items. The oldest item comes first.
    items: BTreeSet<(Instant, Handle)>,
}

struct Item {
    /// An `Arc<[u8]>` has no spare capacity, so that its memory equals the counted size. Readers
    /// clone the `Arc` while the store is locked, and copy the bytes afterwards.
    bytes: Arc<[u8]>,
    owner: Box<[u8]>,
    /// The caller toward whose limit the item counts. `None` if there is no limit per caller.
    caller: Option<Caller>,
    expiry: Instant,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// Creates a store for the states of runs that wait for user input.
    ///
    /// By default, the store keeps the state of a run for an hour. The maximum size is 4 MiB for
    /// each state, 16 MiB for all states of one caller, and 64 MiB for all states.
    #[must_use]
    pub fn for_runs() -> Self {
        let share = Share::Part(CALLER_SHARES);
        Self::new(STATE_TTL, MAX_STATE_BYTES, share, WhenFull::Refuse)
    }

    /// Creates a store for the full versions of truncated results.
    ///
    /// By default, the store keeps a result for 10 minutes. The maximum size is 16 MiB for each
    /// result, and 64 MiB for all results.
    #[must_use]
    pub fn for_results() -> Self {
        Self::new(RESULT_TTL, MAX_RESULT_BYTES, Share::Part(1), WhenFull::DropOldest)
    }

    fn new(
        ttl: Duration,
        max_item_bytes: usize,
        max_caller_bytes: Share,
        when_full: WhenFull,
    ) -> Self {
        let (max_total_bytes, kept) = (MAX_TOTAL_BYTES, Mutex::default());
        Self { ttl, max_item_bytes, max_total_bytes, max_caller_bytes, when_full, kept }
    }

    /// Sets the lifetime of a stored value. Defaults to an hour for the states of runs, and to 10
    /// minutes for results.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the maximum size of a value in bytes. Defaults to 4 MiB for the states of runs, and to
    /// 16 MiB for results.
    #[must_use]
    pub const fn max_item_bytes(mut self, bytes: usize) -> Self {
        self.max_item_bytes = bytes;
        self
    }

    /// Sets the maximum total size of all values in bytes, including an overhead of 512 bytes for
    /// each value. Defaults to 64 MiB.
    #[must_use]
    pub const fn max_total_bytes(mut self, bytes: usize) -> Self {
        self.max_total_bytes = bytes;
        self
    }

    /// Sets the maximum total size of one caller's values in bytes, including an overhead of 512
    /// bytes for each value. Defaults to a quarter of [`max_total_bytes`](Self::max_total_bytes)
    /// for the states of runs, and to `max_total_bytes` for results.
    ///
    /// In a store for runs, the limit per caller applies only if the composite layer has a
    /// [`caller`](crate::composite::CompositeLayer::caller) function. All requests for which this
    /// function returns `None` count as requests of one caller.
    #[must_use]
    pub const fn max_caller_bytes(mut self, bytes: usize) -> Self {
        self.max_caller_bytes = Share::Bytes(bytes);
        self
    }

    fn insert(
        &self,
        bytes: Vec<u8>,
        owner: &[u8],
        caller: Option<&[u8]>,
    ) -> Result<String, PutError> {
        if bytes.len() > self.max_item_bytes {
            return Err(PutError::TooLarge { bytes: bytes.len(), max: self.max_item_bytes });
        }
        let handle = random::text::<HANDLE>().map_err(|error| {
            PutError::Unavailable(format!("the system has no random numbers: {error}").into())
        })?;
        let now = Instant::now();
        let expiry = now.checked_add(self.ttl).unwrap_or_else(|| now + A_LIFETIME);
        let caller = caller.map(Caller::from);
        let item = Item { bytes: bytes.into(), owner: owner.into(), caller, expiry };
        let size = item.size();
        let mut kept = lock(&self.kept);
        kept.drop_expired(now);
        let max = self.max_total_bytes;
        let max_of_caller = self.max_caller_bytes.of(max);
        if self.when_full == WhenFull::DropOldest
            && size <= max.min(max_of_caller)
            && let Some(caller) = &item.caller
        {
            kept.make_room(size, caller, max, max_of_caller);
        }
        let total = kept.bytes + size;
        if total > max {
            return Err(PutError::Full { bytes: total, max });
        }
        if let Some(caller) = &item.caller
            && kept.bytes_of(caller) + size > max_of_caller
        {
            return Err(PutError::CallerFull { bytes: size, max: max_of_caller });
        }
        kept.insert(handle.as_str().into(), item);
        Ok(handle)
    }

    fn remove(&self, handle: &str, owner: &[u8]) -> Result<Vec<u8>, TakeError> {
        let taken = {
            let mut kept = self.kept_for(handle)?;
            kept.find(handle, owner)?;
            kept.remove(handle)
        };
        Ok(taken.map(|item| item.bytes.to_vec()).unwrap_or_default())
    }

    fn copy(&self, handle: &str, owner: &[u8]) -> Result<Vec<u8>, TakeError> {
        let bytes = self.kept_for(handle)?.find(handle, owner)?.bytes.clone();
        Ok(bytes.to_vec())
    }

    fn kept_for(&self, handle: &str) -> Result<MutexGuard<'_, Entries>, TakeError> {
        // A string of any other length is not a handle of this store.
        if handle.len() != 2 * HANDLE {
            return Err(TakeError::NO_HANDLE);
        }
        let mut kept = lock(&self.kept);
        kept.drop_expired(Instant::now());
        Ok(kept)
    }
}

impl Store for MemoryStore {
    fn put<'a>(
        &'a self,
        value: Vec<u8>,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(async move { self.insert(value, owner, caller) })
    }

    fn take<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        _: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(async move { self.remove(handle, owner) })
    }

    fn get<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        _: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(async move { self.copy(handle, owner) })
    }

    fn max_bytes(&self) -> Option<usize> {
        Some(self.max_item_bytes.min(self.max_total_bytes))
    }
}

// === impl Entries ===

impl Entries {
    /// Returns the item with this handle. Returns an error if it does not exist or has another
    /// owner.
    fn find(&self, handle: &str, owner: &[u8]) -> Result<&Item, TakeError> {
        match self.items.get(handle) {
            None => Err(TakeError::UNKNOWN),
            Some(item) if *item.owner != *owner => Err(TakeError::FOREIGN),
            Some(item) => Ok(item),
        }
    }

    fn insert(&mut self, handle: Handle, item: Item) {
        self.bytes += item.size();
        self.expiries.insert((item.expiry, handle.clone()));
        if let Some(caller) = &item.caller {
            self.adjust(caller, |account| {
                account.bytes += item.size();
                account.items.insert((item.expiry, handle.clone()));
            });
        }
        self.items.insert(handle, item);
    }

    fn remove(&mut self, handle: &str) -> Option<Item> {
        let (handle, item) = self.items.remove_entry(handle)?;
        self.bytes -= item.size();
        let key = (item.expiry, handle);
        self.expiries.remove(&key);
        if let Some(caller) = &item.caller {
            self.adjust(caller, |account| {
                account.bytes -= item.size();
                account.items.remove(&key);
            });
        }
        Some(item)
    }

    /// Calls `change` with the items of a caller, and updates the caller's rank. Adds the caller if
    /// it is new, and removes it if it has no items afterwards.
    fn adjust(&mut self, caller: &Caller, change: impl FnOnce(&mut Account)) {
        let mut account = self.callers.remove(caller).unwrap_or_default();
        if let Some(rank) = account.rank() {
            self.ranks.remove(&(rank, caller.clone()));
        }
        change(&mut account);
        if let Some(rank) = account.rank() {
            self.ranks.insert((rank, caller.clone()));
            self.callers.insert(caller.clone(), account);
        }
    }

    fn bytes_of(&self, caller: &Caller) -> usize {
        self.callers.get(caller).map_or(0, |account| account.bytes)
    }

    /// Evicts items until there is room for a new item with the size `size`. Evicts the oldest
    /// items of `caller` until the new item is within the limit `share` of this caller. Then
    /// repeatedly evicts the oldest item of the caller that uses the most bytes.
    ///
    /// The size of the new item counts as used by `caller`. If `caller` already has items, it can
    /// therefore not evict the items of callers that use fewer bytes.
    fn make_room(&mut self, size: usize, caller: &Caller, max: usize, share: usize) {
        while self.bytes_of(caller) + size > share && self.drop_oldest_of(caller) {}
        while self.bytes + size > max {
            let Some(((bytes, _), largest)) = self.ranks.last().cloned() else { break };
            let own = self.bytes_of(caller);
            let is_own = own > 0 && own + size >= bytes;
            self.drop_oldest_of(if is_own { caller } else { &largest });
        }
    }

    fn drop_oldest_of(&mut self, caller: &Caller) -> bool {
        let oldest = self.callers.get(caller).and_then(|account| account.items.first().cloned());
        oldest.is_some_and(|(_, handle)| self.remove(&handle).is_some())
    }

    fn drop_expired(&mut self, now: Instant) {
        while let Some((expiry, handle)) = self.expiries.first()
            && *expiry <= now
        {
            self.remove(&handle.clone());
        }
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the handles, because anyone who knows a handle can access its item.
        f.debug_struct("Entries")
            .field("items", &self.items.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

// === impl Account ===

impl Account {
    /// Returns the rank of the caller, which determines whose items are evicted first. Returns
    /// `None` if the caller has no items.
    fn rank(&self) -> Option<Rank> {
        self.items.first().map(|(expiry, _)| (self.bytes, Reverse(*expiry)))
    }
}

// === impl Item ===

impl Item {
    fn size(&self) -> usize {
        let caller = self.caller.as_ref().map_or(0, |caller| caller.len());
        self.bytes.len() + self.owner.len() + caller + OVERHEAD
    }
}

// === impl Share ===

impl Share {
    const fn of(self, max_total_bytes: usize) -> usize {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Part(parts) => max_total_bytes / parts,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::advance;

    use super::*;

    /// Asserts that the accounts of all callers contain exactly the items that these callers have
    /// in the store.
    fn assert_accounts_match(store: &MemoryStore) {
        let kept = lock(&store.kept);
        let mut bytes: HashMap<Caller, usize> = HashMap::new();
        for item in kept.items.values() {
            *bytes.entry(item.caller.clone().unwrap()).or_default() += item.size();
        }
        let accounts = kept.callers.iter().map(|(caller, account)| {
            let items = account.items.iter().map(|(_, handle)| kept.items[handle].size());
            assert_eq!(account.bytes, items.sum::<usize>());
            (caller.clone(), account.bytes)
        });
        assert_eq!(accounts.collect::<HashMap<_, _>>(), bytes);
        let ranks = kept.callers.iter().map(|(caller, account)| {
            (account.rank().expect("accounts without items are dropped"), caller.clone())
        });
        assert_eq!(ranks.collect::<BTreeSet<_>>(), kept.ranks);
        assert_eq!(kept.bytes, bytes.values().sum::<usize>());
        assert_eq!(kept.expiries.len(), kept.items.len());
    }

    proptest! {
        #[test]
        fn accounts_of_callers_match_the_items(
            drops_oldest: bool,
            actions in prop::collection::vec((0_u8..4, 0_u8..4, 0_usize..2_000), 0..60),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            let when_full = if drops_oldest { WhenFull::DropOldest } else { WhenFull::Refuse };
            let ttl = Duration::from_secs(10);
            let store = MemoryStore::new(ttl, 1_500, Share::Bytes(4_000), when_full);
            let store = store.max_total_bytes(10_000);
            runtime.block_on(async {
                let mut handles = Vec::new();
                for (action, caller, number) in actions {
                    match action {
                        0 => advance(Duration::from_millis(number as u64)).await,
                        1 if !handles.is_empty() => {
                            let (handle, caller): (String, _) =
                                handles.swap_remove(number % handles.len());
                            let _ = store.remove(&handle, &[caller]);
                        }
                        _ => {
                            if let Ok(handle) =
                                store.insert(vec![0; number], &[caller], Some(&[caller]))
                            {
                                handles.push((handle, caller));
                            }
                        }
                    }
                    assert_accounts_match(&store);
                    let kept = lock(&store.kept);
                    assert!(kept.bytes <= 10_000);
                    assert!(kept.callers.values().all(|account| account.bytes <= 4_000));
                }
                advance(ttl).await;
                lock(&store.kept).drop_expired(Instant::now());
                assert_accounts_match(&store);
                assert!(lock(&store.kept).callers.is_empty());
            });
        }
    }
}
