//! The size limits of requests.

use std::{collections::HashMap, convert::Infallible, task};

use mcp_composite::{
    composite::{CompositeLayer, CompositeTool},
    limit::LimitLayer,
    message::{Context, Reply, Request},
};
use proptest::prelude::*;
use rmcp::model::*;
use serde_json::{Map, Value, json};
use tower::{Layer, Service, ServiceExt};

use crate::{
    scripted::{Server, call},
    support::{Era, detached},
};

/// Never answers, and allocates nothing.
#[derive(Clone)]
struct Pending;

impl Service<Request> for Pending {
    type Response = Reply;
    type Error = Infallible;
    type Future = std::future::Pending<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        std::future::pending()
    }
}

/// Returns the layer's answer to a request that it does not forward.
fn refused(layer: &LimitLayer, request: Request) -> Option<String> {
    let mut answer = Box::pin(layer.layer(Pending).call(request));
    let mut context = task::Context::from_waker(task::Waker::noop());
    match answer.as_mut().poll(&mut context) {
        task::Poll::Ready(Ok(reply)) => {
            let error = reply.error().expect("a refusal");
            assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
            Some(error.message.to_string())
        }
        task::Poll::Pending => None,
    }
}

fn bytes(limit: usize) -> LimitLayer {
    LimitLayer::new().max_argument_bytes(limit)
}

fn depth(limit: usize) -> LimitLayer {
    LimitLayer::new().max_depth(limit)
}

/// Returns a request as rmcp parses it.
fn read(method: &str, params: Value) -> Request {
    let mut request = Map::from_iter([("method".to_owned(), method.into())]);
    request.insert("params".to_owned(), params);
    let request: ClientRequest = serde_json::from_value(request.into()).expect("a request");
    assert_eq!(request.method(), method);
    assert!(
        !matches!((&request, method), (ClientRequest::CustomRequest(_), name) if !name.starts_with("x/")),
        "{method} is read as something else"
    );
    let meta = request.get_meta().clone();
    let mut context = Context::default();
    *context.meta_mut() = meta;
    Request::new(request, context)
}

/// Returns a value with this many levels.
fn nested(levels: usize) -> Value {
    let mut value = Value::Array(Vec::new());
    for _ in 1..levels {
        value = Value::Array(vec![value]);
    }
    value
}

const LONG: usize = 100_000;

/// Returns requests, each with much data in one place.
fn large_requests() -> Vec<(&'static str, Request)> {
    let long = "x".repeat(LONG);
    let much = json!({ "a": long });
    [
        ("arguments", "tools/call", json!({ "name": "t", "arguments": much })),
        ("a key", "tools/call", json!({ "name": "t", "arguments": { &*long: 1 } })),
        ("empty texts", "tools/call", json!({ "name": "t", "arguments": { "a": vec![""; LONG] } })),
        ("nothing", "tools/call", json!({ "name": "t", "arguments": { "a": vec![json!([]); LONG] } })),
        ("responses of a call", "tools/call", json!({ "name": "t", "inputResponses": much })),
        ("state of a call", "tools/call", json!({ "name": "t", "requestState": long })),
        ("the name of a tool", "tools/call", json!({ "name": long })),
        ("meta", "tools/call", json!({ "name": "t", "_meta": much })),
        ("arguments of a prompt", "prompts/get", json!({ "name": "p", "arguments": much })),
        ("responses of a prompt", "prompts/get", json!({ "name": "p", "inputResponses": much })),
        ("state of a prompt", "prompts/get", json!({ "name": "p", "requestState": long })),
        ("the name of a prompt", "prompts/get", json!({ "name": long })),
        ("a URI", "resources/read", json!({ "uri": long })),
        ("responses of a resource", "resources/read", json!({ "uri": "u", "inputResponses": much })),
        ("state of a resource", "resources/read", json!({ "uri": "u", "requestState": long })),
        ("a directory", "resources/directory/read", json!({ "uri": long })),
        ("a page of a directory", "resources/directory/read", json!({ "uri": "u", "cursor": long })),
        ("a subscription", "resources/subscribe", json!({ "uri": long })),
        ("its end", "resources/unsubscribe", json!({ "uri": long })),
        (
            "a value to complete",
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": { "name": "a", "value": long } }),
        ),
        (
            "what it depends on",
            "completion/complete",
            json!({
                "ref": { "type": "ref/prompt", "name": "p" },
                "argument": { "name": "a", "value": "" },
                "context": { "arguments": much },
            }),
        ),
        (
            "what it is for",
            "completion/complete",
            json!({ "ref": { "type": "ref/resource", "uri": long }, "argument": { "name": "a", "value": "" } }),
        ),
        (
            "a title",
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "p", "title": long }, "argument": { "name": "a", "value": "" } }),
        ),
        ("a task", "tasks/get", json!({ "taskId": long })),
        ("a task's end", "tasks/cancel", json!({ "taskId": long })),
        ("answers to a task", "tasks/update", json!({ "taskId": "t", "inputResponses": much })),
        ("a page of tools", "tools/list", json!({ "cursor": long })),
        ("a page of prompts", "prompts/list", json!({ "cursor": long })),
        ("a page of resources", "resources/list", json!({ "cursor": long })),
        ("a page of templates", "resources/templates/list", json!({ "cursor": long })),
        ("a page of skills", "skills/list", json!({ "cursor": long })),
        ("a skill", "skills/get", json!({ "uri": long })),
        ("an unknown method", "x/y", json!({ "a": long })),
        (
            "URIs to listen to",
            "subscriptions/listen",
            json!({ "notifications": { "resourceSubscriptions": vec!["u://abc"; LONG] } }),
        ),
        (
            "an icon of a client",
            "initialize",
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": { "name": "c", "version": "1", "icons": [{ "src": long }] },
            }),
        ),
        (
            "what a client can do",
            "initialize",
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "experimental": { "e": much } },
                "clientInfo": { "name": "c", "version": "1" },
            }),
        ),
    ]
    .map(|(place, method, params)| (place, read(method, params)))
    .into()
}

#[test]
fn every_client_filled_field_counts_towards_the_limit() {
    for (place, request) in large_requests() {
        assert_eq!(
            refused(&bytes(16), request.clone()).as_deref(),
            Some("the request has more than 16 bytes (`max_argument_bytes`)"),
            "{place}"
        );
        assert_eq!(refused(&bytes(10 * LONG), request), None, "{place}");
    }
}

#[tokio::test]
async fn request_id_counts_towards_the_limit() {
    let (mut context, _alive) = detached(Era::Legacy);
    context.id = RequestId::String("x".repeat(LONG).into());
    let request = Request::call_tool("t").with_context(context);
    assert!(refused(&bytes(16), request).is_some());
}

#[test]
fn call_without_arguments_counts_zero_bytes() {
    let meta =
        json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } } });
    for request in [
        Request::call_tool("t"),
        call("t", json!({})),
        read("tools/call", json!({ "name": "x".repeat(1024), "_meta": meta })),
        Request::list_tools(),
        Request::list_tools_from(Some("c".repeat(1024))),
        read("ping", json!({})),
        read("resources/read", json!({ "uri": "file:///etc/hosts" })),
    ] {
        assert_eq!(refused(&bytes(0), request.clone()), None, "{request:?}");
        if request.tool_call().is_none_or(|call| call.arguments.is_none()) {
            assert_eq!(refused(&depth(0), request.clone()), None, "{request:?}");
        }
    }
    assert!(refused(&bytes(0), call("t", json!({ "a": 1 }))).is_some());
}

#[test]
fn byte_limit_is_exact() {
    for (arguments, counts) in [
        (json!({}), 0),
        (json!({ "a": null }), 5),
        (json!({ "key": "12345678" }), 11),
        (json!({ "a": "" }), 5),
        (json!({ "a": [] }), 5),
        (json!({ "a": [1, true, { "b": "12345" }] }), 23),
    ] {
        assert_eq!(refused(&bytes(counts), call("t", arguments.clone())), None, "{arguments}");
        if counts > 0 {
            assert!(
                refused(&bytes(counts - 1), call("t", arguments.clone())).is_some(),
                "{arguments}"
            );
        }
    }
    let name = |length| Request::call_tool("x".repeat(length));
    assert_eq!(refused(&bytes(10), name(1034)), None);
    assert!(refused(&bytes(10), name(1035)).is_some());
    let meta = |length: usize| {
        read("tools/call", json!({ "name": "t", "_meta": { "m": "x".repeat(length) } }))
    };
    assert_eq!(refused(&bytes(10), meta(16 * 1024 + 9)), None);
    assert!(refused(&bytes(10), meta(16 * 1024 + 10)).is_some());
}

#[test]
fn sizes_of_all_request_fields_are_summed() {
    let params = json!({
        "name": "x".repeat(1026),
        "arguments": { "a": "1234" },
        "inputResponses": { "b": "1234" },
        "requestState": "12345",
        "_meta": { "m": "x".repeat(16 * 1024) },
    });
    assert_eq!(refused(&bytes(18), read("tools/call", params.clone())), None);
    assert!(refused(&bytes(17), read("tools/call", params)).is_some());
}

#[test]
fn arrays_and_objects_count_towards_the_depth() {
    for (arguments, levels) in [
        (json!({}), 1),
        (json!({ "a": "b", "c": 1 }), 1),
        (json!({ "a": [] }), 2),
        (json!({ "a": [1], "b": { "c": [{}] } }), 4),
    ] {
        assert_eq!(refused(&depth(levels), call("t", arguments.clone())), None, "{arguments}");
        assert_eq!(
            refused(&depth(levels - 1), call("t", arguments.clone())),
            Some(format!(
                "the request has more than {} levels of nesting (`max_depth`)",
                levels - 1
            )),
            "{arguments}"
        );
    }
    for (method, params) in [
        ("tools/call", json!({ "name": "t", "inputResponses": { "a": {} } })),
        ("x/y", json!({ "a": {} })),
    ] {
        assert_eq!(refused(&depth(2), read(method, params.clone())), None, "{method} {params}");
        assert!(refused(&depth(1), read(method, params.clone())).is_some(), "{method} {params}");
    }
}

#[test]
fn meta_may_have_16_levels_under_any_limit() {
    let meta = |levels: usize| {
        read("tools/call", json!({ "name": "t", "_meta": { "m": nested(levels - 1) } }))
    };
    assert_eq!(refused(&depth(1), meta(16)), None);
    assert!(refused(&depth(1), meta(17)).is_some());
    assert_eq!(refused(&depth(20), meta(20)), None);
}

#[test]
fn request_over_128_levels_is_rejected_under_every_limit() {
    let refusal = "the request has more than 128 levels of nesting (`max_depth`)";
    for layer in [bytes(usize::MAX), depth(128), depth(100_000)] {
        assert_eq!(refused(&layer, call("t", json!({ "a": nested(127) }))), None, "{layer:?}");
        let request = call("t", json!({ "a": nested(128) }));
        assert_eq!(refused(&layer, request).as_deref(), Some(refusal), "{layer:?}");
    }
}

/// Polls a call once and counts its allocations.
fn allocations(layer: &LimitLayer, request: &mut Option<Request>) -> (u64, u64) {
    struct Keep<'k>(&'k mut Option<Request>);
    impl Service<Request> for Keep<'_> {
        type Response = Reply;
        type Error = Infallible;
        type Future = std::future::Pending<Result<Reply, Infallible>>;
        fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
            task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: Request) -> Self::Future {
            *self.0 = Some(request);
            std::future::pending()
        }
    }
    let taken = request.take().expect("a request");
    let mut service = layer.layer(Keep(request));
    let mut context = task::Context::from_waker(task::Waker::noop());
    let measured = allocation_counter::measure(|| {
        let _ = std::pin::pin!(service.call(taken)).poll(&mut context);
    });
    (measured.count_total, measured.bytes_total)
}

#[test]
fn limit_check_allocates_nothing_for_accepted_requests() {
    for layer in [LimitLayer::new(), bytes(1 << 20), depth(64)] {
        let request = call("t", json!({ "a": ["b", { "c": [1, 2, 3] }] }));
        let mut request = Some(request);
        assert_eq!(allocations(&layer, &mut request), (0, 0), "{layer:?}");
        assert!(request.is_some(), "{layer:?} lets it through");
    }
}

#[test]
fn huge_request_is_rejected_without_copying() {
    let huge = "x".repeat(100 << 20);
    let mut request = Some(call("t", json!({ "a": huge })));
    let (count, bytes) = allocations(&bytes(1 << 20), &mut request);
    assert!(request.is_none(), "it got through");
    assert!(count <= 1 && bytes < 4096, "{count} allocations of {bytes} bytes");
}

#[test]
fn deeply_nested_request_is_rejected_at_level_128() {
    // The first 128 levels count 517 bytes, and all of them 4005: a check that continues below
    // finds that there are too many bytes.
    let mut request = Some(call("t", json!({ "a": nested(1000) })));
    let refusal = refused(&bytes(600), request.clone().expect("a request"));
    let expected = "the request has more than 128 levels of nesting (`max_depth`)";
    assert_eq!(refusal.as_deref(), Some(expected));
    let (count, bytes) = allocations(&bytes(600), &mut request);
    assert!(count <= 1 && bytes < 4096, "{count} allocations of {bytes} bytes");
}

#[tokio::test(start_paused = true)]
async fn oversized_composite_call_is_rejected_before_any_target() {
    let server = Server::new().says("a", "1").says("b", "2");
    let both = CompositeTool::fan_out("both", "Both", ["a", "b"]);
    let composites = CompositeLayer::new([both]).expect("good definitions");
    let stack =
        tower::ServiceBuilder::new().layer(bytes(16)).layer(composites).service(server.clone());

    let reply = stack.oneshot(call("both", json!({ "q": "x".repeat(100) }))).await.unwrap();

    let error = reply.error().expect("an error");
    assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
    assert_eq!(error.message, "the request has more than 16 bytes (`max_argument_bytes`)");
    assert!(server.called().is_empty());
}

/// Returns the size of a value, in the simplest way.
fn count(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len().max(4),
        Value::Array(elements) => 4 + elements.iter().map(count).sum::<usize>(),
        Value::Object(members) => 4 + count_members(members),
        _ => 4,
    }
}

fn count_members(members: &Map<String, Value>) -> usize {
    members.iter().map(|(key, value)| key.len() + count(value)).sum()
}

/// Returns the depth of a value.
fn levels(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(levels).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(".{0,6}", inner, 0..6)
                .prop_map(|members: HashMap<_, _>| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn measured_size_and_depth_equal_a_naive_count(values in prop::collection::vec((".{0,6}", any_value()), 0..5)) {
        let arguments = Value::Object(values.into_iter().collect());
        let (size, deep) = (count(&arguments) - 4, levels(&arguments));
        let request = call("t", arguments);
        prop_assert_eq!(refused(&bytes(size).max_depth(deep), request.clone()), None);
        if size > 0 {
            prop_assert!(refused(&bytes(size - 1), request.clone()).is_some());
        }
        prop_assert!(refused(&depth(deep - 1), request).is_some());
    }
}
