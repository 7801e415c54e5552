//! A service whose tools answer at once, and a composite that calls all of them.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use mcp_composite::{
    composite::{Composite, CompositeLayer, CompositeTool, FanOut, Labels},
    message::{Reply, Request},
};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, ListToolsResult, Tool,
};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tower::{Layer, Service, ServiceExt};

/// The name of the fan-out that is among the other composites.
pub(crate) const FAN_OUT: &str = "fan_out";
/// A text of 22 bytes.
pub(crate) const SHORT_TEXT: &str = "the tool says: all ok.";

/// The leaf service: answers at once, every tool with the same text.
#[derive(Clone)]
pub(crate) struct Leaf {
    tools: Arc<[Tool]>,
    text: Arc<str>,
}

/// Returns a layer with one composite that calls all tools of `leaf`, with a filled catalog.
pub(crate) fn composite(leaf: &Leaf, report: bool) -> Composite<Leaf> {
    let composite = CompositeTool::new(
        FAN_OUT,
        "Calls all tools",
        FanOut::new(leaf.names().to_vec()).report(report).labels(Labels::Meta),
    );
    layered(leaf, [composite])
}

pub(crate) fn layered(
    leaf: &Leaf,
    composites: impl IntoIterator<Item = CompositeTool>,
) -> Composite<Leaf> {
    let layer = CompositeLayer::new(composites).expect("the composites are sound");
    let service = layer.layer(leaf.clone());
    answer_of(&service, &Request::list_tools());
    service
}

pub(crate) fn call(tool: &str, arguments: Value) -> Request {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments).into()
}

pub(crate) fn small_arguments() -> Value {
    json!({ "q": "hello", "limit": 10 })
}

pub(crate) fn answer_of<S, R>(service: &S, request: &R) -> S::Response
where
    S: Service<R, Error = Infallible> + Clone,
    R: Clone,
{
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    let Ok(response) = runtime.block_on(service.clone().oneshot(request.clone()));
    response
}

// === impl Leaf ===

impl Leaf {
    pub(crate) fn new(tools: usize, text: &str) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "q": { "type": "string", "description": "What to search for" },
                "limit": { "type": "integer", "minimum": 1 },
            },
            "required": ["q"],
        });
        let Value::Object(schema) = schema else { unreachable!("it is an object") };
        let schema: Arc<JsonObject> = schema.into();
        let tools = (0..tools)
            .map(|index| Tool::new(format!("tool_{index}"), "Searches something", schema.clone()));
        Self { tools: tools.collect(), text: text.into() }
    }

    /// The schema of every tool.
    pub(crate) fn schema(&self) -> Value {
        let tool = self.tools.first().expect("there is a tool");
        Value::Object((*tool.input_schema).clone())
    }

    pub(crate) fn names(&self) -> Arc<[String]> {
        self.tools.iter().map(|tool| tool.name.to_string()).collect()
    }
}

impl Service<Request> for Leaf {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ready(Ok(if request.tool_call().is_some() {
            CallToolResult::success(vec![ContentBlock::text(&*self.text)]).into()
        } else if request.lists_tools() {
            ListToolsResult::with_all_items(self.tools.to_vec()).into()
        } else {
            Reply::method_not_found(request.method().to_owned())
        }))
    }
}
