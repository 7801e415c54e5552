//! The tools that clients see, and those they can call.

mod search;

use std::{convert::Infallible, ops::ControlFlow, time::Duration};

use mcp_composite::{
    adapter::ServeService,
    advertise::{Advertise, AdvertiseLayer, Calls, Mode},
    composite::{Composite, CompositeLayer, CompositeTool},
    intercept::{Intercept, Intercepted},
    message::{Refusal, Reply, Request},
    pattern::Selection,
};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientRequest, ListPromptsRequest, ListToolsResult,
    NumberOrString, ProgressToken,
};
use serde_json::{Value, json};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, buffer::Buffer, limit::ConcurrencyLimit};
use tower_test::mock;

use crate::{
    scripted::{Answer, Server, call, object},
    support::{Era, connect, unusual},
};

/// Composites over a server of three tools.
type Below = Composite<Server>;

/// A rule that rejects every call of `reset`.
#[derive(Clone)]
struct NoReset;

impl Intercept for NoReset {
    type Memo = ();

    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply> {
        match request.tool_call() {
            Some(call) if call.name == "reset" => ControlFlow::Break(Reply::unknown_tool("reset")),
            _ => ControlFlow::Continue(()),
        }
    }

    fn on_reply(&self, (): (), reply: &mut Reply) {
        if let Some(page) = reply.tools_mut() {
            page.tools.retain(|tool| tool.name != "reset");
        }
    }
}

fn server() -> Server {
    Server::new().says("get_price", "5").says("get_stock", "12").says("reset", "done")
}

fn below(server: &Server) -> Below {
    let offer = CompositeTool::fan_out("offer", "Price and stock", ["get_price", "get_stock"]);
    let wipe = CompositeTool::fan_out("wipe", "Resets it all", ["reset"]);
    CompositeLayer::new([offer, wipe]).expect("good definitions").layer(server.clone())
}

fn composites() -> AdvertiseLayer {
    AdvertiseLayer::new().composites(["offer", "wipe"])
}

fn allow(patterns: &[&str]) -> Selection {
    Selection::default().allow(patterns.iter().copied()).expect("patterns")
}

fn deny(patterns: &[&str]) -> Selection {
    Selection::default().deny(patterns.iter().copied()).expect("patterns")
}

async fn answer<S>(service: &S, request: Request) -> Reply
where
    S: Service<Request, Response = Reply, Error: std::fmt::Debug> + Clone,
{
    service.clone().oneshot(request).await.expect("an answer")
}

/// Returns the names of the tools on each page.
async fn pages<S>(service: &S) -> Vec<Vec<String>>
where
    S: Service<Request, Response = Reply, Error: std::fmt::Debug> + Clone,
{
    let mut pages = Vec::new();
    let mut cursor = None;
    loop {
        let reply = answer(service, Request::list_tools_from(cursor)).await;
        let page = reply.tools().expect("tools");
        pages.push(page.tools.iter().map(|tool| tool.name.to_string()).collect());
        cursor = page.next_cursor.clone();
        if cursor.is_none() {
            return pages;
        }
    }
}

fn through(name: &str, arguments: Value) -> Request {
    let mut through = object(json!({ "name": name }));
    through.insert("arguments".into(), arguments);
    call("call_tool", through.into())
}

/// Returns the result of a search.
async fn found<S>(service: &S, arguments: Value) -> Value
where
    S: Service<Request, Response = Reply, Error: std::fmt::Debug> + Clone,
{
    let reply = answer(service, call("search_tools", arguments)).await;
    let result = reply.tool_result().unwrap_or_else(|| panic!("{:?}", reply.error()));
    result.structured_content.clone().expect("structured content")
}

/// Returns the names in the result of a search, best first.
async fn names<S>(service: &S, query: &str) -> Vec<String>
where
    S: Service<Request, Response = Reply, Error: std::fmt::Debug> + Clone,
{
    let found = found(service, json!({ "query": query, "limit": 50 })).await;
    let tools = found["tools"].as_array().expect("tools").iter();
    tools.map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

async fn refusal<S>(service: &S, request: Request) -> Option<Refusal>
where
    S: Service<Request, Response = Reply, Error: std::fmt::Debug> + Clone,
{
    answer(service, request).await.refusal().cloned()
}

/// The outcome for each tool, however a client reaches it.
#[tokio::test(start_paused = true)]
async fn listing_search_and_calls_apply_the_same_rules() {
    const ALL: [&str; 5] = ["get_price", "get_stock", "reset", "offer", "wipe"];
    for (selection, advertised) in [
        (Selection::default(), &ALL[..]),
        (deny(&["reset"]), &["get_price", "get_stock", "offer", "wipe"]),
        (deny(&["*"]), &["offer", "wipe"]),
        (deny(&["*", "wipe"]), &["offer"]),
        (deny(&["wip?", "re:wipe", "{wipe}"]), &ALL),
        (allow(&["get_*"]), &["get_price", "get_stock", "offer", "wipe"]),
        (allow(&["nothing"]), &["offer", "wipe"]),
        (allow(&[]), &["offer", "wipe"]),
        (
            allow(&["re:get_.+", "reset"]).deny(["get_stock", "offer"]).unwrap(),
            &["get_price", "reset", "wipe"],
        ),
    ] {
        for calls in [Calls::Refuse, Calls::Allow] {
            let layer = composites().tools(selection.clone()).calls(calls);
            let listing = layer.clone().layer(below(&server()));
            let searching = layer.mode(Mode::Search).layer(below(&server()));
            let case = format!("{selection:?} {calls:?}");

            assert_eq!(pages(&listing).await, [advertised], "{case}");
            assert_eq!(pages(&searching).await, [["search_tools", "call_tool"]], "{case}");
            assert_eq!(names(&searching, "").await, advertised, "{case}");
            for tool in ALL {
                let is_shown = advertised.contains(&tool);
                assert_eq!(names(&searching, tool).await.contains(&tool.to_owned()), is_shown);
                for (service, request) in [
                    (&listing, call(tool, json!({}))),
                    (&searching, call(tool, json!({}))),
                    (&searching, through(tool, json!({}))),
                ] {
                    let expected = (!is_shown && calls == Calls::Refuse)
                        .then(|| format!("unknown tool `{tool}`"));
                    let refusal = refusal(service, request).await;
                    assert_eq!(refusal.map(|refusal| refusal.to_string()), expected, "{case}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hidden_tool_is_rejected_like_a_missing_one() {
    let inner = server();
    let layer = AdvertiseLayer::new().tools(allow(&["get_*"]));
    let mut words = None;
    for mode in [Mode::List, Mode::Search] {
        let service = layer.clone().mode(mode).layer(inner.clone());
        let error = async |request| {
            let error = answer(&service, request).await.error().unwrap().into_owned();
            (error.code, error.message.replace("reset", "missing"), error.data)
        };
        let missing = error(Request::call_tool("missing")).await;
        assert_eq!(error(call("reset", json!({ "q": "x" }))).await, missing);
        // `call_tool` exists only in search mode.
        if pages(&service).await[0].contains(&"call_tool".to_owned()) {
            assert_eq!(error(through("reset", json!({}))).await, missing);
            assert_eq!(error(through("missing", json!({}))).await, missing);
        }
        words = Some(missing.1);
    }
    assert_eq!(inner.called(), [""; 0]);

    // Above the layer that denies, only the server knows which tools are missing.
    let service = AdvertiseLayer::new().tools(deny(&["reset"])).layer(inner.clone());
    let refused = answer(&service, Request::call_tool("reset")).await;
    let refused = refused.error().unwrap().message.replace("reset", "missing");
    assert_eq!((Some(refused), inner.called()), (words, vec![]));
    answer(&service, Request::call_tool("missing")).await;
    assert_eq!(inner.called(), ["missing"]);
}

#[tokio::test(start_paused = true)]
async fn rejected_call_does_not_reach_the_inner_service() {
    let inner = server();
    let layer = AdvertiseLayer::new().tools(deny(&["reset"]));
    for mode in [Mode::List, Mode::Search] {
        let service = layer.clone().mode(mode).layer(inner.clone());
        answer(&service, Request::call_tool("reset")).await;
    }
    let service = layer.mode(Mode::Search).layer(inner.clone());
    for name in ["reset", "call_tool", "search_tools"] {
        answer(&service, through(name, json!({}))).await;
    }
    assert_eq!((inner.called(), inner.lists()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn composite_calls_targets_that_are_not_advertised() {
    let server = server();
    let service = composites().tools(deny(&["*"])).layer(below(&server));

    let reply = answer(&service, Request::call_tool("offer")).await;

    assert_eq!(reply.tool_result().unwrap().is_error, Some(false));
    assert_eq!(server.called(), ["get_price", "get_stock"]);
}

#[tokio::test(start_paused = true)]
async fn tools_are_hidden_on_every_page_and_cursors_are_kept() {
    let inner = server().says("z", "z").page_size(1);
    let service = AdvertiseLayer::new().tools(allow(&["get_stock", "z"])).layer(inner);
    assert_eq!(pages(&service).await, [vec![], vec!["get_stock"], vec![], vec!["z"]]);
}

#[tokio::test(start_paused = true)]
async fn other_requests_and_list_errors_are_forwarded() {
    let inner = server();
    let service = AdvertiseLayer::new().tools(deny(&["*"])).mode(Mode::Search).layer(inner.clone());
    let prompts = ClientRequest::ListPromptsRequest(ListPromptsRequest::default());
    let request = Request::new(prompts, mcp_composite::message::Context::default());
    assert_eq!(answer(&service, request).await.error().unwrap().message, "prompts/list");

    let service = AdvertiseLayer::new().tools(deny(&["*"])).layer(inner.clone());
    inner.break_list("connection refused");
    assert!(service.oneshot(Request::list_tools()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn pattern_without_match_in_a_whole_list_is_warned_about_once() {
    let inner = Server::new().page_size(1);
    let selection = allow(&["get_*", "get_stok", "wip*"]).deny(["rest", "re:x.*"]).unwrap();
    let layer = composites().tools(selection);
    let service = layer.layer(inner.clone());
    // An empty list proves nothing.
    assert_eq!(pages(&service).await.len(), 1);
    assert_eq!(layer.warnings(), [""; 0]);

    for name in ["get_price", "get_stock", "wipe", "reset"] {
        inner.add(crate::scripted::search_tool(name), Answer::text("x"));
    }
    // Neither does the end of one.
    answer(&service, Request::list_tools_from(Some("3".into()))).await;
    answer(&service, Request::list_tools()).await;
    answer(&service, Request::list_tools_from(Some("3".into()))).await;
    assert_eq!(layer.warnings(), [""; 0]);

    for _ in 0..3 {
        pages(&service).await;
    }
    assert_eq!(
        layer.warnings(),
        [
            "`rest` in `deny` matches no tool: did you mean `reset`?",
            "`re:x.*` in `deny` matches no tool",
            "`get_stok` in `allow` matches no tool: did you mean `get_stock`?",
        ]
    );

    let layer = AdvertiseLayer::new().tools(deny(&["rest"])).mode(Mode::Search);
    let service = layer.layer(server());
    for _ in 0..3 {
        pages(&service).await;
        names(&service, "x").await;
    }
    assert_eq!(layer.warnings(), ["`rest` in `deny` matches no tool: did you mean `reset`?"]);
}

#[tokio::test(start_paused = true)]
async fn pattern_with_a_match_is_not_warned_about() {
    for mode in [Mode::List, Mode::Search] {
        let layer = composites().tools(allow(&["get_*"]).deny(["reset", "of*"]).unwrap());
        let layer = layer.mode(mode);
        let service = layer.layer(below(&server()));
        pages(&service).await;
        answer(&service, call("search_tools", json!({ "query": "" }))).await;
        assert_eq!(layer.warnings(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn call_tool_forwards_the_call_unchanged() {
    let inner = server();
    let service = AdvertiseLayer::new().mode(Mode::Search).layer(inner.clone());
    let mut request = through("reset", json!({ "deep": { "a": [1, null] } }));
    let params = request.tool_call_mut().unwrap();
    params.request_state = Some("state".into());
    params.input_responses = Some(serde_json::from_value(json!({})).unwrap());
    request.context_mut().meta_mut().set_progress_token(ProgressToken(NumberOrString::Number(7)));

    let reply = answer(&service, request.clone()).await;

    assert_eq!(reply.tool_result().unwrap().content[0].as_text().unwrap().text, "done");
    let [reached] = &inner.requests()[..] else { panic!("one call") };
    let (reached_params, params) = (reached.tool_call().unwrap(), request.tool_call().unwrap());
    assert_eq!(reached_params.name, "reset");
    assert_eq!(inner.arguments("reset"), Some(json!({ "deep": { "a": [1, null] } })));
    assert_eq!(reached_params.request_state, params.request_state);
    assert_eq!(reached_params.input_responses, params.input_responses);
    assert_eq!(reached.context().meta(), request.context().meta());

    answer(&service, call("call_tool", json!({ "name": "reset" }))).await;
    assert_eq!(inner.arguments("reset"), Some(Value::Null), "none stay none");
}

#[tokio::test(start_paused = true)]
async fn search_mode_does_not_bypass_an_inner_rule() {
    let inner = server();
    let service =
        AdvertiseLayer::new().mode(Mode::Search).layer(Intercepted::new(NoReset, inner.clone()));
    assert_eq!(names(&service, "reset").await, [""; 0]);
    for request in [call("reset", json!({})), through("reset", json!({}))] {
        let refusal = refusal(&service, request).await.expect("a refusal");
        assert_eq!(refusal.to_string(), "unknown tool `reset`");
    }
    assert_eq!(inner.called(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn inner_violation_is_reported_at_its_argument() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let all = CompositeTool::fan_out("all", "All", ["reset"]).input_schema(object(schema));
    let below = CompositeLayer::new([all]).unwrap().layer(server());
    let service = AdvertiseLayer::new().mode(Mode::Search).layer(below);
    let message =
        async |request| answer(&service, request).await.error().unwrap().message.to_string();

    let error = message(through("all", json!({ "n": "secret" }))).await;
    assert_eq!(
        error,
        "invalid arguments for `all`: at `/arguments/n`: the value is not of type \"integer\""
    );
    let error = message(call("all", json!({ "n": "secret" }))).await;
    assert_eq!(error, "invalid arguments for `all`: at `/n`: the value is not of type \"integer\"");
}

#[tokio::test(start_paused = true)]
async fn invalid_search_arguments_are_reported_with_expectations() {
    let inner = server();
    let service = AdvertiseLayer::new().mode(Mode::Search).layer(inner.clone());
    let long = "k".repeat(1_000);
    for (tool, arguments, expected) in [
        ("search_tools", json!({}), "`query` is missing: expected a string"),
        ("search_tools", json!({ "query": 1 }), "at `/query`: expected a string"),
        ("search_tools", json!({ "query": null }), "at `/query`: expected a string"),
        (
            "search_tools",
            json!({ "query": "x", "limit": 51 }),
            "at `/limit`: expected an integer from 1 to 50",
        ),
        (
            "search_tools",
            json!({ "query": "x", "limits": 1 }),
            "unknown argument `limits`: did you mean `limit`?",
        ),
        (
            "search_tools",
            json!({ "query": "x", "page": 1, (&long): 1 }),
            "unknown argument: expected `query` or `limit`; \
             unknown argument `page`: expected `query` or `limit`",
        ),
        (
            "search_tools",
            json!({ "query": ["secret"], "limit": "secret" }),
            "at `/query`: expected a string; at `/limit`: expected an integer from 1 to 50",
        ),
        ("call_tool", json!({}), "`name` is missing: expected a string"),
        ("call_tool", json!({ "name": { "a": "secret" } }), "at `/name`: expected a string"),
        (
            "call_tool",
            json!({ "name": "reset", "arguments": ["secret"] }),
            "at `/arguments`: expected an object",
        ),
        (
            "call_tool",
            json!({ "name": "reset", "argument": {} }),
            "unknown argument `argument`: did you mean `arguments`?",
        ),
    ] {
        let reply = answer(&service, call(tool, arguments)).await;
        let error = reply.error().expect("an error");
        assert_eq!(error.message, format!("invalid arguments for `{tool}`: {expected}"));
        assert_eq!(error.code.0, -32602);
    }
    for tool in ["search_tools", "call_tool"] {
        let refusal = refusal(&service, Request::call_tool(tool)).await;
        assert!(matches!(refusal, Some(Refusal::InvalidArguments { .. })), "{tool}");
    }
    assert_eq!((inner.called(), inner.lists()), (vec![], 0), "nothing was listed for them");
}

#[tokio::test(start_paused = true)]
async fn search_mode_tools_cannot_call_each_other() {
    // Nor tools below the layer with their names.
    let inner = server().says("search_tools", "mine").says("call_tool", "mine");
    let service = AdvertiseLayer::new().mode(Mode::Search).layer(inner);
    for name in ["call_tool", "search_tools"] {
        let refusal = refusal(&service, through(name, json!({ "name": "reset" }))).await;
        assert_eq!(refusal.unwrap().to_string(), format!("unknown tool `{name}`"));
    }
}

#[tokio::test(start_paused = true)]
async fn tools_named_like_search_mode_tools_are_hidden_and_reported() {
    for calls in [Calls::Refuse, Calls::Allow] {
        let inner = server().says("search_tools", "mine").says("call_tool", "mine");
        let layer = AdvertiseLayer::new().mode(Mode::Search).calls(calls);
        let service = layer.layer(inner.clone());
        for query in ["", "search_tools", "call_tool", "search", "Searches"] {
            let names = names(&service, query).await;
            assert!(!names.iter().any(|name| name.ends_with("_tool") || name.ends_with("_tools")));
        }
        answer(&service, call("call_tool", json!({ "name": "search_tools" }))).await;
        answer(&service, call("call_tool", json!({ "name": "call_tool" }))).await;
        assert_eq!(inner.called(), [""; 0]);
        assert_eq!(
            layer.warnings(),
            [
                "tool `search_tools` is hidden: in search mode it is a tool of the layer that has this name",
                "tool `call_tool` is hidden: in search mode it is a tool of the layer that has this name",
            ]
        );
    }
    // Without search mode they are ordinary tools.
    let service = AdvertiseLayer::new().tools(deny(&["reset"])).layer(server().echoes("call_tool"));
    let reply = answer(&service, call("call_tool", json!({ "any": 1 }))).await;
    assert_eq!(reply.tool_result().unwrap().structured_content, Some(json!({ "any": 1 })));
}

#[tokio::test(start_paused = true)]
async fn settings_of_a_clone_do_not_change_the_layer() {
    let all = AdvertiseLayer::new();
    let none = all.clone().tools(deny(&["*"])).mode(Mode::Search);
    assert_eq!(pages(&all.layer(server())).await[0].len(), 3);
    assert_eq!(pages(&none.layer(server())).await[0].len(), 2);
    assert!(format!("{none:?}").contains("Search"));
}

#[tokio::test(start_paused = true)]
async fn unusual_tool_names_are_called_and_found() {
    let odd = ["", " ", "a\nb", "🦀", "*", "`", &"x".repeat(100_000)];
    let inner = odd.iter().fold(Server::new(), |server, name| server.says(name, "odd"));
    let service =
        AdvertiseLayer::new().tools(deny(&["🦀"])).mode(Mode::Search).layer(inner.clone());
    for name in odd {
        for request in [call(name, json!({})), through(name, json!({}))] {
            assert_eq!(answer(&service, request).await.error().is_some(), name == "🦀");
        }
        assert_eq!(names(&service, name).await.contains(&name.to_owned()), name != "🦀");
    }
}

// Tower's contract.

fn every_mode() -> [AdvertiseLayer; 3] {
    let some = AdvertiseLayer::new().tools(deny(&["reset"]));
    [AdvertiseLayer::new(), some.clone(), some.mode(Mode::Search)]
}

#[tokio::test]
async fn layer_is_ready_when_its_inner_service_is_ready() {
    for layer in every_mode() {
        let (mut service, mut handle) = mock::spawn_layer::<Request, Reply, _>(layer);
        handle.allow(0);
        assert_pending!(service.poll_ready());
        handle.allow(1);
        assert!(service.is_woken());
        assert_ready_ok!(service.poll_ready());
        let mut reply = task::spawn(service.call(Request::call_tool("other")));
        assert_pending!(reply.poll());
        let (request, send) = handle.next_request().await.expect("a request");
        assert_eq!(request.tool_call().expect("a call").name, "other");
        send.send_response(CallToolResult::success(vec![]).into());
        assert_ready_ok!(reply.poll());
        assert_pending!(service.poll_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn layer_works_above_services_that_admit_one_request() {
    for layer in every_mode() {
        for request in [
            Request::list_tools(),
            call("get_price", json!({})),
            call("search_tools", json!({ "query": "price" })),
            through("get_price", json!({})),
        ] {
            let limited = layer.layer(ConcurrencyLimit::new(server(), 1)).oneshot(request.clone());
            let buffered = layer.layer(Buffer::new(server(), 1)).oneshot(request);
            for answered in [limited.await, buffered.await] {
                answered.expect("an answer");
            }
        }
    }
    // A search returns the permit of its list.
    let [.., layer] = every_mode();
    let mut service = layer.layer(ConcurrencyLimit::new(server(), 1));
    let search = call("search_tools", json!({ "query": "price" }));
    let search = service.ready().await.unwrap().call(search);
    let reply = tokio::time::timeout(Duration::from_secs(60), search).await.expect("in time");
    assert!(reply.unwrap().error().is_none());
}

#[test]
fn layer_needs_no_runtime() {
    let inner = tower::service_fn(|request: Request| async move {
        Ok::<Reply, Infallible>(match request.tool_call() {
            Some(_) => CallToolResult::success(vec![]).into(),
            None => ListToolsResult::default().into(),
        })
    });
    for layer in every_mode() {
        for request in [Request::list_tools(), call("search_tools", json!({ "query": "" }))] {
            let reply = futures::executor::block_on(layer.layer(inner).oneshot(request));
            assert!(reply.unwrap().error().is_none());
        }
    }
}

#[test]
fn forwarded_request_allocates_nothing() {
    let allocations = |layer: &AdvertiseLayer, request: Request| {
        let answer = std::sync::Mutex::new(Some(Reply::from(CallToolResult::success(vec![]))));
        let inner = std::sync::Arc::new(answer);
        let mut service = layer.layer(tower::service_fn(move |_: Request| {
            std::future::ready(Ok::<_, Infallible>(inner.lock().unwrap().take().expect("one call")))
        }));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let counted = allocation_counter::measure(|| {
            assert!(service.poll_ready(&mut cx).is_ready());
            let reply = std::pin::pin!(service.call(request)).poll(&mut cx);
            assert!(matches!(reply, std::task::Poll::Ready(Ok(_))));
        });
        counted.count_total
    };
    for layer in every_mode() {
        assert_eq!(allocations(&layer, call("other", json!({ "q": "x" }))), 0, "{layer:?}");
    }
    assert_eq!(allocations(&AdvertiseLayer::new(), call("search_tools", json!({}))), 0);
    assert_eq!(allocations(&AdvertiseLayer::new(), Request::list_tools()), 0);
}

#[tokio::test(start_paused = true)]
async fn client_searches_and_calls_a_composite_of_hidden_tools() {
    for era in [Era::Legacy, Era::Modern] {
        let (handler, _calls) = unusual();
        let both = CompositeTool::fan_out("both", "Fine twice", ["fine", "fine"]);
        let layer =
            AdvertiseLayer::new().composites(["both"]).tools(deny(&["*"])).mode(Mode::Search);
        let stack = (layer, CompositeLayer::new([both]).unwrap());
        let server: ServeService<Advertise<Composite<_>>> = ServeService::wrap(handler, stack);
        let connection = connect(server, era).await;

        let tools = connection.client.list_all_tools().await.unwrap();
        let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["search_tools", "call_tool"]);
        assert!(tools[0].output_schema.is_some());

        let search = json!({ "name": "search_tools", "arguments": { "query": "twice fine" } });
        let result = connection.send("tools/call", search).await.unwrap();
        assert_eq!(result["structuredContent"]["total"], 1);
        assert_eq!(result["structuredContent"]["tools"][0]["name"], "both");
        let schema = Value::Object((**tools[0].output_schema.as_ref().unwrap()).clone());
        assert!(result["isError"] == false && schema["required"][0] == "tools");

        let params = CallToolRequestParams::new("call_tool")
            .with_arguments(object(json!({ "name": "both" })));
        let result = connection.client.call_tool(params).await.unwrap();
        // Two texts, each below the label of its branch.
        assert_eq!(result.content.len(), 4);
        let error = connection.call_tool("fine").await.unwrap_err().to_string();
        assert!(error.contains("unknown tool `fine`"), "{error}");
    }
}
