//! Requests of the protocol with a field of a wrong type, which rmcp reads as custom ones: no rule
//! recognizes them, but a server behind might.

use std::{convert::Infallible, future};

use futures::FutureExt;
use mcp_composite::{
    adapter::ServeService,
    advertise::AdvertiseLayer,
    alias::{AliasLayer, ToolAlias},
    filter::FilterLayer,
    intercept::{self, Next},
    message::{Context, Reply, Request},
    pattern::Selection,
    stack::StackLayer,
};
use rmcp::{
    ServiceError,
    model::{CallToolResult, CustomRequest, ServerCapabilities, ServerConfig},
};
use serde_json::{Value, json};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};

use crate::{
    http,
    support::{Era, Log, connect},
};

fn deny(pattern: &str) -> Selection {
    Selection::default().deny([pattern]).unwrap()
}

/// Returns a request that rmcp cannot read as one of the protocol.
fn request(method: &str, params: &Value) -> Request {
    Request::new(CustomRequest::new(method, Some(params.clone())), Context::default())
}

/// A server that answers everything, and records its requests.
fn server(
    log: Log,
) -> impl Service<Request, Response = Reply, Error = Infallible, Future: Send> + Clone + Send + 'static
{
    service_fn(move |request: Request| {
        log.note(request.method());
        future::ready(Ok(Reply::from(CallToolResult::success(vec![]))))
    })
}

fn malformed() -> Vec<(&'static str, Value)> {
    vec![
        ("tools/call", json!({ "name": "secret", "inputResponses": 5 })),
        ("tools/call", json!({ "name": "secret", "requestState": 5 })),
        ("tools/call", json!({ "name": "original", "arguments": [1] })),
        ("tools/call", json!({ "name": 7 })),
        ("tools/call", json!("secret")),
        ("resources/read", json!({ "uri": "secret://x", "requestState": 5 })),
        ("resources/subscribe", json!({ "uri": "secret://x", "_meta": 7 })),
        ("prompts/get", json!({ "name": "secret", "arguments": [] })),
        ("completion/complete", json!({ "ref": 1 })),
    ]
}

#[tokio::test]
async fn malformed_request_is_rejected_under_every_rule() {
    let log = Log::default();
    let stacks = [
        ("filter", StackLayer::new().filter(FilterLayer::new().tools(deny("secret")))),
        ("advertise", StackLayer::new().advertise(AdvertiseLayer::new().tools(deny("secret")))),
        (
            "alias",
            StackLayer::new().alias(
                AliasLayer::new().tools([ToolAlias::new("original").name("other")]).unwrap(),
            ),
        ),
        ("nothing", StackLayer::new()),
    ];
    for (rule, stack) in stacks {
        let stack = stack.layer(server(log.clone()));
        for (method, params) in malformed() {
            let reply = stack.clone().oneshot(request(method, &params)).await.unwrap();
            let error = reply.error().unwrap_or_else(|| panic!("{rule}: {method} {params}"));
            assert_eq!(error.code.0, -32602, "{rule}: {method} {params}");
            assert_eq!(error.message, format!("malformed `{method}`"), "{rule}");
        }
    }
    assert_eq!(log.lines(), [""; 0]);
}

#[tokio::test]
async fn malformed_request_occupies_no_slot_behind_a_hook() {
    let limited = ConcurrencyLimitLayer::new(1).layer(server(Log::default()));
    let mut sibling = limited.clone();
    let mut service =
        intercept::from_fn(async |request, next: Next| next.run(request).await).layer(limited);
    let request = request("tools/call", &json!({ "name": 7 }));
    let reply = service.ready().await.unwrap().call(request).await.unwrap();
    assert_eq!(reply.error().unwrap().message, "malformed `tools/call`");
    assert!(sibling.ready().now_or_never().is_some(), "the slot is free");
}

#[tokio::test]
async fn malformed_request_does_not_bypass_a_hook() {
    let log = Log::default();
    let hook = intercept::from_fn(async |_, _| Ok(Reply::unknown_tool("refused")));
    let service = hook.layer(server(log.clone()));
    for (method, params) in malformed() {
        let reply = service.clone().oneshot(request(method, &params)).await.unwrap();
        assert!(reply.error().is_some(), "{method} {params}");
    }
    assert_eq!(log.lines(), [""; 0]);
}

#[tokio::test]
async fn malformed_call_is_rejected_by_the_serving_edge() {
    for era in [Era::Legacy, Era::Modern] {
        let log = Log::default();
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let served = ServeService::new(server(log.clone()), ServerConfig::new(capabilities));
        let connection = connect(served, era).await;
        let params = json!({ "name": "secret", "requestState": 5 });
        let error = connection.send("tools/call", params).await.unwrap_err().to_string();
        assert!(error.contains("malformed `tools/call`"), "{era:?}: {error}");
        assert_eq!(log.lines(), [""; 0], "{era:?}");
    }
}

/// The methods that 2026-07-28 has removed.
const REMOVED: [&str; 5] =
    ["initialize", "logging/setLevel", "ping", "resources/subscribe", "resources/unsubscribe"];

/// They are unknown whatever their parameters are.
#[tokio::test]
async fn removed_methods_are_rejected_with_any_parameters() {
    let removed = REMOVED.into_iter().filter(|method| *method != "ping");
    for (era, code) in [(Era::Legacy, -32602), (Era::Modern, -32601)] {
        let log = Log::default();
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let served = ServeService::new(server(log.clone()), ServerConfig::new(capabilities));
        let connection = connect(served, era).await;
        for method in removed.clone() {
            let error = connection.send(method, json!({ "none": 1 })).await.unwrap_err();
            let ServiceError::McpError(error) = error else { panic!("{method}: {error}") };
            assert_eq!(error.code.0, code, "{era:?}: {method}");
        }
        // No parameter of a ping can be missing.
        let ping = connection.send("ping", json!({ "none": 1 })).await;
        match (era, ping) {
            (Era::Legacy, ping) => assert_eq!(ping.unwrap(), json!({})),
            (Era::Modern, Err(ServiceError::McpError(error))) => assert_eq!(error.code.0, code),
            (Era::Modern, ping) => panic!("{ping:?}"),
        }
        assert_eq!(log.lines(), [""; 0], "{era:?}");
    }
}

#[tokio::test]
async fn removed_methods_are_not_found_over_http() {
    let log = Log::default();
    let capabilities = ServerCapabilities::builder().enable_tools().build();
    let stack = StackLayer::new().layer(server(log.clone()));
    let served = ServeService::new(stack, ServerConfig::new(capabilities));
    let served = http::serve(served, false).await;
    for method in REMOVED {
        for params in [json!({}), json!({ "none": 1 }), json!({ "uri": 1, "level": 1 })] {
            let answer = http::read(served.post(method, params.clone(), &[]).await).await;
            assert!(answer.starts_with("HTTP/1.1 404 "), "{method} {params}: {answer}");
            assert!(answer.contains("\"code\":-32601"), "{method} {params}: {answer}");
        }
    }
    assert_eq!(log.lines(), [""; 0]);
}

#[tokio::test]
async fn custom_method_is_forwarded() {
    let log = Log::default();
    let stack = StackLayer::new()
        .filter(FilterLayer::new().tools(deny("secret")))
        .layer(server(log.clone()));
    let reply = stack.oneshot(request("example/status", &json!({ "name": "secret" }))).await;
    assert!(reply.unwrap().error().is_none());
    assert_eq!(log.lines(), ["example/status"]);
}
