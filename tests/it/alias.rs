//! Aliases of names, texts and arguments.

use std::{convert::Infallible, error::Error, sync::Arc, time::Duration};

use futures::FutureExt;
use mcp_composite::{
    adapter::ServeService,
    alias::{
        Alias, AliasErrorKind, AliasLayer, ArgumentAlias, PromptAlias, ResourceAlias, ToolAlias,
    },
    changes::Changes,
    message::{Context, ItemKind, Refusal, Reply, Request, Subject, Violation},
};
use rmcp::model::*;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    scripted::{Answer, Server, call, object, search_tool},
    support::{Connection, Era, Full, capture_logs, connect, soon},
};

fn tools(aliases: impl IntoIterator<Item = ToolAlias>) -> AliasLayer {
    AliasLayer::new().tools(aliases).expect("good aliases")
}

fn echoing(names: &[&str]) -> Server {
    names
        .iter()
        .fold(Server::new(), |server, name| server.tool_as(search_tool(name), Answer::echo()))
}

fn renamed(original: &str, name: &str) -> ToolAlias {
    ToolAlias::new(original).name(name)
}

/// An alias with an argument of each kind.
fn search() -> ToolAlias {
    renamed("search_code", "search")
        .argument("q", ArgumentAlias::new().rename("query"))
        .argument("limit", ArgumentAlias::new().default(json!(5)))
        .argument("token", ArgumentAlias::new().hide().default(json!("secret")))
        .argument("debug", ArgumentAlias::new().hide())
}

/// Lists all pages of tools.
async fn listed(stack: &Alias<Server>) -> Vec<Tool> {
    let (mut tools, mut cursor) = (Vec::new(), None);
    loop {
        let request = Request::list_tools_from(cursor);
        let reply = stack.clone().oneshot(request).await.expect("an answer");
        let page = reply.tools().expect("tools");
        tools.extend(page.tools.iter().cloned());
        cursor = page.next_cursor.clone();
        if cursor.is_none() {
            return tools;
        }
    }
}

async fn names(stack: &Alias<Server>) -> Vec<String> {
    listed(stack).await.into_iter().map(|tool| tool.name.into_owned()).collect()
}

/// Returns the arguments that the server receives, or the error.
async fn called(
    stack: &Alias<Server>,
    server: &Server,
    request: Request,
) -> Result<String, String> {
    let before = server.calls().len();
    let reply = stack.clone().oneshot(request).await.expect("an answer");
    match reply.error() {
        Some(error) => Err(error.message.to_string()),
        None => {
            let call = &server.calls()[before];
            Ok(format!("{} {}", call.tool(), call.arguments()))
        }
    }
}

/// Returns a layer below that rejects everything with this refusal.
fn refusing(refusal: Refusal) -> impl Fn(Request) -> std::future::Ready<Result<Reply, Infallible>> {
    move |_| std::future::ready(Ok(refusal.clone().into()))
}

// === Tools ===

#[tokio::test]
async fn tools_are_listed_and_called_by_their_aliases() {
    let server = echoing(&["a", "b", "c", "d"]);
    let stack =
        tools([renamed("a", "x"), renamed("b", "c"), renamed("c", "b")]).layer(server.clone());
    assert_eq!(names(&stack).await, ["x", "c", "b", "d"], "swapped, and one as it was");
    for (name, expected) in [
        ("x", Ok("a {}")),
        ("c", Ok("b {}")),
        ("b", Ok("c {}")),
        ("d", Ok("d {}")),
        ("a", Err("unknown tool `a`")),
        ("nope", Err("unknown tool `nope`")),
    ] {
        let answer = called(&stack, &server, call(name, json!({}))).await;
        assert_eq!(answer.as_deref().map_err(String::as_str), expected, "{name}");
    }
}

#[tokio::test]
async fn alias_keeps_unset_properties_of_the_tool() {
    let given = ToolAnnotations::new().destructive(true);
    let alias = ToolAlias::new("a").title("A").description("It is a").annotations(given);
    let server = echoing(&["a", "b"]);
    let tools_before = listed(&AliasLayer::new().layer(server.clone())).await;
    let tools = listed(&tools([alias]).layer(server)).await;
    assert_eq!(tools[1], tools_before[1]);
    let mut expected = tools_before[0].clone();
    expected.title = Some("A".to_owned());
    expected.description = Some("It is a".into());
    expected.annotations.as_mut().unwrap().destructive_hint = Some(true);
    assert_eq!(tools[0], expected, "other annotations stay");
}

#[tokio::test]
async fn alias_replaces_a_tool_of_the_same_name() {
    let (logged, _guard) = capture_logs();
    for page_size in [1, 10] {
        let server = echoing(&["real", "b"]).page_size(page_size);
        let layer = tools([renamed("b", "real")]).of("backend `github`");
        let stack = layer.layer(server.clone());
        assert_eq!(names(&stack).await, ["real"]);
        assert_eq!(names(&stack).await, ["real"]);
        assert_eq!(called(&stack, &server, call("real", json!({}))).await, Ok("b {}".to_owned()));
        let warning =
            "alias `real` of tool `b` of backend `github`: another tool with this name is hidden";
        assert_eq!(layer.warnings(), [warning]);
    }
    assert_eq!(logged.text().matches("is hidden").count(), 2, "once for each layer");
}

#[tokio::test]
async fn incomplete_list_causes_no_alias_warning() {
    let layer = tools([renamed("search_code", "search")]);
    let paged = layer.layer(echoing(&["a", "b"]).page_size(1));
    paged.oneshot(Request::list_tools()).await.unwrap();
    let fails = |_: Request| async {
        Ok::<Reply, Infallible>(ErrorData::internal_error("no", None).into())
    };
    let broken = layer.layer(service_fn(fails));
    broken.oneshot(Request::list_tools_from(Some("1".to_owned()))).await.unwrap();
    assert_eq!(layer.warnings(), [""; 0]);
}

#[tokio::test]
async fn alias_of_a_missing_tool_is_reported_once_after_a_full_list() {
    let server = echoing(&["search_codes", "b", "c", "late"]).page_size(2);
    let layer = tools([renamed("search_code", "search"), renamed("late", "early")]);
    let stack = layer.layer(server);
    let last = Request::list_tools_from(Some("2".to_owned()));
    stack.clone().oneshot(last).await.unwrap();
    assert_eq!(layer.warnings(), [""; 0], "the first page was not seen");
    for _ in 0..2 {
        listed(&stack).await;
        let warning =
            "alias `search` of tool `search_code`: tool not found: did you mean `search_codes`?";
        assert_eq!(layer.warnings(), [warning]);
    }
}

#[test]
fn original_names_map_to_client_names() {
    let layer =
        tools([renamed("a", "x"), renamed("b", "c"), renamed("c", "b"), ToolAlias::new("d")]);
    let cases = [
        ("a", Some("x")),
        ("b", Some("c")),
        ("c", Some("b")),
        ("d", Some("d")),
        ("e", Some("e")),
        ("x", None),
    ];
    for (original, name) in cases {
        assert_eq!(layer.name_of(ItemKind::Tool, original), name, "{original}");
        assert_eq!(layer.name_of(ItemKind::Prompt, original), Some(original));
    }
}

#[test]
fn all_errors_of_a_list_are_reported_with_their_index() {
    let hidden = ArgumentAlias::new().hide().rename("r").description("d");
    let aliases = [
        renamed("a", "x"),
        renamed("b", "x"),
        renamed("a", "y"),
        renamed("", "z"),
        renamed("c", " "),
        renamed("d", "no/slash"),
        ToolAlias::new("x"),
        ToolAlias::new("e")
            .argument("p", ArgumentAlias::new().rename("q"))
            .argument("q", ArgumentAlias::new())
            .argument("h", hidden)
            .argument("h", ArgumentAlias::new()),
    ];
    let errors = AliasLayer::new().tools(aliases).unwrap_err();
    let lines: Vec<_> = errors
        .iter()
        .map(|error| format!("{} {} {}", error.index(), error.keys().join("."), error.kind()))
        .collect();
    assert_eq!(
        lines,
        [
            "1 name another alias gives the name `x`",
            "2 original `a` has an alias already",
            "3 original a blank name",
            "4 name a blank name",
            "5 name illegal tool name \"no/slash\": expected 1 to 128 of `A-Z`, `a-z`, `0-9`, `_`, `-`, `.`",
            "6 original another alias gives the name `x`",
            "7 arguments.q.rename another alias gives the name `q`",
            "7 arguments.h.rename `rename` cannot be used with `hide`: clients see nothing of the argument",
            "7 arguments.h.description `description` cannot be used with `hide`: clients see nothing of the argument",
            "7 arguments.h `h` has an alias already",
        ]
    );
    assert!(errors.iter().all(|error| error.list() == ItemKind::Tool));
    let each: Vec<_> = (&errors).into_iter().cloned().collect();
    assert_eq!((each.len(), errors.into_iter().collect::<Vec<_>>()), (10, each));
    let with_separator = AliasLayer::new().separator("/").tools([renamed("d", "one/slash")]);
    assert!(with_separator.is_ok());
    assert!(AliasLayer::new().separator("/").tools([renamed("d", "two//slashes")]).is_err());
}

#[test]
fn template_alias_with_another_ending_is_rejected() {
    for (original, uri) in [
        ("db://{table}", "my://{other}"),
        ("db://{table}", "my://tables"),
        ("db://tables", "my://{table}"),
    ] {
        let errors = AliasLayer::new().resources([ResourceAlias::new(original).uri(uri)]);
        let kind = errors.unwrap_err().iter().next().unwrap().kind().clone();
        assert!(matches!(kind, AliasErrorKind::OtherTemplate { .. }), "{kind}");
    }
}

#[test]
fn errors_are_printed_one_per_line() {
    let aliases = [renamed("a", "x"), renamed("b", "x"), renamed("a", "y")];
    let errors = AliasLayer::new().tools(aliases).unwrap_err();
    let expected = "alias 1 of tools at `name`: another alias gives the name `x`\n\
                    alias 2 of tools at `original`: `a` has an alias already";
    assert_eq!(errors.to_string(), expected);
}

#[test]
fn error_message_appears_once_without_a_source() {
    let errors = AliasLayer::new().tools([renamed("", "x")]).unwrap_err();
    let mistake = errors.iter().next().unwrap();
    assert_eq!(mistake.to_string(), "alias 0 of tools at `original`: a blank name");
    assert!(mistake.source().is_none());
}

// === Arguments ===

#[tokio::test]
async fn arguments_are_renamed_and_completed_for_the_server() {
    let server = echoing(&["search_code"]);
    let stack = tools([search()]).layer(server.clone());
    let unknown = |names: &[&str]| {
        let violations = names.iter().map(|name| format!("at `/{name}`: is not known to the tool"));
        Err(format!(
            "invalid arguments for `search`: {}",
            violations.collect::<Vec<_>>().join("; ")
        ))
    };
    let sent = |arguments: Value| Ok(format!("search_code {arguments}"));
    for (given, expected) in [
        (json!({}), sent(json!({ "limit": 5, "token": "secret" }))),
        (
            json!({ "query": "x", "limit": 1, "z": 0 }),
            sent(json!({ "q": "x", "limit": 1, "token": "secret", "z": 0 })),
        ),
        (json!({ "limit": null }), sent(json!({ "limit": null, "token": "secret" }))),
        (json!({ "q": "x" }), unknown(&["q"])),
        (json!({ "token": "mine", "debug": true, "q": 1 }), unknown(&["debug", "q", "token"])),
    ] {
        assert_eq!(
            called(&stack, &server, call("search", given.clone())).await,
            expected,
            "{given}"
        );
    }
    let none = Request::call_tool("search");
    assert_eq!(called(&stack, &server, none).await, sent(json!({ "limit": 5, "token": "secret" })));
}

#[tokio::test]
async fn arguments_can_be_swapped() {
    let swapped = ToolAlias::new("t")
        .argument("a", ArgumentAlias::new().rename("b"))
        .argument("b", ArgumentAlias::new().rename("a"))
        .argument("c", ArgumentAlias::new().hide().default(json!(3)))
        .argument("d", ArgumentAlias::new().rename("c"));
    let server = echoing(&["t"]);
    let stack = tools([swapped]).layer(server.clone());
    let request = call("t", json!({ "a": 1, "b": 2, "c": 4 }));
    let expected = json!({ "a": 2, "b": 1, "c": 3, "d": 4 });
    assert_eq!(called(&stack, &server, request).await, Ok(format!("t {expected}")));
}

#[tokio::test]
async fn schema_shows_only_arguments_that_clients_can_set() {
    let schema = json!({
        "type": "object",
        "properties": {
            "q": { "type": "string" }, "limit": { "type": "integer" },
            "token": { "type": "string" }, "debug": { "type": "boolean" },
        },
        "required": ["q", "limit", "token"],
        "additionalProperties": false,
    });
    let tool = Tool::new("search_code", "Searches", object(schema));
    let layer = tools([search()]);
    let stack = layer.layer(Server::new().tool_as(tool, Answer::echo()));
    for _ in 0..2 {
        assert_eq!(
            Value::Object((*listed(&stack).await[0].input_schema).clone()),
            json!({
                "type": "object",
                "properties": {
                    "query": { "type": "string" }, "limit": { "type": "integer", "default": 5 },
                },
                "required": ["query"],
                "additionalProperties": false,
            })
        );
    }
    assert_eq!(layer.warnings(), [""; 0]);
}

#[tokio::test]
async fn schema_is_rewritten_once_and_again_if_it_changes() {
    let layer = tools([search()]);
    let listed_schema = async |argument: &str| {
        // The schema is built anew each time.
        let schema = object(json!({ "properties": { "q": {}, argument: {} } }));
        let list = ListToolsResult::with_all_items(vec![Tool::new("search_code", "", schema)]);
        let answer =
            move |_: Request| std::future::ready(Ok::<Reply, Infallible>(list.clone().into()));
        let reply = layer.layer(service_fn(answer)).oneshot(Request::list_tools()).await.unwrap();
        reply.tools().unwrap().tools[0].input_schema.clone()
    };
    let (first, same, other) =
        (listed_schema("a").await, listed_schema("a").await, listed_schema("b").await);
    assert_eq!(first["properties"], json!({ "query": {}, "a": {} }));
    assert!(Arc::ptr_eq(&first, &same));
    assert_eq!(other["properties"], json!({ "query": {}, "b": {} }));
}

#[tokio::test]
async fn schema_without_argument_aliases_is_unchanged() {
    // Too long to be inspected.
    let schema = object(json!({ "patternProperties": { "k".repeat(1_000): {} } }));
    let server = Server::new().tool_as(Tool::new("a", "", schema.clone()), Answer::echo());
    let stack = tools([renamed("a", "x")]).layer(server);
    assert_eq!(*listed(&stack).await[0].input_schema, schema);
}

#[tokio::test]
async fn argument_aliases_that_conflict_with_the_tool_are_reported() {
    let schema = json!({
        "properties": { "q": {}, "query": {}, "token": {} },
        "required": ["token"],
    });
    let alias = ToolAlias::new("t")
        .argument("q", ArgumentAlias::new().rename("query"))
        .argument("tokens", ArgumentAlias::new().default(json!(1)))
        .argument("token", ArgumentAlias::new().hide());
    let layer = tools([alias]);
    let tool = Tool::new("t", "", object(schema));
    listed(&layer.layer(Server::new().tool_as(tool, Answer::echo()))).await;
    assert_eq!(
        layer.warnings(),
        [
            "alias of tool `t`: argument `q` is renamed to `query`, which hides the argument of this name",
            "alias of tool `t`: the tool has no argument `tokens`: did you mean `token`?",
            "alias of tool `t`: argument `token` is required, but no caller can set it",
        ]
    );
}

#[tokio::test]
async fn defaults_that_violate_the_schema_are_reported_without_values() {
    let schema = json!({
        "properties": {
            "limit": { "$ref": "#/$defs/limit" },
            "sort": { "enum": ["new", "old"] },
            "filter": { "type": "object", "properties": { "tags": { "items": { "type": "string" } } } },
            "token": { "type": "string" },
            "any": {},
            "q": { "type": "string" },
        },
        "required": ["q"],
        "$defs": { "limit": { "type": "integer", "maximum": 50 } },
        // Another schema for all arguments together, which clients can satisfy.
        "anyOf": [{ "required": ["q"] }],
    });
    let default = |value: Value| ArgumentAlias::new().default(value);
    let warnings = async |arguments: Vec<(&str, ArgumentAlias)>| {
        let alias = arguments
            .into_iter()
            .fold(ToolAlias::new("t"), |alias, (name, argument)| alias.argument(name, argument));
        let layer = tools([alias]);
        let tool = Tool::new("t", "", object(schema.clone()));
        listed(&layer.layer(Server::new().tool_as(tool, Answer::echo()))).await;
        layer.warnings()
    };
    let fitting = vec![
        ("limit", default(json!(50))),
        ("sort", default(json!("new"))),
        ("filter", default(json!({ "tags": ["a"] }))),
        ("token", default(json!("hunter2")).hide()),
        ("any", default(json!(null))),
    ];
    assert_eq!(warnings(fitting).await, [""; 0]);
    let wrong = vec![
        ("limit", default(json!("hunter2"))),
        ("sort", default(json!("hunter2"))),
        ("filter", default(json!({ "tags": ["a", 8888] }))),
        ("token", default(json!(8888)).hide()),
    ];
    let mut warnings = warnings(wrong).await;
    warnings.sort_unstable();
    let places = [
        "`filter` is invalid at `/tags/1`",
        "`limit` is invalid",
        "`sort` is invalid",
        "`token` is invalid",
    ];
    assert_eq!(warnings.len(), places.len(), "{warnings:?}");
    for (warning, place) in warnings.iter().zip(places) {
        let start = format!("alias of tool `t`: the default of argument {place}: the value ");
        assert!(warning.starts_with(&start), "{warning}");
        assert!(!warning.contains("hunter2") && !warning.contains("8888"), "{warning}");
    }
}

// === Refusals ===

#[tokio::test]
async fn rejections_use_the_names_known_to_the_client() {
    let layer = tools([search(), renamed("other", "elsewhere")]);
    let unknown = |name: &'static str| Refusal::Unknown { kind: ItemKind::Tool, name: name.into() };
    let unavailable =
        |name: &'static str| Refusal::Unavailable { kind: ItemKind::Tool, name: name.into() };
    let violations = |paths: &[&str]| Refusal::InvalidArguments {
        tool: "search_code".into(),
        violations: paths
            .iter()
            .map(|path| Violation { path: (*path).to_owned(), message: "no".to_owned() })
            .collect(),
    };
    let (logged, _guard) = capture_logs();
    for (refusal, expected) in [
        (unknown("search_code"), "unknown tool `search`"),
        (unavailable("search_code"), "tool `search` is not available at the moment"),
        (unknown("other"), "unknown tool `elsewhere`"),
        (unknown("search"), "unknown tool `search`"),
        (unknown("foreign"), "unknown tool `foreign`"),
        (
            violations(&["", "/q/0", "/limit", "/z~1z"]),
            "invalid arguments for `search`: no; at `/query/0`: no; at `/limit`: no; at `/z~1z`: no",
        ),
        (
            violations(&["/token", "/debug/x", "/q"]),
            "invalid arguments for `search`: an argument that the server sets does not fit; at `/query`: no",
        ),
    ] {
        let service = layer.layer(service_fn(refusing(refusal)));
        let reply = service.oneshot(call("search", json!({}))).await.unwrap();
        assert_eq!(reply.error().unwrap().message, expected);
    }
    assert!(logged.text().contains("/token"), "whoever runs the server learns it");
}

// === Prompts and resources, over a connection ===

fn everything() -> AliasLayer {
    AliasLayer::new()
        .prompts([PromptAlias::new("haiku").name("poem").title("A poem")])
        .and_then(|layer| {
            layer.resources([
                ResourceAlias::new("full://a").uri("my://first").name("first"),
                ResourceAlias::new("full://gone").uri("my://gone"),
                ResourceAlias::new("full://{x}").uri("our://{x}").title("Any"),
            ])
        })
        .expect("good aliases")
}

async fn connected(era: Era, changes: &Changes) -> (Connection, Full) {
    let full = Full::default();
    let layer = everything();
    let client_changes = layer.changes(changes);
    (connect(ServeService::wrap(full.clone(), layer).changes(client_changes), era).await, full)
}

/// Returns the parameters of the last request of this method that reached the server.
fn last<'l>(lines: &'l [String], method: &str) -> &'l str {
    lines.iter().rev().find(|line| line.starts_with(method)).map_or("", String::as_str)
}

#[tokio::test]
async fn prompts_and_resources_are_requested_by_their_aliases() {
    let (connection, full) = connected(Era::Legacy, &Changes::default()).await;
    let reference = |kind: &str, key: &str, name: &str| json!({ "ref": { "type": kind, key: name }, "argument": { "name": "x", "value": "" } });
    for (method, params, at_server) in [
        ("prompts/get", json!({ "name": "poem" }), Some("\"haiku\"")),
        ("prompts/get", json!({ "name": "haiku" }), None),
        ("resources/read", json!({ "uri": "my://first" }), Some("\"full://a\"")),
        ("resources/read", json!({ "uri": "full://a" }), None),
        ("resources/read", json!({ "uri": "our://some" }), Some("\"full://some\"")),
        ("resources/subscribe", json!({ "uri": "my://first" }), Some("\"full://a\"")),
        ("resources/subscribe", json!({ "uri": "full://a" }), None),
        ("completion/complete", reference("ref/prompt", "name", "poem"), Some("\"haiku\"")),
        ("completion/complete", reference("ref/prompt", "name", "haiku"), None),
        (
            "completion/complete",
            reference("ref/resource", "uri", "our://{x}"),
            Some("\"full://{x}\""),
        ),
        ("completion/complete", reference("ref/resource", "uri", "full://{x}"), None),
    ] {
        let before = full.log.lines().len();
        let result = connection.send(method, params.clone()).await;
        assert_eq!(result.is_ok(), at_server.is_some(), "{method} {params}: {result:?}");
        let lines = full.log.lines();
        let line = last(&lines[before..], method);
        match at_server {
            Some(name) => assert!(line.contains(name), "{method} {params}: {line}"),
            None => assert_eq!(line, "", "{method} {params}"),
        }
        if let (Ok(result), "resources/read") = (result, method) {
            assert_eq!(result["contents"][0]["uri"], params["uri"]);
        }
    }
}

#[tokio::test]
async fn prompts_and_resources_are_listed_by_their_aliases() {
    let (connection, _full) = connected(Era::Legacy, &Changes::default()).await;
    for (method, pointer, expected) in [
        ("prompts/list", "/prompts/0", json!({ "name": "poem", "title": "A poem" })),
        ("resources/list", "/resources/0", json!({ "uri": "my://first", "name": "first" })),
        (
            "resources/templates/list",
            "/resourceTemplates/0",
            json!({ "uriTemplate": "our://{x}", "title": "Any", "name": "x" }),
        ),
    ] {
        let list = connection.send(method, json!({})).await.unwrap();
        for (key, value) in object(expected) {
            assert_eq!(list.pointer(pointer).unwrap()[&key], value, "{method} {key}");
        }
    }
}

#[tokio::test]
async fn resource_updates_carry_the_subscribed_uri() {
    let changes = Changes::default();
    let (connection, _full) = connected(Era::Legacy, &changes).await;
    for uri in ["my://first", "our://some", "full://other/1"] {
        connection.send("resources/subscribe", json!({ "uri": uri })).await.unwrap();
    }
    for uri in ["full://some", "full://a", "full://unheard", "full://other/1"] {
        changes.resource_updated(uri);
    }
    let log = &connection.client.service().log;
    // Pending notifications are sent together and sorted.
    log.wait_for("updated our://some").await;
    assert_eq!(log.lines(), ["updated full://other/1", "updated my://first", "updated our://some"]);
}

#[tokio::test]
async fn streamed_updates_carry_the_requested_uri() {
    let changes = Changes::default();
    let layer = everything();
    let client_changes = layer.changes(&changes);
    let acknowledge =
        |_: Request| std::future::ready(Ok::<_, Infallible>(ServerResult::empty(()).into()));
    let capabilities =
        ServerCapabilities::builder().enable_resources().enable_resources_subscribe().build();
    let service = layer.layer(service_fn(acknowledge));
    let server =
        ServeService::new(service, ServerConfig::new(capabilities)).changes(client_changes);
    let connection = connect(server, Era::Modern).await;
    let filter = SubscriptionFilter::builder().resource_subscriptions(["my://first"]).build();
    let mut stream = soon(connection.client.listen(filter)).await.unwrap();
    changes.resource_updated("full://a");
    let notification = soon(stream.next()).await.unwrap().unwrap();
    assert_eq!(json!(notification)["params"]["uri"], "my://first");
}

#[tokio::test]
async fn changes_are_forwarded_through_several_layers() {
    let changes = Changes::default();
    let resources = |from: &str, to: &str| {
        AliasLayer::new().resources([ResourceAlias::new(from).uri(to)]).expect("good aliases")
    };
    // Two servers with the same resource, which has an alias at the first.
    let below = resources("a", "b").changes_below(&changes);
    let above = resources("b", "c").changes(&changes);
    let (mut plain, mut renamed) = (changes.watch_resources(), above.watch_resources());
    below.resource_updated("a");
    changes.resource_updated("a");
    assert_eq!([&*plain.recv().await.unwrap(), &*plain.recv().await.unwrap()], ["b", "a"]);
    assert_eq!([&*renamed.recv().await.unwrap(), &*renamed.recv().await.unwrap()], ["c", "a"]);
    let mut tools = above.tools().watch();
    below.tools().bump();
    soon(tools.bumped()).await;
}

#[tokio::test]
async fn resource_links_carry_client_uris() {
    let answer = |_: Request| async {
        let link = ContentBlock::resource_link(Resource::new("full://a", "a"));
        let text = ContentBlock::embedded_text("full://gone", "text");
        Ok::<Reply, Infallible>(CallToolResult::success(vec![link, text]).into())
    };
    let reply =
        everything().layer(service_fn(answer)).oneshot(Request::call_tool("t")).await.unwrap();
    let content = json!(reply.tool_result().unwrap().content);
    assert_eq!(content[0]["uri"], "my://first");
    assert_eq!(content[1]["resource"]["uri"], "my://gone");
}

#[tokio::test]
async fn resource_links_in_a_task_result_carry_client_uris() {
    let result = json!({
        "content": [
            { "type": "resource_link", "uri": "full://a", "name": "a" },
            { "type": "resource", "resource": { "uri": "full://some", "text": "text" } },
        ],
        "messages": [{
            "role": "user",
            "content": { "type": "resource_link", "uri": "full://gone", "name": "gone" },
        }],
    });
    let task = json!({
        "taskId": "1", "status": "completed", "createdAt": "", "lastUpdatedAt": "", "ttlMs": null,
        "resultType": "complete", "result": result,
    });
    let task: GetTaskResult = serde_json::from_value(task).expect("a task");
    let answer = move |_: Request| {
        std::future::ready(Ok::<Reply, Infallible>(
            ServerResult::GetTaskResult(task.clone()).into(),
        ))
    };
    let reply =
        everything().layer(service_fn(answer)).oneshot(Request::call_tool("t")).await.unwrap();
    let result = &json!(reply.result().unwrap())["result"];
    assert_eq!(result["content"][0]["uri"], "my://first");
    assert_eq!(result["content"][1]["resource"]["uri"], "our://some");
    assert_eq!(result["messages"][0]["content"]["uri"], "my://gone");
}

// === Templates ===

/// A server with rows that has resources with both prefixes.
async fn rows(request: Request) -> Result<Reply, Infallible> {
    let resource = |uri: &str| Resource::new(uri, "r");
    Ok(match request.subject() {
        Subject::List(..) => {
            let all = ["db://users", "db://own", "pub://taken", "db://users/1"].map(resource);
            ServerResult::ListResourcesResult(ListResourcesResult::with_all_items(all.to_vec()))
                .into()
        }
        Subject::Item(ItemKind::Resource, uri) => {
            let contents = [uri, "db://other"].map(|uri| ResourceContents::text("text", uri));
            ServerResult::ReadResourceResult(ReadResourceResult::new(contents.to_vec())).into()
        }
        Subject::Item(_, uri) => Reply::unknown_tool(format!("completed {uri}")),
        _ => unreachable!("nothing else is asked for"),
    })
}

fn of_template() -> AliasLayer {
    AliasLayer::new()
        .resources([
            ResourceAlias::new("db://{t}").uri("pub://{t}"),
            ResourceAlias::new("db://own").uri("my://own"),
        ])
        .expect("good aliases")
}

fn request(method: &str, params: &Value) -> Request {
    let message = json!({ "method": method, "params": params });
    let message: ClientRequest = serde_json::from_value(message).expect("a request");
    Request::new(message, Context::default())
}

#[tokio::test]
async fn resources_of_a_template_are_listed_under_its_alias() {
    let layer = of_template();
    let request = request("resources/list", &json!({}));
    let reply = layer.layer(service_fn(rows)).oneshot(request).await.unwrap();
    let list = json!(reply.result().unwrap());
    let uris: Vec<_> = list["resources"].as_array().unwrap().iter().map(|r| &r["uri"]).collect();
    assert_eq!(uris, ["pub://users", "my://own", "db://users/1"]);
    let warning =
        "alias `pub://{t}` of resource `db://{t}`: another resource with this name is hidden";
    assert!(layer.warnings().iter().any(|line| line == warning), "{:?}", layer.warnings());
}

#[tokio::test]
async fn resources_of_a_template_are_read_by_its_alias_only() {
    for (uri, expected) in [
        ("pub://users", Some(["pub://users", "pub://other"])),
        ("my://own", Some(["my://own", "pub://other"])),
        // It has two names.
        ("pub://own", Some(["pub://own", "pub://other"])),
        ("db://users", None),
        ("db://own", None),
        ("db://users/1", Some(["db://users/1", "pub://other"])),
    ] {
        let request = request("resources/read", &json!({ "uri": uri }));
        let reply = of_template().layer(service_fn(rows)).oneshot(request).await.unwrap();
        match expected {
            Some(expected) => {
                let read = json!(reply.result().unwrap());
                let uris = [&read["contents"][0]["uri"], &read["contents"][1]["uri"]];
                assert_eq!(uris, expected, "{uri}");
            }
            None => assert!(matches!(reply.refusal(), Some(Refusal::Unknown { .. })), "{uri}"),
        }
    }
}

#[tokio::test]
async fn resource_errors_carry_client_uris() {
    let resource = ItemKind::Resource;
    for (requested, kind, name, expected) in [
        // The requested one of its two names.
        ("pub://own", resource, "db://own", "pub://own"),
        ("my://own", resource, "db://own", "my://own"),
        // Its other dependencies.
        ("my://own", resource, "db://users", "pub://users"),
        ("my://own", ItemKind::ResourceTemplate, "db://{t}", "pub://{t}"),
        ("my://own", resource, "foreign://a", "foreign://a"),
        // A tool is not a resource, whatever its name is.
        ("my://own", ItemKind::Tool, "db://own", "db://own"),
    ] {
        let service =
            of_template().layer(service_fn(refusing(Refusal::Unknown { kind, name: name.into() })));
        let request = request("resources/read", &json!({ "uri": requested }));
        let reply = service.oneshot(request).await.unwrap();
        assert_eq!(reply.refusal().unwrap().name(), Some(expected), "{requested} {name}");
    }
}

#[tokio::test]
async fn completions_of_template_resources_need_the_alias() {
    for (uri, expected) in [
        ("pub://users", "unknown tool `completed db://users`"),
        ("pub://{t}", "unknown tool `completed db://{t}`"),
        ("db://users", "unknown resource template `db://users`"),
    ] {
        let params = json!({
            "ref": { "type": "ref/resource", "uri": uri },
            "argument": { "name": "t", "value": "" },
        });
        let request = request("completion/complete", &params);
        let reply = of_template().layer(service_fn(rows)).oneshot(request).await.unwrap();
        assert_eq!(reply.error().unwrap().message, expected);
    }
}

#[tokio::test]
async fn updates_of_template_resources_carry_the_alias() {
    let changes = Changes::default();
    let client_changes = of_template().changes(&changes);
    let mut watch = client_changes.watch_resources();
    for uri in ["db://users", "pub://taken", "db://own", "db://users/1"] {
        changes.resource_updated(uri);
    }
    let mut uris = Vec::new();
    while let Some(Ok(uri)) = watch.recv().now_or_never() {
        uris.push(uri.to_string());
    }
    assert_eq!(uris, ["pub://users", "my://own", "pub://own", "db://users/1"]);
}

// === No aliases ===

#[test]
fn layer_without_aliases_allocates_nothing() {
    let mut reply = Some(Reply::from(CallToolResult::default()));
    let inner = service_fn(move |_: Request| std::future::ready(Ok::<_, Infallible>(reply.take())));
    let inner = inner.map_response(|reply| reply.expect("one call"));
    let mut service = AliasLayer::new().layer(inner);
    let request = call("t", json!({ "a": 1 }));
    let mut answer = None;
    let allocated = allocation_counter::measure(|| {
        answer = tower::Service::call(&mut service, request).now_or_never();
    });
    assert!(answer.unwrap().unwrap().tool_result().is_some());
    assert_eq!(allocated.count_total, 0);
}

#[tokio::test(start_paused = true)]
async fn unusual_replies_do_not_panic_or_hang() {
    let everything = everything().tools([search()]).expect("good aliases");
    let odd = [
        Reply::from(ServerResult::empty(())),
        ErrorData::internal_error("search_code", None).into(),
        ListToolsResult::with_all_items(vec![
            Tool::new("search_code", "", object(json!({ "properties": 3, "$ref": "#" }))),
            Tool::new("search_code", "", object(json!({ "allOf": [[[]]], "required": [1] }))),
            Tool::new("", "", Arc::default()),
        ])
        .into(),
    ];
    for reply in odd {
        for request in [call("search", json!({})), Request::list_tools()] {
            let service = everything.layer(service_fn(|_: Request| {
                std::future::ready(Ok::<_, Infallible>(reply.clone()))
            }));
            let answer = tokio::time::timeout(Duration::from_secs(1), service.oneshot(request));
            assert!(answer.await.is_ok());
        }
    }
}
