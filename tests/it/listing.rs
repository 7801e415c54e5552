//! The listing of composites.

use std::time::Duration;

use mcp_composite::{
    changes::Epoch,
    composite::{
        Composite, CompositeLayer, CompositeTool, Fallback, FanOut, ForEach, Race, Step, Strategy,
        Success, Target, ToolCall,
    },
    message::{Reply, Request},
};
use rmcp::model::{CallToolResult, Tool, ToolAnnotations};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use crate::{
    scripted::{Answer, Server, call, object},
    support::capture_logs,
};

type Stack = Composite<Server>;

fn layer(composites: impl IntoIterator<Item = CompositeTool>) -> CompositeLayer {
    CompositeLayer::new(composites).expect("good definitions")
}

fn all<const N: usize>(tools: [&str; N]) -> CompositeTool {
    CompositeTool::fan_out("all", "Everything", tools)
}

/// Returns a composite named `all` with this strategy.
fn of(strategy: impl Into<Strategy>) -> CompositeTool {
    CompositeTool::new("all", "Everything", strategy)
}

/// Lists all pages, and returns the names of the tools on each.
async fn pages(stack: &Stack) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut cursor = None;
    loop {
        let reply =
            stack.clone().oneshot(Request::list_tools_from(cursor)).await.expect("an answer");
        let list = reply.tools().expect("tools");
        pages.push(list.tools.iter().map(|tool| tool.name.to_string()).collect());
        cursor = list.next_cursor.clone();
        if cursor.is_none() {
            return pages;
        }
    }
}

async fn listed(stack: &Stack, name: &str) -> Option<Tool> {
    let reply = stack.clone().oneshot(Request::list_tools()).await.expect("an answer");
    reply.tools().expect("tools").tools.iter().find(|tool| tool.name == name).cloned()
}

async fn input_schema(server: Server, composite: CompositeTool) -> Value {
    let name = "all";
    let tool = listed(&layer([composite]).layer(server), name).await.expect("listed");
    Value::Object((*tool.input_schema).clone())
}

async fn error_of(stack: &Stack, request: Request) -> Option<(i32, String)> {
    let reply = stack.clone().oneshot(request).await.expect("an answer");
    reply.error().map(|error| (error.code.0, error.message.to_string()))
}

fn tool(name: &str, schema: Value) -> Tool {
    Tool::new(name.to_owned(), "A tool", object(schema))
}

fn annotated(name: &str, annotations: ToolAnnotations) -> Tool {
    tool(name, json!({ "type": "object" })).with_annotations(annotations)
}

#[tokio::test(start_paused = true)]
async fn composites_are_appended_to_the_first_page_in_order() {
    let server = ["t0", "t1", "t2", "t3", "t4"]
        .iter()
        .fold(Server::new(), |s, t| s.says(t, "x"))
        .page_size(2);
    let stack = layer([
        CompositeTool::fan_out("zebra", "z", ["t0"]),
        CompositeTool::fan_out("ant", "a", ["t4"]),
    ])
    .layer(server);

    assert_eq!(
        pages(&stack).await,
        [vec!["t0", "t1", "zebra", "ant"], vec!["t2", "t3"], vec!["t4"]]
    );
}

#[tokio::test(start_paused = true)]
async fn tool_with_the_name_of_a_composite_is_hidden_on_every_page() {
    let server = ["a", "all", "b"].iter().fold(Server::new(), |s, t| s.says(t, "x")).page_size(1);
    let stack = layer([all(["a", "b"])]).layer(server);

    assert_eq!(pages(&stack).await, [vec!["a", "all"], vec![], vec!["b"]]);
}

#[tokio::test(start_paused = true)]
async fn same_request_returns_the_same_bytes() {
    let server = Server::new().says("a", "1").says("b", "2");
    let stack = layer([all(["a", "b"])]).layer(server);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let reply = stack.clone().oneshot(Request::list_tools()).await.unwrap();
        seen.push(serde_json::to_string(reply.tools().unwrap()).unwrap());
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn definition_matches_the_configuration() {
    let schema = object(json!({ "properties": { "q": { "type": "string" } } }));
    let composite =
        all(["a"]).title("All of it").input_schema(schema.clone()).output_schema(schema);
    let stack = layer([composite]).layer(Server::new().says("a", "1"));

    let tool = listed(&stack, "all").await.unwrap();

    assert_eq!(tool.title.as_deref(), Some("All of it"));
    assert_eq!(tool.description.as_deref(), Some("Everything"));
    let expected = json!({ "type": "object", "properties": { "q": { "type": "string" } } });
    assert_eq!(Value::Object((*tool.input_schema).clone()), expected);
    assert_eq!(Value::Object((*tool.output_schema.unwrap()).clone()), expected);
}

#[tokio::test(start_paused = true)]
async fn input_schema_is_the_union_of_the_target_schemas() {
    let server = Server::new()
        .tool_as(
            tool(
                "a",
                json!({
                    "type": "object",
                    "properties": { "q": { "type": "string" }, "n": { "type": "integer" } },
                    "required": ["q"],
                    "additionalProperties": false,
                }),
            ),
            Answer::echo(),
        )
        .tool_as(
            tool(
                "b",
                json!({
                    "type": "object",
                    "properties": {
                        "q": { "type": "string" },
                        "n": { "type": "string" },
                        "r": { "type": "boolean", "x-mcp-header": "R" },
                    },
                    "required": ["r"],
                }),
            ),
            Answer::echo(),
        );
    let properties = json!({
        "q": { "type": "string" },
        "n": { "anyOf": [{ "type": "integer" }, { "type": "string" }] },
        "r": { "type": "boolean" },
    });

    assert_eq!(
        input_schema(server.clone(), all(["a", "b"])).await,
        json!({ "type": "object", "properties": properties, "required": ["q", "r"] })
    );
    let optional =
        CompositeTool::fan_out("all", "x", ["a".into(), Target::new("b").optional(true)]);
    assert_eq!(
        input_schema(server.clone(), optional).await,
        json!({ "type": "object", "properties": properties, "required": ["q"] })
    );
    // Closed only if every target is.
    assert_eq!(input_schema(server, all(["a"])).await["additionalProperties"], false);
}

#[tokio::test(start_paused = true)]
async fn identical_target_schemas_become_the_input_schema() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": { "mode": { "$ref": "#/$defs/Mode", "x-mcp-header": "Mode" }, "path": {} },
        "additionalProperties": { "type": "string" },
        "allOf": [{
            "if": { "properties": { "mode": { "const": "file" } } },
            "then": { "required": ["path"] },
        }],
        "$defs": { "Mode": { "enum": ["file", "text"] } },
    });
    let server = ["a", "b"].iter().fold(Server::new(), |server, name| {
        server.tool_as(tool(name, schema.clone()), Answer::echo())
    });
    let mut expected = schema;
    expected["properties"]["mode"] = json!({ "$ref": "#/$defs/Mode" });

    assert_eq!(input_schema(server.clone(), all(["a"])).await, expected);
    assert_eq!(input_schema(server.clone(), all(["a", "b"])).await, expected);
    let stack = layer([all(["a"])]).layer(server);
    let (code, _) = error_of(&stack, call("all", json!({ "mode": "file" }))).await.unwrap();
    assert_eq!(code, -32602);
    assert_eq!(error_of(&stack, call("all", json!({ "mode": "text" }))).await, None);
}

#[tokio::test(start_paused = true)]
async fn pass_through_pipeline_has_the_full_schema_of_its_tool() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": { "mode": { "$ref": "#/$defs/Mode" }, "path": {}, "limit": { "default": 5 } },
        "required": ["mode"],
        "additionalProperties": false,
        "allOf": [{
            "if": { "properties": { "mode": { "const": "file" } } },
            "then": { "required": ["path"] },
        }],
        "$defs": { "Mode": { "enum": ["file", "text"] } },
    });
    let server = Server::new().tool_as(tool("a", schema.clone()), Answer::echo());
    let passing = |arguments: Value| {
        CompositeTool::pipeline(
            "all",
            "x",
            [Step::new("a", ToolCall::new("a").arguments(arguments))],
        )
    };
    let whole = json!({ "mode": "$input.mode", "path": "$input.path?", "limit": "$input.limit" });
    assert_eq!(input_schema(server.clone(), passing(whole.clone())).await, schema);
    let stack = layer([passing(whole)]).layer(server.clone());
    let (code, _) = error_of(&stack, call("all", json!({ "mode": "file" }))).await.unwrap();
    assert_eq!(code, -32602);
    assert_eq!(error_of(&stack, call("all", json!({ "mode": "text" }))).await, None);

    for partial in [
        // A property is not passed on, renamed, fixed, changed, or required although the tool does
        // not require it.
        json!({ "mode": "$input.mode?", "path": "$input.path?" }),
        json!({ "mode": "$input.mode?", "path": "$input.file?", "limit": "$input.limit" }),
        json!({ "mode": "$input.mode?", "path": "$input.path?", "limit": 5 }),
        json!({ "mode": "$input.mode?", "path": "$input.path?", "limit": "{{ input.limit + 1 }}" }),
        json!({ "mode": "$input.mode?", "path": "$input.path", "limit": "$input.limit" }),
    ] {
        let derived = input_schema(server.clone(), passing(partial.clone())).await;
        assert_eq!(derived.get("allOf"), None, "{partial}");
        // Its properties are still written in the dialect of the tool.
        assert_eq!(derived["$schema"], schema["$schema"], "{partial}");
    }
}

#[tokio::test(start_paused = true)]
async fn dialect_is_kept_if_all_targets_have_the_same() {
    let in_dialect = |name: &str, property: &str, dialect: Option<&str>| {
        let mut schema = json!({ "type": "object", "properties": { (property): {} } });
        if let Some(dialect) = dialect {
            schema["$schema"] = dialect.into();
        }
        tool(name, schema)
    };
    let old = Some("http://json-schema.org/draft-07/schema#");
    for (other, kept) in [(old, json!(old)), (None, Value::Null)] {
        let server = Server::new()
            .tool_as(in_dialect("a", "p", old), Answer::echo())
            .tool_as(in_dialect("b", "q", other), Answer::echo());
        assert_eq!(input_schema(server, all(["a", "b"])).await["$schema"], kept);
    }
}

#[tokio::test(start_paused = true)]
async fn array_literal_elements_of_a_loop_have_an_open_schema() {
    let step = Step::new("each", ForEach::new(json!(["$input.first", "$input.second"]), "a"));
    let composite = CompositeTool::workflow("all", "x", [step]);
    let server = Server::new().echoes("a");

    let schema = input_schema(server.clone(), composite.clone()).await;
    assert_eq!(schema["properties"], json!({ "first": {}, "second": {} }));
    let stack = layer([composite]).layer(server);
    assert_eq!(error_of(&stack, call("all", json!({ "first": "x", "second": "y" }))).await, None);
}

#[tokio::test(start_paused = true)]
async fn schema_definitions_of_different_targets_stay_separate() {
    let schema = |of: &str| {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": { (of): { "$ref": "#/$defs/Item" } },
            "$defs": { "Item": { "type": of, "default": { "$ref": "no reference" } } },
        })
    };
    let server = Server::new()
        .tool_as(tool("a", schema("string")), Answer::echo())
        .tool_as(tool("b/x", schema("integer")), Answer::echo());
    let stack = layer([all(["a", "b/x"])]).layer(server.clone());

    let fits = error_of(&stack, call("all", json!({ "string": "x", "integer": 1 }))).await;
    assert_eq!(fits, None);
    let (_, message) =
        error_of(&stack, call("all", json!({ "string": 1, "integer": 1 }))).await.unwrap();
    assert_eq!(
        message,
        "invalid arguments for `all`: at `/string`: the value is not of type \"string\""
    );
    let schema = input_schema(server, all(["a", "b/x"])).await;
    assert_eq!(schema["properties"]["integer"], json!({ "$ref": "#/$defs/b_x/$defs/Item" }));
    assert_eq!(schema["$defs"]["a"]["$defs"]["Item"]["default"], json!({ "$ref": "no reference" }));
}

#[tokio::test(start_paused = true)]
async fn properties_may_have_names_of_schema_keywords() {
    let schema = json!({
        "type": "object",
        "properties": {
            "examples": { "type": "array", "items": { "$ref": "#/$defs/default" } },
            "x-mcp-header": { "type": "string" },
            "$ref": { "type": "string" },
            "tree": { "$ref": "#" },
            "anchored": { "$ref": "#here" },
        },
        "$defs": { "default": { "type": "integer" }, "h": { "$anchor": "here" } },
    });
    let mut plain = schema.clone();
    plain["properties"].as_object_mut().unwrap().remove("anchored");
    let stack = layer([all(["a"])]).layer(Server::new().tool_as(tool("a", plain), Answer::echo()));
    let fits =
        json!({ "examples": [1], "tree": { "examples": [2] }, "x-mcp-header": "x", "$ref": "x" });
    assert_eq!(error_of(&stack, call("all", fits)).await, None);
    for arguments in [json!({ "examples": ["x"] }), json!({ "tree": { "examples": ["x"] } })] {
        let (code, message) = error_of(&stack, call("all", arguments)).await.unwrap();
        assert_eq!(code, -32602, "{message}");
    }

    // A schema with an anchor cannot be copied; the target checks the arguments.
    let server = Server::new().tool_as(tool("a", schema), Answer::echo()).echoes("b");
    let properties = input_schema(server, all(["a", "b"])).await;
    assert_eq!(properties["properties"]["tree"], json!({}));
    assert_eq!(properties["properties"]["x-mcp-header"], json!({ "type": "string" }));
}

#[tokio::test(start_paused = true)]
async fn mapped_arguments_determine_the_input_schema() {
    let server = Server::new().tool_as(
        tool(
            "a",
            json!({
                "type": "object",
                "properties": { "q": { "type": "string" }, "n": { "type": "integer", "default": 3 } },
            }),
        ),
        Answer::echo(),
    );
    let target = Target::new("a").arguments(json!({
        "q": "$input.query", "n": "$input.count", "tone": "$input.tone?", "list": ["$input.deep.value"],
    }));
    let composite = CompositeTool::fan_out("all", "x", [target]);

    assert_eq!(
        input_schema(server, composite).await,
        json!({
            "type": "object",
            "properties": {
                "count": { "type": "integer", "default": 3 },
                "deep": {},
                "query": { "type": "string" },
                "tone": {},
            },
            "required": ["deep", "query"],
        })
    );
}

#[tokio::test(start_paused = true)]
async fn annotations_are_derived_pessimistically() {
    let hints = |read_only, destructive, open_world| {
        ToolAnnotations::new().read_only(read_only).destructive(destructive).open_world(open_world)
    };
    let server = Server::new()
        .tool_as(
            annotated("look", ToolAnnotations::new().read_only(true).open_world(false)),
            Answer::echo(),
        )
        .tool_as(annotated("add", hints(false, false, false)), Answer::echo())
        .tool_as(annotated("wipe", hints(false, true, false)), Answer::echo())
        .tool_as(tool("unknown", json!({ "type": "object" })), Answer::echo());
    let cases = [
        (vec!["look"], hints(true, false, false)),
        (vec!["look", "add"], hints(false, false, false)),
        (vec!["add", "wipe"], hints(false, true, false)),
        (vec!["look", "unknown"], hints(false, true, true)),
    ];
    for (tools, expected) in cases {
        let composite = CompositeTool::fan_out("all", "x", tools.clone());
        let stack = layer([composite]).layer(server.clone());
        assert_eq!(listed(&stack, "all").await.unwrap().annotations, Some(expected), "{tools:?}");
    }
    // A missing target might have any annotations.
    let incomplete =
        CompositeTool::new("all", "x", FanOut::new(["look", "gone"]).success(Success::Any));
    let stack = layer([incomplete]).layer(server);
    assert_eq!(listed(&stack, "all").await.unwrap().annotations, Some(hints(false, true, true)));
}

#[tokio::test(start_paused = true)]
async fn safer_annotations_are_ignored_and_less_safe_ones_kept() {
    let server = Server::new()
        .tool_as(
            annotated("look", ToolAnnotations::new().read_only(true).open_world(false)),
            Answer::echo(),
        )
        .tool_as(annotated("wipe", ToolAnnotations::new().read_only(false)), Answer::echo());
    let claim =
        ToolAnnotations::with_title("Title").read_only(true).destructive(false).open_world(false);
    let stack = layer([all(["wipe"]).annotations(claim)]).layer(server.clone());
    let annotations = listed(&stack, "all").await.unwrap().annotations.unwrap();
    assert_eq!(annotations.title.as_deref(), Some("Title"));
    assert_eq!(annotations.read_only_hint, Some(false));
    assert_eq!(
        (annotations.destructive_hint, annotations.open_world_hint),
        (Some(true), Some(true))
    );

    let modest = ToolAnnotations::new().read_only(false).idempotent(true);
    let stack = layer([all(["look"]).annotations(modest)]).layer(server);
    let annotations = listed(&stack, "all").await.unwrap().annotations.unwrap();
    assert_eq!(
        (annotations.read_only_hint, annotations.idempotent_hint),
        (Some(false), Some(true))
    );
}

#[tokio::test(start_paused = true)]
async fn race_has_an_output_schema_only_if_all_targets_share_it() {
    let output = object(json!({ "type": "object", "properties": { "n": {} } }));
    let with = |name: &str| tool(name, json!({})).with_raw_output_schema(output.clone().into());
    let server = Server::new()
        .tool_as(with("a"), Answer::echo())
        .tool_as(with("b"), Answer::echo())
        .says("c", "3");
    for (tools, expected) in [(["a", "b"], Some(output.clone())), (["a", "c"], None)] {
        let stack = layer([of(Race::new(tools))]).layer(server.clone());
        let schema = listed(&stack, "all").await.unwrap().output_schema;
        assert_eq!(schema.map(|schema| (*schema).clone()), expected, "{tools:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn composite_with_a_missing_tool_is_unlisted_and_unavailable() {
    let server = Server::new().says("a", "1");
    let stack = layer([
        all(["a", "secret_backend_tool"]),
        CompositeTool::fan_out("outer", "x", ["all"]),
        CompositeTool::fan_out("fine", "x", ["a"]),
    ])
    .layer(server.clone());

    assert_eq!(pages(&stack).await, [["a", "fine"]]);
    for name in ["all", "outer"] {
        let expected = (-32602, format!("tool `{name}` is not available at the moment"));
        assert_eq!(error_of(&stack, call(name, json!({}))).await, Some(expected));
    }
    assert!(server.called().is_empty());
}

#[tokio::test(start_paused = true)]
async fn composite_is_listed_if_it_can_succeed_without_a_tool() {
    let server = Server::new().says("a", "1").says("b", "2");
    let cases = [
        (of(FanOut::new(["a", "gone"]).success(Success::Any)), true),
        (of(FanOut::new(["gone", "lost"]).success(Success::Any)), false),
        (of(FanOut::new(["a", "b", "gone"]).success(Success::Quorum(2))), true),
        (of(FanOut::new(["a", "gone", "lost"]).success(Success::Quorum(2))), false),
        (of(Race::new(["a", "gone"])), true),
        (of(Fallback::new(["gone"])), false),
        (CompositeTool::fan_out("all", "x", [Target::new("gone").optional(true)]), false),
    ];
    for (composite, expected) in cases {
        let stack = layer([composite.clone()]).layer(server.clone());
        assert_eq!(listed(&stack, "all").await.is_some(), expected, "{composite:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unavailable_composite_still_hides_a_tool_of_its_name() {
    let server = Server::new().says("all", "the tool behind");
    let stack = layer([all(["gone"])]).layer(server.clone());
    assert_eq!(pages(&stack).await, [Vec::<String>::new()]);
    assert!(error_of(&stack, call("all", json!({}))).await.is_some());
    assert!(server.called().is_empty());
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_share_one_listing() {
    let server = Server::new().says("a", "1");
    let stack = layer([all(["a"])]).layer(server.clone());

    let calls = (0..50).map(|_| stack.clone().oneshot(call("all", json!({}))));
    let replies = futures::future::join_all(calls).await;

    assert!(replies.into_iter().all(|reply| reply.unwrap().error().is_none()));
    assert_eq!(server.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn listing_of_a_dropped_call_continues_for_other_calls() {
    let server = Server::new().says("a", "1");
    let slow = tower::util::MapRequest::new(server.clone(), |request| request);
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let gated = {
        let gate = gate.clone();
        tower::service_fn(move |request: Request| {
            let (gate, server) = (gate.clone(), slow.clone());
            async move {
                if request.lists_tools() {
                    gate.notified().await;
                }
                server.oneshot(request).await
            }
        })
    };
    let stack = layer([all(["a"])]).layer(gated);
    let mut leader = Box::pin(stack.clone().oneshot(call("all", json!({}))));
    let mut follower = Box::pin(stack.oneshot(call("all", json!({}))));
    assert!(futures::poll!(&mut leader).is_pending());
    assert!(futures::poll!(&mut follower).is_pending());

    drop(leader);
    gate.notify_one();

    assert!(follower.await.unwrap().error().is_none());
    assert_eq!(server.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn new_epoch_applies_to_the_next_list() {
    let server = Server::new().says("a", "1");
    let epoch = Epoch::default();
    let stack = layer([all(["a", "b"])]).epoch(epoch.clone()).layer(server.clone());
    assert_eq!(pages(&stack).await, [["a"]]);

    server.add(tool("b", json!({ "type": "object" })), Answer::text("2"));
    epoch.bump();

    assert_eq!(pages(&stack).await, [["a", "b", "all"]]);
}

#[tokio::test(start_paused = true)]
async fn unannounced_change_is_seen_after_a_minute() {
    let server = Server::new().says("a", "1").says("b", "2");
    let stack = layer([all(["a", "b"])]).layer(server.clone());
    assert!(listed(&stack, "all").await.is_some());
    server.remove("b");
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(listed(&stack, "all").await.is_some());
    tokio::time::advance(Duration::from_secs(2)).await;
    // The known list is used until its successor has arrived.
    assert!(listed(&stack, "all").await.is_some());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(listed(&stack, "all").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn composite_call_finds_a_new_tool_after_a_second() {
    let server = Server::new();
    let stack = layer([all(["a"])]).layer(server.clone());
    assert!(error_of(&stack, call("all", json!({}))).await.is_some());
    server.add(tool("a", json!({ "type": "object" })), Answer::text("1"));
    let lists = server.lists();
    assert!(
        error_of(&stack, call("all", json!({}))).await.is_some(),
        "not more often than once a second"
    );
    assert_eq!(server.lists(), lists);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(error_of(&stack, call("all", json!({}))).await, None);
}

#[tokio::test(start_paused = true)]
async fn last_known_tools_are_used_while_listing_fails() {
    let server = Server::new().says("a", "1");
    let epoch = Epoch::default();
    let stack = layer([all(["a"])]).epoch(epoch.clone()).layer(server.clone());
    assert!(listed(&stack, "all").await.is_some());

    server.break_list("connection refused");
    epoch.bump();

    assert_eq!(error_of(&stack, call("all", json!({}))).await, None);
}

#[tokio::test(start_paused = true)]
async fn failed_listing_is_not_repeated_for_a_second() {
    let server = Server::new().says("a", "1");
    server.break_list("connection refused");
    let stack = layer([all(["a"])]).layer(server.clone());

    for _ in 0..5 {
        let error = error_of(&stack, call("all", json!({}))).await;
        assert_eq!(error, Some((-32602, "tool `all` is not available at the moment".to_owned())));
    }
    assert_eq!(server.lists(), 1);
    server.mend_list();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(error_of(&stack, call("all", json!({}))).await, None);
}

#[tokio::test(start_paused = true)]
async fn listing_times_out_after_ten_seconds() {
    let hangs = |request: Request| async move {
        if request.lists_tools() {
            futures::future::pending::<()>().await;
        }
        Ok::<_, tower::BoxError>(Reply::unknown_tool("never"))
    };
    let stack = layer([all(["a"])]).layer(tower::service_fn(hangs));
    let start = tokio::time::Instant::now();
    let reply = stack.oneshot(call("all", json!({}))).await.unwrap();
    assert!(reply.error().is_some());
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn endless_listing_is_aborted() {
    let endless = |request: Request| async move {
        let next_cursor = Some("again".to_owned());
        let list = rmcp::model::ListToolsResult { next_cursor, ..Default::default() };
        assert!(request.lists_tools());
        Ok::<_, tower::BoxError>(list.into())
    };
    let stack = layer([all(["a"])]).layer(tower::service_fn(endless));
    let reply = stack.oneshot(call("all", json!({}))).await.unwrap();
    assert!(reply.error().is_some());
}

#[tokio::test(start_paused = true)]
async fn catalogs_are_separate_per_caller() {
    let server = |request: Request| async move {
        let admin = request.context().extensions().get::<&str>() == Some(&"admin");
        if !request.lists_tools() {
            return Ok::<_, tower::BoxError>(CallToolResult::success(vec![]).into());
        }
        let tools = admin.then(|| tool("secret", json!({ "type": "object" })));
        Ok(rmcp::model::ListToolsResult::with_all_items(tools.into_iter().collect()).into())
    };
    let stack = layer([all(["secret"])])
        .vary_by(|context| context.extensions().get::<&str>().map(|role| (*role).to_owned()))
        .layer(tower::service_fn(server));
    let as_role = |role: &'static str| {
        let mut request = call("all", json!({}));
        request.context_mut().extensions_mut().insert(role);
        request
    };
    for _ in 0..2 {
        assert!(stack.clone().oneshot(as_role("admin")).await.unwrap().error().is_none());
        assert!(stack.clone().oneshot(as_role("guest")).await.unwrap().error().is_some());
        assert!(stack.clone().oneshot(call("all", json!({}))).await.unwrap().error().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn missing_tools_and_safety_claims_are_logged_once() {
    let (log, _guard) = capture_logs();
    let server = Server::new().tool_as(annotated("wipe", ToolAnnotations::new()), Answer::echo());
    let epoch = Epoch::default();
    let claims = CompositeTool::fan_out("claims", "x", ["wipe"])
        .annotations(ToolAnnotations::new().read_only(true));
    let stack = layer([all(["gone"]), claims]).epoch(epoch.clone()).layer(server);
    for _ in 0..3 {
        pages(&stack).await;
        epoch.bump();
    }
    let text = log.text();
    assert_eq!(text.matches("composite `all` is not listed: no `gone`").count(), 1, "{text}");
    assert_eq!(
        text.matches("`claims` claims more safety than its targets have: readOnlyHint").count(),
        1,
        "{text}"
    );
}

#[test]
fn composite_names_with_illegal_characters_are_rejected() {
    let longest = "n".repeat(128);
    for (separator, legal, illegal) in [
        (
            "/",
            &["a", "a/b", "a/b/c", "_a", ".", &longest][..],
            &["/", "//", "a/", "/a", "a//b"][..],
        ),
        ("//", &["a//b", "a/b"], &["//", "a//", "a///b", "a////b", "/a", "a/"]),
        ("::", &["a::b", "a:b"], &["a::", ":a", "a/b"]),
        ("_", &["_", "a_", "__a", "a__b"], &["a/b", ""]),
        ("a!", &["a", "xa!y", "x!y"], &["x!", "!", "a!"]),
    ] {
        let with = |name: &str| {
            let composite = CompositeTool::fan_out(name, "A tool", ["t"]);
            CompositeLayer::with_separator([composite], separator)
        };
        for name in legal {
            assert!(with(name).is_ok(), "{name:?} with {separator:?}");
        }
        for name in illegal {
            let error = with(name).unwrap_err().to_string();
            let expected = format!("composite `{name}` at `name`: illegal tool name {name:?}: ");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
    let composite = CompositeTool::fan_out("a//b", "A tool", ["t"]);
    assert_eq!(
        CompositeLayer::with_separator([composite], "/").unwrap_err().to_string(),
        "composite `a//b` at `name`: illegal tool name \"a//b\": expected 1 to 128 of `A-Z`, \
         `a-z`, `0-9`, `_`, `-`, `.`, and `/` between them",
    );
}

#[test]
fn invalid_separator_is_rejected() {
    for separator in ["", " ", "\n", "a b", "é", "123456789"] {
        let composite = CompositeTool::fan_out("a", "A tool", ["t"]);
        let errors = CompositeLayer::with_separator([composite], separator).unwrap_err();
        let message = format!(
            "illegal separator {separator:?}: expected 1 to 8 visible ASCII characters, such as `/`"
        );
        assert_eq!(errors.to_string(), message);
        let error = errors.iter().next().unwrap();
        assert_eq!((error.composite(), error.path()), ("", &[][..]));
    }
    assert!(CompositeLayer::with_separator([], "12345678").is_ok());
}
