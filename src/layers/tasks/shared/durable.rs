//! Tasks that a durable engine executes.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use jiff::Timestamp;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, DetailedTask, ErrorData, InputRequests,
    InputResponses, RequestMetaObject, Task,
};
use serde_json::Value;
use tokio::time::sleep;

use super::{
    Owner,
    record::{self, Call, MAX_DEPTH, Progress, Resume, State},
    runner::Runner,
    store::{StoreFuture, TaskStoreError},
};
use crate::{
    adapter::failure::caught,
    fingerprint::Fingerprint,
    log_pause::LogPause,
    message::{Context, Reply, ToolAnswer, ToolService, Tracing, is_deeper, journal::Journal},
    mutex::lock,
    tasks::{
        error::UnknownTask,
        id::{key_of, new_id},
        limits::LIFETIME,
        tool::{METHOD, TaskTool, TaskTools},
    },
};

/// The first pause between two requests for the state of a task. Each pause is twice as long as the
/// previous one.
const PAUSE: Duration = Duration::from_millis(10);
/// The maximum pause between two requests for the state of a task.
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// The maximum time until the engine has begun a new task.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A durable engine that executes the runs of tasks.
pub(crate) trait TaskEngine: fmt::Debug + Send + Sync {
    /// Starts a task. `call` is its record. Does nothing if the task exists.
    fn start(&self, key: String, call: Vec<u8>) -> StoreFuture<'_, ()>;

    /// Returns a task.
    fn get(&self, key: String) -> StoreFuture<'_, Found>;

    /// Delivers the answer to an open question. Does nothing if the question is not open.
    fn answer(&self, key: String, question: String, answer: Value) -> StoreFuture<'_, ()>;

    /// Cancels a task. Does nothing if the task has ended.
    fn cancel(&self, key: String) -> StoreFuture<'_, ()>;

    /// Starts no further calls in this process, and waits until the current ones have ended.
    fn finished(&self) -> BoxFuture<'_, ()>;

    /// Starts no further calls in this process, and cancels the current ones.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The outcome of a search for a task.
#[derive(Debug)]
pub(crate) enum Found {
    /// There is no such task.
    Unknown,
    /// The task was started, and has not begun.
    Waiting,
    Task(EngineTask),
}

/// A task of a durable engine.
#[derive(Debug)]
pub(crate) struct EngineTask {
    /// The record with which the task was started.
    pub(crate) call: Vec<u8>,
    /// The time of the last change, as Unix time in milliseconds.
    pub(crate) updated_ms: i64,
    pub(crate) status: EngineStatus,
}

/// The status of a task of a durable engine.
#[derive(Debug)]
pub(crate) enum EngineStatus {
    Working,
    /// The task waits for answers to these questions.
    Asks(InputRequests),
    /// The run has ended with this outcome.
    Ended(Vec<u8>),
    /// The run cannot continue, because the definition of its composite has changed.
    Refused,
    Cancelled,
}

/// The services that run the tasks of an engine in this process.
#[derive(Clone, Default)]
pub(crate) struct TaskRuns(Arc<Mutex<HashMap<Option<Arc<str>>, Runner>>>);

/// A run of a task.
pub(crate) struct TaskRun {
    /// Resolves to the outcome of the run.
    pub(crate) outcome: BoxFuture<'static, Vec<u8>>,
    /// The time after which a task that waits for the user is cancelled.
    pub(crate) lifetime: Duration,
}

/// The tasks of a durable engine.
pub(crate) struct DurableTasks {
    engine: Arc<dyn TaskEngine>,
    runs: TaskRuns,
    /// Limits the warnings about an unavailable engine.
    outages: LogPause,
}

// === impl TaskRuns ===

impl TaskRuns {
    /// Returns the fingerprint of the definition of a task's composite in this process. Returns
    /// `None` if the record is malformed, or if this process does not have the composite.
    pub(crate) fn definition(&self, call: &[u8]) -> Option<Fingerprint> {
        let call: Call = record::parse(call)?;
        let view = call.owner.view.as_deref().map(Arc::from);
        lock(&self.0).get(&view)?.definition(&call)
    }

    /// Runs the task with this key and record. Returns `None` if the record is malformed, or if
    /// this process does not have its composite.
    pub(crate) fn run(&self, key: &str, call: &[u8], journal: Arc<dyn Journal>) -> Option<TaskRun> {
        let call: Call = record::parse(call)?;
        let view = call.owner.view.as_deref().map(Arc::from);
        let keep = |context: &mut Context| {
            context.set_task_name(key);
            context.set_journal(journal);
        };
        let reply = lock(&self.0).get_mut(&view)?.call(&call, Resume::default(), None, keep)?;
        let outcome = async move {
            let reply = caught(METHOD, reply).await.unwrap_or_else(Err);
            let answer = reply.map_or_else(ToolAnswer::Error, Reply::into_tool_answer);
            record::format(&Progress::of(answer))
        };
        Some(TaskRun { outcome: outcome.boxed(), lifetime: call.lifetime() })
    }
}

impl fmt::Debug for TaskRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRuns").field("views", &lock(&self.0).len()).finish_non_exhaustive()
    }
}

// === impl DurableTasks ===

impl DurableTasks {
    pub(crate) fn new(engine: Arc<dyn TaskEngine>, runs: TaskRuns) -> Self {
        Self { engine, runs, outages: LogPause::default() }
    }

    /// Makes `inner`, the service below a task layer with the composites `tools`, run the tasks of
    /// its view.
    pub(crate) fn serve<S: ToolService>(
        &self,
        tools: &Arc<TaskTools>,
        tracing: Option<&Arc<Tracing>>,
        inner: &S,
    ) {
        let view = tracing.and_then(|tracing| tracing.view.as_ref());
        let mut runners = lock(&self.runs.0);
        if !runners.get(&view.cloned()).is_some_and(|runner| runner.is_of(tools)) {
            let runner = Runner::new(tools.clone(), tracing.cloned(), inner.clone());
            runners.insert(view.cloned(), runner);
        }
    }

    /// Returns `true` if a service runs tasks.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn is_watched(&self) -> bool {
        !lock(&self.runs.0).is_empty()
    }

    /// Drops the services of all views for which `is_served` returns `false`.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn retain_views(&self, is_served: impl Fn(Option<&str>) -> bool) {
        lock(&self.runs.0).retain(|view, _| is_served(view.as_deref()));
    }

    /// Starts a task, and returns its description.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine is unavailable.
    pub(crate) async fn start(
        &self,
        tool: TaskTool,
        owner: Owner,
        params: CallToolRequestParams,
        meta: RequestMetaObject,
    ) -> Result<Task, ErrorData> {
        let random = TaskStoreError::Unavailable("no random numbers".into());
        let id = new_id().ok_or(random).map_err(|error| self.unavailable(error))?;
        let call = Call::new(owner, params, meta, LIFETIME.max(tool.timeout));
        let started = self.engine.start(key_of(&id), record::format(&call)).await;
        started.map_err(|error| self.unavailable(error))?;
        // The client may request the state of the task at once.
        let begun = self.poll(&id, |_| true);
        let _ = tokio::time::timeout(BEGIN_TIMEOUT, begun).await;
        let state = State::new(0, Progress::Working { resume: Resume::default() });
        Ok(call.task(&id, &state))
    }

    /// Waits until a task has ended, and returns the reply to its call. Returns `None` if the task
    /// was cancelled.
    pub(crate) async fn reply(&self, id: &str) -> Option<Reply> {
        let state = self.poll(id, |state| state.progress.is_ended()).await;
        let reply = match state.progress {
            Progress::Completed(result) => {
                serde_json::from_value::<CallToolResult>(Value::Object(result)).map(Reply::from)
            }
            Progress::Failed(error) => {
                serde_json::from_value::<ErrorData>(Value::Object(error)).map(Reply::from)
            }
            _ => return None,
        };
        reply.inspect_err(|error| tracing::warn!(%error, "the outcome of a task is malformed")).ok()
    }

    /// Requests the state of a task until `is_met` returns `true` for it, also after the engine was
    /// unavailable.
    async fn poll(&self, id: &str, is_met: impl Fn(&State) -> bool) -> State {
        let mut pause = PAUSE;
        loop {
            if let Ok(Some((_, state))) = self.load(&key_of(id)).await
                && is_met(&state)
            {
                return state;
            }
            sleep(pause).await;
            pause = MAX_PAUSE.min(pause * 2);
        }
    }

    /// Returns the state of a task.
    pub(crate) async fn get(&self, id: &str, owner: &Owner) -> Result<DetailedTask, ErrorData> {
        let (call, state) = self.find(&key_of(id), Some(owner)).await?;
        Ok(DetailedTask::new(call.task(id, &state), state.progress.into_payload()))
    }

    /// Delivers answers to the open questions of a task. Ignores all other answers.
    pub(crate) async fn update(
        &self,
        id: &str,
        owner: &Owner,
        answers: InputResponses,
    ) -> Result<(), ErrorData> {
        let key = key_of(id);
        let (_, state) = self.find(&key, Some(owner)).await?;
        let Progress::InputRequired { open, .. } = state.progress else { return Ok(()) };
        let answers = answers.into_iter().filter(|(key, _)| open.contains_key(key));
        for (question, answer) in answers {
            if is_deeper(&answer, MAX_DEPTH) {
                return Err(ErrorData::invalid_params("an answer is nested too deeply", None));
            }
            let answered = self.engine.answer(key.clone(), question, answer).await;
            answered.map_err(|error| self.unavailable(error))?;
        }
        Ok(())
    }

    /// Cancels the task with this key, if it belongs to `owner`. Does nothing if the task has
    /// ended.
    pub(crate) async fn cancel(&self, key: &str, owner: Option<&Owner>) -> Result<(), ErrorData> {
        let (_, state) = self.find(key, owner).await?;
        if state.progress.is_ended() {
            return Ok(());
        }
        self.engine.cancel(key.to_owned()).await.map_err(|error| self.unavailable(error))
    }

    /// Starts no further calls in this process, and waits until the current ones have ended.
    pub(crate) async fn finished(&self) {
        self.engine.finished().await;
    }

    /// Starts no further calls in this process, and cancels the current ones.
    pub(crate) async fn close(&self) {
        self.engine.close().await;
    }

    /// Returns the task with this key if it belongs to `owner`, or to anyone if that is `None`. The
    /// error does not depend on whether the task exists.
    async fn find(&self, key: &str, owner: Option<&Owner>) -> Result<(Call, State), ErrorData> {
        let is_owned = |(call, _): &(Call, State)| owner.is_none_or(|owner| call.owner == *owner);
        self.load(key).await?.filter(is_owned).ok_or_else(|| UnknownTask.into())
    }

    /// Returns a task that has not expired. A run ends or asks within the lifetime of its task, so
    /// no process continues a task that has not changed for much longer.
    async fn load(&self, key: &str) -> Result<Option<(Call, State)>, ErrorData> {
        let found =
            self.engine.get(key.to_owned()).await.map_err(|error| self.unavailable(error))?;
        let EngineTask { call, updated_ms, status } = match found {
            Found::Unknown => return Ok(None),
            Found::Waiting => {
                return Err(TaskStoreError::Unavailable("it has not begun".into()).into());
            }
            Found::Task(task) => task,
        };
        let Some(call) = record::parse::<Call>(&call) else { return Ok(None) };
        let progress = match status {
            EngineStatus::Working => Some(Progress::Working { resume: Resume::default() }),
            EngineStatus::Asks(open) => {
                Some(Progress::InputRequired { open, resume: Resume::default() })
            }
            EngineStatus::Ended(outcome) => serde_json::from_slice(&outcome).ok(),
            EngineStatus::Refused => {
                let text = vec![ContentBlock::text(changed(&call.params.name))];
                Some(Progress::of(ToolAnswer::Result(CallToolResult::error(text))))
            }
            EngineStatus::Cancelled => Some(Progress::Cancelled),
        };
        let state = progress.map(|progress| State::at(updated_ms, 0, progress));
        let now = Timestamp::now().as_millisecond();
        let age = Duration::from_millis(now.saturating_sub(updated_ms).try_into().unwrap_or(0));
        let is_live = |state: &State| {
            let room = if state.progress.is_ended() { Duration::ZERO } else { LIFETIME };
            age < call.lifetime() + room
        };
        Ok(state.filter(is_live).map(|state| (call, state)))
    }

    /// Logs that the engine is unavailable, and returns the error for the client.
    fn unavailable(&self, error: TaskStoreError) -> ErrorData {
        if matches!(error, TaskStoreError::Unavailable(_)) && self.outages.is_due_now() {
            tracing::warn!(reason = error.reason(), "the engine of tasks is unavailable");
        }
        error.into()
    }
}

/// Returns the error text of a run that cannot continue after its definition has changed.
fn changed(composite: &str) -> String {
    format!("the run cannot continue: the definition of `{composite}` has changed since it started")
}

impl fmt::Debug for DurableTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableTasks").field("engine", &self.engine).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
