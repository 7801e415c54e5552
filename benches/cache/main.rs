//! The cost of the cache: calls that it answers, and calls that it forwards, compared with the bare
//! service.
//!
//! ```sh
//! cargo bench -p benches --bench cache --features cache                  # everything
//! cargo bench -p benches --bench cache --features cache -- allocations   # no times, only allocations
//! ```

#[path = "../fan_out/counting.rs"]
mod counting;
#[path = "../stack/leaf.rs"]
mod leaf;
#[expect(dead_code, reason = "the bench of the stack uses all of it")]
#[path = "../stack/measure.rs"]
mod measure;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use mcp_composite::{
    cache::{CacheLayer, CacheRule, Per},
    message::{Reply, Request},
    pattern::Selection,
    stack::StackLayer,
};
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use tower::{Layer, Service};

use self::{leaf::Leaf, measure::Group};

const KIB_64: usize = 64 << 10;

/// Replaces the argument `limit` of each call with the number of the call.
#[derive(Clone)]
struct Numbered<S>(S);

/// Looks up the argument `limit` of each call in a cache, and inserts the reply with this key.
#[derive(Clone)]
struct Inserting<S> {
    inner: S,
    replies: moka::sync::Cache<u64, Reply, foldhash::fast::RandomState>,
}

/// The number of calls of all rounds. Clones of a service share its cache, so no number may repeat.
static CALLS: AtomicU64 = AtomicU64::new(0);

fn main() {
    measure::run(&[hits(), misses()]);
}

/// Calls whose results are cached.
fn hits() -> Group {
    let leaf = Leaf::new(100);
    let request = call(&leaf, small_arguments());
    let large = call(&leaf, json!({ "q": "x".repeat(KIB_64), "limit": 10 }));
    let by_caller = CacheLayer::new().rule(rule()).caller(|_| Some("alice".to_owned()));
    Group::new("hits")
        .case("leaf", &leaf, &request)
        .case("no_rules", &CacheLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("not_selected", &other().layer(leaf.clone()), &request)
        .against("leaf")
        .case("hit", &cache().layer(leaf.clone()), &request)
        .against("leaf")
        .case("hit_of_caller", &by_caller.layer(leaf.clone()), &request)
        .against("leaf")
        .case("hit_64k_arguments", &cache().layer(leaf.clone()), &large)
        .against("leaf")
        .case("empty_stack", &StackLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("hit_in_stack", &StackLayer::new().cache(cache()).layer(leaf.clone()), &request)
        .against("leaf")
}

/// Calls with arguments that no call had before. Each result is cached, and others are evicted.
///
/// `moka` only looks up the number of the call in a cache of the crate `moka`, and inserts the
/// reply with this key. A miss cannot take less time.
fn misses() -> Group {
    let leaf = Leaf::new(100);
    let request = call(&leaf, small_arguments());
    Group::new("misses")
        .case("leaf", &Numbered(leaf.clone()), &request)
        .case("moka", &Numbered(Inserting::new(leaf.clone())), &request)
        .against("leaf")
        .case("miss", &Numbered(cache().layer(leaf)), &request)
        .against("leaf")
}

// === Fixtures ===

fn rule() -> CacheRule {
    CacheRule::new(Selection::default(), Duration::from_secs(600))
}

fn cache() -> CacheLayer {
    CacheLayer::new().rule(rule().per(Per::All))
}

/// A cache that does not select the tool.
fn other() -> CacheLayer {
    let tools = Selection::default().allow(["other"]).expect("the pattern is sound");
    CacheLayer::new().rule(CacheRule::new(tools, Duration::from_secs(600)))
}

fn small_arguments() -> Value {
    json!({ "q": "hello", "limit": 10 })
}

fn call(leaf: &Leaf, arguments: Value) -> Request {
    let Value::Object(arguments) = arguments else { unreachable!("they are an object") };
    Request::call_tool_with(CallToolRequestParams::new(leaf.name(5)).with_arguments(arguments))
}

// === impl Inserting ===

impl<S> Inserting<S> {
    /// Creates a cache that holds as many replies as the cache of [`cache`], and as long.
    fn new(inner: S) -> Self {
        const ENTRY_BYTES: u32 = 700;

        let replies = moka::sync::Cache::builder()
            .max_capacity(60 << 20)
            .weigher(|_, _: &Reply| ENTRY_BYTES)
            .time_to_live(Duration::from_secs(600))
            .build_with_hasher(foldhash::fast::RandomState::default());
        Self { inner, replies }
    }
}

impl<S> Service<Request> for Inserting<S>
where
    S: Service<
            Request,
            Response = Reply,
            Error = Infallible,
            Future = Ready<Result<Reply, Infallible>>,
        >,
{
    type Response = Reply;
    type Error = Infallible;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let arguments = request.tool_call().and_then(|call| call.arguments.as_ref());
        let number = arguments.and_then(|arguments| arguments["limit"].as_u64());
        if let Some(reply) = number.and_then(|number| self.replies.get(&number)) {
            return ready(Ok(reply));
        }
        let reply = self.inner.call(request).into_inner();
        if let (Some(number), Ok(reply)) = (number, &reply) {
            self.replies.insert(number, reply.clone());
        }
        ready(reply)
    }
}

// === impl Numbered ===

impl<S: Service<Request, Response = Reply>> Service<Request> for Numbered<S> {
    type Response = Reply;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let number = CALLS.fetch_add(1, Ordering::Relaxed);
        let arguments = request.tool_call_mut().and_then(|call| call.arguments.as_mut());
        if let Some(limit) = arguments.and_then(|arguments| arguments.get_mut("limit")) {
            *limit = number.into();
        }
        self.0.call(request)
    }
}
