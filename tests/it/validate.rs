//! Validation of arguments against the schema of the called tool.

use std::time::Duration;

use mcp_composite::{
    changes::Epoch,
    composite::{CompositeLayer, CompositeTool, Target},
    limit::LimitLayer,
    message::{Reply, Request},
    validate::{SchemaMode, Validate, ValidateLayer},
};
use rmcp::model::{CallToolResult, Tool};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use crate::{
    scripted::{Answer, Server, call, object},
    support::capture_logs,
};

fn strict() -> ValidateLayer {
    ValidateLayer::new().schema(SchemaMode::Strict)
}

fn tool(name: &str, schema: Value) -> Tool {
    Tool::new(name.to_owned(), "A tool", object(schema))
}

/// A server with a tool that requires a number.
fn counter() -> Server {
    Server::new().tool_as(tool("count", number()), Answer::echo())
}

fn number() -> Value {
    json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] })
}

async fn reply(stack: &Validate<Server>, request: Request) -> Reply {
    stack.clone().oneshot(request).await.expect("an answer")
}

async fn refused(stack: &Validate<Server>, request: Request) -> Option<String> {
    let reply = reply(stack, request).await;
    let error = reply.error()?;
    assert_eq!(error.code.0, -32602);
    Some(error.message.to_string())
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_are_rejected_before_the_tool() {
    let server = counter();
    let stack = strict().layer(server.clone());

    let refusal = "invalid arguments for `count`: at `/n`: the value is not of type \"integer\"";
    let wrong = call("count", json!({ "n": "hunter2" }));
    assert_eq!(refused(&stack, wrong).await.as_deref(), Some(refusal));
    let refusal = "invalid arguments for `count`: at `/n`: is required";
    assert_eq!(refused(&stack, Request::call_tool("count")).await.as_deref(), Some(refusal));
    assert!(server.called().is_empty());
}

#[tokio::test(start_paused = true)]
async fn valid_arguments_are_forwarded_unchanged() {
    let server = Server::new().tool_as(tool("free", json!({ "type": "object" })), Answer::echo());
    let stack = strict().layer(server.clone());
    for arguments in [json!({}), json!({ "n": [1, { "deep": null }] })] {
        assert_eq!(refused(&stack, call("free", arguments.clone())).await, None);
        assert_eq!(server.arguments("free"), Some(arguments));
    }
    assert_eq!(refused(&stack, Request::call_tool("free")).await, None);
    assert_eq!(server.arguments("free"), Some(Value::Null), "none were given");
}

#[tokio::test(start_paused = true)]
async fn warn_mode_logs_tool_and_location_and_forwards_the_call() {
    let (logged, _guard) = capture_logs();
    let server = counter();
    let stack = ValidateLayer::new().schema(SchemaMode::Warn).layer(server.clone());

    assert_eq!(refused(&stack, call("count", json!({ "n": "hunter2" }))).await, None);

    assert_eq!(server.arguments("count"), Some(json!({ "n": "hunter2" })));
    let text = logged.text();
    assert!(text.contains("count") && text.contains("at `/n`"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn disabled_validation_checks_and_lists_nothing() {
    let server = counter();
    for layer in [ValidateLayer::new(), ValidateLayer::new().schema(SchemaMode::Off)] {
        let stack = layer.layer(server.clone());
        assert_eq!(refused(&stack, call("count", json!({ "n": "x" }))).await, None);
    }
    assert_eq!(server.lists(), 0);
}

#[tokio::test(start_paused = true)]
async fn unlisted_tool_is_called_unchecked_with_one_warning() {
    let server = counter();
    let layer = strict();
    let stack = layer.layer(server.clone());
    server.add(tool("hidden", number()), Answer::echo());
    server.unlist("hidden");

    for _ in 0..3 {
        assert_eq!(refused(&stack, call("hidden", json!({ "n": "x" }))).await, None);
    }

    assert_eq!(layer.warnings(), ["calls of `hidden` are not validated: it is not listed"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_tool_names_cause_no_warning() {
    let server = counter();
    let layer = strict();
    let stack = layer.layer(server.clone());
    server.add(tool("polite", json!({})), Answer::failure("unknown tool"));
    server.unlist("polite");

    for name in ["nobody", "polite"] {
        reply(&stack, Request::call_tool(name)).await;
    }

    assert_eq!(layer.warnings(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn failed_listing_causes_one_warning_and_unchecked_calls() {
    let server = counter();
    server.break_list("connection refused");
    let layer = strict();
    let stack = layer.layer(server);

    for _ in 0..3 {
        assert_eq!(refused(&stack, call("count", json!({ "n": "x" }))).await, None);
    }

    assert_eq!(layer.warnings(), ["calls of `count` are not validated: tools cannot be listed"]);
}

#[tokio::test(start_paused = true)]
async fn unusable_schema_causes_one_warning() {
    for schema in [
        json!({ "type": "object", "$ref": "http://127.0.0.1:9/schema.json" }),
        json!({ "type": "object", "properties": { "n": { "pattern": "(?=look)around" } } }),
        json!({ "type": "objet" }),
    ] {
        let layer = strict();
        let stack = layer.layer(Server::new().tool_as(tool("odd", schema.clone()), Answer::echo()));
        for _ in 0..3 {
            assert_eq!(refused(&stack, call("odd", json!({ "n": "x" }))).await, None, "{schema}");
        }
        let warnings = layer.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let beginning = "calls of `odd` are not validated: its input schema cannot be used: ";
        assert!(warnings[0].starts_with(beginning), "{warnings:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_schema_applies_after_an_epoch_bump() {
    let server = counter();
    let epoch = Epoch::default();
    let stack = strict().epoch(epoch.clone()).layer(server.clone());
    assert!(refused(&stack, call("count", json!({ "n": "x" }))).await.is_some());

    server
        .add(tool("count", json!({ "properties": { "n": { "type": "string" } } })), Answer::echo());
    epoch.bump();
    // The known list is used until its successor arrives.
    reply(&stack, call("count", json!({ "n": 1 }))).await;
    tokio::time::sleep(Duration::from_millis(1)).await;

    assert_eq!(refused(&stack, call("count", json!({ "n": "x" }))).await, None);
    assert!(refused(&stack, call("count", json!({ "n": 1 }))).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn arguments_are_validated_against_the_tools_of_the_caller() {
    /// Lists a schema whose type is named by the caller's `_meta`.
    async fn server(request: Request) -> Result<Reply, std::convert::Infallible> {
        let kind = request.context().meta().get("type").cloned().unwrap_or("string".into());
        Ok(if request.lists_tools() {
            let schema = json!({ "type": "object", "properties": { "n": { "type": kind } } });
            rmcp::model::ListToolsResult::with_all_items(vec![tool("count", schema)]).into()
        } else {
            CallToolResult::success(vec![]).into()
        })
    }
    let by = |context: &mcp_composite::message::Context| {
        Some(context.meta().get("type")?.as_str()?.to_owned())
    };
    let stack = strict().vary_by(by).layer(tower::service_fn(server));
    for (kind, fits) in [("integer", true), ("string", false), ("integer", true)] {
        let mut request = call("count", json!({ "n": 1 }));
        request.context_mut().meta_mut().insert("type".to_owned(), kind.into());
        let reply = stack.clone().oneshot(request).await.unwrap();
        assert_eq!(reply.error().is_none(), fits, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_of_targets_are_validated_before_the_call() {
    let server = counter();
    server.add(tool("other", json!({ "type": "object" })), Answer::echo());
    let wrong = Target::new("count").arguments(json!({ "n": "$input.n" }));
    let composite = CompositeTool::fan_out("both", "Both", [wrong, Target::new("other")])
        .input_schema(object(json!({ "type": "object" })));
    let composites = CompositeLayer::new([composite]).expect("good definitions");
    let stack =
        tower::ServiceBuilder::new().layer(composites).layer(strict()).service(server.clone());

    let reply = stack.oneshot(call("both", json!({ "n": "hunter2" }))).await.unwrap();

    assert_eq!(server.called(), ["other"]);
    let result = reply.tool_result().expect("a result");
    let branches = &result.structured_content.as_ref().expect("a report")["branches"];
    let error = &branches["count"]["error"];
    assert_eq!(
        error["message"],
        "invalid arguments for `count`: at `/n`: the value is not of type \"integer\""
    );
    assert_eq!(branches["other"]["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn rendered_arguments_are_checked_against_the_size_limit() {
    let server = Server::new().echoes("a");
    let target = Target::new("a").arguments(json!({ "q": "x".repeat(200) }));
    let composites = CompositeLayer::new([CompositeTool::fan_out("all", "All", [target])]).unwrap();
    let stack = tower::ServiceBuilder::new()
        .layer(LimitLayer::new().max_argument_bytes(100))
        .layer(composites)
        .layer(ValidateLayer::new().max_argument_bytes(100))
        .service(server.clone());

    let reply = stack.oneshot(call("all", json!({}))).await.unwrap();

    let result = reply.tool_result().expect("a result");
    let error = &result.structured_content.as_ref().expect("a report")["branches"]["a"]["error"];
    assert_eq!(error["message"], "the request has more than 100 bytes (`max_argument_bytes`)");
    assert!(server.called().is_empty());
}

#[tokio::test(start_paused = true)]
async fn layer_without_rules_allocates_nothing() {
    async fn pending(_: Request) -> Result<Reply, std::convert::Infallible> {
        std::future::pending().await
    }
    use tower::Service as _;
    let mut stack = ValidateLayer::new().layer(tower::service_fn(pending));
    let request = call("count", json!({ "n": 1 }));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut answer = None;
    let measured = allocation_counter::measure(|| answer = Some(stack.call(request)));
    assert_eq!(measured.count_total, 0);
    assert!(Box::pin(answer.unwrap()).as_mut().poll(&mut context).is_pending());
}
