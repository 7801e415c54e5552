//! Notifications of changes, and subscriptions of clients.

use std::{
    future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_composite::{
    adapter::ServeService,
    changes::Changes,
    filter::FilterLayer,
    message::{Reply, Request, Subject},
    pattern::Selection,
};
use rmcp::{
    RoleServer, ServerHandler,
    model::*,
    service::{NotificationContext, RequestContext, Subscription, SubscriptionContext},
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tower::{BoxError, Layer, Service, layer::util::Identity, service_fn};

use crate::support::{Connection, Era, Full, Log, connect, detached, soon, tool};

const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];

/// A service that acknowledges everything and records it.
#[derive(Clone)]
struct Backend {
    log: Log,
    /// The number of requests it may answer.
    answers: Arc<Semaphore>,
    /// The number of requests it rejects first.
    refusals: Arc<AtomicUsize>,
}

impl Default for Backend {
    fn default() -> Self {
        let answers = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self { log: Log::default(), answers, refusals: Arc::default() }
    }
}

impl Backend {
    fn server(
        &self,
        changes: &Changes,
    ) -> ServeService<
        impl Service<Request, Response = Reply, Error = BoxError, Future: Send> + Clone + Send + 'static,
    > {
        let backend = self.clone();
        let service = service_fn(move |request: Request| {
            let backend = backend.clone();
            async move {
                let message = serde_json::to_value(request.message()).unwrap();
                let uri = message["params"]["uri"].as_str().unwrap_or_default();
                backend.log.note(format!("{} {uri}", request.method()));
                backend.answers.acquire().await.unwrap().forget();
                let refusals = &backend.refusals;
                let less = |refusals: usize| refusals.checked_sub(1);
                Ok::<_, BoxError>(
                    match refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
                        Ok(_) => ErrorData::invalid_params("not this one", None).into(),
                        Err(_) => ServerResult::empty(()).into(),
                    },
                )
            }
        });
        ServeService::new(service, everything()).changes(changes.clone())
    }

    /// Waits until it has seen this many requests of this method.
    async fn saw(&self, method: &str, times: usize) {
        settle().await;
        let seen = self.log.lines();
        let count = seen.iter().filter(|line| line.starts_with(method)).count();
        assert_eq!(count, times, "{method}: {seen:#?}");
    }
}

fn everything() -> ServerConfig {
    ServerConfig::new(
        ServerCapabilities::builder()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .build(),
    )
}

/// Runs all pending tasks. Requires paused time.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn notifications(connection: &Connection) -> Vec<String> {
    settle().await;
    connection.client.service().log.lines()
}

async fn subscribe(connection: &Connection, uri: &str) -> bool {
    connection.send("resources/subscribe", json!({ "uri": uri })).await.is_ok()
}

async fn unsubscribe(connection: &Connection, uri: &str) -> bool {
    connection.send("resources/unsubscribe", json!({ "uri": uri })).await.is_ok()
}

async fn listen(connection: &Connection, filter: SubscriptionFilter) -> Subscription {
    soon(connection.client.listen(filter)).await.unwrap()
}

/// Returns the next streamed change, by its method and URI.
async fn next(stream: &mut Subscription) -> String {
    let notification = soon(stream.next()).await.unwrap().unwrap();
    let notification = serde_json::to_value(notification).unwrap();
    let uri = notification["params"]["uri"].as_str().unwrap_or_default();
    format!("{} {uri}", notification["method"].as_str().unwrap()).trim_end().to_owned()
}

/// A filter for all kinds of changes.
fn all(uris: &[&str]) -> SubscriptionFilter {
    let lists = SubscriptionFilter::builder()
        .tools_list_changed()
        .prompts_list_changed()
        .resources_list_changed();
    match uris {
        [] => lists.build(),
        _ => lists.resource_subscriptions(uris.iter().copied()).build(),
    }
}

// === Declared capabilities ===

fn capabilities(connection: &Connection) -> Value {
    serde_json::to_value(&connection.client.peer_info().unwrap().capabilities).unwrap()
}

#[tokio::test]
async fn list_changed_is_declared_for_each_supported_list() {
    for era in BOTH {
        let served = Backend::default().server(&Changes::default());
        let declared = capabilities(&connect(served, era).await);
        assert_eq!(declared["tools"], json!({ "listChanged": true }));
        assert_eq!(declared["prompts"], json!({ "listChanged": true }));
        assert_eq!(declared["resources"], json!({ "subscribe": true, "listChanged": true }));

        let service = service_fn(|_: Request| future::pending::<Result<Reply, BoxError>>());
        let bare = ServeService::new(service, ServerConfig::default()).changes(Changes::default());
        let declared = capabilities(&connect(bare, era).await);
        assert_eq!(declared, json!({ "tools": { "listChanged": true } }));
    }
}

#[tokio::test]
async fn capabilities_of_a_wrapped_handler_are_extended() {
    for era in BOTH {
        let layers = Identity::new();
        let served = ServeService::wrap(Full::default(), layers).changes(Changes::default());
        assert_eq!(served.get_info().capabilities.prompts.unwrap().list_changed, Some(true));
        let declared = capabilities(&connect(served, era).await);
        assert_eq!(declared["prompts"], json!({ "listChanged": true }));
        assert_eq!(declared["resources"], json!({ "subscribe": true, "listChanged": true }));
        assert_eq!(declared["logging"], json!({}));

        let without_changes = ServeService::wrap(Full::default(), Identity::new());
        assert_eq!(capabilities(&connect(without_changes, era).await)["prompts"], json!({}));
    }
}

#[tokio::test]
async fn server_description_is_requested_for_each_client() {
    for era in BOTH {
        let name = Arc::new(Mutex::new("first"));
        let now = name.clone();
        let describe = move || {
            let name = Implementation::new(*now.lock().unwrap(), "1");
            ServerConfig::default().with_server_info(name)
        };
        let service = service_fn(|_: Request| future::pending::<Result<Reply, BoxError>>());
        let served = ServeService::new(service, describe);
        for expected in ["first", "second"] {
            *name.lock().unwrap() = expected;
            let connection = connect(served.clone(), era).await;
            let info = connection.client.peer_info().unwrap();
            assert_eq!(info.server_info.as_ref().unwrap().name, expected);
            assert_eq!(served.get_info().server_info.name, expected);
        }
    }
}

// === Older clients ===

#[tokio::test(start_paused = true)]
async fn older_client_is_notified_of_changed_lists() {
    let changes = Changes::default();
    let connection = connect(Backend::default().server(&changes), Era::Legacy).await;
    settle().await;
    for _ in 0..5 {
        changes.tools().bump();
    }
    assert_eq!(notifications(&connection).await, ["tools changed"], "several changes count as one");
    changes.prompts().bump();
    settle().await;
    changes.resources().bump();
    settle().await;
    changes.tools().bump();
    assert_eq!(
        notifications(&connection).await,
        ["tools changed", "prompts changed", "resources changed", "tools changed"]
    );
}

#[tokio::test(start_paused = true)]
async fn older_client_is_notified_of_declared_capabilities_only() {
    let changes = Changes::default();
    let service = service_fn(|_: Request| future::pending::<Result<Reply, BoxError>>());
    let served = ServeService::new(service, ServerConfig::default()).changes(changes.clone());
    let connection = connect(served, Era::Legacy).await;
    settle().await;
    changes.prompts().bump();
    changes.resources().bump();
    changes.resource_updated("a");
    assert_eq!(notifications(&connection).await, [""; 0]);
    changes.tools().bump();
    assert_eq!(notifications(&connection).await, ["tools changed"]);
}

#[tokio::test(start_paused = true)]
async fn all_clients_are_notified() {
    let changes = Changes::default();
    let served = Backend::default().server(&changes);
    let one = connect(served.clone(), Era::Legacy).await;
    let other = connect(served, Era::Legacy).await;
    settle().await;
    changes.tools().bump();
    assert_eq!(notifications(&one).await, ["tools changed"]);
    assert_eq!(notifications(&other).await, ["tools changed"]);
}

#[tokio::test(start_paused = true)]
async fn newer_client_receives_only_requested_notifications() {
    let changes = Changes::default();
    let connection = connect(Backend::default().server(&changes), Era::Modern).await;
    // rmcp accepts no notification before the first request after `server/discover`.
    let _ = connection.client.list_tools(None).await;
    connection.client.notify_initialized().await.unwrap();
    settle().await;
    changes.tools().bump();
    assert_eq!(notifications(&connection).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn wrapped_handler_receives_the_initialized_notification() {
    let full = Full::default();
    let changes = Changes::default();
    let served = ServeService::wrap(full.clone(), Identity::new()).changes(changes.clone());
    let connection = connect(served, Era::Legacy).await;
    full.log.wait_for("notifications/initialized").await;
    changes.prompts().bump();
    assert_eq!(notifications(&connection).await, ["prompts changed"]);
}

#[tokio::test(start_paused = true)]
async fn repeated_initialized_notifications_are_ignored() {
    let changes = Changes::default();
    let connection = connect(Backend::default().server(&changes), Era::Legacy).await;
    for _ in 0..3 {
        connection.client.notify_initialized().await.unwrap();
    }
    settle().await;
    changes.tools().bump();
    assert_eq!(notifications(&connection).await, ["tools changed"]);
}

#[tokio::test(start_paused = true)]
async fn disconnected_client_leaves_no_clone_of_the_service() {
    for era in BOTH {
        let alive = Arc::new(());
        let held = alive.clone();
        let service = service_fn(move |_: Request| {
            let _held = &held;
            future::pending::<Result<Reply, BoxError>>()
        });
        let served = ServeService::new(service, everything()).changes(Changes::default());
        let Connection { client, mut server } = connect(served, era).await;
        let stream = match era {
            Era::Legacy => None,
            Era::Modern => Some(client.listen(all(&[])).await.unwrap()),
        };
        settle().await;
        assert!(Arc::strong_count(&alive) > 1);
        client.cancel().await.unwrap();
        soon(server.join_next()).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        drop(stream);
        assert_eq!(Arc::strong_count(&alive), 1, "{era:?}");
    }
}

// === Newer clients ===

#[tokio::test(start_paused = true)]
async fn newer_client_receives_a_stream_of_requested_notifications() {
    let changes = Changes::default();
    let connection = connect(Backend::default().server(&changes), Era::Modern).await;
    let mut everything = listen(&connection, all(&["a"])).await;
    assert_eq!(everything.acknowledged(), &all(&["a"]));
    let tools = SubscriptionFilter::builder().tools_list_changed().build();
    let mut only_tools = listen(&connection, tools).await;

    changes.prompts().bump();
    assert_eq!(next(&mut everything).await, "notifications/prompts/list_changed");
    changes.resources().bump();
    assert_eq!(next(&mut everything).await, "notifications/resources/list_changed");
    changes.resource_updated("b");
    changes.resource_updated("a");
    assert_eq!(next(&mut everything).await, "notifications/resources/updated a");
    for _ in 0..5 {
        changes.tools().bump();
    }
    assert_eq!(next(&mut everything).await, "notifications/tools/list_changed");
    assert_eq!(next(&mut only_tools).await, "notifications/tools/list_changed");

    // The other stream continues when one ends.
    everything.cancel().await.unwrap();
    changes.tools().bump();
    assert_eq!(next(&mut only_tools).await, "notifications/tools/list_changed");
    assert_eq!(notifications(&connection).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn requested_undeclared_notifications_are_not_accepted() {
    let service = service_fn(|_: Request| future::pending::<Result<Reply, BoxError>>());
    let served = ServeService::new(service, ServerConfig::default()).changes(Changes::default());
    let connection = connect(served, Era::Modern).await;
    let stream = listen(&connection, all(&["a"])).await;
    let tools = SubscriptionFilter::builder().tools_list_changed().build();
    assert_eq!(stream.acknowledged(), &tools);
}

/// A handler that streams one change of its own and then waits, or ends.
#[derive(Clone, Default)]
struct Streaming {
    ends: bool,
    prepared: Log,
}

impl ServerHandler for Streaming {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .build();
        ServerConfig::new(capabilities)
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.prepared.note(serde_json::to_string(requested).unwrap());
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, cx: SubscriptionContext) -> Result<(), ErrorData> {
        cx.sink().notify_tool_list_changed().await.unwrap();
        if !self.ends {
            cx.cancelled().await;
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn stream_includes_notifications_of_the_handler() {
    let changes = Changes::default();
    let handler = Streaming::default();
    let served = ServeService::wrap(handler.clone(), Identity::new()).changes(changes.clone());
    let connection = connect(served, Era::Modern).await;
    let mut stream = listen(&connection, all(&[])).await;
    let both = SubscriptionFilter::builder().tools_list_changed().prompts_list_changed().build();
    assert_eq!(stream.acknowledged(), &both);
    assert!(handler.prepared.lines().len() == 1, "the handler is asked, too");
    assert_eq!(next(&mut stream).await, "notifications/tools/list_changed");
    changes.prompts().bump();
    assert_eq!(next(&mut stream).await, "notifications/prompts/list_changed");
}

#[tokio::test(start_paused = true)]
async fn stream_ends_when_the_handler_ends_it() {
    let handler = Streaming { ends: true, ..Streaming::default() };
    let served = ServeService::wrap(handler, Identity::new()).changes(Changes::default());
    let connection = connect(served, Era::Modern).await;
    let mut stream = listen(&connection, all(&[])).await;
    assert_eq!(next(&mut stream).await, "notifications/tools/list_changed");
    assert!(soon(stream.next()).await.unwrap().is_none());
    assert!(stream.end().is_some());
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_handler_without_streams_are_streamed() {
    struct Plain;
    impl ServerHandler for Plain {}

    let changes = Changes::default();
    let served = ServeService::wrap(Plain, Identity::new()).changes(changes.clone());
    let connection = connect(served, Era::Modern).await;
    let mut stream = listen(&connection, all(&[])).await;
    changes.tools().bump();
    assert_eq!(next(&mut stream).await, "notifications/tools/list_changed");
}

// === Subscriptions to resources ===

#[tokio::test(start_paused = true)]
async fn client_is_notified_of_subscribed_resources() {
    let (backend, changes) = (Backend::default(), Changes::default());
    let served = backend.server(&changes);
    let one = connect(served.clone(), Era::Legacy).await;
    let other = connect(served, Era::Legacy).await;
    assert!(subscribe(&one, "a").await);
    assert!(subscribe(&one, "b").await);
    assert!(subscribe(&other, "b").await);
    for uri in ["a", "b", "c"] {
        changes.resource_updated(uri);
        // Each notification is followed by a pause.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(notifications(&one).await, ["updated a", "updated b"]);
    assert_eq!(notifications(&other).await, ["updated b"]);

    assert!(unsubscribe(&one, "b").await);
    changes.resource_updated("b");
    assert_eq!(notifications(&one).await, ["updated a", "updated b"]);
    assert_eq!(notifications(&other).await, ["updated b", "updated b"]);
}

#[tokio::test(start_paused = true)]
async fn backend_is_unsubscribed_when_the_last_subscription_ends() {
    let (backend, changes) = (Backend::default(), Changes::default());
    let served = backend.server(&changes);
    let one = connect(served.clone(), Era::Legacy).await;
    let other = connect(served, Era::Legacy).await;
    assert!(subscribe(&one, "a").await);
    assert!(subscribe(&one, "a").await);
    assert!(subscribe(&other, "a").await);
    backend.saw("resources/subscribe", 3).await;
    assert!(unsubscribe(&one, "a").await);
    assert!(unsubscribe(&one, "a").await, "it would end the other's");
    backend.saw("resources/unsubscribe", 0).await;
    assert!(unsubscribe(&other, "a").await);
    backend.saw("resources/unsubscribe", 3).await;
    // The same once more.
    assert!(subscribe(&one, "a").await);
    backend.saw("resources/subscribe", 4).await;
    assert!(unsubscribe(&one, "a").await);
    backend.saw("resources/unsubscribe", 4).await;
}

#[tokio::test(start_paused = true)]
async fn rejected_subscriber_receives_no_updates() {
    let (backend, changes) = (Backend::default(), Changes::default());
    let served = backend.server(&changes);
    let one = connect(served.clone(), Era::Legacy).await;
    let other = connect(served.clone(), Era::Legacy).await;
    let newer = connect(served, Era::Modern).await;
    assert!(subscribe(&one, "a").await);
    backend.refusals.store(2, Ordering::Relaxed);
    assert!(!subscribe(&other, "a").await);
    let mut stream = listen(&newer, all(&["a"])).await;
    settle().await;
    changes.resource_updated("a");
    changes.tools().bump();
    assert_eq!(next(&mut stream).await, "notifications/tools/list_changed");
    assert_eq!(notifications(&other).await, ["tools changed"]);
    assert_eq!(notifications(&one).await.iter().filter(|line| *line == "updated a").count(), 1);
    backend.saw("resources/unsubscribe", 0).await;

    // A rejected request also ends the previous subscription.
    backend.refusals.store(1, Ordering::Relaxed);
    assert!(!subscribe(&one, "a").await);
    backend.saw("resources/unsubscribe", 1).await;
    changes.resource_updated("a");
    assert_eq!(notifications(&one).await.iter().filter(|line| *line == "updated a").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn rejected_subscription_is_not_kept() {
    let (backend, changes) = (Backend::default(), Changes::default());
    backend.refusals.store(1, Ordering::Relaxed);
    let served = backend.server(&changes);
    let one = connect(served.clone(), Era::Legacy).await;
    let other = connect(served, Era::Legacy).await;
    assert!(!subscribe(&one, "a").await);
    changes.resource_updated("a");
    assert_eq!(notifications(&one).await, [""; 0]);
    assert!(subscribe(&other, "a").await, "the backend is asked again");
    backend.saw("resources/subscribe", 2).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_subscriber_gets_the_reply_of_the_backend() {
    let backend = Backend { answers: Arc::new(Semaphore::new(0)), ..Backend::default() };
    backend.refusals.store(1, Ordering::Relaxed);
    let served = backend.server(&Changes::default());
    let one = connect(served.clone(), Era::Legacy).await;
    let other = connect(served, Era::Legacy).await;
    let allow = async {
        backend.saw("resources/subscribe", 2).await;
        backend.answers.add_permits(2);
    };
    let (first, second, ()) = tokio::join!(subscribe(&one, "a"), subscribe(&other, "a"), allow);
    assert!(first != second, "each asked for itself");
    backend.saw("resources/unsubscribe", 0).await;
}

#[tokio::test(start_paused = true)]
async fn subscription_during_an_unsubscription_is_sent_after_it() {
    let backend = Backend { answers: Arc::new(Semaphore::new(1)), ..Backend::default() };
    let served = backend.server(&Changes::default());
    let one = connect(served.clone(), Era::Legacy).await;
    let other = connect(served, Era::Legacy).await;
    assert!(subscribe(&one, "a").await);
    let allow = async {
        backend.saw("resources/unsubscribe", 1).await;
        backend.saw("resources/subscribe", 1).await;
        backend.answers.add_permits(2);
    };
    let (ended, begun, ()) = tokio::join!(unsubscribe(&one, "a"), subscribe(&other, "a"), allow);
    assert!(ended && begun);
    let expected = ["resources/subscribe a", "resources/unsubscribe a", "resources/subscribe a"];
    assert_eq!(backend.log.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn subscriptions_of_a_client_end_when_it_disconnects() {
    let (backend, changes) = (Backend::default(), Changes::default());
    let served = backend.server(&changes);
    let one = connect(served.clone(), Era::Legacy).await;
    let other = connect(served.clone(), Era::Legacy).await;
    for uri in ["a", "b", "c"] {
        assert!(subscribe(&one, uri).await);
    }
    assert!(subscribe(&other, "b").await);
    one.client.cancel().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    backend.saw("resources/unsubscribe a", 1).await;
    backend.saw("resources/unsubscribe c", 1).await;
    backend.saw("resources/unsubscribe b", 0).await;
    drop((other, one.server));
    tokio::time::sleep(Duration::from_secs(10)).await;
    backend.saw("resources/unsubscribe b", 2).await;
    // The server itself is still running.
    let again = connect(served, Era::Legacy).await;
    assert!(subscribe(&again, "b").await);
    backend.saw("resources/subscribe b", 3).await;
}

#[tokio::test(start_paused = true)]
async fn subscriptions_of_a_stream_end_with_the_stream() {
    let (backend, changes) = (Backend::default(), Changes::default());
    let served = backend.server(&changes);
    let older = connect(served.clone(), Era::Legacy).await;
    assert!(subscribe(&older, "a").await);
    let newer = connect(served, Era::Modern).await;
    let mut stream = listen(&newer, all(&["a", "b"])).await;
    settle().await;
    backend.saw("resources/subscribe a", 2).await;
    backend.saw("resources/subscribe b", 1).await;
    changes.resource_updated("b");
    assert_eq!(next(&mut stream).await, "notifications/resources/updated b");

    stream.cancel().await.unwrap();
    backend.saw("resources/unsubscribe b", 1).await;
    backend.saw("resources/unsubscribe a", 0).await;
    assert!(unsubscribe(&older, "a").await);
    backend.saw("resources/unsubscribe a", 2).await;
}

#[tokio::test(start_paused = true)]
async fn stream_cancelled_before_the_reply_leaves_no_subscription() {
    let backend = Backend { answers: Arc::new(Semaphore::new(0)), ..Backend::default() };
    let served = backend.server(&Changes::default());
    let connection = connect(served.clone(), Era::Modern).await;
    let mut stream = listen(&connection, all(&["a"])).await;
    backend.saw("resources/subscribe a", 1).await;
    stream.cancel().await.unwrap();
    settle().await;
    backend.answers.add_permits(9);
    // The last subscriber is gone, so the backend receives the request again.
    let older = connect(served, Era::Legacy).await;
    assert!(subscribe(&older, "a").await);
    backend.saw("resources/subscribe a", 2).await;
}

#[tokio::test]
#[expect(deprecated, reason = "older clients use the deprecated methods")]
async fn number_of_subscriptions_of_a_client_is_limited() {
    let served = Backend::default().server(&Changes::default());
    let (context, _keep) = detached(Era::Legacy);
    for n in 0..10_000 {
        let params = SubscribeRequestParams::new(format!("r{n}"));
        served.subscribe(params, context.clone()).await.unwrap();
    }
    let one_more = SubscribeRequestParams::new("one more");
    let error = served.subscribe(one_more.clone(), context.clone()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
    let given_back = UnsubscribeRequestParams::new("r7");
    served.unsubscribe(given_back, context.clone()).await.unwrap();
    served.subscribe(one_more, context).await.unwrap();
}

/// The caller of a request, from its context.
#[derive(Clone)]
struct Caller(&'static str);

#[tokio::test]
#[expect(deprecated, reason = "older clients use the deprecated methods")]
async fn subscriptions_are_limited_per_caller() {
    let served = Backend::default()
        .server(&Changes::default())
        .caller(|context| context.extensions().get::<Caller>().map(|caller| caller.0.to_owned()));
    let (context, _keep) = detached(Era::Legacy);
    let connection = || served.clone();
    let of = |caller: Option<&'static str>| {
        let mut context = context.clone();
        if let Some(caller) = caller {
            context.extensions.insert(Caller(caller));
        }
        context
    };
    let (alice, bob) = (of(Some("alice")), of(Some("bob")));
    let subscribe = SubscribeRequestParams::new;
    let connections = [connection(), connection(), connection()];
    for connection in &connections[..2] {
        for n in 0..10_000 {
            connection.subscribe(subscribe(format!("r{n}")), alice.clone()).await.unwrap();
        }
    }
    let expected = "a caller can have at most 20000 subscriptions to resources on all its \
                    connections";
    assert_eq!(refused(&connections[2], "more", &alice).await.as_deref(), Some(expected));
    for other in [&bob, &of(None), &of(Some(""))] {
        assert_eq!(refused(&connections[2], "more", other).await, None);
    }
    // A released share can be used again.
    let unsubscribe = UnsubscribeRequestParams::new("r7");
    connections[0].unsubscribe(unsubscribe, alice.clone()).await.unwrap();
    assert_eq!(refused(&connection(), "more", &alice).await, None, "it ends with its connection");
    assert_eq!(refused(&connection(), "more", &alice).await, None);
    drop(connections);
    let last = connection();
    for n in 0..10_000 {
        last.subscribe(subscribe(format!("r{n}")), alice.clone()).await.unwrap();
    }
}

/// Subscribes to a resource, and returns the message of the error if it is rejected.
#[expect(deprecated, reason = "older clients use the deprecated methods")]
async fn refused(
    server: &impl ServerHandler,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Option<String> {
    let params = SubscribeRequestParams::new(uri);
    let error = server.subscribe(params, context.clone()).await.err()?;
    Some(error.message.to_string())
}

#[tokio::test]
async fn total_uri_size_of_a_caller_is_limited() {
    let served = Backend::default().server(&Changes::default()).caller(|_| None);
    let (context, _keep) = detached(Era::Legacy);
    // Six bytes of JSON for each character.
    let uri = |n: usize| format!("{n}{}", "\u{1}".repeat(2000));
    let (one, other) = (served.clone(), served);
    for n in 0..87 {
        assert_eq!(refused(&one, &uri(n), &context).await, None);
        assert_eq!(refused(&other, &uri(n), &context).await, None);
    }
    let error = refused(&one, &uri(87), &context).await.unwrap();
    assert!(error.contains("at most 1048576 bytes in total"), "{error}");
    assert_eq!(refused(&one, &uri(0), &context).await, None);
    drop(one);
    let error = refused(&other, &uri(87), &context).await;
    assert!(error.is_some(), "the other connection has the same resources");
}

#[tokio::test(start_paused = true)]
async fn stream_beyond_the_share_of_its_caller_ends_with_an_error() {
    let served = Backend::default().server(&Changes::default()).caller(|_| None);
    let connection = connect(served, Era::Modern).await;
    let uris: Vec<_> = (0..600).map(|n| format!("{n}{}", "x".repeat(2000))).collect();
    let uris: Vec<_> = uris.iter().map(String::as_str).collect();
    let mut small = listen(&connection, all(&uris[..300])).await;
    settle().await;
    let mut large = listen(&connection, all(&uris)).await;
    let error = soon(large.next()).await.unwrap_err().to_string();
    assert!(error.contains("at most 1048576 bytes in total"), "{error}");
    small.cancel().await.unwrap();
    settle().await;
    let mut again = listen(&connection, all(&uris[300..])).await;
    assert!(tokio::time::timeout(Duration::from_secs(1), again.next()).await.is_err());
}

#[tokio::test]
#[expect(deprecated, reason = "older clients use the deprecated methods")]
async fn cancelled_unsubscribe_reaches_the_backend() {
    let backend = Backend::default();
    let served = backend.server(&Changes::default());
    let (context, _keep) = detached(Era::Legacy);
    served.subscribe(SubscribeRequestParams::new("a"), context.clone()).await.unwrap();
    context.ct.cancel();
    let cancelled = served.unsubscribe(UnsubscribeRequestParams::new("a"), context).await;
    assert!(cancelled.is_err());
    backend.saw("resources/unsubscribe a", 1).await;
}

#[tokio::test(start_paused = true)]
async fn subscription_to_an_oversized_uri_is_rejected() {
    let (backend, changes) = (Backend::default(), Changes::default());
    let served = backend.server(&changes);
    let long = "x".repeat(3 << 10);
    let older = connect(served.clone(), Era::Legacy).await;
    let error = older.send("resources/subscribe", json!({ "uri": long })).await.unwrap_err();
    assert!(
        error.to_string().contains("URI of a subscription can have at most 2048 bytes"),
        "{error}"
    );
    assert!(subscribe(&older, &long[..2048]).await);

    let newer = connect(served, Era::Modern).await;
    let stream = listen(&newer, all(&["a", &long, "b"])).await;
    assert_eq!(stream.acknowledged(), &all(&["a", "b"]));
    backend.saw("resources/subscribe", 3).await;
}

#[test]
#[expect(deprecated, reason = "older clients use the deprecated methods")]
fn subscription_can_be_dropped_after_its_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let backend = Backend::default();
    let served = backend.server(&Changes::default());
    runtime.block_on(async {
        let (context, _keep) = detached(Era::Legacy);
        served.subscribe(SubscribeRequestParams::new("a"), context).await.unwrap();
    });
    drop(runtime);
    drop(served);
}

#[tokio::test(start_paused = true)]
async fn burst_of_updates_notifies_only_of_its_resource() {
    for era in BOTH {
        let changes = Changes::default();
        let connection = connect(Backend::default().server(&changes), era).await;
        let uris: Vec<_> = (0..2000).map(|n| format!("r{n}")).collect();
        let stream = match era {
            Era::Legacy => {
                for uri in &uris {
                    assert!(subscribe(&connection, uri).await);
                }
                None
            }
            Era::Modern => {
                let uris: Vec<_> = uris.iter().map(String::as_str).collect();
                Some(listen(&connection, all(&uris)).await)
            }
        };
        settle().await;
        for _ in 0..300 {
            changes.resource_updated("r7");
            changes.resource_updated("another");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        match stream {
            None => assert_eq!(notifications(&connection).await, ["updated r7"]),
            Some(mut stream) => {
                assert_eq!(next(&mut stream).await, "notifications/resources/updated r7");
                changes.tools().bump();
                assert_eq!(next(&mut stream).await, "notifications/tools/list_changed");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn burst_of_different_updates_arrives_completely() {
    let changes = Changes::default();
    let connection = connect(Backend::default().server(&changes), Era::Legacy).await;
    let mut uris: Vec<_> = (0..1000).map(|n| format!("r{n}")).collect();
    for uri in &uris {
        assert!(subscribe(&connection, uri).await);
    }
    settle().await;
    for uri in &uris {
        changes.resource_updated(uri.as_str());
        for n in 0..10 {
            changes.resource_updated(format!("{uri} {n}"));
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    uris.sort_unstable();
    let expected: Vec<_> = uris.iter().map(|uri| format!("updated {uri}")).collect();
    let mut notifications = notifications(&connection).await;
    notifications.sort_unstable();
    assert_eq!(notifications, expected);
}

#[tokio::test(start_paused = true)]
async fn pending_updates_of_a_resource_are_merged() {
    let changes = Changes::default();
    let connection = connect(Backend::default().server(&changes), Era::Legacy).await;
    for n in 0..100 {
        assert!(subscribe(&connection, &format!("r{n}")).await);
    }
    settle().await;
    for n in 0..300 {
        changes.resource_updated(format!("r{}", n % 100));
        tokio::task::yield_now().await;
    }
    settle().await;
    for _ in 0..2_000 {
        changes.resource_updated("r0");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let notifications = notifications(&connection).await;
    let of = |uri: &str| notifications.iter().filter(|line| *line == uri).count();
    assert!((1..=4).contains(&of("updated r1")), "{} of r1", of("updated r1"));
    assert!((20..=25).contains(&of("updated r0")), "{} of r0", of("updated r0"));
}

#[tokio::test(start_paused = true)]
async fn stream_has_no_updates_of_hidden_resources() {
    let log = Log::default();
    let seen = log.clone();
    let changes = Changes::default();
    let service = service_fn(move |request: Request| {
        if let Subject::Item(_, uri) = request.subject() {
            seen.note(uri);
        }
        future::ready(Ok::<_, BoxError>(Reply::from(ServerResult::empty(()))))
    });
    let hidden = Selection::default().deny(["secret://*"]).unwrap();
    let service = FilterLayer::new().resources(hidden).layer(service);
    let served = ServeService::new(service, everything()).changes(changes.clone());
    let connection = connect(served, Era::Modern).await;
    let mut stream = listen(&connection, all(&["secret://a", "open://b"])).await;
    settle().await;
    assert_eq!(log.lines(), ["open://b"]);
    changes.resource_updated("secret://a");
    changes.resource_updated("open://b");
    assert_eq!(next(&mut stream).await, "notifications/resources/updated open://b");
}

#[tokio::test(start_paused = true)]
async fn streams_work_without_subscriptions_of_the_server() {
    let changes = Changes::default();
    let service = service_fn(|request: Request| {
        let reply = Reply::method_not_found(request.method().to_owned());
        future::ready(Ok::<_, BoxError>(reply))
    });
    let served = ServeService::new(service, everything()).changes(changes.clone());
    let connection = connect(served, Era::Modern).await;
    let mut stream = listen(&connection, all(&["a"])).await;
    settle().await;
    changes.resource_updated("a");
    assert_eq!(next(&mut stream).await, "notifications/resources/updated a");
}

// === Tools and clones ===

fn annotated(name: &'static str, header: &str) -> Tool {
    let region = json!({ "type": "string", "x-mcp-header": header });
    let schema = json!({ "type": "object", "properties": { "region": region } });
    Tool::new(name, "a tool", Arc::new(schema.as_object().unwrap().clone()))
}

#[tokio::test]
async fn listed_tool_is_known_to_all_clones() {
    let tools = Arc::new(Mutex::new(vec![annotated("near", "Region"), tool("plain")]));
    let now = tools.clone();
    let service = service_fn(move |_: Request| {
        let list = ListToolsResult::with_all_items(now.lock().unwrap().clone());
        future::ready(Ok::<_, BoxError>(Reply::from(list)))
    });
    let changes = Changes::default();
    let served = ServeService::new(service, everything()).changes(changes.clone());
    assert_eq!(served.get_tool("near"), None);

    let list = async || {
        let (context, _keep) = detached(Era::Modern);
        served.clone().list_tools(None, context).await.unwrap();
    };
    list().await;
    assert_eq!(served.get_tool("near"), Some(annotated("near", "Region")));
    assert_eq!(served.get_tool("plain"), None, "there is nothing to check");

    // Another page, or the list of another client.
    *tools.lock().unwrap() = vec![annotated("far", "Zone")];
    list().await;
    assert_eq!(served.get_tool("far"), Some(annotated("far", "Zone")));
    assert_eq!(served.get_tool("near"), Some(annotated("near", "Region")));

    *tools.lock().unwrap() = vec![annotated("near", "Place"), tool("far")];
    list().await;
    assert_eq!(served.get_tool("near"), Some(annotated("near", "Place")));
    assert_eq!(served.get_tool("far"), None);

    changes.tools().bump();
    assert_eq!(served.get_tool("near"), None);
    list().await;
    assert_eq!(served.get_tool("near"), Some(annotated("near", "Place")));
}

#[tokio::test]
async fn get_tool_returns_the_listed_tool_not_that_of_the_handler() {
    struct Annotating;
    impl ServerHandler for Annotating {
        fn get_tool(&self, name: &str) -> Option<Tool> {
            Some(annotated("any", "Region")).filter(|_| name != "none")
        }
    }

    // A layer that replaces the handler's tool, and hides the others.
    let layer = tower::layer::layer_fn(|_| {
        let list = ListToolsResult::with_all_items(vec![tool("plain"), annotated("near", "Zone")]);
        service_fn(move |_: Request| future::ready(Ok::<_, BoxError>(Reply::from(list.clone()))))
    });
    let served = ServeService::wrap(Annotating, layer);
    // An error about a missing header would reveal that the tool exists.
    for name in ["hidden", "plain", "near"] {
        assert_eq!(served.get_tool(name), None, "{name}");
    }
    let (context, _keep) = detached(Era::Modern);
    served.list_tools(None, context).await.unwrap();
    assert_eq!(served.get_tool("hidden"), None);
    assert_eq!(served.get_tool("plain"), None);
    assert_eq!(served.get_tool("near"), Some(annotated("near", "Zone")));
}

#[tokio::test]
async fn memory_for_listed_tools_is_bounded() {
    let long = "x".repeat(1 << 20);
    let schema = annotated("any", "Region").input_schema;
    let named = |n: usize| Tool::new(format!("{n}{long}"), "a tool", schema.clone());
    let described = |n: usize| Tool::new(format!("t{n}"), long.clone(), schema.clone());
    type Make<'t> = &'t dyn Fn(usize) -> Tool;
    let cases = [("names", &named as Make<'_>, 1 << 20), ("tools", &described, 17 << 20)];
    for (what, tool, most) in cases {
        let tools = Arc::new(Mutex::new(Vec::new()));
        let now = tools.clone();
        let service = service_fn(move |_: Request| {
            let list = ListToolsResult::with_all_items(std::mem::take(&mut *now.lock().unwrap()));
            future::ready(Ok::<_, BoxError>(Reply::from(list)))
        });
        let served = ServeService::new(service, everything());
        let (context, _keep) = detached(Era::Modern);
        let list = |n: usize| {
            *tools.lock().unwrap() = vec![tool(n), annotated("near", "Region")];
            let listed = served.list_tools(None, context.clone());
            drop(futures::executor::block_on(listed).unwrap());
        };
        list(0);
        let left = allocation_counter::measure(|| (1..50).for_each(list)).bytes_current;
        assert!(left < most, "{what}: {left}");
        assert!(served.get_tool("near").is_some(), "{what}");
    }
}

#[test]
fn cloning_allocates_nothing() {
    let served = Backend::default().server(&Changes::default());
    drop(served.clone());
    assert_eq!(allocation_counter::measure(|| drop(served.clone())).count_total, 0);
}

#[tokio::test]
async fn repeated_list_does_not_store_names_again() {
    let tools: Vec<_> = (0..1000)
        .map(|n| Tool::new(format!("tool-{n}"), "a tool", Arc::new(JsonObject::new())))
        .collect();
    let list = Arc::new(ListToolsResult::with_all_items(tools));
    let service = move |_: Request| future::ready(Ok::<_, BoxError>(Reply::from((*list).clone())));
    let served = ServeService::new(service_fn(service.clone()), everything());
    let (context, _keep) = detached(Era::Modern);
    let again = || {
        let listed = served.list_tools(None, context.clone());
        futures::executor::block_on(listed).unwrap()
    };
    let first = allocation_counter::measure(|| drop(again())).count_total;
    let then = allocation_counter::measure(|| drop(again())).count_total;
    // Names are stored once, with a table for them.
    assert!((1000..1050).contains(&(first - then)), "{first} {then}");
    let without = allocation_counter::measure(|| drop(context.clone())).count_total
        + allocation_counter::measure(|| drop(service(Request::list_tools()))).count_total;
    assert!(then - without < 10, "{then} {without}");
}

/// A handler whose `on_initialized` never ends.
#[derive(Clone)]
struct Busy;

impl ServerHandler for Busy {
    async fn on_initialized(&self, _: NotificationContext<RoleServer>) {
        future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn busy_handler_does_not_delay_notifications() {
    let changes = Changes::default();
    let served = ServeService::wrap(Busy, Identity::new()).changes(changes.clone());
    let connection = connect(served, Era::Legacy).await;
    settle().await;
    changes.tools().bump();
    assert_eq!(notifications(&connection).await, ["tools changed"]);
}
