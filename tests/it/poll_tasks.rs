//! Servers whose tools continue as tasks.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use mcp_composite::{
    composite::{CompositeLayer, CompositeTool, Step},
    message::{self, BackendError, BackendErrorKind, Reply, Request, ToolAnswer},
    poll_tasks::{PollTasks, PollTasksLayer},
};
use rmcp::model::{
    CallToolResult, ClientRequest, ContentBlock, CreateTaskResult, DetailedTask, ErrorData,
    GetTaskResult, InputRequests, JsonObject, ListToolsResult, ServerResult, Task, TaskAckResult,
    TaskPayload, TaskStatus, Tool,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceExt};
use tower_service::Service;

use crate::scripted::{call, object};

mod hostile;
mod layers;
mod questions;
#[cfg(feature = "stdio")]
mod remote;

const SECOND: Duration = Duration::from_secs(1);
const ID: &str = "task-1";

type Scripted = Result<Reply, BackendErrorKind>;

/// A server whose tool `work` always continues as a task. Its replies to `tasks/get` are scripted.
#[derive(Clone)]
struct Jobs(Arc<Mutex<Script>>);

struct Script {
    made: Instant,
    seed: Task,
    /// The replies to `tasks/get`. The last one is repeated.
    states: VecDeque<Scripted>,
    /// The requests about tasks with the time of their arrival in milliseconds.
    log: Vec<(u128, String)>,
    calls: usize,
}

// === impl Jobs ===

impl Jobs {
    fn new(states: impl IntoIterator<Item = Scripted>) -> Self {
        Self::seeded(task(TaskStatus::Working), states)
    }

    fn seeded(seed: Task, states: impl IntoIterator<Item = Scripted>) -> Self {
        let states = states.into_iter().collect();
        let script = Script { made: Instant::now(), seed, states, log: Vec::new(), calls: 0 };
        Self(Arc::new(Mutex::new(script)))
    }

    fn polled(&self) -> PollTasks<Self> {
        PollTasksLayer::new("jobs").layer(self.clone())
    }

    /// Calls the tool `work` as a client that does not support tasks.
    async fn work(&self) -> Reply {
        self.polled().oneshot(call("work", json!({}))).await.unwrap()
    }

    /// Returns the message of the error with which a call of `work` fails.
    async fn failure(&self) -> String {
        self.work().await.error().expect("the call fails").message.to_string()
    }

    /// Returns the requests about tasks, without the times of their arrival.
    fn log(&self) -> Vec<String> {
        self.0.lock().unwrap().log.iter().map(|(_, request)| request.clone()).collect()
    }

    /// Returns the times of all `tasks/get` in milliseconds.
    fn polls(&self) -> Vec<u128> {
        let script = self.0.lock().unwrap();
        script.log.iter().filter(|(_, request)| request == "get").map(|(at, _)| *at).collect()
    }

    fn answer(&self, request: &Request) -> Result<Reply, BackendError> {
        let mut script = self.0.lock().unwrap();
        let at = script.made.elapsed().as_millis();
        let mut note = |request: String| script.log.push((at, request));
        let ack = || Ok(ServerResult::TaskAckResult(TaskAckResult::new()).into());
        match request.message() {
            ClientRequest::ListToolsRequest(_) => {
                let tool = Tool::new("work", "Works", JsonObject::new());
                Ok(ListToolsResult::with_all_items(vec![tool]).into())
            }
            ClientRequest::CallToolRequest(_) => {
                script.calls += 1;
                let created = CreateTaskResult::new(script.seed.clone());
                Ok(ServerResult::CreateTaskResult(created).into())
            }
            ClientRequest::GetTaskRequest(_) => {
                note("get".to_owned());
                let state = match script.states.len() {
                    0 | 1 => script.states.front().cloned(),
                    _ => script.states.pop_front(),
                };
                state.expect("a state").map_err(|kind| BackendError::new("jobs", kind))
            }
            ClientRequest::UpdateTaskRequest(update) => {
                let answers = json!(update.params.input_responses);
                note(format!("update {} {answers}", update.params.task_id));
                ack()
            }
            ClientRequest::CancelTaskRequest(cancel) => {
                note(format!("cancel {}", cancel.params.task_id));
                ack()
            }
            _ => Ok(Reply::method_not_found(request.method().to_owned())),
        }
    }
}

impl Service<Request> for Jobs {
    type Response = Reply;
    type Error = BackendError;
    type Future = BoxFuture<'static, Result<Reply, BackendError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BackendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let reply = self.answer(&request);
        Box::pin(async move {
            tokio::task::yield_now().await;
            reply
        })
    }
}

fn task(status: TaskStatus) -> Task {
    let time = "2026-07-28T00:00:00Z";
    Task::new(ID, status, time, time)
}

fn state_of(task: Task, payload: TaskPayload) -> Scripted {
    let task = DetailedTask::new(task, payload);
    Ok(ServerResult::GetTaskResult(GetTaskResult::new(task)).into())
}

fn state(payload: TaskPayload) -> Scripted {
    state_of(task(TaskStatus::Working), payload)
}

fn working() -> Scripted {
    state(TaskPayload::Working)
}

fn completed(result: &CallToolResult) -> Scripted {
    state(TaskPayload::Completed { result: object(serde_json::to_value(result).unwrap()) })
}

fn done() -> Scripted {
    completed(&CallToolResult::success(vec![ContentBlock::text("done")]))
}

fn text(reply: &Reply) -> &str {
    &reply.tool_result().expect("a result").content[0].as_text().unwrap().text
}

/// Returns a composite that calls the tool `work`.
fn composite() -> CompositeTool {
    CompositeTool::workflow("job", "Calls a tool", [Step::new("call", "work")])
}

#[tokio::test(start_paused = true)]
async fn task_is_polled_until_it_completes() {
    let jobs = Jobs::new([working(), working(), done()]);
    assert_eq!(text(&jobs.work().await), "done");
    assert_eq!(jobs.polls(), [1000, 2000, 3000]);
    assert_eq!(jobs.log(), ["get"; 3]);
}

#[tokio::test(start_paused = true)]
async fn result_with_is_error_is_the_result_of_the_call() {
    let jobs = Jobs::new([completed(&CallToolResult::error(vec![ContentBlock::text("no")]))]);
    let reply = jobs.work().await;
    assert_eq!((text(&reply), reply.tool_result().unwrap().is_error), ("no", Some(true)));
}

#[tokio::test(start_paused = true)]
async fn failed_task_fails_the_call_with_its_error() {
    let error = object(json!({ "code": -32050, "message": "no disk", "data": { "free": 0 } }));
    let jobs = Jobs::new([working(), state(TaskPayload::Failed { error })]);
    let error = jobs.work().await.error().unwrap().into_owned();
    assert_eq!((error.code.0, &*error.message), (-32050, "no disk"));
    assert_eq!(error.data, Some(json!({ "free": 0 })));
    assert_eq!(jobs.log(), ["get"; 2]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_task_fails_the_call() {
    let jobs = Jobs::new([working(), state(TaskPayload::Cancelled)]);
    assert_eq!(jobs.failure().await, "the tool cancelled its task");
    assert_eq!(jobs.log(), ["get"; 2]);
}

#[tokio::test(start_paused = true)]
async fn poll_interval_is_that_of_the_task_within_bounds() {
    let every = |ms| task(TaskStatus::Working).with_poll_interval_ms(ms);
    for (ms, clamped) in [(0, 100), (250, 250), (10_000, 10_000), (u64::MAX, 30_000)] {
        let jobs = Jobs::seeded(every(ms), [state_of(every(ms), TaskPayload::Working), done()]);
        assert_eq!(text(&jobs.work().await), "done");
        assert_eq!(jobs.polls(), [clamped, 2 * clamped], "{ms} ms");
    }
    // The interval may change.
    let states = [state_of(every(5000), TaskPayload::Working), done()];
    let jobs = Jobs::seeded(every(200), states);
    jobs.work().await;
    assert_eq!(jobs.polls(), [200, 5200]);
}

#[tokio::test(start_paused = true)]
async fn ended_task_is_polled_immediately() {
    let jobs = Jobs::seeded(task(TaskStatus::Completed), [done()]);
    assert_eq!(text(&jobs.work().await), "done");
    assert_eq!(jobs.polls(), [0]);
}

#[tokio::test(start_paused = true)]
async fn dropped_call_cancels_its_task_once() {
    let jobs = Jobs::new([working()]);
    assert!(timeout(SECOND * 5 / 2, jobs.work()).await.is_err());
    sleep(60 * SECOND).await;
    assert_eq!(jobs.log(), ["get", "get", "cancel task-1"]);
}

#[tokio::test(start_paused = true)]
async fn call_that_is_dropped_during_a_poll_cancels_its_task_once() {
    let jobs = Jobs::new([working()]);
    let mut working = tokio_test::task::spawn(jobs.work());
    while jobs.log().is_empty() {
        assert!(working.poll().is_pending());
        sleep(SECOND / 10).await;
    }
    drop(working);
    sleep(60 * SECOND).await;
    assert_eq!(jobs.log(), ["get", "cancel task-1"]);
}

#[tokio::test(start_paused = true)]
async fn timeout_of_a_step_cancels_its_task() {
    let step = Step::new("call", "work").timeout(SECOND * 5 / 2);
    let composite = CompositeTool::workflow("job", "Calls a tool", [step]);
    let jobs = Jobs::new([working()]);
    let stack = CompositeLayer::new([composite]).unwrap().layer(jobs.polled());
    let reply = stack.oneshot(call("job", json!({}))).await.unwrap();
    assert_eq!(reply.tool_result().unwrap().is_error, Some(true));
    sleep(60 * SECOND).await;
    assert_eq!(jobs.log(), ["get", "get", "cancel task-1"]);
}

#[tokio::test(start_paused = true)]
async fn composite_uses_the_result_of_a_task() {
    let jobs = Jobs::new([working(), done()]);
    let stack = CompositeLayer::new([composite()]).unwrap().layer(jobs.polled());
    let reply = stack.oneshot(call("job", json!({}))).await.unwrap();
    assert_eq!(text(&reply), "done");
    assert_eq!(jobs.0.lock().unwrap().calls, 1);
}

#[tokio::test(start_paused = true)]
async fn unavailable_server_is_polled_again() {
    use BackendErrorKind::{ConnectionLost, NotConnected, Overloaded, TimedOut};
    let states = [NotConnected, ConnectionLost, TimedOut, Overloaded].map(Err);
    let jobs = Jobs::new([working()].into_iter().chain(states).chain([working(), done()]));
    assert_eq!(text(&jobs.work().await), "done");
    assert_eq!(jobs.polls(), [1000, 2000, 3000, 4000, 5000, 6000, 7000]);
}

#[tokio::test(start_paused = true)]
async fn server_that_stays_unavailable_fails_the_call() {
    let jobs = Jobs::new([working(), Err(BackendErrorKind::NotConnected)]);
    let message = "backend `jobs` did not report the state of its task, which was last `working`";
    assert_eq!(jobs.failure().await, message);
    assert_eq!(jobs.log(), ["get", "get", "get", "get", "get", "get", "cancel task-1"]);
}

#[tokio::test(start_paused = true)]
async fn rejected_poll_fails_the_call_immediately() {
    let unknown = ErrorData::invalid_params("unknown task", None);
    let jobs = Jobs::new([working(), Ok(unknown.into())]);
    assert_eq!(jobs.failure().await, "unknown task");
    assert_eq!(jobs.log(), ["get", "get", "cancel task-1"]);

    let internal = ErrorData::internal_error("out of memory", None);
    let jobs = Jobs::new([Ok(internal.into())]);
    assert_eq!(jobs.failure().await, "out of memory");
    assert_eq!(jobs.log(), ["get", "cancel task-1"]);

    let jobs = Jobs::new([Err(BackendErrorKind::Unsupported)]);
    assert!(jobs.failure().await.ends_with("which was last `working`"));
    assert_eq!(jobs.log(), ["get", "cancel task-1"]);
}

#[tokio::test(start_paused = true)]
async fn other_requests_pass_unchanged() {
    let jobs = Jobs::new([working()]);
    let reply = jobs.polled().oneshot(Request::list_tools()).await.unwrap();
    assert_eq!(reply.tools().unwrap().tools.len(), 1);
    let server = crate::scripted::Server::new().says("quick", "now");
    let polled = PollTasksLayer::new("quick").layer(server);
    assert_eq!(text(&polled.oneshot(call("quick", json!({}))).await.unwrap()), "now");
}
