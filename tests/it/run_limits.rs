//! The result of a run that has reached a limit.

use std::{sync::Arc, time::Duration};

use mcp_composite::{
    composite::{
        BRANCH, CallLimits, CompositeLayer, CompositeTool, Elicitation, Fallback, FanOut, ForEach,
        JsonType, LIMIT, OnError, OnLimit, Output, OutputProperty, Pipeline, Race, Retry, Step,
        Strategy, Success, TRACE, Target, ToolCall, Trace, Workflow,
    },
    message::ToolAnswer,
    store::SignedStore,
    testing::{self, Answer, Server},
};
use rmcp::model::{CallToolResult, TextContent};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use crate::scripted::{can_be_asked, object, search_tool};

const KEY: &str = "a key of at least thirty-two bytes";

/// Tools that return their names, and a few that do not.
fn server() -> Server {
    let server = ["a", "b", "c", "d"]
        .into_iter()
        .fold(Server::new(), |server, name| server.gives(name, json!({ "name": name })));
    server.fails("fails", "no").says("long", "x".repeat(100)).echoes("echo")
}

/// Returns the result of the last of these composites, run with these tools.
async fn run_all(composites: Vec<CompositeTool>, server: &Server) -> CallToolResult {
    let called = composites.last().unwrap().name().to_owned();
    let composites = composites.into_iter().map(|composite| composite.trace(Trace::Always));
    let service = CompositeLayer::new(composites).unwrap().layer(server.clone());
    testing::call(&service, &called, json!({})).await
}

async fn run(composite: CompositeTool) -> CallToolResult {
    run_all(vec![composite], &server()).await
}

fn look(strategy: impl Into<Strategy>) -> CompositeTool {
    CompositeTool::new("look", "Looks", strategy)
}

fn sequential(tools: &[&str]) -> FanOut {
    FanOut::new(tools.iter().copied()).sequential()
}

fn steps_of(tools: &[&str]) -> Pipeline {
    Pipeline::new(tools.iter().map(|tool| Step::new(*tool, *tool)))
}

fn pipeline(tools: &[&str]) -> CompositeTool {
    look(steps_of(tools))
}

fn workflow(tools: &[&str]) -> CompositeTool {
    let steps = tools.iter().map(|tool| Step::new(*tool, *tool));
    CompositeTool::new("look", "Looks", Workflow::new(steps).max_parallel(1))
}

/// Calls `echo` for this many elements, one after another.
fn each(elements: usize) -> Step {
    let elements: Vec<_> = (0..elements).collect();
    Step::new(
        "each",
        ForEach::new(json!(elements), ToolCall::new("echo").arguments(json!({ "n": "$item" })))
            .max_parallel(1),
    )
}

/// Returns the statuses of branches, in declared order.
fn statuses(result: &CallToolResult) -> Vec<String> {
    let trace = result.meta.as_ref().unwrap()[TRACE].as_array().unwrap();
    trace.iter().map(|entry| entry["status"].as_str().unwrap().to_owned()).collect()
}

/// Returns the machine-readable limit in a result.
fn limit(result: &CallToolResult) -> Option<&Value> {
    result.meta.as_ref()?.get(LIMIT)
}

/// Returns the reason for which a run failed, without the outputs of its branches and steps.
fn reason(result: &CallToolResult) -> &str {
    let mut texts = result.content.iter().filter_map(|block| block.as_text());
    let of_branch =
        |text: &&TextContent| text.meta.as_ref().is_some_and(|meta| meta.0.contains_key(BRANCH));
    &texts.rfind(|text| !of_branch(text)).unwrap().text
}

fn last_text(result: &CallToolResult) -> &str {
    &result.content.last().unwrap().as_text().unwrap().text
}

const EARLY: &str = "the run ended early: `max_calls`, which is 2, was reached; skipped: `c`, `d`";

/// All strategies whose answer is made of every branch.
fn all_of_four() -> [CompositeTool; 4] {
    let tools = ["a", "b", "c", "d"];
    [look(FanOut::new(tools)), look(sequential(&tools)), pipeline(&tools), workflow(&tools)]
}

#[tokio::test(start_paused = true)]
async fn run_at_its_call_limit_returns_a_partial_result() {
    for composite in all_of_four() {
        let what = format!("{composite:?}");
        let result = run(composite.max_calls(2)).await;
        assert_eq!(result.is_error, Some(false), "{what}");
        assert_eq!(statuses(&result), ["completed", "completed", "skipped", "skipped"], "{what}");
        assert_eq!(last_text(&result), EARLY, "{what}");
        let expected = json!({ "setting": "max_calls", "limit": 2, "skipped": ["c", "d"] });
        assert_eq!(limit(&result), Some(&expected), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn run_failing_at_a_limit_names_the_limit() {
    for composite in all_of_four() {
        let what = format!("{composite:?}");
        let result = run(composite.max_calls(2).on_limit(OnLimit::Fail)).await;
        assert_eq!((result.is_error, reason(&result)), (Some(true), EARLY), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn run_exactly_within_its_limits_is_complete() {
    for composite in all_of_four() {
        let what = format!("{composite:?}");
        let composite = composite.max_calls(4).max_cost(1).on_limit(OnLimit::Fail);
        let result = run(composite).await;
        assert_eq!((result.is_error, limit(&result)), (Some(false), None), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn report_contains_the_reason_of_a_skipped_branch() {
    let result = run(look(sequential(&["a", "b"])).max_calls(1)).await;
    let branch = &result.structured_content.as_ref().unwrap()["branches"]["b"];
    let why = "`max_calls`, which is 1, was reached";
    let expected = json!({ "status": "skipped", "error": { "kind": "limit", "message": why } });
    assert_eq!(*branch, expected);
    let expected = format!("branch `b` (tool `b`) was skipped: {why}");
    assert_eq!(result.content[2].as_text().unwrap().text, expected);
}

#[tokio::test(start_paused = true)]
async fn limited_run_without_a_completed_call_returns_an_error() {
    let why = "the run ended early: `max_calls`, which is 1, was reached; skipped: `a`";
    let tools = ["fails", "a"];
    for composite in [
        look(sequential(&tools)),
        look(FanOut::new(tools)),
        look(Race::new(tools)),
        look(Fallback::new(tools)),
    ] {
        let what = format!("{composite:?}");
        let result = run(composite.max_calls(1)).await;
        assert_eq!((result.is_error, last_text(&result)), (Some(true), why), "{what}");
    }
    let steps = [Step::new("fails", "fails").on_error(OnError::Continue), Step::new("a", "a")];
    let result = run(CompositeTool::pipeline("look", "Looks", steps).max_calls(1)).await;
    let why = format!("{why}; no step has completed");
    assert_eq!((result.is_error, last_text(&result)), (Some(true), &*why));
}

#[tokio::test(start_paused = true)]
async fn winner_of_a_race_reports_no_reached_limit() {
    for composite in [look(Race::new(["a", "b"])), look(Fallback::new(["a", "b"]))] {
        for on_limit in [OnLimit::Partial, OnLimit::Fail] {
            let result = run(composite.clone().max_calls(1).on_limit(on_limit)).await;
            assert_eq!((result.is_error, limit(&result)), (Some(false), None), "{composite:?}");
            assert_eq!(result.structured_content, Some(json!({ "name": "a" })), "{composite:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn limit_does_not_hide_independent_failures() {
    let composite = |success| look(sequential(&["fails", "a", "b"]).success(success)).max_calls(2);
    let all = run(composite(Success::All)).await;
    assert_eq!(all.is_error, Some(true), "all must succeed");
    let any = run(composite(Success::Any)).await;
    assert_eq!((any.is_error, limit(&any).is_some()), (Some(false), true));
    let two = run(composite(Success::Quorum(2))).await;
    assert_eq!((two.is_error, limit(&two).is_some()), (Some(false), true));
    let failed = run(pipeline(&["a", "fails", "b"]).max_calls(2)).await;
    assert_eq!(reason(&failed), "step `fails` (tool `fails`) failed: no");
}

#[tokio::test(start_paused = true)]
async fn running_branches_finish_after_a_limit_is_reached() {
    let second = Duration::from_secs(1);
    let server = server()
        .tool("slow", Answer::text("slow").after(9 * second))
        .tool("later", Answer::text("later").after(second));
    let composite = look(FanOut::new(["slow", "later", "a", "b"]).max_parallel(2));
    let result = run_all(vec![composite.max_calls(3)], &server).await;
    assert_eq!(statuses(&result), ["completed", "completed", "completed", "skipped"]);
    assert_eq!((server.called().len(), server.dropped().len()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn oversized_reply_fails_its_call_and_ends_the_run_early() {
    let message = "an answer of 100 bytes exceeds the rest of `max_result_bytes`, which is 50";
    let early = "the run ended early: `max_result_bytes`, which is 50, was reached; refused: `long`; skipped: `b`";
    let tools = ["a", "long", "b"];
    let composites = [
        look(sequential(&tools)),
        look(FanOut::new(tools).max_parallel(1)),
        pipeline(&tools),
        workflow(&tools),
    ];
    for composite in composites {
        let what = format!("{composite:?}");
        let result = run(composite.clone().max_result_bytes(50)).await;
        assert_eq!(result.is_error, Some(false), "{what}");
        assert_eq!(statuses(&result), ["completed", "failed", "skipped"], "{what}");
        let error = &result.meta.as_ref().unwrap()[TRACE][1]["error"];
        assert_eq!(*error, json!({ "kind": "limit", "message": message }), "{what}");
        assert_eq!(last_text(&result), early, "{what}");
        assert_eq!(limit(&result).unwrap()["refused"], json!(["long"]), "{what}");

        let failed = run(composite.max_result_bytes(50).on_limit(OnLimit::Fail)).await;
        assert_eq!((failed.is_error, reason(&failed)), (Some(true), early), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn partial_result_is_that_of_the_last_completed_step() {
    for composite in [pipeline(&["a", "b", "c"]), workflow(&["a", "b", "c"])] {
        let result = run(composite.max_calls(2)).await;
        assert_eq!(result.structured_content, Some(json!({ "name": "b" })));
    }
}

/// A server whose tools have output schemas.
fn promising() -> Server {
    let tool = |name: &str| {
        let schema = json!({
            "type": "object",
            "properties": { "name": { "const": name } },
            "required": ["name"],
        });
        search_tool(name).with_raw_output_schema(Arc::new(object(schema)))
    };
    ["a", "b", "c", "d"].into_iter().fold(server(), |server, name| {
        server.tool_as(tool(name), Answer::structured(json!({ "name": name })))
    })
}

/// Asserts that the result of the last composite matches its listed output schema.
async fn is_as_listed(composites: Vec<CompositeTool>, server: &Server) -> CallToolResult {
    let called = composites.last().unwrap().name().to_owned();
    let composites = composites.into_iter().map(|composite| composite.trace(Trace::Always));
    let service = CompositeLayer::new(composites).unwrap().layer(server.clone());
    let tools = testing::listed(&service).await;
    let tool = tools.into_iter().find(|tool| *tool.name == *called).unwrap();
    let result = testing::call(&service, &called, json!({})).await;
    if let Some(schema) = tool.output_schema.filter(|_| result.is_error == Some(false)) {
        let schema = Value::Object((*schema).clone());
        let content = result.structured_content.as_ref().unwrap_or(&Value::Null);
        assert!(jsonschema::is_valid(&schema, content), "{called}: {content} is not {schema}");
    }
    result
}

#[tokio::test(start_paused = true)]
async fn partial_result_fits_the_listed_output_schema() {
    let steps = || [Step::new("a", "a"), each(3)];
    let composites = [
        CompositeTool::pipeline("look", "Looks", steps()),
        CompositeTool::pipeline("look", "Looks", [each(4)]),
        look(steps_of(&["a", "b"]).output(output(Some(json!("none"))))),
        look(Race::new(["fails", "a"]).max_parallel(1)),
        look(Fallback::new(["fails", "a"])),
    ];
    for composite in all_of_four().into_iter().chain(composites) {
        for max_calls in 1..=5 {
            for on_limit in [OnLimit::Partial, OnLimit::Fail] {
                let composite = composite.clone().max_calls(max_calls).on_limit(on_limit);
                is_as_listed(vec![composite.clone()], &promising()).await;

                let around =
                    CompositeTool::pipeline("around", "Looks", [Step::new("look", "look")]);
                is_as_listed(vec![composite, around.max_calls(max_calls)], &promising()).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn output_schema_is_omitted_if_partial_results_could_differ() {
    let promises = async |composite: CompositeTool| {
        let service = CompositeLayer::new([composite]).unwrap().layer(promising());
        let tools = testing::listed(&service).await;
        tools.into_iter().find(|tool| tool.name == "look").unwrap().output_schema.is_some()
    };
    for (composite, expected) in [
        (pipeline(&["a", "b"]), true),
        (pipeline(&["a", "b"]).max_calls(2), false),
        (pipeline(&["a", "b"]).max_calls(2).on_limit(OnLimit::Fail), true),
        // The result has the only step, or nothing.
        (pipeline(&["a"]).max_calls(2), true),
    ] {
        let what = format!("{composite:?}");
        assert_eq!(promises(composite).await, expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn partial_result_violating_the_output_schema_is_an_error() {
    let promised = json!({
        "type": "object",
        "properties": { "name": { "enum": ["b", "c"] } },
        "required": ["name"],
    });
    let composite = pipeline(&["a", "b", "c"]).output_schema(object(promised));
    let result = is_as_listed(vec![composite.clone().max_calls(2)], &promising()).await;
    assert_eq!(result.structured_content, Some(json!({ "name": "b" })));

    let result = is_as_listed(vec![composite.max_calls(1)], &promising()).await;
    assert_eq!((result.is_error, &result.structured_content), (Some(true), &None));
    let texts: Vec<_> =
        result.content.iter().filter_map(|block| Some(&*block.as_text()?.text)).collect();
    let early = "the run ended early: `max_calls`, which is 1, was reached; skipped: `b`, `c`";
    let misfit = "the result does not fit the `output_schema`: at `/name`: the value is not one of \"b\" or \"c\"";
    assert_eq!(texts, [r#"{"name":"a"}"#, early, misfit]);
    assert!(limit(&result).is_some());
}

/// An output of steps `a` and `b`, the second of which may have a default.
fn output(default: Option<Value>) -> Output {
    let name =
        |step: &str| OutputProperty::new(JsonType::String, format!("$steps.{step}.output.name"));
    let b = default.into_iter().fold(name("b"), OutputProperty::default);
    Output::new().property("a", name("a")).property("b", b)
}

#[tokio::test(start_paused = true)]
async fn output_is_computed_from_completed_steps_if_possible() {
    let composite = |default| look(steps_of(&["a", "b"]).output(output(default))).max_calls(1);
    let result = run(composite(Some(json!("none")))).await;
    assert_eq!(result.structured_content, Some(json!({ "a": "a", "b": "none" })));
    assert_eq!((result.is_error, limit(&result).is_some()), (Some(false), true));

    let result = run(composite(None)).await;
    let expected = "the run ended early: `max_calls`, which is 1, was reached; skipped: `b`: output.b: `$steps.b.output.name` has no value";
    assert_eq!((result.is_error, reason(&result)), (Some(true), expected));
}

#[tokio::test(start_paused = true)]
async fn output_repeating_a_step_result_is_not_counted_twice() {
    let text = OutputProperty::new(JsonType::String, "$steps.long.text");
    let composite = look(steps_of(&["long"]).output(Output::new().property("text", text)));
    let result = run(composite.max_result_bytes(150)).await;
    assert_eq!((result.is_error, limit(&result)), (Some(false), None));
}

#[tokio::test(start_paused = true)]
async fn nested_output_repeating_a_result_is_not_counted_twice() {
    let text = OutputProperty::new(JsonType::String, "$steps.long.text");
    let given = Output::new().property("text", text);
    for own in [None, Some(500)] {
        let inner = steps_of(&["long"]).output(given.clone());
        let inner = CompositeTool::new("inner", "Looks", inner);
        let inner = own.into_iter().fold(inner, CompositeTool::max_result_bytes);
        let steps = [Step::new("inner", "inner"), Step::new("b", "b")];
        let outer = CompositeTool::pipeline("outer", "Looks", steps).max_result_bytes(150);
        let result = run_all(vec![inner, outer], &server()).await;
        let text = last_text(&result);
        assert_eq!((result.is_error, limit(&result)), (Some(false), None), "{own:?}: {text}");
        assert_eq!(result.structured_content, Some(json!({ "name": "b" })), "{own:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn limited_loop_returns_the_elements_it_reached() {
    for on_error in [OnError::Abort, OnError::Continue] {
        let composite = CompositeTool::pipeline("look", "Looks", [each(4).on_error(on_error)]);
        let result = run(composite.max_calls(2)).await;
        assert_eq!(statuses(&result), ["completed"]);
        let output = result.structured_content.as_ref().unwrap();
        let elements = output["iterations"].as_array().unwrap();
        let status = |element: &Value| element["status"].as_str().unwrap().to_owned();
        let ended: Vec<_> = elements.iter().map(status).collect();
        assert_eq!(ended, ["completed", "completed", "skipped", "skipped"]);
        let counts = ["count", "completed", "failed", "skipped"].map(|key| output[key].clone());
        assert_eq!(counts, [4, 2, 0, 2]);
        let skipped = &limit(&result).unwrap()["skipped"];
        assert_eq!(*skipped, json!(["each[2]", "each[3]"]));
    }
}

#[tokio::test(start_paused = true)]
async fn oversized_loop_element_does_not_fail_the_others() {
    let big = json!([1, 2, "x".repeat(100), 4]);
    let each = Step::new(
        "each",
        ForEach::new(big, ToolCall::new("echo").arguments(json!({ "n": "$item" }))).max_parallel(1),
    );
    let composite = CompositeTool::pipeline("look", "Looks", [each]);
    let result = run(composite.max_result_bytes(100)).await;
    let output = result.structured_content.as_ref().unwrap();
    let counts = ["count", "completed", "failed", "skipped"].map(|key| output[key].clone());
    assert_eq!(
        (result.is_error, counts.map(|count| count.as_u64().unwrap())),
        (Some(false), [4, 2, 1, 1])
    );
}

#[tokio::test(start_paused = true)]
async fn loop_that_reaches_no_element_is_skipped() {
    let steps = [Step::new("a", "a"), each(2)];
    let result = run(CompositeTool::pipeline("look", "Looks", steps).max_calls(1)).await;
    assert_eq!(statuses(&result), ["completed", "skipped"]);
    assert_eq!(limit(&result).unwrap()["skipped"], json!(["each"]));
    let none = [Step::new("a", "a"), each(0)];
    let result = run(CompositeTool::pipeline("look", "Looks", none).max_calls(1)).await;
    assert_eq!((statuses(&result)[1].as_str(), limit(&result)), ("completed", None));
}

#[tokio::test(start_paused = true)]
async fn retries_count_towards_the_call_limit() {
    let step = Step::new("fails", "fails").on_error(OnError::Retry(Retry::times(9)));
    let composite = CompositeTool::workflow("look", "Looks", [step, Step::new("a", "a")]);
    let result = run(composite.max_calls(3)).await;
    assert_eq!(
        (result.is_error, statuses(&result)),
        (Some(false), vec!["failed".into(), "completed".into()])
    );
    let error = &result.meta.as_ref().unwrap()[TRACE][0]["error"]["message"];
    assert_eq!(*error, "`max_calls`, which is 3, was reached; before that: no");
}

// === Nested runs ===

/// A composite that calls these one after another.
fn within(name: &str, tools: &[&str]) -> CompositeTool {
    let targets = tools.iter().map(|tool| Target::new(*tool));
    CompositeTool::new(name, "Looks", FanOut::new(targets).sequential())
}

#[tokio::test(start_paused = true)]
async fn nested_calls_count_towards_the_outer_limit() {
    let inner = within("inner", &["a", "b"]);
    let outer = within("outer", &["inner", "c", "d"]).max_calls(4);
    let result = run_all(vec![inner, outer], &server()).await;
    assert_eq!(
        statuses(&result),
        ["completed", "completed", "skipped"],
        "the composite is a call too"
    );
}

#[tokio::test(start_paused = true)]
async fn outer_limit_ends_the_nested_run() {
    let inner = within("inner", &["a", "b", "c"]);
    let outer = within("outer", &["inner", "d"]).max_calls(3);
    let result = run_all(vec![inner, outer], &server()).await;
    assert_eq!(statuses(&result), ["completed", "skipped"]);
    let expected =
        "the run ended early: `max_calls` of `outer`, which is 3, was reached; skipped: `c`";
    let texts: Vec<_> = result.content.iter().filter_map(|block| block.as_text()).collect();
    assert!(texts.iter().any(|text| text.text == expected), "{texts:?}");
    let within = &result.meta.as_ref().unwrap()[TRACE][0]["meta"][LIMIT];
    assert_eq!(
        *within,
        json!({ "setting": "max_calls", "limit": 3, "of": "outer", "skipped": ["c"] })
    );
}

#[tokio::test(start_paused = true)]
async fn limit_of_a_nested_run_ends_only_that_run() {
    let inner = within("inner", &["a", "b"]).max_calls(1);
    let outer = within("outer", &["inner", "c"]).max_calls(9);
    let result = run_all(vec![inner, outer], &server()).await;
    assert_eq!((statuses(&result), limit(&result)), (vec!["completed".into(); 2], None));
}

#[tokio::test(start_paused = true)]
async fn nested_run_without_calls_left_does_not_fail_the_outer_run() {
    let inner = within("inner", &["a"]);
    let outer = CompositeTool::pipeline(
        "outer",
        "Looks",
        [Step::new("c", "c"), Step::new("inner", "inner"), Step::new("d", "d")],
    );
    let result = run_all(vec![inner, outer.max_calls(2)], &server()).await;
    assert_eq!(result.structured_content, Some(json!({ "name": "c" })));
    assert_eq!(statuses(&result), ["completed", "failed", "skipped"]);
    assert_eq!(
        (result.is_error, limit(&result).unwrap()["refused"].clone()),
        (Some(false), json!(["inner"]))
    );
}

#[tokio::test(start_paused = true)]
async fn layer_limits_still_apply_to_each_call() {
    let layer = CompositeLayer::new([look(sequential(&["a", "long", "b"])).max_result_bytes(500)]);
    let service = layer.unwrap().limits(CallLimits::default().max_result_bytes(50)).layer(server());
    let result = testing::call(&service, "look", json!({})).await;
    assert_eq!(
        (statuses(&result), limit(&result)),
        (vec!["completed".into(), "failed".into(), "completed".into()], None)
    );
}

// === Suspended runs ===

/// A replica with these composites.
fn replica(
    composites: &[CompositeTool],
    server: &Server,
) -> impl AsyncFn(Option<String>) -> ToolAnswer {
    let layer = CompositeLayer::new(composites.iter().cloned()).unwrap();
    let store = SignedStore::new(KEY).unwrap();
    let called = composites.last().unwrap().name().to_owned();
    let service = layer.state(store).layer(server.clone());
    async move |state: Option<String>| {
        let mut request = testing::request(&called, json!({}));
        *request.context_mut().meta_mut() = can_be_asked();
        let params = request.tool_call_mut().unwrap();
        let yes = json!({ "action": "accept", "content": {} });
        params.input_responses =
            serde_json::from_value(json!({ "sure": yes, "inner:sure": yes })).unwrap();
        params.request_state = state;
        service.clone().oneshot(request).await.unwrap().into_tool_answer()
    }
}

/// A composite that calls `a`, asks, and calls `b` and `c`.
fn asking(name: &str) -> CompositeTool {
    let sure = Step::new("sure", Elicitation::new("Sure?", json!({})));
    let steps = [Step::new("a", "a"), sure, Step::new("b", "b"), Step::new("c", "c")];
    CompositeTool::pipeline(name, "Looks", steps)
}

#[tokio::test(start_paused = true)]
async fn run_resumed_on_another_replica_keeps_its_remaining_limits() {
    let nested = |inner: CompositeTool, outer: CompositeTool| vec![inner, outer];
    let around = || within("outer", &["inner"]);
    let cases = [
        ("own", vec![asking("look").max_calls(2)]),
        ("of a nested run", nested(asking("inner").max_calls(2), around())),
        ("around a nested run", nested(asking("inner"), around().max_calls(4))),
        ("bytes", vec![asking("look").max_result_bytes(60)]),
    ];
    for (what, composites) in cases {
        let server = server();
        let answer = replica(&composites, &server)(None).await;
        let ToolAnswer::InputRequired(question) = answer else { panic!("{what}: {answer:?}") };
        let answer = replica(&composites, &server)(question.request_state).await;
        let ToolAnswer::Result(result) = answer else { panic!("{what}: {answer:?}") };
        assert_eq!(server.called(), ["a", "b"], "{what}");
        assert_eq!(result.is_error, Some(false), "{what}");
        let text = serde_json::to_string(&result).unwrap();
        assert!(text.contains("skipped: `c`"), "{what}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn reached_limit_prevents_further_questions() {
    let server = server();
    let steps = [
        Step::new("sure", Elicitation::new("Sure?", json!({}))),
        Step::new("a", "a").depends_on(Vec::<String>::new()),
        Step::new("b", "b").depends_on(["a"]),
    ];
    let composite = CompositeTool::workflow("look", "Looks", steps).max_calls(1);
    let answer = replica(&[composite.trace(Trace::Always)], &server)(None).await;
    let ToolAnswer::Result(result) = answer else { panic!("{answer:?}") };
    assert_eq!(statuses(&result), ["cancelled", "completed", "skipped"]);
    assert_eq!(result.structured_content, Some(json!({ "name": "a" })));
}

#[tokio::test(start_paused = true)]
async fn suspended_loop_element_is_cancelled_at_a_limit() {
    let tool = Answer::from_fn(|call| async move {
        if call.arguments()["n"] == 1 { Answer::asks("sure", "Sure?") } else { Answer::echo() }
    });
    let server = server().tool("mostly", tool);
    let call = ToolCall::new("mostly").arguments(json!({ "n": "$item" }));
    let each = Step::new("each", ForEach::new(json!([0, 1, 2, 3]), call).max_parallel(2));
    let composite = CompositeTool::pipeline("look", "Looks", [each, Step::new("a", "a")]);
    let composite = composite.max_calls(3).trace(Trace::Always);
    let answer = replica(&[composite], &server)(None).await;
    let ToolAnswer::Result(result) = answer else { panic!("{answer:?}") };
    assert_eq!(
        (result.is_error, statuses(&result)),
        (Some(false), vec!["completed".into(), "skipped".into()],)
    );
    let elements = &result.structured_content.as_ref().unwrap()["iterations"];
    let elements = elements.as_array().unwrap().iter();
    let ended: Vec<_> = elements.map(|element| element["status"].as_str().unwrap()).collect();
    assert_eq!(ended, ["completed", "cancelled", "completed", "skipped"]);
    assert_eq!(limit(&result).unwrap()["skipped"], json!(["each[3]", "a"]));
}

#[test]
fn limit_of_zero_is_rejected() {
    let composite = || look(FanOut::new(["a"]));
    for (key, composite) in [
        ("max_calls", composite().max_calls(0)),
        ("max_result_bytes", composite().max_result_bytes(0)),
        ("max_cost", composite().max_cost(0)),
    ] {
        let mistakes = CompositeLayer::new([composite]).unwrap_err().to_string();
        assert!(mistakes.contains(&format!("`{key}`")), "{mistakes}");
    }
}
