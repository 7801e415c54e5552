//! Closures and services as tools.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::Duration,
};

use mcp_composite::{
    composite::{CompositeLayer, CompositeTool, FanOut},
    filter::FilterLayer,
    functions::{
        Function, FunctionCall, Functions, FunctionsLayer, IntoToolResult, ToolSet, tool_fn,
        tool_service,
    },
    message::{Context, ItemKind, Refusal, Reply, Request},
    pattern::Selection,
    testing,
};
use rmcp::model::*;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::{
    BoxError, Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimit, service_fn,
};

use crate::{
    scripted::{Answer, Server, call, object, search_tool},
    support::soon,
};

/// The arguments of a closure.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    item: String,
    pieces: u32,
    #[serde(default)]
    size: Size,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Size {
    #[default]
    Small,
    Large,
}

fn tool(name: &str) -> Tool {
    Tool::new(name.to_owned(), "A function", object(json!({ "type": "object" })))
}

/// A function that always returns the same result.
fn says<R: IntoToolResult + Clone + Send + Sync + 'static>(name: &str, what: R) -> Function {
    tool_fn(tool(name), move |_: JsonObject, _| {
        let what = what.clone();
        async move { what }
    })
}

fn order() -> Function {
    tool_fn(tool("order"), async |Order { item, pieces, size }, _| {
        let size = if let Size::Large = size { "large" } else { "small" };
        format!("{pieces} {size} {item}")
    })
}

fn functions<const N: usize>(functions: [Function; N]) -> ToolSet {
    ToolSet::new(functions).expect("different names")
}

/// A function that calls a tool of its own stack.
fn calls<S>(
    name: &str,
    target: &'static str,
    stack: &Arc<OnceLock<S>>,
    says_within: bool,
) -> Function
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let stack = stack.clone();
    tool_fn(tool(name), move |_: JsonObject, context: Context| {
        let stack = stack.get().expect("it is built").clone();
        async move {
            let mut request = call(target, json!({}));
            if says_within {
                request = request.within(&context);
            }
            let reply = stack.oneshot(request).await.map_err(Into::into).expect("an answer");
            match reply.error() {
                Some(error) => Err(error.message.to_string()),
                None => Ok(reply.tool_result().expect("a result").clone()),
            }
        }
    })
}

async fn ask<S>(service: &S, request: Request) -> Reply
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    service.clone().oneshot(request).await.map_err(Into::into).expect("an answer")
}

async fn names<S>(service: &S) -> Vec<String>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    testing::listed(service).await.into_iter().map(|tool| tool.name.into_owned()).collect()
}

fn text(result: &CallToolResult) -> String {
    let text = |block: &ContentBlock| block.as_text().expect("a text").text.clone();
    result.content.iter().map(text).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn tool_set_lists_its_functions_in_order_and_calls_them() {
    let set = functions([says("b", "two"), says("a", "one")]);
    assert_eq!(names(&set).await, ["b", "a"]);
    assert_eq!(text(&testing::call(&set, "a", json!({})).await), "one");
}

#[tokio::test]
async fn tool_set_rejects_other_requests() {
    let set = functions([says("a", "one")]);
    let unknown = Refusal::Unknown { kind: ItemKind::Tool, name: "b".into() };
    assert_eq!(ask(&set, call("b", json!({}))).await.refusal(), Some(&unknown));

    let custom = |method| Request::new(CustomRequest::new(method, None), Context::default());
    for (request, code) in [
        (Request::list_tools_from(Some("2".to_owned())), ErrorCode::INVALID_PARAMS),
        (custom("tools/call"), ErrorCode::INVALID_PARAMS),
        (custom("example/status"), ErrorCode::METHOD_NOT_FOUND),
        (Request::new(PingRequest::default(), Context::default()), ErrorCode::METHOD_NOT_FOUND),
    ] {
        let method = request.method().to_owned();
        let reply = ask(&set, request).await;
        assert_eq!(reply.error().expect("an error").code, code, "{method}");
    }
}

#[test]
fn duplicate_function_names_are_reported() {
    let twice = ["a", "b", "a", "c", "b", "a"].map(|name| says(name, ""));
    let error = ToolSet::new(twice).expect_err("duplicates");
    assert_eq!(error.names(), ["a", "b"]);
    assert_eq!(error.to_string(), "more than one tool is called `a`, `b`");
}

#[tokio::test]
async fn function_output_is_converted_into_a_result() {
    let object = json!({ "n": 1 });
    let whole = CallToolResult::success(vec![ContentBlock::image("aGk=", "image/png")]);
    let failed = |text: &str| CallToolResult::error(vec![ContentBlock::text(text)]);
    let said = |text: &str| CallToolResult::success(vec![ContentBlock::text(text)]);
    for (given, expected) in [
        ("static".into_tool_result(), said("static")),
        ("owned".to_owned().into_tool_result(), said("owned")),
        (().into_tool_result(), CallToolResult::success(vec![])),
        (object.clone().into_tool_result(), CallToolResult::structured(object.clone())),
        (json!("a text").into_tool_result(), said("a text")),
        (json!("42").into_tool_result(), said("42")),
        (json!([1, "2"]).into_tool_result(), said(r#"[1,"2"]"#)),
        (Value::Null.into_tool_result(), said("null")),
        (whole.clone().into_tool_result(), whole),
        (Ok::<_, String>(object.clone()).into_tool_result(), CallToolResult::structured(object)),
        (Err::<String, _>("no route").into_tool_result(), failed("no route")),
    ] {
        assert_eq!(given, expected);
    }
}

#[tokio::test]
async fn arguments_are_deserialized_into_the_closure_parameter() {
    let set = functions([order()]);
    let result = testing::call(&set, "order", json!({ "item": "tea", "pieces": 2 })).await;
    assert_eq!(text(&result), "2 small tea");
}

#[tokio::test]
async fn invalid_arguments_are_rejected_without_their_values() {
    let set = functions([order()]);
    for (arguments, why) in [
        (json!({ "item": "tea" }), "missing field `pieces`"),
        (json!({ "item": "tea", "pieces": "secret" }), "expected u32"),
        (json!({ "item": "tea", "pieces": -1 }), "expected u32"),
        (json!({ "item": ["secret"], "pieces": 1 }), "expected a string"),
        (json!({ "item": "tea", "pieces": 1, "size": "secret" }), "expected `small` or `large`"),
        (
            json!({ "item": "tea", "pieces": 1, "colour": "red" }),
            "expected one of `item`, `pieces`, `size`",
        ),
    ] {
        let error = testing::refused(&set, "order", arguments).await;
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
        assert_eq!(error.message, format!("invalid arguments for `order`: {why}"));
    }
}

#[tokio::test(start_paused = true)]
async fn service_with_layers_is_usable_as_a_tool() {
    let slow = service_fn(async |call: FunctionCall| {
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok::<_, Infallible>(format!("{} {}", call.tool, Value::Object(call.arguments)))
    });
    let patient = ServiceBuilder::new().timeout(Duration::from_secs(3)).service(slow);
    let hasty = ServiceBuilder::new().timeout(Duration::from_secs(1)).service(slow);
    let set =
        functions([tool_service(tool("patient"), patient), tool_service(tool("hasty"), hasty)]);

    let result = testing::call(&set, "patient", json!({ "n": 1 })).await;
    assert_eq!(text(&result), r#"patient {"n":1}"#);
    let late = set.clone().oneshot(call("hasty", json!({}))).await;
    assert!(late.expect_err("too late").is::<tower::timeout::error::Elapsed>());
    // The same error in a composite.
    let both = CompositeTool::fan_out("both", "Both", ["hasty", "patient"]);
    let service = CompositeLayer::new([both]).expect("a composite").layer(set);
    let result = testing::call(&service, "both", json!({})).await.structured_content;
    let branches = &result.expect("a report")["branches"];
    assert_eq!(branches["hasty"]["status"], "timed_out");
    assert_eq!(branches["patient"]["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn dropped_call_drops_the_function() {
    let (dropped, is_dropped) = tokio::sync::oneshot::channel::<()>();
    let dropped = std::sync::Mutex::new(Some(dropped));
    let hangs = tool_fn(tool("hangs"), move |_: JsonObject, _| {
        let dropped = dropped.lock().unwrap().take();
        async move {
            std::future::pending::<()>().await;
            drop(dropped);
        }
    });
    let both = CompositeTool::fan_out("both", "Both", ["hangs"]);
    let service = CompositeLayer::new([both]).expect("a composite").layer(functions([hangs]));
    let running = service.oneshot(call("both", json!({})));
    assert!(tokio::time::timeout(Duration::from_secs(1), running).await.is_err());
    assert!(soon(is_dropped).await.is_err());
}

#[tokio::test]
async fn panicking_function_fails_only_its_branch() {
    let panics = tool_fn(tool("panics"), async |_: JsonObject, _| -> String { panic!("secret") });
    let both = CompositeTool::fan_out("both", "Both", ["panics", "fine"]);
    let set = functions([panics, says("fine", "fine")]);
    let service = CompositeLayer::new([both]).expect("a composite").layer(set);
    let result = testing::call(&service, "both", json!({})).await;
    assert_eq!(result.is_error, Some(true));
    assert!(!format!("{result:?}").contains("secret"), "{result:?}");
    let report = result.structured_content.expect("a report");
    assert_eq!(report["branches"]["panics"]["error"]["kind"], "panic");
    assert_eq!(report["branches"]["fine"]["output"], "fine");
}

#[tokio::test]
async fn composite_calls_functions_like_tools_of_servers() {
    let content = json!({ "rows": [1, 2] });
    let given = content.clone();
    let search =
        tool_fn(search_tool("search"), move |_: JsonObject, _| std::future::ready(given.clone()));
    let server = Server::new().tool_as(search_tool("search"), Answer::structured(content));
    let all = || {
        let all = CompositeTool::fan_out("all", "All", ["search"]);
        CompositeLayer::new([all]).expect("a composite")
    };
    let (with_function, with_server) = (all().layer(functions([search])), all().layer(server));
    assert_eq!(testing::listed(&with_function).await, testing::listed(&with_server).await);
    let arguments = json!({ "q": "x" });
    let mut results = Vec::new();
    for mut result in [
        testing::call(&with_function, "all", arguments.clone()).await,
        testing::call(&with_server, "all", arguments).await,
    ] {
        // The times in it differ.
        result.meta = None;
        results.push(result);
    }
    assert_eq!(results[0], results[1]);
}

#[tokio::test]
async fn functions_are_listed_once_at_the_end_of_the_first_page() {
    let server = Server::new().echoes("a").echoes("b").echoes("c").page_size(2);
    let service = FunctionsLayer::new(functions([says("x", ""), says("c", "")])).layer(server);
    let page = |reply: &Reply| {
        let page = reply.tools().expect("tools").clone();
        let names: Vec<_> = page.tools.iter().map(|tool| tool.name.to_string()).collect();
        (names, page.next_cursor)
    };
    let (names, next) = page(&ask(&service, Request::list_tools()).await);
    assert_eq!(names, ["a", "b", "x", "c"]);
    // The server's own `c` is hidden.
    let (names, next) = page(&ask(&service, Request::list_tools_from(next)).await);
    assert_eq!((names, next), (vec![], None));
}

#[tokio::test]
async fn function_replaces_the_tool_of_its_name() {
    let server = Server::new().says("a", "the server").says("b", "the server");
    let layer = FunctionsLayer::new(functions([says("a", "the function")]));
    let service = layer.layer(server.clone());
    assert_eq!(text(&testing::call(&service, "a", json!({})).await), "the function");
    assert_eq!(text(&testing::call(&service, "b", json!({})).await), "the server");
    assert_eq!(server.called(), ["b"]);
    // Direct calls of the server are unaffected.
    assert_eq!(text(&testing::call(&server, "a", json!({})).await), "the server");
}

#[tokio::test]
async fn unrelated_requests_are_forwarded() {
    let server = Server::new();
    let service = FunctionsLayer::new(functions([says("a", "")])).layer(server.clone());
    let ping = || Request::new(PingRequest::default(), Context::default());
    let (with, without) = (ask(&service, ping()).await, ask(&server, ping()).await);
    assert_eq!(with.error(), without.error());
    let malformed = Request::new(CustomRequest::new("tools/call", None), Context::default());
    let reply = ask(&service, malformed).await;
    assert_eq!(reply.error().expect("an error").message, "malformed `tools/call`");
    assert_eq!(server.requests().len(), 2, "the malformed one is not passed on");
}

/// A server with resources that does not implement tools.
fn without_tools()
-> impl Service<Request, Response = Reply, Error = Infallible, Future: Send> + Clone {
    service_fn(async |request: Request| {
        let capabilities = ServerCapabilities::builder().enable_resources().build();
        Ok(match request.message() {
            ClientRequest::InitializeRequest(_) => {
                ServerResult::InitializeResult(InitializeResult::new(capabilities)).into()
            }
            _ => Reply::method_not_found(request.method().to_owned()),
        })
    })
}

#[tokio::test]
async fn functions_are_listed_above_a_service_without_tools() {
    let service = FunctionsLayer::new(functions([says("a", "one")])).layer(without_tools());
    assert_eq!(names(&service).await, ["a"]);
    assert_eq!(text(&testing::call(&service, "a", json!({})).await), "one");
    let later = ask(&service, Request::list_tools_from(Some("2".to_owned()))).await;
    assert_eq!(later.error().expect("an error").code, ErrorCode::METHOD_NOT_FOUND);

    let client = Implementation::new("client", "0");
    let introduces = InitializeRequestParams::new(ClientCapabilities::default(), client);
    let introduces = Request::new(InitializeRequest::new(introduces), Context::default());
    let declared = async |reply: Reply| match reply.result() {
        Some(ServerResult::InitializeResult(result)) => result.capabilities.clone(),
        _ => panic!("{reply:?}"),
    };
    let capabilities = declared(ask(&service, introduces.clone()).await).await;
    assert!(capabilities.tools.is_some() && capabilities.resources.is_some());

    // Without functions, there is nothing to list and nothing to declare.
    let service = FunctionsLayer::default().layer(without_tools());
    assert!(ask(&service, Request::list_tools()).await.error().is_some());
    assert!(declared(ask(&service, introduces).await).await.tools.is_none());
}

#[tokio::test(start_paused = true)]
async fn malformed_request_releases_its_permit() {
    let inner = ConcurrencyLimit::new(Server::new().says("echo", "once"), 1);
    let mut service = FunctionsLayer::new(functions([says("a", "")])).layer(inner);
    let malformed = Request::new(CustomRequest::new("tools/call", None), Context::default());
    let answered = service.ready().await.unwrap().call(malformed);
    let other = service.clone().oneshot(call("echo", json!({})));
    assert_eq!(text(soon(other).await.unwrap().tool_result().unwrap()), "once");
    assert!(answered.await.unwrap().error().is_some());
}

#[tokio::test]
async fn empty_functions_layer_changes_nothing() {
    let server = Server::new().echoes("a");
    let service = FunctionsLayer::default().layer(server.clone());
    assert_eq!(testing::listed(&service).await, testing::listed(&server).await);
}

#[tokio::test(start_paused = true)]
async fn function_calls_a_service_with_a_concurrency_limit_of_one() {
    type Stack = Functions<ConcurrencyLimit<Server>>;
    let stack = Arc::new(OnceLock::<Stack>::new());
    let layer = FunctionsLayer::new(functions([calls("twice", "echo", &stack, true)]));
    let inner = ConcurrencyLimit::new(Server::new().says("echo", "once"), 1);
    let mut service = stack.get_or_init(|| layer.layer(inner)).clone();
    // Keeping the ready service must not occupy the only slot.
    let reply = service.ready().await.unwrap().call(call("twice", json!({})));
    let reply = soon(reply).await.unwrap();
    assert_eq!(text(reply.tool_result().unwrap()), "once");
}

#[tokio::test]
async fn calls_of_a_function_go_through_all_layers() {
    let stack = Arc::new(OnceLock::new());
    let server = functions([calls("agent", "secret", &stack, true), says("secret", "42")]);
    let filter = FilterLayer::new().tools(Selection::default().deny(["secret"]).unwrap());
    let service = stack.get_or_init(|| filter.layer(server));
    let result = testing::call(service, "agent", json!({})).await;
    assert_eq!(text(&result), "unknown tool `secret`");
}

#[tokio::test]
async fn nested_request_keeps_the_caller() {
    let stack = Arc::new(OnceLock::<ToolSet>::new());
    let who = tool_fn(tool("who"), async |_: JsonObject, context: Context| {
        format!("{:?} {}", context.extensions().get::<&str>(), context.id())
    });
    let set = stack.get_or_init(|| functions([calls("agent", "who", &stack, true), who]));
    let mut request = call("agent", json!({}));
    request.context_mut().extensions_mut().insert("ada");
    let reply = ask(set, request).await;
    assert_eq!(text(reply.tool_result().expect("a result")), r#"Some("ada") 0#who"#);
}

/// Returns how often a stack that calls itself was called before it was rejected; it passes its own
/// context or does not.
async fn calls_of_itself(says_within: bool) -> (usize, String) {
    let stack = Arc::new(OnceLock::new());
    let server = Server::new();
    let layer = FunctionsLayer::new(functions([calls("again", "count", &stack, says_within)]));
    let count = CompositeTool::fan_out("count", "Counts", ["tick", "again"]);
    let layers = CompositeLayer::new([count]).expect("a composite");
    let server = server.says("tick", "1");
    let service = stack.get_or_init(|| layers.layer(layer.layer(server.clone())));
    let result = soon(testing::call(service, "again", json!({}))).await;
    (server.called().len(), text(&result))
}

#[tokio::test(start_paused = true)]
async fn endless_recursion_is_rejected() {
    for says_within in [true, false] {
        let (calls, text) = calls_of_itself(says_within).await;
        let why = "tool `count` seems to call itself: there are more than 8 nested calls";
        assert!(text.contains(why), "{text}");
        assert_eq!(calls, 8, "says within what: {says_within}");
    }
}

#[tokio::test(start_paused = true)]
async fn endless_recursion_is_rejected_in_every_parallel_branch() {
    let stack = Arc::new(OnceLock::new());
    let set = functions([calls("again", "twice", &stack, true)]);
    let twice = CompositeTool::fan_out("twice", "Twice", ["again", "again"]);
    let layer = CompositeLayer::new([twice]).expect("a composite");
    let service = stack.get_or_init(|| layer.layer(set));
    let result = soon(testing::call(service, "twice", json!({}))).await;
    assert_eq!(result.is_error, Some(true));
    let text = serde_json::to_string(&result.content).expect("JSON");
    let refused = text.matches("seems to call itself").count();
    assert!(refused >= 1 << 8, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn total_number_of_nested_calls_is_limited() {
    let stack = Arc::new(OnceLock::new());
    let ticks = Server::new().says("tick", "1");
    let layer = FunctionsLayer::new(functions([calls("again", "many", &stack, true)]));
    // With eight levels there would be over a billion.
    let many = CompositeTool::new("many", "Many", FanOut::new(["again"; 16]).report(false));
    let composites = CompositeLayer::new([many]).expect("a composite");
    let service = stack.get_or_init(|| composites.layer(layer.layer(ticks)));
    let result = testing::call(service, "again", json!({})).await;
    assert_eq!(result.is_error, Some(true));
    let refused = text(&result);
    assert!(refused.contains("more than 10000 calls made by tools"), "{refused}");
}

#[tokio::test]
async fn branches_share_the_call_limit_of_a_request() {
    let stack = Arc::new(OnceLock::<ToolSet>::new());
    let to_call = stack.clone();
    let burst = tool_fn(tool("burst"), move |_: JsonObject, context: Context| {
        let stack = to_call.get().expect("it is built").clone();
        async move {
            let mut allowed = 0;
            for _ in 0..6_000 {
                let reply = stack.clone().oneshot(call("tick", json!({})).within(&context)).await;
                allowed += u32::from(reply.expect("an answer").error().is_none());
            }
            json!({ "allowed": allowed })
        }
    });
    let set = stack.get_or_init(|| functions([burst, says("tick", "1")])).clone();
    let both = CompositeTool::fan_out("both", "Both", ["burst", "burst"]);
    let service = CompositeLayer::new([both]).expect("a composite").layer(set);
    // Each request of a client has the same limit again.
    for _ in 0..2 {
        let report = testing::call(&service, "both", json!({})).await.structured_content;
        let report = report.expect("a report");
        let branches = report["branches"].as_object().expect("branches").values();
        let allowed =
            branches.map(|branch| branch["output"]["allowed"].as_u64().expect("how many"));
        assert_eq!(allowed.sum::<u64>(), 10_000, "{report}");
    }
}

#[tokio::test]
async fn eight_nested_calls_are_allowed() {
    let stack = Arc::new(OnceLock::<ToolSet>::new());
    let names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let chain = names.windows(2).map(|pair| calls(pair[0], pair[1], &stack, true));
    let chain: Vec<_> = chain.chain([says("9", "the end")]).collect();
    let set = stack.get_or_init(|| ToolSet::new(chain).expect("different names"));
    assert_eq!(text(&testing::call(set, "1", json!({})).await), "the end");
    let result = testing::call(set, "0", json!({})).await;
    assert_eq!(result.is_error, Some(true));
    assert!(text(&result).starts_with("tool `9` seems to call itself"), "{result:?}");
}

#[tokio::test]
async fn tool_set_returns_the_error_of_its_service() {
    let broken =
        service_fn(async |_: FunctionCall| Err::<String, BoxError>("the disk is full".into()));
    let set = functions([tool_service(tool("broken"), broken)]);
    let error = set.oneshot(call("broken", json!({}))).await.expect_err("it is broken");
    assert_eq!(error.to_string(), "the disk is full");
}
