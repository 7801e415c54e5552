//! What this process keeps for a while, under handles that nobody can guess.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::random;

/// How many random bytes a handle has.
const HANDLE: usize = 32;
/// How many bytes an item takes besides itself, so that many small ones are not for
/// nothing.
const OVERHEAD: usize = 512;
/// Longer than any process.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Items of somebody, each until it expires.
#[derive(Debug)]
pub(crate) struct Shelf {
    /// How long an item is kept.
    pub(crate) ttl: Duration,
    /// How large an item may be.
    pub(crate) max_item_bytes: usize,
    /// How large all may be together, each with half a KiB besides itself.
    pub(crate) max_total_bytes: usize,
    when_full: WhenFull,
    kept: Mutex<Kept>,
}

/// What becomes of an item that there is no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// It is refused: those that are kept were promised.
    Refuse,
    /// It takes the place of the oldest.
    DropOldest,
}

/// Why an item is not kept.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It alone has more bytes than an item may.
    TooLarge { bytes: usize, max: usize },
    /// With it, all would have more bytes than they may.
    Full { bytes: usize, max: usize },
    /// There are no random numbers.
    NoHandle(getrandom::Error),
}

/// Why there is no item; for a log, and not for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The text cannot be a handle.
    NoHandle,
    /// It was taken, has expired, or never was.
    Unknown,
    /// It is kept for somebody else.
    Foreign,
}

#[derive(Default)]
struct Kept {
    items: HashMap<String, Item>,
    /// When each expires, the first one first.
    expiries: BTreeSet<(Instant, String)>,
    bytes: usize,
}

struct Item {
    /// As many as are counted, and no room for more. Shared, so that nobody waits while
    /// others copy them.
    bytes: Arc<[u8]>,
    owner: Box<[u8]>,
    expiry: Instant,
}

// === impl Shelf ===

impl Shelf {
    pub(crate) fn new(
        ttl: Duration,
        max_item_bytes: usize,
        max_total_bytes: usize,
        when_full: WhenFull,
    ) -> Self {
        Self { ttl, max_item_bytes, max_total_bytes, when_full, kept: Mutex::default() }
    }

    /// Keeps an item for an owner, and returns its handle.
    ///
    /// # Errors
    ///
    /// Returns why it is not kept.
    pub(crate) fn put(&self, bytes: Vec<u8>, owner: &[u8]) -> Result<String, Refused> {
        if bytes.len() > self.max_item_bytes {
            return Err(Refused::TooLarge { bytes: bytes.len(), max: self.max_item_bytes });
        }
        let max = self.max_total_bytes;
        let handle = random::text::<HANDLE>().map_err(Refused::NoHandle)?;
        let now = Instant::now();
        let expiry = now.checked_add(self.ttl).unwrap_or_else(|| now + A_LIFETIME);
        let item = Item { bytes: bytes.into(), owner: owner.into(), expiry };
        let size = item.size();
        let mut kept = self.kept();
        kept.drop_expired(now);
        if self.when_full == WhenFull::DropOldest && size <= max {
            while kept.bytes + size > max && kept.drop_first() {}
        }
        if kept.bytes + size > max {
            return Err(Refused::Full { bytes: kept.bytes + size, max });
        }
        kept.insert(handle.clone(), item);
        Ok(handle)
    }

    /// Takes an item of this owner: nobody gets it again.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
    pub(crate) fn take(&self, handle: &str, owner: &[u8]) -> Result<Vec<u8>, Missing> {
        let taken = {
            let mut kept = self.kept_for(handle)?;
            kept.find(handle, owner)?;
            kept.remove(handle)
        };
        Ok(taken.map(|item| item.bytes.to_vec()).unwrap_or_default())
    }

    /// A copy of an item of this owner.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
    pub(crate) fn get(&self, handle: &str, owner: &[u8]) -> Result<Vec<u8>, Missing> {
        let bytes = self.kept_for(handle)?.find(handle, owner)?.bytes.clone();
        Ok(bytes.to_vec())
    }

    fn kept_for(&self, handle: &str) -> Result<MutexGuard<'_, Kept>, Missing> {
        // Not even looked for, however long it is.
        if handle.len() != 2 * HANDLE {
            return Err(Missing::NoHandle);
        }
        let mut kept = self.kept();
        kept.drop_expired(Instant::now());
        Ok(kept)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while it is held.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Missing ===

impl Missing {
    /// In words for a log.
    pub(crate) const fn told(self) -> &'static str {
        match self {
            Self::NoHandle => "it is no handle",
            Self::Unknown => "it is unknown: it was taken, has expired, or never was",
            Self::Foreign => "it is of another call or of another caller",
        }
    }
}

// === impl Kept ===

impl Kept {
    /// It stays if it belongs to somebody else.
    fn find(&self, handle: &str, owner: &[u8]) -> Result<&Item, Missing> {
        match self.items.get(handle) {
            None => Err(Missing::Unknown),
            Some(item) if *item.owner != *owner => Err(Missing::Foreign),
            Some(item) => Ok(item),
        }
    }

    fn insert(&mut self, handle: String, item: Item) {
        self.bytes += item.size();
        self.expiries.insert((item.expiry, handle.clone()));
        self.items.insert(handle, item);
    }

    fn remove(&mut self, handle: &str) -> Option<Item> {
        let (handle, item) = self.items.remove_entry(handle)?;
        self.bytes -= item.size();
        self.expiries.remove(&(item.expiry, handle));
        Some(item)
    }

    /// All are kept equally long, so the first to expire is the oldest.
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

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever knows a handle can get its item.
        f.debug_struct("Kept")
            .field("items", &self.items.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

// === impl Item ===

impl Item {
    fn size(&self) -> usize {
        self.bytes.len() + self.owner.len() + OVERHEAD
    }
}
