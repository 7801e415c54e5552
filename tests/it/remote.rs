//! Remote servers: real processes, most of which misbehave, and servers in memory where time
//! matters.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture, poll};
use mcp_composite::{
    adapter::{
        RemoteService, Secrets, ServeService,
        remote::{RemoteBuilder, stdio::ChildProcess},
    },
    changes::Changes,
    composite::{CompositeLayer, CompositeTool, Finally, OnError, Step},
    message::{self, BackendError, BackendErrorKind, Reply, Request},
    testing,
};
use rmcp::{
    ClientHandler, ErrorData, RoleClient, RoleServer, ServerHandler,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock,
        ErrorCode, InputRequiredResult, ListToolsResult, PaginatedRequestParams,
        ProgressNotificationParam, ProtocolVersion, RequestMetaObject, ServerCapabilities,
        ServerConfig, SubscriptionFilter, Tool,
    },
    service::{
        ClientLifecycleMode, ClientServiceExt, NotificationContext, PeerRequestOptions,
        RequestContext, SubscriptionContext,
    },
};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt as _};
use tower_service::Service;

use crate::{
    programs::{example, is_running, signal},
    support::{HANG, Log, capture_logs, pipe_to, serve_over_pipe, soon, until},
};

/// A file to which a server writes its received messages, removed with this value.
struct Received(NamedTempFile);

fn misbehaving(behaviour: &[&str]) -> ChildProcess {
    ChildProcess::new(example("misbehaving")).args(behaviour)
}

fn far() -> RemoteBuilder {
    RemoteService::builder("far").connect_timeout(HANG)
}

/// Calls a tool of a remote server.
async fn call(remote: &RemoteService, tool: &str, arguments: Value) -> Reply {
    soon(remote.clone().oneshot(request(tool, &arguments))).await.unwrap()
}

fn request(tool: &str, arguments: &Value) -> Request {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = arguments.as_object().cloned();
    Request::call_tool_with(params)
}

fn text(reply: &Reply) -> &str {
    &reply.tool_result().unwrap().content[0].as_text().unwrap().text
}

fn structured(reply: &Reply) -> &Value {
    reply.tool_result().unwrap().structured_content.as_ref().unwrap()
}

async fn pid(remote: &RemoteService) -> u64 {
    structured(&call(remote, "pid", json!({})).await)["pid"].as_u64().unwrap()
}

async fn tools(remote: &RemoteService) -> Vec<String> {
    let reply = soon(remote.clone().oneshot(Request::list_tools())).await.unwrap();
    reply.tools().unwrap().tools.iter().map(|tool| tool.name.to_string()).collect()
}

// === Well-behaved servers ===

#[tokio::test]
async fn child_process_is_listed_and_called() {
    for behaviour in ["good", "modern"] {
        let remote = far().child_process(misbehaving(&[behaviour]));
        assert_eq!(soon(remote.connected()).await, Ok(()));
        assert!(tools(&remote).await.contains(&"echo".to_owned()));
        assert_eq!(text(&call(&remote, "echo", json!({ "text": "hello" })).await), "hello");
        let info = remote.server_info().unwrap();
        assert_eq!(info.server_info.as_ref().unwrap().name, "misbehaving");
        remote.close().await;
    }
}

#[tokio::test]
async fn call_waits_for_a_pending_connection() {
    let remote = far().child_process(misbehaving(&["late", "200"]));
    assert_eq!(text(&call(&remote, "echo", json!({ "text": "hello" })).await), "hello");
}

#[tokio::test]
async fn local_and_remote_tools_give_equal_composite_results() {
    struct Local;

    impl ServerHandler for Local {
        async fn list_tools(
            &self,
            _: Option<PaginatedRequestParams>,
            _: RequestContext<RoleServer>,
        ) -> Result<ListToolsResult, ErrorData> {
            let schema =
                json!({ "type": "object", "properties": { "text": { "type": "string" } } });
            let schema = Arc::new(schema.as_object().unwrap().clone());
            let echo = Tool::new("echo", "Says it again", schema);
            Ok(ListToolsResult::with_all_items(vec![echo]))
        }

        async fn call_tool(
            &self,
            call: CallToolRequestParams,
            _: RequestContext<RoleServer>,
        ) -> Result<CallToolResponse, ErrorData> {
            let text = call.arguments.unwrap_or_default()["text"].as_str().unwrap().to_owned();
            Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
        }
    }

    let twice = CompositeTool::fan_out("twice", "Says it twice", ["echo", "echo"]);
    let layer = CompositeLayer::new([twice]).unwrap();
    let local = layer.layer(mcp_composite::adapter::HandlerService::new(Local));
    let remote = layer.layer(far().child_process(misbehaving(&["good"])));

    let twice = || request("twice", &json!({ "text": "hello" }));
    let local = local.oneshot(twice()).await.unwrap();
    let remote = soon(remote.oneshot(twice())).await.unwrap();
    assert_eq!(remote.tool_result().unwrap().content, local.tool_result().unwrap().content);
    assert_eq!(structured(&remote), structured(&local));
}

#[tokio::test]
async fn remote_service_is_always_ready() {
    let mut remote = far().child_process(ChildProcess::new("/nowhere/to/be/found"));
    for _ in 0..2 {
        let mut ready = pin!(remote.ready());
        assert!(matches!(poll!(&mut ready), Poll::Ready(Ok(_))));
        let _ = soon(remote.connected()).await;
    }
    remote.close().await;
    let mut ready = pin!(remote.ready());
    assert!(matches!(poll!(&mut ready), Poll::Ready(Ok(_))));
}

// === Cancellation ===

#[tokio::test]
async fn dropped_call_is_cancelled_at_the_server() {
    for behaviour in ["good", "modern"] {
        let remote = far().child_process(misbehaving(&[behaviour]));
        soon(remote.connected()).await.unwrap();
        let mut service = remote.clone();
        let mut hanging = service.call(request("hang", &json!({})));
        assert!(poll!(&mut hanging).is_pending());
        // Until the server has received it, so that there is a call to cancel.
        until(async || structured(&call(&remote, "calls", json!({})).await)["count"] != 1).await;
        drop(hanging);
        until(async || structured(&call(&remote, "cancelled", json!({})).await)["count"] == 1)
            .await;
    }
}

/// The tool `cancelled` returns the number of cancellations that the server has received before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancellation_arrives_before_the_calls_that_follow() {
    for behaviour in ["good", "modern"] {
        let remote = far().child_process(misbehaving(&[behaviour]));
        soon(remote.connected()).await.unwrap();
        let steps = [
            Step::new("hangs", "hang")
                .timeout(Duration::from_millis(20))
                .on_error(OnError::Continue),
            Step::new("next", "cancelled").depends_on(["hangs"]),
            Step::new("last", "hang").timeout(Duration::from_millis(20)).depends_on(["next"]),
            Step::new("undo", "cancelled").finally(Finally::new()),
        ];
        let tool = CompositeTool::workflow("work", "Works", steps);
        let service = CompositeLayer::new([tool]).unwrap().layer(remote);
        for run in 0..20 {
            let result = soon(testing::call(&service, "work", json!({}))).await;
            assert_eq!(result.is_error, Some(true));
            let steps = &result.structured_content.as_ref().unwrap()["steps"];
            let count = |step: &str| steps[step]["output"]["count"].as_u64();
            assert_eq!(count("next"), Some(2 * run + 1), "{result:?}");
            assert_eq!(count("undo"), Some(2 * run + 2), "{result:?}");
        }
    }
}

#[tokio::test]
async fn answered_call_is_not_cancelled() {
    let remote = far().child_process(misbehaving(&["good"]));
    call(&remote, "echo", json!({ "text": "hello" })).await;
    let cancelled = call(&remote, "cancelled", json!({})).await;
    assert_eq!(structured(&cancelled)["count"], 0);
}

// === `_meta` ===

/// Returns the `_meta` that a server receives for a caller's.
async fn passed(behaviour: &str, meta: Value) -> Value {
    let remote = far().pass_meta(["com.example/tenant"]).child_process(misbehaving(&[behaviour]));
    let mut request = request("meta", &json!({}));
    *request.context_mut().meta_mut() = RequestMetaObject::from(meta.as_object().unwrap().clone());
    let reply = soon(remote.clone().oneshot(request)).await.unwrap();
    let mut meta = structured(&reply).clone();
    // rmcp's own token, one per request.
    assert!(meta.as_object_mut().unwrap().remove("progressToken").unwrap().is_number());
    meta
}

fn callers_meta() -> Value {
    json!({
        "progressToken": "the caller's",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "com.example/tenant": "one",
        "com.example/secret": "two",
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "caller", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": { "form": {} },
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
    })
}

#[tokio::test]
async fn older_server_receives_only_trace_and_allowed_metadata() {
    let meta = passed("good", callers_meta()).await;
    let expected = json!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "com.example/tenant": "one",
    });
    assert_eq!(meta, expected);
}

#[tokio::test]
async fn newer_server_receives_the_elicitation_capabilities() {
    let meta = passed("modern", callers_meta()).await;
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({ "elicitation": { "form": {} } })
    );
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "mcp-composite");
    assert_eq!(meta["com.example/tenant"], "one");
    assert_eq!(meta["com.example/secret"], Value::Null);
}

#[tokio::test]
async fn newer_server_receives_no_elicitation_of_an_older_caller() {
    let meta = passed("modern", json!({})).await;
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
}

// === Progress ===

/// A client that records progress notifications.
#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Vec<ProgressNotificationParam>>>);

impl ClientHandler for Watcher {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.0.lock().unwrap().push(params);
    }
}

#[tokio::test]
async fn progress_reaches_the_client_under_its_own_token() {
    let one = far().child_process(misbehaving(&["good"]));
    let two = RoutedByName { one, two: far().child_process(misbehaving(&["modern"])) };
    let both = CompositeTool::fan_out("both", "Two at once", ["one/progress", "two/progress"]);
    let stack = CompositeLayer::new([both]).unwrap().layer(two);
    let info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());

    for lifecycle in [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
    ] {
        let server = ServeService::new(stack.clone(), info.clone());
        let (there, work) = serve_over_pipe(server);
        let watcher = Watcher::default();
        let _serving = JoinSet::from_iter([work]);
        let client = watcher.clone().serve_with_lifecycle(there, lifecycle).await.unwrap();
        // A later request, so that no two tokens are equal by chance.
        client.list_tools(None).await.unwrap();

        // A composite's last report is replaced by its answer.
        for (tool, message, least, total) in
            [("one/progress", "step 4 of 4", 4.0, 4.0), ("both", "branch ", 1.5, 2.0)]
        {
            watcher.0.lock().unwrap().clear();
            let arguments = json!({ "steps": 4, "ms": 60 }).as_object().cloned().unwrap();
            let params = CallToolRequestParams::new(tool).with_arguments(arguments);
            let handle = client
                .send_request_with_option(
                    CallToolRequest::new(params).into(),
                    PeerRequestOptions::no_options(),
                )
                .await
                .unwrap();
            let token = handle.progress_token.clone();
            soon(handle.await_response()).await.unwrap();
            let notifications = watcher.0.lock().unwrap().clone();
            assert!(
                notifications.iter().all(|notification| notification.progress_token == token),
                "{notifications:?}"
            );
            assert!(
                notifications.windows(2).all(|two| two[0].progress < two[1].progress),
                "{notifications:?}"
            );
            let end = notifications.last().unwrap();
            assert!(end.progress >= least && end.total == Some(total), "{notifications:?}");
            assert!(end.message.as_ref().unwrap().starts_with(message), "{notifications:?}");
        }
    }
}

/// Two servers, selected by the prefix before the slash.
#[derive(Clone)]
struct RoutedByName {
    one: RemoteService,
    two: RemoteService,
}

impl Service<Request> for RoutedByName {
    type Response = Reply;
    type Error = BackendError;
    type Future = BoxFuture<'static, Result<Reply, BackendError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BackendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let Self { one, two } = self.clone();
        async move {
            let Some(call) = request.tool_call_mut() else {
                let mut reply = one.oneshot(request.clone()).await?;
                let others = two.oneshot(request).await?;
                let (one, two) = (reply.tools_mut().unwrap(), others.tools().unwrap());
                for tool in &mut one.tools {
                    tool.name = format!("one/{}", tool.name).into();
                }
                one.tools.extend(two.tools.iter().cloned().map(|mut tool| {
                    tool.name = format!("two/{}", tool.name).into();
                    tool
                }));
                return Ok(reply);
            };
            let name = call.name.to_string();
            let (server, tool) = name.split_once('/').unwrap();
            call.name = tool.to_owned().into();
            if server == "one" { one.oneshot(request).await } else { two.oneshot(request).await }
        }
        .boxed()
    }
}

// === Invalid answers ===

#[tokio::test]
async fn malformed_result_is_an_error_that_names_the_backend() {
    let remote = far().child_process(misbehaving(&["malformed"]));
    let error =
        call(&remote, "echo", json!({ "text": "hello" })).await.error().unwrap().into_owned();
    assert_eq!(error.code, ErrorCode::INTERNAL_ERROR);
    assert_eq!(error.message, "backend `far` returned an invalid response");
}

#[tokio::test]
async fn unsupported_method_is_reported_without_the_server_error() {
    let remote = far().child_process(misbehaving(&["good"]));
    let custom = rmcp::model::CustomRequest::new("com.example/unheard", None);
    let request = Request::new(custom, message::Context::default());
    let error = soon(remote.oneshot(request)).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Unsupported);
    assert_eq!(error.to_string(), "backend `far` does not support this method");
}

#[tokio::test]
async fn server_error_is_forwarded() {
    let remote = far().child_process(misbehaving(&["good"]));
    let error = call(&remote, "unheard", json!({})).await.error().unwrap().into_owned();
    assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
    assert_eq!(error.message, "no such tool: unheard");
}

#[tokio::test]
async fn oversized_reply_fails_only_its_own_call() {
    let remote = far().child_process(misbehaving(&["good"]));
    soon(remote.connected()).await.unwrap();
    let huge = call(&remote, "huge", json!({ "bytes": 100_000_000 }));
    let slow = call(&remote, "slow", json!({ "ms": 50 }));
    let (huge, slow) = tokio::join!(huge, slow);
    assert_eq!(huge.error().unwrap().message, "backend `far` sent an answer of more than 16 MiB");
    assert_eq!(text(&slow), "at last");
}

// === Lost servers ===

#[tokio::test]
async fn dead_server_fails_its_calls_and_is_restarted() {
    let (logged, _logs) = capture_logs();
    let remote = far().child_process(misbehaving(&["good"]));
    let first = pid(&remote).await;
    let error = soon(remote.clone().oneshot(request("die", &json!({})))).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::ConnectionLost);
    assert_eq!(error.to_string(), "the connection to backend `far` was lost before it answered");
    until(async || {
        let again = remote.clone().oneshot(request("pid", &json!({}))).await;
        again.is_ok_and(|reply| structured(&reply)["pid"] != first)
    })
    .await;
    assert!(logged.text().contains("it exited with status 3"), "{}", logged.text());
}

#[tokio::test]
async fn killed_server_is_logged_with_its_signal() {
    let (logged, _logs) = capture_logs();
    let remote = far().child_process(misbehaving(&["good"]));
    let first = pid(&remote).await;
    let mut hanging = remote.clone().oneshot(request("hang", &json!({})));
    assert!(poll!(&mut hanging).is_pending());
    until(async || structured(&call(&remote, "calls", json!({})).await)["count"] != 2).await;
    assert!(signal(first, "KILL"));
    let error = soon(hanging).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::ConnectionLost);
    until(async || logged.text().contains("it was killed by signal 9")).await;
}

#[tokio::test]
async fn unchanged_tools_after_a_reconnect_are_not_announced() {
    let changes = Changes::default();
    let remote = far().changes(changes.clone()).child_process(misbehaving(&["good"]));
    let first = pid(&remote).await;
    let mut bumps = changes.tools().watch();
    let _ = soon(remote.clone().oneshot(request("die", &json!({})))).await;
    until(async || {
        let again = remote.clone().oneshot(request("pid", &json!({}))).await;
        again.is_ok_and(|reply| structured(&reply)["pid"] != first)
    })
    .await;
    assert!(poll!(pin!(bumps.bumped())).is_pending());

    call(&remote, "add_tool", json!({ "name": "new" })).await;
    soon(bumps.bumped()).await;
}

#[tokio::test]
async fn tool_missing_after_a_reconnect_is_announced() {
    let changes = Changes::default();
    let remote = far().changes(changes.clone()).child_process(misbehaving(&["good"]));
    soon(remote.connected()).await.unwrap();
    let mut bumps = changes.tools().watch();
    call(&remote, "add_tool", json!({ "name": "new" })).await;
    soon(bumps.bumped()).await;
    let _ = soon(remote.clone().oneshot(request("die", &json!({})))).await;
    soon(bumps.bumped()).await;
    assert!(!tools(&remote).await.contains(&"new".to_owned()));
}

// === Servers that cannot be connected ===

/// Returns the error of a server that cannot be connected.
async fn trouble(child: ChildProcess) -> String {
    trouble_within(HANG, child).await
}

async fn trouble_within(timeout: Duration, child: ChildProcess) -> String {
    let remote = far().connect_timeout(timeout).child_process(child);
    let trouble = soon(remote.connected()).await.unwrap_err();
    let error = remote.clone().oneshot(request("echo", &json!({}))).await.unwrap_err();
    assert_eq!(error.to_string(), "backend `far` is not connected");
    soon(remote.close()).await;
    trouble
}

#[tokio::test]
async fn missing_command_is_reported() {
    let trouble = trouble(ChildProcess::new("no-such-command")).await;
    let expected = "the command `no-such-command` could not be started: No such file or directory";
    assert!(trouble.starts_with(expected), "{trouble}");
}

#[tokio::test]
async fn early_exit_is_reported_with_standard_error() {
    let trouble = trouble(misbehaving(&["exit"])).await;
    assert!(
        trouble.ends_with("it exited with status 1; the last line of its standard error is `misbehaving: told to exit`"),
        "{trouble}"
    );
}

#[tokio::test]
async fn connection_to_a_silent_server_times_out() {
    for behaviour in ["garbage", "silent"] {
        let trouble = trouble_within(Duration::from_secs(1), misbehaving(&[behaviour])).await;
        assert_eq!(trouble, "it did not answer within 1s");
    }
}

#[tokio::test]
async fn unsolicited_response_is_reported() {
    let trouble = trouble(misbehaving(&["other-ids"])).await;
    assert!(trouble.contains("id"), "{trouble}");
}

#[tokio::test]
async fn server_failing_discover_is_initialized_as_an_older_one() {
    // If `server/discover` is not answered in this time, `initialize` must be.
    for (behaviour, timeout) in
        [("dies-on-discover", HANG), ("ignores-discover", Duration::from_secs(3))]
    {
        let remote = far().connect_timeout(timeout).child_process(misbehaving(&[behaviour]));
        assert_eq!(soon(remote.connected()).await, Ok(()));
        assert_eq!(text(&call(&remote, "echo", json!({ "text": "hello" })).await), "hello");
    }
}

#[tokio::test]
async fn server_with_an_endless_list_can_be_called() {
    let (logged, _logs) = capture_logs();
    let remote = far().child_process(misbehaving(&["flood"]));
    call(&remote, "echo", json!({ "text": "hello" })).await;
    assert!(logged.text().contains("failed to list the tools of a backend"), "{}", logged.text());
}

#[tokio::test]
async fn exiting_server_is_restarted_with_pauses() {
    let received = Received::new();
    let begun = tokio::time::Instant::now();
    let child = received.of(misbehaving(&["exit-after-initialize"]));
    let remote = far().child_process(child);
    until(async || received.count("initialize") >= 3).await;
    // Half a second and a second, with a random part.
    let elapsed = begun.elapsed();
    assert!(elapsed >= Duration::from_millis(500), "{elapsed:?}");
    drop(remote);
}

// === Shutdown ===

#[tokio::test]
async fn closing_ends_the_process() {
    let remote = far().child_process(misbehaving(&["good"]));
    let process = pid(&remote).await;
    assert!(is_running(process));
    soon(remote.close()).await;
    assert!(!is_running(process));
    let error = remote.clone().oneshot(request("echo", &json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::NotConnected);
    assert_eq!(remote.connected().await, Err("it was closed".to_owned()));
}

#[tokio::test]
async fn dropping_the_last_clone_ends_the_process() {
    let remote = far().child_process(misbehaving(&["good"]));
    let process = pid(&remote).await;
    let clone = remote.clone();
    drop(remote);
    assert_eq!(pid(&clone).await, process);
    drop(clone);
    until(async || !is_running(process)).await;
}

#[tokio::test]
async fn process_that_ignores_shutdown_is_killed() {
    let remote = far().child_process(misbehaving(&["stubborn"]));
    let process = pid(&remote).await;
    soon(remote.close()).await;
    // It is the child of a child, so this process is not notified of its end.
    until(async || !is_running(process)).await;
}

#[test]
fn dropping_the_runtime_ends_the_process() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (remote, process) = runtime.block_on(async {
        let remote = far().child_process(misbehaving(&["stubborn"]));
        let process = pid(&remote).await;
        (remote, process)
    });
    drop(runtime);
    let begun = tokio::time::Instant::now();
    while is_running(process) {
        assert!(begun.elapsed() < HANG, "it still runs");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(remote);
}

#[tokio::test]
async fn dead_server_is_noticed_while_another_process_holds_its_pipes() {
    let script = format!("sleep 600 & exec '{}' good", example("misbehaving").display());
    let wrapper = ChildProcess::new("sh").args(["-c", &script]);
    let remote = far().child_process(wrapper);
    soon(remote.connected()).await.unwrap();

    // Long before the other process ends.
    assert!(soon(remote.clone().oneshot(request("die", &json!({})))).await.is_err());
    until(async || remote.clone().oneshot(request("pid", &json!({}))).await.is_ok()).await;
}

/// Starts a server from a shell in which `background` continues to run when the server has ended.
async fn with_background(background: &str) -> RemoteService {
    let script = format!("{background} & exec '{}' good", example("misbehaving").display());
    let remote = far().child_process(ChildProcess::new("sh").args(["-c", &script]));
    soon(remote.connected()).await.unwrap();
    remote
}

/// Asserts that a call which ends the server fails soon, and that the server is restarted.
async fn assert_death_is_noticed(remote: &RemoteService) {
    assert!(soon(remote.clone().oneshot(request("die", &json!({})))).await.is_err());
    until(async || remote.clone().oneshot(request("pid", &json!({}))).await.is_ok()).await;
}

#[tokio::test]
async fn dead_server_is_noticed_while_others_call_it() {
    let remote = with_background("sleep 600").await;
    let caller = remote.clone();
    let mut callers = JoinSet::new();
    callers.spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let mut calls = JoinSet::new();
        loop {
            ticks.tick().await;
            calls.spawn(caller.clone().oneshot(request("pid", &json!({}))));
        }
    });
    assert_death_is_noticed(&remote).await;
}

#[tokio::test]
async fn dead_server_is_noticed_while_another_process_writes() {
    let line = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    for pause in ["sleep 0.1", "true"] {
        // In a subshell, `$$` is the server.
        let alive = "while kill -0 $$ 2>/dev/null; do sleep 0.05; done";
        let background = format!("({alive}; while {pause}; do echo '{line}'; done)");
        assert_death_is_noticed(&with_background(&background).await).await;
    }
}

/// As PID 1 or as a subreaper, this process becomes the parent of the server's orphans.
#[cfg(unix)]
#[tokio::test]
async fn dead_server_is_noticed_while_an_orphan_is_in_its_group() {
    use std::os::unix::process::CommandExt;

    let remote = with_background("sleep 600").await;
    let group = pid(&remote).await.try_into().unwrap();
    let mut adopted = std::process::Command::new("sleep").arg("600").process_group(group).spawn();
    assert_death_is_noticed(&remote).await;
    // The whole group was killed, and reaped by the transport or here.
    until(async || !matches!(adopted.as_mut().unwrap().try_wait(), Ok(None))).await;
}

#[tokio::test]
async fn child_of_a_wrapper_ends_with_the_wrapper() {
    let server = example("misbehaving");
    let script = format!("'{}' good & echo $! >&2; wait", server.display());
    // The shell gives its child no input, so the connection fails; the test only checks that no
    // process is left behind.
    let wrapper = ChildProcess::new("sh").args(["-c", &script]);
    let remote = far().child_process(wrapper);
    let trouble = soon(remote.connected()).await.unwrap_err();
    soon(remote.close()).await;
    let process = trouble.rsplit('`').nth(1).unwrap().parse().unwrap();
    until(async || !is_running(process)).await;
}

// === Changes ===

#[tokio::test]
async fn changes_are_forwarded() {
    for behaviour in ["good", "modern"] {
        let changes = Changes::default();
        let remote = far().changes(changes.clone()).child_process(misbehaving(&[behaviour]));
        soon(remote.connected()).await.unwrap();
        let mut bumps = changes.tools().watch();
        // A newer server is listened to in the background.
        until(async || {
            call(&remote, "add_tool", json!({ "name": "new" })).await;
            let change = tokio::time::timeout(Duration::from_millis(200), bumps.bumped()).await;
            change.is_ok()
        })
        .await;
        assert!(tools(&remote).await.contains(&"new".to_owned()));
    }
}

/// A newer server whose streams end as soon as they begin.
#[derive(Clone, Default)]
struct ShortOfBreath {
    streams: Arc<AtomicUsize>,
}

impl ServerHandler for ShortOfBreath {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
        ServerConfig::new(tools.build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::default())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, _: SubscriptionContext) -> Result<(), ErrorData> {
        self.streams.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn ended_streams_are_not_announced_as_changes() {
    let server = ShortOfBreath::default();
    let streams = server.streams.clone();
    let changes = Changes::default();
    let remote = far().changes(changes.clone()).transport(move || pipe_to(server.clone()));
    soon(remote.connected()).await.unwrap();
    let mut bumps = changes.tools().watch();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let streams = streams.load(Ordering::Relaxed);
    assert!((5..50).contains(&streams), "{streams} streams in an hour");
    assert!(poll!(pin!(bumps.bumped())).is_pending());
}

#[tokio::test]
#[expect(deprecated, reason = "older clients use the deprecated methods")]
async fn resource_updates_continue_after_a_reconnect() {
    use rmcp::model::{
        SubscribeRequest, SubscribeRequestParams, UnsubscribeRequest, UnsubscribeRequestParams,
    };

    for behaviour in ["good", "modern"] {
        let changes = Changes::default();
        let remote = far().changes(changes.clone()).child_process(misbehaving(&[behaviour]));
        let context = message::Context::default;
        let subscribe = SubscribeRequest::new(SubscribeRequestParams::new("test://one"));
        let reply = soon(remote.clone().oneshot(Request::new(subscribe, context()))).await.unwrap();
        assert!(reply.error().is_none());

        let mut updates = changes.watch_resources();
        for _ in 0..2 {
            until(async || {
                if remote.clone().oneshot(request("touch", &json!({}))).await.is_err() {
                    return false;
                }
                let update = tokio::time::timeout(Duration::from_millis(200), updates.recv()).await;
                update.is_ok_and(|uri| &*uri.unwrap() == "test://one")
            })
            .await;
            let _ = soon(remote.clone().oneshot(request("die", &json!({})))).await;
        }

        until(async || remote.connected().await.is_ok()).await;
        let unsubscribe = UnsubscribeRequest::new(UnsubscribeRequestParams::new("test://one"));
        soon(remote.clone().oneshot(Request::new(unsubscribe, context()))).await.unwrap();
        until(async || {
            while updates.recv().now_or_never().is_some() {}
            call(&remote, "touch", json!({})).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            updates.recv().now_or_never().is_none()
        })
        .await;
    }
}

/// A newer server that streams an update as soon as `test://two` is subscribed.
#[derive(Clone)]
struct Listening;

impl ServerHandler for Listening {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder();
        ServerConfig::new(capabilities.enable_resources().enable_resources_subscribe().build())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, cx: SubscriptionContext) -> Result<(), ErrorData> {
        let uris = &cx.sink().accepted().resource_subscriptions;
        if uris.iter().flatten().any(|uri| uri == "test://two") {
            cx.sink().notify_resource_updated("test://one").await.unwrap();
        }
        cx.cancelled().await;
        Ok(())
    }
}

#[tokio::test]
#[expect(deprecated, reason = "older clients use the deprecated methods")]
async fn updates_arrive_despite_large_rejected_subscriptions() {
    use rmcp::model::{SubscribeRequest, SubscribeRequestParams};

    let changes = Changes::default();
    let remote = far().changes(changes.clone()).transport(move || pipe_to(Listening));
    soon(remote.connected()).await.unwrap();
    let subscribe = async |uri: &str| {
        let subscribe = SubscribeRequest::new(SubscribeRequestParams::new(uri));
        let request = Request::new(subscribe, message::Context::default());
        let reply = soon(remote.clone().oneshot(request)).await.unwrap();
        reply.error().map(|error| error.code)
    };
    assert_eq!(subscribe("test://one").await, None);
    for large in 0..5 {
        let uri = format!("test://{large}{}", "x".repeat(4 << 20));
        assert_eq!(subscribe(&uri).await, Some(ErrorCode::INVALID_PARAMS));
    }
    let mut large = (0..10).map(|large| format!("test://{large}{}", "x".repeat(1 << 19)));
    let mut accepted = 0;
    let refused = loop {
        match subscribe(&large.next().unwrap()).await {
            None => accepted += 1,
            Some(refused) => break refused,
        }
    };
    assert_eq!((accepted, refused), (5, ErrorCode::INVALID_PARAMS));
    let mut updates = changes.watch_resources();
    assert_eq!(subscribe("test://two").await, None);
    assert_eq!(&*soon(updates.recv()).await.unwrap(), "test://one");
}

/// A newer server that notifies without pause that its tools have changed.
#[derive(Clone)]
struct Restless;

impl ServerHandler for Restless {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
        ServerConfig::new(tools.build())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, cx: SubscriptionContext) -> Result<(), ErrorData> {
        loop {
            cx.sink().notify_tool_list_changed().await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn frequent_change_notifications_are_throttled() {
    let changes = Changes::default();
    let remote = far().changes(changes.clone()).transport(move || pipe_to(Restless));
    soon(remote.connected()).await.unwrap();
    let mut bumps = changes.tools().watch();
    let mut times = 0;
    let minute = tokio::time::sleep(Duration::from_secs(60));
    let counted = async {
        loop {
            bumps.bumped().await;
            times += 1;
        }
    };
    futures::future::select(pin!(minute), pin!(counted)).await;
    assert!((8..=12).contains(&times), "{times} changes in a minute");
}

/// A newer server that asks as many questions of this length as the call says.
#[derive(Clone)]
struct Curious;

impl ServerHandler for Curious {
    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(call.arguments.unwrap_or_default());
        let number = |key: &str| usize::try_from(arguments[key].as_u64().unwrap()).unwrap();
        let text = "x".repeat(number("length"));
        let params = match arguments["method"].as_str().unwrap() {
            "elicitation/create" => json!({
                "mode": "form",
                "message": text,
                "requestedSchema": { "type": "object", "properties": {} },
            }),
            "sampling/createMessage" => json!({
                "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
                "maxTokens": 1,
            }),
            _ => json!({ "_meta": { "text": text } }),
        };
        let question = json!({ "method": arguments["method"], "params": params });
        let questions: serde_json::Map<_, _> =
            (0..number("questions")).map(|n| (format!("q{n}"), question.clone())).collect();
        let asks = json!({
            "resultType": "input_required",
            "inputRequests": questions,
            "requestState": "state",
        });
        Ok(serde_json::from_value::<InputRequiredResult>(asks).unwrap().into())
    }
}

#[tokio::test(start_paused = true)]
async fn questions_in_a_result_are_limited_and_can_be_disabled() {
    let connect = |builder: RemoteBuilder| builder.transport(move || pipe_to(Curious));
    let remote = connect(far());
    let forbidden = connect(far().elicitation(false));
    let asks = async |remote: &RemoteService, method: &str, questions: usize, length: usize| {
        let arguments = json!({ "method": method, "questions": questions, "length": length });
        let mut params = CallToolRequestParams::new("ask");
        params.arguments = arguments.as_object().cloned();
        let mut request = Request::new(CallToolRequest::new(params), message::Context::default());
        let meta = callers_meta().as_object().unwrap().clone();
        *request.context_mut().meta_mut() = RequestMetaObject::from(meta);
        let reply = soon(remote.clone().oneshot(request)).await.unwrap();
        reply.error().map(|error| error.message.to_string())
    };
    let refused =
        |why: &str| Some(format!("backend `far` requested input, which was rejected: {why}"));

    let too_many = refused("too many questions at once");
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        assert_eq!(asks(&remote, method, 32, 100).await, None, "{method}");
        assert_eq!(asks(&remote, method, 33, 1).await, too_many, "{method}");
        // rmcp reads no parameters of `roots/list`.
        if method != "roots/list" {
            let too_large = refused("the questions are too large");
            assert_eq!(asks(&remote, method, 1, 1 << 20).await, too_large, "{method}");
        }
        let forbidden_here = refused("questions of this backend are not allowed");
        assert_eq!(asks(&forbidden, method, 1, 1).await, forbidden_here, "{method}");
        let again = asks(&forbidden, method, 0, 0).await;
        assert_eq!(again, None, "it only wants to be called again");
    }
}

/// An older server that never answers a subscription.
#[derive(Clone)]
struct NeverSubscribes;

impl ServerHandler for NeverSubscribes {
    fn supported_protocol_versions(&self) -> std::borrow::Cow<'static, [ProtocolVersion]> {
        std::borrow::Cow::Borrowed(&[ProtocolVersion::V_2025_11_25])
    }

    async fn subscribe(
        &self,
        _: rmcp::model::SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        futures::future::pending().await
    }
}

#[tokio::test]
#[expect(deprecated, reason = "older clients use the deprecated methods")]
async fn cancelled_subscriptions_are_not_counted() {
    use rmcp::model::{SubscribeRequest, SubscribeRequestParams};

    let remote = far().transport(move || pipe_to(NeverSubscribes));
    soon(remote.connected()).await.unwrap();
    for client in 0..10 {
        let uri = format!("test://{client}{}", "x".repeat(1 << 20));
        let subscribe = SubscribeRequest::new(SubscribeRequestParams::new(uri));
        let request = Request::new(subscribe, message::Context::default());
        let cancelled = remote.clone().oneshot(request).now_or_never();
        assert!(cancelled.is_none(), "client {client} was refused: {cancelled:?}");
    }
}

/// An older server that logs subscriptions, and acknowledges them unless the URI begins with
/// `slow:`. It then sends updates of several resources.
#[derive(Clone, Default)]
struct Subscribable {
    log: Log,
}

impl ServerHandler for Subscribable {
    fn supported_protocol_versions(&self) -> std::borrow::Cow<'static, [ProtocolVersion]> {
        std::borrow::Cow::Borrowed(&[ProtocolVersion::V_2025_11_25])
    }

    async fn subscribe(
        &self,
        params: rmcp::model::SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.log.note(format!("subscribe {}", params.uri));
        if params.uri.starts_with("slow:") {
            futures::future::pending::<()>().await;
        }
        let long = format!("{}/{}", params.uri, "x".repeat(4 << 20));
        for uri in ["test://other", "test://one-more", "test://one/part", &long, &params.uri] {
            let params = rmcp::model::ResourceUpdatedNotificationParam::new(uri);
            context.peer.notify_resource_updated(params).await.unwrap();
        }
        Ok(())
    }

    async fn unsubscribe(
        &self,
        params: rmcp::model::UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.log.note(format!("unsubscribe {}", params.uri));
        Ok(())
    }
}

impl Subscribable {
    fn connect(&self, changes: &Changes) -> RemoteService {
        let server = self.clone();
        far().changes(changes.clone()).transport(move || pipe_to(server.clone()))
    }
}

#[expect(deprecated, reason = "older clients use the deprecated methods")]
fn subscription(uri: &str) -> Request {
    use rmcp::model::{SubscribeRequest, SubscribeRequestParams};

    let subscribe = SubscribeRequest::new(SubscribeRequestParams::new(uri));
    Request::new(subscribe, message::Context::default())
}

#[tokio::test]
async fn remote_forwards_updates_of_subscribed_resources_only() {
    let changes = Changes::default();
    let remote = Subscribable::default().connect(&changes);
    soon(remote.connected()).await.unwrap();
    let mut updates = changes.watch_resources();
    assert!(soon(remote.clone().oneshot(subscription("test://one"))).await.is_ok());
    // The server sends these after all others.
    assert!(soon(remote.clone().oneshot(subscription("test://last"))).await.is_ok());
    let mut received = Vec::new();
    while received.last().is_none_or(|uri| uri != "test://last") {
        received.push(soon(updates.recv()).await.unwrap().to_string());
    }
    received.sort();
    received.dedup();
    assert_eq!(received, ["test://last", "test://one"]);
}

#[tokio::test]
#[expect(deprecated, reason = "older clients use the deprecated methods")]
async fn cancelled_subscriptions_end_at_the_server() {
    use rmcp::model::{UnsubscribeRequest, UnsubscribeRequestParams};

    let server = Subscribable::default();
    let remote = server.connect(&Changes::default());
    soon(remote.connected()).await.unwrap();
    for n in 0..20 {
        let uri = format!("slow:{n}");
        let cancelled = remote.clone().oneshot(subscription(&uri));
        let cancelled = tokio::runtime::Handle::current().spawn(cancelled);
        server.log.wait_for(&format!("subscribe {uri}")).await;
        cancelled.abort();
        server.log.wait_for(&format!("unsubscribe {uri}")).await;
    }
    assert_eq!(server.log.lines().len(), 40);

    // A subscription of another caller is kept.
    assert!(soon(remote.clone().oneshot(subscription("one"))).await.is_ok());
    let unsubscribe = || {
        let unsubscribe = UnsubscribeRequest::new(UnsubscribeRequestParams::new("one"));
        Request::new(unsubscribe, message::Context::default())
    };
    assert!(remote.clone().oneshot(subscription("one")).now_or_never().is_none());
    assert!(soon(remote.clone().oneshot(subscription("two"))).await.is_ok());
    assert!(!server.log.lines().contains(&"unsubscribe one".to_owned()));
    // An unsubscription cannot be cancelled either.
    assert!(remote.clone().oneshot(unsubscribe()).now_or_never().is_none());
    server.log.wait_for("unsubscribe one").await;
}

// === Secrets ===

#[tokio::test]
async fn child_process_does_not_inherit_the_environment() {
    // Cargo sets it, so it is in the environment of this process.
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok());
    let remote = far().child_process(misbehaving(&["good"]).env("TOKEN", "hidden-value"));
    let seen = async |name| text(&call(&remote, "env", json!({ "name": name })).await).to_owned();
    assert_eq!(seen("TOKEN").await, "hidden-value");
    assert_eq!(seen("CARGO_MANIFEST_DIR").await, "unset");
    assert_ne!(seen("PATH").await, "unset");
}

#[tokio::test]
async fn secret_in_a_server_error_is_masked() {
    struct Indiscreet;

    impl ServerHandler for Indiscreet {
        async fn call_tool(
            &self,
            call: CallToolRequestParams,
            _: RequestContext<RoleServer>,
        ) -> Result<CallToolResponse, ErrorData> {
            let code = if call.name == "bad" { ErrorCode::INVALID_REQUEST } else { ErrorCode(-1) };
            let data = json!([{ "hidden-value": "hidden-value", "kept": [1] }]);
            Err(ErrorData::new(code, "the token is hidden-value", Some(data)))
        }
    }

    let (logged, _logs) = capture_logs();
    let secrets = Secrets::new(["hidden-value".to_owned()]);
    let remote = far().secrets(secrets).transport(|| pipe_to(Indiscreet));
    soon(remote.connected()).await.unwrap();
    // From here on, since the server of this test logs its answers.
    let mut errors = Vec::new();
    for tool in ["bad", "other"] {
        errors.push(call(&remote, tool, json!({})).await.error().unwrap().into_owned());
    }
    let data = errors.iter().find_map(|error| error.data.clone());
    assert_eq!(data, Some(json!([{ "***": "***", "kept": [1] }])));
    let text = format!("{errors:?}");
    assert!(text.contains("the token is ***") && !text.contains("hidden-value"), "{text}");
    let logged = logged.text();
    let lines = logged.lines().filter(|line| line.contains("mcp_composite"));
    assert!(lines.clone().any(|line| line.contains("the token is ***")), "{logged}");
    assert!(!lines.clone().any(|line| line.contains("hidden-value")), "{logged}");
}

#[tokio::test]
async fn secrets_do_not_appear_in_logs_and_errors() {
    let (logged, _logs) = capture_logs();
    let script = "echo \"my token is $TOKEN\" >&2; exit 1";
    let child = ChildProcess::new("sh").args(["-c", script]).env("TOKEN", "hidden-value");
    let debug = format!("{child:?} {child:#?}");
    let remote =
        far().secrets(Secrets::new(["other-hidden-value".to_owned()])).child_process(child);
    let trouble = soon(remote.connected()).await.unwrap_err();
    assert!(trouble.contains("my token is ***"), "{trouble}");
    let all = format!("{debug} {trouble} {} {remote:?}", logged.text());
    assert!(!all.contains("hidden-value"), "{all}");
}

// === impl Received ===

impl Received {
    fn new() -> Self {
        Self(NamedTempFile::new().unwrap())
    }

    /// Makes a server write to this file.
    fn of(&self, child: ChildProcess) -> ChildProcess {
        child.env("MISBEHAVING_LOG", self.0.path())
    }

    /// Returns the number of received messages of this method.
    fn count(&self, method: &str) -> usize {
        let text = std::fs::read_to_string(self.0.path()).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|message| message["method"] == method)
            .count()
    }
}
