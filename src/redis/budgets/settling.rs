//! What is told to the server in the background, since whoever settles cannot wait.

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

/// How many are told at the same time.
const AT_ONCE: usize = 64;
/// How many of reservations that may not have been made wait at most: while the server
/// is away each refused call has one. Beyond that the lease ends them.
const MAX_UNSURE: usize = 10_000;
/// How long to wait before the server is told again: first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Longer than any process.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// What ends a lease.
pub(super) struct Settlement {
    pub(super) account: Account,
    pub(super) lease: String,
    pub(super) actual: u64,
    /// Whether it is not known that the server keeps it.
    pub(super) is_unsure: bool,
    /// Whether the server may still be asked to keep it.
    pub(super) may_arrive: bool,
}

/// Tells the server of settlements, in a task that it owns.
pub(super) struct Settling {
    connection: Connection,
    /// How long the server is told again and again.
    patience: Duration,
    waiting: watch::Sender<usize>,
    worker: Mutex<Option<Worker>>,
}

struct Worker {
    settlements: UnboundedSender<Waiting>,
    tasks: JoinSet<()>,
}

/// A settlement that the server has not been told of.
struct Waiting {
    settlement: Settlement,
    until: Instant,
    _counted: Counted,
}

/// Counted among those that wait, until it is dropped.
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

    /// Begins to work on the runtime of whoever calls, if it does not anywhere.
    pub(super) fn start(self: &Arc<Self>) {
        let mut worker = self.worker();
        // The runtime that it worked on may have ended.
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

    /// Tells the server, soon.
    pub(super) fn tell(&self, settlement: Settlement) {
        if settlement.is_unsure && *self.waiting.borrow() >= MAX_UNSURE {
            return;
        }
        let waiting =
            Waiting { settlement, until: self.until(), _counted: Counted::new(&self.waiting) };
        if let Some(worker) = &*self.worker() {
            // It fails if the runtime has ended, and then the lease ends it.
            let _ = worker.settlements.unbounded_send(waiting);
        }
    }

    /// Waits until the server was told of all.
    pub(super) async fn flush(&self) {
        // It fails if the sender is gone, which is here.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting == 0).await;
    }

    /// How long a settlement of now is told again.
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
        // What was settled last is still told: the task ends when it has nothing more
        // to tell, and does not try again what fails from now on.
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
                tracing::warn!(%away, actual, "a budget was not charged: the store refuses it");
                return;
            }
            if Instant::now() >= self.until || owner.strong_count() == 0 {
                tracing::warn!(%away, actual, "a budget was not charged: the store is away");
                return;
            }
            // Replicas that lost the same server do not come back at once.
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
