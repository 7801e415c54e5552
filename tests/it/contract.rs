//! Tower's contract, for every service of this crate.

use std::{convert::Infallible, sync::Arc, time::Duration};

use mcp_composite::{
    advertise::{AdvertiseLayer, Mode},
    catalog::{Known, Needs, Tools},
    composite::{CompositeLayer, CompositeTool, Race},
    filter::FilterLayer,
    intercept::{Informed, Intercept, InterceptInformed, Intercepted},
    limit::LimitLayer,
    message::{Reply, Request},
    pattern::Selection,
    validate::ValidateLayer,
};
use rmcp::model::{CallToolResult, ListToolsResult};
use serde_json::json;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{
    Layer, Service, ServiceExt,
    buffer::Buffer,
    layer::layer_fn,
    limit::{ConcurrencyLimit, ConcurrencyLimitLayer},
};
use tower_test::mock;

use crate::{
    scripted::{Answer, Server, call, search_tool},
    support::{soon, subscribe},
};

/// A rule that changes nothing.
#[derive(Clone)]
struct Plain;

/// A rule that changes nothing, but requires the list of all tools.
#[derive(Clone)]
struct Curious;

impl Intercept for Plain {
    type Memo = ();

    fn on_request(&self, _: &mut Request) -> std::ops::ControlFlow<Reply> {
        std::ops::ControlFlow::Continue(())
    }
}

impl InterceptInformed for Curious {
    type Derived = usize;
    type Memo = ();

    fn derive(&self, tools: &Tools) -> usize {
        tools.len()
    }

    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        request.tool_call().map_or(Needs::Nothing, |call| Needs::Tool(&call.name))
    }

    fn on_request(
        &self,
        _: &mut Request,
        _: Option<&Arc<Known<usize>>>,
    ) -> std::ops::ControlFlow<Reply> {
        std::ops::ControlFlow::Continue(())
    }
}

fn composites() -> CompositeLayer {
    let all = CompositeTool::fan_out("all", "Everything", ["a", "b", "c"]);
    let one = CompositeTool::new("one", "One of them", Race::new(["a", "b"]));
    let outer = CompositeTool::fan_out("outer", "Nested", ["all", "one", "a"]);
    CompositeLayer::new([all, one, outer]).expect("good definitions")
}

fn server() -> Server {
    Server::new().says("a", "1").says("b", "2").says("c", "3")
}

async fn succeeds<S>(service: S, request: Request)
where
    S: Service<Request, Response = Reply>,
    S::Error: std::fmt::Debug,
{
    let reply = tokio::time::timeout(Duration::from_secs(1), service.oneshot(request)).await;
    let reply = reply.expect("the service waits for itself").expect("an answer");
    assert_eq!(reply.tool_result().and_then(|result| result.is_error), Some(false), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn composites_work_above_a_concurrency_limit_of_one() {
    for name in ["all", "one", "outer"] {
        let service = composites().layer(ConcurrencyLimit::new(server(), 1));
        succeeds(service, call(name, json!({}))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn composites_work_above_a_buffer() {
    for name in ["all", "one", "outer"] {
        let service = composites().layer(Buffer::new(server(), 1));
        succeeds(service, call(name, json!({}))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_composites_share_a_concurrency_limit_of_two() {
    let service = composites().layer(ConcurrencyLimit::new(server(), 2));
    let calls = (0..20).map(|_| succeeds(service.clone(), call("outer", json!({}))));
    futures::future::join_all(calls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn composites_work_on_several_threads() {
    for _ in 0..100 {
        let one = composites().layer(ConcurrencyLimit::new(server(), 1));
        let calls =
            ["all", "one", "outer"].map(|name| succeeds(one.clone(), call(name, json!({}))));
        futures::future::join_all(calls).await;
        succeeds(composites().layer(Buffer::new(server(), 1)), call("outer", json!({}))).await;
    }

    let server = Server::new().says("a", "1").tool("b", Answer::panic("secret")).hangs("c");
    let service = composites().layer(server.clone());
    let mut running = Box::pin(service.oneshot(call("all", json!({}))));
    // One answers, one panics, one hangs.
    while server.called().len() < 3 || server.running() > 1 {
        assert!(futures::poll!(&mut running).is_pending());
        tokio::task::yield_now().await;
    }
    drop(running);
    while server.running() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(server.dropped().contains(&"c".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn informed_rules_work_above_a_concurrency_limit_of_one() {
    let service = Informed::new(Curious, ConcurrencyLimit::new(server(), 1));
    succeeds(service.clone(), call("a", json!({}))).await;
    succeeds(service, call("b", json!({}))).await;
    succeeds(Informed::new(Curious, Buffer::new(server(), 1)), call("a", json!({}))).await;
}

#[tokio::test(start_paused = true)]
async fn composite_releases_its_permits_after_its_reply() {
    let limit = ConcurrencyLimitLayer::new(1);
    let limited = limit.layer(server());
    let mut sibling = limited.clone();
    let mut service = composites().layer(limited);

    let reply = service.ready().await.unwrap().call(call("all", json!({}))).await.unwrap();

    assert!(reply.error().is_none());
    // The service that answered still works, and holds no permit.
    tokio::time::timeout(Duration::from_secs(60), sibling.ready())
        .await
        .expect("a permit")
        .unwrap();
    drop(service);
}

#[tokio::test(start_paused = true)]
async fn dropped_composite_call_releases_its_permits() {
    let server = Server::new().hangs("a").says("b", "2").hangs("c");
    let limited = ConcurrencyLimit::new(server.clone(), 3);
    let mut siblings = [limited.clone(), limited.clone(), limited.clone()];
    let service = composites().layer(limited);
    let mut running = Box::pin(service.oneshot(call("all", json!({}))));
    while server.running() < 2 {
        assert!(futures::poll!(&mut running).is_pending());
        tokio::task::yield_now().await;
    }

    drop(running);

    let all = futures::future::join_all(siblings.iter_mut().map(|sibling| sibling.ready()));
    let all = tokio::time::timeout(Duration::from_secs(1), all).await.expect("all permits");
    assert_eq!(all.into_iter().filter(|ready| ready.is_ok()).count(), 3);
}

/// Checks a service over a mock for readiness and permits.
macro_rules! follows_its_inner {
    ($layer:expr) => {{
        let (mut service, mut handle) = mock::spawn_layer::<Request, Reply, _>($layer);
        handle.allow(0);
        assert_pending!(service.poll_ready());
        handle.allow(1);
        assert!(service.is_woken(), "the inner's readiness wakes whoever waits");
        assert_ready_ok!(service.poll_ready());
        // A forwarded request reaches the same inner service that was ready.
        let mut reply = task::spawn(service.call(Request::call_tool("other")));
        assert_pending!(reply.poll());
        let (request, send) = handle.next_request().await.expect("a request");
        assert_eq!(request.tool_call().expect("a call").name, "other");
        send.send_response(CallToolResult::success(vec![]).into());
        assert_ready_ok!(reply.poll());
        // The only permit is used.
        assert_pending!(service.poll_ready());
    }};
}

#[tokio::test]
async fn service_is_ready_when_its_inner_service_is_ready() {
    follows_its_inner!(composites());
    follows_its_inner!(CompositeLayer::new([]).unwrap());
    follows_its_inner!(layer_fn(|inner| Intercepted::new(Plain, inner)));
    follows_its_inner!(LimitLayer::new().max_argument_bytes(8).max_depth(8));
    follows_its_inner!(ValidateLayer::new());
}

#[tokio::test]
async fn errors_of_the_inner_service_are_forwarded_unchanged() {
    #[derive(Debug, thiserror::Error, PartialEq)]
    #[error("mine")]
    struct Mine;
    let service = tower::service_fn(|_: Request| async { Err::<Reply, Mine>(Mine) });

    let error = composites().layer(service).oneshot(Request::call_tool("other")).await.unwrap_err();

    assert_eq!(error, Mine);
}

#[tokio::test]
async fn intercepted_request_does_not_reach_the_inner_service() {
    #[derive(Clone)]
    struct Refuse;
    impl Intercept for Refuse {
        type Memo = ();
        fn on_request(&self, _: &mut Request) -> std::ops::ControlFlow<Reply> {
            std::ops::ControlFlow::Break(Reply::unknown_tool("x"))
        }
    }
    let (mut service, mut handle) =
        mock::spawn_layer::<Request, Reply, _>(layer_fn(|inner| Intercepted::new(Refuse, inner)));
    assert_ready_ok!(service.poll_ready());
    let reply = assert_ready_ok!(task::spawn(service.call(Request::call_tool("x"))).poll());
    assert_eq!(reply.error().unwrap().message, "unknown tool `x`");
    assert_pending!(handle.poll_request());
}

#[test]
fn forwarding_needs_no_runtime() {
    let service = composites().layer(tower::service_fn(|_: Request| async {
        Ok::<Reply, Infallible>(CallToolResult::success(vec![]).into())
    }));
    let reply = futures::executor::block_on(service.oneshot(Request::call_tool("other"))).unwrap();
    assert!(reply.error().is_none());
}

#[test]
fn composite_without_a_runtime_returns_an_error() {
    let service = composites().layer(tower::service_fn(|_: Request| async {
        Ok::<Reply, Infallible>(CallToolResult::success(vec![]).into())
    }));
    let reply = futures::executor::block_on(service.oneshot(Request::call_tool("all"))).unwrap();
    let error = reply.error().unwrap();
    assert_eq!((error.code.0, &*error.message), (-32603, "internal error"));
}

#[test]
fn listing_needs_no_runtime() {
    let list = |_: Request| async {
        Ok::<Reply, Infallible>(ListToolsResult::with_all_items(vec![search_tool("a")]).into())
    };
    let service = composites().layer(tower::service_fn(list));
    let reply = futures::executor::block_on(service.oneshot(Request::list_tools())).unwrap();
    assert_eq!(reply.tools().unwrap().tools.len(), 2, "`one` can run with `a` alone");
}

/// Disables spans until the returned value is dropped.
///
/// Without its own subscriber, a thread creates the spans that the subscribers of all other tests
/// request.
pub(crate) fn without_spans() -> tracing::subscriber::DefaultGuard {
    subscribe(tracing::subscriber::NoSubscriber::new())
}

/// Returns the allocations of a call on this thread.
fn allocations<T>(f: impl FnOnce() -> T) -> u64 {
    allocation_counter::measure(|| drop(f())).count_total
}

/// A leaf whose replies are made in advance, so that it allocates nothing.
#[derive(Clone)]
pub(crate) struct Leaf(Arc<std::sync::Mutex<Vec<Reply>>>);

impl Service<Request> for Leaf {
    type Response = Reply;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Reply, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        std::future::ready(Ok(self.0.lock().unwrap().pop().expect("an answer")))
    }
}

/// Returns the allocations of a request through a layer, with its reply.
pub(crate) fn allocations_of<L>(layer: &L, request: Request) -> u64
where
    L: Layer<Leaf>,
    L::Service: Service<Request, Response = Reply, Error = Infallible>,
{
    let answers = (0..2).map(|_| CallToolResult::success(vec![]).into()).collect();
    let mut service = layer.layer(Leaf(Arc::new(std::sync::Mutex::new(answers))));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    allocations(|| {
        assert!(service.poll_ready(&mut cx).is_ready());
        let reply = std::pin::pin!(service.call(request)).poll(&mut cx);
        assert!(matches!(reply, std::task::Poll::Ready(Ok(_))));
    })
}

#[test]
fn forwarding_allocates_nothing() {
    let stack = tower::ServiceBuilder::new()
        .layer(composites())
        .layer(layer_fn(|inner| Intercepted::new(Plain, inner)))
        .layer(CompositeLayer::new([]).unwrap())
        .layer(LimitLayer::new().max_argument_bytes(1024))
        .layer(ValidateLayer::new());
    assert_eq!(allocations(|| Box::new(1)), 1, "allocations are counted");
    let request = call("other", json!({ "q": "x" }));
    assert_eq!(allocations_of(&composites(), request.clone()), 0);
    assert_eq!(allocations_of(&stack, request), 0);
}

#[tokio::test(start_paused = true)]
async fn services_are_clone_send_and_sync() {
    fn check<T: Clone + Send + Sync + 'static>(_: &T) {}
    check(&composites());
    check(&composites().layer(server()));
    check(&Informed::new(Curious, server()));
    check(&Intercepted::new(Plain, server()));
    // A service that is not `Sync` is accepted.
    let boxed = tower::util::BoxCloneService::new(server());
    let service = composites().layer(boxed);
    succeeds(service, call("outer", json!({}))).await;
}

#[tokio::test(start_paused = true)]
async fn informed_rule_that_replies_releases_its_permit() {
    let limited = ConcurrencyLimitLayer::new(1).layer(Server::new().says("open", "1"));
    let hidden = Selection::default().deny(["secret"]).unwrap();
    let filter = FilterLayer::new().tools(hidden).layer(limited.clone());
    let search = AdvertiseLayer::new().mode(Mode::Search).layer(limited);
    let (mut one, mut other) = (filter.clone(), filter);
    let refused = one.ready().await.unwrap().call(Request::call_tool("secret")).await.unwrap();
    assert!(refused.error().is_some());
    soon(other.ready()).await.unwrap();
    drop((one, other));

    let (mut one, mut other) = (search.clone(), search);
    one.ready().await.unwrap().call(Request::list_tools()).await.unwrap();
    soon(other.ready()).await.unwrap();
}
