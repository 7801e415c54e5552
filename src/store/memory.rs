//! An in-memory store with random handles and expiry.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::random;

/// The number of random bytes of a handle.
const HANDLE: usize = 32;
/// The size in bytes that each item counts in addition to its own, so that many small items use up
/// the limit.
const OVERHEAD: usize = 512;
/// A duration longer than any process.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A store of owned items, each of which expires.
#[derive(Debug)]
pub(crate) struct ExpiringStore {
    /// The time after which an item expires.
    pub(crate) ttl: Duration,
    /// The maximum size of an item.
    pub(crate) max_item_bytes: usize,
    /// The maximum size of all items, each counted with half a KiB in addition to its own size.
    pub(crate) max_total_bytes: usize,
    /// The maximum size of the items of one caller, counted like all items.
    pub(crate) max_caller_bytes: Share,
    when_full: WhenFull,
    kept: Mutex<Entries>,
}

/// The behavior when the store is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// Rejects the new item: stored items are promised to be kept.
    Refuse,
    /// Evicts the oldest item of the caller with the most bytes.
    DropOldest,
}

/// The maximum size of the items of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// This many bytes.
    Bytes(usize),
    /// The maximum size of all items, divided by this number.
    Part(usize),
}

/// The reason why an item is not stored.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The item is larger than the maximum size of an item.
    TooLarge { bytes: usize, max: usize },
    /// The items would exceed the maximum size of all items.
    Full { bytes: usize, max: usize },
    /// The items of the caller would exceed the caller's share. `bytes` is the item's own size,
    /// since callers that share a key must not learn what others store.
    CallerFull { bytes: usize, max: usize },
    /// No random numbers are available.
    NoHandle(getrandom::Error),
}

/// The reason why an item is not found; for logs, not for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The text is not a valid handle.
    NoHandle,
    /// The item was taken, has expired, or never existed.
    Unknown,
    /// The item belongs to another owner.
    Foreign,
}

#[derive(Default)]
struct Entries {
    items: HashMap<Handle, Item>,
    /// The items by expiry, the earliest first.
    expiries: BTreeSet<(Instant, Handle)>,
    bytes: usize,
    /// The callers that have items.
    callers: HashMap<Caller, Account>,
    /// The same callers by their rank: the last one is the next to lose an item.
    ranks: BTreeSet<(Rank, Caller)>,
}

type Handle = Arc<str>;
type Caller = Arc<[u8]>;
/// The bytes of a caller's items, and the expiry of the oldest.
type Rank = (usize, Reverse<Instant>);

/// The items of one caller.
#[derive(Default)]
struct Account {
    bytes: usize,
    /// Ordered by age, oldest first.
    items: BTreeSet<(Instant, Handle)>,
}

struct Item {
    /// Allocated with the exact counted size. Shared, so that the lock is not held while the bytes
    /// are copied.
    bytes: Arc<[u8]>,
    owner: Box<[u8]>,
    /// The caller whose share it counts against; `None` if callers have no shares.
    caller: Option<Caller>,
    expiry: Instant,
}

/// Encodes a caller as an owner of items. An unknown caller differs from one with an empty name.
pub(crate) fn caller_key(caller: Option<&str>) -> Vec<u8> {
    match caller {
        Some(caller) => [b"caller ", caller.as_bytes()].concat(),
        None => b"anybody".to_vec(),
    }
}

// === impl ExpiringStore ===

impl ExpiringStore {
    pub(crate) fn new(
        ttl: Duration,
        max_item_bytes: usize,
        max_total_bytes: usize,
        max_caller_bytes: Share,
        when_full: WhenFull,
    ) -> Self {
        let kept = Mutex::default();
        Self { ttl, max_item_bytes, max_total_bytes, max_caller_bytes, when_full, kept }
    }

    /// Stores an item for an owner, counts it against the share of a caller, and returns its
    /// handle.
    ///
    /// # Errors
    ///
    /// Returns the reason why the item is not stored.
    pub(crate) fn put(
        &self,
        bytes: Vec<u8>,
        owner: &[u8],
        caller: Option<&[u8]>,
    ) -> Result<String, Refused> {
        if bytes.len() > self.max_item_bytes {
            return Err(Refused::TooLarge { bytes: bytes.len(), max: self.max_item_bytes });
        }
        let handle = random::text::<HANDLE>().map_err(Refused::NoHandle)?;
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
            return Err(Refused::Full { bytes: total, max });
        }
        if let Some(caller) = &item.caller
            && kept.bytes_of(caller) + size > max_of_caller
        {
            return Err(Refused::CallerFull { bytes: size, max: max_of_caller });
        }
        kept.insert(handle.as_str().into(), item);
        Ok(handle)
    }

    /// Removes and returns an item of this owner.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no item.
    pub(crate) fn take(&self, handle: &str, owner: &[u8]) -> Result<Vec<u8>, Missing> {
        let taken = {
            let mut kept = self.kept_for(handle)?;
            kept.find(handle, owner)?;
            kept.remove(handle)
        };
        Ok(taken.map(|item| item.bytes.to_vec()).unwrap_or_default())
    }

    /// Returns a copy of an item of this owner.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no item.
    pub(crate) fn get(&self, handle: &str, owner: &[u8]) -> Result<Vec<u8>, Missing> {
        let bytes = self.kept_for(handle)?.find(handle, owner)?.bytes.clone();
        Ok(bytes.to_vec())
    }

    fn kept_for(&self, handle: &str) -> Result<MutexGuard<'_, Entries>, Missing> {
        // A text of another length is not looked up.
        if handle.len() != 2 * HANDLE {
            return Err(Missing::NoHandle);
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

// === impl Missing ===

impl Missing {
    /// Returns the reason for logs.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::NoHandle => "it is no handle",
            Self::Unknown => "it is unknown: it was taken, has expired, or never was",
            Self::Foreign => "it is of another call or of another caller",
        }
    }
}

// === impl Entries ===

impl Entries {
    /// Returns an item of this owner; an item of another owner is not touched.
    fn find(&self, handle: &str, owner: &[u8]) -> Result<&Item, Missing> {
        match self.items.get(handle) {
            None => Err(Missing::Unknown),
            Some(item) if *item.owner != *owner => Err(Missing::Foreign),
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

    /// Changes the account of a caller, and drops it once it is empty.
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

    /// Evicts items until there is room for a new one of a caller: the caller's own
    /// while it would exceed its share, then those of the caller that has the most bytes.
    ///
    /// The new item counts as its caller's, so no caller evicts items of one that has fewer
    /// bytes, unless it has no other item to evict.
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

    /// Removes the oldest item: all have the same time to live, so it expires first.
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
    /// Returns the rank of the account, or `None` if it has no items.
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
    fn assert_accounts_match(shelf: &ExpiringStore) {
        let kept = shelf.kept();
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
            let shelf = ExpiringStore::new(ttl, 1_500, 10_000, Share::Bytes(4_000), when_full);
            runtime.block_on(async {
                let mut handles = Vec::new();
                for (action, caller, number) in actions {
                    match action {
                        0 => advance(Duration::from_millis(number as u64)).await,
                        1 if !handles.is_empty() => {
                            let (handle, caller): (String, _) =
                                handles.swap_remove(number % handles.len());
                            let _ = shelf.take(&handle, &[caller]);
                        }
                        _ => {
                            if let Ok(handle) =
                                shelf.put(vec![0; number], &[caller], Some(&[caller]))
                            {
                                handles.push((handle, caller));
                            }
                        }
                    }
                    assert_accounts_match(&shelf);
                    let kept = shelf.kept();
                    assert!(kept.bytes <= 10_000);
                    assert!(kept.callers.values().all(|account| account.bytes <= 4_000));
                }
                advance(ttl).await;
                shelf.kept().drop_expired(Instant::now());
                assert_accounts_match(&shelf);
                assert!(shelf.kept().callers.is_empty());
            });
        }
    }

    #[test]
    fn unknown_callers_differ_from_every_name() {
        for name in ["", "anybody", "caller "] {
            assert_ne!(caller_key(None), caller_key(Some(name)));
        }
    }
}
