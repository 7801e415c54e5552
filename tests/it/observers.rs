//! The events that observers of runs receive.

use std::{
    future,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_composite::{
    adapter::ServeService,
    composite::{
        Case, CompositeLayer, CompositeTool, ComputedValue, Elicitation, Fallback, FanOut, Finally,
        ForEach, OnError, Otherwise, Repeat, Retry, Step, Stop, Switch, ToolCall,
    },
    message::ToolAnswer,
    observe::{Event, Observer, RunId, What},
    stack::StackLayer,
    store::SignedStore,
    testing::{self, Answer, Server},
};
use rmcp::{
    ClientLifecycleMode, ClientServiceExt as _,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, ServerCapabilities, ServerConfig,
    },
    service::PeerRequestOptions,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt};

use crate::{
    scripted::can_be_asked,
    support::{answering, serve_over_pipe, until},
};

/// Records each event as a line.
#[derive(Default)]
struct EventLog {
    lines: Mutex<Vec<String>>,
    runs: Mutex<Vec<RunId>>,
    wants_arguments: bool,
    wants_results: bool,
}

impl Observer for EventLog {
    fn on_event(&self, event: &Event<'_>) {
        let line = match event.what {
            What::RunStarted { arguments, .. } => format!("starts{}", given(arguments)),
            What::RunSuspended => "is suspended".to_owned(),
            What::RunResumed => "is resumed".to_owned(),
            What::RunFinished { is_error, limit, result, .. } => {
                let limit = limit.map(|limit| format!(" at {limit}")).unwrap_or_default();
                format!("{}{limit}{}", if is_error { "fails" } else { "ends" }, text(result))
            }
            What::RunDropped { .. } => "is dropped".to_owned(),
            What::BranchStarted { branch, .. } => format!("{branch} starts"),
            What::Attempt { branch, tool, attempt, after, arguments, .. } => {
                let after = after.map(|after| format!(" after {after}")).unwrap_or_default();
                format!("{branch} calls {tool}, {attempt}{after}{}", given(arguments))
            }
            What::BranchWaiting { branch, .. } => format!("{branch} waits"),
            What::BranchFinished {
                branch, status, error, attempts, started, took, result, ..
            } => {
                let error = error.map(|error| format!(": {error}")).unwrap_or_default();
                let (from, to) = (started.as_secs(), (started + took).as_secs());
                format!("{branch} {status}{error}, {attempts}, {from}-{to}{}", text(result))
            }
            What::BranchSkipped { branch, reason, .. } => format!("{branch} skipped: {reason}"),
            _ => "does something else".to_owned(),
        };
        let parent = event.parent.map(|parent| format!("{}/", parent.branch)).unwrap_or_default();
        self.lines.lock().unwrap().push(format!("{parent}{} {line}", event.composite));
        self.runs.lock().unwrap().push(event.run);
    }

    fn wants_arguments(&self) -> bool {
        self.wants_arguments
    }

    fn wants_results(&self) -> bool {
        self.wants_results
    }
}

/// Returns the text of a result in an event.
fn text(result: Option<&CallToolResult>) -> String {
    let texts = result.into_iter().flat_map(|result| &result.content);
    texts.filter_map(|block| block.as_text()).map(|block| format!(" {:?}", block.text)).collect()
}

fn given(arguments: Option<&rmcp::model::JsonObject>) -> String {
    arguments.map(|arguments| format!(" {}", Value::Object(arguments.clone()))).unwrap_or_default()
}

impl EventLog {
    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

fn server() -> Server {
    let second = Duration::from_secs(1);
    Server::new()
        .says("a", "yes")
        .tool("b", Answer::text("yes").after(2 * second))
        .fails("fails", "no")
        .tool("flaky", Answer::failure("no").times(1).then(Answer::text("yes")))
        .echoes("echo")
        .hangs("hangs")
        .tool("panics", Answer::panic("secret"))
}

/// Returns the events of a call of the last of these composites.
async fn events_of(composites: Vec<CompositeTool>) -> Vec<String> {
    let log = Arc::new(EventLog::default());
    let called = composites.last().unwrap().name().to_owned();
    let layer = CompositeLayer::new(composites).unwrap().observer(log.clone());
    testing::call(&layer.layer(server()), &called, json!({})).await;
    log.lines()
}

#[tokio::test(start_paused = true)]
async fn observer_receives_the_outcome_of_each_branch() {
    let composite =
        CompositeTool::new("look", "Looks", FanOut::new(["b", "fails", "panics"]).max_parallel(2));
    let expected = [
        "look starts",
        "look b starts",
        "look b calls b, 1",
        "look fails starts",
        "look fails calls fails, 1",
        "look fails failed: tool, 1, 0-0",
        "look panics starts",
        "look panics calls panics, 1",
        "look panics failed: panic, 1, 0-0",
        "look b completed, 1, 0-2",
        "look fails",
    ];
    assert_eq!(events_of(vec![composite]).await, expected);
}

#[tokio::test(start_paused = true)]
async fn observer_receives_skipped_steps_with_the_reason() {
    let default = Otherwise::Skip;
    let steps = [
        Step::new("off", "a").condition("false"),
        Step::new("none", Switch::new([Case::new("false", ToolCall::new("a"))], default)),
        Step::new("a", "a"),
        Step::new("late", "a"),
    ];
    let limited = CompositeTool::pipeline("look", "Looks", steps).max_calls(1);
    let skipped = |lines: Vec<String>| -> Vec<String> {
        lines.into_iter().filter(|line| line.contains("skipped") || line.contains("ends")).collect()
    };
    let expected = [
        "look off skipped: condition",
        "look none skipped: condition",
        "look late skipped: max_calls",
        "look ends at max_calls",
    ];
    assert_eq!(skipped(events_of(vec![limited]).await), expected);

    let race = CompositeTool::new("look", "Looks", Fallback::new(["a", "b"]));
    assert_eq!(skipped(events_of(vec![race]).await), ["look b skipped: ended", "look ends"]);
}

#[tokio::test(start_paused = true)]
async fn observer_receives_values_and_early_ends() {
    let steps = [
        Step::new("hangs", "hangs"),
        Step::new("shape", ComputedValue::new(json!({ "a": "$input.a?" }))),
        Step::new("fails", ComputedValue::new("$steps.shape.output.a")).on_error(OnError::Continue),
        Step::new("end", Stop::error("No")).depends_on(["fails"]).condition("true"),
        Step::new("late", "a").depends_on(["end"]),
    ];
    let expected = [
        "look starts",
        "look hangs starts",
        "look hangs calls hangs, 1",
        "look shape starts",
        "look shape completed, 0, 0-0",
        "look fails starts",
        "look fails failed: definition, 0, 0-0",
        "look end starts",
        "look end completed, 0, 0-0",
        "look hangs cancelled, 1, 0-0",
        "look late skipped: ended",
        "look fails",
    ];
    let composite = CompositeTool::workflow("look", "Looks", steps);
    assert_eq!(events_of(vec![composite]).await, expected);
}

#[tokio::test(start_paused = true)]
async fn observer_receives_attempts_with_the_previous_error() {
    let step = Step::new("flaky", "flaky").on_error(OnError::Retry(Retry::times(2)));
    let lines = events_of(vec![CompositeTool::pipeline("look", "Looks", [step])]).await;
    assert_eq!(lines[2..4], ["look flaky calls flaky, 1", "look flaky calls flaky, 2 after tool"]);
}

#[tokio::test(start_paused = true)]
async fn observer_receives_loop_elements_as_nested_branches() {
    let each = Step::new(
        "each",
        ForEach::new(json!([1, 2, 3]), ToolCall::new("echo").arguments(json!({ "n": "$item" })))
            .max_parallel(1),
    );
    let lines =
        events_of(vec![CompositeTool::pipeline("look", "Looks", [each]).max_calls(2)]).await;
    let expected = [
        "look starts",
        "look each starts",
        "look each[0] starts",
        "look each[0] calls echo, 1",
        "look each[0] completed, 1, 0-0",
        "look each[1] starts",
        "look each[1] calls echo, 1",
        "look each[1] completed, 1, 0-0",
        "look each[2] skipped: max_calls",
        "look each completed, 2, 0-0",
        "look ends at max_calls",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test(start_paused = true)]
async fn observer_receives_the_parent_branch_of_a_nested_run() {
    let inner = CompositeTool::fan_out("inner", "Looks", ["a"]);
    let outer = CompositeTool::fan_out("outer", "Looks", ["inner"]);
    let lines = events_of(vec![inner, outer]).await;
    let expected = [
        "outer starts",
        "outer inner starts",
        "outer inner calls inner, 1",
        "inner/inner starts",
        "inner/inner a starts",
        "inner/inner a calls a, 1",
        "inner/inner a completed, 1, 0-0",
        "inner/inner ends",
        "outer inner completed, 1, 0-0",
        "outer ends",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test(start_paused = true)]
async fn dropped_call_cancels_running_branches() {
    let log = Arc::new(EventLog::default());
    let composite = CompositeTool::fan_out("look", "Looks", ["a", "hangs"]);
    let service = CompositeLayer::new([composite]).unwrap().observer(log.clone()).layer(server());
    let call = testing::call(&service, "look", json!({}));
    tokio::time::timeout(Duration::from_secs(3), call).await.unwrap_err();
    let lines = log.lines();
    let end = &lines[lines.len() - 2..];
    assert_eq!(end, ["look hangs cancelled, 1, 0-3", "look is dropped"]);
}

#[tokio::test(start_paused = true)]
async fn resumed_run_keeps_its_id() {
    let log = Arc::new(EventLog::default());
    let sure = Step::new("sure", Elicitation::new("Sure?", json!({})));
    let steps = [Step::new("a", "a"), sure, Step::new("b", "b")];
    let composite = CompositeTool::pipeline("look", "Looks", steps);
    let replica = async |state: Option<String>| {
        let layer = CompositeLayer::new([composite.clone()]).unwrap().observer(log.clone());
        let store = SignedStore::new("a key of at least thirty-two bytes").unwrap();
        let mut request = testing::request("look", json!({}));
        *request.context_mut().meta_mut() = can_be_asked();
        let params = request.tool_call_mut().unwrap();
        let yes = json!({ "sure": { "action": "accept", "content": {} } });
        params.input_responses = serde_json::from_value(yes).unwrap();
        params.request_state = state;
        layer.state(store).layer(server()).oneshot(request).await.unwrap().into_tool_answer()
    };
    let ToolAnswer::InputRequired(question) = replica(None).await else { panic!("no question") };
    let ToolAnswer::Result(_) = replica(question.request_state).await else { panic!("no result") };
    let expected = [
        "look starts",
        "look a starts",
        "look a calls a, 1",
        "look a completed, 1, 0-0",
        "look sure starts",
        "look sure waits",
        "look is suspended",
        "look is resumed",
        "look sure completed, 1, 0-0",
        "look b starts",
        "look b calls b, 1",
        "look b completed, 1, 0-2",
        "look ends",
    ];
    assert_eq!(log.lines(), expected);
    let runs = log.runs.lock().unwrap();
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
}

/// Calls the last of these composites as a client that can be asked.
async fn call_interactively(composites: Vec<CompositeTool>, log: &Arc<EventLog>) -> ToolAnswer {
    let called = composites.last().unwrap().name().to_owned();
    let layer = CompositeLayer::new(composites).unwrap().observer(log.clone());
    let mut request = testing::request(&called, json!({}));
    *request.context_mut().meta_mut() = can_be_asked();
    layer.layer(server()).oneshot(request).await.unwrap().into_tool_answer()
}

/// Returns a composite that asks, nested in another one.
fn asking_within(outer: CompositeTool) -> Vec<CompositeTool> {
    let sure = Step::new("sure", Elicitation::new("Sure?", json!({})));
    vec![CompositeTool::pipeline("inner", "Looks", [sure]), outer]
}

#[tokio::test(start_paused = true)]
async fn suspended_nested_run_is_dropped_with_its_branch() {
    let log = Arc::new(EventLog::default());
    let later = Step::new("b", "b").depends_on(Vec::<String>::new());
    let steps = [
        Step::new("inner", "inner").depends_on(Vec::<String>::new()),
        later,
        Step::new("fails", "fails").depends_on(["b"]),
    ];
    let outer = CompositeTool::workflow("outer", "Looks", steps);
    let answer = call_interactively(asking_within(outer), &log).await;
    assert!(matches!(answer, ToolAnswer::Result(_)), "{answer:?}");
    let lines = log.lines();
    let from = lines.iter().position(|line| line.contains("suspended")).unwrap();
    let expected = [
        "inner/inner is suspended",
        "outer inner waits",
        "outer b completed, 1, 0-2",
        "outer fails starts",
        "outer fails calls fails, 1",
        "outer fails failed: tool, 1, 2-2",
        "inner/inner sure cancelled, 0, 0-0",
        "inner/inner is dropped",
        "outer inner cancelled, 1, 0-2",
        "outer fails",
    ];
    assert_eq!(lines[from..], expected);
}

#[tokio::test(start_paused = true)]
async fn suspended_run_is_not_reported_as_dropped() {
    let log = Arc::new(EventLog::default());
    let outer = CompositeTool::pipeline("outer", "Looks", [Step::new("inner", "inner")]);
    let answer = call_interactively(asking_within(outer), &log).await;
    assert!(matches!(answer, ToolAnswer::InputRequired(_)), "{answer:?}");
    assert_eq!(log.lines().last().unwrap(), "outer is suspended");
    assert!(!log.lines().iter().any(|line| line.contains("dropped")));
}

#[tokio::test]
async fn cancelled_call_drops_suspended_runs_of_an_older_client() {
    let log = Arc::new(EventLog::default());
    let outer = CompositeTool::pipeline("outer", "Looks", [Step::new("inner", "inner")]);
    let layer = CompositeLayer::new(asking_within(outer)).unwrap().observer(log.clone());
    let abilities = ServerCapabilities::builder().enable_tools().build();
    let server = ServeService::new(layer.layer(server()), ServerConfig::new(abilities));
    let (far, work) = serve_over_pipe(server);
    let _serving = JoinSet::from_iter([work]);
    // An older client, whose user never answers.
    let client = answering(|_| future::pending());
    let client = client.serve_with_lifecycle(far, ClientLifecycleMode::Initialize).await.unwrap();

    let call = CallToolRequest::new(CallToolRequestParams::new("outer"));
    let options = PeerRequestOptions::no_options();
    let call = client.send_cancellable_request(call.into(), options).await.unwrap();
    let has = |line: &str| log.lines().iter().any(|event| event == line);
    until(async || has("outer is suspended")).await;
    call.cancel(None).await.unwrap();
    until(async || has("outer is dropped")).await;
    let lines = log.lines();
    let from = lines.iter().position(|line| line == "outer is suspended").unwrap();
    let expected = [
        "outer is suspended",
        "inner/inner sure cancelled, 0, 0-0",
        "inner/inner is dropped",
        "outer inner cancelled, 1, 0-0",
        "outer is dropped",
    ];
    assert_eq!(lines[from..], expected);
}

#[tokio::test(start_paused = true)]
async fn observer_receives_arguments_only_on_request() {
    let (log, curious) = (
        Arc::new(EventLog::default()),
        Arc::new(EventLog { wants_arguments: true, ..EventLog::default() }),
    );
    let composite = CompositeTool::fan_out("look", "Looks", ["echo"]);
    let layer = CompositeLayer::new([composite]).unwrap();
    let layer = layer.observer(log.clone()).observer(curious.clone());
    testing::call(&layer.layer(server()), "look", json!({ "q": 1 })).await;
    let of = |log: &EventLog| {
        let mut lines = log.lines().into_iter();
        (lines.next().unwrap(), lines.find(|line| line.contains("calls")).unwrap())
    };
    assert_eq!(of(&log), ("look starts".to_owned(), "look echo calls echo, 1".to_owned()));
    let expected =
        (r#"look starts {"q":1}"#.to_owned(), r#"look echo calls echo, 1 {"q":1}"#.to_owned());
    assert_eq!(of(&curious), expected);
}

#[tokio::test(start_paused = true)]
async fn observer_receives_results_only_on_request() {
    let (log, curious) = (
        Arc::new(EventLog::default()),
        Arc::new(EventLog { wants_results: true, ..EventLog::default() }),
    );
    let call = ToolCall::new("echo").arguments(json!({ "n": "$item" }));
    let steps = [
        Step::new("each", ForEach::new(json!([1, 2]), call).max_parallel(1)),
        Step::new("bad", "fails").on_error(OnError::Continue),
        Step::new("late", "hangs").timeout(Duration::from_secs(1)).on_error(OnError::Continue),
        Step::new("last", "a"),
    ];
    let composite = CompositeTool::pipeline("all", "Calls all", steps);
    let layer = CompositeLayer::new([composite]).unwrap();
    let layer = layer.observer(log.clone()).observer(curious.clone());
    testing::call(&layer.layer(server()), "all", json!({ "q": 1 })).await;
    let ends = |log: &EventLog| {
        let lines = log.lines().into_iter();
        let is_end = |line: &String| {
            ["completed", "failed", "timed_out", "ends"].iter().any(|end| line.contains(end))
        };
        lines.filter(is_end).collect::<Vec<_>>()
    };
    let expected = [
        r#"all each[0] completed, 1, 0-0 "{\"n\":1}""#,
        r#"all each[1] completed, 1, 0-0 "{\"n\":2}""#,
        "all each completed, 2, 0-0",
        r#"all bad failed: tool, 1, 0-0 "no""#,
        "all late timed_out: timeout, 1, 0-1",
        r#"all last completed, 1, 1-1 "yes""#,
        r#"all ends "yes""#,
    ];
    assert_eq!(ends(&curious), expected);
    assert!(ends(&log).iter().all(|line| !line.contains('"')), "{:?}", ends(&log));
}

#[tokio::test(start_paused = true)]
async fn stack_notifies_its_observers_and_those_of_composites() {
    let (log, own) = (Arc::new(EventLog::default()), Arc::new(EventLog::default()));
    let composite = CompositeTool::fan_out("look", "Looks", ["a"]);
    let layer = CompositeLayer::new([composite]).unwrap().observer(log.clone());
    let stack = StackLayer::new().observer(own.clone()).composite(layer);
    testing::call(&stack.layer(server()), "look", json!({})).await;
    assert_eq!((log.lines().len(), own.lines()), (5, log.lines()));
}

#[tokio::test(start_paused = true)]
async fn resumed_loop_starts_once() {
    let log = Arc::new(EventLog::default());
    let each = Step::new("each", ForEach::new(json!([1]), "inner"));
    let composites = asking_within(CompositeTool::pipeline("outer", "Looks", [each]));
    let ask = async |request| {
        let layer = CompositeLayer::new(composites.clone()).unwrap().observer(log.clone());
        let store = SignedStore::new("a key of at least thirty-two bytes").unwrap();
        layer.state(store).layer(server()).oneshot(request).await.unwrap().into_tool_answer()
    };
    let mut request = testing::request("outer", json!({}));
    *request.context_mut().meta_mut() = can_be_asked();
    let ToolAnswer::InputRequired(question) = ask(request.clone()).await else {
        panic!("no question");
    };
    let keys = question.input_requests.into_iter().flatten().map(|(key, _)| key);
    let yes = json!({ "action": "accept", "content": {} });
    let params = request.tool_call_mut().unwrap();
    params.input_responses = Some(keys.map(|key| (key, yes.clone())).collect());
    params.request_state = question.request_state;
    assert!(matches!(ask(request).await, ToolAnswer::Result(_)));
    let lines = log.lines();
    let starts = lines.iter().filter(|line| *line == "outer each starts").count();
    assert_eq!(starts, 1, "{lines:#?}");
}

/// An observer that panics on every event.
struct Panics;

impl Observer for Panics {
    fn on_event(&self, _: &Event<'_>) {
        panic!("no");
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_observer_does_not_affect_the_run() {
    let log = Arc::new(EventLog::default());
    let composite = CompositeTool::fan_out("look", "Looks", ["a"]);
    let layer = CompositeLayer::new([composite]).unwrap().observer(Panics).observer(log.clone());
    let result = testing::call(&layer.layer(server()), "look", json!({})).await;
    assert_eq!((result.is_error, log.lines().len()), (Some(false), 5));
}

#[tokio::test(start_paused = true)]
async fn iterations_are_observed_like_the_elements_of_a_loop() {
    let echo = ToolCall::new("echo").arguments(json!({ "n": "$index" }));
    let poll = Repeat::new(echo, "last.n == 1").delay(Duration::from_secs(2));
    let composite = CompositeTool::pipeline("look", "Looks", [Step::new("poll", poll)]);
    let expected = [
        "look starts",
        "look poll starts",
        "look poll[0] starts",
        "look poll[0] calls echo, 1",
        "look poll[0] completed, 1, 0-0",
        "look poll[1] starts",
        "look poll[1] calls echo, 1",
        "look poll[1] completed, 1, 2-2",
        "look poll completed, 2, 0-2",
        "look ends",
    ];
    assert_eq!(events_of(vec![composite]).await, expected);
}

#[tokio::test(start_paused = true)]
async fn delay_and_first_success_of_a_loop_are_observed() {
    let each = ForEach::new("$input.all", "flaky").max_parallel(1).delay(Duration::from_secs(2));
    let step = Step::new("try", each.stop_at_first_success());
    let composite = CompositeTool::pipeline("look", "Looks", [step]);
    let log = Arc::new(EventLog::default());
    let layer = CompositeLayer::new([composite]).unwrap().observer(log.clone());
    testing::call(&layer.layer(server()), "look", json!({ "all": [1, 2, 3] })).await;
    let expected = [
        "look starts",
        "look try starts",
        "look try[0] starts",
        "look try[0] calls flaky, 1",
        "look try[0] failed: tool, 1, 0-0",
        "look try[1] starts",
        "look try[1] calls flaky, 1",
        "look try[1] completed, 1, 2-2",
        "look try completed, 2, 0-2",
        "look ends",
    ];
    assert_eq!(log.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn dropped_call_runs_no_finally_step() {
    let steps = [
        Step::new("poll", Repeat::new("a", "false").delay(Duration::from_secs(2))),
        Step::new("undo", "a").finally(Finally::new()),
    ];
    let composite = CompositeTool::workflow("look", "Looks", steps);
    let (log, server) = (Arc::new(EventLog::default()), server());
    let layer = CompositeLayer::new([composite]).unwrap().observer(log.clone());
    let service = layer.layer(server.clone());
    let call = testing::call(&service, "look", json!({}));
    tokio::time::timeout(Duration::from_secs(3), call).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Both iterations, and no finally step.
    assert_eq!(server.calls().len(), 2);
    let lines = log.lines();
    let [.., poll, end] = &lines[..] else { panic!("{lines:?}") };
    assert!(poll.starts_with("look poll cancelled"), "{poll}");
    assert_eq!(end, "look is dropped");
}

#[tokio::test(start_paused = true)]
async fn finally_step_is_observed_as_part_of_its_run() {
    let steps = [
        Step::new("a", "fails"),
        Step::new("b", "b").depends_on(["a"]),
        Step::new("undo", "a").condition("steps.a.status == 'failed'").finally(Finally::new()),
        Step::new("more", "a").condition("steps.a.status != 'failed'").finally(Finally::new()),
    ];
    let composite = CompositeTool::workflow("look", "Looks", steps);
    let expected = [
        "look starts",
        "look a starts",
        "look a calls fails, 1",
        "look a failed: tool, 1, 0-0",
        "look b skipped: ended",
        "look undo starts",
        "look undo calls a, 1",
        "look more skipped: condition",
        "look undo completed, 1, 0-0",
        "look fails",
    ];
    assert_eq!(events_of(vec![composite]).await, expected);
}
