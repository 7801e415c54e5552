//! A store in the memory of this process, whose handles are random texts.

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

/// The number of random bytes of a handle.
const HANDLE: usize = 32;
/// The overhead in bytes that is added to the size of each item, so that many small items use up
/// the limit, too.
const OVERHEAD: usize = 512;
/// The default time after which a result expires.
pub(crate) const RESULT_TTL: Duration = Duration::from_secs(10 * 60);
/// The default maximum size of a state.
pub(crate) const MAX_STATE_BYTES: usize = 4 * 1024 * 1024;
/// The default maximum size of a result.
pub(crate) const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;
/// The default maximum size of all values.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;
/// The default ratio of a store's maximum size to the share of each caller, in a store for runs.
const CALLER_SHARES: usize = 4;
/// A duration that exceeds the lifetime of any process. It is used if a computed expiry would
/// overflow.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A store in the memory of this process, whose handles are random texts.
///
/// A handle is a random text, so clients cannot read the value. A value is removed when it is
/// taken, when it expires, or when the process ends. Other processes cannot access the values. So
/// use this store for a single process, or behind a load balancer with session affinity.
///
/// A store [for runs](Self::for_runs) keeps a value until it is taken or expires. If the store is
/// full, it rejects new values.
///
/// In a store [for results](Self::for_results), a new value evicts older ones if there is no room.
/// First, the caller's oldest values are evicted until the new value fits into the caller's
/// [share](Self::max_caller_bytes). Then values are evicted until the new value fits into the
/// [total](Self::max_total_bytes): each time, the oldest value of the caller that would have the
/// most bytes with the new value included. So a caller that stores a lot evicts its own values, not
/// those of callers that store less.
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

/// The rule that decides whether a store rejects new items or evicts older ones when the store, or
/// the share of the caller, is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// Reject the new item, because stored items must be kept until they expire.
    Refuse,
    /// Evict older items, as the documentation of each store describes.
    DropOldest,
}

/// The maximum total size of one caller's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// A fixed number of bytes.
    Bytes(usize),
    /// A part of the store's maximum total size: the size divided by this number.
    Part(usize),
}

#[derive(Default)]
struct Entries {
    items: HashMap<Handle, Item>,
    /// The handles of all items, ordered by the time at which they expire, the earliest first.
    expiries: BTreeSet<(Instant, Handle)>,
    bytes: usize,
    /// The accounts of all callers that have items in the store.
    callers: HashMap<Caller, Account>,
    /// The same callers, ordered by rank. The last caller is the next to lose an item.
    ranks: BTreeSet<(Rank, Caller)>,
}

type Handle = Arc<str>;
type Caller = Arc<[u8]>;
/// The rank of a caller in the order of eviction: the total size of its items in bytes, and the
/// time at which its oldest item expires.
type Rank = (usize, Reverse<Instant>);

/// The items of one caller, and their total size.
#[derive(Default)]
struct Account {
    bytes: usize,
    /// The handles of the caller's items, the oldest first.
    items: BTreeSet<(Instant, Handle)>,
}

struct Item {
    /// The value. A slice has no spare capacity, so it uses no more memory than the store counts. A
    /// reader clones the `Arc` while it holds the lock of the store, and copies the bytes after it
    /// has released the lock.
    bytes: Arc<[u8]>,
    owner: Box<[u8]>,
    /// The caller whose share contains the item. `None` if callers have no shares.
    caller: Option<Caller>,
    expiry: Instant,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// Creates a store for the states of runs that wait for user input.
    ///
    /// By default, a state is kept for an hour and has at most 4 MiB. The states of one caller have
    /// at most 16 MiB together, and all states 64 MiB.
    #[must_use]
    pub fn for_runs() -> Self {
        let share = Share::Part(CALLER_SHARES);
        Self::new(STATE_TTL, MAX_STATE_BYTES, share, WhenFull::Refuse)
    }

    /// Creates a store for the full versions of truncated results.
    ///
    /// By default, a result is kept for 10 minutes and has at most 16 MiB. All results together
    /// have at most 64 MiB.
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

    /// Sets the maximum total size of all values in bytes. Each value is counted with half a KiB in
    /// addition to its own size. Defaults to 64 MiB.
    #[must_use]
    pub const fn max_total_bytes(mut self, bytes: usize) -> Self {
        self.max_total_bytes = bytes;
        self
    }

    /// Sets the maximum total size of one caller's values in bytes, including half a KiB of
    /// overhead for each value. Defaults to a quarter of [`max_total_bytes`](Self::max_total_bytes)
    /// for the states of runs, and to all of it for results.
    ///
    /// Runs have a known caller only if the composite layer has a
    /// [`caller`](crate::composite::CompositeLayer::caller) function. All requests for which this
    /// function returns `None` are counted as requests of one caller. Without such a function, runs
    /// have no limit per caller.
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
        // A text of another length cannot be a handle.
        if handle.len() != 2 * HANDLE {
            return Err(TakeError::NO_HANDLE);
        }
        let mut kept = self.kept();
        kept.drop_expired(Instant::now());
        Ok(kept)
    }

    fn kept(&self) -> MutexGuard<'_, Entries> {
        // No code panics while the lock is held.
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
    /// Returns the item of a handle. Returns an error if there is no such item, or if the item
    /// belongs to another owner.
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

    /// Changes the account of a caller, and updates the caller's rank. Removes the account if it
    /// has no items any more.
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

    /// Evicts items until there is room for a new item of `caller`. First evicts items of this
    /// caller until the new item fits into its share. Then evicts items of the caller that has the
    /// most bytes.
    ///
    /// The new item is counted for its caller when callers are compared. So a caller does not evict
    /// items of a caller with fewer bytes, unless it has no items of its own.
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

    /// Removes the oldest item. It is the first to expire, because all items have the same time to
    /// live.
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
        // Handles are not shown, since they give access to items.
        f.debug_struct("Entries")
            .field("items", &self.items.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

// === impl Account ===

impl Account {
    /// Returns the caller's rank in the order of eviction, or `None` if the caller has no items.
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

    /// Checks that the accounts of callers match the items.
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
