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
//! see `benches/instructions`.
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

#[path = "../instructions/count.rs"]
mod count;
#[path = "../fan_out/counting.rs"]
mod counting;
#[path = "../fan_out/leaf.rs"]
mod leaf;
#[path = "../fan_out/measure.rs"]
mod measure;
#[path = "../fan_out/profile.rs"]
mod profile;

use std::{
    convert::Infallible,
    env,
    future::{Ready, ready},
    iter,
    path::Path,
    process::ExitCode,
    sync::Arc,
    task::{Context, Poll},
};

use mcp_composite::{
    composite::{Composite, CompositeTool},
    message::Request,
};
use mcp_proxy::{
    composite::CompositeService,
    config::{CompositeStrategy, CompositeToolConfig},
};
use serde_json::{Value, json};
use tower::Service;
use tower_mcp::{
    JsonRpcError,
    protocol::{self as peer, McpRequest, McpResponse},
    router::{RouterRequest, RouterResponse},
};

use self::{
    leaf::{FAN_OUT, Leaf, SHORT_TEXT, answer_of, call, composite},
    measure::{Group, Threads},
};

const WIDTHS: [usize; 6] = [1, 2, 4, 8, 16, 64];
const KIB_64: usize = 64 << 10;

fn main() -> ExitCode {
    if env::args().any(|argument| argument == "instructions") {
        let cases = [1, 4, 8, 64].into_iter().flat_map(|width| {
            ["ours", "ours_without_report"].map(|case| {
                (format!("fan_out/{width}/{case}"), format!("fan_out/{width}/mcp_proxy"))
            })
        });
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        return count::run(cases, &folder.join("instructions.json"));
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
    let request = call("tool_0", arguments.clone());
    let peer_request = peer_call("tool_0", arguments);
    Group::new("pass_through")
        .case("leaf", &leaf, &request)
        .case("ours", &layered(&leaf, composites(10)), &request)
        .against("mcp_proxy")
        .case("mcp_proxy_leaf", &peer_leaf, &peer_request)
        .case("mcp_proxy", &peer_layered(&peer_leaf, composites(10)), &peer_request)
}

fn fan_out(name: impl Into<String>, width: usize, arguments: &Value, text: &str) -> Group {
    let (leaf, peer_leaf) = leaves(width, text);
    let (service, service_without_report) = (composite(&leaf, true), composite(&leaf, false));
    let targets = tool_names(width).collect();
    let peer = peer_layered(&peer_leaf, iter::once((FAN_OUT.to_owned(), targets)));
    let request = call(FAN_OUT, arguments.clone());
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
        .case("ours", &layered(&leaf, composites(count)), &request)
        .against("mcp_proxy")
        .case("mcp_proxy_leaf", &peer_leaf, &peer_request)
        .case("mcp_proxy", &peer_layered(&peer_leaf, composites(count)), &peer_request)
}

// === Fixtures ===

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
    let leaf = Leaf::new(tools, text);
    let peers = tool_names(tools).map(|name| peer::ToolDefinition {
        name,
        title: None,
        description: Some("Searches something".to_owned()),
        input_schema: leaf.schema(),
        output_schema: None,
        icons: None,
        annotations: None,
        execution: None,
        meta: None,
    });
    let peer_leaf = PeerLeaf { tools: peers.collect(), text: text.into() };
    (leaf, peer_leaf)
}

/// Our layer above `leaf`, with composites; its catalog is filled.
fn layered(
    leaf: &Leaf,
    composites: impl Iterator<Item = (String, Vec<String>)>,
) -> Composite<Leaf> {
    leaf::layered(
        leaf,
        composites.map(|(name, targets)| CompositeTool::fan_out(name, "Calls tools", targets)),
    )
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
    let reply = answer_of(service, request);
    let result = reply.tool_result().expect("the call succeeds");
    let texts = result.content.iter().map(|block| &*block.as_text().expect("a text").text);
    assert!(texts.eq(iter::repeat_n(text, width)));

    let response = answer_of(peer, peer_request);
    let Ok(McpResponse::CallTool(result)) = response.inner else { panic!("the call succeeds") };
    let texts = result.content.iter().map(|block| block.as_text().expect("a text"));
    assert!(texts.eq(iter::repeat_n(text, width)));
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
