use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::{PutError, StateStore, TakeError, signed::TTL};

/// How large a state may be, unless it is said otherwise.
const MAX_STATE_BYTES: usize = 4 * 1024 * 1024;
/// How large all may be together, unless it is said otherwise.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// How many random bytes a handle has.
const HANDLE: usize = 32;
/// How many bytes a state takes besides itself, so that many small ones are not
/// for nothing.
const OVERHEAD: usize = 512;
/// Longer than any process.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// States that this process keeps, each of which can be taken once.
///
/// Clients get handles that nobody can guess. So they cannot read a state, it can be
/// large, and it is gone when it is taken: no question is answered twice. It is
/// also gone when the process ends, and another process does not have it: it is for
/// one process, or behind a load balancer that sends a client always to the same.
///
/// A state that was put in stays until it is taken or expires; when there is no more
/// room, no further one is put in.
#[derive(Debug)]
pub struct StoredState {
    ttl: Duration,
    max_state_bytes: usize,
    max_total_bytes: usize,
    kept: Mutex<Kept>,
}

/// The states that are kept.
#[derive(Default)]
struct Kept {
    states: HashMap<String, State>,
    /// When each expires, the first one first.
    expiries: BTreeSet<(Instant, String)>,
    bytes: usize,
}

struct State {
    state: Vec<u8>,
    binding: Box<[u8]>,
    expiry: Instant,
}

// === impl StoredState ===

impl StoredState {
    /// Keeps states for an hour, of up to 4 MiB, and of 64 MiB together.
    #[must_use]
    pub fn new() -> Self {
        Self {
            ttl: TTL,
            max_state_bytes: MAX_STATE_BYTES,
            max_total_bytes: MAX_TOTAL_BYTES,
            kept: Mutex::default(),
        }
    }

    /// Sets how long a state may wait for a person; an hour by default.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how large a state may be; 4 MiB by default.
    #[must_use]
    pub const fn max_state_bytes(mut self, bytes: usize) -> Self {
        self.max_state_bytes = bytes;
        self
    }

    /// Sets how large all states may be together; 64 MiB by default. Each counts half
    /// a KiB besides itself.
    #[must_use]
    pub const fn max_total_bytes(mut self, bytes: usize) -> Self {
        self.max_total_bytes = bytes;
        self
    }

    fn keep(&self, state: Vec<u8>, binding: &[u8]) -> Result<String, PutError> {
        let (bytes, max) = (state.len(), self.max_state_bytes);
        if bytes > max {
            return Err(PutError::TooLarge { bytes, max });
        }
        let handle = handle()?;
        let now = Instant::now();
        let mut kept = self.kept();
        kept.drop_expired(now);
        let state = State {
            state,
            binding: binding.into(),
            expiry: now.checked_add(self.ttl).unwrap_or_else(|| now + A_LIFETIME),
        };
        let (bytes, max) = (kept.bytes + state.size(), self.max_total_bytes);
        if bytes > max {
            return Err(PutError::Full { bytes, max });
        }
        kept.insert(handle.clone(), state);
        Ok(handle)
    }

    fn give(&self, handle: &str, binding: &[u8]) -> Result<Vec<u8>, TakeError> {
        let invalid = |reason: &'static str| Err(TakeError::Invalid(reason.into()));
        // Not even looked for, however long it is.
        if handle.len() != 2 * HANDLE {
            return invalid("it is no handle");
        }
        let mut kept = self.kept();
        kept.drop_expired(Instant::now());
        match kept.states.get(handle) {
            None => invalid("it is unknown: it was taken, has expired, or never was"),
            // It stays, since it belongs to somebody else.
            Some(state) if *state.binding != *binding => {
                invalid("it is of another call or of another caller")
            }
            Some(_) => Ok(kept.remove(handle).map(|state| state.state).unwrap_or_default()),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while it is held.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for StoredState {
    fn default() -> Self {
        Self::new()
    }
}

impl StateStore for StoredState {
    fn put<'a>(
        &'a self,
        state: Vec<u8>,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(async move { self.keep(state, binding) })
    }

    fn take<'a>(
        &'a self,
        text: &'a str,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(async move { self.give(text, binding) })
    }
}

/// A text that nobody can guess.
fn handle() -> Result<String, PutError> {
    let mut random = [0; HANDLE];
    getrandom::fill(&mut random)
        .map_err(|error| PutError::Unavailable(format!("no random numbers: {error}").into()))?;
    Ok(random.iter().fold(String::with_capacity(2 * HANDLE), |mut handle, byte| {
        // Writing to a string cannot fail.
        let _ = write!(handle, "{byte:02x}");
        handle
    }))
}

// === impl Kept ===

impl Kept {
    fn insert(&mut self, handle: String, state: State) {
        self.bytes += state.size();
        self.expiries.insert((state.expiry, handle.clone()));
        self.states.insert(handle, state);
    }

    fn remove(&mut self, handle: &str) -> Option<State> {
        let (handle, state) = self.states.remove_entry(handle)?;
        self.bytes -= state.size();
        self.expiries.remove(&(state.expiry, handle));
        Some(state)
    }

    fn drop_expired(&mut self, now: Instant) {
        while let Some((expiry, handle)) = self.expiries.first()
            && *expiry <= now
        {
            let handle = handle.clone();
            self.remove(&handle);
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever knows a handle can take its state.
        f.debug_struct("Kept")
            .field("states", &self.states.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    const fn size(&self) -> usize {
        self.state.len() + self.binding.len() + OVERHEAD
    }
}
