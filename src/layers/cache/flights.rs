//! Running calls, which later calls with the same key join.
//!
//! A running call is a future that several callers share. It makes progress whenever any of them is
//! polled, and is dropped together with the last of them. So it needs no task of its own.

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};

use super::{entries::Entries, key::Key};
use crate::message::{Questions, Reply};

/// A running call. Clones wait for the same call.
pub(super) type Flight = Shared<BoxFuture<'static, Landed>>;

/// The outcome of a running call.
#[derive(Clone)]
pub(super) enum Landed {
    /// A result that all callers receive.
    Result(Reply),
    /// An outcome that only the caller that started the call receives.
    Own(Arc<Mutex<Option<Own>>>),
}

/// An outcome that is not shared.
pub(super) enum Own {
    /// The answer of the service, whose type depends on the service's error type.
    Answer(Box<dyn Any + Send>),
    /// The payload of a panic.
    Panic(Box<dyn Any + Send>),
}

/// The cached results and the running calls of one rule.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) entries: Entries,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    flights: HashMap<Arc<Key>, (u64, WeakShared<BoxFuture<'static, Landed>>), RandomState>,
    /// The number of the next flight.
    next: u64,
}

/// The action of a call if another call with the same key is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenRunning {
    /// It waits for the running call.
    Join,
    /// It starts another call, which later calls join instead of the running one.
    Replace,
    /// It is made by itself.
    Separate,
}

/// The way in which a call is made.
pub(super) enum Boarding {
    /// The caller waits for a call that another caller has started.
    Joined(Flight),
    /// The caller has started the call.
    Started(Flight),
    /// The caller calls the service by itself.
    Separate,
}

/// The registration of a running call. Dropping it removes the call from the running ones.
struct Registration {
    results: Arc<Results>,
    key: Arc<Key>,
    number: u64,
}

// === impl Results ===

impl Results {
    pub(super) fn new(entries: Entries) -> Self {
        Self { entries, running: Mutex::default() }
    }

    /// Joins a running call with this key, or starts one with the future that `call` returns. The
    /// future is not polled before the returned flight is.
    ///
    /// A successful result is cached unless `questions` shows that the client was asked.
    pub(super) fn board<F, E>(
        self: &Arc<Self>,
        key: Key,
        when_running: WhenRunning,
        call: impl FnOnce() -> (F, Option<Questions>),
    ) -> Boarding
    where
        F: Future<Output = Result<Reply, E>> + Send + 'static,
        E: Send + 'static,
    {
        let key = Arc::new(key);
        let mut running = self.running();
        if when_running != WhenRunning::Replace
            && let Some(flight) = running.flights.get(&key).and_then(|(_, weak)| weak.upgrade())
        {
            // The flight may be the last clone, whose drop locks the running calls again.
            drop(running);
            return match when_running {
                WhenRunning::Separate => Boarding::Separate,
                _ => Boarding::Joined(flight),
            };
        }
        let number = running.next;
        running.next += 1;
        let (call, questions) = call();
        // Created last: dropping it locks the running calls again.
        let registration = Registration { results: self.clone(), key: key.clone(), number };
        let flight = land(call, registration, questions).boxed().shared();
        if let Some(weak) = flight.downgrade() {
            running.flights.insert(key, (number, weak));
        }
        Boarding::Started(flight)
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // No code panics while the lock is held, and the map would be consistent if it did.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of running calls.
    #[cfg(test)]
    pub(super) fn running_count(&self) -> usize {
        self.running().flights.len()
    }
}

/// Waits for a call, and caches its result.
async fn land<F, E>(call: F, registration: Registration, questions: Option<Questions>) -> Landed
where
    F: Future<Output = Result<Reply, E>>,
    E: Send + 'static,
{
    let answer = AssertUnwindSafe(call).catch_unwind().await;
    let own = match answer {
        Ok(Ok(reply)) => {
            if is_cacheable(&reply) && !questions.is_some_and(|questions| questions.has_asked()) {
                registration.cache(&reply);
                return Landed::Result(reply);
            }
            Own::Answer(Box::new(Ok::<Reply, E>(reply)))
        }
        Ok(Err(error)) => Own::Answer(Box::new(Err::<Reply, E>(error))),
        Err(panic) => Own::Panic(panic),
    };
    Landed::Own(Arc::new(Mutex::new(Some(own))))
}

/// Returns `true` if the reply is the successful result of a tool.
fn is_cacheable(reply: &Reply) -> bool {
    reply.tool_result().is_some_and(|result| result.is_error != Some(true))
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("count", &self.flights.len()).finish_non_exhaustive()
    }
}

// === impl Registration ===

impl Registration {
    /// Caches the result of the call, unless a later call has replaced this one.
    fn cache(&self, reply: &Reply) {
        let is_current = |(number, _): &(u64, _)| *number == self.number;
        if self.results.running().flights.get(&self.key).is_some_and(is_current) {
            self.results.entries.insert(self.key.clone(), reply.clone());
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut running = self.results.running();
        if running.flights.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            running.flights.remove(&self.key);
        }
    }
}
