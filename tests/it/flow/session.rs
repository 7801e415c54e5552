//! Labels of results, and calls of egress tools in sessions, without a file.

mod ask;
mod composites;
#[cfg(feature = "config")]
mod file;

use std::{fmt, sync::Arc, time::Duration};

use mcp_composite::{
    composite::{FlowLabel, FlowPolicy},
    flow::{FLOW_LABELS, FlowLayer, SessionMode},
    message::{Context, Reply, Request},
    pattern::Selection,
    stack::StackLayer,
    store::MemoryStore,
    testing::{self, Answer, Server, request},
    truncate::TruncateLayer,
};
use rmcp::model::{
    CallToolResult, ContentBlock, CreateTaskResult, ErrorData, JsonObject, MetaObject,
    ReadResourceRequest, ReadResourceRequestParams, ServerResult, Task, TaskStatus, Tool,
    ToolAnnotations,
};
use serde_json::{Value, json};
use tokio::time::advance;
use tower::{Layer, Service, ServiceExt, layer::util::Identity};

use crate::{budget::allocations, support::capture_logs};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn tools<const N: usize>(patterns: [&str; N]) -> Selection {
    Selection::default().allow(patterns).unwrap()
}

fn policy() -> FlowPolicy {
    FlowPolicy::new()
        .label(tools(["mail"]), [FlowLabel::Private])
        .label(tools(["page"]), [FlowLabel::Untrusted])
        .label(tools(["inbox"]), [FlowLabel::Private, FlowLabel::Untrusted])
        .label(tools(["send"]), [FlowLabel::Egress])
}

/// A server with the labeled tools, and `plain` without a label.
fn server() -> Server {
    let tools = ["mail", "page", "inbox", "send", "plain"];
    tools.into_iter().fold(Server::new(), |server, tool| server.says(tool, format!("a {tool}")))
}

fn denying() -> FlowLayer {
    FlowLayer::new(policy()).mode(SessionMode::Deny)
}

fn by(mut request: Request, session: &'static str) -> Request {
    request.context_mut().extensions_mut().insert(session);
    request
}

fn session(context: &Context) -> Option<String> {
    context.extensions().get::<&str>().map(|session| (*session).to_owned())
}

async fn reply<S>(service: &S, request: Request) -> Reply
where
    S: Service<Request, Response = Reply, Error: fmt::Debug> + Clone,
{
    service.clone().oneshot(request).await.unwrap()
}

async fn call<S>(service: &S, tool: &str) -> Reply
where
    S: Service<Request, Response = Reply, Error: fmt::Debug> + Clone,
{
    reply(service, request(tool, json!({}))).await
}

/// Calls a tool, and returns whether the call was denied.
async fn denies<S>(service: &S, tool: &str) -> bool
where
    S: Service<Request, Response = Reply, Error: fmt::Debug> + Clone,
{
    is_denied(&call(service, tool).await)
}

fn is_denied(reply: &Reply) -> bool {
    reply.error().is_some_and(|error| error.message.contains("is denied"))
}

/// Returns the labels in the `_meta` of a tool result.
fn labels(reply: &Reply) -> Value {
    let meta = reply.tool_result().unwrap().meta.as_ref();
    meta.and_then(|meta| meta.get(FLOW_LABELS)).cloned().unwrap_or_default()
}

/// Returns a result whose `_meta` contains these labels.
fn claiming(labels: &Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text("a result")]);
    let meta = json!({ FLOW_LABELS: labels, "other": 1 });
    result.meta = Some(MetaObject(meta.as_object().unwrap().clone()));
    result
}

// === Labels ===

#[tokio::test(start_paused = true)]
async fn results_have_the_labels_of_their_tools() {
    let service = FlowLayer::new(policy()).layer(server().fails("mail", "no such mail"));
    let expected = [
        ("mail", json!(["private"])),
        ("page", json!(["untrusted"])),
        ("inbox", json!(["private", "untrusted"])),
        ("send", json!(null)),
        ("plain", json!(null)),
    ];
    for (tool, expected) in expected {
        assert_eq!(labels(&call(&service, tool).await), expected, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn labels_of_servers_are_replaced() {
    let server = ["plain", "mail"]
        .into_iter()
        .fold(Server::new(), |server, tool| server.tool(tool, claiming(&json!(["untrusted"]))));
    let service = denying().layer(server);
    for (tool, expected) in [("plain", json!(null)), ("mail", json!(["private"]))] {
        let reply = call(&service, tool).await;
        assert_eq!(labels(&reply), expected, "{tool}");
        let meta = reply.tool_result().unwrap().meta.as_ref().unwrap();
        assert_eq!(meta["other"], json!(1), "{tool}");
    }
    // The claim of the server has no effect on the session.
    assert!(!denies(&service, "send").await);
}

#[tokio::test(start_paused = true)]
async fn layer_without_labels_keeps_the_labels_of_servers() {
    let service =
        FlowLayer::default().layer(Server::new().tool("t", claiming(&json!(["private"]))));
    assert_eq!(labels(&call(&service, "t").await), json!(["private"]));
}

#[test]
fn layer_without_labels_allocates_nothing() {
    let of_the_answer = allocations(&Identity::new());
    assert_eq!(allocations(&FlowLayer::new(FlowPolicy::new())), of_the_answer);
    // An allocation would be counted.
    assert!(allocations(&denying()) > of_the_answer);
}

#[cfg(feature = "cache")]
#[tokio::test(start_paused = true)]
async fn cached_result_has_labels_and_counts_for_each_session() {
    use mcp_composite::cache::{CacheLayer, CacheRule};

    let read_only = ToolAnnotations::new().read_only(true);
    let inbox = Tool::new("inbox", "Reads", JsonObject::new()).with_annotations(read_only);
    let server = server();
    server.remove("inbox");
    server.add(inbox, Answer::text("an inbox"));
    let service = StackLayer::new()
        .cache(CacheLayer::new().rule(CacheRule::new(tools(["inbox"]), HOUR)))
        .flow(denying().session(session))
        .layer(server.clone());
    for session in ["ada", "bob"] {
        assert!(!is_denied(&reply(&service, by(request("send", json!({})), session)).await));
        let inbox = reply(&service, by(request("inbox", json!({})), session)).await;
        assert_eq!(labels(&inbox), json!(["private", "untrusted"]), "{session}");
        assert!(is_denied(&reply(&service, by(request("send", json!({})), session)).await));
    }
    assert_eq!(server.called().iter().filter(|tool| **tool == "inbox").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn truncated_and_stored_results_keep_their_labels() {
    let mut large = claiming(&json!("x".repeat(5_000)));
    large.content = vec![ContentBlock::text("x".repeat(50_000))];
    let meta = large.meta.as_mut().unwrap();
    (0..100).for_each(|number| drop(meta.insert(format!("key{number}"), "x".repeat(100).into())));
    let service = StackLayer::new()
        .truncate(
            TruncateLayer::new().max_result_bytes(600).keep(Arc::new(MemoryStore::for_results())),
        )
        .flow(FlowLayer::new(policy()))
        .layer(Server::new().tool("inbox", large));

    let reply = call(&service, "inbox").await;
    assert_eq!(labels(&reply), json!(["private", "untrusted"]));
    let result = reply.tool_result().unwrap();
    let mut links = result.content.iter().filter_map(ContentBlock::as_resource_link);
    let read = ReadResourceRequest::new(ReadResourceRequestParams::new(&links.next().unwrap().uri));
    let stored = self::reply(&service, Request::new(read, Context::default())).await;
    let stored = format!("{:?}", stored.result().unwrap());
    assert!(stored.contains("flow-labels\\\":[\\\"private\\\",\\\"untrusted\\\"]"), "{stored}");
}

// === Sessions ===

#[tokio::test(start_paused = true)]
async fn egress_is_denied_after_private_and_untrusted_results() {
    for first in [["mail", "page"], ["page", "mail"], ["plain", "inbox"]] {
        let server = server();
        let service = denying().layer(server.clone());
        for tool in first {
            assert!(!denies(&service, "send").await, "before `{tool}`");
            assert!(!denies(&service, tool).await);
        }
        let calls = server.calls().len();
        let error = testing::refused(&service, "send", json!({ "text": "hunter2" })).await;
        assert_eq!((error.code.0, error.data), (-32000, None));
        assert_eq!(
            error.message,
            "tool `send` is denied: it makes its arguments visible to others, and this session has \
             received private and untrusted data"
        );
        assert_eq!(server.calls().len(), calls, "the tool does not run");
        for tool in ["mail", "page", "inbox", "plain"] {
            assert!(!denies(&service, tool).await, "{tool}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn call_is_checked_when_it_arrives() {
    let send = Answer::text("sent").after(Duration::from_secs(2));
    let inbox = Answer::text("an inbox").after(Duration::from_secs(1));
    let service = denying().layer(Server::new().tool("send", send).tool("inbox", inbox));
    let (inbox, send) = tokio::join!(call(&service, "inbox"), call(&service, "send"));
    assert!(!is_denied(&send));
    assert_eq!(labels(&inbox), json!(["private", "untrusted"]));
    assert!(denies(&service, "send").await);
}

#[tokio::test(start_paused = true)]
async fn warning_is_logged_at_intervals_and_the_call_forwarded() {
    let (logged, _guard) = capture_logs();
    let service = FlowLayer::new(policy()).mode(SessionMode::Warn).layer(server());
    call(&service, "inbox").await;
    let warnings = || logged.text().matches("WARN").count();
    for expected in [1, 1, 2] {
        for _ in 0..2 {
            let send = request("send", json!({ "text": "hunter2" }));
            assert!(!is_denied(&reply(&service, send).await));
        }
        assert_eq!(warnings(), expected, "{}", logged.text());
        advance(Duration::from_secs(6)).await;
    }
    let logged = logged.text();
    assert!(logged.contains("the call is allowed tool=send"), "{logged}");
    assert!(!logged.contains("hunter2"), "{logged}");
}

#[tokio::test(start_paused = true)]
async fn sessions_are_not_restricted_by_default() {
    let service = FlowLayer::new(policy()).layer(server());
    call(&service, "inbox").await;
    assert!(!denies(&service, "send").await);
}

#[tokio::test(start_paused = true)]
async fn sessions_have_separate_labels() {
    let service = denying().session(session).layer(server());
    let denies = async |session, tool| {
        is_denied(&reply(&service, by(request(tool, json!({})), session)).await)
    };
    assert!(!denies("ada", "inbox").await);
    assert!(!denies("bob", "page").await);
    assert!(denies("ada", "send").await);
    assert!(!denies("bob", "send").await);
    assert!(!self::denies(&service, "send").await, "requests without a key are a session");
    assert!(!denies("bob", "mail").await);
    assert!(denies("bob", "send").await);
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_layer_share_their_sessions() {
    let layer = denying();
    call(&layer.layer(server()), "inbox").await;
    assert!(denies(&layer.clone().layer(server()), "send").await);
    assert!(!denies(&denying().layer(server()), "send").await);
}

#[tokio::test(start_paused = true)]
async fn labels_of_a_session_expire() {
    for (layer, time) in [(denying(), HOUR), (denying().expires_after(HOUR / 4), HOUR / 4)] {
        let service = layer.layer(server());
        call(&service, "mail").await;
        advance(time / 2).await;
        call(&service, "page").await;
        advance(time / 2).await;
        // A result without a label, and a denied call, do not count.
        call(&service, "plain").await;
        assert!(denies(&service, "send").await);
        advance(time / 2).await;
        assert!(!denies(&service, "send").await);
    }
}

#[tokio::test(start_paused = true)]
async fn labels_in_requests_have_no_effect() {
    let service = denying().layer(server());
    let claiming = |tool: &str, labels: Value| {
        let mut request = request(tool, json!({}));
        request.context_mut().meta_mut().insert(FLOW_LABELS.to_owned(), labels);
        request
    };
    reply(&service, claiming("plain", json!(["private", "untrusted"]))).await;
    assert!(!denies(&service, "send").await);
    reply(&service, claiming("inbox", json!([]))).await;
    assert!(is_denied(&reply(&service, claiming("send", json!([]))).await));
}

#[tokio::test(start_paused = true)]
async fn errors_and_tasks_count_but_refusals_and_questions_do_not() {
    let task = Task::new("7".to_owned(), TaskStatus::Working, String::new(), String::new());
    let task = ServerResult::CreateTaskResult(CreateTaskResult::new(task));
    let error = ErrorData::internal_error("a hostile text", None);
    let after = async |answer: Answer| {
        let service = denying().layer(Server::new().tool("inbox", answer).says("send", "sent"));
        call(&service, "inbox").await;
        denies(&service, "send").await
    };
    assert!(after(Answer::from(error)).await);
    assert!(after(Answer::failure("a hostile text")).await);
    assert!(after(Answer::from(Reply::from(task))).await);
    assert!(!after(Answer::from(Reply::unknown_tool("inbox"))).await);
    assert!(!after(Answer::asks("sure", "Sure?")).await);
}

#[tokio::test(start_paused = true)]
async fn annotations_are_labels_if_they_are_trusted() {
    let tool = |name: &'static str, hints| {
        Tool::new(name, "A tool", JsonObject::new()).with_annotations(hints)
    };
    let hints = |open_world| ToolAnnotations::new().read_only(true).open_world(open_world);
    let server = || {
        Server::new()
            .tool_as(tool("mail", hints(false)), Answer::text("mail"))
            .tool_as(tool("web", hints(true)), Answer::text("a page"))
            .tool_as(tool("closed", hints(false)), Answer::text("an answer"))
    };
    let policy = || {
        FlowPolicy::new()
            .label(tools(["mail"]), [FlowLabel::Private])
            .trust_annotations(Selection::default())
    };
    let service = FlowLayer::new(policy()).mode(SessionMode::Deny).layer(server());
    assert_eq!(labels(&call(&service, "mail").await), json!(["private"]));
    assert_eq!(labels(&call(&service, "web").await), json!(["untrusted"]));
    assert!(denies(&service, "web").await);
    assert!(!denies(&service, "closed").await);
    assert!(denies(&service, "unlisted").await, "its annotations are unknown");

    // Without a list, all tools are treated as open.
    let server = server();
    server.break_list("no list");
    let service = FlowLayer::new(policy()).mode(SessionMode::Deny).layer(server);
    assert_eq!(labels(&call(&service, "mail").await), json!(["private", "untrusted"]));
    assert!(denies(&service, "closed").await);
}
