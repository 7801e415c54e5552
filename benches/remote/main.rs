//! The overhead of this crate over servers at the other end of a connection, compared with servers
//! written by hand over the same clients of rmcp.
//!
//! ```sh
//! cargo bench -p benches --bench remote --all-features               # everything, some four minutes
//! cargo bench -p benches --bench remote --all-features -- hop        # what has this in its name
//! cargo bench -p benches --bench remote --all-features -- idle       # the memory of an idle gateway
//! ```
//!
//! All of it is measured from an rmcp client at the other end of a pipe in memory, so that each
//! call is a whole round trip to a whole server. The exception is the group `call`, which calls a
//! backend from here.
//!
//! Allocations are those of this process: of client, server and backends, except for backends in
//! separate processes.

#[path = "../fan_out/answer.rs"]
mod answer;
mod backend;
mod by_hand;
#[path = "../fan_out/counting.rs"]
mod counting;
mod idle;
mod measure;
mod protocol_version;

use std::{env, sync::Arc};

use mcp_composite::{
    adapter::{RemoteService, Router, ServeService, router::Backend},
    composite::{Composite, CompositeLayer, CompositeTool, FanOut, Labels, TRACE},
    message::Request,
};
use rmcp::{
    Peer, RoleClient,
    model::{ServerCapabilities, ServerConfig},
};
use serde_json::Value;
use tower::{Layer, ServiceExt};

use self::{
    backend::{Client, Place, TOOL, call, connect, params},
    by_hand::{Forwarder, JoinAll, SameAnswer},
    measure::{Group, Threads},
    protocol_version::Era,
};

/// The name of the composite, and of the tool of servers without composites.
const ALL: &str = "all";
const WIDTH: usize = 4;

fn main() {
    let is_backend = Threads::Current.runtime().block_on(backend::serve_if_asked());
    if is_backend {
        return;
    }
    // Cargo itself says `--bench`.
    let filter = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let is_selected = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(&**filter));

    let mut head = Some(measure::print_head);
    for threads in [Threads::Current, Threads::Two] {
        for era in [Era::Older, Era::Newer] {
            for subject in [
                Subject::FanOut(Place::Memory),
                Subject::FanOut(Place::Child),
                Subject::Hop,
                Subject::Call,
            ] {
                let name = format!("{}/{}/{}", subject.name(), era.name(), threads.name());
                if !is_selected(&name) {
                    continue;
                }
                if let Some(head) = head.take() {
                    head();
                }
                let runtime = threads.runtime();
                let group = Group::new(name);
                let group = runtime.block_on(async {
                    match subject {
                        Subject::FanOut(place) => fan_out(group, place, era).await,
                        Subject::Hop => hop(group, era).await,
                        Subject::Call => call_from_here(group, era).await,
                    }
                });
                group.run(threads, &runtime);
                // Connections end in their runtime.
                let _inside = runtime.enter();
                drop(group);
            }
        }
    }
    if is_selected("idle") {
        idle::run();
    }
}

#[derive(Clone, Copy)]
enum Subject {
    FanOut(Place),
    Hop,
    Call,
}

/// One tool that calls the tools of four backends.
///
/// Each contestant has its own backends: shared ones would be called more often, and recently
/// called code is faster.
async fn fan_out(group: Group, place: Place, era: Era) -> Group {
    let (composite, names) = composite_client(true, place, era).await;
    let (composite_without_report, _) = composite_client(false, place, era).await;
    let (by_hand, by_hand_behind) = by_hand(&names, true, place, era).await;
    let (by_hand_without_report, without_report_behind) =
        self::by_hand(&names, false, place, era).await;
    let join_all_behind = peers(place, era).await;
    let join_all = connect(JoinAll(join_all_behind.iter().map(peer).collect()), era).await;

    assert_same(&composite, &by_hand).await;
    assert_same(&composite_without_report, &by_hand_without_report).await;
    group
        .case("by_hand", calls(&by_hand, ALL))
        .case("ours", calls(&composite, ALL))
        .against("by_hand")
        .case("join_all", calls(&join_all, ALL))
        .case("by_hand_without_report", calls(&by_hand_without_report, ALL))
        .case("ours_without_report", calls(&composite_without_report, ALL))
        .against("by_hand_without_report")
        .against("join_all")
        .keep([by_hand_behind, without_report_behind, join_all_behind])
        .keep([composite, composite_without_report, by_hand, by_hand_without_report, join_all])
}

/// Returns a client of a composite over four backends, and the names of their tools.
async fn composite_client(report: bool, place: Place, era: Era) -> (Client, Arc<[String]>) {
    let router = router(WIDTH, place, era).await;
    let names: Arc<[String]> = router
        .backends()
        .map(|backend| router.exposed_name(backend, TOOL).expect("there is this backend"))
        .collect();
    let all = CompositeTool::new(
        ALL,
        "Calls all tools",
        FanOut::new(names.to_vec()).report(report).labels(Labels::Meta),
    );
    (composite(router, [all], era).await, names)
}

/// Returns the same without this crate, and the clients behind it.
async fn by_hand(
    names: &Arc<[String]>,
    report: bool,
    place: Place,
    era: Era,
) -> (Client, Vec<Client>) {
    let behind = peers(place, era).await;
    let peers = behind.iter().map(peer).collect();
    (connect(SameAnswer { peers, names: names.clone(), report }, era).await, behind)
}

async fn peers(place: Place, era: Era) -> Vec<Client> {
    let mut peers = Vec::new();
    for _ in 0..WIDTH {
        peers.push(backend::peer(place, era).await);
    }
    peers
}

fn peer(client: &Client) -> Peer<RoleClient> {
    client.peer().clone()
}

/// A call that passes through a server on its way to its backend.
async fn hop(group: Group, era: Era) -> Group {
    let direct = backend::peer(Place::Memory, era).await;
    let behind = backend::peer(Place::Memory, era).await;
    let by_hand = connect(Forwarder(behind.peer().clone()), era).await;
    let router = router(1, Place::Memory, era).await;
    let tool = router.exposed_name("b0", TOOL).expect("there is this backend");
    let gateway = connect(ServeService::new(router.clone(), description()), era).await;
    let composites = (0..10)
        .map(|index| CompositeTool::fan_out(format!("all_{index}"), "Calls a tool", [&*tool]));
    let gateway_with_composites = composite(router, composites, era).await;
    group
        .case("direct", calls(&direct, TOOL))
        .case("by_hand", calls(&by_hand, TOOL))
        .against("direct")
        .case("ours", calls(&gateway, &tool))
        .against("direct")
        .against("by_hand")
        .case("ours_with_10_composites", calls(&gateway_with_composites, &tool))
        .against("by_hand")
        .keep((behind, [direct, by_hand, gateway, gateway_with_composites]))
}

/// A call from this process, with no server between it and the backend.
async fn call_from_here(group: Group, era: Era) -> Group {
    let peer = backend::peer(Place::Memory, era).await;
    let remote = backend::remote("b0", Place::Memory, era).await;
    let router = router(1, Place::Memory, era).await;
    let through = |service: RemoteService| {
        move || {
            let service = service.clone();
            async move {
                let reply = service.oneshot(params(TOOL).into()).await.expect("it is connected");
                reply.tool_result().expect("the tool answers");
            }
        }
    };
    let through_router = {
        let tool = router.exposed_name("b0", TOOL).expect("there is this backend");
        move || {
            let (router, tool) = (router.clone(), tool.clone());
            async move {
                let reply = router.oneshot(params(&tool).into()).await.expect("it is connected");
                reply.tool_result().expect("the tool answers");
            }
        }
    };
    group
        .case("peer", calls(&peer, TOOL))
        .case("remote", through(remote))
        .against("peer")
        .case("router", through_router)
        .against("peer")
        .keep(peer)
}

// === Fixtures ===

/// Returns a router over the given number of backends with one tool each, all of them connected.
async fn router(width: usize, place: Place, era: Era) -> Router {
    let mut router = Router::builder();
    for index in 0..width {
        let name = format!("b{index}");
        let remote = backend::remote(&name, place, era).await;
        let described = remote.clone();
        let describe = move || {
            described.server_info().map(|info| ServerConfig::new(info.capabilities.clone()))
        };
        router = router.backend(Backend::new(name, remote).description(describe));
    }
    router.build().expect("the names are sound")
}

/// Returns a client of a server that has these composites over a router.
async fn composite(
    router: Router,
    composites: impl IntoIterator<Item = CompositeTool>,
    era: Era,
) -> Client {
    let layer = CompositeLayer::new(composites).expect("the composites are sound");
    let service: Composite<Router> = layer.layer(router);
    // Fills the catalog.
    service.clone().oneshot(Request::list_tools()).await.expect("there are tools");
    connect(ServeService::new(service, description()), era).await
}

fn description() -> ServerConfig {
    ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
}

/// Calls a tool over a connection.
fn calls(
    client: &Client,
    tool: &str,
) -> impl Fn() -> futures::future::BoxFuture<'static, ()> + Clone + Send + Sync + use<> {
    let (peer, tool): (_, Arc<str>) = (client.peer().clone(), tool.into());
    move || {
        let (peer, tool) = (peer.clone(), tool.clone());
        Box::pin(async move { call(&peer, &tool).await })
    }
}

/// Asserts that two servers return the same answer, except for times.
async fn assert_same(one: &Client, other: &Client) {
    let mut answers = Vec::new();
    for client in [one, other] {
        let result = client.peer().call_tool(params(ALL)).await.expect("the call succeeds");
        let mut result = serde_json::to_value(result).expect("results are JSON");
        for step in result["_meta"][TRACE].as_array_mut().into_iter().flatten() {
            step["started_ms"] = Value::Null;
            step["duration_ms"] = Value::Null;
        }
        answers.push(result);
    }
    assert_eq!(answers[0], answers[1]);
}

// === impl Subject ===

impl Subject {
    const fn name(self) -> &'static str {
        match self {
            Self::FanOut(Place::Memory) => "memory",
            Self::FanOut(Place::Child) => "stdio",
            Self::Hop => "hop",
            Self::Call => "call",
        }
    }
}
