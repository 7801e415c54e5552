//! The tasks of a layer: their states, limits and lifetimes.

use std::{
    collections::{BTreeSet, HashMap},
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use futures::FutureExt as _;
use rmcp::model::{DetailedTask, ErrorData, InputRequests, InputResponses, Task, TaskPayload};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    task::JoinSet,
    time::Instant,
};
use tracing::Instrument;

#[cfg(feature = "restate")]
use super::shared::durable::{DurableTasks, TaskEngine, TaskRuns};
use super::{
    description::describe,
    error::{LimitReached, UnknownTask},
    id::{key_of, new_id},
    limits::{LIFETIME, MAX_TASK_BYTES, MAX_TASKS, MAX_UNFINISHED},
    shared::{SharedTasks, TaskStore},
    state::{Entry, Questions, State},
};
use crate::{json_size::json_bytes, mutex::lock};

/// Stores the tasks of one or several [`TaskLayer`](super::TaskLayer)s.
///
/// Clones share the same tasks. When the last clone is dropped, including those in layers and
/// services, all runs of unfinished tasks are dropped.
#[derive(Clone, Default)]
pub struct TaskRegistry {
    local: Arc<Registry>,
    /// The tasks in a shared store. If it is set, all new tasks are in this store.
    pub(super) shared: Option<Arc<SharedTasks>>,
    /// The tasks of a durable engine. If it is set, it executes all new tasks.
    #[cfg(feature = "restate")]
    pub(super) durable: Option<Arc<DurableTasks>>,
}

struct Registry {
    entries: Mutex<Entries>,
    tasks: Arc<Semaphore>,
    unfinished: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

#[derive(Default)]
struct Entries {
    tasks: HashMap<Arc<str>, Entry>,
    /// The expiry time and the ID of each task, sorted by expiry time.
    expiries: BTreeSet<(Instant, Arc<str>)>,
    /// The runs of the unfinished tasks.
    runs: JoinSet<()>,
    /// `true` if the registry is shutting down, so that new tasks and questions are rejected.
    is_closed: bool,
}

/// Room for a new task, reserved from the limits of the registry. [`start`](Self::start) creates
/// the task.
pub(super) struct Reservation {
    registry: TaskRegistry,
    id: Arc<str>,
    slot: OwnedSemaphorePermit,
    unfinished: OwnedSemaphorePermit,
    bytes: OwnedSemaphorePermit,
}

/// The handle with which the run of a task changes the state of the task. It does not keep the
/// registry alive, because the registry owns the run.
pub(super) struct TaskHandle {
    registry: Weak<Registry>,
    id: Arc<str>,
}

// === impl TaskRegistry ===

impl TaskRegistry {
    /// Creates a registry without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a registry whose tasks are in a store that several replicas share. See the [module
    /// docs](super) for an example.
    #[must_use]
    pub fn with_store(store: impl TaskStore + 'static) -> Self {
        let shared = Some(Arc::new(SharedTasks::new(Arc::new(store))));
        Self { shared, ..Self::default() }
    }

    /// Creates a registry whose tasks a durable engine executes. `runs` contains the services that
    /// run them in this process.
    #[cfg(feature = "restate")]
    pub(crate) fn with_engine(engine: Arc<dyn TaskEngine>, runs: TaskRuns) -> Self {
        let durable = Some(Arc::new(DurableTasks::new(engine, runs)));
        Self { durable, ..Self::default() }
    }

    /// Takes over the tasks of `before`, the registry of the previous configuration. If
    /// `is_same_store` is `false`, the store in the configuration has changed, and this registry
    /// keeps its own store.
    #[cfg(feature = "config")]
    pub(crate) fn take_over(&mut self, before: &Self, is_same_store: bool) {
        self.local = before.local.clone();
        #[cfg(feature = "restate")]
        self.durable.clone_from(&before.durable);
        if is_same_store {
            self.shared = before.shared.clone();
        }
    }

    /// Returns `true` if a service of this process can continue the tasks of other processes.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn is_watched(&self) -> bool {
        #[cfg(feature = "restate")]
        if self.durable.as_ref().is_some_and(|durable| durable.is_watched()) {
            return true;
        }
        self.shared.as_ref().is_some_and(|shared| shared.is_watched())
    }

    /// Drops the services of all views (URL paths of the gateway) for which `is_served` returns
    /// `false`. They no longer continue tasks of other processes.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn retain_views(&self, is_served: impl Fn(Option<&str>) -> bool) {
        if let Some(shared) = &self.shared {
            shared.retain_views(&is_served);
        }
        #[cfg(feature = "restate")]
        if let Some(durable) = &self.durable {
            durable.retain_views(is_served);
        }
    }

    /// Waits until all tasks have ended, without a time limit. From now on, rejects new tasks.
    /// Tasks that wait for input are cancelled, and tasks fail when they ask a question. Clients
    /// can still get the results of tasks.
    ///
    /// With a shared store, waits until this process runs no task. Tasks that wait for input remain
    /// in the store, and other replicas continue them.
    ///
    /// With a durable engine, waits until the calls that this process makes have ended. Their runs
    /// continue in other processes.
    ///
    /// Use this method to wait for running tasks before a program ends. To bound the time, wrap the
    /// future in `tokio::time::timeout`, and then call [`close`](Self::close).
    pub async fn finished(&self) {
        let registry = &self.local;
        registry.stop(Entry::is_waiting);
        let all = u32::try_from(MAX_UNFINISHED).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        drop(registry.unfinished.acquire_many(all).await);
        if let Some(shared) = &self.shared {
            shared.finished().await;
        }
        #[cfg(feature = "restate")]
        if let Some(durable) = &self.durable {
            durable.finished().await;
        }
    }

    /// Cancels all tasks that have not ended, and waits until their runs are dropped. From now on,
    /// rejects new tasks.
    ///
    /// With a shared store, releases the tasks that this process runs instead of cancelling them.
    /// Other replicas continue them. With a durable engine, cancels the calls that this process
    /// makes.
    ///
    /// Call this before the runtime ends, so that the calls of the runs are cancelled in time.
    pub async fn close(&self) {
        let registry = &self.local;
        let cancelled = registry.stop(|_| true);
        if cancelled > 0 {
            tracing::warn!(tasks = cancelled, "cancelled tasks that had not ended");
        }
        let mut runs = mem::take(&mut lock(&registry.entries).runs);
        runs.shutdown().await;
        if let Some(shared) = &self.shared {
            shared.close().await;
        }
        #[cfg(feature = "restate")]
        if let Some(durable) = &self.durable {
            durable.close().await;
        }
    }

    /// Cancels the task with this name, as its owner can. Does nothing if the task has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such task, or if its store is unavailable.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) async fn cancel_by_name(&self, name: &str) -> Result<(), ErrorData> {
        if self.local.live_entries().cancel_by_name(name) {
            return Ok(());
        }
        #[cfg(feature = "restate")]
        if let Some(durable) = &self.durable {
            return durable.cancel(name, None).await;
        }
        match &self.shared {
            Some(shared) => shared.cancel(name, None).await,
            None => Err(UnknownTask.into()),
        }
    }

    /// Returns `true` if the task with this ID is in the memory of this process.
    pub(super) fn contains(&self, id: &str) -> bool {
        self.local.live_entries().tasks.contains_key(id)
    }

    /// Reserves room for a new task. `bytes` is the size of the data that the task stores until it
    /// ends.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is reached.
    pub(super) fn reserve(&self, bytes: usize) -> Result<Reservation, LimitReached> {
        let registry = &self.local;
        registry.live_entries().check_open()?;
        let unfinished = registry.unfinished.clone().try_acquire_owned();
        let unfinished =
            unfinished.map_err(|_| LimitReached::Unfinished { max: MAX_UNFINISHED })?;
        let slot = registry.tasks.clone().try_acquire_owned();
        let slot = slot.map_err(|_| LimitReached::Tasks { max: MAX_TASKS })?;
        let bytes = registry.hold(bytes)?;
        let id = new_id().ok_or(LimitReached::NoRandomNumbers)?;
        Ok(Reservation { registry: self.clone(), id: id.into(), slot, unfinished, bytes })
    }

    /// Returns the state of the task with this ID. Returns an error if the task does not belong to
    /// `owner`.
    pub(super) fn get(&self, id: &str, owner: &[u8]) -> Result<DetailedTask, UnknownTask> {
        let (task, payload) = {
            let mut entries = self.local.live_entries();
            let (id, entry) = entries.find(id, owner)?;
            (entry.task(&id), entry.payload())
        };
        Ok(DetailedTask::new(task, Arc::unwrap_or_clone(payload)))
    }

    /// Delivers answers to the open questions of a task. Ignores all other answers. If no question
    /// is left open, the run of the task continues.
    ///
    /// # Errors
    ///
    /// Returns an error if the task is unknown, or if there is no room for an answer.
    pub(super) fn update(
        &self,
        id: &str,
        owner: &[u8],
        answers: InputResponses,
    ) -> Result<(), ErrorData> {
        let registry = &self.local;
        let mut entries = registry.live_entries();
        let (id, entry) = entries.find(id, owner)?;
        let State::Unfinished { questions, .. } = &mut entry.state else { return Ok(()) };
        let Some(mut pending) = questions.take() else { return Ok(()) };
        let open = pending.open();
        let taken = pending.take_answers(answers, |bytes| registry.hold(bytes));
        let has_changed = pending.open() < open;
        if pending.open() == 0 {
            pending.deliver();
        } else {
            *questions = Some(pending);
        }
        if has_changed {
            entries.renew(&id);
        }
        Ok(taken?)
    }

    /// Cancels a task and drops its run. Does nothing if the task has ended.
    pub(super) fn cancel(&self, id: &str, owner: &[u8]) -> Result<(), UnknownTask> {
        let mut entries = self.local.live_entries();
        let (id, _) = entries.find(id, owner)?;
        entries.cancel(&id);
        Ok(())
    }
}

impl fmt::Debug for TaskRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the IDs, because a client that knows an ID may access its task.
        let tasks = lock(&self.local.entries).tasks.len();
        let mut debug = f.debug_struct("TaskRegistry");
        debug.field("tasks", &tasks);
        if let Some(shared) = &self.shared {
            debug.field("shared", shared);
        }
        #[cfg(feature = "restate")]
        if let Some(durable) = &self.durable {
            debug.field("durable", durable);
        }
        debug.finish_non_exhaustive()
    }
}

// === impl Registry ===

impl Registry {
    /// Removes the expired tasks, and locks the others.
    fn live_entries(&self) -> MutexGuard<'_, Entries> {
        let mut entries = lock(&self.entries);
        entries.drop_expired(Instant::now());
        entries
    }

    /// Rejects new tasks and questions. Cancels the unfinished tasks for which `is_meant` returns
    /// `true`, and returns their number.
    fn stop(&self, is_meant: impl Fn(&Entry) -> bool) -> usize {
        let mut entries = lock(&self.entries);
        entries.is_closed = true;
        entries.cancel_unfinished(is_meant)
    }

    /// Counts `bytes` toward [`MAX_TASK_BYTES`] until the returned permit is dropped.
    fn hold(&self, bytes: usize) -> Result<OwnedSemaphorePermit, LimitReached> {
        let permit = u32::try_from(bytes)
            .ok()
            .and_then(|bytes| self.bytes.clone().try_acquire_many_owned(bytes).ok());
        permit.ok_or(LimitReached::Bytes { max: MAX_TASK_BYTES })
    }
}

impl Default for Registry {
    fn default() -> Self {
        let [tasks, unfinished, bytes] = [MAX_TASKS, MAX_UNFINISHED, MAX_TASK_BYTES]
            .map(|permits| Arc::new(Semaphore::new(permits)));
        Self { entries: Mutex::default(), tasks, unfinished, bytes }
    }
}

// === impl Entries ===

impl Entries {
    fn check_open(&self) -> Result<(), LimitReached> {
        if self.is_closed { Err(LimitReached::Closed) } else { Ok(()) }
    }

    /// Returns the task with this ID if it belongs to `owner`. The error does not reveal whether a
    /// task with this ID exists.
    fn find(&mut self, id: &str, owner: &[u8]) -> Result<(Arc<str>, &mut Entry), UnknownTask> {
        let (id, _) = self.tasks.get_key_value(id).ok_or(UnknownTask)?;
        let id = id.clone();
        let entry = self.tasks.get_mut(&id).filter(|entry| *entry.owner == *owner);
        entry.map(|entry| (id, entry)).ok_or(UnknownTask)
    }

    fn insert(&mut self, id: Arc<str>, entry: Entry) {
        self.expiries.insert((entry.expiry, id.clone()));
        self.tasks.insert(id, entry);
    }

    /// Records that a task has changed, and postpones its expiry.
    fn renew(&mut self, id: &Arc<str>) {
        let Some(entry) = self.tasks.get_mut(id) else { return };
        self.expiries.remove(&(entry.expiry, id.clone()));
        entry.renew();
        self.expiries.insert((entry.expiry, id.clone()));
    }

    /// Cancels a task. Does nothing if the task has ended.
    fn cancel(&mut self, id: &Arc<str>) {
        if self.tasks.get_mut(id).is_some_and(Entry::cancel) {
            self.renew(id);
        }
    }

    /// Cancels the task with this name. Returns `false` if there is no such task.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    fn cancel_by_name(&mut self, name: &str) -> bool {
        let id = self.tasks.keys().find(|id| key_of(id) == name).cloned();
        id.inspect(|id| self.cancel(id)).is_some()
    }

    /// Removes the tasks that have expired, and drops their runs.
    fn drop_expired(&mut self, now: Instant) {
        while self.expiries.first().is_some_and(|(expiry, _)| *expiry <= now) {
            let expired = self.expiries.pop_first();
            if let Some(mut entry) = expired.and_then(|(_, id)| self.tasks.remove(&id)) {
                entry.cancel();
            }
        }
    }

    /// Cancels the unfinished tasks for which `is_meant` returns `true`. Returns their number.
    fn cancel_unfinished(&mut self, is_meant: impl Fn(&Entry) -> bool) -> usize {
        let meant = self.tasks.iter_mut().filter(|(_, entry)| is_meant(entry));
        let cancelled = meant.filter_map(|(id, entry)| entry.cancel().then(|| id.clone()));
        let cancelled: Vec<_> = cancelled.collect();
        cancelled.iter().for_each(|id| self.renew(id));
        cancelled.len()
    }
}

// === impl Reservation ===

impl Reservation {
    /// Returns the name of the task.
    pub(super) fn name(&self) -> String {
        key_of(&self.id)
    }

    /// Starts the task of `owner`. `run` returns the future that the task runs. `timeout` is the
    /// maximum duration of the run, not including the time that it waits for the user.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub(super) fn start<F>(
        self,
        owner: Vec<u8>,
        timeout: Duration,
        run: impl FnOnce(TaskHandle) -> F,
    ) -> Task
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { registry: TaskRegistry { local: registry, .. }, id, slot, unfinished, bytes } =
            self;
        let handle = TaskHandle { registry: Arc::downgrade(&registry), id: id.clone() };
        let run = run(handle).in_current_span().boxed();
        let mut entries = lock(&registry.entries);
        // Removes the runs that have ended.
        while entries.runs.try_join_next().is_some() {}
        let run = entries.runs.spawn(run);
        let state = State::Unfinished { run, questions: None, _slot: unfinished };
        let lifetime = LIFETIME.max(timeout);
        let entry = Entry::new(owner, lifetime, state, slot, bytes);
        let task = entry.task(&id);
        entries.insert(id, entry);
        task
    }
}

// === impl TaskHandle ===

impl TaskHandle {
    /// Makes the task wait for answers to the questions in `open`. The returned receiver yields the
    /// answers, or an error if the task is cancelled.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no room for the questions.
    pub(super) fn ask(
        &self,
        open: InputRequests,
    ) -> Result<oneshot::Receiver<InputResponses>, LimitReached> {
        let (answered, answers) = oneshot::channel();
        if let Some(registry) = self.registry.upgrade() {
            let bytes = registry.hold(json_bytes(&open))?;
            let mut entries = lock(&registry.entries);
            entries.check_open()?;
            if let Some(entry) = entries.tasks.get_mut(&self.id)
                && let State::Unfinished { questions, .. } = &mut entry.state
            {
                *questions = Some(Questions::new(open, answered, bytes));
                entries.renew(&self.id);
            }
        }
        Ok(answers)
    }

    /// Ends the task. `bytes` is the size of its result. Does nothing if the task was cancelled.
    pub(super) fn end(&self, ended: TaskPayload, bytes: usize) {
        let Some(registry) = self.registry.upgrade() else { return };
        let mut entries = lock(&registry.entries);
        let Some(entry) = entries.tasks.get_mut(&self.id) else { return };
        if !entry.is_unfinished() {
            return;
        }
        entry.end(ended, || registry.hold(bytes));
        entries.renew(&self.id);
    }
}

impl Entry {
    /// Returns the task as clients see it, without its payload. See [`describe`].
    fn task(&self, id: &str) -> Task {
        let ttl = self.expiry.duration_since(self.created);
        describe(id, self.created_at, self.updated_at, ttl)
    }
}
