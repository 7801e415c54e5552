//! The cases of `tests/workflows`, whose expectations hold in Restate as well.

use std::{
    convert::Infallible,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use mcp_composite::{
    message::{Context as MessageContext, Reply, Request, ToolService},
    restate::RestateServer,
    stack::{Stack, StackLayer},
    tasks::{TaskLayer, TaskRegistry},
    testing::Server as Tools,
};
use rmcp::model::{
    CallToolResult, ErrorData, GetTaskParams, GetTaskRequest, InputRequests, InputRequiredResult,
    ServerResult, TaskPayload, UpdateTaskParams, UpdateTaskRequest,
};
use serde_json::json;
use tokio::{
    runtime::Builder,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, Service, ServiceExt};

use super::{
    case::{self, Driver, InMemory},
    ports::free_port,
    replica::{HANG, serve},
    server::Server,
};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The maximum duration of a case. Longer ones, which wait for timeouts, would take minutes.
const LONGEST: Duration = Duration::from_secs(2);

/// The cases that have another outcome in Restate, with the reason.
const OTHERWISE: [(&str, &[&str]); 3] = [
    (
        "the state of a task is not suspended, so `max_state_bytes` of `[state]` does not apply",
        &[
            "elicitation_a_failure_after_the_answer_reports_the_steps_before",
            "elicitation_a_state_that_surely_is_too_large_refuses_the_run_early",
        ],
    ),
    (
        "a task goes on when all of its questions are answered",
        &["elicitation_targets_of_a_fan_out_ask"],
    ),
    (
        "the expectations depend on milliseconds, or on the order of calls that end at the same time",
        &[
            "cookbook_files_map_reduce",
            "defect_A9_a_run_ends",
            "toolhive_51_a_run_that_takes_too_long",
            "trap_the_run_ends_between_two_steps",
        ],
    ),
];

/// Runs cases as tasks in Restate.
struct InRestate(TaskRegistry);

/// A service whose composites run as tasks, for clients that do not support tasks.
#[derive(Clone)]
struct AsTasks(Stack<Tools>);

// === impl InRestate ===

impl Driver for InRestate {
    const HAS_EXACT_TIMES: bool = false;

    fn adapt(&self, composite: &mut toml::Table) {
        composite.insert("task".to_owned(), "always".into());
    }

    fn service(&self, layer: StackLayer, server: Tools) -> impl ToolService {
        let stack = layer.tasks(TaskLayer::new().registry(self.0.clone())).layer(server);
        stack.watch_tasks();
        AsTasks(stack)
    }
}

// === impl AsTasks ===

impl AsTasks {
    async fn reply(self, mut request: Request) -> Reply {
        let Some(call) = request.tool_call() else { return self.ask(request).await };
        let id = match (call.request_state.clone(), call.input_responses.clone()) {
            (Some(state), answers) => {
                let (id, round) = state.split_once(' ').unwrap();
                let answers = answers.unwrap_or_default().into_iter();
                let answers = answers.map(|(key, answer)| (format!("{round}:{key}"), answer));
                let update = UpdateTaskParams::new(id, answers.collect());
                self.ask(Request::new(UpdateTaskRequest::new(update), MessageContext::default()))
                    .await;
                return self.settled(id.to_owned(), round.parse().unwrap()).await;
            }
            (None, _) => {
                let meta = request.context_mut().meta_mut();
                let mut capabilities = meta.get(CAPABILITIES).cloned().unwrap_or_else(|| json!({}));
                capabilities["extensions"] = json!({ "io.modelcontextprotocol/tasks": {} });
                meta.insert(CAPABILITIES.to_owned(), capabilities);
                let reply = self.ask(request).await;
                match reply.result() {
                    Some(ServerResult::CreateTaskResult(created)) => created.task.task_id.clone(),
                    _ => return reply,
                }
            }
        };
        self.settled(id, 0).await
    }

    /// Waits until the task has ended or asks again, after this round of questions.
    async fn settled(&self, id: String, answered: u64) -> Reply {
        loop {
            let get = GetTaskRequest::new(GetTaskParams::new(id.clone()));
            let reply = self.ask(Request::new(get, MessageContext::default())).await;
            let Some(ServerResult::GetTaskResult(task)) = reply.result() else { return reply };
            match task.task.payload.clone() {
                TaskPayload::Completed { result } => {
                    let result: CallToolResult = serde_json::from_value(result.into()).unwrap();
                    return result.into();
                }
                TaskPayload::Failed { error } => {
                    let error: ErrorData = serde_json::from_value(error.into()).unwrap();
                    return error.into();
                }
                TaskPayload::InputRequired { input_requests } => {
                    let first = input_requests.keys().next().unwrap();
                    let round: u64 = first.split_once(':').unwrap().0.parse().unwrap();
                    if round > answered {
                        let questions: InputRequests = input_requests
                            .into_iter()
                            .map(|(key, question)| {
                                (key.split_once(':').unwrap().1.to_owned(), question)
                            })
                            .collect();
                        let state = format!("{id} {round}");
                        let asks = InputRequiredResult::new(Some(questions), Some(state));
                        return ServerResult::InputRequiredResult(asks).into();
                    }
                }
                _ => (),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn ask(&self, request: Request) -> Reply {
        self.0.clone().oneshot(request).await.unwrap()
    }
}

impl Service<Request> for AsTasks {
    type Response = Reply;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        self.clone().reply(request).map(Ok).boxed()
    }
}

/// Returns the duration of a case in the memory of this process.
fn duration(text: &str) -> Duration {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let start = Instant::now();
        case::run(text, &InMemory).await.unwrap();
        start.elapsed()
    })
}

#[test]
fn workflow_cases_meet_their_expectations_in_restate() {
    let server = Server::start();
    let restate = RestateServer::new(&server.ingress()).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(&runtime, &restate, &server, free_port()));
    let driver = InRestate(restate.tasks());
    let (mut failures, mut run) = (Vec::new(), 0);
    for (name, text) in case::all() {
        let is_other = OTHERWISE.iter().any(|(_, names)| names.contains(&&*name));
        if is_other || duration(&text) > LONGEST {
            continue;
        }
        run += 1;
        let case = async { timeout(HANG, case::run(&text, &driver)).await };
        match runtime.block_on(case) {
            Ok(Ok(())) => (),
            Ok(Err(differences)) => {
                failures.push(format!("{name}: {}", differences.join("\n    ")))
            }
            Err(_) => failures.push(format!("{name}: it takes too long")),
        }
    }
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
    let is_part = std::env::var("CASE").is_ok_and(|only| !only.is_empty());
    assert!(run >= 200 || is_part, "{run}");
}
