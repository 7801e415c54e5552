//! An in-memory store with random handles and expiry.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::{PutError, Store, TakeError, signed::STATE_TTL};
use crate::random;

/// The number of random bytes in a handle.
const HANDLE: usize = 32;
/// The overhead in bytes that is added to the size of each item, so that many small items reach the
/// limit, too.
const OVERHEAD: usize = 512;
/// The default time after which a result expires.
pub(crate) const RESULT_TTL: Duration = Duration::from_secs(10 * 60);
/// The default maximum size in bytes of a state.
pub(crate) const MAX_STATE_BYTES: usize = 4 * 1024 * 1024;
/// The default maximum size in bytes of a result.
pub(crate) const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;
/// The default maximum total size in bytes of all values in a store.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;
/// The default divisor for the share of each caller in a store for runs: each caller can use a
/// quarter of the store.
const CALLER_SHARES: usize = 4;
/// A duration longer than the lifetime of any process. Used instead of an expiry time that would
/// overflow.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// An in-memory store with random handles and expiry.
///
/// A handle is a random string that does not contain the value, so clients cannot read the value. A
/// value is removed when it is taken, when it expires, or when the process ends. Other processes
/// cannot access the values. Therefore use this store for a single process, or behind a load
/// balancer with session affinity.
///
/// A store [for runs](Self::for_runs) keeps each value until it is taken or expires. If the store
/// is full, it rejects new values.
///
/// A store [for results](Self::for_results) evicts older values if there is no room for a new
/// value. First, it evicts the caller's oldest values until the new value fits into the caller's
/// [share](Self::max_caller_bytes). Then it evicts values of any caller until the new value fits
/// into the [total size](Self::max_total_bytes): each time, the oldest value of the caller that
/// uses the most bytes, including the new value. So a caller that stores many values evicts its own
/// values, not those of callers that store less.
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

/// Whether a store rejects new items or evicts older items, if the store or the caller's share is
/// full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// Reject the new item, because the stored items must be kept until they expire.
    Refuse,
    /// Evict older items. The documentation of each store describes their order.
    DropOldest,
}

/// The maximum total size of one caller's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// A fixed number of bytes.
    Bytes(usize),
    /// A fraction of the store's maximum total size: the size divided by this number.
    Part(usize),
}

#[derive(Default)]
struct Entries {
    items: HashMap<Handle, Item>,
    /// The expiry times and handles of all items, with the earliest expiry first.
    expiries: BTreeSet<(Instant, Handle)>,
    bytes: usize,
    /// The items and total size of each caller that has items in the store.
    callers: HashMap<Caller, Account>,
    /// The callers of all items, ordered by rank. If an item must be evicted, the last caller loses
    /// its oldest item.
    ranks: BTreeSet<(Rank, Caller)>,
}

type Handle = Arc<str>;
type Caller = Arc<[u8]>;
/// The rank of a caller in the order of eviction: the total size of its items in bytes, and the
/// expiry time of its oldest item.
type Rank = (usize, Reverse<Instant>);

/// The items of one caller, and their total size in bytes.
#[derive(Default)]
struct Account {
    bytes: usize,
    /// The expiry times and handles of the caller's items, with the oldest item first.
    items: BTreeSet<(Instant, Handle)>,
}

struct Item {
    /// The value, as a slice without spare capacity, so that its memory use equals its counted
    /// size. To read the value, clone the `Arc` while the store is locked, and copy the bytes after
    /// the lock is released.
    bytes: Arc<[u8]>,
    owner: Box<[u8]>,
    /// The caller to whose share the item belongs. `None` if shares are not limited.
    caller: Option<Caller>,
    expiry: Instant,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// Creates a store for the states of runs that wait for user input.
    ///
    /// By default, a state is kept for an hour. Each state has at most 4 MiB, the states of one
    /// caller have at most 16 MiB together, and all states have at most 64 MiB together.
    #[must_use]
    pub fn for_runs() -> Self {
        let share = Share::Part(CALLER_SHARES);
        Self::new(STATE_TTL, MAX_STATE_BYTES, share, WhenFull::Refuse)
    }

    /// Creates a store for the full versions of truncated results.
    ///
    /// By default, a result is kept for 10 minutes. Each result has at most 16 MiB, and all results
    /// have at most 64 MiB together.
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
    /// bytes for each value. For the states of runs, it defaults to a quarter of
    /// [`max_total_bytes`](Self::max_total_bytes). For results, it defaults to all of it.
    ///
    /// The callers of runs are known only if the composite layer has a
    /// [`caller`](crate::composite::CompositeLayer::caller) function. Requests for which this
    /// function returns `None` share the limit of one caller. Without this function, runs have no
    /// limit per caller.
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
        let mut kept = self.kept();
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
        let mut kept = self.kept();
        kept.drop_expired(Instant::now());
        Ok(kept)
    }

    fn kept(&self) -> MutexGuard<'_, Entries> {
        // A poisoned lock is harmless, because no code panics while it holds the lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Returns the item with the given handle. Returns an error if the handle is unknown, or if the
    /// item belongs to another owner.
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
        let place = (item.expiry, handle);
        self.expiries.remove(&place);
        if let Some(caller) = &item.caller {
            self.adjust(caller, |account| {
                account.bytes -= item.size();
                account.items.remove(&place);
            });
        }
        Some(item)
    }

    /// Changes the account of a caller with `change`, and updates the caller's rank. Removes the
    /// account if it has no more items.
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

    /// Evicts items until there is room for a new item of `caller`. First evicts the caller's own
    /// items until the new item fits into the caller's share. Then evicts items of the caller that
    /// uses the most bytes.
    ///
    /// The new item is included in the size of its caller when callers are compared. So a caller
    /// cannot evict the items of callers that use fewer bytes, unless it has no items itself.
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

    /// Removes the item that expires first. It is also the oldest item, because all items have the
    /// same lifetime.
    fn drop_first(&mut self) -> bool {
        let first = self.expiries.first().map(|(_, handle)| handle.clone());
        first.is_some_and(|handle| self.remove(&handle).is_some())
    }

    fn drop_expired(&mut self, now: Instant) {
        while self.expiries.first().is_some_and(|(expiry, _)| *expiry <= now) {
            self.drop_first();
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
    /// Returns the caller's rank in the order of eviction. Returns `None` if the caller has no
    /// items.
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

    /// Asserts that the account of each caller matches the caller's items.
    fn assert_accounts_match(store: &MemoryStore) {
        let kept = store.kept();
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
                    let kept = store.kept();
                    assert!(kept.bytes <= 10_000);
                    assert!(kept.callers.values().all(|account| account.bytes <= 4_000));
                }
                advance(ttl).await;
                store.kept().drop_expired(Instant::now());
                assert_accounts_match(&store);
                assert!(store.kept().callers.is_empty());
            });
        }
    }
}
