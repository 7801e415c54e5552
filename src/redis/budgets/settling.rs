//! Sends settlements to Redis in the background. A settlement ends a lease and charges the amount
//! that the call has used.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
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
use crate::redis::connection::Connection;

/// Maximum number of settlements that are sent to Redis at the same time.
const AT_ONCE: usize = 64;
/// Maximum number of pending settlements. At this number, new [unsure](Settlement::is_unsure)
/// settlements are dropped, so that their leases end by expiring. The limit is needed because each
/// call that is rejected while the server is unavailable queues an unsure settlement.
const MAX_UNSURE: usize = 10_000;
/// The delay before the first retry of a settlement. The delay doubles with each further retry.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Maximum delay before a retry of a settlement.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// A duration longer than the lifetime of any process. It replaces the retry duration if adding
/// this duration to the current time would overflow.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A request to Redis that ends a lease, and charges the amount that the call has actually used.
pub(super) struct Settlement {
    pub(super) account: Account,
    pub(super) lease: String,
    pub(super) actual: u64,
    /// Whether it is unknown if Redis holds the lease. `true` if Redis has not responded to the
    /// request for the lease.
    pub(super) is_unsure: bool,
    /// Whether Redis may still receive a delayed copy of the request for the lease, and must reject
    /// it.
    pub(super) may_arrive: bool,
}

/// A queue of [settlements](Settlement), which a background task sends to Redis. Each settlement
/// ends a lease and charges the amount that the call has used.
pub(super) struct Settling {
    connection: Connection,
    /// How long the background task retries a settlement while the Redis server is unavailable.
    patience: Duration,
    waiting: watch::Sender<usize>,
    worker: Mutex<Option<Worker>>,
}

struct Worker {
    settlements: UnboundedSender<Waiting>,
    tasks: JoinSet<()>,
}

/// A settlement that is in the queue, or that was sent to Redis and not confirmed yet.
struct Waiting {
    settlement: Settlement,
    until: Instant,
    _counted: Counted,
}

/// A guard that counts a pending settlement. When it is dropped, the number of pending settlements
/// is decremented.
struct Counted(watch::Sender<usize>);

// === impl Settling ===

impl Settling {
    pub(super) fn new(connection: Connection, patience: Duration) -> Self {
        let waiting = watch::Sender::new(0);
        Self { connection, patience, waiting, worker: Mutex::default() }
    }

    pub(super) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Starts the background task that sends settlements. It runs on the current Tokio runtime.
    /// Does nothing if the task is already running.
    pub(super) fn start(self: &Arc<Self>) {
        let mut worker = self.worker();
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

    /// Adds a settlement to the queue, from which the background task sends it to Redis.
    pub(super) fn queue(&self, settlement: Settlement) {
        if settlement.is_unsure && *self.waiting.borrow() >= MAX_UNSURE {
            return;
        }
        let waiting =
            Waiting { settlement, until: self.until(), _counted: Counted::new(&self.waiting) };
        if let Some(worker) = &*self.worker() {
            // Sending fails if the runtime has ended. In this case, the lease expires.
            let _ = worker.settlements.unbounded_send(waiting);
        }
    }

    /// Waits until Redis has confirmed each pending settlement, or the background task has given it
    /// up.
    pub(super) async fn flush(&self) {
        // Waiting cannot fail, because the sender is in `self`.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting == 0).await;
    }

    /// Returns the time at which the retries end for a settlement that is queued now.
    fn until(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.patience).unwrap_or_else(|| now + A_LIFETIME)
    }

    fn worker(&self) -> MutexGuard<'_, Option<Worker>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        // Detaches the background task, so that it still sends the last settlements. It ends when
        // the queue is empty, and no longer retries settlements.
        if let Some(worker) = &mut *self.worker() {
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
