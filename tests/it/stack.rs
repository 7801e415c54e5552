//! All layers together, in their order, and each of them among stock layers.

use std::time::Duration;

use futures::future::join_all;
use mcp_composite::{
    adapter::{
        HandlerService,
        router::{Backend, Router},
    },
    advertise::{AdvertiseLayer, Mode},
    alias::{AliasLayer, ArgumentAlias, ToolAlias},
    budget::{Budget, BudgetLayer, Cost, Unit},
    changes::Changes,
    composite::{CompositeLayer, CompositeTool},
    filter::FilterLayer,
    functions::{FunctionsLayer, ToolSet, tool_fn},
    limit::LimitLayer,
    message::{Context, Reply, Request},
    pattern::Selection,
    redact::{RedactLayer, Redaction},
    stack::{BackendLayer, StackLayer},
    truncate::TruncateLayer,
    validate::{SchemaMode, ValidateLayer},
};
use rmcp::model::{
    CallToolResult, ClientRequest, JsonObject, ListToolsResult, Tool, ToolAnnotations,
};
use serde_json::json;
use tower::{
    BoxError, Layer, Service, ServiceExt, buffer::Buffer, limit::ConcurrencyLimit,
    load_shed::LoadShed, timeout::Timeout, util::BoxCloneService,
};

use crate::{
    contract::{allocations_of, without_spans},
    scripted::{Answer, Server, call, object, search_tool},
    support::Full,
};

type Boxed = BoxCloneService<Request, Reply, BoxError>;

/// A layer whose type does not matter.
type AnyLayer = Box<dyn Fn(Boxed) -> Boxed>;

/// The argument size limits of the limit layer and of the validate layer.
const AT_THE_DOOR: usize = 200;
const BELOW: usize = 100;

fn any<L>(layer: L) -> AnyLayer
where
    L: Layer<Boxed> + 'static,
    L::Service: Service<Request, Response = Reply, Future: Send> + Clone + Send + 'static,
    <L::Service as Service<Request>>::Error: Into<BoxError> + 'static,
{
    Box::new(move |inner| Boxed::new(layer.layer(inner).map_err(Into::into)))
}

fn deny<const N: usize>(patterns: [&str; N]) -> Selection {
    Selection::default().deny(patterns).unwrap()
}

/// A server with these tools.
fn server() -> Server {
    ["search_code", "drop_all", "spare"]
        .into_iter()
        .fold(Server::new(), |server, name| server.tool_as(search_tool(name), Answer::echo()))
}

fn limit() -> LimitLayer {
    LimitLayer::new().max_argument_bytes(AT_THE_DOOR)
}

fn advertise() -> AdvertiseLayer {
    AdvertiseLayer::new().tools(deny(["search"]))
}

fn composite() -> CompositeLayer {
    let all = CompositeTool::fan_out("all", "Searches", ["search"]);
    CompositeLayer::new([all]).unwrap()
}

fn alias() -> AliasLayer {
    let search = ToolAlias::new("search_code").name("search");
    let drop = ToolAlias::new("drop_all").name("drop");
    AliasLayer::new().tools([search, drop]).unwrap()
}

fn filter() -> FilterLayer {
    FilterLayer::new().tools(deny(["drop_all"])).hide_destructive(true)
}

fn validate() -> ValidateLayer {
    ValidateLayer::new().schema(SchemaMode::Strict).max_argument_bytes(BELOW)
}

/// Returns a stack of all layers.
fn full() -> StackLayer {
    StackLayer::new()
        .limit(limit())
        .advertise(advertise())
        .composite(composite())
        .alias(alias())
        .filter(filter())
        .validate(validate())
}

/// Returns the same layers by hand, from the top to the bottom.
fn by_hand() -> [AnyLayer; 6] {
    [
        any(limit()),
        any(advertise().composites(composite().names())),
        any(composite()),
        any(alias()),
        any(filter()),
        any(validate()),
    ]
}

fn put_around(layers: &[AnyLayer], server: &Server) -> Boxed {
    layers.iter().rev().fold(Boxed::new(server.clone()), |inner, layer| layer(inner))
}

/// Returns the answer to a client, in short, and the calls of the server.
async fn outcome<S>(service: S, server: &Server, request: Request) -> String
where
    S: Service<Request, Response = Reply>,
    S::Error: std::fmt::Debug,
{
    let before = server.called().len();
    let reply = service.oneshot(request).await.unwrap();
    let answer = match (reply.error(), reply.tools(), reply.tool_result()) {
        (Some(error), ..) => error.message.to_string(),
        (_, Some(page), _) => {
            page.tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>().join(", ")
        }
        (.., Some(result)) => json!(result.structured_content).to_string(),
        _ => "nothing".to_owned(),
    };
    let called = server.called().split_off(before).into_iter().map(|tool| format!(" | {tool}"));
    std::iter::once(answer).chain(called).collect()
}

// === BranchOrder ===

/// Returns for each two neighbors, from the top to the bottom: their names, a request whose outcome
/// depends on their order, and its outcome.
fn neighbours() -> [(&'static str, Request, String); 5] {
    let sized = |bytes: usize| json!({ "q": "x".repeat(bytes) });
    let output = json!({ "branches": {
        "search": { "status": "completed", "output": { "q": "x" } },
    } });
    [
        (
            "what is too large is refused before anybody looks what it is",
            call("search", sized(AT_THE_DOOR + 1)),
            format!("the request has more than {AT_THE_DOOR} bytes (`max_argument_bytes`)"),
        ),
        (
            "composites reach what is not shown",
            call("all", json!({ "q": "x" })),
            format!("{output} | search_code"),
        ),
        (
            "composites know tools by the names that clients see",
            Request::list_tools(),
            "spare, all".to_owned(),
        ),
        (
            "another name is no way around a filter",
            call("drop", json!({})),
            "unknown tool `drop`".to_owned(),
        ),
        (
            "what is hidden is not measured for its server",
            call("drop", sized(BELOW + 1)),
            "unknown tool `drop`".to_owned(),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn requests_pass_the_layers_in_the_documented_order() {
    for (what, request, expected) in neighbours() {
        let server = server();
        assert_eq!(
            outcome(full().layer(server.clone()), &server, request).await,
            expected,
            "{what}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn swapped_neighbors_are_detected() {
    for (place, (what, request, expected)) in neighbours().into_iter().enumerate() {
        let server = server();
        let mut layers = by_hand();
        let stack = put_around(&layers, &server);
        assert_eq!(outcome(stack, &server, request.clone()).await, expected, "{what}");

        layers.swap(place, place + 1);
        let stack = put_around(&layers, &server);
        assert_ne!(outcome(stack, &server, request).await, expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn backend_layers_use_the_names_of_their_backend() {
    let layer = BackendLayer::new().alias(alias()).filter(filter()).validate(validate());
    let (one, two) = (server(), server());
    let router = Router::builder()
        .backend(Backend::new("one", layer.layer(one.clone())))
        .backend(Backend::new("two", two.clone()))
        .build()
        .unwrap();
    let find = ToolAlias::new("one_search").name("find");
    let find = AliasLayer::new().tools([find]).unwrap();
    let stack = StackLayer::new().alias(find).layer(router);

    let listed = outcome(stack.clone(), &one, Request::list_tools()).await;
    assert_eq!(listed, "find, one_spare, two_search_code, two_drop_all, two_spare");
    let output = json!({ "q": "x" });
    let too_large = format!("the request has more than {BELOW} bytes (`max_argument_bytes`)");
    let large = json!({ "q": "x".repeat(BELOW + 1) });
    for (server, tool, arguments, expected) in [
        (&one, "find", &output, format!("{output} | search_code")),
        (&one, "find", &large, too_large),
        (
            &one,
            "find",
            &json!({ "q": 1 }),
            "invalid arguments for `find`: at `/q`: the value is not of type \"string\"".to_owned(),
        ),
        (&one, "one_search", &output, "unknown tool `one_search`".to_owned()),
        (&one, "one_search_code", &output, "unknown tool `one_search_code`".to_owned()),
        (&one, "one_drop", &output, "unknown tool `one_drop`".to_owned()),
        (&one, "one_drop_all", &output, "unknown tool `one_drop_all`".to_owned()),
        (&two, "two_drop_all", &output, format!("{output} | drop_all")),
        (&two, "two_search_code", &large, format!("{large} | search_code")),
    ] {
        let request = call(tool, arguments.clone());
        assert_eq!(outcome(stack.clone(), server, request).await, expected, "{tool}");
    }
}

// === Empty configuration ===

/// Returns requests of every kind, for existing and missing items.
fn requests() -> Vec<Request> {
    [
        ("tools/list", json!({})),
        ("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } })),
        ("tools/call", json!({ "name": "search_tools", "arguments": { "query": "x" } })),
        ("tools/call", json!({ "name": "nope" })),
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "haiku" })),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({ "uri": "full://a" })),
        ("resources/read", json!({ "uri": "full://gone" })),
        ("resources/subscribe", json!({ "uri": "full://a" })),
        ("resources/unsubscribe", json!({ "uri": "full://a" })),
        (
            "completion/complete",
            json!({
                "ref": { "type": "ref/prompt", "name": "haiku" },
                "argument": { "name": "a", "value": "b" },
            }),
        ),
        ("ping", json!({})),
        ("test/mirror", json!({ "a": { "b": [1, 2.5, null] } })),
    ]
    .into_iter()
    .map(|(method, params)| {
        let request: ClientRequest =
            serde_json::from_value(json!({ "method": method, "params": params })).unwrap();
        Request::new(request, Context::default())
    })
    .collect()
}

/// Returns the answers of a service, byte for byte, and the requests that reached the server.
async fn transcript<S>(service: S, server: &Full) -> Vec<String>
where
    S: Service<Request, Response = Reply, Error: std::fmt::Debug> + Clone,
{
    let mut transcript = Vec::new();
    for request in requests() {
        let reply = service.clone().oneshot(request).await.unwrap();
        transcript.push(serde_json::to_string(&reply.into_result()).unwrap());
    }
    transcript.extend(server.log.lines());
    transcript
}

#[tokio::test]
async fn default_layers_leave_requests_and_replies_unchanged() {
    let server = || {
        let full = Full::default();
        (HandlerService::new(full.clone()), full)
    };
    let (bare, full) = server();
    let expected = transcript(bare, &full).await;
    assert!(expected.len() > requests().len(), "the server is reached");

    let (service, full) = server();
    assert_eq!(transcript(StackLayer::new().layer(service), &full).await, expected);
    let (service, full) = server();
    assert_eq!(transcript(BackendLayer::new().layer(service), &full).await, expected);
}

#[test]
fn default_layers_allocate_nothing() {
    let _guard = without_spans();
    let requests =
        requests().into_iter().chain([call("all", json!({ "q": "x" })), Request::list_tools()]);
    for request in requests {
        let method = request.method().to_owned();
        assert_eq!(allocations_of(&StackLayer::new(), request.clone()), 0, "{method}");
        assert_eq!(allocations_of(&BackendLayer::new(), request), 0, "{method}");
    }
}

// === Known tools ===

/// A composite of two tools.
fn both() -> CompositeLayer {
    let both = CompositeTool::fan_out("both", "Both", ["search_code", "spare"]);
    CompositeLayer::new([both]).unwrap()
}

fn search_mode() -> AdvertiseLayer {
    AdvertiseLayer::new().mode(Mode::Search)
}

fn only_harmless() -> FilterLayer {
    FilterLayer::new().hide_destructive(true)
}

fn strict() -> ValidateLayer {
    ValidateLayer::new().schema(SchemaMode::Strict)
}

/// A stack of all layers that need the list of tools.
fn curious() -> StackLayer {
    StackLayer::new()
        .advertise(search_mode())
        .composite(both())
        .filter(only_harmless())
        .validate(strict())
}

fn find() -> Request {
    call("search_tools", json!({ "query": "spare" }))
}

fn run() -> Request {
    call("both", json!({ "q": "x" }))
}

fn spare() -> Request {
    call("spare", json!({ "q": "x" }))
}

#[tokio::test(start_paused = true)]
async fn catalogs_are_warmed_before_the_first_request() {
    for (layer, lists, requests) in [
        (StackLayer::new().advertise(search_mode()), 1, vec![find()]),
        (StackLayer::new().composite(both()), 1, vec![run()]),
        (StackLayer::new().filter(only_harmless()), 1, vec![spare()]),
        (StackLayer::new().validate(strict()), 1, vec![spare()]),
        (curious(), 4, vec![find(), run(), spare()]),
    ] {
        let server = server();
        let stack = layer.layer(server.clone());
        stack.warm().await.unwrap();
        assert_eq!(server.lists(), lists, "{layer:?}");
        for request in requests {
            assert!(answers_in_time(Boxed::new(stack.clone()), request).await, "{layer:?}");
        }
        assert_eq!(server.lists(), lists, "{layer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn layers_that_need_no_catalog_list_no_tools() {
    for layer in [
        StackLayer::new(),
        StackLayer::new()
            .limit(limit())
            .advertise(advertise())
            .alias(alias())
            .filter(FilterLayer::new().tools(deny(["drop_all"])))
            .validate(ValidateLayer::new().max_argument_bytes(AT_THE_DOOR)),
    ] {
        let server = server();
        layer.layer(server.clone()).warm().await.unwrap();
        assert_eq!(server.lists(), 0, "{layer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn change_reaches_every_layer_of_the_stack() {
    let changes = Changes::default();
    let server = server();
    let stack = curious().changes(&changes).layer(server.clone());
    stack.warm().await.unwrap();
    server.add(search_tool("late"), Answer::echo());
    changes.tools().bump();
    let found = outcome(stack.clone(), &server, call("search_tools", json!({ "query": "late" })));
    assert!(found.await.contains(r#""total":1"#));
    let wrong = outcome(stack.clone(), &server, call("late", json!({ "q": 1 })));
    assert!(wrong.await.starts_with("invalid arguments for `late`"));
    assert!(answers_in_time(Boxed::new(stack), call("late", json!({ "q": "x" }))).await);
}

// === Stock layers ===

/// Returns each layer alone and all of them, with a request that triggers them.
fn layers() -> [(&'static str, AnyLayer, Request); 12] {
    let token = ArgumentAlias::new().hide().default(json!("t"));
    let alias = ToolAlias::new("spare").name("other").argument("token", token);
    let alias = AliasLayer::new().tools([alias]).unwrap();
    let backend = BackendLayer::new().filter(only_harmless()).validate(strict());
    let calls = Budget::new("calls", Unit::Calls, 1000);
    let redaction = Redaction::new(Selection::default(), ["/secret"]).unwrap();
    let now = Tool::new("now", "The time", JsonObject::new());
    let now = ToolSet::new([tool_fn(now, async |_: JsonObject, _| "noon")]).unwrap();
    [
        ("truncate", any(TruncateLayer::new().max_result_bytes(20)), spare()),
        ("redact", any(RedactLayer::new().redaction(redaction)), spare()),
        ("budget", any(BudgetLayer::new().budget(calls)), spare()),
        ("functions", any(FunctionsLayer::new(now)), spare()),
        ("limit", any(limit()), spare()),
        ("advertise", any(search_mode()), find()),
        ("composite", any(both()), run()),
        ("alias", any(alias), call("other", json!({ "q": "x" }))),
        ("filter", any(only_harmless()), spare()),
        ("validate", any(strict()), spare()),
        ("those of a backend", any(backend), spare()),
        ("all", any(curious()), run()),
    ]
}

/// Redactions and budgets have patterns of tools, which they never list.
#[tokio::test(start_paused = true)]
async fn unmatched_patterns_below_the_filter_are_reported() {
    let tools = |pattern: &str| Selection::default().allow([pattern]).unwrap();
    let redaction = Redaction::new(tools("users_*"), ["/email"]).unwrap();
    let budget = Budget::new("calls", Unit::Calls, 9).tools(tools("serch_code"));
    let layer = StackLayer::new()
        .redact(RedactLayer::new().redaction(redaction))
        .budget(BudgetLayer::new().budget(budget).cost(Cost::new(tools("drop_*"), 2)));
    let stack = layer.layer(server());
    assert_eq!(layer.warnings(), [""; 0]);
    stack.oneshot(Request::list_tools()).await.unwrap();
    assert_eq!(
        layer.warnings(),
        [
            "`users_*` in `redactions.tools` matches no tool",
            "`serch_code` in `budget.limits.tools` matches no tool: did you mean `search_code`?",
        ]
    );
}

fn stock_layers() -> [(&'static str, AnyLayer); 4] {
    [
        ("a concurrency limit", Box::new(|inner| Boxed::new(ConcurrencyLimit::new(inner, 1)))),
        ("a timeout", Box::new(|inner| Boxed::new(Timeout::new(inner, Duration::from_secs(60))))),
        ("a buffer", Box::new(|inner| Boxed::new(Buffer::new(inner, 1)))),
        ("load shedding", Box::new(|inner| Boxed::new(LoadShed::new(inner)))),
    ]
}

/// Returns whether a request is answered in time, with the requested result.
async fn answers_in_time(service: Boxed, request: Request) -> bool {
    let reply = tokio::time::timeout(Duration::from_secs(1), service.oneshot(request)).await;
    let reply = reply.ok().and_then(Result::ok);
    reply.is_some_and(|reply| reply.tool_result().is_some_and(|it| it.is_error == Some(false)))
}

#[tokio::test(start_paused = true)]
async fn layers_do_not_deadlock_around_stock_layers() {
    for (stock, around) in stock_layers() {
        for (what, layer, request) in layers() {
            let server = Boxed::new(server());
            for (place, service) in [
                ("above", layer(around(server.clone()))),
                ("below", around(layer(server.clone()))),
                ("between", around(layer(around(server)))),
            ] {
                let calls = (0..3).map(|_| answers_in_time(service.clone(), request.clone()));
                let answered = join_all(calls).await;
                assert_eq!(answered, [true; 3], "{what} {place} {stock}");
            }
        }
    }
}

/// Two callers of one server: an admin sees a read-only tool that takes a number and declares a
/// long text as output, and another tool; a guest sees a tool of the same name that changes things,
/// takes a text and declares no output.
async fn for_two_roles(request: Request) -> Result<Reply, BoxError> {
    if !request.lists_tools() {
        return Ok(CallToolResult::structured(json!({ "text": "x".repeat(500) })).into());
    }
    let is_admin = request.context().extensions().get::<&str>() == Some(&"admin");
    let (kind, least) = if is_admin { ("integer", 500) } else { ("string", 0) };
    let input = json!({ "type": "object", "properties": { "n": { "type": kind } } });
    let output = json!({ "type": "object", "properties": { "text": { "minLength": least } } });
    let shared = Tool::new("shared", "For both", object(input))
        .with_raw_output_schema(object(output).into())
        .with_annotations(ToolAnnotations::new().read_only(is_admin));
    let only = is_admin.then(|| Tool::new("only", "For one", object(json!({}))));
    Ok(ListToolsResult::with_all_items([shared].into_iter().chain(only).collect()).into())
}

#[tokio::test(start_paused = true)]
async fn each_layer_knows_the_tools_that_its_caller_sees() {
    let stack = || {
        let role =
            |context: &Context| context.extensions().get::<&str>().map(|role| role.to_string());
        StackLayer::new().vary_by(role)
    };
    let composite = CompositeLayer::new([CompositeTool::fan_out("all", "All", ["only"])]).unwrap();
    let is_answered = |reply: &Reply| reply.error().is_none();
    let content = |reply: &Reply| reply.tool_result().unwrap().structured_content.clone();
    let finds = |reply: &Reply| content(reply).unwrap()["tools"][0]["name"] == "only";
    let is_not_cut = |reply: &Reply| {
        content(reply)
            .is_none_or(|content| content["text"].as_str().is_none_or(|it| it.len() == 500))
    };
    type IsAdmins<'t> = &'t dyn Fn(&Reply) -> bool;
    let cases: [(&str, StackLayer, &str, IsAdmins<'_>); 5] = [
        (
            "validate",
            stack().validate(ValidateLayer::new().schema(SchemaMode::Strict)),
            "shared",
            &is_answered,
        ),
        ("filter", stack().filter(FilterLayer::new().read_only_only(true)), "shared", &is_answered),
        ("composite", stack().composite(composite), "all", &is_answered),
        (
            "advertise",
            stack().advertise(AdvertiseLayer::new().mode(Mode::Search)),
            "search_tools",
            &finds,
        ),
        (
            "truncate",
            stack().truncate(TruncateLayer::new().max_result_bytes(300)),
            "shared",
            &is_not_cut,
        ),
    ];
    for (layer, stack, tool, is_admins) in cases {
        let service = stack.layer(tower::service_fn(for_two_roles));
        for role in ["admin", "guest", "admin", "guest"] {
            let is_search = tool == "search_tools";
            let arguments = if is_search { json!({ "query": "only" }) } else { json!({ "n": 1 }) };
            let mut request = call(tool, arguments);
            request.context_mut().extensions_mut().insert(role);
            let reply = service.clone().oneshot(request).await.unwrap();
            assert_eq!(is_admins(&reply), role == "admin", "{layer}, {role}: {reply:?}");
        }
    }
}
