//! The trace contexts that backends receive without a subscriber for spans.

use std::{convert::Infallible, future::ready};

use futures::FutureExt;
use mcp_composite::{
    composite::{CompositeLayer, CompositeTool, Plan},
    message::{Context, Reply, Request},
    stack::StackLayer,
    testing::{self, Server},
    trace::{Propagate, TraceContext, TraceLayer},
};
use rmcp::model::{CallToolResult, JsonObject, RequestId};
use serde_json::{Value, json};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::{
    contract::{allocations_of, without_spans},
    support::{Era, detached, subscribe},
};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Returns the `_meta` of the calls that the server received during this call.
async fn received_metas(tool: &str, trace: TraceLayer, meta: Value) -> Vec<Value> {
    let server = Server::new().says("near", "yes").says("far", "yes");
    let inner = CompositeTool::fan_out("inner", "Looks", ["near", "far"]);
    let outer = CompositeTool::fan_out("outer", "Looks", ["inner", "near"]);
    let composites = CompositeLayer::new([inner, outer]).unwrap();
    let stack = StackLayer::new().trace(trace).composite(composites).layer(server.clone());
    let mut request = testing::request(tool, json!({}));
    *request.context_mut().meta_mut() = serde_json::from_value(meta).unwrap();
    stack.oneshot(request).await.unwrap();
    metas(&server)
}

fn metas(server: &Server) -> Vec<Value> {
    let calls = server.requests().into_iter().filter(|request| request.tool_call().is_some());
    calls.map(|call| serde_json::to_value(call.context().meta()).unwrap()).collect()
}

fn span_id(meta: &Value) -> &str {
    let parent = meta["traceparent"].as_str().unwrap();
    assert!(parent.starts_with(&PARENT[..36]) && parent.ends_with("-01"), "{parent}");
    &parent[36..52]
}

#[tokio::test(start_paused = true)]
async fn each_call_has_its_own_span_in_the_trace_of_the_caller() {
    let meta = json!({ "traceparent": PARENT, "tracestate": "vendor=1", "baggage": "a=1" });
    let received = received_metas("outer", TraceLayer::new(), meta).await;
    let mut spans: Vec<_> = received.iter().map(span_id).collect();
    spans.push(&PARENT[36..52]);
    spans.sort_unstable();
    spans.dedup();
    assert_eq!(spans.len(), 4, "three calls, and the caller");
    assert!(
        received.iter().all(|meta| meta["tracestate"] == "vendor=1" && meta["baggage"] == "a=1")
    );
}

#[tokio::test(start_paused = true)]
async fn direct_call_has_a_span_in_the_trace() {
    let received =
        received_metas("near", TraceLayer::new(), json!({ "traceparent": PARENT })).await;
    assert_ne!(span_id(&received[0]), &PARENT[36..52]);
}

#[tokio::test(start_paused = true)]
async fn malformed_trace_context_is_dropped_and_other_meta_kept() {
    let meta =
        json!({ "traceparent": "00-1-2-3", "tracestate": "vendor=1", "com.example/mine": 1 });
    for tool in ["near", "outer"] {
        for received in received_metas(tool, TraceLayer::new(), meta.clone()).await {
            assert_eq!(received, json!({ "com.example/mine": 1 }), "{tool}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn layer_starts_no_trace_of_its_own() {
    for tool in ["near", "outer"] {
        for received in received_metas(tool, TraceLayer::new(), json!({})).await {
            assert_eq!(received, json!({}), "{tool}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn composite_without_a_stack_propagates_the_trace() {
    let server = Server::new().says("near", "yes");
    let composite = CompositeTool::fan_out("look", "Looks", ["near"]);
    let service = CompositeLayer::new([composite]).unwrap().layer(server.clone());
    for (parent, is_propagated) in [(PARENT, true), ("00-1-2-3", false)] {
        let mut request = testing::request("look", json!({}));
        request.context_mut().meta_mut().set_traceparent(parent);
        service.clone().oneshot(request).await.unwrap();
        let meta = metas(&server).pop().unwrap();
        assert_eq!(meta.get("traceparent").is_some(), is_propagated, "{meta}");
    }
    assert_ne!(span_id(&metas(&server)[0]), &PARENT[36..52]);
}

#[tokio::test(start_paused = true)]
async fn standalone_plan_propagates_the_trace() {
    let plan = Plan::new(CompositeTool::fan_out("look", "Looks", ["near"])).unwrap();
    let mut context = Context::default();
    context.meta_mut().set_traceparent(PARENT);
    let call = |_, context: Context| {
        ready(Ok(CallToolResult::structured(serde_json::to_value(context.meta()).unwrap())))
    };
    let result = plan.run(JsonObject::new(), &context, call).await.unwrap();
    let meta = &result.structured_content.unwrap()["branches"]["near"]["output"];
    assert_ne!(span_id(meta), &PARENT[36..52]);
}

/// Begins a trace if there is none, and counts down the ids of its spans.
struct Counting(std::sync::atomic::AtomicU8);

impl Propagate for Counting {
    fn inject(&self, _: Option<&TraceContext>, _: &tracing::Span) -> Option<TraceContext> {
        let id = self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        TraceContext::new([1; 16], [id; 8], 0)
    }
}

#[tokio::test(start_paused = true)]
async fn custom_tracer_determines_the_ids() {
    let trace = || TraceLayer::new().propagate(Counting(9.into()));
    let meta_of = |id: u8| {
        let id = format!("{id:02x}").repeat(8);
        json!({ "traceparent": format!("00-{}-{id}-00", "01".repeat(16)) })
    };
    assert_eq!(received_metas("near", trace(), json!({})).await, [meta_of(9)]);
    // The first id is that of the request itself.
    assert_eq!(received_metas("inner", trace(), json!({})).await, [meta_of(8), meta_of(7)]);
}

#[tokio::test(start_paused = true)]
async fn nested_request_of_a_tool_stays_in_the_same_trace() {
    let server = Server::new().says("near", "yes");
    let stack = StackLayer::new().trace(TraceLayer::new().propagate(Counting(9.into())));
    let outer = stack.layer(server.clone());
    outer.oneshot(Request::call_tool("near")).await.unwrap();
    let within = server.requests().pop().unwrap();
    // Also through a stack without trace settings.
    let inner = StackLayer::new().layer(server.clone());
    inner.oneshot(Request::call_tool("near").within(within.context())).await.unwrap();
    let spans: Vec<_> =
        server.requests().iter().map(|call| call.context().trace().unwrap().span_id()).collect();
    assert_eq!(spans, [[9; 8], [8; 8]]);
}

#[cfg(feature = "config")]
#[tokio::test(start_paused = true)]
async fn trace_layer_set_in_code_applies_to_a_config_file() {
    let server = Server::new().says("near", "yes");
    let config = mcp_composite::config::Config::from_toml_str("").unwrap();
    let stack = config.trace(TraceLayer::new().propagate(Counting(9.into()))).stack_layer();
    stack.layer(server.clone()).oneshot(Request::call_tool("near")).await.unwrap();
    assert_eq!(server.requests()[0].context().trace().unwrap().span_id(), [9; 8]);
}

#[test]
fn disabled_spans_allocate_nothing() {
    let request = testing::request("other", json!({ "q": "x" }));
    let guard = without_spans();
    assert_eq!(allocations_of(&TraceLayer::new(), request.clone()), 0);
    drop(guard);
    let filter = tracing_subscriber::EnvFilter::new("warn");
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).finish();
    let _guard = subscribe(subscriber);
    assert_eq!(allocations_of(&TraceLayer::new(), request), 0);
}

#[tokio::test]
async fn values_too_long_for_a_span_are_not_copied() {
    let long = "x".repeat(1 << 20);
    let (mut context, _alive) = detached(Era::Modern);
    context.id = RequestId::String(long.as_str().into());
    let mut request = testing::request(&long, json!({}));
    *request.context_mut() = context.into();
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
    let _guard = subscribe(subscriber);
    let server = service_fn(|_: Request| ready(Ok::<_, Infallible>(Reply::unknown_tool("x"))));
    let mut service = TraceLayer::new().layer(server);
    let call = || drop(service.call(request).now_or_never().unwrap());
    let allocated = allocation_counter::measure(call).bytes_total;
    assert!((1..1 << 20).contains(&allocated), "{allocated}");
}
