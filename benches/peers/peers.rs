//! The same fan-outs through this crate and through mcp-proxy.
//!
//! ```sh
//! cd benches/peers
//! cargo bench                      # everything, some four minutes
//! cargo bench -- ^fan_out/8/       # one group
//! cargo bench -- allocations       # no times, only allocations
//! cargo bench -- instructions      # only instructions of fan-outs, with valgrind
//! ```
//!
//! `instructions` fails if a fan-out takes more instructions than `instructions.json` says;
//! see `instructions.rs`.
//!
//! The table at the end compares cases of this run. Compare nothing else: the
//! same code takes half as long again on a machine that is busy or warm. Where
//! the ratio of the medians and that of the fastest samples disagree, run the
//! group again. Allocations do not vary.
//!
//! Both are layered over a service that answers at once, with the same result. Each uses the types
//! of its own SDK, which differ in cost: `leaf` measures a call or a list without either. The
//! answers differ as well: mcp-proxy concatenates the content in the order in which the targets
//! finish; ours keeps the order of the targets, reports the target of each block and the outcome of
//! each target, checks the arguments, and limits each target and the whole run.

#[path = "../fan_out/counting.rs"]
mod counting;
mod instructions;
#[path = "../fan_out/measure.rs"]
mod measure;

use std::{
    convert::Infallible,
    env,
    future::{Ready, ready},
    iter,
    process::ExitCode,
    sync::Arc,
    task::{Context, Poll},
};

use mcp_composite::{
    composite::{Composite, CompositeLayer, CompositeTool, FanOut, Labels},
    message::{Reply, Request},
};
use mcp_proxy::{
    composite::CompositeService,
    config::{CompositeStrategy, CompositeToolConfig},
};
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, ListToolsResult, Tool};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tower::{Layer, Service, ServiceExt};
use tower_mcp::{
    JsonRpcError,
    protocol::{self as peer, McpRequest, McpResponse},
    router::{RouterRequest, RouterResponse},
};

use self::measure::{Group, Threads};

/// The name of the fan-out that is among the other composites.
const FAN_OUT: &str = "fan_out";
/// A text of 22 bytes.
const SHORT_TEXT: &str = "the tool says: all ok.";
const WIDTHS: [usize; 6] = [1, 2, 4, 8, 16, 64];
const KIB_64: usize = 64 << 10;

fn main() -> ExitCode {
    if env::args().any(|argument| argument == "instructions") {
        return instructions::run();
    }
    let small = json!({ "q": "hello", "limit": 10 });
    let string = json!({ "q": "x".repeat(KIB_64), "limit": 10 });
    let value = "x".repeat(KIB_64 / 512);
    let members = (1..512).map(|index| (format!("key_{index:03}"), value.clone().into()));
    let object = iter::once(("q".to_owned(), value.clone().into())).chain(members);
    let object = Value::Object(object.collect());
    let long_text = "x".repeat(KIB_64);

    let mut groups = vec![pass_through(&small)];
    for (threads, name) in [(Threads::Current, "fan_out"), (Threads::Two, "fan_out_two_threads")] {
        groups.extend(WIDTHS.map(|width| {
            fan_out(format!("{name}/{width}"), width, &small, SHORT_TEXT).on(threads)
        }));
    }
    groups.extend([
        fan_out("arguments/string", 8, &string, SHORT_TEXT),
        fan_out("arguments/object", 8, &object, SHORT_TEXT),
        fan_out("results/text", 8, &small, &long_text),
        list(100, 10),
    ]);
    measure::run(&groups);
    ExitCode::SUCCESS
}

/// A call that matches none of 10 composites.
fn pass_through(arguments: &Value) -> Group {
    let (leaf, peer_leaf) = leaves(2, SHORT_TEXT);
    let request = call("tool_0", arguments);
    let peer_request = peer_call("tool_0", arguments);
    Group::new("pass_through")
        .case("leaf", &leaf, &request)
        .case("ours", &layered(&leaf, composites(10), true), &request)
        .against("mcp_proxy")
        .case("mcp_proxy_leaf", &peer_leaf, &peer_request)
        .case("mcp_proxy", &peer_layered(&peer_leaf, composites(10)), &peer_request)
}

fn fan_out(name: impl Into<String>, width: usize, arguments: &Value, text: &str) -> Group {
    let (leaf, peer_leaf) = leaves(width, text);
    let composite = || iter::once((FAN_OUT.to_owned(), tool_names(width).collect()));
    let service = layered(&leaf, composite(), true);
    let service_without_report = layered(&leaf, composite(), false);
    let peer = peer_layered(&peer_leaf, composite());
    let request = call(FAN_OUT, arguments);
    let peer_request = peer_call(FAN_OUT, arguments);
    assert_answers(&service, &request, &peer, &peer_request, width, text);
    Group::new(name)
        .case("mcp_proxy", &peer, &peer_request)
        .case("ours", &service, &request)
        .against("mcp_proxy")
        .case("ours_without_report", &service_without_report, &request)
        .against("mcp_proxy")
}

fn list(tools: usize, count: usize) -> Group {
    let (leaf, peer_leaf) = leaves(tools, SHORT_TEXT);
    let request = Request::list_tools();
    let peer_request =
        RouterRequest::new(peer::RequestId::Number(0), McpRequest::ListTools(Default::default()));
    Group::new(format!("list/{tools}+{count}"))
        .case("leaf", &leaf, &request)
        .case("ours", &layered(&leaf, composites(count), true), &request)
        .against("mcp_proxy")
        .case("mcp_proxy_leaf", &peer_leaf, &peer_request)
        .case("mcp_proxy", &peer_layered(&peer_leaf, composites(count)), &peer_request)
}

// === Fixtures ===

/// The service behind our layer.
#[derive(Clone)]
struct Leaf {
    tools: Arc<[Tool]>,
    text: Arc<str>,
}

/// The service behind mcp-proxy's.
#[derive(Clone)]
struct PeerLeaf {
    tools: Arc<[peer::ToolDefinition]>,
    text: Arc<str>,
}

fn tool_names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|index| format!("tool_{index}"))
}

/// Names and targets of composites that each call two tools.
fn composites(count: usize) -> impl Iterator<Item = (String, Vec<String>)> {
    (0..count)
        .map(|index| (format!("search_everything_everywhere_{index:04}"), tool_names(2).collect()))
}

fn leaves(tools: usize, text: &str) -> (Leaf, PeerLeaf) {
    let schema = json!({
        "type": "object",
        "properties": {
            "q": { "type": "string", "description": "What to search for" },
            "limit": { "type": "integer", "minimum": 1 },
        },
        "required": ["q"],
    });
    let object = Arc::new(schema.as_object().expect("it is an object").clone());
    let own_tools =
        tool_names(tools).map(|name| Tool::new(name, "Searches something", object.clone()));
    let peers = tool_names(tools).map(|name| peer::ToolDefinition {
        name,
        title: None,
        description: Some("Searches something".to_owned()),
        input_schema: schema.clone(),
        output_schema: None,
        icons: None,
        annotations: None,
        execution: None,
        meta: None,
    });
    let leaf = Leaf { tools: own_tools.collect(), text: text.into() };
    (leaf, PeerLeaf { tools: peers.collect(), text: text.into() })
}

/// Our layer above `leaf`; its catalog is filled.
fn layered(
    leaf: &Leaf,
    composites: impl Iterator<Item = (String, Vec<String>)>,
    report: bool,
) -> Composite<Leaf> {
    let composites = composites.map(|(name, targets)| {
        let fan_out = FanOut::new(targets).report(report).labels(Labels::Meta);
        CompositeTool::new(name, "Calls several tools", fan_out)
    });
    let layer = CompositeLayer::new(composites).expect("the composites are sound");
    let service = layer.layer(leaf.clone());
    answer_of(&service, Request::list_tools());
    service
}

fn peer_layered(
    leaf: &PeerLeaf,
    composites: impl Iterator<Item = (String, Vec<String>)>,
) -> CompositeService<PeerLeaf> {
    let composites = composites.map(|(name, tools)| CompositeToolConfig {
        name,
        description: "Calls several tools".to_owned(),
        tools,
        strategy: CompositeStrategy::Parallel,
    });
    CompositeService::new(leaf.clone(), composites.collect())
}

fn call(tool: &str, arguments: &Value) -> Request {
    let arguments = arguments.as_object().expect("arguments are an object").clone();
    CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments).into()
}

fn peer_call(tool: &str, arguments: &Value) -> RouterRequest {
    let params = peer::CallToolParams {
        name: tool.to_owned(),
        arguments: arguments.clone(),
        input_responses: None,
        request_state: None,
        meta: None,
        task: None,
    };
    RouterRequest::new(peer::RequestId::Number(0), McpRequest::CallTool(params))
}

/// Asserts that both answer with the texts of all targets.
fn assert_answers(
    service: &Composite<Leaf>,
    request: &Request,
    peer: &CompositeService<PeerLeaf>,
    peer_request: &RouterRequest,
    width: usize,
    text: &str,
) {
    let reply = answer_of(service, request.clone());
    let result = reply.tool_result().expect("the call succeeds");
    let texts = result.content.iter().map(|block| &*block.as_text().expect("a text").text);
    assert!(texts.eq(iter::repeat_n(text, width)));

    let response = answer_of(peer, peer_request.clone());
    let Ok(McpResponse::CallTool(result)) = response.inner else { panic!("the call succeeds") };
    let texts = result.content.iter().map(|block| block.as_text().expect("a text"));
    assert!(texts.eq(iter::repeat_n(text, width)));
}

fn answer_of<S, R>(service: &S, request: R) -> S::Response
where
    S: Service<R, Error = Infallible> + Clone,
{
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    let Ok(response) = runtime.block_on(service.clone().oneshot(request));
    response
}

// === impl Leaf ===

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

// === impl PeerLeaf ===

impl Service<RouterRequest> for PeerLeaf {
    type Response = RouterResponse;
    type Error = Infallible;
    type Future = Ready<Result<RouterResponse, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: RouterRequest) -> Self::Future {
        let inner = match request.inner {
            McpRequest::CallTool(_) => {
                Ok(McpResponse::CallTool(peer::CallToolResult::text(&*self.text)))
            }
            McpRequest::ListTools(_) => Ok(McpResponse::ListTools(peer::ListToolsResult {
                tools: self.tools.to_vec(),
                next_cursor: None,
                ttl_ms: None,
                cache_scope: None,
                meta: None,
            })),
            _ => Err(JsonRpcError::method_not_found("")),
        };
        ready(Ok(RouterResponse { id: request.id, inner }))
    }
}
