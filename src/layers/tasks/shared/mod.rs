//! Tasks in a store that several replicas share.

use std::{
    collections::HashMap,
    fmt, future, mem,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use rmcp::model::{CallToolRequestParams, DetailedTask, ErrorData, InputResponses, Task};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::DropGuard;
use tracing::Instrument;

#[cfg(feature = "restate")]
pub(super) mod durable;
mod held;
mod memory;
mod record;
mod runner;
pub(super) mod store;
#[cfg(test)]
mod tests;

pub(super) use self::record::Owner;
use self::{
    held::{Held, Stage},
    record::{Call, Progress, Resume, State},
    runner::{Replying, Runner},
    store::new_token,
};
pub use self::{
    memory::MemoryTaskStore,
    store::{StoredTask, TaskPhase, TaskStore, TaskStoreError, TaskWrite},
};
use super::{
    error::UnknownTask,
    id::{key_of, new_id},
    limits::{LIFETIME, MAX_UNFINISHED},
    tool::{TaskTool, TaskTools},
};
use crate::{
    log_pause::LogPause,
    message::{Context, Reply, ToolService, Tracing},
    mutex::lock,
};

/// A replica renews a lease this many times before the lease would expire.
const RENEWALS: u32 = 3;
/// The maximum number of tasks that a replica takes over at a time.
const MAX_CLAIMS: usize = 8;
/// The maximum number of attempts to change a task that other replicas change at the same time.
const MAX_CHANGES: usize = 8;

/// Tasks in a store that several replicas share, and the runs of those that this replica runs.
pub(super) struct SharedTasks {
    store: Arc<dyn TaskStore>,
    /// Limits the number of tasks that this replica runs.
    slots: Arc<Semaphore>,
    running: Mutex<Running>,
    /// Limits how often warnings about an unavailable store are logged.
    outages: LogPause,
}

#[derive(Default)]
struct Running {
    /// The tasks that this replica runs, by key.
    held: HashMap<String, Arc<Held>>,
    runs: JoinSet<()>,
    /// The Tokio task that renews leases and takes over tasks of other replicas.
    lookout: JoinSet<()>,
    /// The services that can continue tasks, by the view (a URL path of the gateway) that they
    /// serve.
    runners: HashMap<Option<Arc<str>>, Runner>,
    /// `true` if the replica is shutting down, and starts no more runs.
    is_closed: bool,
}

/// A task that is prepared for a call. Until [`start`](Self::start) is called, the call may still
/// return its result directly instead of the task.
pub(super) struct NewTask {
    shared: Arc<SharedTasks>,
    id: String,
    held: Arc<Held>,
    slot: OwnedSemaphorePermit,
}

/// A task as read from the store.
struct Found {
    key: String,
    token: String,
    call: Call,
    state: State,
}

// === impl SharedTasks ===

impl SharedTasks {
    pub(super) fn new(store: Arc<dyn TaskStore>) -> Self {
        Self {
            store,
            slots: Arc::new(Semaphore::new(MAX_UNFINISHED)),
            running: Mutex::default(),
            outages: LogPause::default(),
        }
    }

    /// Registers `inner` as the service that continues the tasks of its view. `inner` is the
    /// service below a task layer with the composites `tools`. Also starts to look for tasks whose
    /// replica has ended.
    pub(super) fn serve<S: ToolService>(
        self: &Arc<Self>,
        tools: &Arc<TaskTools>,
        tracing: Option<&Arc<Tracing>>,
        inner: &S,
    ) {
        let view = tracing.and_then(|tracing| tracing.view.as_ref());
        let mut running = lock(&self.running);
        let known = running.runners.get(&view.cloned());
        if !known.is_some_and(|runner| runner.is_of(tools)) {
            let runner = Runner::new(tools.clone(), tracing.cloned(), inner.clone());
            running.runners.insert(view.cloned(), runner);
        }
        // The lookout must be started again if the runtime of the previous one has ended.
        while running.lookout.try_join_next().is_some() {}
        if running.lookout.is_empty() && !running.is_closed {
            running.lookout.spawn(look_out(Arc::downgrade(self), self.store.lease()));
        }
    }

    /// Returns `true` if a service is registered that can continue tasks.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(super) fn is_watched(&self) -> bool {
        !lock(&self.running).runners.is_empty()
    }

    /// Drops the services of all views (URL paths of the gateway) for which `is_served` returns
    /// `false`.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(super) fn retain_views(&self, is_served: impl Fn(Option<&str>) -> bool) {
        lock(&self.running).runners.retain(|view, _| is_served(view.as_deref()));
    }

    /// Prepares a task for a call. `tool` is the called composite, and `context` the context with
    /// which it is called.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is reached or the store is unavailable.
    pub(super) async fn begin(
        self: &Arc<Self>,
        tool: TaskTool,
        owner: Owner,
        params: CallToolRequestParams,
        context: &mut Context,
    ) -> Result<NewTask, TaskStoreError> {
        let slot = self.slot().ok_or(TaskStoreError::Unfinished { max: MAX_UNFINISHED })?;
        let id = new_id().ok_or(TaskStoreError::Unavailable("no random numbers".into()))?;
        let lifetime = LIFETIME.max(tool.timeout);
        let call = Call::new(owner, params, context.meta().clone(), lifetime);
        let state = State::new(0, Progress::Working { resume: Resume::default() });
        let names = (key_of(&id), new_token()?);
        let held = Held::new(self.store.clone(), names, call, state, Stage::Unstored);
        if tool.is_immediate {
            held.create().await?;
        } else {
            // An optional call is stored when it becomes a task. If the store is unavailable, it
            // must not begin as one.
            self.store.get(&held.key).await?;
        }
        let held = Arc::new(held);
        held.keep_run_of(context);
        Ok(NewTask { shared: self.clone(), id, held, slot })
    }

    /// Returns the state of the task with this ID. Returns an error if the task does not belong to
    /// `owner`.
    pub(super) async fn get(&self, id: &str, owner: &Owner) -> Result<DetailedTask, ErrorData> {
        let Found { call, state, .. } = self.find(&key_of(id), Some(owner)).await?;
        Ok(DetailedTask::new(call.task(id, &state), state.progress.into_payload()))
    }

    /// Delivers answers to the open questions of a task. Ignores all other answers. If no question
    /// is left open, continues the task with `context`, the context of the request.
    pub(super) async fn update(
        self: &Arc<Self>,
        id: &str,
        owner: &Owner,
        answers: InputResponses,
        context: Context,
    ) -> Result<(), ErrorData> {
        for _ in 0..MAX_CHANGES {
            let found = self.find(&key_of(id), Some(owner)).await?;
            let Some(state) = found.state.answered(answers.clone()) else { return Ok(()) };
            if state.progress.is_too_deep() {
                return Err(ErrorData::invalid_params("an answer is nested too deeply", None));
            }
            let (slot, phase) = match &state.progress {
                Progress::Working { .. } => match self.slot() {
                    Some(slot) => (Some(slot), TaskPhase::Working(self.store.lease())),
                    // Another replica takes the task over.
                    None => (None, TaskPhase::Working(Duration::ZERO)),
                },
                _ => (None, TaskPhase::Waiting),
            };
            if let Some(token) = self.change(&found, &state, phase).await? {
                if let Some(slot) = slot {
                    self.resume(Found { token, state, ..found }, slot, Some(context));
                }
                return Ok(());
            }
        }
        Err(TaskStoreError::Lost.into())
    }

    /// Cancels the task with this key, if it belongs to `owner`. If this replica runs the task,
    /// drops its run. If another replica runs it, that replica drops the run when it next renews
    /// its leases. Does nothing if the task has ended.
    pub(super) async fn cancel(&self, key: &str, owner: Option<&Owner>) -> Result<(), ErrorData> {
        for _ in 0..MAX_CHANGES {
            let found = self.find(key, owner).await?;
            if found.state.progress.is_ended() {
                return Ok(());
            }
            let state = found.state.then(Progress::Cancelled);
            if self.change(&found, &state, TaskPhase::Ended).await?.is_some() {
                let held = lock(&self.running).held.get(&found.key).cloned();
                if let Some(held) = held.filter(|held| held.token == found.token) {
                    held.leave(Stage::Cancelled);
                }
                return Ok(());
            }
        }
        Err(TaskStoreError::Lost.into())
    }

    /// Prevents new runs, and waits until each current run has ended or waits for the user.
    pub(super) async fn finished(&self) {
        lock(&self.running).is_closed = true;
        let all = u32::try_from(MAX_UNFINISHED).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        drop(self.slots.acquire_many(all).await);
    }

    /// Drops all runs, and releases their leases, so that other replicas continue them at once.
    pub(super) async fn close(&self) {
        let (held, mut runs, mut lookout) = {
            let mut running = lock(&self.running);
            running.is_closed = true;
            running.runners.clear();
            let held = mem::take(&mut running.held);
            (held, mem::take(&mut running.runs), mem::take(&mut running.lookout))
        };
        lookout.shutdown().await;
        let held: Vec<_> = held.into_values().filter(|held| held.is_running()).collect();
        held.iter().for_each(|held| held.leave(Stage::Lost));
        runs.shutdown().await;
        if !held.is_empty() {
            tracing::info!(tasks = held.len(), "released tasks that had not ended");
            self.renew(&held, Duration::ZERO).await;
        }
    }

    /// Converts an error of the store to the error that the client receives. If the store is
    /// unavailable, also logs a warning.
    fn unavailable(&self, error: TaskStoreError) -> ErrorData {
        if matches!(error, TaskStoreError::Unavailable(_)) && self.outages.is_due_now() {
            tracing::warn!(reason = error.reason(), "the task store is unavailable");
        }
        error.into()
    }

    /// Reserves a place for a run. Returns `None` if this replica already runs the maximum number
    /// of tasks, or is shutting down.
    fn slot(&self) -> Option<OwnedSemaphorePermit> {
        let is_closed = lock(&self.running).is_closed;
        self.slots.clone().try_acquire_owned().ok().filter(|_| !is_closed)
    }

    /// Returns the task with this key if it belongs to `owner`, or to anyone if that is `None`. The
    /// error does not reveal whether a task with this key exists.
    async fn find(&self, key: &str, owner: Option<&Owner>) -> Result<Found, ErrorData> {
        let stored = self.store.get(key).await.map_err(|error| self.unavailable(error))?;
        let is_owned = |found: &Found| owner.is_none_or(|owner| found.call.owner == *owner);
        stored.and_then(Found::parse).filter(is_owned).ok_or_else(|| UnknownTask.into())
    }

    /// Changes a task. Returns its new token, or `None` if another replica has changed the task
    /// since `found` was read.
    async fn change(
        &self,
        found: &Found,
        state: &State,
        phase: TaskPhase,
    ) -> Result<Option<String>, ErrorData> {
        let (token, state) = (new_token()?, record::format(state));
        let write = TaskWrite {
            expected: Some(&found.token),
            state: Some(&state),
            ..found.call.write(&token, phase)
        };
        match self.store.write(&found.key, write).await {
            Ok(()) => Ok(Some(token)),
            Err(TaskStoreError::Lost) => Ok(None),
            Err(error) => Err(self.unavailable(error)),
        }
    }

    /// Continues a task for which this replica holds a lease.
    fn resume(
        self: &Arc<Self>,
        found: Found,
        slot: OwnedSemaphorePermit,
        context: Option<Context>,
    ) {
        let Found { key, token, call, state } = found;
        let held = Held::new(self.store.clone(), (key, token), call, state, Stage::Running);
        let held = Arc::new(held);
        let reply = reply_again(Arc::downgrade(self), held.clone(), context);
        self.run(held, slot, Box::pin(reply));
    }

    fn run(self: &Arc<Self>, held: Arc<Held>, slot: OwnedSemaphorePermit, reply: Replying) {
        let (shared, this) = (Arc::downgrade(self), held.clone());
        let run = async move {
            this.dropped.run_until_cancelled(this.run(reply)).await;
            if let Some(shared) = shared.upgrade() {
                shared.forget(&this);
            }
            drop(slot);
        };
        let mut running = lock(&self.running);
        // Removes the runs that have ended.
        while running.runs.try_join_next().is_some() {}
        running.held.insert(held.key.clone(), held);
        running.runs.spawn(run.in_current_span());
    }

    /// Removes a run that has ended.
    fn forget(&self, held: &Arc<Held>) {
        let mut running = lock(&self.running);
        if running.held.get(&held.key).is_some_and(|other| Arc::ptr_eq(other, held)) {
            running.held.remove(&held.key);
        }
    }

    /// Renews the leases of the tasks in `held`. If another replica has changed a task, drops its
    /// run.
    async fn renew(&self, held: &[Arc<Held>], lease: Duration) {
        let names = held.iter().map(|held| (held.key.clone(), held.token.clone()));
        match self.store.renew(&names.collect::<Vec<_>>(), lease).await {
            Ok(renewed) => {
                for (held, _) in held.iter().zip(renewed).filter(|(_, is_held)| !is_held) {
                    if held.is_running() {
                        held.lose().await;
                    }
                }
            }
            Err(error) => drop(self.unavailable(error)),
        }
    }

    /// Takes over tasks whose replica has ended.
    async fn take_over(self: &Arc<Self>) {
        let free = self.slots.available_permits().min(MAX_CLAIMS);
        if free == 0 || lock(&self.running).is_closed {
            return;
        }
        match self.store.claim(free, self.store.lease()).await {
            Ok(claimed) => {
                for found in claimed.into_iter().filter_map(Found::parse) {
                    // Without a slot, the lease expires, and another replica claims the task.
                    let Some(slot) = self.slot() else { return };
                    tracing::info!(tool = &*found.call.params.name, "took over a task");
                    self.resume(found, slot, None);
                }
            }
            Err(error) => drop(self.unavailable(error)),
        }
    }
}

impl Drop for SharedTasks {
    fn drop(&mut self) {
        // The runs end without a release of their leases, and may not store anything while other
        // replicas continue them.
        lock(&self.running).held.values().for_each(|held| held.leave(Stage::Lost));
    }
}

impl fmt::Debug for SharedTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let running = lock(&self.running).held.len();
        f.debug_struct("SharedTasks")
            .field("store", &self.store)
            .field("running", &running)
            .finish_non_exhaustive()
    }
}

/// Renews the leases of this replica and takes over tasks, until the registry is dropped.
async fn look_out(shared: Weak<SharedTasks>, lease: Duration) {
    loop {
        // The pause is random, so that replicas do not look at the same time.
        sleep((lease / RENEWALS).mul_f64(0.75 + fastrand::f64() / 4.0)).await;
        let Some(shared) = shared.upgrade() else { return };
        let held: Vec<_> = lock(&shared.running).held.values().cloned().collect();
        let held: Vec<_> = held.into_iter().filter(|held| held.is_running()).collect();
        if !held.is_empty() {
            shared.renew(&held, lease).await;
        }
        shared.take_over().await;
    }
}

/// Calls the composite of a claimed task again. Never completes if this replica cannot continue the
/// task. Its lease then expires, and another replica claims it.
async fn reply_again(
    shared: Weak<SharedTasks>,
    held: Arc<Held>,
    context: Option<Context>,
) -> Result<Reply, ErrorData> {
    let loaded = held.load().await;
    let reply = loaded.ok().and_then(|()| {
        let shared = shared.upgrade()?;
        let view = held.call.owner.view.as_deref().map(Arc::from);
        let mut running = lock(&shared.running);
        let resume = held.state().resume();
        let runner = running.runners.get_mut(&view)?;
        runner.call(&held.call, resume, context, |context| held.keep_run_of(context))
    });
    match reply {
        Some(reply) => reply.await,
        None => {
            let tool = &*held.call.params.name;
            tracing::warn!(tool, "cannot continue a task; another replica takes it over");
            held.leave(Stage::Lost);
            future::pending().await
        }
    }
}

// === impl NewTask ===

impl NewTask {
    /// Stores the task. Used for a call with `TaskMode::Optional` that becomes a task.
    pub(super) async fn create(&self) -> Result<(), ErrorData> {
        self.held.create().await.map_err(|error| self.shared.unavailable(error))
    }

    /// Returns a guard that cancels the run when it is dropped. It must be dropped before the
    /// future of the run.
    pub(super) fn cancel_on_drop(&self) -> DropGuard {
        self.held.cancelled.clone().drop_guard()
    }

    /// Runs the task. `reply` is the future of the reply to its call.
    pub(super) fn start(self, reply: Replying) -> Task {
        let Self { shared, id, held, slot } = self;
        let task = held.call.task(&id, &held.state());
        shared.run(held, slot, reply);
        task
    }
}

// === impl Found ===

impl Found {
    /// Parses a record. Logs the reason and returns `None` if the record is malformed.
    fn parse(stored: StoredTask) -> Option<Self> {
        let StoredTask { key, token, call, state } = stored;
        Some(Self { key, token, call: record::parse(&call)?, state: record::parse(&state)? })
    }
}
