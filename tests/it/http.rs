//! Streamable HTTP, over real sockets, so time cannot be paused.

use std::{
    fmt::Write as _,
    future,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::serve::ListenerExt;
use mcp_composite::{
    adapter::ServeService,
    changes::Changes,
    composite::{CompositeLayer, CompositeTool},
    filter::FilterLayer,
    message::{Reply, Request},
    pattern::Selection,
};
use rmcp::{
    ClientServiceExt, ErrorData, RoleClient, RoleServer, ServerHandler,
    model::*,
    service::{PeerRequestOptions, RequestContext, RequestHandle, RunningService},
    transport::{
        StreamableHttpClientTransport,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc::UnboundedReceiver,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, layer::util::Identity, service_fn};

use crate::support::{Era, Human, Hung, soon, tool, unusual};

const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];

/// A server that listens on its own port until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Stops everything that the server runs.
    shutdown: CancellationToken,
    _serving: JoinSet<()>,
}

type Client = RunningService<RoleClient, Human>;

pub(crate) async fn serve<S: ServerHandler + Clone>(server: S, sessions: bool) -> Server {
    let shutdown = CancellationToken::new();
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(sessions)
        // A server detects a closed connection by writing.
        .with_sse_keep_alive(Some(Duration::from_millis(50)))
        .with_cancellation_token(shutdown.clone());
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    listen(axum::Router::new().fallback_service(service), shutdown).await
}

pub(crate) async fn listen(router: axum::Router, shutdown: CancellationToken) -> Server {
    listen_at(([127, 0, 0, 1], 0).into(), router, shutdown).await
}

pub(crate) async fn listen_at(
    address: SocketAddr,
    router: axum::Router,
    shutdown: CancellationToken,
) -> Server {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener.tap_io(send_at_once), router).await.unwrap() });
    Server { address, shutdown, _serving: serving }
}

/// Sends each part of an answer without waiting for the acknowledgement of the previous one.
pub(crate) fn send_at_once(stream: &mut TcpStream) {
    stream.set_nodelay(true).unwrap();
}

impl Server {
    async fn connect(&self, era: Era) -> Client {
        let transport =
            StreamableHttpClientTransport::from_uri(format!("http://{}/", self.address));
        soon(Human::default().serve_with_lifecycle(transport, era.lifecycle())).await.unwrap()
    }

    /// Sends a request of a client of 2026-07-28, with more headers.
    pub(crate) async fn post(
        &self,
        method: &str,
        params: Value,
        headers: &[(&str, &str)],
    ) -> TcpStream {
        let mut params = params;
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "raw", "version": "0" });
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let name = params["name"].as_str().map(|name| ("Mcp-Name", name.to_owned()));
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let body = body.to_string();
        let mut request = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n",
            self.address,
            body.len()
        );
        let given = headers.iter().map(|(name, value)| (*name, (*value).to_owned()));
        for (name, value) in name.into_iter().chain(given) {
            write!(request, "{name}: {value}\r\n").unwrap();
        }
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        send_at_once(&mut stream);
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).await.unwrap();
        stream
    }
}

/// Reads the response of a server until it closes the connection.
pub(crate) async fn read(mut stream: TcpStream) -> String {
    let mut text = String::new();
    soon(stream.read_to_string(&mut text)).await.unwrap();
    text
}

async fn send(client: &Client, method: &str, params: Value) -> Value {
    let request = json!({ "method": method, "params": params });
    let request: ClientRequest = serde_json::from_value(request).unwrap();
    serde_json::to_value(soon(client.send_request(request)).await.unwrap()).unwrap()
}

/// Waits for data of a socket.
async fn until(what: impl Fn() -> bool) {
    soon(async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn hang(
    client: &Client,
    calls: &mut UnboundedReceiver<Hung>,
) -> (RequestHandle<RoleClient>, Vec<Hung>) {
    let call = CallToolRequest::new(CallToolRequestParams::new("stuck"));
    let options = PeerRequestOptions::no_options();
    let handle = client.send_cancellable_request(call.into(), options).await.unwrap();
    (handle, vec![soon(calls.recv()).await.unwrap(), soon(calls.recv()).await.unwrap()])
}

async fn all_ended(hung: Vec<Hung>) {
    for hung in hung {
        hung.ended().await;
    }
}

fn composites() -> CompositeLayer {
    CompositeLayer::new([
        CompositeTool::fan_out("stuck", "Hangs twice", ["hang"; 2]),
        CompositeTool::fan_out("mixed", "Some work", ["fine", "panic"]),
    ])
    .unwrap()
}

#[tokio::test]
async fn older_and_newer_clients_call_composites_of_one_server() {
    for sessions in [true, false] {
        let (handler, _calls) = unusual();
        let server = serve(ServeService::wrap(handler, composites()), sessions).await;
        let clients = [server.connect(Era::Legacy).await, server.connect(Era::Modern).await];
        for round in 0..3 {
            for (client, era) in clients.iter().zip(BOTH) {
                let tools = soon(client.list_all_tools()).await.unwrap();
                let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
                assert_eq!(names, ["hang", "panic", "fine", "stuck", "mixed"], "{round}");

                let result = send(client, "tools/call", json!({ "name": "mixed" })).await;
                let branches = &result["structuredContent"]["branches"];
                assert_eq!(branches["fine"]["output"], "fine");
                assert_eq!(branches["panic"]["error"]["kind"], "panic");
                let result_type = result.get("resultType").and_then(Value::as_str);
                assert_eq!(result_type, (era == Era::Modern).then_some("complete"));
            }
        }
    }
}

#[tokio::test]
async fn client_cancellation_stops_every_target() {
    for era in BOTH {
        let (handler, mut calls) = unusual();
        let server = serve(ServeService::wrap(handler, composites()), true).await;
        let client = server.connect(era).await;
        let (handle, hung) = hang(&client, &mut calls).await;
        handle.cancel(Some("changed my mind".to_owned())).await.unwrap();
        all_ended(hung).await;
        send(&client, "tools/call", json!({ "name": "fine" })).await;
    }
}

#[tokio::test]
async fn abandoned_response_cancels_all_targets() {
    let (handler, mut calls) = unusual();
    let server = serve(ServeService::wrap(handler, composites()), true).await;
    let stream = server.post("tools/call", json!({ "name": "stuck" }), &[]).await;
    let hung = vec![soon(calls.recv()).await.unwrap(), soon(calls.recv()).await.unwrap()];
    drop(stream);
    all_ended(hung).await;
}

#[tokio::test]
async fn server_shutdown_cancels_targets_and_blocks_new_calls() {
    for era in BOTH {
        let (handler, mut calls) = unusual();
        let server = serve(ServeService::wrap(handler, composites()), true).await;
        let client = server.connect(era).await;
        let (_handle, hung) = hang(&client, &mut calls).await;
        server.shutdown.cancel();
        all_ended(hung).await;
        let answer = server.post("tools/call", json!({ "name": "fine" }), &[]).await;
        let answer = read(answer).await;
        assert!(!answer.contains("isError"), "{answer}");
    }
}

/// Reports progress under the token of its client, then takes a moment.
#[derive(Clone)]
struct Progressing;

impl ServerHandler for Progressing {
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(["x", "y"].map(tool).into()))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let token = cx.meta.get_progress_token().unwrap();
        for progress in [1.0, 2.0] {
            let params = ProgressNotificationParam::new(token.clone(), progress);
            cx.peer.notify_progress(params).await.unwrap();
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        Ok(CallToolResult::success(vec![]).into())
    }
}

#[tokio::test]
async fn direct_call_reports_progress() {
    for era in BOTH {
        let server = serve(ServeService::wrap(Progressing, Identity::new()), true).await;
        let client = server.connect(era).await;
        send(&client, "tools/call", json!({ "name": "x" })).await;
        let log = client.service().log.clone();
        until(|| log.lines().len() == 2).await;
        assert!(log.has("progress 1") && log.has("progress 2"));
    }
}

#[tokio::test]
async fn composite_reports_the_progress_of_its_targets() {
    let both = CompositeTool::fan_out("both", "Both of them", ["x", "y"]);
    let layer = CompositeLayer::new([both]).unwrap();
    for (era, sessions) in [(Era::Modern, true), (Era::Legacy, true), (Era::Legacy, false)] {
        let server = serve(ServeService::wrap(Progressing, layer.clone()), sessions).await;
        let client = server.connect(era).await;
        send(&client, "tools/call", json!({ "name": "both" })).await;
        let log = client.service().log.clone();
        // Each target reports two thirds of its work, after which both wait.
        until(|| log.lines().iter().any(|line| line.starts_with("progress 1.3333"))).await;
    }

    let server = serve(ServeService::wrap(Progressing, layer), true).await;
    let call = json!({ "name": "both", "_meta": { "progressToken": "mine" } });
    let answer = read(server.post("tools/call", call, &[]).await).await;
    let events = answer.lines().filter_map(|line| line.strip_prefix("data: {"));
    let events: Vec<Value> =
        events.map(|event| serde_json::from_str(&format!("{{{event}")).unwrap()).collect();
    let (last, progress) = events.split_last().unwrap();
    assert_eq!(last["result"]["isError"], false, "{answer}");
    let values: Vec<_> =
        progress.iter().map(|event| event["params"]["progress"].as_f64()).collect();
    assert!(values.len() > 1 && values.is_sorted_by(|one, next| one < next), "{answer}");
    assert!(progress.iter().all(|event| event["params"]["progressToken"] == "mine"), "{answer}");
}

// === Changes ===

/// A server that acknowledges everything and records it.
fn acknowledging(changes: &Changes) -> (impl ServerHandler + Clone, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let service = service_fn(move |request: Request| {
        let message = serde_json::to_value(request.message()).unwrap();
        let uri = message["params"]["uri"].as_str().unwrap_or_default();
        noted.lock().unwrap().push(format!("{} {uri}", request.method()));
        future::ready(Ok::<_, BoxError>(Reply::from(ServerResult::empty(()))))
    });
    let capabilities = ServerCapabilities::builder()
        .enable_tools()
        .enable_resources()
        .enable_resources_subscribe()
        .build();
    let served = ServeService::new(service, ServerConfig::new(capabilities));
    (served.changes(changes.clone()), seen)
}

#[tokio::test]
async fn session_receives_changes_and_updates_of_its_resources() {
    let changes = Changes::default();
    let (served, seen) = acknowledging(&changes);
    let server = serve(served, true).await;
    let one = server.connect(Era::Legacy).await;
    let other = server.connect(Era::Legacy).await;
    send(&one, "resources/subscribe", json!({ "uri": "a" })).await;
    send(&other, "resources/subscribe", json!({ "uri": "b" })).await;

    changes.resource_updated("a");
    changes.resource_updated("b");
    changes.tools().bump();
    for (client, uri) in [(&one, "updated a"), (&other, "updated b")] {
        let log = &client.service().log;
        until(|| log.has("updated") && log.has("tools changed")).await;
        assert!(log.has(uri) && log.lines().len() == 2, "{:?}", log.lines());
    }

    // The end of a session ends its subscriptions, and no others.
    one.cancel().await.unwrap();
    let is_unsubscribed =
        || seen.lock().unwrap().iter().any(|line| line == "resources/unsubscribe a");
    until(is_unsubscribed).await;
    let seen = seen.lock().unwrap().clone();
    assert!(!seen.iter().any(|line| line == "resources/unsubscribe b"), "{seen:?}");
}

#[tokio::test]
async fn newer_client_receives_changes_until_its_stream_ends() {
    let changes = Changes::default();
    let (served, seen) = acknowledging(&changes);
    let server = serve(served, true).await;
    let client = server.connect(Era::Modern).await;
    let filter =
        SubscriptionFilter::builder().tools_list_changed().resource_subscription("a").build();
    let mut stream = soon(client.listen(filter.clone())).await.unwrap();
    assert_eq!(stream.acknowledged(), &filter);
    changes.tools().bump();
    let notification = soon(stream.next()).await.unwrap().unwrap();
    assert!(
        matches!(notification, ServerNotification::ToolListChangedNotification(_)),
        "{notification:?}"
    );
    changes.resource_updated("a");
    let notification = soon(stream.next()).await.unwrap().unwrap();
    assert!(
        matches!(notification, ServerNotification::ResourceUpdatedNotification(_)),
        "{notification:?}"
    );

    drop(stream);
    until(|| seen.lock().unwrap().iter().any(|line| line == "resources/unsubscribe a")).await;
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen, ["resources/subscribe a", "resources/unsubscribe a"]);
}

#[tokio::test]
async fn clients_without_sessions_stay_isolated() {
    // Without sessions, each request has its own server.
    let changes = Changes::default();
    let (served, seen) = acknowledging(&changes);
    let server = serve(served, false).await;
    let one = server.connect(Era::Legacy).await;
    let other = server.connect(Era::Legacy).await;
    send(&one, "resources/subscribe", json!({ "uri": "a" })).await;
    // The client cannot be notified, so it does not remain subscribed.
    until(|| seen.lock().unwrap().iter().any(|line| line == "resources/unsubscribe a")).await;
    changes.resource_updated("a");
    changes.tools().bump();
    send(&other, "resources/subscribe", json!({ "uri": "a" })).await;
    let seen = seen.lock().unwrap().clone();
    let subscribed = seen.iter().filter(|line| *line == "resources/subscribe a").count();
    assert_eq!(subscribed, 2, "{seen:?}");
    for client in [one, other] {
        assert_eq!(client.service().log.lines(), [""; 0]);
    }
}

// === Headers ===

/// A tool with a property that clients repeat in a header, and one without.
#[derive(Clone)]
struct Regional;

impl ServerHandler for Regional {
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let region = json!({ "type": "string", "x-mcp-header": "Region" });
        let schema = json!({ "type": "object", "properties": { "region": region } });
        let regional = Tool::new("regional", "", Arc::new(schema.as_object().unwrap().clone()));
        Ok(ListToolsResult::with_all_items(vec![regional, tool("fine")]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::structured(json!(call.arguments)).into())
    }
}

#[tokio::test]
async fn call_headers_are_checked_against_the_listed_tool() {
    let composite = CompositeTool::fan_out("both", "All regions", ["regional", "fine"]);
    let layer = CompositeLayer::new([composite]).unwrap();
    let served: ServeService<_> = ServeService::wrap(Regional, layer);
    let server = serve(served.clone(), true).await;
    let call = |name| json!({ "name": name, "arguments": { "region": "north" } });

    // A stock client sends the header, since it has listed the tool.
    let client = server.connect(Era::Modern).await;
    let tools = soon(client.list_all_tools()).await.unwrap();
    assert!(served.get_tool("regional").is_some());
    let result = send(&client, "tools/call", call("regional")).await;
    assert_eq!(result["structuredContent"]["region"], "north");

    let answer = read(server.post("tools/call", call("regional"), &[]).await).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("-32020"), "{answer}");
    let header = [("Mcp-Param-Region", "south")];
    let answer = read(server.post("tools/call", call("regional"), &header).await).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("-32020"), "{answer}");

    // The target's headers are not part of the composite's own schema.
    let both = tools.iter().find(|tool| tool.name == "both").unwrap();
    assert_eq!(both.input_schema["properties"]["region"], json!({ "type": "string" }));
    let answer = read(server.post("tools/call", call("both"), &[]).await).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("north"), "{answer}");
    let result = send(&client, "tools/call", call("both")).await;
    assert_eq!(result["isError"], false);
}

#[cfg(feature = "http")]
#[tokio::test]
async fn headers_of_the_first_call_are_checked() {
    let call = |name, region| json!({ "name": name, "arguments": { "region": region } });
    let region = |value| [("Mcp-Param-Region", value)];
    for sessions in [true, false] {
        let refused: [&[_]; 3] = [&[], &region("south"), &region("=?base64?bm9ydG?=")];
        for headers in refused {
            let server = serve(ServeService::wrap(Regional, Identity::new()), sessions).await;
            let call = server.post("tools/call", call("regional", json!("north")), headers);
            let answer = read(call.await).await;
            let is_refused = answer.starts_with("HTTP/1.1 400") && answer.contains("-32020");
            assert!(is_refused, "{headers:?}: {answer}");
            assert!(!answer.contains("structuredContent"), "{headers:?}: {answer}");
        }
        let accepted: [(Value, &[_]); 3] = [
            (json!("north"), &region("north")),
            (json!("north"), &region("=?base64?bm9ydGg=?=")),
            (Value::Null, &[]),
        ];
        for (value, headers) in accepted {
            let server = serve(ServeService::wrap(Regional, Identity::new()), sessions).await;
            let call = server.post("tools/call", call("regional", value), headers);
            let answer = read(call.await).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{headers:?}: {answer}");
        }
    }

    // A tool without such properties, and a header of no tool.
    let server = serve(ServeService::wrap(Regional, Identity::new()), true).await;
    let call = call("fine", json!("north"));
    let answer = read(server.post("tools/call", call, &region("south")).await).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[cfg(feature = "http")]
#[tokio::test]
async fn headers_of_the_first_call_after_a_change_are_checked() {
    let changes = Changes::default();
    let served = ServeService::wrap(Regional, Identity::new()).changes(changes.clone());
    let server = serve(served.clone(), true).await;
    let client = server.connect(Era::Modern).await;
    soon(client.list_all_tools()).await.unwrap();
    changes.tools().bump();
    assert_eq!(served.get_tool("regional"), None);

    let call = json!({ "name": "regional", "arguments": { "region": "north" } });
    let answer = read(server.post("tools/call", call, &[]).await).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("-32020"), "{answer}");
    assert!(answer.contains("Mcp-Param-Region"), "{answer}");
}

#[cfg(feature = "http")]
#[tokio::test]
async fn call_without_header_annotations_does_not_wait_for_a_listing() {
    use tokio::sync::Semaphore;

    let allowed = Arc::new(Semaphore::new(1));
    let is_changed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (gate, changed) = (allowed.clone(), is_changed.clone());
    let service = service_fn(move |request: Request| {
        let (gate, changed) = (gate.clone(), changed.clone());
        async move {
            if request.method() != "tools/list" {
                return Ok::<_, BoxError>(CallToolResult::structured(json!({})).into());
            }
            gate.acquire().await?.forget();
            let mut listed = tool("fine");
            if changed.load(std::sync::atomic::Ordering::Relaxed) {
                let region = json!({ "type": "string", "x-mcp-header": "Region" });
                let schema = json!({ "type": "object", "properties": { "region": region } });
                listed.input_schema = Arc::new(schema.as_object().unwrap().clone());
            }
            Ok(Reply::from(ListToolsResult::with_all_items(vec![listed])))
        }
    });
    let changes = Changes::default();
    let served = ServeService::new(service, ServerConfig::default()).changes(changes.clone());
    let server = serve(served.clone(), true).await;
    let status = async || {
        let call = json!({ "name": "fine", "arguments": { "region": "north" } });
        let answer = soon(async { read(server.post("tools/call", call, &[]).await).await }).await;
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status().await, "200");
    assert_eq!(allowed.available_permits(), 0, "the first call has listed the tools");

    is_changed.store(true, std::sync::atomic::Ordering::Relaxed);
    changes.tools().bump();
    assert_eq!(status().await, "200");
    assert_eq!(status().await, "200", "they are being listed");
    allowed.add_permits(1);
    soon(async {
        while served.get_tool("fine").is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(status().await, "400");
}

/// A client that invents names does not cause a listing for each call.
#[cfg(feature = "http")]
#[tokio::test]
async fn calls_of_unknown_tools_share_a_listing() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    let lists = Arc::new(AtomicUsize::new(0));
    let counted = lists.clone();
    let service = service_fn(move |request: Request| {
        let reply = match request.method() {
            "tools/list" => {
                counted.fetch_add(1, Ordering::Relaxed);
                Reply::from(ListToolsResult::with_all_items(vec![tool("fine")]))
            }
            _ => Reply::from(CallToolResult::structured(json!({}))),
        };
        future::ready(Ok::<_, BoxError>(reply))
    });
    let changes = Changes::default();
    let served = ServeService::new(service, ServerConfig::default()).changes(changes.clone());
    let server = serve(served, true).await;
    let begun = tokio::time::Instant::now();
    let call = async |number: usize, headers: &[_]| {
        let call = json!({ "name": format!("invented_{number}"), "arguments": {} });
        let answer = read(server.post("tools/call", call, headers).await).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    let counted = || lists.load(Ordering::Relaxed);
    // One more for each second that the calls take.
    let allowed = |lists: usize| lists + usize::try_from(begun.elapsed().as_secs()).unwrap();

    join_all((0..20).map(|number| call(number, &[]))).await;
    assert!((1..=allowed(1)).contains(&counted()), "{} listings", counted());

    // Clients with other credentials may see other tools, and changed tools are different.
    let before = counted();
    call(0, &[("Authorization", "Bearer other")]).await;
    assert!(counted() > before);
    changes.tools().bump();
    let before = counted();
    join_all((0..20).map(|number| call(number, &[]))).await;
    assert!((before + 1..=before + allowed(1)).contains(&counted()), "{} listings", counted());
}

#[tokio::test]
async fn calls_are_forwarded_if_listing_fails() {
    let service = service_fn(|request: Request| {
        let reply = match request.method() {
            "tools/call" => Reply::from(CallToolResult::structured(json!({ "region": "north" }))),
            method => Reply::from(ErrorData::internal_error(format!("no `{method}`"), None)),
        };
        future::ready(Ok::<_, BoxError>(reply))
    });
    let server = serve(ServeService::new(service, ServerConfig::default()), true).await;
    let call = json!({ "name": "regional", "arguments": { "region": "north" } });
    let header = [("Mcp-Param-Region", "south")];
    let answer = read(server.post("tools/call", call, &header).await).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("north"), "{answer}");
}

#[tokio::test]
async fn headers_do_not_reveal_a_hidden_tool() {
    let layer = FilterLayer::new().tools(Selection::default().deny(["regional"]).unwrap());
    let server = serve(ServeService::wrap(Regional, layer), true).await;
    let call = json!({ "name": "regional", "arguments": { "region": "north" } });
    let answer = read(server.post("tools/call", call, &[]).await).await;
    assert!(answer.contains("-32602") && !answer.contains("Region"), "{answer}");
}

// === Connections ===

#[cfg(feature = "http")]
#[tokio::test]
async fn calls_in_sequence_share_a_tcp_connection() {
    use mcp_composite::{adapter::RemoteService, message::Request};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::ServiceExt;

    const CALLS: usize = 10;

    for answers_json in [true, false] {
        let config = StreamableHttpServerConfig::default().with_json_response(answers_json);
        let sessions = Arc::new(LocalSessionManager::default());
        let service = StreamableHttpService::new(|| Ok(Regional), sessions, config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = accepted.clone();
        let listener = listener.tap_io(move |stream| {
            counted.fetch_add(1, Ordering::Relaxed);
            send_at_once(stream);
        });
        let mut serving = JoinSet::new();
        let router = axum::Router::new().fallback_service(service);
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });

        let remote = RemoteService::builder("regional").http(&url, []);
        soon(remote.connected()).await.unwrap();
        // The end of a response is read after the call. On a busy machine, the next call may come
        // before it, and opens another connection.
        crate::support::until(async || {
            let before = accepted.load(Ordering::Relaxed);
            for _ in 0..CALLS {
                soon(remote.clone().oneshot(Request::call_tool("fine"))).await.unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            accepted.load(Ordering::Relaxed) - before <= 2
        })
        .await;
    }
}

#[cfg(feature = "http")]
#[tokio::test]
async fn redirect_to_another_origin_is_not_followed() {
    use axum::response::Redirect;
    use mcp_composite::adapter::RemoteService;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    let other = axum::Router::new().fallback(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        future::ready("reached")
    });
    let other = listen(other, CancellationToken::new()).await;
    let url = format!("http://{}/mcp", other.address);
    let moved = axum::Router::new().fallback(move || future::ready(Redirect::temporary(&url)));
    let moved = listen(moved, CancellationToken::new()).await;

    let remote = RemoteService::builder("moved").http(&format!("http://{}/mcp", moved.address), []);
    soon(remote.connected()).await.unwrap_err();
    assert_eq!(requests.load(Ordering::Relaxed), 0);
}

#[cfg(feature = "http")]
#[tokio::test]
async fn connection_to_a_metadata_address_is_refused() {
    use mcp_composite::adapter::RemoteService;

    // The decimal notation of 169.254.169.254, which the check of files does not recognize.
    let remote = RemoteService::builder("cloud").http("http://2852039166/mcp", []);
    let error = soon(remote.connected()).await.unwrap_err();
    assert!(
        error.contains("connection to 169.254.169.254 refused: a link-local or metadata address"),
        "{error}"
    );
}

// === Servers that end their streams ===

/// Returns the time until a stream is opened for the third time, of a server whose streams end in
/// this way as soon as they begin.
#[cfg(feature = "http")]
async fn third_stream_opened(end: fn() -> axum::response::Response) -> Duration {
    use axum::{
        http::{StatusCode, header::CONTENT_TYPE},
        response::IntoResponse,
        routing,
    };
    use mcp_composite::adapter::RemoteService;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let opened = Arc::new(AtomicUsize::new(0));
    let counted = opened.clone();
    let get = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { end() }
    };
    let is_json = (CONTENT_TYPE, "application/json");
    let post = move |body: String| async move {
        let message: Value = serde_json::from_str(&body).unwrap();
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "brief", "version": "1" },
            }),
            Some("tools/list") => json!({ "tools": [] }),
            Some(_) if message.get("id").is_some() => {
                let error = json!({ "code": -32601, "message": "method not found" });
                let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
                return ([is_json], answer.to_string()).into_response();
            }
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        ([is_json], [("mcp-session-id", "one")], answer.to_string()).into_response()
    };
    let routes = axum::Router::new().route("/mcp", routing::get(get).post(post));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, routes).await });

    let begun = tokio::time::Instant::now();
    let remote = RemoteService::builder("brief").http(&url, []);
    soon(remote.connected()).await.unwrap();
    until(|| opened.load(Ordering::Relaxed) >= 3).await;
    begun.elapsed()
}

#[cfg(feature = "http")]
#[tokio::test]
async fn server_that_ends_its_streams_is_reconnected_after_a_pause() {
    use axum::{
        body::{Body, Bytes},
        http::{HeaderName, header::CONTENT_TYPE},
        response::IntoResponse,
    };

    use futures::stream::{self, StreamExt};

    const EVENTS: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "text/event-stream")];
    let at_once = || (EVENTS, "retry: 0\nid: 1\ndata:\n\n").into_response();
    let broken = || {
        let begin = Ok(Bytes::from("retry: 0\nid: 1\ndata:\n\n"));
        let break_off = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Err("broken off")
        };
        let chunks = stream::once(future::ready(begin)).chain(stream::once(break_off));
        (EVENTS, Body::from_stream(chunks)).into_response()
    };
    let third = futures::future::join(third_stream_opened(at_once), third_stream_opened(broken));
    let (ended, broke) = third.await;
    for elapsed in [ended, broke] {
        assert!(elapsed >= Duration::from_secs(2), "two pauses take {elapsed:?}");
    }
}
