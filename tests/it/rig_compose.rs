//! Tools of `rig-compose` as targets, and tools of this crate in `rig-compose`.

mod budget;

use std::sync::{Arc, Mutex, OnceLock};

use futures::future::BoxFuture;
use mcp_composite::{
    composite::{CompositeLayer, CompositeTool, OnLimit},
    functions::{ToolSet, tool_fn},
    message::{Context, Refusal, Reply, Request},
    rig_compose::{NOTES, function, functions, tools, tools_as, within},
    testing,
    truncate::{SHORTENED, TruncateLayer},
};
use rig_compose::{
    DelegateTool, KernelError, LocalTool, Tool as RigTool, ToolRegistry, ToolSchema,
    delegate::DelegateExecutor,
};
use rmcp::model::*;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    scripted::{Answer, Server, object, search_tool},
    support::soon,
};

fn schema(name: &str) -> ToolSchema {
    ToolSchema {
        name: name.to_owned(),
        description: "A tool of theirs".to_owned(),
        args_schema: json!({ "type": "object" }),
        result_schema: json!({}),
    }
}

/// A `rig-compose` tool that always returns the same result.
fn rig_tool(
    name: &str,
    answer: impl Fn() -> Result<Value, KernelError> + Send + Sync + 'static,
) -> Arc<dyn RigTool> {
    Arc::new(LocalTool::new(schema(name), move |_| std::future::ready(answer())))
}

fn set<const N: usize>(tools: [Arc<dyn RigTool>; N]) -> ToolSet {
    ToolSet::new(tools.map(function)).expect("different names")
}

async fn invoke(tools: &[Arc<dyn RigTool>], name: &str, arguments: Value) -> Result<Value, String> {
    let tool = tools.iter().find(|tool| tool.name() == name).expect("a tool of this name");
    tool.invoke(arguments).await.map_err(|error| error.to_string())
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().expect("a text").text
}

#[tokio::test]
async fn composite_returns_the_same_result_as_a_rig_tool() {
    let report = CompositeTool::fan_out("report", "Both", ["look", "say"]);
    let layer = CompositeLayer::new([report]).expect("a composite");
    let stack = layer.layer(Server::new().gives("look", json!({ "n": 1 })).says("say", "hello"));

    let direct = testing::call(&stack, "report", json!({})).await.structured_content;
    let rig_tools = tools(stack).await.expect("tools");
    assert_eq!(invoke(&rig_tools, "report", json!({})).await.ok(), direct);
}

#[tokio::test]
async fn rig_tool_value_survives_a_stack() {
    for value in [json!({ "n": 1, "nested": [null] }), json!("a text"), json!("42"), json!("")] {
        let given = value.clone();
        let stack = set([rig_tool("tool", move || Ok(given.clone()))]);
        let back = tools(stack).await.expect("tools");
        assert_eq!(invoke(&back, "tool", json!({})).await, Ok(value));
    }
}

#[tokio::test]
async fn rig_tool_error_survives_a_stack() {
    let stack = set([rig_tool("tool", || Err(KernelError::ToolFailed("no route".to_owned())))]);
    let back = tools(stack).await.expect("tools");
    let error = invoke(&back, "tool", json!({})).await;
    assert_eq!(error, Err("tool invocation failed: no route".to_owned()));
}

#[tokio::test]
async fn rig_tool_is_usable_as_a_target() {
    let all = CompositeTool::fan_out("all", "All", ["theirs", "broken"]);
    let set = set([
        rig_tool("theirs", || Ok(json!({ "n": 1 }))),
        rig_tool("broken", || Err(KernelError::ToolFailed("no route".to_owned()))),
    ]);
    let stack = CompositeLayer::new([all]).expect("a composite").layer(set);
    let report = testing::call(&stack, "all", json!({})).await.structured_content;
    let branches = &report.expect("a report")["branches"];
    assert_eq!(branches["theirs"]["output"], json!({ "n": 1 }));
    assert_eq!(branches["broken"]["error"]["message"], "no route");
}

#[test]
fn object_schemas_of_rig_tools_are_listed() {
    let any = json!({ "type": "object" });
    let of_n = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let untyped = json!({ "properties": { "n": {} } });
    let typed = json!({ "type": "object", "properties": { "n": {} } });
    for (arguments, result, input, output) in [
        (any.clone(), json!({}), &any, None),
        (of_n.clone(), of_n.clone(), &of_n, Some(&of_n)),
        (untyped.clone(), untyped, &typed, Some(&typed)),
        (json!({}), json!({ "type": "integer" }), &any, None),
        (json!({ "type": "string" }), json!(true), &any, None),
        (Value::Null, Value::Null, &any, None),
    ] {
        let schema = ToolSchema { args_schema: arguments, result_schema: result, ..schema("tool") };
        let tool = function(Arc::new(LocalTool::new(schema, async |_| Ok(json!({})))));
        let tool = tool.tool();
        assert_eq!(Value::Object((*tool.input_schema).clone()), *input);
        let schema = tool.output_schema.as_ref().map(|schema| Value::Object((**schema).clone()));
        assert_eq!(schema.as_ref(), output);
    }
}

#[tokio::test]
async fn schemas_of_mcp_tools_are_forwarded_unchanged() {
    let schema = object(json!({ "type": "object", "required": ["rows"] }));
    let search = search_tool("search").with_raw_output_schema(Arc::new(schema.clone()));
    let server = Server::new().tool_as(search.clone(), Answer::echo()).echoes("plain");
    let tools = tools(server).await.expect("tools");
    assert_eq!(tools.iter().map(|tool| tool.name()).collect::<Vec<_>>(), ["search", "plain"]);
    assert_eq!(
        tools[0].schema(),
        ToolSchema {
            name: "search".to_owned(),
            description: "Searches".to_owned(),
            args_schema: Value::Object((*search.input_schema).clone()),
            result_schema: Value::Object(schema),
        }
    );
    assert_eq!(tools[1].schema().result_schema, json!({}));
}

#[tokio::test]
async fn rig_errors_become_error_results_with_a_reason() {
    type Error = fn() -> KernelError;
    let cases: [(Error, &str); 8] = [
        (|| KernelError::ToolFailed("no route".into()), "no route"),
        (|| KernelError::InvalidArgument("`n`".into()), "invalid argument: `n`"),
        (|| KernelError::ToolNotApplicable("empty".into()), "tool not applicable: empty"),
        (|| KernelError::ToolNotFound("other".into()), "unknown tool `other`"),
        (|| KernelError::ToolNotAuthorised("other".into()), "unknown tool `other`"),
        (|| KernelError::BudgetFailed("at 10.0.0.1".into()), "the budget could not be checked"),
        (|| KernelError::SkillFailed("no idea".into()), "skill execution failed: no idea"),
        (|| KernelError::ToolDispatchTerminated("used up".into()), "used up"),
    ];
    for (error, expected) in cases {
        let set = set([rig_tool("tool", move || Err(error()))]);
        let result = testing::call(&set, "tool", json!({})).await;
        assert_eq!(result.is_error, Some(true));
        assert_eq!(text(&result), expected);
    }
}

#[tokio::test]
async fn scoped_registry_lists_only_its_allowed_tools() {
    let registry = ToolRegistry::new();
    for name in ["b", "a", "secret"] {
        registry.register(rig_tool(name, || Ok(json!("first"))));
    }
    let set = ToolSet::new(functions(&registry.scoped(["a", "b"]))).expect("different names");
    let names: Vec<_> = set.tools().map(|tool| tool.name.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
    // A tool that is not allowed has the same error as a missing one.
    let [secret, none] = [
        testing::refused(&set, "secret", json!({})).await,
        testing::refused(&set, "none", json!({})).await,
    ];
    assert_eq!(secret.message.replace("secret", "none"), none.message);
    // A later registration replaces an earlier one.
    registry.register(rig_tool("a", || Ok(json!("second"))));
    assert_eq!(text(&testing::call(&set, "a", json!({})).await), "second");
}

#[tokio::test]
async fn unauthorised_tool_is_rejected_as_unknown() {
    let tool = rig_tool("tool", || Err(KernelError::ToolNotAuthorised("tool".to_owned())));
    let error = testing::refused(&set([tool]), "tool", json!({})).await;
    assert_eq!(error.message, "unknown tool `tool`");
}

#[tokio::test]
async fn result_content_converts_to_json_for_rig() {
    let png = || ContentBlock::image("aGVsbG8=", "image/png");
    let texts = |blocks| Answer::from(Reply::from(CallToolResult::success(blocks)));
    let mut both = CallToolResult::structured(json!({ "n": 42 }));
    both.content.push(ContentBlock::text("more"));
    let resource = ResourceContents::text("the text", "file:///a");
    let cases = [
        (texts(vec![ContentBlock::text("one"), ContentBlock::text("two")]), json!("one\n\ntwo")),
        (texts(vec![ContentBlock::text("42")]), json!("42")),
        (texts(vec![ContentBlock::text("null")]), json!("null")),
        (texts(vec![]), json!("")),
        (texts(vec![png()]), json!("[image of type image/png, 5 bytes]")),
        (texts(vec![ContentBlock::resource(resource)]), json!("[resource file:///a]\nthe text")),
        (Answer::from(Reply::from(both)), json!({ "n": 42 })),
    ];
    for (answer, expected) in cases {
        let tools = tools(Server::new().tool("tool", answer)).await.expect("tools");
        assert_eq!(invoke(&tools, "tool", json!({})).await, Ok(expected));
    }
}

#[tokio::test]
async fn unsupported_task_is_cancelled_for_its_caller() {
    let cancelled = Arc::new(Mutex::new(Vec::new()));
    let log = cancelled.clone();
    let begins_tasks = service_fn(move |request: Request| {
        let caller = request.context().extensions().get::<&str>().copied();
        let reply = match request.message() {
            ClientRequest::ListToolsRequest(_) => {
                ListToolsResult::with_all_items(vec![search_tool("tool")]).into()
            }
            ClientRequest::CancelTaskRequest(cancel) => {
                log.lock().unwrap().push((cancel.params.task_id.clone(), caller));
                ServerResult::empty(()).into()
            }
            _ => {
                let now = "2026-01-01T00:00:00Z";
                let task = Task::new("t1", TaskStatus::Working, now, now);
                ServerResult::CreateTaskResult(CreateTaskResult::new(task)).into()
            }
        };
        std::future::ready(Ok::<Reply, tower::BoxError>(reply))
    });
    let nobody = tools(begins_tasks.clone()).await.expect("tools");
    let ada = tools_as(begins_tasks, for_ada()).await.expect("tools");
    let why = "tool invocation failed: the tool returned a task, which is not supported here";
    let expected = Err(why.to_owned());
    assert_eq!(invoke(&nobody, "tool", json!({})).await, expected);
    assert_eq!(invoke(&ada, "tool", json!({})).await, expected);
    assert_eq!(within(for_ada(), invoke(&nobody, "tool", json!({}))).await, expected);
    let task = |caller| ("t1".to_owned(), caller);
    assert_eq!(*cancelled.lock().unwrap(), [task(None), task(Some("ada")), task(Some("ada"))]);
}

#[tokio::test]
async fn notes_are_added_to_structured_content() {
    let log = json!({ "log": "All is well. ".repeat(1_000), "warnings": 0 });
    let truncate = TruncateLayer::new().max_result_bytes(500);
    let shortened = tools(truncate.layer(Server::new().gives("tool", log))).await.expect("tools");
    let result = invoke(&shortened, "tool", json!({})).await.expect("a result");
    assert_eq!(result["warnings"], 0);
    let [note] = &**result[NOTES].as_array().expect("notes") else { panic!("{result}") };
    assert!(note.as_str().expect("a text").starts_with("this result was truncated"), "{note}");

    let all = CompositeTool::fan_out("all", "All", ["one", "other"])
        .max_calls(1)
        .on_limit(OnLimit::Partial);
    let layer = CompositeLayer::new([all]).expect("a composite");
    let server = Server::new().says("one", "of the tool").says("other", "of the tool");
    let ended = tools(layer.layer(server)).await.expect("tools");
    let result = invoke(&ended, "all", json!({})).await.expect("a result");
    let [note] = &**result[NOTES].as_array().expect("notes") else { panic!("{result}") };
    assert!(note.as_str().expect("a text").starts_with("the run ended early: "), "{note}");
}

#[tokio::test]
async fn notes_never_replace_the_tool_result() {
    for structured in [json!({ "_notes": "of the tool" }), json!([1])] {
        let mut result = CallToolResult::structured(structured.clone());
        result.content.push(ContentBlock::text("this result was shortened"));
        result.meta.get_or_insert_default().insert(SHORTENED.to_owned(), json!({}));
        let server = Server::new().tool("tool", Answer::from(Reply::from(result)));
        let tools = tools(server).await.expect("tools");
        assert_eq!(invoke(&tools, "tool", json!({})).await, Ok(structured));
    }
}

#[tokio::test]
async fn mcp_tool_failures_become_rig_errors() {
    let asks = Reply::from(ServerResult::InputRequiredResult(
        serde_json::from_value(json!({ "resultType": "input_required", "inputRequests": {} }))
            .expect("a result"),
    ));
    for (answer, expected) in [
        (Answer::failure("no route"), "tool invocation failed: no route"),
        (Answer::error(-32602, "`n` is not a number"), "invalid argument: `n` is not a number"),
        (Answer::error(-32603, "broken"), "tool invocation failed: broken"),
        (Answer::from(Reply::unknown_tool("tool")), "tool `tool` not found in registry"),
        (
            Answer::from(Reply::from(Refusal::OverBudget {
                budget: "calls".into(),
                retry_after: None,
            })),
            "tool dispatch terminated: the budget `calls` is used up",
        ),
        (
            Answer::from(asks),
            "tool invocation failed: the tool asks the user, and no user can be asked here",
        ),
    ] {
        let tools = tools(Server::new().tool("tool", answer)).await.expect("tools");
        assert_eq!(invoke(&tools, "tool", json!({})).await, Err(expected.to_owned()));
    }
}

#[tokio::test]
async fn service_error_is_hidden_from_the_rig_caller() {
    let broken = service_fn(async |request: Request| {
        if request.lists_tools() {
            return Ok(ListToolsResult::with_all_items(vec![search_tool("tool")]).into());
        }
        Err::<Reply, tower::BoxError>("postgres://admin@10.0.0.1 is away".into())
    });
    let tools = tools(broken).await.expect("tools");
    let error = invoke(&tools, "tool", json!({})).await;
    assert_eq!(error, Err("tool invocation failed: the tool's server failed to answer".to_owned()));
}

#[tokio::test]
async fn non_object_arguments_are_rejected() {
    let server = Server::new().echoes("tool");
    let tools = tools(server.clone()).await.expect("tools");
    for arguments in [json!([1]), json!("x"), json!(1), json!(true)] {
        let error = invoke(&tools, "tool", arguments).await;
        assert_eq!(error, Err("invalid argument: `tool` takes an object".to_owned()));
    }
    assert!(server.called().is_empty());
    assert!(invoke(&tools, "tool", Value::Null).await.is_ok());
    assert!(invoke(&tools, "tool", json!({ "n": 1 })).await.is_ok());
    assert_eq!(server.calls().len(), 2);
}

/// A server that records its callers.
fn who() -> (ToolSet, Arc<Mutex<Vec<Option<&'static str>>>>) {
    let callers = Arc::new(Mutex::new(Vec::new()));
    let log = callers.clone();
    let tool = tool_fn(search_tool("who"), move |_: JsonObject, context: Context| {
        log.lock().unwrap().push(context.extensions().get::<&str>().copied());
        std::future::ready(())
    });
    (ToolSet::new([tool]).expect("one tool"), callers)
}

fn for_ada() -> Context {
    let mut context = Context::default();
    context.extensions_mut().insert("ada");
    context
}

#[tokio::test]
async fn mcp_tools_are_called_for_the_configured_caller() {
    let (server, callers) = who();
    let nobody = tools(server.clone()).await.expect("tools");
    let ada = tools_as(server, for_ada()).await.expect("tools");
    assert!(invoke(&nobody, "who", json!({})).await.is_ok());
    assert!(invoke(&ada, "who", json!({})).await.is_ok());
    assert!(within(for_ada(), invoke(&nobody, "who", json!({}))).await.is_ok());
    assert_eq!(*callers.lock().unwrap(), [None, Some("ada"), Some("ada")]);
}

#[tokio::test]
async fn nested_call_of_a_rig_tool_keeps_its_caller() {
    let (server, callers) = who();
    let tools = Arc::new(tools(server).await.expect("tools"));
    let agent = Arc::new(LocalTool::new(schema("agent"), move |arguments| {
        let tools = tools.clone();
        async move { tools[0].invoke(arguments).await }
    }));
    let mut request = Request::call_tool("agent");
    *request.context_mut() = for_ada();
    set([agent]).oneshot(request).await.expect("an answer");
    assert_eq!(*callers.lock().unwrap(), [Some("ada")]);
}

/// A `rig-compose` agent that only calls itself, through a stack of this crate.
struct Asks {
    tools: Arc<OnceLock<Vec<Arc<dyn RigTool>>>>,
}

impl DelegateExecutor for Asks {
    fn invoke<'agent, 'future>(
        &'agent self,
        arguments: Value,
    ) -> BoxFuture<'future, Result<Value, KernelError>>
    where
        'agent: 'future,
        Self: 'future,
    {
        Box::pin(async move {
            let tools = self.tools.get().expect("it is built");
            let both = tools.iter().find(|tool| tool.name() == "both").expect("a composite");
            both.invoke(arguments).await
        })
    }
}

#[tokio::test]
async fn cyclic_agents_receive_an_error() {
    let shared = Arc::new(OnceLock::new());
    let agent = |name| -> Arc<dyn RigTool> {
        Arc::new(DelegateTool::new(name, "An agent", Arc::new(Asks { tools: shared.clone() })))
    };
    let both = CompositeTool::fan_out("both", "Both", ["one", "other"]);
    let layer = CompositeLayer::new([both]).expect("a composite");
    let stack = layer.layer(set([agent("one"), agent("other")]));
    let listed = tools(stack).await.expect("tools");
    let _ = shared.set(listed);

    // The report of a failed fan-out is an error on every level.
    let error = soon(invoke(shared.get().expect("set"), "one", json!({}))).await;
    let error = error.expect_err("a circle");
    assert!(error.contains("seems to call itself"), "{error}");
}
