//! The allocations that support for questions adds.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task,
};

use mcp_composite::{
    composite::{Composite, CompositeLayer, CompositeTool},
    message::{Context, Reply, Request},
    testing,
};
use rmcp::model::{
    CallToolResult, ClientCapabilities, Implementation, InitializeRequestParams, ListToolsResult,
};
use serde_json::json;
use tokio::runtime::Runtime;
use tower::{Layer, Service, ServiceExt};

use crate::{
    contract::without_spans,
    support::{Era, detached, tool},
};

/// A tool that allocates only an empty result.
#[derive(Clone)]
struct Leaf;

impl Service<Request> for Leaf {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ready(Ok(match request.tool_call() {
            Some(_) => CallToolResult::success(Vec::new()).into(),
            None => ListToolsResult::with_all_items(vec![tool("leaf")]).into(),
        }))
    }
}

/// Returns the context of an older client with these capabilities.
fn older(capabilities: Option<ClientCapabilities>) -> (Context, impl Sized) {
    let (context, alive) = detached(Era::Legacy);
    if let Some(capabilities) = capabilities {
        let client = Implementation::new("older", "0");
        context.peer.set_peer_info(InitializeRequestParams::new(capabilities, client));
    }
    (context.into(), alive)
}

fn can_ask() -> ClientCapabilities {
    ClientCapabilities::builder().enable_elicitation().build()
}

fn newer() -> Context {
    let mut context = Context::default();
    let key = "io.modelcontextprotocol/clientCapabilities".to_owned();
    context.meta_mut().insert(key, json!({ "elicitation": {} }));
    context
}

/// Returns the allocations of a call of this many targets that asks nothing.
fn allocations(runtime: &Runtime, targets: usize, context: &Context) -> u64 {
    let _guard = without_spans();
    let composite = CompositeTool::fan_out("all", "All", vec!["leaf"; targets]);
    let service: Composite<Leaf> = CompositeLayer::new([composite]).unwrap().layer(Leaf);
    let request = || {
        let mut request = testing::request("all", json!({}));
        *request.context_mut() = context.clone();
        request
    };
    runtime.block_on(service.clone().oneshot(request())).unwrap();
    let request = request();
    let call = || drop(runtime.block_on(service.oneshot(request)));
    allocation_counter::measure(call).count_total
}

#[test]
fn clients_without_elicitation_cost_no_allocations() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let _runtime = runtime.enter();
    let (unknown, _alive) = older(None);
    let (cannot, _alive) = older(Some(ClientCapabilities::default()));
    for targets in [1, 8] {
        let nobody = allocations(&runtime, targets, &Context::default());
        assert_eq!(allocations(&runtime, targets, &unknown), nobody);
        assert_eq!(allocations(&runtime, targets, &cannot), nobody);
    }
}

#[test]
fn elicitation_costs_a_fixed_number_of_allocations() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let _runtime = runtime.enter();
    let (older, _alive) = older(Some(can_ask()));
    let cost = |targets, context: &Context| allocations(&runtime, targets, context);
    for (context, once, each) in [(newer(), 9, 0), (older, 9, 0)] {
        let more = |targets| cost(targets, &context) - cost(targets, &Context::default());
        let (of_one, of_eight) = (more(1), more(8));
        assert!(of_one <= once + each, "{of_one}");
        assert!(of_eight <= once + 8 * each, "{of_eight}");
    }
}
