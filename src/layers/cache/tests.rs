//! Tests the size of the cache and the number of running calls.

use std::{
    convert::Infallible,
    future::{pending, ready},
    sync::Arc,
    time::Duration,
};

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, ListToolsResult, Tool,
    ToolAnnotations,
};
use serde_json::json;
use tokio_test::{assert_pending, task};
use tower::{Service, ServiceExt, service_fn};
use tower_layer::Layer;

use super::{flights::Results, *};
use crate::{
    message::{Reply, Request},
    pattern::Selection,
};

fn reads(name: &'static str) -> Tool {
    let annotations = ToolAnnotations::new().read_only(true);
    Tool::new(name, "Looks", JsonObject::new()).with_annotations(annotations)
}

/// Returns the reply of a server whose only tool is `look`.
fn look(request: &Request) -> Reply {
    if request.lists_tools() {
        return ListToolsResult::with_all_items(vec![reads("look")]).into();
    }
    let arguments = request.tool_call().and_then(|call| call.arguments.clone());
    let text = json!(arguments).to_string().repeat(8);
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

fn numbered(number: usize) -> Request {
    let arguments = JsonObject::from_iter([("n".to_owned(), number.into())]);
    Request::call_tool_with(CallToolRequestParams::new("look").with_arguments(arguments))
}

fn layer(max_bytes: usize) -> CacheLayer {
    let rule = CacheRule::new(Selection::default(), Duration::from_secs(60));
    CacheLayer::new().rule(rule.max_bytes(max_bytes))
}

fn results<S>(service: &Cache<S>) -> Arc<Results> {
    service.shared().unwrap().results()[0].clone()
}

#[tokio::test]
async fn results_of_many_calls_stay_within_the_limit() {
    const MAX_BYTES: usize = 4 << 20;

    let service = layer(MAX_BYTES)
        .layer(service_fn(|request: Request| ready(Ok::<_, Infallible>(look(&request)))));
    let results = results(&service);
    for number in 0..100_000 {
        service.clone().oneshot(numbered(number)).await.unwrap();
        if number % 5_000 == 0 {
            assert!(results.entries.held().1 <= MAX_BYTES);
        }
    }
    let (entries, bytes) = results.entries.held();
    assert!(bytes <= MAX_BYTES, "{bytes}");
    // Each result counts with about 600 bytes, so most of the allowed memory is used.
    assert!(entries > 5_000 && bytes > MAX_BYTES / 2, "{entries} entries of {bytes} bytes");
    assert_eq!(results.running_count(), 0);
}

#[tokio::test]
async fn large_results_stay_within_the_limit() {
    const MAX_BYTES: usize = 1 << 20;

    let large = service_fn(|request: Request| {
        ready(Ok::<Reply, Infallible>(match request.lists_tools() {
            true => look(&request),
            false => CallToolResult::success(vec![ContentBlock::text("x".repeat(100_000))]).into(),
        }))
    });
    let service = layer(MAX_BYTES).layer(large);
    let results = results(&service);
    for number in 0..200 {
        service.clone().oneshot(numbered(number)).await.unwrap();
        assert!(results.entries.held().1 <= MAX_BYTES);
    }
    assert!(results.entries.held().0 >= 5);
}

#[tokio::test]
async fn dropped_calls_leave_nothing_behind() {
    let service =
        layer(1 << 20).layer(service_fn(async |request: Request| match request.lists_tools() {
            true => Ok::<Reply, Infallible>(look(&request)),
            false => pending().await,
        }));
    service.warm().await.unwrap();
    let results = results(&service);
    let mut calls: Vec<_> =
        (0..100).map(|number| task::spawn(service.clone().oneshot(numbered(number / 2)))).collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    assert_eq!(results.running_count(), 50);
    drop(calls);
    assert_eq!(results.running_count(), 0);

    // Start a call without polling it.
    let mut service = service;
    let call = service.ready().await.unwrap().call(numbered(1));
    assert_eq!(results.running_count(), 1);
    drop(call);
    assert_eq!(results.running_count(), 0);
    assert_eq!(results.entries.held(), (0, 0));
}
