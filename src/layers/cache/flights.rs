//! Running tool calls, shared by all callers that make the same call.
//!
//! A running call is a shared future. Each caller that waits for the call polls a clone of this
//! future, and dropping the last clone cancels the call. No task is spawned.

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use foldhash::fast::RandomState;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};

use super::{entries::Entries, key::Key, store::StoredEntry};
use crate::message::{Questions, Reply};

/// A running tool call. All clones of this future resolve to the outcome of the same call.
pub(super) type Flight = Shared<BoxFuture<'static, Landed>>;

/// The outcome of a running tool call.
#[derive(Clone)]
pub(super) enum Landed {
    /// A cacheable result. All callers receive it.
    Result(Reply),
    /// An outcome that must not be shared, such as an error. Only the caller that started the call
    /// receives it.
    Own(Arc<Mutex<Option<Own>>>),
}

/// An outcome that is not shared. Only the caller that started the tool call receives it.
pub(super) enum Own {
    /// The reply or error of the wrapped service. Stored as `Any`, because the error type depends
    /// on the service.
    Answer(Box<dyn Any + Send>),
    /// The payload of a panic.
    Panic(Box<dyn Any + Send>),
}

/// The cached results and running tool calls of a rule.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) entries: Entries,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    flights: HashMap<Arc<Key>, (u64, WeakShared<BoxFuture<'static, Landed>>), RandomState>,
    /// The number of the next running call.
    next: u64,
}

/// How to process a tool call while another call with the same key is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenRunning {
    /// Waits for the running call, and uses its result.
    Join,
    /// Starts a new call that replaces the running call. Later calls join the new call.
    Replace,
    /// Calls the tool separately. Does not wait for the running call.
    Separate,
}

/// The way a tool call was started.
pub(super) enum Boarding {
    /// The call joined the running call of another caller.
    Joined(Flight),
    /// The call is running. Later calls with the same key can join it.
    Started(Flight),
    /// The caller must call the service separately.
    Separate,
}

/// The entry of a running tool call in [`Running`]. Dropping this value removes the entry.
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

    /// Joins the running call with this key. If there is none, starts a call with the future that
    /// `call` returns. The future is first polled when the returned flight is polled.
    ///
    /// Caches the result of the call if it is successful. Does not cache it if `questions` shows
    /// that the server asked the client a question during the call.
    pub(super) fn board<F, E>(
        self: &Arc<Self>,
        key: Key,
        when_running: WhenRunning,
        call: impl FnOnce() -> (F, Option<Questions>, Option<StoredEntry>),
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
            // Release the lock first. If the flight is the last clone, dropping it locks the
            // running calls again.
            drop(running);
            return match when_running {
                WhenRunning::Separate => Boarding::Separate,
                _ => Boarding::Joined(flight),
            };
        }
        let number = running.next;
        running.next += 1;
        let (call, questions, stored) = call();
        // Create the registration last, because dropping it locks the running calls again.
        let registration = Registration { results: self.clone(), key: key.clone(), number };
        let flight = land(call, registration, questions, stored).boxed().shared();
        if let Some(weak) = flight.downgrade() {
            running.flights.insert(key, (number, weak));
        }
        Boarding::Started(flight)
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // No code panics while it holds the lock, and even after a panic, the map would be
        // consistent.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of running calls.
    #[cfg(test)]
    pub(super) fn running_count(&self) -> usize {
        self.running().flights.len()
    }
}

/// Waits for the reply to a tool call. If the reply is cacheable, caches it and shares it with all
/// callers. If `stored` is given and its store has a result, the tool is not called.
async fn land<F, E>(
    call: F,
    registration: Registration,
    questions: Option<Questions>,
    stored: Option<StoredEntry>,
) -> Landed
where
    F: Future<Output = Result<Reply, E>>,
    E: Send + 'static,
{
    if let Some(stored) = &stored
        && let Some((reply, left)) = stored.get().await
    {
        registration.cache(&reply, left);
        return Landed::Result(reply);
    }
    let answer = AssertUnwindSafe(call).catch_unwind().await;
    let own = match answer {
        Ok(Ok(reply)) => {
            if is_cacheable(&reply) && !questions.is_some_and(|questions| questions.has_asked()) {
                let ttl = registration.results.entries.ttl();
                if registration.cache(&reply, ttl)
                    && let Some(stored) = &stored
                {
                    stored.put(&reply).await;
                }
                return Landed::Result(reply);
            }
            Own::Answer(Box::new(Ok::<Reply, E>(reply)))
        }
        Ok(Err(error)) => Own::Answer(Box::new(Err::<Reply, E>(error))),
        Err(panic) => Own::Panic(panic),
    };
    Landed::Own(Arc::new(Mutex::new(Some(own))))
}

/// Returns `true` if the reply is a successful tool result.
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
    /// Caches the result of the call for the duration `ttl`, unless the call was replaced by a
    /// newer call with the same key. Returns `true` if the call was not replaced.
    fn cache(&self, reply: &Reply, ttl: Duration) -> bool {
        let is_current = |(number, _): &(u64, _)| *number == self.number;
        let is_current = self.results.running().flights.get(&self.key).is_some_and(is_current);
        if is_current {
            self.results.entries.insert(self.key.clone(), reply.clone(), ttl);
        }
        is_current
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
