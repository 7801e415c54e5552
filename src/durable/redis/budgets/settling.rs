//! Charges the amounts of ended calls in Redis, in the background.

use std::{
    fmt,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use futures::{
    StreamExt,
    channel::mpsc::{UnboundedSender, unbounded},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::account::Account;
use crate::{mutex::lock, redis::connection::Connection};

/// The maximum number of settlements that are sent to Redis at the same time.
const AT_ONCE: usize = 64;
/// If this many settlements are pending, new [unsure](Settlement::is_unsure) ones are dropped, and
/// their leases expire later. While the server is unavailable, each rejected call adds an unsure
/// settlement.
const MAX_UNSURE: usize = 10_000;
/// The delay before the first retry of a settlement. It doubles with each further retry.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The maximum delay before a retry.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Replaces durations that are too long to add them to the current time.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A request to Redis that ends a lease and charges the amount that the call has used.
pub(super) struct Settlement {
    pub(super) account: Account,
    pub(super) lease: String,
    pub(super) actual: u64,
    /// If `true`, it is unknown whether Redis holds the lease, because it has not responded to the
    /// reservation.
    pub(super) is_unsure: bool,
    /// If `true`, Redis may still receive a delayed reservation for the lease, and must reject it.
    pub(super) may_arrive: bool,
}

/// A queue of [settlements](Settlement), which a background task sends to Redis.
pub(super) struct Settling {
    pub(super) connection: Connection,
    /// The time for which a settlement is retried while the Redis server is unavailable.
    patience: Duration,
    waiting: watch::Sender<usize>,
    worker: Mutex<Option<Worker>>,
}

struct Worker {
    settlements: UnboundedSender<Waiting>,
    tasks: JoinSet<()>,
}

/// A settlement in the queue, or one that Redis has not confirmed yet.
struct Waiting {
    settlement: Settlement,
    until: Instant,
    _counted: Counted,
}

/// Counts a pending settlement until it is dropped.
struct Counted(watch::Sender<usize>);

// === impl Settling ===

impl Settling {
    pub(super) fn new(connection: Connection, patience: Duration) -> Self {
        let waiting = watch::Sender::new(0);
        Self { connection, patience, waiting, worker: Mutex::default() }
    }

    /// Starts the background task on the current Tokio runtime, unless it is already running.
    pub(super) fn start(self: &Arc<Self>) {
        let mut worker = lock(&self.worker);
        // The background task must be started again if the runtime of the previous task has ended.
        if worker.as_ref().is_some_and(|worker| !worker.settlements.is_closed()) {
            return;
        }
        let (sender, receiver) = unbounded::<Waiting>();
        let (connection, owner) = (self.connection.clone(), Arc::downgrade(self));
        let mut tasks = JoinSet::new();
        tasks.spawn(receiver.for_each_concurrent(AT_ONCE, move |waiting| {
            let (connection, owner) = (connection.clone(), Weak::clone(&owner));
            async move { waiting.deliver(&connection, &owner).await }
        }));
        *worker = Some(Worker { settlements: sender, tasks });
    }

    /// Adds a settlement to the queue.
    pub(super) fn queue(&self, settlement: Settlement) {
        if settlement.is_unsure && *self.waiting.borrow() >= MAX_UNSURE {
            return;
        }
        let waiting =
            Waiting { settlement, until: self.until(), _counted: Counted::new(&self.waiting) };
        if let Some(worker) = &*lock(&self.worker) {
            // Sending fails if the runtime has ended. In this case, the lease expires.
            let _ = worker.settlements.unbounded_send(waiting);
        }
    }

    /// Waits until each pending settlement was confirmed by Redis or has failed.
    pub(super) async fn flush(&self) {
        // Waiting cannot fail, because the sender is in `self`.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting == 0).await;
    }

    /// Returns the time at which the retries of a settlement end that is queued now.
    fn until(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.patience).unwrap_or_else(|| now + A_LIFETIME)
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        // Detaches the background task, so that it still sends the last settlements. It ends when
        // the queue is empty, and no longer retries settlements.
        if let Some(worker) = &mut *lock(&self.worker) {
            worker.tasks.detach_all();
        }
    }
}

impl fmt::Debug for Settling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settling").field("waiting", &*self.waiting.borrow()).finish_non_exhaustive()
    }
}

// === impl Waiting ===

impl Waiting {
    async fn deliver(self, connection: &Connection, owner: &Weak<Settling>) {
        let Settlement { account, lease, actual, may_arrive, .. } = &self.settlement;
        let mut pause = FIRST_PAUSE;
        loop {
            let Err(away) = account.settle(connection, lease, *actual, *may_arrive).await else {
                return;
            };
            if away.is_final() {
                tracing::warn!(%away, actual, "failed to charge a budget: the store rejected it");
                return;
            }
            if Instant::now() >= self.until || owner.strong_count() == 0 {
                tracing::warn!(%away, actual, "failed to charge a budget: the store is unavailable");
                return;
            }
            // The delay is random, so that replicas do not reconnect at the same time.
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}

// === impl Counted ===

impl Counted {
    fn new(waiting: &watch::Sender<usize>) -> Self {
        waiting.send_modify(|waiting| *waiting += 1);
        Self(waiting.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}
