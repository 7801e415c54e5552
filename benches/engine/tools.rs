//! The tools behind the composites, and calls of them by hand.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use mcp_composite::{
    composite::Composite,
    message::{Reply, Request},
};
use rmcp::model::{CallToolRequestParams, CallToolResult, JsonObject, ListToolsResult, Tool};
use serde_json::{Value, json};

/// Two tools that answer at once: `step` returns a number, `large` a result of the given size.
#[derive(Clone)]
pub(crate) struct Tools {
    tools: Arc<[Tool]>,
    step: Arc<CallToolResult>,
    large: Arc<CallToolResult>,
}

/// Calls the tools the given number of times, one after another.
#[derive(Clone)]
pub(crate) struct ByHand {
    tools: Tools,
    calls: Arc<[Request]>,
}

/// Runs a function for each call.
#[derive(Clone)]
pub(crate) struct Calling(Arc<dyn Fn()>);

/// Composites over the tools.
pub(crate) type Service = Composite<Tools>;

pub(crate) fn call(tool: &str) -> Request {
    call_with(tool, &json!({}))
}

pub(crate) fn call_with(tool: &str, arguments: &Value) -> Request {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = arguments.as_object().cloned();
    Request::call_tool_with(params)
}

fn result(structured: Value) -> Arc<CallToolResult> {
    let mut result = CallToolResult::success(Vec::new());
    result.structured_content = Some(structured);
    result.into()
}

// === impl Tools ===

impl Tools {
    /// Returns tools of which `large` returns about the given number of bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let object =
            |value: Value| -> JsonObject { value.as_object().cloned().unwrap_or_default() };
        let schema = object(json!({
            "type": "object",
            "properties": { "n": { "type": ["integer", "string"] }, "q": { "type": "string" } },
        }));
        let any = object(json!({ "type": "object" }));
        let rows: Vec<_> =
            (0..(bytes / 50).max(4)).map(|n| json!({ "n": n, "text": "x".repeat(25) })).collect();
        Self {
            tools: [
                Tool::new("step", "Gives a number", schema),
                Tool::new("large", "Gives much", any),
            ]
            .into(),
            step: result(json!({ "n": 42 })),
            large: result(json!({ "rows": rows })),
        }
    }

    /// Returns a service that calls `step` the given number of times for each of its own calls.
    pub(crate) fn by_hand(&self, calls: usize) -> ByHand {
        let first = call("large");
        let others = call_with("step", &json!({ "n": 42, "q": "q" }));
        let has_large =
            self.large.structured_content.as_ref().is_some_and(|it| it["rows"][4] != Value::Null);
        let calls =
            (0..calls).map(|at| if at == 0 && has_large { first.clone() } else { others.clone() });
        ByHand { tools: self.clone(), calls: calls.collect() }
    }
}

impl tower::Service<Request> for Tools {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ready(Ok(match request.tool_call() {
            None => ListToolsResult::with_all_items(self.tools.to_vec()).into(),
            Some(call) if call.name == "large" => CallToolResult::clone(&self.large).into(),
            Some(_) => CallToolResult::clone(&self.step).into(),
        }))
    }
}

impl tower::Service<Request> for ByHand {
    type Response = Reply;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        let Self { mut tools, calls } = self.clone();
        Box::pin(async move {
            let mut last = None;
            for request in &*calls {
                last = Some(tools.call(request.clone()).await?);
            }
            Ok(last.unwrap_or_else(|| Reply::unknown_tool("none")))
        })
    }
}

// === impl Calling ===

impl Calling {
    pub(crate) fn new(work: impl Fn() + 'static) -> Self {
        Self(Arc::new(work))
    }
}

impl tower::Service<Request> for Calling {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        (self.0)();
        ready(Ok(Reply::unknown_tool("none")))
    }
}
