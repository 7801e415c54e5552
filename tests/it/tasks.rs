//! Calls of composites as MCP tasks.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use mcp_composite::{
    composite::{CompositeLayer, CompositeTool, Elicitation, Step, TaskMode, ToolCall},
    message::{Context, Reply, Request, ToolAnswer},
    stack::{Stack, StackLayer},
    tasks::{TaskLayer, TaskRegistry},
    testing::{Answer, Server},
};
use rmcp::model::{
    CallToolResult, CancelTaskParams, CancelTaskRequest, DetailedTask, ErrorData, GetTaskParams,
    GetTaskRequest, RequestMetaObject, ServerResult, TaskPayload, TaskStatus, UpdateTaskParams,
    UpdateTaskRequest,
};
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep, timeout};
use tower::{Layer, ServiceExt};

use crate::{scripted::call, support::capture_logs};

mod clients;
#[cfg(all(feature = "config", feature = "http"))]
mod gateway;
mod limits;
mod takeover;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The caller of a request.
#[derive(Clone)]
struct Caller(&'static str);

/// A stack with tasks.
#[derive(Clone)]
struct Setup {
    server: Server,
    registry: TaskRegistry,
    service: Stack<Server>,
}

// === impl Setup ===

impl Setup {
    fn new(composites: impl IntoIterator<Item = CompositeTool>) -> Self {
        Self::with(composites, server(), TaskRegistry::new())
    }

    fn with(
        composites: impl IntoIterator<Item = CompositeTool>,
        server: Server,
        registry: TaskRegistry,
    ) -> Self {
        let caller = |context: &Context| {
            context.extensions().get::<Caller>().map(|Caller(name)| (*name).to_owned())
        };
        let layer = StackLayer::new()
            .composite(CompositeLayer::new(composites).unwrap().caller(caller))
            .tasks(TaskLayer::new().registry(registry.clone()).caller(caller));
        Self { service: layer.layer(server.clone()), server, registry }
    }

    async fn reply(&self, request: Request) -> Reply {
        self.service.clone().oneshot(request).await.unwrap()
    }

    /// Calls a tool as a client that supports tasks.
    async fn call(&self, tool: &str, arguments: Value) -> ToolAnswer {
        self.reply(supporting(call(tool, arguments))).await.into_tool_answer()
    }

    /// Starts a task, and returns its ID.
    async fn start(&self, tool: &str, arguments: Value) -> String {
        match self.call(tool, arguments).await {
            ToolAnswer::Task(id) => id,
            other => panic!("not a task: {other:?}"),
        }
    }

    async fn get_as(
        &self,
        caller: Option<&'static str>,
        id: &str,
    ) -> Result<DetailedTask, ErrorData> {
        let reply = self.reply(by(caller, GetTaskRequest::new(GetTaskParams::new(id)))).await;
        match reply.into_result()? {
            ServerResult::GetTaskResult(task) => Ok(task.task),
            other => panic!("not a task: {other:?}"),
        }
    }

    async fn get(&self, id: &str) -> DetailedTask {
        self.get_as(None, id).await.unwrap()
    }

    /// Waits until the task no longer works.
    async fn settled(&self, id: &str) -> DetailedTask {
        loop {
            let task = self.get(id).await;
            if task.status() != TaskStatus::Working {
                return task;
            }
            sleep(SECOND / 10).await;
        }
    }

    /// Returns the keys and messages of the questions of a task.
    async fn questions(&self, id: &str) -> Vec<(String, String)> {
        let TaskPayload::InputRequired { input_requests } = self.settled(id).await.payload else {
            panic!("no question: {:?}", self.get(id).await);
        };
        let message = |value: Value| value["params"]["message"].as_str().unwrap().to_owned();
        let questions = input_requests.into_iter();
        questions
            .map(|(key, request)| (key, message(serde_json::to_value(request).unwrap())))
            .collect()
    }

    /// Answers questions of a task with yes.
    async fn accept(&self, id: &str, keys: &[&str]) {
        let yes = json!({ "action": "accept", "content": {} });
        let answers = keys.iter().map(|key| ((*key).to_owned(), yes.clone()));
        let update = UpdateTaskRequest::new(UpdateTaskParams::new(id, answers.collect()));
        acknowledged(self.reply(by(None, update)).await);
    }

    async fn cancel(&self, id: &str) {
        let cancel = CancelTaskRequest::new(CancelTaskParams::new(id));
        acknowledged(self.reply(by(None, cancel)).await);
    }

    /// Waits for the result of a task.
    async fn result(&self, id: &str) -> CallToolResult {
        match self.settled(id).await.payload {
            TaskPayload::Completed { result } => {
                serde_json::from_value(Value::Object(result)).unwrap()
            }
            other => panic!("not completed: {other:?}"),
        }
    }
}

fn server() -> Server {
    Server::new()
        .says("quick", "done")
        .says("other", "yes")
        .fails("fails", "no")
        .hangs("hangs")
        .tool("slow", Answer::text("late").after(5 * SECOND))
}

fn acknowledged(reply: Reply) {
    let result = reply.into_result().unwrap();
    assert!(matches!(result, ServerResult::TaskAckResult(_)), "{result:?}");
}

/// Adds the capabilities of a client that supports tasks and forms.
fn supporting(mut request: Request) -> Request {
    let mut meta = RequestMetaObject::default();
    let capabilities = json!({ "elicitation": { "form": {} }, "extensions": { EXTENSION: {} } });
    meta.insert(CAPABILITIES.to_owned(), capabilities);
    *request.context_mut().meta_mut() = meta;
    request
}

/// Returns a request of this caller.
fn by(caller: Option<&'static str>, message: impl Into<rmcp::model::ClientRequest>) -> Request {
    let mut request = Request::new(message, Context::default());
    if let Some(caller) = caller {
        request.context_mut().extensions_mut().insert(Caller(caller));
    }
    request
}

/// Returns a composite that calls one tool.
fn calls(name: &str, tool: &str, mode: TaskMode) -> CompositeTool {
    CompositeTool::workflow(name, "Calls a tool", [Step::new("call", tool)]).task(mode)
}

fn asks(id: &str, message: &str) -> Step {
    Step::new(id, Elicitation::new(message, json!({})))
}

/// Returns a composite that asks two questions at once, then another, and then calls a tool.
fn approval() -> CompositeTool {
    let steps = [
        asks("first", "First?"),
        asks("second", "Second?"),
        asks("third", "Third?").depends_on(["first", "second"]),
        Step::new("call", "quick").depends_on(["third"]),
    ];
    CompositeTool::workflow("approval", "Asks", steps).task(TaskMode::Always)
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

#[tokio::test(start_paused = true)]
async fn client_without_the_extension_receives_the_result() {
    let setup = Setup::new([calls("always", "slow", TaskMode::Always)]);
    let mut declares_others = supporting(call("always", json!({})));
    let others = json!({ "elicitation": {}, "extensions": { "example/other": {} } });
    declares_others.context_mut().meta_mut().insert(CAPABILITIES.to_owned(), others);
    for request in [call("always", json!({})), declares_others] {
        let reply = setup.reply(request).await;
        assert_eq!(text(reply.tool_result().unwrap()), "late");
    }
}

#[tokio::test(start_paused = true)]
async fn call_becomes_a_task_immediately_and_completes() {
    let setup = Setup::new([calls("always", "slow", TaskMode::Always)]);
    let start = Instant::now();
    let reply = setup.reply(supporting(call("always", json!({})))).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    let Ok(ServerResult::CreateTaskResult(created)) = reply.into_result() else {
        panic!("no task")
    };
    let task = created.task;
    assert_eq!(task.status, TaskStatus::Working);
    assert_eq!((task.ttl_ms, task.poll_interval_ms), (Some(3_600_000), Some(1_000)));
    assert!(task.created_at.ends_with('Z') && task.created_at == task.last_updated_at);

    assert_eq!(setup.get(&task.task_id).await.status(), TaskStatus::Working);
    assert_eq!(text(&setup.result(&task.task_id).await), "late");
    let ended = setup.get(&task.task_id).await.task;
    assert!(ended.ttl_ms >= Some(3_605_000), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_result_completes_the_task() {
    let setup = Setup::new([calls("always", "fails", TaskMode::Always)]);
    let id = setup.start("always", json!({})).await;
    assert_eq!(setup.result(&id).await.is_error, Some(true));
}

#[tokio::test(start_paused = true)]
async fn protocol_error_fails_the_task() {
    let schema = json!({ "type": "object", "required": ["q"] });
    let composite = calls("always", "quick", TaskMode::Always);
    let setup = Setup::new([composite.input_schema(schema.as_object().unwrap().clone())]);
    let id = setup.start("always", json!({})).await;
    let TaskPayload::Failed { error } = setup.settled(&id).await.payload else {
        panic!("no error")
    };
    assert_eq!(error["code"], -32602, "{error:?}");
    let plain = setup.reply(call("always", json!({}))).await;
    assert_eq!(error["message"], plain.error().unwrap().message.as_ref());
}

#[tokio::test(start_paused = true)]
async fn questions_are_answered_in_several_rounds() {
    let setup = Setup::new([approval()]);
    let id = setup.start("approval", json!({})).await;
    let expected = [("1:first", "First?"), ("1:second", "Second?")];
    let expected = expected.map(|(key, message)| (key.to_owned(), message.to_owned()));
    assert_eq!(setup.questions(&id).await, expected);

    // Unknown keys are ignored, and so are answers to questions of later rounds.
    setup.accept(&id, &["first", "2:third", "0:first", ""]).await;
    assert_eq!(setup.questions(&id).await, expected);
    setup.accept(&id, &["1:first"]).await;
    assert_eq!(setup.questions(&id).await, expected[1..]);
    setup.accept(&id, &["1:first", "1:second"]).await;

    assert_eq!(setup.questions(&id).await, [("2:third".to_owned(), "Third?".to_owned())]);
    assert_eq!(setup.server.called(), [""; 0]);
    setup.accept(&id, &["1:first", "2:third"]).await;
    assert_eq!(text(&setup.result(&id).await), "done");
    assert_eq!(setup.server.called(), ["quick"]);
    setup.accept(&id, &["2:third"]).await;
    assert_eq!(text(&setup.result(&id).await), "done");
}

#[tokio::test(start_paused = true)]
async fn declined_question_ends_the_task() {
    let setup = Setup::new([approval()]);
    let id = setup.start("approval", json!({})).await;
    setup.questions(&id).await;
    let no = json!({ "1:first": { "action": "decline" }, "1:second": { "action": "cancel" } });
    let answers = serde_json::from_value(no).unwrap();
    let update = UpdateTaskRequest::new(UpdateTaskParams::new(&*id, answers));
    acknowledged(setup.reply(by(None, update)).await);
    assert_eq!(setup.result(&id).await.is_error, Some(true));
    assert_eq!(setup.server.called(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_task_drops_its_calls() {
    let setup = Setup::new([calls("always", "hangs", TaskMode::Always), approval()]);
    let id = setup.start("always", json!({})).await;
    setup.server.until(|server| server.running() == 1).await;
    for _ in 0..2 {
        setup.cancel(&id).await;
        assert_eq!(setup.get(&id).await.payload, TaskPayload::Cancelled);
    }
    setup.server.until(|server| server.running() == 0).await;
    assert_eq!(setup.server.dropped(), ["hangs"]);

    let id = setup.start("approval", json!({})).await;
    setup.questions(&id).await;
    setup.cancel(&id).await;
    setup.accept(&id, &["1:first", "1:second"]).await;
    assert_eq!(setup.get(&id).await.payload, TaskPayload::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn ended_task_cannot_be_cancelled() {
    let setup = Setup::new([calls("always", "quick", TaskMode::Always)]);
    let id = setup.start("always", json!({})).await;
    let result = setup.result(&id).await;
    setup.cancel(&id).await;
    assert_eq!(setup.result(&id).await, result);
}

#[tokio::test(start_paused = true)]
async fn task_expires_an_hour_after_its_last_change() {
    let setup = Setup::new([calls("always", "slow", TaskMode::Always), approval()]);
    let id = setup.start("always", json!({})).await;
    setup.result(&id).await;
    let waiting = setup.start("approval", json!({})).await;
    setup.questions(&waiting).await;
    advance(HOUR - SECOND).await;
    setup.get(&id).await;
    setup.accept(&waiting, &["1:first"]).await;
    advance(SECOND).await;
    assert_eq!(setup.get_as(None, &id).await.unwrap_err().message, "unknown task");
    advance(HOUR - 2 * SECOND).await;
    setup.get(&waiting).await;
    advance(2 * SECOND).await;
    assert_eq!(setup.get_as(None, &waiting).await.unwrap_err().message, "unknown task");
}

#[tokio::test(start_paused = true)]
async fn working_task_lives_as_long_as_its_timeout() {
    let server = server().tool("slowest", Answer::text("late").after(2 * HOUR));
    let call = Step::new("call", "slowest").timeout(3 * HOUR);
    let composite = CompositeTool::workflow("always", "Waits", [call]);
    let composite = composite.timeout(3 * HOUR).task(TaskMode::Always);
    let setup = Setup::with([composite], server, TaskRegistry::new());
    let id = setup.start("always", json!({})).await;
    assert_eq!(text(&setup.result(&id).await), "late");
}

#[tokio::test(start_paused = true)]
async fn inaccessible_tasks_are_rejected_with_the_same_error() {
    let setup = Setup::new([calls("always", "quick", TaskMode::Always)]);
    let mut request = supporting(call("always", json!({})));
    request.context_mut().extensions_mut().insert(Caller("alice"));
    let ToolAnswer::Task(id) = setup.reply(request).await.into_tool_answer() else {
        panic!("no task")
    };
    let expired = setup.start("always", json!({})).await;
    setup.result(&expired).await;
    advance(HOUR / 2).await;
    assert!(setup.get_as(Some("alice"), &id).await.is_ok());
    advance(HOUR / 2).await;

    let mut request = supporting(call("always", json!({})));
    request.context_mut().extensions_mut().insert(Caller("alice"));
    let ToolAnswer::Task(id) = setup.reply(request).await.into_tool_answer() else {
        panic!("no task")
    };
    assert!(setup.get_as(Some("alice"), &id).await.is_ok());
    let other = |id: &str| id.replace(|_: char| true, "0");
    let rows = [
        (Some("bob"), id.clone()),
        (Some(""), id.clone()),
        (None, id.clone()),
        (None, expired),
        (Some("alice"), other(&id)),
        (Some("alice"), id.to_uppercase()),
        (Some("alice"), format!("{id} ")),
        (Some("alice"), String::new()),
        (Some("alice"), "健🚀".to_owned()),
    ];
    for (caller, id) in rows {
        let requests = [
            by(caller, GetTaskRequest::new(GetTaskParams::new(&*id))),
            by(caller, UpdateTaskRequest::new(UpdateTaskParams::new(&*id, [].into()))),
            by(caller, CancelTaskRequest::new(CancelTaskParams::new(&*id))),
        ];
        for request in requests {
            let reply = setup.reply(request).await;
            let error = reply.error().unwrap_or_else(|| panic!("{caller:?} accesses {id:?}"));
            assert_eq!(*error, ErrorData::invalid_params("unknown task", None), "{id:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn optional_task_returns_a_quick_result_directly() {
    let server = server().tool("second", Answer::text("done").after(SECOND - SECOND / 10));
    let composites = [
        calls("optional", "second", TaskMode::Optional),
        calls("fails", "fails", TaskMode::Optional),
    ];
    let setup = Setup::with(composites, server, TaskRegistry::new());
    let ToolAnswer::Result(result) = setup.call("optional", json!({})).await else {
        panic!("no result")
    };
    assert_eq!(text(&result), "done");
    let failed = setup.call("fails", json!({})).await;
    assert!(matches!(&failed, ToolAnswer::Result(result) if result.is_error == Some(true)));
    assert!(format!("{:?}", setup.registry).contains("tasks: 0"));
}

#[tokio::test(start_paused = true)]
async fn optional_call_becomes_a_task_after_a_second() {
    let setup = Setup::new([calls("optional", "slow", TaskMode::Optional)]);
    let start = Instant::now();
    let id = setup.start("optional", json!({})).await;
    assert_eq!(start.elapsed(), SECOND);
    assert_eq!(text(&setup.result(&id).await), "late");
    assert_eq!(setup.server.called(), ["slow"]);
}

#[tokio::test(start_paused = true)]
async fn optional_call_returns_quick_questions_directly() {
    let setup = Setup::new([approval().task(TaskMode::Optional)]);
    let answer = setup.call("approval", json!({})).await;
    let ToolAnswer::InputRequired(question) = answer else { panic!("no question: {answer:?}") };
    let keys: Vec<_> = question.input_requests.unwrap().into_keys().collect();
    assert_eq!(keys, ["first", "second"]);
    assert!(format!("{:?}", setup.registry).contains("tasks: 0"));
}

#[tokio::test(start_paused = true)]
async fn optional_call_asks_as_a_task_after_a_second() {
    let slow = CompositeTool::workflow(
        "ask",
        "Asks",
        [Step::new("call", "slow"), asks("sure", "Sure?").depends_on(["call"])],
    );
    let setup = Setup::new([slow]);
    let id = setup.start("ask", json!({})).await;
    assert_eq!(setup.questions(&id).await, [("1:sure".to_owned(), "Sure?".to_owned())]);
    setup.accept(&id, &["1:sure"]).await;
    assert_eq!(setup.result(&id).await.is_error, Some(false));
    assert_eq!(setup.server.called(), ["slow"]);
}

#[tokio::test(start_paused = true)]
async fn long_workflows_are_optional_by_default() {
    let workflow = || CompositeTool::workflow("slow", "Waits", [Step::new("call", "slow")]);
    let rows = [
        (workflow(), true),
        (workflow().timeout(61 * SECOND), true),
        (workflow().timeout(60 * SECOND), false),
        (workflow().task(TaskMode::Never), false),
        (CompositeTool::pipeline("slow", "Waits", [Step::new("call", "slow")]), false),
        (CompositeTool::fan_out("slow", "Waits", ["slow"]), false),
    ];
    for (composite, is_task) in rows {
        let setup = Setup::new([composite]);
        let answer = setup.call("slow", json!({})).await;
        assert_eq!(matches!(answer, ToolAnswer::Task(_)), is_task, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_drops_its_run_before_it_is_a_task() {
    let setup = Setup::new([calls("optional", "hangs", TaskMode::Optional)]);
    let calling = setup.call("optional", json!({}));
    assert!(timeout(SECOND / 2, calling).await.is_err());
    assert_eq!(setup.server.dropped(), ["hangs"]);
    assert!(format!("{:?}", setup.registry).contains("tasks: 0"));
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_tool_ends_the_task() {
    let server = server().tool("panics", Answer::panic("my secret"));
    let composite = calls("always", "panics", TaskMode::Always);
    let setup = Setup::with([composite], server, TaskRegistry::new());
    let id = setup.start("always", json!({})).await;
    let result = setup.result(&id).await;
    assert!(result.is_error == Some(true) && !text(&result).contains("secret"), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn task_reports_no_progress_and_keeps_the_extensions() {
    let seen = Answer::from_fn(async |call: mcp_composite::testing::RecordedCall| {
        json_text(&call.arguments())
    });
    let server = server().tool("seen", seen);
    let step = Step::new("call", ToolCall::new("seen").arguments(json!({ "q": "$input.q" })));
    let composite = CompositeTool::workflow("always", "Calls", [step]).task(TaskMode::Always);
    let setup = Setup::with([composite], server, TaskRegistry::new());
    let mut request = supporting(call("always", json!({ "q": "tea" })));
    request.context_mut().extensions_mut().insert(Caller("alice"));
    let token = tokio_util::sync::CancellationToken::new();
    request.context_mut().set_cancellation(token.clone());
    let ToolAnswer::Task(id) = setup.reply(request).await.into_tool_answer() else {
        panic!("no task")
    };
    token.cancel();
    setup.server.until(|server| !server.called().is_empty()).await;
    let requests = setup.server.requests();
    let called = requests.iter().find(|request| request.tool_call().is_some()).unwrap();
    let context = called.context();
    assert!(context.peer().is_none() && context.progress().is_none() && context.logs().is_none());
    assert!(context.cancellation().is_none());
    assert_eq!(context.extensions().get::<Caller>().unwrap().0, "alice");
    assert_eq!(context.meta()[CAPABILITIES], json!({ "elicitation": { "form": {} } }));
    tokio::task::yield_now().await;
    let task = setup.get_as(Some("alice"), &id).await.unwrap();
    assert_eq!(task.status(), TaskStatus::Completed);
}

fn json_text(value: &Value) -> Answer {
    Answer::text(value.to_string())
}

#[tokio::test(start_paused = true)]
async fn dropping_the_service_and_registry_drops_the_runs() {
    let Setup { server, registry, service } =
        Setup::new([calls("always", "hangs", TaskMode::Always)]);
    let start = supporting(call("always", json!({})));
    service.clone().oneshot(start).await.unwrap();
    server.until(|server| server.running() == 1).await;
    drop(service);
    tokio::task::yield_now().await;
    assert_eq!(server.running(), 1);
    drop(registry);
    server.until(|server| server.running() == 0).await;
    assert_eq!(server.dropped(), ["hangs"]);
}

#[tokio::test(start_paused = true)]
async fn task_continues_with_its_definition_after_a_replacement() {
    let old = Setup::new([approval()]);
    let id = old.start("approval", json!({})).await;
    old.questions(&id).await;
    let changed = calls("approval", "other", TaskMode::Always);
    let new = Setup::with([changed], old.server.clone(), old.registry.clone());
    drop(old);
    new.accept(&id, &["1:first", "1:second"]).await;
    new.questions(&id).await;
    new.accept(&id, &["2:third"]).await;
    assert_eq!(text(&new.result(&id).await), "done");
    assert_eq!(new.server.called(), ["quick"]);
}

#[tokio::test(start_paused = true)]
async fn span_of_a_call_is_open_while_its_task_runs() {
    let (logged, _guard) = capture_logs();
    let composites = CompositeLayer::new([calls("always", "slow", TaskMode::Always)]).unwrap();
    let service = StackLayer::new().composite(composites).layer(server());
    let request = supporting(call("always", json!({})));
    let reply = service.clone().oneshot(request).await.unwrap();
    assert!(matches!(reply.into_tool_answer(), ToolAnswer::Task(_)));
    let closed = || logged.text().lines().filter(|line| line.contains("close")).count();
    sleep(4 * SECOND).await;
    assert_eq!(closed(), 0, "{}", logged.text());
    sleep(2 * SECOND).await;
    // The run, its branch and the request.
    assert_eq!(closed(), 3, "{}", logged.text());
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_working_tasks_only() {
    let setup = Setup::new([
        calls("slow", "slow", TaskMode::Always),
        calls("hangs", "hangs", TaskMode::Always),
        approval(),
    ]);
    let working = setup.start("slow", json!({})).await;
    let waiting = setup.start("approval", json!({})).await;
    setup.questions(&waiting).await;
    let start = Instant::now();
    setup.registry.finished().await;
    assert!(start.elapsed() <= 5 * SECOND);
    assert_eq!(text(&setup.result(&working).await), "late");
    assert_eq!(setup.get(&waiting).await.payload, TaskPayload::Cancelled);
    let refused = setup.call("hangs", json!({})).await;
    assert!(
        matches!(&refused, ToolAnswer::Error(error) if error.message == "the server is shutting down"),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn closing_cancels_working_tasks() {
    let setup = Setup::new([calls("hangs", "hangs", TaskMode::Always)]);
    let id = setup.start("hangs", json!({})).await;
    setup.server.until(|server| server.running() == 1).await;
    assert!(timeout(SECOND, setup.registry.finished()).await.is_err());
    setup.registry.close().await;
    assert_eq!(setup.server.dropped(), ["hangs"]);
    assert_eq!(setup.get(&id).await.payload, TaskPayload::Cancelled);
}

#[test]
fn call_outside_a_runtime_is_no_task() {
    let setup = Setup::new([calls("always", "quick", TaskMode::Always)]);
    let request = supporting(call("always", json!({})));
    let reply = setup.service.clone().oneshot(request).now_or_never().unwrap().unwrap();
    assert_eq!(reply.error().unwrap().message, "internal error");
    let registry = Arc::new(setup.registry);
    assert!(format!("{registry:?}").contains("tasks: 0"));
}
