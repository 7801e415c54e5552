//! Running tool calls, shared by all callers that make the same call.
//!
//! A running call is a shared future. Each caller that waits for the call polls a clone of this
//! future, and dropping the last clone cancels the call. No task is spawned.

use std::{
    any::Any,
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use foldhash::fast::RandomState;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};

use super::{entries::Entries, key::Key, store::StoredEntry};
use crate::{
    message::{Questions, Reply},
    mutex::lock,
};

/// A running tool call that several callers can wait for. All clones of this future resolve to the
/// outcome of the same call.
pub(super) type Flight = Shared<BoxFuture<'static, Landed>>;

/// The outcome of a running tool call, which each waiting caller receives.
#[derive(Clone)]
pub(super) enum Landed {
    /// A successful result, which all waiting callers return to their clients.
    Result(Reply),
    /// An outcome that must not be shared, such as an error. The caller that started the call takes
    /// the value. The other callers ignore it, and call the tool themselves.
    Own(Arc<Mutex<Option<Own>>>),
}

/// An outcome that only the caller that started the tool call may return.
pub(super) enum Own {
    /// The `Result<Reply, E>` of the wrapped service. Stored as `Any`, because the error type `E`
    /// depends on the service.
    Answer(Box<dyn Any + Send>),
    /// The wrapped service panicked. Contains the payload of the panic.
    Panic(Box<dyn Any + Send>),
}

/// The cached results of one cache rule, and the running calls to which it applies.
pub(super) struct Results {
    pub(super) entries: Entries,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    flights: HashMap<Arc<Key>, (u64, WeakShared<BoxFuture<'static, Landed>>), RandomState>,
    /// The number that the next running call receives. Distinguishes calls with the same key.
    next: u64,
}

/// The behavior of a tool call if another call with the same key is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenRunning {
    /// The new call waits for the running call, and uses its result.
    Join,
    /// The new call is sent to the service and replaces the running call. Later calls join the new
    /// call.
    Replace,
    /// The new call is sent to the service and does not affect the running call.
    Separate,
}

/// How [`Results::board`] handled a tool call.
pub(super) enum Boarding {
    /// Another caller is already running the call. The future resolves to its outcome.
    Joined(Flight),
    /// A new call was started. Later calls with the same key can join it. The caller must poll the
    /// future.
    Started(Flight),
    /// Another call is running that must not be joined. The caller must call the service itself.
    Separate,
}

/// Keeps the entry of a running tool call in [`Running`]. Dropping this value removes the entry.
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

    /// Joins the running call with this key. If there is none, starts a new call. `call` returns
    /// the future of the new call, which runs when the returned [`Flight`] is polled.
    ///
    /// The result of the new call is cached if it is successful. It is not cached if `Questions`
    /// shows that the server asked the client a question during the call.
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
        let mut running = lock(&self.running);
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

    #[cfg(test)]
    pub(super) fn running_count(&self) -> usize {
        lock(&self.running).flights.len()
    }
}

/// Runs a tool call to completion. Caches the reply and shares it with all waiting callers if it is
/// cacheable. If `stored` is given and the cache store has a result, returns that result without
/// calling the tool.
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
                let ttl = registration.results.entries.ttl;
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

// === impl Registration ===

impl Registration {
    /// Caches the result of the call for the duration `ttl`, and returns `true`. Does nothing and
    /// returns `false` if a newer call with the same key has replaced this call.
    fn cache(&self, reply: &Reply, ttl: Duration) -> bool {
        let is_current = |(number, _): &(u64, _)| *number == self.number;
        let is_current = lock(&self.results.running).flights.get(&self.key).is_some_and(is_current);
        if is_current {
            self.results.entries.insert(self.key.clone(), reply.clone(), ttl);
        }
        is_current
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut running = lock(&self.results.running);
        if running.flights.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            running.flights.remove(&self.key);
        }
    }
}
