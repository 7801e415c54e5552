//! Defects that were reproduced in the fan-out of mcp-proxy 0.6.0, by their numbers in that report;
//! each test fails if its defect is present.

use std::{
    convert::Infallible,
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_composite::{
    composite::{
        BRANCH, CompositeLayer, CompositeTool, DefinitionErrorKind, FanOut, Race, Strategy,
        Success, TRACE, Target,
    },
    message::{Reply, Request},
};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, CancelTaskRequest, ClientRequest, CreateTaskResult,
    InputRequiredResult, MetaObject, Task, TaskStatus,
};
use serde_json::{Value, json};
use tower::{Layer, Service, ServiceExt, buffer::Buffer, limit::ConcurrencyLimit};

use crate::{
    scripted::{Answer, Server, call, error, object, search_tool},
    support::capture_logs,
};

fn all(tools: &[&str]) -> CompositeTool {
    CompositeTool::fan_out("all", "Everything", tools.iter().copied())
}

/// Returns a composite named `all` with this strategy.
fn of(strategy: impl Into<Strategy>) -> CompositeTool {
    CompositeTool::new("all", "Everything", strategy)
}

fn stack(server: &Server, composite: CompositeTool) -> mcp_composite::composite::Composite<Server> {
    CompositeLayer::new([composite]).expect("a good definition").layer(server.clone())
}

fn mistakes(composites: impl IntoIterator<Item = CompositeTool>) -> Vec<DefinitionErrorKind> {
    let errors = CompositeLayer::new(composites).expect_err("mistakes");
    errors.iter().map(|error| error.kind().clone()).collect()
}

async fn run<S>(service: S, request: Request) -> CallToolResult
where
    S: Service<Request, Response = Reply, Error: std::fmt::Debug>,
{
    let reply = service.oneshot(request).await.expect("an answer");
    reply.tool_result().unwrap_or_else(|| panic!("{:?}", reply.error())).clone()
}

fn texts(result: &CallToolResult) -> Vec<String> {
    result
        .content
        .iter()
        .filter_map(|block| block.as_text())
        .map(|text| text.text.clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn c1_targets_are_called_only_when_ready() {
    let server = Server::new().says("a", "1").says("b", "2");
    let request = || call("all", json!({}));
    let layer = CompositeLayer::new([all(&["a", "b"])]).unwrap();

    let result = run(layer.layer(ConcurrencyLimit::new(server.clone(), 8)), request()).await;
    assert_eq!(texts(&result), ["a:", "1", "b:", "2"]);
    let result = run(layer.layer(Buffer::new(server, 8)), request()).await;
    assert_eq!(texts(&result), ["a:", "1", "b:", "2"]);
}

#[tokio::test(start_paused = true)]
async fn c1c_permit_reserved_for_the_call_is_released() {
    let limited = ConcurrencyLimit::new(Server::new().says("a", "1"), 1);
    let mut sibling = limited.clone();
    let mut service = CompositeLayer::new([all(&["a"])]).unwrap().layer(limited);

    service.ready().await.unwrap().call(call("all", json!({}))).await.unwrap();

    let ready = tokio::time::timeout(Duration::from_secs(60), sibling.ready()).await;
    assert!(ready.is_ok(), "the composite keeps a permit");
}

#[tokio::test(start_paused = true)]
async fn c2_definitions_are_listed_once_over_all_pages() {
    let server =
        (0..6).fold(Server::new(), |server, n| server.says(&format!("t{n}"), "x")).page_size(2);
    let stack = stack(&server, all(&["t0"]));
    let mut names = Vec::new();
    let mut cursor = None;
    loop {
        let reply = stack.clone().oneshot(Request::list_tools_from(cursor)).await.unwrap();
        let list = reply.tools().unwrap();
        names.extend(list.tools.iter().map(|tool| tool.name.to_string()));
        cursor = list.next_cursor.clone();
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(names, ["t0", "t1", "all", "t2", "t3", "t4", "t5"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_results_keep_the_declared_order_on_several_threads() {
    let server = Server::new().says("a", "1").says("b", "2").says("c", "3").says("d", "4");
    let stack = stack(&server, all(&["a", "b", "c", "d"]));
    for _ in 0..2000 {
        let result = run(stack.clone(), call("all", json!({}))).await;
        assert_eq!(texts(&result), ["a:", "1", "b:", "2", "c:", "3", "d:", "4"]);
        let branches: Vec<_> = (result.content.iter())
            .map(|block| block.as_text().unwrap().meta.as_ref().unwrap().0[BRANCH].clone())
            .collect();
        assert_eq!(branches, ["a", "a", "b", "b", "c", "c", "d", "d"]);
    }
}

#[tokio::test(start_paused = true)]
async fn c4_definition_is_derived_from_the_targets() {
    let server = Server::new().tool_as(search_tool("a"), Answer::text("1"));
    let reply = stack(&server, all(&["a"])).oneshot(Request::list_tools()).await.unwrap();
    let tool = &reply.tools().unwrap().tools[1];
    assert_eq!(tool.input_schema["properties"], json!({ "q": { "type": "string" } }));
    assert_eq!(tool.annotations.as_ref().unwrap().read_only_hint, Some(true));
    assert!(tool.output_schema.is_some());
}

#[tokio::test(start_paused = true)]
async fn c5_name_is_listed_once_and_duplicates_are_rejected() {
    let server = Server::new().says("all", "hidden").says("a", "1");
    let reply = stack(&server, all(&["a"])).oneshot(Request::list_tools()).await.unwrap();
    let names: Vec<_> = reply.tools().unwrap().tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["a", "all"]);

    let duplicate = DefinitionErrorKind::DuplicateName { name: "all".into() };
    assert_eq!(mistakes([all(&["a"]), all(&["b"])]), [duplicate]);
}

#[tokio::test(start_paused = true)]
async fn c6_hanging_target_neither_blocks_nor_loses_other_results() {
    let server = Server::new().says("a", "1").hangs("b").says("c", "3");
    let run = run(stack(&server, all(&["a", "b", "c"])), call("all", json!({})));
    let result = tokio::time::timeout(Duration::from_secs(61), run).await.expect("an end");
    let texts = texts(&result);
    assert_eq!(texts[..2], ["a:", "1"]);
    assert_eq!(texts[3..], ["c:", "3"]);
}

#[test]
fn c7_number_of_targets_is_limited() {
    let tools: Vec<_> = (0..65).map(|n| format!("t{n}")).collect();
    let composite = CompositeTool::fan_out("all", "Everything", tools);
    assert_eq!(mistakes([composite]), [DefinitionErrorKind::TooManyTargets { count: 65, max: 64 }]);
}

#[tokio::test(start_paused = true)]
async fn c8_composites_call_composites_and_cycles_are_rejected() {
    let circle = [
        CompositeTool::fan_out("a", "x", ["b"]),
        CompositeTool::fan_out("b", "x", ["c"]),
        CompositeTool::fan_out("c", "x", ["a"]),
    ];
    let names = ["a", "b", "c", "a"].map(str::to_owned).to_vec();
    assert_eq!(mistakes(circle), [DefinitionErrorKind::Cycle { composites: names }]);

    let chain = |length: usize| {
        (0..length).map(|n| CompositeTool::fan_out(format!("c{n}"), "x", [format!("c{}", n + 1)]))
    };
    let server = Server::new().says("c8", "the end");
    let stack = CompositeLayer::new(chain(8)).unwrap().layer(server);
    let texts = texts(&run(stack, call("c0", json!({}))).await);
    assert_eq!(texts, ["c1/c2/c3/c4/c5/c6/c7/c8:", "the end"]);
    let composites = (0..9).map(|n| format!("c{n}")).collect();
    assert_eq!(mistakes(chain(9)), [DefinitionErrorKind::TooDeep { composites, depth: 9, max: 8 }]);
    // Also a chain that would overflow the stack of a recursive check.
    assert!(!mistakes(chain(20_000)).is_empty());
}

#[tokio::test(start_paused = true)]
async fn c9_call_specific_fields_are_not_forwarded_to_targets() {
    let server = Server::new().echoes("a").echoes("b");
    let mut params = CallToolRequestParams::new("all");
    params.input_responses = Some([("answer".to_owned(), json!("to nothing"))].into());
    let mut request = Request::call_tool_with(params);
    let meta = json!({
        "progressToken": "tok-1",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {}, "sampling": {}, "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "com.example/mine": 1,
    });
    *request.context_mut().meta_mut() = serde_json::from_value(meta).unwrap();

    run(stack(&server, all(&["a", "b"])), request).await;

    for call in server.requests() {
        let params = call.tool_call().unwrap();
        assert_eq!((&params.request_state, &params.input_responses), (&None, &None));
        let mut meta = serde_json::to_value(call.context().meta()).unwrap();
        let parent = meta["traceparent"].take();
        let expected = json!({
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {}, "sampling": {} },
            "traceparent": null,
            "com.example/mine": 1,
        });
        let parent = parent.as_str().unwrap();
        assert!(parent.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{parent}");
        assert!(!parent.contains("b7ad6b7169203331"), "{parent}");
        assert_eq!(meta, expected, "no progress token, and only what a target may ask for");
    }
    let mut ids: Vec<_> =
        server.requests().iter().map(|call| call.context().id().to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["0#a", "0#b"]);

    // A state belongs to its issuer, and this one was issued by a target.
    let mut params = CallToolRequestParams::new("all");
    params.request_state = Some("state-issued-by-b".to_owned());
    let service = stack(&server, all(&["a", "b"]));
    let reply = service.oneshot(Request::call_tool_with(params)).await.unwrap();
    assert_eq!(reply.error().unwrap().message, "invalid `requestState`");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn c10_input_request_of_a_target_fails_its_branch() {
    let server = Server::new().says("a", "1").tool("b", {
        let asks: InputRequiredResult = serde_json::from_value(json!({
            "resultType": "input_required", "inputRequests": {}, "requestState": "SECRET-STATE",
        }))
        .unwrap();
        Reply::from(rmcp::model::ServerResult::InputRequiredResult(asks))
    });
    let result = run(stack(&server, all(&["a", "b"])), call("all", json!({}))).await;

    let text = serde_json::to_string(&result).unwrap();
    assert!(!text.contains("SECRET-STATE") && !text.contains("InputRequired"), "{text}");
    assert_eq!(
        texts(&result),
        [
            "a:",
            "1",
            "branch `b` (tool `b`) failed: the tool asks for input, which the client cannot give"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn c11_task_of_a_target_fails_its_branch_and_is_cancelled() {
    let server = Server::new().tool("a", {
        let task = Task::new(
            "task-123".to_owned(),
            TaskStatus::Working,
            "2026-01-01T00:00:00Z".to_owned(),
            "2026-01-01T00:00:00Z".to_owned(),
        );
        Reply::from(rmcp::model::ServerResult::CreateTaskResult(CreateTaskResult::new(task)))
    });
    let result = run(stack(&server, all(&["a"])), call("all", json!({}))).await;

    let text = serde_json::to_string(&result).unwrap();
    assert!(!text.contains("task-123"), "{text}");
    assert_eq!(result.is_error, Some(true));
    let cancelled = server.requests().into_iter().find_map(|request| match request.message() {
        ClientRequest::CancelTaskRequest(CancelTaskRequest { params, .. }) => {
            Some(params.task_id.clone())
        }
        _ => None,
    });
    assert_eq!(cancelled.as_deref(), Some("task-123"));
}

#[tokio::test(start_paused = true)]
async fn c12_structured_content_meta_codes_and_data_are_kept() {
    let server = Server::new()
        .tool("a", {
            let mut result = CallToolResult::structured(json!({ "n": 1 }));
            result.meta = Some(MetaObject(object(json!({ "usage": 3 }))));
            result
        })
        .tool("b", error(-32042, "url elicitation", json!({ "k": "v" })));
    let result = run(stack(&server, all(&["a", "b"])), call("all", json!({}))).await;

    let branches = &result.structured_content.as_ref().unwrap()["branches"];
    assert_eq!(branches["a"]["output"], json!({ "n": 1 }));
    assert_eq!(branches["b"]["error"]["code"], -32042);
    assert_eq!(branches["b"]["error"]["data"], json!({ "k": "v" }));
    assert_eq!(result.meta.unwrap().0[TRACE][0]["meta"], json!({ "usage": 3 }));
}

#[tokio::test(start_paused = true)]
async fn c13_panic_fails_only_its_branch_and_reveals_nothing() {
    let (log, _guard) = capture_logs();
    let server = Server::new().says("a", "1").tool("b", Answer::panic("db password=hunter2"));
    let result = run(stack(&server, all(&["a", "b"])), call("all", json!({}))).await;

    assert_eq!(texts(&result), ["a:", "1", "branch `b` (tool `b`) failed: the tool panicked"]);
    assert_eq!(
        result.structured_content.as_ref().unwrap()["branches"]["b"]["error"]["kind"],
        "panic"
    );
    assert!(!serde_json::to_string(&result).unwrap().contains("hunter2"));
    assert!(!log.text().contains("hunter2"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn c14_branches_inherit_the_span_and_extensions_of_their_call() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = {
        let seen = seen.clone();
        let look = Answer::from_fn(move |call| {
            let span = tracing::Span::current().metadata().map(|metadata| metadata.name());
            let tenant = call.request().context().extensions().get::<u32>().copied();
            seen.lock().unwrap().push((span, tenant));
            ready(Answer::text("1"))
        });
        Server::new().tool("a", look)
    };
    let (log, _guard) = capture_logs();
    // One that runs alone, and two in separate tasks.
    for tools in [&["a"][..], &["a", "a"]] {
        let mut request = call("all", json!({}));
        request.context_mut().extensions_mut().insert(7u32);
        let span = tracing::info_span!("request");
        tracing::Instrument::instrument(run(stack(&server, all(tools)), request), span).await;
    }

    assert_eq!(*seen.lock().unwrap(), [(Some("mcp.client"), Some(7)); 3]);
    // Logged when each span closes.
    let within = "request:gen_ai.workflow{";
    let calls = log
        .text()
        .lines()
        .filter(|line| line.contains(within) && line.contains("}:mcp.client{"))
        .count();
    assert_eq!(calls, 3, "{}", log.text());
}

#[test]
fn c14_composite_outside_a_runtime_returns_an_error() {
    let service =
        CompositeLayer::new([all(&["a"])]).unwrap().layer(tower::service_fn(|_: Request| async {
            Ok::<_, Infallible>(Reply::unknown_tool("x"))
        }));
    let reply = futures::executor::block_on(service.oneshot(call("all", json!({})))).unwrap();
    assert_eq!(reply.error().unwrap().code.0, -32603);
}

/// Returns the allocations of one call, with all catalogs filled.
fn allocations_of(stack: &mcp_composite::composite::Composite<Server>, arguments: &Value) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let request = || call("all", arguments.clone());
    runtime.block_on(run(stack.clone(), request()));
    let request = request();
    let stack = stack.clone();
    allocation_counter::measure(|| drop(runtime.block_on(run(stack, request)))).count_total
}

#[test]
fn c15_arguments_are_cloned_at_most_once_per_target() {
    let keys: serde_json::Map<_, _> =
        (0..512).map(|n| (format!("key{n}"), json!("value"))).collect();
    let big = Value::Object(keys);
    let cost_of_a_clone = allocation_counter::measure(|| drop(big.clone())).count_total;
    assert!(cost_of_a_clone > 1024);
    let server = Server::new().tool("a", Answer::text("1"));
    let targets = |count| CompositeTool::fan_out("all", "x", vec!["a"; count]);
    let cost =
        |count, arguments: &Value| allocations_of(&stack(&server, targets(count)), arguments);

    let of_one = cost(1, &big) - cost(1, &json!({}));
    let of_eight = cost(8, &big) - cost(8, &json!({}));
    assert!(
        of_one < cost_of_a_clone + 50,
        "the only target gets the arguments themselves: {of_one}"
    );
    assert!(of_eight < 7 * cost_of_a_clone + 50, "7 clones: {of_eight}");
}

#[test]
fn c16_composite_without_targets_is_rejected() {
    assert_eq!(mistakes([all(&[])]), [DefinitionErrorKind::NoTargets]);
}

#[test]
fn c17_all_invalid_options_are_reported_at_once() {
    let error = CompositeLayer::new([
        CompositeTool::fan_out("my tool\n", " ", ["a"]),
        of(FanOut::new(["a", ""]).success(Success::Quorum(3)).max_parallel(0))
            .timeout(Duration::ZERO),
        CompositeTool::new("race", "x", Race::new([Target::new("a").optional(true)])),
        CompositeTool::fan_out(
            "refers",
            "x",
            [
                Target::new("a").id("x y").arguments(json!({ "q": ["$inptu.q"] })),
                Target::new("b").id("b").arguments(json!({ "q": "{{ inptu.q }}" })),
                Target::new("b").id("b").arguments(json!([1])).timeout(Duration::ZERO),
            ],
        )
        .input_schema(object(json!({ "type": "array" })))
        .output_schema(object(json!({ "type": "object", "properties": 7 }))),
    ])
    .expect_err("mistakes");

    let expected = "\
composite `my tool\n` at `name`: illegal tool name \"my tool\\n\": expected 1 to 128 of `A-Z`, `a-z`, `0-9`, `_`, `-` and `.`
composite `my tool\n` at `description`: `description` is blank
composite `all` at `timeout`: `timeout` is zero: expected more, or leave the key out
composite `all` at `success`: a quorum of 3 of 2 targets: expected 1 to 2
composite `all` at `max_parallel`: `max_parallel` is zero: expected more, or leave the key out
composite `all` at `targets[1].tool`: `tool` is blank
composite `race` at `targets[0].optional`: `optional` cannot be used with `strategy = \"race\"`
composite `refers` at `input_schema`: `input_schema` cannot be used: its `type` is \"array\": expected \"object\"
composite `refers` at `output_schema`: `output_schema` cannot be used: it is not a valid JSON Schema: 7 is not of type \"object\" (at `/properties`)
composite `refers` at `targets[0].id`: illegal id \"x y\": expected 1 to 64 letters, digits, `_` and `-`
composite `refers` at `targets[2].id`: duplicate id `b`
composite `refers` at `targets[0].arguments.q[0]`: unknown reference `$inptu.q`: expected `$input`, `$null`, or `$$` for a literal `$`
composite `refers` at `targets[1].arguments.q`: at line 1, character 4 of the template: unknown name `inptu`: did you mean `input`?
composite `refers` at `targets[2].timeout`: `timeout` is zero: expected more, or leave the key out
composite `refers` at `targets[2].arguments`: `arguments` is an array: expected an object";
    assert_eq!(error.to_string(), expected);
}
