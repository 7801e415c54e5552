//! The size of results that leave a stack.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    task,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use mcp_composite::{
    adapter::ServeService,
    changes::Epoch,
    composite::{CompositeLayer, CompositeTool, Step, ToolCall},
    message::{Context, Reply, Request},
    stack::StackLayer,
    store::{MemoryStore, PutError, Store, TakeError},
    testing,
    truncate::{RESULTS, SHORTENED, TruncateLayer},
};
use rmcp::{ErrorData, RoleServer, ServerHandler, model::*, service::RequestContext};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::{
    scripted::{Answer, Server, object},
    support::{Era, connect},
};

fn truncate(bytes: usize) -> TruncateLayer {
    TruncateLayer::new().max_result_bytes(bytes)
}

fn kept() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::for_results())
}

/// Returns the caller of a context.
fn caller(context: &Context) -> Option<String> {
    context.extensions().get::<&str>().map(|caller| (*caller).to_owned())
}

fn by(mut request: Request, caller: &'static str) -> Request {
    request.context_mut().extensions_mut().insert(caller);
    request
}

fn read(uri: &str) -> Request {
    let params = ReadResourceRequestParams::new(uri);
    Request::new(ReadResourceRequest::new(params), Context::default())
}

/// Returns the URI of a resource link in a result.
fn link(result: &CallToolResult) -> Option<&str> {
    let mut links = result.content.iter().filter_map(ContentBlock::as_resource_link);
    links.next().map(|link| &*link.uri)
}

fn contents(reply: &Reply) -> &str {
    match reply.result() {
        Some(ServerResult::ReadResourceResult(read)) => match &read.contents[0] {
            ResourceContents::TextResourceContents { text, .. } => text,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn json_bytes(result: &CallToolResult) -> usize {
    serde_json::to_vec(result).expect("JSON").len()
}

/// A tool whose output has a `log` and a `status` of at most 9 characters.
fn promising() -> Tool {
    let schema = json!({
        "type": "object",
        "required": ["log", "status"],
        "properties": {
            "log": { "type": "array", "minItems": 2, "items": { "type": "string" } },
            "status": { "enum": ["well"] },
        },
    });
    Tool::new("logs", "Logs", object(json!({ "type": "object" })))
        .with_raw_output_schema(Arc::new(object(schema)))
}

fn logs() -> Answer {
    Answer::structured(json!({ "log": vec!["x".repeat(5_000); 9], "status": "well" }))
}

/// A store that keeps nothing: it never answers, or is unavailable.
#[derive(Debug)]
enum NoStore {
    Hangs,
    Away,
}

impl Store for NoStore {
    fn put<'a>(
        &'a self,
        _: Vec<u8>,
        _: &'a [u8],
        _: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<String, PutError>> {
        match self {
            Self::Hangs => std::future::pending().boxed(),
            Self::Away => ready(Err(PutError::Unavailable("it rains".into()))).boxed(),
        }
    }

    fn take<'a>(
        &'a self,
        _: &'a str,
        _: &'a [u8],
        _: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        panic!("results are not taken")
    }

    fn get<'a>(
        &'a self,
        _: &'a str,
        _: &'a [u8],
        _: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        ready(Err(TakeError::Unavailable("it rains".into()))).boxed()
    }
}

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

    fn call(&mut self, _: Request) -> Self::Future {
        ready(Ok(CallToolResult::success(Vec::new()).into()))
    }
}

#[test]
fn layer_without_a_limit_allocates_nothing() {
    let allocations = |service: &mut dyn FnMut(Request) -> bool| {
        let request = Request::call_tool("leaf");
        allocation_counter::measure(|| assert!(service(request))).count_total
    };
    let mut bare = Leaf;
    let alone = allocations(&mut |request| bare.call(request).now_or_never().is_some());
    let mut layered = TruncateLayer::new().layer(Leaf);
    let behind = allocations(&mut |request| layered.call(request).now_or_never().is_some());
    assert_eq!(behind, alone);
}

#[tokio::test]
async fn result_within_the_limit_is_unchanged_without_listing() {
    let server = Server::new().tool_as(promising(), logs());
    let full = testing::call(&server, "logs", Value::Null).await;
    let service = truncate(json_bytes(&full)).layer(server.clone());
    assert_eq!(testing::call(&service, "logs", Value::Null).await, full);
    assert_eq!(server.lists(), 0);

    let service = truncate(json_bytes(&full) - 1).layer(server);
    assert_ne!(testing::call(&service, "logs", Value::Null).await, full);
}

#[tokio::test]
async fn truncated_result_fits_the_output_schema() {
    let server = Server::new().tool_as(promising(), logs());
    let service = truncate(2_000).layer(server.clone());
    for _ in 0..2 {
        let result = testing::call(&service, "logs", Value::Null).await;
        let content = result.structured_content.expect("it can be kept");
        assert_eq!(content["status"], "well");
        assert!(content["log"].as_array().unwrap().len() >= 2, "{content}");
    }
    assert_eq!(server.lists(), 1, "once for all");
}

#[tokio::test]
async fn text_is_truncated_without_listing_tools() {
    let server = Server::new().says("say", "x".repeat(9_000));
    let result = testing::call(&truncate(1_000).layer(server.clone()), "say", Value::Null).await;
    assert!(result.content[0].as_text().unwrap().text.ends_with("x…"));
    assert_eq!(server.lists(), 0);
}

#[tokio::test]
async fn indivisible_blocks_are_omitted_and_named() {
    let data = "QUJD".repeat(1_000);
    let blob = ResourceContents::blob(&data, "x:y").with_mime_type("application/pdf");
    let mut link = Resource::new(format!("x:{data}"), "long");
    link.mime_type = Some("text/plain".to_owned());
    let blocks = [
        (ContentBlock::image(&data, "image/png"), "image of type image/png, 3000 bytes"),
        (ContentBlock::audio(&data, "audio/wav"), "audio of type audio/wav, 3000 bytes"),
        (ContentBlock::resource(blob), "resource of type application/pdf, 3000 bytes"),
        (ContentBlock::resource_link(link), "link to a resource of type text/plain"),
    ];
    for (block, description) in blocks {
        let server = Server::new().tool("show", CallToolResult::success(vec![block]));
        let result = testing::call(&truncate(500).layer(server), "show", Value::Null).await;
        let text = &result.content[0].as_text().unwrap().text;
        assert_eq!(*text, format!("[left out: {description}]"));
    }
}

#[tokio::test]
async fn result_is_truncated_without_a_schema_if_listing_fails() {
    let server = Server::new().tool_as(promising(), logs());
    server.break_list("down");
    let result = testing::call(&truncate(1_000).layer(server), "logs", Value::Null).await;
    assert!(result.structured_content.is_some());
    assert!(result.meta.unwrap().contains_key(SHORTENED));
}

#[tokio::test]
async fn changed_schema_is_used_after_the_epoch_changes() {
    let epoch = Epoch::default();
    let server = Server::new().tool_as(promising(), logs());
    let service = truncate(1_000).epoch(epoch.clone()).layer(server.clone());
    let first = testing::call(&service, "logs", Value::Null).await;
    assert!(first.structured_content.is_some());
    let never = json!({ "properties": { "log": { "items": { "minLength": 5_000 } } } });
    server.add(promising().with_raw_output_schema(Arc::new(object(never))), logs());
    epoch.bump();
    // The old list is used until the new one has arrived.
    testing::call(&service, "logs", Value::Null).await;
    tokio::task::yield_now().await;
    server.until(|server| server.lists() == 2).await;
    let after = testing::call(&service, "logs", Value::Null).await;
    let content = after.structured_content.unwrap_or_default();
    let is_whole = |line: &Value| line.as_str().is_some_and(|line| line.len() == 5_000);
    assert!(content["log"].as_array().into_iter().flatten().all(is_whole), "{content}");
}

#[tokio::test]
async fn notices_describe_omitted_parts() {
    let server = Server::new().says("say", "x".repeat(90_000));
    let result = testing::call(&truncate(2_000).layer(server), "say", Value::Null).await;
    assert_eq!(result.content.len(), 2);
    let note = &result.content[1].as_text().unwrap().text;
    assert!(note.starts_with("this result was truncated: `/content/0` has "), "{note}");
    assert!(note.ends_with(" of 90000 bytes"), "{note}");
    assert_eq!(result.meta.unwrap()[SHORTENED]["count"], 1);
}

#[tokio::test]
async fn insignificant_whitespace_is_removed_first() {
    let content = json!({ "rows": vec![[1, 2, 3]; 100] });
    let mut answer = CallToolResult::success(vec![ContentBlock::text(format!("{content:#}"))]);
    answer.structured_content = Some(content.clone());
    let server = Server::new().tool("rows", answer);
    let result = testing::call(&truncate(2_000).layer(server), "rows", Value::Null).await;
    assert_eq!(result.content, [ContentBlock::text(content.to_string())]);
    assert_eq!((result.structured_content, result.meta), (Some(content), None));
}

#[test]
fn omitted_parts_are_not_copied() {
    let shortened = |rows: usize| {
        let row = |row: usize| json!({ "id": row, "names": ["a", "b"], "text": "x".repeat(50) });
        let content = json!({ "rows": (0..rows).map(row).collect::<Vec<_>>() });
        // For one call, and tools cannot be listed.
        let reply = Arc::new(Mutex::new(Some(Reply::from(CallToolResult::structured(content)))));
        let server = tower::service_fn(move |_: Request| {
            let reply = reply.lock().unwrap().take();
            ready(Ok::<_, Infallible>(reply.unwrap_or_else(|| Reply::method_not_found("none"))))
        });
        let mut service = truncate(4_000).layer(server);
        let mut call = || service.call(Request::call_tool("rows")).now_or_never();
        let mut answered = None;
        let allocated = allocation_counter::measure(|| answered = call());
        let reply = answered.expect("nothing to wait for").unwrap();
        assert!(reply.tool_result().unwrap().meta.is_some(), "it was shortened");
        allocated.count_total
    };
    assert!(shortened(20_000) < 2 * shortened(1_000));
}

#[tokio::test]
async fn pipeline_steps_receive_untruncated_results() {
    let server = Server::new().says("fetch", "x".repeat(50_000)).echoes("count");
    let pipeline = CompositeTool::pipeline(
        "both",
        "Fetch and count",
        [
            Step::new("fetch", "fetch"),
            Step::new(
                "count",
                ToolCall::new("count").arguments(json!({ "text": "$steps.fetch.text", "n": 1 })),
            ),
        ],
    );
    let service = StackLayer::new()
        .composite(CompositeLayer::new([pipeline]).unwrap())
        .truncate(truncate(3_000))
        .layer(server.clone());
    let result = testing::call(&service, "both", json!({})).await;
    let sent = server.arguments("count").unwrap();
    assert_eq!(sent["text"].as_str().unwrap().len(), 50_000);
    let content = result.structured_content.unwrap();
    assert_eq!(content["n"], 1);
    assert!(content["text"].as_str().unwrap().ends_with("x…"));
}

#[tokio::test]
async fn fan_out_branches_share_the_space_and_fit_the_schema() {
    let server = Server::new()
        .gives("small", json!({ "hits": [1, 2, 3] }))
        .gives("large", json!({ "hits": vec!["x".repeat(100); 5_000] }))
        .says("long", "y".repeat(50_000));
    let all = CompositeTool::fan_out("all", "All", ["small", "large", "long"]);
    let service = StackLayer::new()
        .composite(CompositeLayer::new([all]).unwrap())
        .truncate(truncate(8_000))
        .layer(server);
    let result = testing::call(&service, "all", json!({})).await;
    let branches = &result.structured_content.as_ref().unwrap()["branches"];
    assert_eq!(
        branches["small"],
        json!({ "status": "completed", "output": { "hits": [1, 2, 3] } })
    );
    let hits = branches["large"]["output"]["hits"].as_array().unwrap();
    assert!(hits.len() > 5 && hits.iter().all(|hit| hit.as_str().unwrap().len() == 100));
    assert!(branches["long"]["output"].as_str().unwrap().len() > 1_000);
    // The text of each JSON branch is that of its output.
    let texts: Vec<_> =
        result.content[..6].iter().map(|block| &block.as_text().unwrap().text).collect();
    assert_eq!([texts[0], texts[2], texts[4]], ["small:", "large:", "long:"]);
    assert_eq!(*texts[1], branches["small"]["output"].to_string());
    assert_eq!(*texts[3], branches["large"]["output"].to_string());
    assert!(texts[5].ends_with("y…"));

    let tools = testing::listed(&service).await;
    let tool = tools.iter().find(|tool| tool.name == "all").unwrap();
    let schema = Value::Object((**tool.output_schema.as_ref().unwrap()).clone());
    assert!(jsonschema::is_valid(&schema, result.structured_content.as_ref().unwrap()));
}

#[tokio::test]
async fn errors_and_questions_are_not_truncated() {
    let server = Server::new()
        .tool("error", Answer::error(-32000, "x".repeat(5_000)))
        .tool("asks", Answer::asks("name", "y".repeat(5_000)));
    let service = truncate(100).layer(server.clone());
    let error = testing::refused(&service, "error", Value::Null).await;
    assert_eq!(error.message.len(), 5_000);
    let reply = service.oneshot(Request::call_tool("asks")).await.unwrap();
    assert!(matches!(reply.result(), Some(ServerResult::InputRequiredResult(_))));
}

#[tokio::test]
async fn malformed_call_returns_an_error() {
    let request = Request::new(CustomRequest::new("tools/call", None), Context::default());
    let reply = truncate(100).layer(Server::new()).oneshot(request).await.unwrap();
    assert_eq!(reply.error().unwrap().message, "malformed `tools/call`");
}

// === Stored results ===

#[tokio::test]
async fn full_result_can_be_read_by_its_caller() {
    let server = Server::new().says("say", "x".repeat(9_000));
    let full = testing::call(&server, "say", Value::Null).await;
    let service = truncate(1_000).keep(kept()).caller(caller).layer(server);
    let call = by(Request::call_tool("say"), "alice");
    let reply = service.clone().oneshot(call).await.unwrap();
    let result = reply.tool_result().unwrap();
    let uri = link(result).expect("a link");
    assert!(uri.starts_with(RESULTS));
    for _ in 0..2 {
        let reply = service.clone().oneshot(by(read(uri), "alice")).await.unwrap();
        assert_eq!(contents(&reply), serde_json::to_string(&full).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn caller_with_many_results_evicts_its_own() {
    let server = Server::new().says("say", "x".repeat(9_000));
    let store = Arc::new(MemoryStore::for_results().max_total_bytes(100_000));
    let service = truncate(1_000).keep(store).caller(caller).layer(server);
    let uri = async |caller: Option<&'static str>| {
        tokio::time::advance(Duration::from_millis(1)).await;
        let call = Request::call_tool("say");
        let call = caller.map_or_else(|| call.clone(), |caller| by(call.clone(), caller));
        let reply = service.clone().oneshot(call).await.unwrap();
        link(reply.tool_result().unwrap()).expect("a link").to_owned()
    };
    let is_kept = async |uri: &str, caller: Option<&'static str>| {
        let read = read(uri);
        let read = caller.map_or_else(|| read.clone(), |caller| by(read.clone(), caller));
        service.clone().oneshot(read).await.unwrap().error().is_none()
    };
    let (bob, nameless) = (uri(Some("bob")).await, uri(Some("")).await);
    // All unknown callers share one key.
    for flooding in [Some("alice"), None] {
        let first = uri(flooding).await;
        for _ in 0..50 {
            uri(flooding).await;
        }
        assert!(!is_kept(&first, flooding).await, "{flooding:?}");
        assert!(is_kept(&uri(flooding).await, flooding).await, "{flooding:?}");
    }
    assert!(is_kept(&bob, Some("bob")).await);
    assert!(is_kept(&nameless, Some("")).await);
}

#[tokio::test(start_paused = true)]
async fn unusable_result_uris_all_return_the_same_error() {
    let server = Server::new().says("say", "x".repeat(9_000));
    let store = Arc::new(MemoryStore::for_results().ttl(Duration::from_secs(60)));
    let service = truncate(1_000).keep(store).caller(caller).layer(server.clone());
    let reply = service.clone().oneshot(by(Request::call_tool("say"), "alice")).await.unwrap();
    let uri = link(reply.tool_result().unwrap()).unwrap();
    let refused = async |request: Request| {
        let reply = service.clone().oneshot(request).await.unwrap();
        let error = reply.error().expect("a refusal").into_owned();
        (error.code, error.message)
    };
    let foreign = refused(by(read(uri), "bob")).await;
    assert_eq!(foreign.0, ErrorCode::RESOURCE_NOT_FOUND);
    assert_eq!(refused(read(uri)).await, foreign, "nobody is not alice");
    let unknown = format!("{RESULTS}{}", "0".repeat(64));
    assert_eq!(refused(by(read(&unknown), "alice")).await, foreign);
    assert_eq!(refused(by(read(RESULTS), "alice")).await, foreign);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(refused(by(read(uri), "alice")).await, foreign);
    let away = truncate(1_000).keep(Arc::new(NoStore::Away)).layer(server.clone());
    let reply = away.oneshot(read(uri)).await.unwrap();
    assert_eq!(reply.error().unwrap().message, foreign.1);
    assert!(server.requests().iter().all(|request| request.tool_call().is_some()), "none passes");
}

#[tokio::test]
async fn reads_of_other_resources_are_forwarded_to_the_server() {
    let server = Server::new();
    let service = truncate(1_000).keep(kept()).layer(server.clone());
    let _ = service.oneshot(read("file:///a")).await.unwrap();
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn result_that_cannot_be_stored_is_truncated_without_a_link() {
    let server = Server::new().says("say", "x".repeat(9_000));
    let small = Arc::new(MemoryStore::for_results().max_item_bytes(100));
    let stores: [Arc<dyn Store>; 2] = [small, Arc::new(NoStore::Away)];
    for store in stores {
        let service = truncate(1_000).keep(store).layer(server.clone());
        let result = testing::call(&service, "say", Value::Null).await;
        assert_eq!(link(&result), None);
        assert_eq!(result.content.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn permit_is_released_while_waiting_for_a_store() {
    let server = Server::new().says("say", "x".repeat(9_000));
    let service = ServiceBuilder::new()
        .layer(truncate(1_000).keep(Arc::new(NoStore::Hangs)))
        .layer(tower::limit::GlobalConcurrencyLimitLayer::with_semaphore(Arc::new(Semaphore::new(
            1,
        ))))
        .service(server.clone());
    let first = testing::call(&service, "say", Value::Null);
    let second = testing::call(&service, "say", Value::Null);
    tokio::select! {
        _ = first => unreachable!("the store never answers"),
        _ = second => unreachable!("the store never answers"),
        () = server.until(|server| server.calls().len() == 2 && server.running() == 0) => (),
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_call_drops_the_inner_call() {
    let server = Server::new().hangs("slow");
    let service = truncate(1_000).layer(server.clone());
    tokio::select! {
        _ = testing::call(&service, "slow", Value::Null) => unreachable!(),
        () = server.until(|server| server.running() == 1) => (),
    }
    server.until(|server| server.running() == 0).await;
    assert_eq!(server.dropped(), ["slow"]);
}

/// A server with tools and without resources.
#[derive(Clone)]
struct Talkative;

impl ServerHandler for Talkative {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().build();
        info
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text("x".repeat(9_000))]).into())
    }
}

#[tokio::test]
async fn client_reads_stored_results_of_a_server_without_resources() {
    for era in [Era::Legacy, Era::Modern] {
        let server = ServeService::wrap(Talkative, truncate(1_000).keep(kept()));
        let connection = connect(server, era).await;
        let info = connection.client.peer_info().expect("an introduction");
        assert!(info.capabilities.resources.is_some(), "{era:?}");
        let called = connection.client.call_tool(CallToolRequestParams::new("talk")).await.unwrap();
        let uri = link(&called).expect("a link").to_owned();
        let params = ReadResourceRequestParams::new(uri);
        let read = connection.client.read_resource(params).await.unwrap();
        let ResourceContents::TextResourceContents { text, .. } = &read.contents[0] else {
            panic!("{:?}", read.contents)
        };
        let full: CallToolResult = serde_json::from_str(text).unwrap();
        assert_eq!(full.content[0].as_text().unwrap().text.len(), 9_000);
    }
}

#[test]
fn resources_are_declared_if_results_are_stored() {
    let mut capabilities = ServerCapabilities::default();
    truncate(1_000).declare(&mut capabilities);
    assert!(capabilities.resources.is_none());
    truncate(1_000).keep(kept()).declare(&mut capabilities);
    assert!(capabilities.resources.is_some());
}
