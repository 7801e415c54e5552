//! Waits for the end of a task.

use std::{error::Error, sync::Arc, time::Duration};

use rmcp::model::{
    CallToolResult, ClientRequest, DetailedTask, ErrorData, GetTaskParams, GetTaskRequest,
    InputRequests, InputRequiredResult, InputResponses, JsonObject, ServerResult, TaskPayload,
    TaskStatus, UpdateTaskParams, UpdateTaskRequest,
};
use serde_json::Value;
use tokio::{runtime::Handle, time::sleep};
use tower::{BoxError, ServiceExt};

use super::{
    cancel_guard::CancelGuard,
    layer::Settings,
    state::{Owner, TaskState, interval},
};
use crate::{
    message::{
        BackendErrorKind, Cause, Context, Reply, Request, ToolService,
        client::{Abilities, MAX_QUESTIONS, MAX_REQUEST_QUESTIONS, too_many},
    },
    warnings::sanitize::Reason,
};

/// The maximum length in bytes of a task's ID.
const MAX_TASK_ID: usize = 1024;
/// The maximum number of attempts to send a request about a task while the server is unavailable.
const MAX_ATTEMPTS: usize = 5;
/// The minimum pause between two attempts to send the same request about a task.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// A tool call that waits for the outcome of a task that the server has started.
pub(super) struct Polling<S: ToolService> {
    settings: Arc<Settings>,
    service: S,
    /// The context of the requests about the task that are sent to the server.
    context: Context,
    /// The kinds of questions that the caller can answer.
    abilities: Abilities,
    owner: Owner,
    state: TaskState,
    /// The last known status of the task.
    status: TaskStatus,
    guard: CancelGuard<S>,
}

// === impl Polling ===

impl<S: ToolService> Polling<S> {
    pub(super) fn new(
        settings: Arc<Settings>,
        service: S,
        context: Context,
        abilities: Abilities,
        owner: Owner,
        state: TaskState,
    ) -> Self {
        let guard = CancelGuard::new(service.clone(), state.id.clone(), context.clone());
        let status = TaskStatus::Working;
        Self { settings, service, context, abilities, owner, state, status, guard }
    }

    /// Waits for the end of a new task, or for its questions. `status` is the first status of the
    /// task.
    pub(super) async fn start(mut self, status: TaskStatus) -> Reply {
        self.status = status;
        if self.state.id.len() > MAX_TASK_ID {
            // The ID is not sent back, not even to cancel the task.
            self.guard.disarm();
            let what = format!("started a task whose ID has more than {MAX_TASK_ID} bytes");
            return self.error(&what).into();
        }
        self.outcome(None).await.unwrap_or_else(Reply::from)
    }

    /// Sends the answers to the questions of a task to the server, and continues to wait.
    pub(super) async fn resume(mut self, answers: InputResponses) -> Reply {
        self.status = TaskStatus::InputRequired;
        self.outcome(Some(answers)).await.unwrap_or_else(Reply::from)
    }

    async fn outcome(&mut self, answers: Option<InputResponses>) -> Result<Reply, ErrorData> {
        if Handle::try_current().is_err() {
            return Err(self.error("started a task, which needs a Tokio runtime"));
        }
        if let Some(answers) = answers {
            self.answer(answers).await?;
        }
        loop {
            if !self.status.is_terminal() {
                sleep(self.state.interval).await;
            }
            let DetailedTask { task, payload, .. } = self.get().await?;
            if self.status.is_terminal() && !task.status.is_terminal() {
                return Err(self.error("reported that an ended task has not ended"));
            }
            self.status = task.status;
            self.state.interval = interval(&task);
            match payload {
                TaskPayload::Working => (),
                TaskPayload::InputRequired { input_requests } => {
                    let mut open = input_requests;
                    open.retain(|key, _| !self.state.answered.contains(key));
                    if !open.is_empty() {
                        return self.ask(open).await;
                    }
                }
                TaskPayload::Completed { result } => {
                    self.guard.disarm();
                    return self.completed(result);
                }
                TaskPayload::Failed { error } => {
                    self.guard.disarm();
                    return Err(self.failed(error));
                }
                TaskPayload::Cancelled => {
                    self.guard.disarm();
                    return Err(ErrorData::internal_error("the tool cancelled its task", None));
                }
                // Later versions of rmcp may add states.
                _ => return Err(self.error("reported an unknown state of a task")),
            }
        }
    }

    /// Sends `tasks/get` to the server, and returns the state of the task.
    async fn get(&mut self) -> Result<DetailedTask, ErrorData> {
        let get = GetTaskRequest::new(GetTaskParams::new(self.state.id.clone()));
        match self.send(get.into()).await? {
            ServerResult::GetTaskResult(result) if result.task.task.task_id == self.state.id => {
                Ok(result.task)
            }
            ServerResult::GetTaskResult(_) => Err(self.error("returned the state of another task")),
            _ => Err(self.error("returned an invalid state of a task")),
        }
    }

    /// Sends the answers of the caller to the server with `tasks/update`.
    async fn answer(&mut self, mut answers: InputResponses) -> Result<(), ErrorData> {
        let answered = &mut self.state.answered;
        answers.retain(|key, _| answered.insert(key.clone()));
        if answered.len() > MAX_REQUEST_QUESTIONS {
            return Err(self.error(&format!("failed: {}", too_many())));
        }
        if !answers.is_empty() {
            let update = UpdateTaskParams::new(self.state.id.clone(), answers);
            self.send(UpdateTaskRequest::new(update).into()).await?;
        }
        Ok(())
    }

    /// Sends a request about the task. Repeats it while the server is unavailable.
    async fn send(&mut self, message: ClientRequest) -> Result<ServerResult, ErrorData> {
        let mut attempts = 1;
        loop {
            let request = Request::new(message.clone(), self.context.clone());
            let error: BoxError = match self.service.clone().oneshot(request).await {
                Ok(reply) => return reply.into_result(),
                Err(error) => error.into(),
            };
            if attempts == MAX_ATTEMPTS || !is_transient(&*error) {
                return Err(self.unavailable(error));
            }
            attempts += 1;
            sleep(self.state.interval.max(MIN_PAUSE)).await;
        }
    }

    /// Creates the error of a call whose server became unavailable.
    fn unavailable(&self, error: BoxError) -> ErrorData {
        let status = match self.status {
            TaskStatus::InputRequired => "input_required",
            _ => "working",
        };
        let backend = &*self.settings.name;
        let error = Reason(error);
        tracing::warn!(backend, %error, status, "failed to request the state of a task");
        self.error(&format!("did not report the state of its task, which was last `{status}`"))
    }

    /// Returns the open questions of the task as the reply to the call. The call ends, and the task
    /// continues.
    async fn ask(&mut self, open: InputRequests) -> Result<Reply, ErrorData> {
        let can_answer = open.values().all(|request| self.abilities.lacks(request).is_none());
        let state = match can_answer && open.len() <= MAX_QUESTIONS {
            true => Some(self.state.put(&self.settings, &self.owner).await?),
            // The layers above reject the questions, so the task is cancelled.
            false => None,
        };
        if state.is_some() {
            self.guard.disarm();
        }
        let asks = InputRequiredResult::new(Some(open), state);
        Ok(ServerResult::InputRequiredResult(asks).into())
    }

    fn completed(&self, result: JsonObject) -> Result<Reply, ErrorData> {
        match serde_json::from_value::<CallToolResult>(Value::Object(result)) {
            Ok(result) => Ok(result.into()),
            Err(_) => Err(self.error("returned an invalid result of a task")),
        }
    }

    fn failed(&self, error: JsonObject) -> ErrorData {
        serde_json::from_value(Value::Object(error))
            .unwrap_or_else(|_| self.error("returned an invalid error of a task"))
    }

    fn error(&self, what: &str) -> ErrorData {
        ErrorData::internal_error(format!("backend `{}` {what}", self.settings.name), None)
    }
}

/// Returns `true` if a request that failed with this error may succeed later.
fn is_transient(error: &(dyn Error + 'static)) -> bool {
    match Cause::of(error) {
        Cause::Backend(error) => error.kind() != BackendErrorKind::Unsupported,
        Cause::TimedOut | Cause::Overloaded => true,
        Cause::Unknown => false,
    }
}
