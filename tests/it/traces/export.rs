//! Exported spans, and the ids that backends receive.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use mcp_composite::{
    composite::{
        CompositeLayer, CompositeTool, Elicitation, ForEach, OnError, Race, Retry, Step, ToolCall,
    },
    message::{Context, Request, ToolAnswer},
    stack::{Stack, StackLayer},
    testing::{self, Answer, Server},
    trace::{OpenTelemetry, TraceLayer},
};
use opentelemetry::trace::{SpanId, SpanKind, Status};
use rmcp::model::ErrorData;
use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Runtime},
    task::yield_now,
    time::sleep,
};
use tower::{Layer, ServiceExt};
use tracing::{Instrument, Span};

use super::exporter::{Collecting, attribute, parent_span_id};
use crate::scripted::is_sure;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn server() -> Server {
    Server::new()
        .says("near", "yes")
        .says("far", "yes")
        .fails("fails", "no")
        .tool("flaky", Answer::failure("no").times(1).then(Answer::text("yes")))
        .tool("invalid", ErrorData::invalid_params("hunter2 is no number", None))
        .tool("broken", ErrorData::internal_error("hunter2 is broken", None))
        .hangs("hangs")
}

fn stack(server: &Server, composites: Vec<CompositeTool>) -> Stack<Server> {
    traced(server, composites, TraceLayer::new().propagate(OpenTelemetry))
}

fn traced(server: &Server, composites: Vec<CompositeTool>, trace: TraceLayer) -> Stack<Server> {
    let composites = CompositeLayer::new(composites).unwrap();
    StackLayer::new().trace(trace).composite(composites).layer(server.clone())
}

fn look(tools: &[&str]) -> CompositeTool {
    CompositeTool::fan_out("look", "Looks", tools.to_vec())
}

async fn call(stack: &Stack<Server>, tool: &str, arguments: Value) {
    let _ = stack.clone().oneshot(testing::request(tool, arguments)).await.unwrap();
}

fn calls(server: &Server) -> Vec<Request> {
    server.requests().into_iter().filter(|request| request.tool_call().is_some()).collect()
}

#[tokio::test(start_paused = true)]
async fn run_is_exported_as_a_tree_of_spans() {
    let collecting = Collecting::begin();
    let again = OnError::Retry(Retry::times(2));
    let inner = CompositeTool::fan_out("inner", "Looks", ["far"]);
    let steps = [
        Step::new("first", "near"),
        Step::new("again", "flaky").on_error(again),
        Step::new("nested", "inner"),
        Step::new("fails", "fails"),
    ];
    let outer = CompositeTool::pipeline("outer", "Looks", steps);
    call(&stack(&server(), vec![inner, outer]), "outer", json!({})).await;
    let expected = [
        "tools/call outer server ERROR: tool_error",
        "  invoke_workflow outer internal ERROR: tool_error",
        "    invoke_workflow inner internal",
        "      tools/call far client",
        "    tools/call fails client ERROR: tool_error",
        "    tools/call flaky client ERROR: tool_error",
        "    tools/call flaky client",
        "    tools/call near client",
    ];
    assert_eq!(collecting.tree(), expected);
    let branch = |name| attribute(&collecting.span(name), "mcp_composite.branch");
    assert_eq!(branch("tools/call flaky").as_deref(), Some("again"));
    assert_eq!(branch("invoke_workflow inner").as_deref(), Some("nested"));
}

#[tokio::test(start_paused = true)]
async fn spans_of_requests_and_runs_have_the_view() {
    let spans = Collecting::begin();
    let look = CompositeTool::fan_out("look", "Looks", ["near"]);
    let trace = TraceLayer::new().propagate(OpenTelemetry);
    for (view, trace) in [(None, trace.clone()), (Some("/team-a"), trace.view("/team-a"))] {
        let stack = traced(&server(), vec![look.clone()], trace);
        call(&stack, "look", json!({})).await;
        let spans = spans.spans();
        let [.., request, run, _] = &*spans else { panic!("{spans:?}") };
        for span in [request, run] {
            let found = attribute(span, "mcp_composite.view");
            assert_eq!(found.as_deref(), view, "{}", span.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn loop_elements_and_attempts_have_separate_spans() {
    let collecting = Collecting::begin();
    let each = Step::new(
        "each",
        ForEach::new(json!([1, 2]), ToolCall::new("flaky").arguments(json!({}))).max_parallel(1),
    )
    .on_error(OnError::Retry(Retry::times(1)));
    let outer = CompositeTool::pipeline("outer", "Looks", [each]);
    call(&stack(&server(), vec![outer]), "outer", json!({})).await;
    let calls = collecting.spans().into_iter().filter(|span| span.span_kind == SpanKind::Client);
    let attempts: Vec<_> = calls
        .map(|span| {
            let of = |key| attribute(&span, key).unwrap();
            (of("mcp_composite.branch"), of("mcp_composite.attempt"), of("mcp_composite.status"))
        })
        .collect();
    let of = |branch: &str, attempt: &str, status: &str| {
        (branch.to_owned(), attempt.to_owned(), status.to_owned())
    };
    let expected = [
        of("each[0]", "1", "failed"),
        of("each[0]", "2", "completed"),
        of("each[1]", "1", "completed"),
    ];
    assert_eq!(attempts, expected);
}

#[tokio::test(start_paused = true)]
async fn backends_receive_the_ids_of_exported_spans() {
    let collecting = Collecting::begin();
    let server = server();
    let mut request = testing::request("look", json!({}));
    request.context_mut().meta_mut().set_traceparent(PARENT);
    request.context_mut().meta_mut().set_tracestate("vendor=1");
    request.context_mut().meta_mut().set_baggage("tenant=ada");
    let caller = request.context().trace().unwrap();
    stack(&server, vec![look(&["near", "far"])]).oneshot(request).await.unwrap();

    let served = collecting.span("tools/call look");
    assert_eq!(served.parent_span_id, SpanId::from_bytes(caller.span_id()));
    assert!(served.parent_span_is_remote);
    assert_eq!(served.span_context.trace_id().to_bytes(), caller.trace_id());
    for request in calls(&server) {
        let tool = &request.tool_call().unwrap().name;
        let called = collecting.span(&format!("tools/call {tool}"));
        assert_eq!(parent_span_id(&request), Some(called.span_context.span_id()));
        let context = request.context();
        let trace = context.trace().unwrap();
        assert_eq!(trace.trace_id(), caller.trace_id());
        assert_eq!((trace.is_sampled(), trace.state()), (true, Some("vendor=1")));
        assert_eq!(context.meta().get_baggage(), Some("tenant=ada"));
    }
    assert_eq!(calls(&server).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn direct_call_sends_the_span_of_the_request() {
    let collecting = Collecting::begin();
    let server = server();
    call(&stack(&server, vec![]), "near", json!({})).await;
    let served = collecting.span("tools/call");
    assert_eq!(served.parent_span_id, SpanId::INVALID);
    assert_eq!(parent_span_id(&calls(&server)[0]), Some(served.span_context.span_id()));
}

#[tokio::test(start_paused = true)]
async fn request_span_links_to_the_surrounding_span() {
    let collecting = Collecting::begin();
    let service = stack(&server(), vec![]);
    let http = tracing::info_span!("http");
    let mut request = testing::request("near", json!({}));
    request.context_mut().meta_mut().set_traceparent(PARENT);
    service.oneshot(request).instrument(http).await.unwrap();
    let (served, http) = (collecting.span("tools/call"), collecting.span("http"));
    let linked: Vec<_> = served.links.iter().map(|link| link.span_context.span_id()).collect();
    assert_eq!(linked, [http.span_context.span_id()]);
    assert_ne!(served.parent_span_id, http.span_context.span_id());
}

#[tokio::test(start_paused = true)]
async fn trace_is_forwarded_if_spans_are_disabled() {
    let _collecting = Collecting::filtered("off");
    let server = server();
    let mut request = testing::request("look", json!({}));
    request.context_mut().meta_mut().set_traceparent(PARENT);
    let caller = request.context().trace().unwrap();
    stack(&server, vec![look(&["near"])]).oneshot(request).await.unwrap();
    // No id is created without an exporter.
    assert_eq!(calls(&server)[0].context().trace(), Some(caller));
}

#[tokio::test(start_paused = true)]
async fn request_span_is_sent_if_run_spans_are_disabled() {
    let collecting = Collecting::filtered("info,mcp_composite::run=off");
    let server = server();
    call(&stack(&server, vec![look(&["near"])]), "look", json!({})).await;
    let served = collecting.span("tools/call look");
    assert_eq!(parent_span_id(&calls(&server)[0]), Some(served.span_context.span_id()));
    assert_eq!(collecting.names(), ["tools/call look"]);
}

#[tokio::test(start_paused = true)]
async fn run_joins_the_callers_trace_if_request_spans_are_disabled() {
    let collecting = Collecting::filtered("info,mcp_composite::trace=off");
    let server = server();
    let inner = CompositeTool::fan_out("inner", "Looks", ["far"]);
    let service = stack(&server, vec![inner, look(&["near", "inner"])]);
    let mut request = testing::request("look", json!({}));
    request.context_mut().meta_mut().set_traceparent(PARENT);
    let caller = request.context().trace().unwrap();
    service.oneshot(request).await.unwrap();
    let tree = [
        "invoke_workflow look internal",
        "  invoke_workflow inner internal",
        "    tools/call far client",
        "  tools/call near client",
    ];
    assert_eq!(collecting.tree(), tree);
    let run = collecting.span("invoke_workflow look");
    assert_eq!(run.parent_span_id, SpanId::from_bytes(caller.span_id()));
    for request in calls(&server) {
        assert_eq!(request.context().trace().unwrap().trace_id(), caller.trace_id());
    }
    assert_eq!(calls(&server).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn panicking_call_has_the_status_failed() {
    let collecting = Collecting::begin();
    let panics: fn() -> Answer = || panic!("on purpose");
    let server = Server::new().tool("bad", Answer::from_fn(move |_| async move { panics() }));
    let service = stack(&server, vec![]);
    // As an edge that catches panics and answers.
    let call = std::panic::AssertUnwindSafe(call(&service, "bad", json!({})));
    call.catch_unwind().await.unwrap_err();
    assert_eq!(collecting.tree(), ["tools/call server ERROR: panic"]);
    let status = attribute(&collecting.span("tools/call"), "mcp_composite.status");
    assert_eq!(status.as_deref(), Some("failed"));
}

#[tokio::test(start_paused = true)]
async fn unknown_tool_name_is_not_in_the_span_name() {
    let collecting = Collecting::begin();
    let service = stack(&server(), vec![]);
    for tool in ["guess", "fails", "near", "near"] {
        call(&service, tool, json!({})).await;
    }
    // Nothing was listed, and nothing else has answered yet.
    let method = "tools/call";
    assert_eq!(collecting.names(), [method, method, method, "tools/call near"]);
    let of = attribute(&collecting.spans()[0], "gen_ai.tool.name");
    assert_eq!(of.as_deref(), Some("guess"));

    service.clone().oneshot(Request::list_tools()).await.unwrap();
    call(&service, "fails", json!({})).await;
    call(&service, "guess", json!({})).await;
    let names = collecting.names();
    assert_eq!(names[4..], ["tools/list", "tools/call fails", "tools/call"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_method_is_not_in_the_span_name() {
    let collecting = Collecting::begin();
    let custom = rmcp::model::CustomRequest::new("guess/42", None);
    let request = Request::new(custom, Context::default());
    stack(&server(), vec![]).oneshot(request).await.unwrap();
    let span = collecting.span("_OTHER");
    assert_eq!(attribute(&span, "mcp.method.name").as_deref(), Some("_OTHER"));
    assert_eq!(attribute(&span, "gen_ai.operation.name"), None);
}

#[tokio::test(start_paused = true)]
async fn client_errors_are_not_server_failures() {
    failed_calls_have_an_error_status(TraceLayer::new()).await;
}

#[tokio::test(start_paused = true)]
async fn client_errors_are_not_server_failures_with_contents() {
    failed_calls_have_an_error_status(TraceLayer::new().contents(true)).await;
}

async fn failed_calls_have_an_error_status(trace: TraceLayer) {
    let collecting = Collecting::begin();
    let service = traced(&server(), vec![look(&["invalid"])], trace);
    for tool in ["invalid", "broken", "look"] {
        call(&service, tool, json!({})).await;
    }
    let spans = collecting.spans();
    let ends: Vec<_> = spans
        .iter()
        .map(|span| {
            let of = |key| attribute(span, key);
            let failed = matches!(span.status, Status::Error { .. });
            (failed, of("error.type"), of("rpc.response.status_code"))
        })
        .collect();
    let text = |text: &str| Some(text.to_owned());
    let expected = [
        (false, None, text("-32602")),
        (true, text("-32603"), text("-32603")),
        (true, text("tool_error"), None),
        (true, text("tool_error"), None),
        // The error is that of the run.
        (true, text("-32602"), text("-32602")),
    ];
    assert_eq!(ends, expected);
}

#[tokio::test(start_paused = true)]
async fn dropped_call_has_the_status_cancelled() {
    let collecting = Collecting::begin();
    let service = stack(&server(), vec![look(&["near", "hangs"])]);
    let call = call(&service, "look", json!({}));
    tokio::time::timeout(Duration::from_secs(3), call).await.unwrap_err();
    // The task of the branch ends at its next turn.
    sleep(Duration::from_secs(1)).await;
    let tree = [
        "tools/call look server",
        "  invoke_workflow look internal",
        "    tools/call hangs client",
        "    tools/call near client",
    ];
    assert_eq!(collecting.tree(), tree);
    for name in ["tools/call look", "invoke_workflow look", "tools/call hangs"] {
        let status = attribute(&collecting.span(name), "mcp_composite.status");
        assert_eq!(status.as_deref(), Some("cancelled"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn loser_of_a_race_is_cancelled_and_timeout_is_an_error() {
    let collecting = Collecting::begin();
    let race = CompositeTool::new("look", "Looks", Race::new(["hangs", "near"]));
    let late = CompositeTool::fan_out("late", "Looks", ["hangs"]).timeout(Duration::from_secs(1));
    let service = stack(&server(), vec![race, late]);
    call(&service, "look", json!({})).await;
    call(&service, "late", json!({})).await;
    let tree = [
        "tools/call look server",
        "  invoke_workflow look internal",
        "    tools/call hangs client",
        "    tools/call near client",
        "tools/call late server ERROR: tool_error",
        "  invoke_workflow late internal ERROR: tool_error",
        "    tools/call hangs client ERROR: timeout",
    ];
    assert_eq!(collecting.tree(), tree);
}

#[tokio::test(start_paused = true)]
async fn run_has_separate_spans_before_and_after_a_question() {
    let collecting = Collecting::begin();
    let sure = Step::new("sure", Elicitation::new("Sure?", json!({})));
    let asks = CompositeTool::pipeline("asks", "Asks", [sure, Step::new("near", "near")]);
    let service = stack(&server(), vec![asks]);
    let ask = async |state: Option<String>| {
        service.clone().oneshot(is_sure("asks", state)).await.unwrap().into_tool_answer()
    };
    let ToolAnswer::InputRequired(question) = ask(None).await else { panic!("no question") };
    let ToolAnswer::Result(_) = ask(question.request_state).await else { panic!("no result") };
    let tree = [
        "tools/call asks server",
        "  invoke_workflow asks internal",
        "tools/call asks server",
        "  invoke_workflow asks internal",
        "    tools/call near client",
    ];
    assert_eq!(collecting.tree(), tree);
    let spans = collecting.spans();
    let of = |span: usize, key| attribute(&spans[span], key);
    assert_eq!(of(0, "mcp_composite.status").as_deref(), Some("suspended"));
    assert_eq!(of(1, "mcp_composite.status").as_deref(), Some("suspended"));
    assert_eq!(of(3, "mcp_composite.status").as_deref(), Some("completed"));
    assert_eq!(of(1, "mcp_composite.run.id"), of(3, "mcp_composite.run.id"));
}

#[tokio::test(start_paused = true)]
async fn arguments_and_results_are_in_spans_only_if_enabled() {
    let tools = ["invalid", "broken", "echo"];
    let secret = json!({ "password": "hunter2" });
    let spans_of = async |trace: TraceLayer| {
        let collecting = Collecting::begin();
        let service = traced(&server().echoes("echo"), vec![look(&tools)], trace);
        service.clone().oneshot(Request::list_tools()).await.unwrap();
        for tool in [&tools[..], &["look"]].concat() {
            call(&service, tool, secret.clone()).await;
        }
        collecting.spans()
    };
    let spans = spans_of(TraceLayer::new()).await;
    assert_eq!(spans.len(), 9);
    assert!(!format!("{spans:?}").contains("hunter2"), "{spans:?}");

    let spans = spans_of(TraceLayer::new().contents(true)).await;
    let echo = spans.iter().filter(|span| span.name == "tools/call echo");
    for span in echo.clone() {
        let of = |key| attribute(span, key).unwrap();
        assert_eq!(of("gen_ai.tool.call.arguments"), secret.to_string());
        assert!(of("gen_ai.tool.call.result").contains("hunter2"), "{span:?}");
    }
    assert_eq!(echo.count(), 2, "of the client, and of the branch");
    let broken = spans.iter().find(|span| span.name == "tools/call broken").unwrap();
    assert!(format!("{:?}", broken.status).contains("hunter2"), "{broken:?}");
}

#[tokio::test(start_paused = true)]
async fn large_contents_are_omitted_from_spans() {
    let collecting = Collecting::begin();
    let trace = TraceLayer::new().contents(true);
    let service = traced(&server().echoes("echo"), vec![], trace);
    call(&service, "echo", json!({ "text": "x".repeat(9000) })).await;
    let span = collecting.span("tools/call");
    assert_eq!(attribute(&span, "gen_ai.tool.call.arguments"), None);
    assert_eq!(attribute(&span, "gen_ai.tool.call.result"), None);
}

/// Returns the names of the spans in which three branches run: `a` before and after it waits, `b`
/// before and after it wakes itself, and `c`, which answers at its first poll.
fn spans_of_branches(runtime: &Runtime) -> [String; 3] {
    let span = || Span::current().metadata().map_or("none", |metadata| metadata.name());
    let waiting = |wait: fn() -> BoxFuture<'static, ()>| {
        Answer::from_fn(move |_| async move {
            let before = span();
            wait().await;
            Answer::text(format!("{before} {}", span()))
        })
    };
    let server = Server::new()
        .tool("a", waiting(|| Box::pin(sleep(Duration::from_millis(1)))))
        .tool("b", waiting(|| Box::pin(yield_now())))
        .tool("c", Answer::from_fn(move |_| async move { Answer::text(span()) }));
    let service = stack(&server, vec![look(&["a", "b", "c"])]);
    let call = service.oneshot(testing::request("look", json!({})));
    let outer = tracing::info_span!(target: "application", "outer");
    let reply = runtime.block_on(call.instrument(outer)).unwrap();
    let result = reply.tool_result().unwrap();
    let branches = &result.structured_content.as_ref().unwrap()["branches"];
    ["a", "b", "c"].map(|branch| branches[branch]["output"].as_str().unwrap().to_owned())
}

/// Returns a runtime of one thread, and one of two, with this subscriber.
fn runtimes() -> [Runtime; 2] {
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let subscribe = move || {
        // Until the thread ends.
        std::mem::forget(tracing::dispatcher::set_default(&dispatch));
    };
    let mut threads = Builder::new_multi_thread();
    threads.worker_threads(2).enable_all().on_thread_start(subscribe);
    [Builder::new_current_thread().enable_all().build().unwrap(), threads.build().unwrap()]
}

#[test]
fn branch_runs_in_its_own_span_inline_and_as_a_task() {
    let threads = ["one thread", "two threads"];
    for (place, threads) in threads.into_iter().enumerate() {
        let collecting = Collecting::begin();
        let spans = spans_of_branches(&runtimes()[place]);
        let expected = ["mcp.client mcp.client", "mcp.client mcp.client", "mcp.client"];
        assert_eq!(spans, expected, "{threads}");
        let tree = [
            "outer internal",
            "  tools/call look server",
            "    invoke_workflow look internal",
            "      tools/call a client",
            "      tools/call b client",
            "      tools/call c client",
        ];
        assert_eq!(collecting.tree(), tree, "{threads}");
    }
}

#[test]
fn branch_without_a_span_runs_in_the_span_around_the_call() {
    let _collecting = Collecting::filtered("application=info");
    for runtime in runtimes() {
        let spans = spans_of_branches(&runtime);
        assert_eq!(spans, ["outer outer", "outer outer", "outer"], "{runtime:?}");
    }
}
