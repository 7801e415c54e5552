//! `ServeService`, compared with the handler that it serves.

use std::{
    error::Error,
    fmt, future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use mcp_composite::{
    adapter::{HandlerService, ServeService},
    filter::FilterLayer,
    message::{Reply, Request},
    pattern::Selection,
};
use rmcp::{
    RoleServer, ServerHandler, ServiceError,
    model::*,
    service::{PeerRequestOptions, RequestContext},
};
use serde_json::{Value, json};
use tower::{
    BoxError, Service, ServiceBuilder,
    layer::{layer_fn, util::Identity},
    service_fn,
    timeout::error::Elapsed,
    util::BoxCloneService,
};

use crate::support::{
    Connection, Era, Full, Hung, Log, capture_logs, connect, detached, soon, tool, unusual,
};

const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];

/// A service that fails with the given error.
fn failing<E>(
    error: E,
) -> ServeService<
    impl Service<Request, Response = Reply, Error: Into<BoxError> + Send, Future: Send>
    + Clone
    + Send
    + 'static,
>
where
    E: Into<BoxError> + Clone + Send + 'static,
{
    let service = service_fn(move |_: Request| future::ready(Err::<Reply, E>(error.clone())));
    ServeService::new(service, Full::default().get_info())
}

fn refused(outcome: Result<Value, ServiceError>) -> ErrorData {
    match outcome {
        Err(ServiceError::McpError(error)) => error,
        other => panic!("expected a JSON-RPC error, got {other:?}"),
    }
}

// === Wrapped and bare handlers ===

/// Returns all requests of the protocol, with all kinds of answers.
fn requests(era: Era) -> Vec<(&'static str, Value)> {
    let page = json!({ "cursor": "c" });
    let mut requests = vec![
        ("ping", json!({})),
        ("server/discover", json!({})),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "haiku" },
                    "argument": { "name": "a", "value": "b" } }),
        ),
        ("prompts/list", page.clone()),
        ("prompts/get", json!({ "name": "haiku", "arguments": { "a": "b" } })),
        ("prompts/get", json!({ "name": "ask" })),
        ("resources/list", page.clone()),
        ("resources/templates/list", page.clone()),
        ("resources/read", json!({ "uri": "full://a" })),
        ("resources/read", json!({ "uri": "full://ask" })),
        ("resources/read", json!({ "uri": "full://gone" })),
        ("resources/directory/read", json!({ "uri": "full://d", "cursor": "c" })),
        ("resources/subscribe", json!({ "uri": "full://a" })),
        ("resources/unsubscribe", json!({ "uri": "full://a" })),
        ("tools/list", json!({})),
        ("tools/list", page.clone()),
        ("tools/call", json!({ "name": "echo", "arguments": { "x": [1, null] } })),
        ("tools/call", json!({ "name": "fail" })),
        ("tools/call", json!({ "name": "refuse" })),
        ("tools/call", json!({ "name": "ask", "requestState": "s", "inputResponses": {} })),
        ("tools/call", json!({ "name": "task" })),
        ("tools/call", json!({ "name": "talk" })),
        ("tasks/get", json!({ "taskId": "t1" })),
        ("tasks/update", json!({ "taskId": "t1", "inputResponses": { "k": {} } })),
        ("tasks/cancel", json!({ "taskId": "t1" })),
        ("skills/list", page),
        ("skills/get", json!({ "uri": "skill://full/brew/SKILL.md" })),
        ("skills/get", json!({ "uri": "skill://full/other/SKILL.md" })),
        ("test/mirror", json!({ "x": 1 })),
        ("test/unknown", json!({ "x": 1 })),
        // rmcp may have answered the first one.
        ("ping", json!({})),
    ];
    if era == Era::Legacy {
        // Older clients are asked, which rmcp alone does not do.
        requests.retain(|(_, params)| params["name"] != "ask" && params["uri"] != "full://ask");
        // Handled differently on purpose for newer clients.
        requests.push(("logging/setLevel", json!({ "level": "info" })));
        // As over HTTP, where another replica continues a session.
        requests.push((
            "initialize",
            json!({ "protocolVersion": "2025-06-18", "capabilities": {},
                    "clientInfo": { "name": "again", "version": "0" } }),
        ));
    }
    requests
}

/// Returns the messages that the client received, and the log of the handler.
async fn script(server: impl ServerHandler, log: &Log, era: Era) -> (Vec<String>, Vec<String>) {
    let connection = connect(server, era).await;
    let client = &connection.client;
    let mut received = vec![format!("{:?}", client.peer_info())];
    if era == Era::Legacy {
        log.wait_for("notifications/initialized").await;
    }

    for (method, params) in requests(era) {
        let outcome = connection.send(method, params.clone()).await;
        received.push(format!("{method} {params}: {outcome:?}"));
    }

    let client_log = client.service().log.clone();
    for notification in ["tools changed", "progress", "log"] {
        client_log.wait_for(notification).await;
    }
    let mut notifications = client_log.lines();
    notifications.sort();
    received.extend(notifications);

    let everything = SubscriptionFilter::builder().tools_list_changed().prompts_list_changed();
    match soon(client.listen(everything.build())).await {
        Ok(mut subscription) => {
            received.push(format!("acknowledged {:?}", subscription.acknowledged()));
            while let Some(streamed) = soon(subscription.next()).await.unwrap() {
                received.push(format!("streamed {streamed:?}"));
            }
            received.push(format!("ended {:?}", subscription.end()));
        }
        Err(error) => received.push(format!("listen {error:?}")),
    }

    let token = ProgressToken(NumberOrString::String("p".into()));
    client.notify_progress(ProgressNotificationParam::new(token, 0.25)).await.unwrap();
    log.wait_for("notifications/progress").await;
    let unknown = CancelledNotificationParam::new(Some(RequestId::Number(99)), Some("why".into()));
    client.notify_cancelled(unknown).await.unwrap();
    log.wait_for("notifications/cancelled").await;
    client.notify_roots_list_changed().await.unwrap();
    log.wait_for("notifications/roots/list_changed").await;
    let custom = CustomNotification::new("notifications/test", Some(json!({ "y": 2 })));
    client.send_notification(ClientNotification::CustomNotification(custom)).await.unwrap();
    log.wait_for("notifications/test").await;

    (received, log.lines())
}

#[tokio::test]
async fn wrapped_handler_behaves_like_a_bare_one() {
    for era in BOTH {
        let bare = Full::default();
        let (received_of_bare, reached_bare) = script(bare.clone(), &bare.log, era).await;

        let wrapped = Full::default();
        let served = ServeService::wrap(wrapped.clone(), Identity::new());
        let (received_of_wrapped, reached_wrapped) = script(served, &wrapped.log, era).await;

        for (bare, wrapped) in received_of_bare.iter().zip(&received_of_wrapped) {
            assert_eq!(bare, wrapped, "{era:?}");
        }
        assert_eq!(received_of_bare.len(), received_of_wrapped.len());
        assert_eq!(reached_bare, reached_wrapped, "{era:?}");
    }
}

#[tokio::test]
async fn test_script_calls_every_handler_method() {
    let mut reached = vec![];
    for era in BOTH {
        let full = Full::default();
        reached.extend(script(full.clone(), &full.log, era).await.1);
    }
    for method in [
        "initialize ",
        "server/discover",
        "ping",
        "completion/complete",
        "logging/setLevel",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/directory/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "filter",
        "subscriptions/listen",
        "tools/call",
        "tools/list",
        "test/mirror",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "skills/list",
        "skills/get",
        "notifications/cancelled",
        "notifications/progress",
        "notifications/initialized",
        "notifications/roots/list_changed",
        "notifications/test",
    ] {
        assert!(reached.iter().any(|line| line.starts_with(method)), "{method}: {reached:#?}");
    }
}

#[tokio::test]
async fn handler_answers_synchronous_rmcp_queries() {
    let full = Full::default();
    let served = ServeService::wrap(full.clone(), Identity::new());
    let params = InitializeRequestParams::new(
        ClientCapabilities::default(),
        Implementation::new("asker", "1"),
    );
    let filter = SubscriptionFilter::builder().tools_list_changed().build();

    assert_eq!(served.get_info(), full.get_info());
    assert_eq!(served.supported_protocol_versions(), full.supported_protocol_versions());
    assert_eq!(served.negotiate_initialize(&params), full.negotiate_initialize(&params));
    assert_eq!(
        served.accepted_subscription_filter(&filter),
        full.accepted_subscription_filter(&filter)
    );
}

#[tokio::test]
async fn every_request_passes_through_the_layers() {
    for era in BOTH {
        let passed = Log::default();
        let noting = layer_fn(|inner: HandlerService<Full>| {
            let passed = passed.clone();
            ServiceBuilder::new()
                .map_request(move |request: Request| {
                    passed.note(request.method());
                    request
                })
                .service(inner)
        });
        let full = Full::default();
        let reached = script(ServeService::wrap(full.clone(), noting), &full.log, era).await.1;

        // All lines of the handler except those that are not requests.
        let aside = ["filter", "subscriptions/listen", "notifications/"];
        let requests: Vec<_> = reached
            .iter()
            .filter(|line| !aside.iter().any(|aside| line.starts_with(aside)))
            .map(|line| line.split(' ').next().unwrap())
            .collect();
        assert_eq!(passed.lines(), requests, "{era:?}");
        assert!(requests.len() > 25, "{requests:?}");
    }
}

// === Ended calls ===

/// Calls the tool that hangs, and waits until it hangs.
async fn hang(
    connection: &Connection,
    calls: &mut tokio::sync::mpsc::UnboundedReceiver<Hung>,
) -> (rmcp::service::RequestHandle<rmcp::RoleClient>, Hung) {
    let call = CallToolRequest::new(CallToolRequestParams::new("hang"));
    let handle = connection
        .client
        .send_cancellable_request(call.into(), PeerRequestOptions::no_options())
        .await
        .unwrap();
    let hung = soon(calls.recv()).await.unwrap();
    assert!(!hung.cancellation.is_cancelled());
    (handle, hung)
}

#[tokio::test(start_paused = true)]
async fn client_cancellation_drops_the_call() {
    for era in BOTH {
        let (handler, mut calls) = unusual();
        let connection = connect(ServeService::wrap(handler, Identity::new()), era).await;
        let (handle, hung) = hang(&connection, &mut calls).await;
        handle.cancel(Some("changed my mind".to_owned())).await.unwrap();
        hung.ended().await;
        // The connection still works.
        connection.call_tool("fine").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn client_disconnection_drops_the_call() {
    for era in BOTH {
        let (handler, mut calls) = unusual();
        let connection = connect(ServeService::wrap(handler, Identity::new()), era).await;
        let (_handle, hung) = hang(&connection, &mut calls).await;
        let Connection { client, server: _server } = connection;
        client.cancel().await.unwrap();
        hung.ended().await;
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_drops_the_call_and_returns_an_error() {
    for era in BOTH {
        let (handler, mut calls) = unusual();
        let layer = ServiceBuilder::new().timeout(Duration::from_secs(5));
        let connection = connect(ServeService::wrap(handler, layer), era).await;
        let (handle, hung) = hang(&connection, &mut calls).await;
        hung.ended().await;
        let error = soon(handle.await_response()).await.map(|_| Value::Null);
        assert_eq!(refused(error), ErrorData::internal_error("the request timed out", None));
    }
}

#[tokio::test]
async fn cancelled_request_does_not_start() {
    let full = Full::default();
    let (context, _keep) = detached(Era::Legacy);
    context.ct.cancel();
    let served = ServeService::wrap(full.clone(), Identity::new());
    let reply = served.call_tool(CallToolRequestParams::new("echo"), context).await;
    assert!(reply.is_err());
    assert!(full.log.lines().is_empty());
}

// === Panics ===

#[tokio::test]
async fn panic_returns_an_error_without_its_message() {
    for era in BOTH {
        let (handler, _calls) = unusual();
        let connection = connect(ServeService::wrap(handler, Identity::new()), era).await;
        let error = refused(connection.call_tool("panic").await);
        assert_eq!(error, ErrorData::internal_error("internal error", None));
        // The connection still works.
        connection.call_tool("fine").await.unwrap();
    }
}

#[tokio::test]
async fn panic_outside_the_call_returns_an_error() {
    /// Panics in `clone`, in `poll_ready` or in `call`.
    struct Fragile {
        place: &'static str,
        clones: Arc<AtomicUsize>,
    }

    impl Clone for Fragile {
        fn clone(&self) -> Self {
            self.clones.fetch_add(1, Ordering::Relaxed);
            assert_ne!(self.place, "clone");
            Self { place: self.place, clones: self.clones.clone() }
        }
    }

    impl Service<Request> for Fragile {
        type Response = Reply;
        type Error = BoxError;
        type Future = future::Ready<Result<Reply, BoxError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            assert_ne!(self.place, "ready");
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request) -> Self::Future {
            panic!("{}", self.place)
        }
    }

    for place in ["clone", "ready", "call"] {
        let clones = Arc::new(AtomicUsize::new(0));
        let fragile = Fragile { place, clones: clones.clone() };
        let served = ServeService::new(fragile, ServerConfig::default());
        let connection = connect(served, Era::Legacy).await;
        for _ in 0..2 {
            let error = refused(connection.call_tool("x").await);
            assert_eq!(error, ErrorData::internal_error("internal error", None));
        }
        assert_eq!(clones.load(Ordering::Relaxed), 2, "each call clones the service once");
    }
}

// === Stacks ===

#[tokio::test(start_paused = true)]
async fn stack_with_a_concurrency_limit_of_one_is_served() {
    let (handler, mut calls) = unusual();
    let layer = ServiceBuilder::new().concurrency_limit(1);
    let connection = connect(ServeService::wrap(handler, layer), Era::Modern).await;
    let (handle, hung) = hang(&connection, &mut calls).await;

    let waiting = connection.call_tool("fine");
    let mut waiting = std::pin::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_secs(1), &mut waiting).await;
    assert!(early.is_err(), "the first call still runs");

    handle.cancel(None).await.unwrap();
    hung.ended().await;
    soon(waiting).await.unwrap();
}

#[tokio::test]
async fn stack_behind_a_buffer_is_served() {
    for era in BOTH {
        let (handler, _calls) = unusual();
        let layer = ServiceBuilder::new().buffer(4).concurrency_limit(1);
        let connection = connect(ServeService::wrap(handler, layer), era).await;
        let all = (0..20).map(|_| connection.call_tool("fine"));
        for outcome in soon(futures::future::join_all(all)).await {
            outcome.unwrap();
        }
    }
}

#[tokio::test]
async fn non_sync_stack_is_served() {
    fn assert_serves<S: ServerHandler + Clone + fmt::Debug>(server: S) -> S {
        server
    }

    // A cell makes the stack itself as little `Sync` as the box does.
    let count = std::cell::Cell::new(0);
    let stack = ServiceBuilder::new()
        .map_request(move |request: Request| {
            count.set(count.get() + 1);
            request
        })
        .service(HandlerService::new(Full::default()));
    let served = ServeService::new(BoxCloneService::new(stack), Full::default().get_info());
    let connection = connect(assert_serves(served), Era::Legacy).await;
    connection.call_tool("echo").await.unwrap();
}

#[tokio::test]
async fn service_builder_is_accepted_as_a_layer() {
    let layer = ServiceBuilder::new()
        .load_shed()
        .concurrency_limit(2)
        .timeout(Duration::from_secs(1))
        .layer(Identity::new());
    let served = ServeService::wrap(Full::default(), layer);
    let connection = connect(served, Era::Modern).await;
    connection.call_tool("echo").await.unwrap();
}

// === Bare Tower services ===

#[tokio::test]
async fn bare_service_is_served_with_its_description() {
    for era in BOTH {
        let reached = Log::default();
        let noted = reached.clone();
        let service = service_fn(move |request: Request| {
            noted.note(request.method());
            future::ready(Ok::<_, BoxError>(Reply::from(CallToolResult::success(vec![]))))
        });
        let info = Full::default().get_info();
        let served = ServeService::new(service, info.clone());
        assert_eq!(served.get_tool("echo"), None);

        let connection = connect(served, era).await;
        let peer = connection.client.peer_info().unwrap();
        assert_eq!(peer.instructions, info.instructions);
        assert_eq!(peer.server_info, Some(info.server_info));
        match era {
            Era::Legacy => connection.send("ping", json!({})).await.map(drop).unwrap(),
            Era::Modern => connection.send("server/discover", json!({})).await.map(drop).unwrap(),
        }
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        match soon(connection.client.listen(filter)).await {
            Err(ServiceError::McpError(error)) => {
                assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND);
            }
            other => panic!("{other:?}"),
        }
        connection.client.notify_roots_list_changed().await.unwrap();
        connection.call_tool("x").await.unwrap();
        assert_eq!(reached.lines(), ["tools/call"]);
    }
}

// === Results ===

/// Requests whose results may omit their type.
const UNTYPED: [&str; 10] = [
    "completion/complete",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/directory/read",
    "tools/call",
    "skills/list",
    "skills/get",
];

#[tokio::test]
async fn missing_result_type_is_added_for_newer_clients() {
    async fn types(server: impl ServerHandler, era: Era) -> Vec<Value> {
        let connection = connect(server, era).await;
        let mut types = vec![];
        for (method, params) in requests(era) {
            if UNTYPED.contains(&method) || method == "tools/list" {
                // Errors have no type, and questions have their own.
                if let Ok(result) = connection.send(method, params).await
                    && result["resultType"] != "input_required"
                    && result["resultType"] != "task"
                {
                    types.push(result["resultType"].clone());
                }
            }
        }
        assert!(types.len() > UNTYPED.len(), "{types:?}");
        types
    }

    let terse = || Full { terse: true, ..Full::default() };
    let wrapped = || ServeService::wrap(terse(), Identity::new());
    // rmcp alone does not add it.
    assert!(types(terse(), Era::Modern).await.iter().all(Value::is_null));
    assert!(types(wrapped(), Era::Modern).await.iter().all(|kind| kind == "complete"));
    assert!(types(wrapped(), Era::Legacy).await.iter().all(Value::is_null));
}

/// A handler whose tool returns an array, as its output schema says.
#[derive(Clone)]
struct Listing;

impl ServerHandler for Listing {
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({ "type": "array", "items": { "type": "integer" } });
        let mut tool = tool("numbers");
        tool.output_schema = Some(Arc::new(schema.as_object().unwrap().clone()));
        Ok(ListToolsResult::with_all_items(vec![tool]))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut result = CallToolResult::success(vec![ContentBlock::text("two numbers")]);
        result.structured_content = Some(json!([1, 2]));
        Ok(result.into())
    }
}

#[tokio::test]
async fn only_newer_clients_receive_non_object_structured_content() {
    async fn answers(server: impl ServerHandler, era: Era) -> (Value, Value) {
        let connection = connect(server, era).await;
        let tools = connection.send("tools/list", json!({})).await.unwrap();
        (tools["tools"][0].clone(), connection.call_tool("numbers").await.unwrap())
    }

    let layer = FilterLayer::new().tools(Selection::default().allow(["numbers"]).unwrap());
    for era in BOTH {
        let (tool, result) = answers(ServeService::wrap(Listing, layer.clone()), era).await;
        let schema = tool.get("outputSchema").map(|schema| &schema["type"]);
        let texts = result["content"].as_array().unwrap().iter().map(|block| &block["text"]);
        let texts: Vec<&Value> = texts.collect();
        match era {
            Era::Legacy => {
                assert_eq!(schema, None);
                assert_eq!(result.get("structuredContent"), None);
                assert_eq!(texts, ["[1,2]", "two numbers"]);
            }
            Era::Modern => {
                assert_eq!(schema, Some(&json!("array")));
                assert_eq!(result["structuredContent"], json!([1, 2]));
                assert_eq!(texts, ["two numbers"]);
            }
        }

        let (bare_tool, bare_result) = answers(Listing, era).await;
        assert_eq!(tool, bare_tool, "{era:?}");
        assert_eq!(result["content"], bare_result["content"], "{era:?}");
    }
}

#[tokio::test]
async fn log_level_request_of_a_newer_client_is_rejected() {
    let full = Full::default();
    let connection = connect(ServeService::wrap(full.clone(), Identity::new()), Era::Modern).await;
    let level = json!({ "level": "info" });
    let error = refused(connection.send("logging/setLevel", level).await);
    assert_eq!((error.code, &*error.message), (ErrorCode::METHOD_NOT_FOUND, "logging/setLevel"));
    assert!(!full.log.has("logging/setLevel"));
}

/// Returns a server that answers everything with this.
fn answering(reply: impl Into<Reply>) -> impl ServerHandler {
    let reply = reply.into();
    let service = service_fn(move |_: Request| future::ready(Ok::<_, BoxError>(reply.clone())));
    ServeService::new(service, Full::default().get_info())
}

#[tokio::test]
async fn result_of_the_wrong_type_becomes_a_generic_error() {
    let secret = ListToolsResult::with_all_items(vec![tool("secret")]);
    let (logged, _guard) = capture_logs();
    let connection = connect(answering(secret), Era::Legacy).await;
    for (method, params) in requests(Era::Legacy) {
        if matches!(method, "ping" | "server/discover" | "initialize" | "tools/list")
            || method.starts_with("test")
        {
            continue;
        }
        let error = refused(connection.send(method, params).await);
        if error.code != ErrorCode::INTERNAL_ERROR {
            // Rejected by rmcp before it reached the service.
            assert_eq!(method, "skills/get", "{error:?}");
            continue;
        }
        assert_eq!(error, ErrorData::internal_error("the server returned an invalid result", None));
    }
    let warnings = logged.text();
    let mut warnings = warnings.lines().filter(|line| line.contains("does not match the method"));
    assert!(warnings.clone().any(|line| line.contains("WARN") && line.contains("tools/call")));
    assert!(warnings.all(|line| !line.contains("secret")));
}

#[tokio::test]
async fn custom_request_accepts_any_result_type() {
    // Over a wire, a custom result can look like any other.
    let list = ListToolsResult::with_all_items(vec![tool("x")]);
    let connection = connect(answering(list.clone()), Era::Modern).await;
    let result = connection.send("test/mirror", json!({})).await.unwrap();
    assert_eq!(result["tools"], json!(list.tools));
}

#[tokio::test]
async fn acknowledgement_may_have_a_result_type() {
    let connection = connect(answering(ServerResult::task_ack(())), Era::Legacy).await;
    connection.send("resources/subscribe", json!({ "uri": "full://a" })).await.unwrap();
    let connection = connect(answering(ServerResult::empty(())), Era::Legacy).await;
    connection.send("tasks/cancel", json!({ "taskId": "t" })).await.unwrap();
}

#[tokio::test]
async fn rejection_has_the_code_invalid_params() {
    let connection = connect(answering(Reply::unknown_tool("x")), Era::Modern).await;
    let error = refused(connection.call_tool("x").await);
    assert_eq!((error.code, &*error.message), (ErrorCode::INVALID_PARAMS, "unknown tool `x`"));
}

// === Errors of the service ===

/// An error with a text that no client may see, and an optional cause.
#[derive(Clone, Debug)]
struct Leaky(Option<Arc<dyn Error + Send + Sync>>);

impl fmt::Display for Leaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no route to 10.1.2.3")
    }
}

impl Error for Leaky {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.as_ref().map(|cause| &**cause as &(dyn Error + 'static))
    }
}

#[tokio::test]
async fn unknown_error_is_generic_for_clients_and_logged() {
    let (logged, _guard) = capture_logs();
    let connection = connect(failing(Leaky(None)), Era::Modern).await;
    let error = refused(connection.call_tool("x").await);
    assert_eq!(error, ErrorData::internal_error("internal error", None));

    let text = logged.text();
    let line = text.lines().find(|line| line.contains("10.1.2.3")).unwrap();
    assert!(line.contains("ERROR") && line.contains("tools/call"), "{line}");
}

#[tokio::test]
async fn timeouts_and_overload_are_reported_from_any_layer() {
    let causes: [(Arc<dyn Error + Send + Sync>, _); 2] = [
        (Arc::new(Elapsed::new()), "the request timed out"),
        (Arc::new(tower::load_shed::error::Overloaded::new()), "the server is overloaded"),
    ];
    for (cause, message) in causes {
        let deep = Leaky(Some(Arc::new(Leaky(Some(cause)))));
        let connection = connect(failing(deep), Era::Legacy).await;
        let error = refused(connection.call_tool("x").await);
        assert_eq!(error, ErrorData::internal_error(message, None));
    }
}

#[tokio::test(start_paused = true)]
async fn load_shedding_stack_reports_overload() {
    let (handler, mut calls) = unusual();
    let layer = ServiceBuilder::new().load_shed().concurrency_limit(1);
    let connection = connect(ServeService::wrap(handler, layer), Era::Modern).await;
    let (_handle, _hung) = hang(&connection, &mut calls).await;
    let error = refused(connection.call_tool("fine").await);
    assert_eq!(error, ErrorData::internal_error("the server is overloaded", None));
}

#[tokio::test]
async fn readiness_error_is_reported_like_a_call_error() {
    #[derive(Clone)]
    struct Unready;

    impl Service<Request> for Unready {
        type Response = Reply;
        type Error = BoxError;
        type Future = future::Ready<Result<Reply, BoxError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Err(Elapsed::new().into()))
        }

        fn call(&mut self, _: Request) -> Self::Future {
            unreachable!("never ready")
        }
    }

    let connection =
        connect(ServeService::new(Unready, ServerConfig::default()), Era::Legacy).await;
    let error = refused(connection.call_tool("x").await);
    assert_eq!(error, ErrorData::internal_error("the request timed out", None));
}
