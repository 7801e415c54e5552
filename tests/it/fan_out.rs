//! The handling of targets and their results by fan-outs.

use std::time::Duration;

use mcp_composite::{
    composite::{
        BRANCH, BranchOrder, CallLimits, Composite, CompositeLayer, CompositeTool, Fallback,
        FanOut, LABEL, Labels, Race, Step, Strategy, Success, TOOL, TRACE, Target, ToolCall, Trace,
    },
    message::{Reply, Request},
};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, Tool};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use crate::scripted::{Answer, Server, call, error, object};

type Stack = Composite<Server>;

fn stack(server: &Server, composites: impl IntoIterator<Item = CompositeTool>) -> Stack {
    CompositeLayer::new(composites).expect("good definitions").layer(server.clone())
}

fn all<const N: usize>(tools: [&str; N]) -> CompositeTool {
    CompositeTool::fan_out("all", "Everything", tools)
}

/// Returns a composite named `all` with this strategy.
fn of(strategy: impl Into<Strategy>) -> CompositeTool {
    CompositeTool::new("all", "Everything", strategy)
}

/// Calls a composite, and requests the trace.
async fn run(stack: &Stack, mut request: Request) -> CallToolResult {
    request.context_mut().meta_mut().insert(TRACE.to_owned(), true.into());
    let reply = stack.clone().oneshot(request).await.expect("an answer");
    reply.tool_result().unwrap_or_else(|| panic!("{:?}", reply.error())).clone()
}

async fn run_all(stack: &Stack) -> CallToolResult {
    run(stack, call("all", json!({}))).await
}

async fn refused(stack: &Stack, request: Request) -> (i32, String) {
    let reply = stack.clone().oneshot(request).await.expect("an answer");
    let error = reply.error().expect("an error");
    (error.code.0, error.message.to_string())
}

fn texts(result: &CallToolResult) -> Vec<&str> {
    result.content.iter().filter_map(|block| block.as_text()).map(|text| &*text.text).collect()
}

fn branches(result: &CallToolResult) -> &Value {
    &result.structured_content.as_ref().expect("a report")["branches"]
}

fn statuses(result: &CallToolResult) -> Vec<(String, String)> {
    let trace = result.meta.as_ref().expect("meta").0[TRACE].as_array().expect("a trace");
    let text = |entry: &Value, key: &str| entry[key].as_str().expect("a text").to_owned();
    trace.iter().map(|entry| (text(entry, "step"), text(entry, "status"))).collect()
}

fn status_of(result: &CallToolResult, step: &str) -> String {
    statuses(result).into_iter().find(|(id, _)| id == step).expect("the step").1
}

#[tokio::test(start_paused = true)]
async fn each_target_receives_the_arguments_and_all_outputs_return() {
    let server = Server::new().echoes("a").says("b", "from b");
    let stack = stack(&server, [all(["a", "b"])]);

    let result = run(&stack, call("all", json!({ "q": "x" }))).await;

    assert_eq!(result.is_error, Some(false));
    assert_eq!(server.arguments("a"), Some(json!({ "q": "x" })));
    assert_eq!(server.arguments("b"), Some(json!({ "q": "x" })));
    assert_eq!(
        *branches(&result),
        json!({
            "a": { "status": "completed", "output": { "q": "x" } },
            "b": { "status": "completed", "output": "from b" },
        })
    );
}

#[tokio::test(start_paused = true)]
async fn content_is_attributed_and_in_declared_order() {
    let server = Server::new()
        .tool("slow", Answer::text("1").after(Duration::from_millis(50)))
        .says("fast", "2");
    let stack = stack(
        &server,
        [CompositeTool::fan_out(
            "all",
            "Everything",
            [Target::new("slow").id("first"), "fast".into()],
        )],
    );

    let result = run_all(&stack).await;

    assert_eq!(texts(&result), ["first (tool `slow`):", "1", "fast:", "2"]);
    let owners: Vec<_> = result
        .content
        .iter()
        .map(|block| &block.as_text().expect("a text").meta.as_ref().expect("meta").0)
        .map(|meta| (meta[BRANCH].as_str().unwrap(), meta.get(TOOL).and_then(Value::as_str)))
        .collect();
    // A branch named after its tool has only one name in the report.
    let (first, fast) = (("first", Some("slow")), ("fast", None));
    assert_eq!(owners, [first, first, fast, fast]);
}

#[tokio::test(start_paused = true)]
async fn completion_order_lists_branches_as_they_finish() {
    let server = Server::new()
        .tool("slow", Answer::text("1").after(Duration::from_millis(50)))
        .says("fast", "2");
    let stack = stack(&server, [of(FanOut::new(["slow", "fast"]).order(BranchOrder::Completion))]);

    assert_eq!(texts(&run_all(&stack).await), ["fast:", "2", "slow:", "1"]);
}

#[tokio::test(start_paused = true)]
async fn completed_branches_are_labelled_in_the_content() {
    let image = CallToolResult::success(vec![ContentBlock::image("aGk=", "image/png")]);
    let server = Server::new()
        .says("get_price", "5 €")
        .says("stock", "12")
        .tool("photo", image)
        .tool("empty", CallToolResult::success(vec![]))
        .fails("reviews", "quota exceeded");
    let price = Target::new("get_price").id("price");
    let targets = [price, "stock".into(), "photo".into(), "empty".into(), "reviews".into()];
    let shop = FanOut::new(targets);

    let result = run_all(&stack(&server, [of(shop.clone())])).await;

    assert_eq!(
        texts(&result),
        [
            "price (tool `get_price`):",
            "5 €",
            "stock:",
            "12",
            "photo:",
            "branch `reviews` (tool `reviews`) failed: quota exceeded",
        ]
    );
    assert!(matches!(result.content[5], ContentBlock::Image(_)), "{:?}", result.content);
    let meta = |block: usize| json!(result.content[block].as_text().unwrap().meta);
    assert_eq!(meta(0), json!({ (BRANCH): "price", (TOOL): "get_price", (LABEL): true }));
    assert_eq!(meta(1), json!({ (BRANCH): "price", (TOOL): "get_price" }));
    assert_eq!(branches(&result)["price"]["output"], "5 €");

    let unlabelled = run_all(&stack(&server, [of(shop.labels(Labels::Meta))])).await;
    let last = "branch `reviews` (tool `reviews`) failed: quota exceeded";
    assert_eq!(texts(&unlabelled), ["5 €", "12", last]);
    assert_eq!(unlabelled.structured_content, result.structured_content);
}

#[tokio::test(start_paused = true)]
async fn nested_fan_out_labels_branches_by_their_path() {
    let server = Server::new().says("price", "5 €").says("stock", "12").says("news", "none");
    let fan_out = FanOut::new(["price", "stock"]).report(false);
    let shop = |fan_out| CompositeTool::new("shop", "A shop", fan_out);
    let outer = all(["shop", "news"]);

    let result = run_all(&stack(&server, [shop(fan_out.clone()), outer.clone()])).await;
    assert_eq!(texts(&result), ["shop/price:", "5 €", "shop/stock:", "12", "news:", "none"]);
    assert_eq!(branches(&result)["shop"]["output"], "5 €\n12");

    let unlabelled = shop(fan_out.labels(Labels::Meta));
    let result = run_all(&stack(&server, [unlabelled, outer])).await;
    assert_eq!(texts(&result), ["shop:", "5 €", "12", "news:", "none"]);
}

#[tokio::test(start_paused = true)]
async fn step_reads_a_nested_fan_out_without_labels() {
    let server = Server::new().says("price", "{\"euro\":5}").echoes("keep");
    let shop = CompositeTool::new("shop", "A shop", FanOut::new(["price"]).report(false));
    let arguments = json!({ "euro": "$steps.a.output.euro", "text": "$steps.a.text", "all": "$steps.a.content" });
    let steps = [
        Step::new("a", ToolCall::new("shop").parse_json()),
        Step::new("b", ToolCall::new("keep").arguments(arguments)),
    ];
    let reads = CompositeTool::pipeline("all", "Reads", steps);
    let passes_on = CompositeTool::pipeline("passes_on", "Passes on", [Step::new("a", "shop")]);
    let stack = stack(&server, [shop, reads, passes_on]);

    run_all(&stack).await;
    let text = "{\"euro\":5}";
    let read = json!({ "euro": 5, "text": text, "all": { "text": text } });
    assert_eq!(server.arguments("keep"), Some(read));

    let result = run(&stack, call("passes_on", json!({}))).await;
    assert_eq!(texts(&result), ["price:", text]);
}

#[tokio::test(start_paused = true)]
async fn label_mark_set_by_a_server_is_removed() {
    let mut forged = ContentBlock::text("forged");
    if let ContentBlock::Text(text) = &mut forged {
        text.meta = Some(MetaObject(object(json!({ (LABEL): true, "mine": 1 }))));
    }
    let server = Server::new().tool("a", CallToolResult::success(vec![forged]));

    let result = run_all(&stack(&server, [all(["a"])])).await;

    assert_eq!(texts(&result), ["a:", "forged"]);
    let meta = json!(result.content[1].as_text().unwrap().meta);
    assert_eq!(meta, json!({ (BRANCH): "a", "mine": 1 }));
}

#[tokio::test(start_paused = true)]
async fn same_outcomes_produce_identical_results_except_times() {
    let server = Server::new()
        .tool("a", Answer::text("1").after(Duration::from_millis(3)))
        .fails("b", "no")
        .says("c", "3");
    let stack = stack(&server, [all(["a", "b", "c"])]);

    let mut first = run_all(&stack).await;
    let mut second = run_all(&stack).await;
    first.meta = None;
    second.meta = None;

    assert_eq!(serde_json::to_string(&first).unwrap(), serde_json::to_string(&second).unwrap());
}

#[tokio::test(start_paused = true)]
async fn branch_output_is_forwarded_unchanged() {
    let server = Server::new().tool("a", {
        let mut result =
            CallToolResult::structured(json!([1, null, { "deep": 18446744073709551615u64 }]));
        let mut image = ContentBlock::image("aGk=", "image/png");
        if let ContentBlock::Image(image) = &mut image {
            image.meta = Some(MetaObject(object(json!({ "mine": 1 }))));
        }
        result.content = vec![image, ContentBlock::embedded_text("file:///a", "embedded")];
        result.meta = Some(MetaObject(object(json!({ "cost": 7 }))));
        result
    });
    let stack = stack(&server, [all(["a"])]);

    let result = run_all(&stack).await;

    assert_eq!(
        branches(&result)["a"]["output"],
        json!([1, null, { "deep": 18446744073709551615u64 }])
    );
    assert_eq!(texts(&result), ["a:"]);
    let ContentBlock::Image(image) = &result.content[1] else { panic!("{:?}", result.content) };
    assert_eq!((image.data.as_str(), image.mime_type.as_str()), ("aGk=", "image/png"));
    let meta = &image.meta.as_ref().unwrap().0;
    assert_eq!((&meta["mine"], &meta[BRANCH]), (&json!(1), &json!("a")));
    let ContentBlock::Resource(resource) = &result.content[2] else {
        panic!("{:?}", result.content)
    };
    assert_eq!(resource.get_text(), "embedded");
    assert_eq!(result.meta.as_ref().unwrap().0[TRACE][0]["meta"], json!({ "cost": 7 }));
}

#[tokio::test(start_paused = true)]
async fn failed_branch_reports_its_cause_and_keeps_the_others() {
    let server = Server::new()
        .says("good", "fine")
        .fails("bad", "quota exceeded")
        .tool("broken", error(-32042, "url elicitation", json!({ "url": "x" })))
        .tool("gone", Answer::unavailable("connect to 10.0.0.7:443 failed"));
    let stack = stack(&server, [all(["good", "bad", "broken", "gone"])]);

    let result = run_all(&stack).await;

    assert_eq!(result.is_error, Some(true));
    assert_eq!(
        texts(&result),
        [
            "good:",
            "fine",
            "branch `bad` (tool `bad`) failed: quota exceeded",
            "branch `broken` (tool `broken`) failed: url elicitation",
            "branch `gone` (tool `gone`) failed: the tool's server failed to answer",
        ]
    );
    assert_eq!(
        *branches(&result),
        json!({
            "good": { "status": "completed", "output": "fine" },
            "bad": { "status": "failed", "error": { "kind": "tool", "message": "quota exceeded" } },
            "broken": {
                "status": "failed",
                "error": {
                    "kind": "protocol", "message": "url elicitation", "code": -32042, "data": { "url": "x" },
                },
            },
            "gone": {
                "status": "failed",
                "error": { "kind": "service", "message": "the tool's server failed to answer" },
            },
        })
    );
}

#[tokio::test(start_paused = true)]
async fn images_of_a_failed_tool_are_kept() {
    let server = Server::new().tool("a", {
        let content = vec![ContentBlock::text("see"), ContentBlock::image("aGk=", "image/png")];
        CallToolResult::error(content)
    });
    let result = run_all(&stack(&server, [all(["a"])])).await;

    assert_eq!(texts(&result), ["branch `a` (tool `a`) failed: see"]);
    assert!(matches!(result.content[1], ContentBlock::Image(_)));
}

#[tokio::test(start_paused = true)]
async fn result_conforms_to_the_advertised_schema() {
    let server = Server::new()
        .says("good", "fine")
        .fails("bad", "no")
        .hangs("slow")
        .tool("odd", error(-1, "odd", json!([1])));
    let stack =
        stack(&server, [all(["good", "bad", "slow", "odd"]).timeout(Duration::from_secs(1))]);
    let list = stack.clone().oneshot(Request::list_tools()).await.unwrap();
    let tool = list.tools().unwrap().tools.last().unwrap().clone();
    let schema = Value::Object((*tool.output_schema.expect("a schema")).clone());

    let result = run_all(&stack).await;

    let validator = jsonschema::validator_for(&schema).unwrap();
    assert_eq!(
        validator.validate(result.structured_content.as_ref().unwrap()).map_err(|e| e.to_string()),
        Ok(())
    );
    assert!(
        !validator.is_valid(&json!({ "branches": { "good": {} } })),
        "the schema says something"
    );
}

#[tokio::test(start_paused = true)]
async fn disabled_report_omits_structured_content_and_schema() {
    let server = Server::new().says("a", "1");
    let stack = stack(&server, [of(FanOut::new(["a"]).report(false))]);
    let list = stack.clone().oneshot(Request::list_tools()).await.unwrap();

    assert_eq!(list.tools().unwrap().tools.last().unwrap().output_schema, None);
    let reply = stack.oneshot(call("all", json!({}))).await.unwrap();
    let result = reply.tool_result().unwrap();
    assert_eq!((texts(result), result.structured_content.clone()), (vec!["a:", "1"], None));
    assert_eq!(result.meta, None);
}

#[tokio::test(start_paused = true)]
async fn trace_is_returned_on_request_always_or_after_a_failure() {
    let server = Server::new().says("a", "1").fails("bad", "no");
    let traced = |trace, tools: [&str; 2], report| {
        let composite =
            CompositeTool::new("all", "All", FanOut::new(tools).report(report)).trace(trace);
        let stack = stack(&server, [composite]);
        async move |requested: Option<Value>| {
            let mut request = call("all", json!({}));
            if let Some(requested) = requested {
                request.context_mut().meta_mut().insert(TRACE.to_owned(), requested);
            }
            let reply = stack.clone().oneshot(request).await.unwrap();
            let result = reply.tool_result().unwrap().clone();
            result.meta.and_then(|meta| Some(meta.0.get(TRACE)?.as_array()?.len()))
        }
    };
    let (sound, broken) = (["a", "a"], ["a", "bad"]);
    for report in [true, false] {
        let on_request = traced(Trace::OnRequest, sound, report);
        assert_eq!(on_request(None).await, None);
        assert_eq!(on_request(Some(json!(false))).await, None);
        assert_eq!(on_request(Some(json!(true))).await, Some(2));
        assert_eq!(traced(Trace::Always, sound, report)(None).await, Some(2));
        let failed = traced(Trace::OnRequest, broken, report);
        assert_eq!(failed(None).await, report.then_some(2));
        assert_eq!(failed(Some(json!(true))).await, Some(2));
    }
}

#[tokio::test(start_paused = true)]
async fn success_rule_decides_and_successes_are_always_included() {
    let server =
        Server::new().says("a", "1").says("b", "2").fails("bad", "no").fails("worse", "no");
    let cases = [
        (all(["a", "b"]), false),
        (all(["a", "bad"]), true),
        (of(FanOut::new(["a", "bad"]).success(Success::Any)), false),
        (of(FanOut::new(["bad", "worse"]).success(Success::Any)), true),
        (of(FanOut::new(["a", "b", "bad"]).success(Success::Quorum(2))), false),
        (of(FanOut::new(["a", "bad", "worse"]).success(Success::Quorum(2))), true),
        (
            CompositeTool::fan_out("all", "x", ["a".into(), Target::new("bad").optional(true)]),
            false,
        ),
        (
            CompositeTool::fan_out("all", "x", [Target::new("bad").optional(true), "worse".into()]),
            true,
        ),
        // A quorum counts optional successes too.
        (
            CompositeTool::new(
                "all",
                "x",
                FanOut::new([Target::new("a").optional(true), "b".into(), "bad".into()])
                    .success(Success::Quorum(2)),
            ),
            false,
        ),
    ];
    for (definition, is_error) in cases {
        let result = run_all(&stack(&server, [definition.clone()])).await;
        assert_eq!(result.is_error, Some(is_error), "{definition:?}");
    }
    let partial = run_all(&stack(&server, [all(["a", "bad"])])).await;
    assert_eq!(texts(&partial)[..2], ["a:", "1"]);
}

#[tokio::test(start_paused = true)]
async fn sequential_branches_run_in_order_despite_a_failure() {
    let server = Server::new()
        .tool("a", Answer::text("1").after(Duration::from_millis(10)))
        .fails("b", "no")
        .tool("c", Answer::text("3").after(Duration::from_millis(10)));
    let stack = stack(&server, [of(FanOut::new(["a", "b", "c"]).sequential())]);

    let result = run_all(&stack).await;

    assert_eq!(server.called(), ["a", "b", "c"]);
    assert_eq!(server.most_running(), 1);
    assert_eq!(texts(&result), ["a:", "1", "branch `b` (tool `b`) failed: no", "c:", "3"]);
}

#[tokio::test(start_paused = true)]
async fn race_returns_the_first_success_and_cancels_the_rest() {
    let server = Server::new()
        .hangs("never")
        .fails("fails", "at once")
        .tool("wins", Answer::structured(json!({ "n": 1 })).after(Duration::from_millis(5)));
    let stack = stack(&server, [of(Race::new(["never", "fails", "wins"]))]);

    let result = run_all(&stack).await;

    let mut unchanged = result.clone();
    unchanged.meta = None;
    assert_eq!(unchanged, CallToolResult::structured(json!({ "n": 1 })));
    assert_eq!(
        statuses(&result),
        [("never", "cancelled"), ("fails", "failed"), ("wins", "completed")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
    );
    tokio::task::yield_now().await;
    assert_eq!(server.dropped(), ["never"]);
}

#[tokio::test(start_paused = true)]
async fn race_without_a_winner_reports_every_failure() {
    let server = Server::new().fails("a", "x").fails("b", "y");
    let result = run_all(&stack(&server, [of(Race::new(["a", "b"]))])).await;

    assert_eq!(result.is_error, Some(true));
    assert_eq!(
        texts(&result),
        ["branch `a` (tool `a`) failed: x", "branch `b` (tool `b`) failed: y"]
    );
}

#[tokio::test(start_paused = true)]
async fn fallback_calls_the_next_target_only_after_a_failure() {
    let server = Server::new().fails("a", "x").says("b", "2").says("c", "3");
    let stack = stack(&server, [of(Fallback::new(["a", "b", "c"]))]);

    let result = run_all(&stack).await;

    assert_eq!(server.called(), ["a", "b"]);
    assert_eq!(texts(&result), ["2"]);
    assert_eq!(result.is_error, Some(false));
    assert_eq!(status_of(&result, "a"), "failed");
    assert_eq!(status_of(&result, "c"), "skipped");
}

#[tokio::test(start_paused = true)]
async fn max_parallel_limits_concurrent_branches() {
    let tools: Vec<String> = (0..10).map(|n| format!("t{n}")).collect();
    let server = tools.iter().fold(Server::new(), |server, tool| {
        server.tool(tool, Answer::text("ok").after(Duration::from_millis(10)))
    });
    let definition = CompositeTool::new("all", "Everything", FanOut::new(tools).max_parallel(3));

    let start = Instant::now();
    let result = run_all(&stack(&server, [definition])).await;

    assert_eq!((server.most_running(), texts(&result).len()), (3, 20));
    assert_eq!(start.elapsed().as_millis(), 40);
}

#[tokio::test(start_paused = true)]
async fn target_timeout_fails_only_its_branch() {
    let server = Server::new().hangs("slow").says("fast", "1");
    let slow = Target::new("slow").timeout(Duration::from_secs(5));
    let stack =
        stack(&server, [CompositeTool::fan_out("all", "Everything", [slow, "fast".into()])]);

    let start = Instant::now();
    let result = run_all(&stack).await;

    assert_eq!(start.elapsed(), Duration::from_secs(5));
    let late = "branch `slow` (tool `slow`) timed out: no answer within 5s";
    assert_eq!(texts(&result), [late, "fast:", "1"]);
    assert_eq!(branches(&result)["slow"]["status"], "timed_out");
    assert_eq!(branches(&result)["slow"]["error"]["kind"], "timeout");
    tokio::task::yield_now().await;
    assert_eq!(server.dropped(), ["slow"]);
}

#[tokio::test(start_paused = true)]
async fn target_times_out_after_a_minute_by_default() {
    let server = Server::new().hangs("slow");
    let start = Instant::now();
    run_all(&stack(&server, [all(["slow"])])).await;
    assert_eq!(start.elapsed(), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn run_timeout_returns_the_completed_branches() {
    let server = Server::new().says("a", "1").hangs("b").says("c", "3");
    let definition = of(FanOut::new(["a", "b", "c"]).sequential()).timeout(Duration::from_secs(2));
    let stack = stack(&server, [definition]);

    let start = Instant::now();
    let result = run_all(&stack).await;

    assert_eq!(start.elapsed(), Duration::from_secs(2));
    assert_eq!(result.is_error, Some(true));
    assert_eq!(
        texts(&result),
        [
            "a:",
            "1",
            "branch `b` (tool `b`) timed out: no answer within 2s",
            "branch `c` (tool `c`) was skipped: the run had ended",
        ]
    );
    tokio::task::yield_now().await;
    assert_eq!(server.dropped(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn timeout_of_a_tower_layer_is_reported_as_timeout() {
    let server = Server::new().hangs("slow");
    let below = tower::timeout::Timeout::new(server.clone(), Duration::from_secs(1));
    let stack = CompositeLayer::new([all(["slow"])]).unwrap().layer(below);

    let reply = stack.oneshot(call("all", json!({}))).await.unwrap();

    let result = reply.tool_result().unwrap();
    assert_eq!(branches(result)["slow"]["status"], "timed_out");
    assert_eq!(texts(result), ["branch `slow` (tool `slow`) timed out: no answer in time"]);
}

#[tokio::test(start_paused = true)]
async fn overloaded_server_is_reported_as_overloaded() {
    let server = Server::new().hangs("a").hangs("b");
    let below = tower::load_shed::LoadShed::new(tower::limit::ConcurrencyLimit::new(server, 1));
    let definition = all(["a", "b"]).timeout(Duration::from_secs(1));
    let stack = CompositeLayer::new([definition]).unwrap().layer(below);

    let reply = stack.oneshot(call("all", json!({}))).await.unwrap();

    let texts = texts(reply.tool_result().unwrap()).join("\n");
    assert!(texts.contains("`b`) failed: the tool's server is overloaded"), "{texts}");
}

#[tokio::test(start_paused = true)]
async fn arguments_are_mapped_from_the_input() {
    let server = Server::new().echoes("a").echoes("b");
    let definition = CompositeTool::fan_out(
        "all",
        "Everything",
        [
            Target::new("a").arguments(
                json!({ "q": "$input.query", "tone": "$input.tone?", "n": 5, "$q": "$$x" }),
            ),
            Target::new("b").arguments(json!("$input.filter")),
        ],
    );
    let stack = stack(&server, [definition]);

    let result =
        run(&stack, call("all", json!({ "query": "$input.secret", "filter": { "k": [1] } }))).await;

    assert_eq!(result.is_error, Some(false), "{result:?}");
    assert_eq!(server.arguments("a"), Some(json!({ "q": "$input.secret", "n": 5, "$q": "$x" })));
    assert_eq!(server.arguments("b"), Some(json!({ "k": [1] })));
}

#[tokio::test(start_paused = true)]
async fn missing_reference_fails_its_branch_without_a_call() {
    let server = Server::new().echoes("a").echoes("b");
    let definition = CompositeTool::fan_out(
        "all",
        "Everything",
        [Target::new("a").arguments(json!({ "q": "$input.deep.er" })), "b".into()],
    )
    .input_schema(object(json!({ "type": "object" })));
    let result = run_all(&stack(&server, [definition])).await;

    assert_eq!(server.called(), ["b"]);
    assert_eq!(
        branches(&result)["a"]["error"],
        json!({ "kind": "definition", "message": "`$input.deep.er` has no value" })
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_are_rejected_before_any_call() {
    let server = Server::new().echoes("a");
    let schema = json!({
        "type": "object",
        "properties": { "page": { "type": "object", "properties": { "size": { "type": "integer" } } } },
        "required": ["page"],
    });
    let stack = stack(&server, [all(["a"]).input_schema(object(schema))]);

    let (code, message) =
        refused(&stack, call("all", json!({ "page": { "size": "hunter2" } }))).await;
    assert_eq!(code, -32602);
    assert_eq!(
        message,
        "invalid arguments for `all`: at `/page/size`: the value is not of type \"integer\""
    );
    let (_, message) = refused(&stack, Request::call_tool("all")).await;
    assert_eq!(message, "invalid arguments for `all`: at `/page`: is required");
    assert!(server.called().is_empty());
}

#[tokio::test(start_paused = true)]
async fn defaults_are_applied_at_every_nesting_depth() {
    let server = Server::new().echoes("a");
    let schema = json!({
        "type": "object",
        "properties": {
            "limit": { "type": "integer", "default": 10 },
            "page": { "$ref": "#/$defs/page" },
            "list": { "type": "array", "items": { "$ref": "#/$defs/page" } },
        },
        "$defs": { "page": { "type": "object", "properties": { "size": { "default": 3 } }, "default": {} } },
    });
    let stack = stack(&server, [all(["a"]).input_schema(object(schema))]);

    run(&stack, call("all", json!({ "list": [{}, { "size": 1 }] }))).await;

    assert_eq!(
        server.arguments("a"),
        Some(json!({ "limit": 10, "page": { "size": 3 }, "list": [{ "size": 3 }, { "size": 1 }] }))
    );
}

#[tokio::test(start_paused = true)]
async fn default_of_one_target_is_not_sent_to_another() {
    let tool = |name: &str, properties: Value| {
        Tool::new(
            name.to_owned(),
            "x",
            object(json!({ "type": "object", "properties": properties })),
        )
    };
    let server = Server::new()
        .tool_as(tool("a", json!({ "depth": { "default": 2 } })), Answer::echo())
        .tool_as(tool("b", json!({})), Answer::echo());
    let stack = stack(&server, [all(["a", "b"])]);

    run(&stack, call("all", json!({ "other": 1 }))).await;

    assert_eq!(server.arguments("a"), Some(json!({ "depth": 2, "other": 1 })));
    assert_eq!(server.arguments("b"), Some(json!({ "other": 1 })));
}

#[tokio::test(start_paused = true)]
async fn arguments_are_defaulted_coerced_and_validated_per_target() {
    let tool = |name: &str, limit: Value| {
        let properties = json!({ "id": {}, "limit": limit });
        Tool::new(
            name.to_owned(),
            "x",
            object(json!({ "type": "object", "properties": properties })),
        )
    };
    let few = json!({ "type": "integer", "default": 10, "maximum": 20 });
    let many = json!({ "type": "integer", "default": 50, "minimum": 30 });
    let text = json!({ "type": "string" });
    let server = Server::new()
        .tool_as(tool("few", few), Answer::echo())
        .tool_as(tool("many", many), Answer::echo())
        .tool_as(tool("text", text), Answer::echo());
    let stack = stack(&server, [all(["few", "many", "text"])]);

    run(&stack, call("all", json!({ "id": 1 }))).await;
    assert_eq!(server.arguments("few"), Some(json!({ "id": 1, "limit": 10 })));
    assert_eq!(server.arguments("many"), Some(json!({ "id": 1, "limit": 50 })));
    assert_eq!(server.arguments("text"), Some(json!({ "id": 1 })));

    let result = run(&stack, call("all", json!({ "limit": "7" }))).await;
    assert_eq!(server.arguments("few"), Some(json!({ "limit": 7 })));
    assert_eq!(server.arguments("text"), Some(json!({ "limit": "7" })));
    let refused = &branches(&result)["many"]["error"];
    assert_eq!(refused["code"], -32602);
    assert_eq!(
        refused["message"],
        "invalid arguments for `many`: at `/limit`: the value is less than the minimum of 30"
    );
}

#[tokio::test(start_paused = true)]
async fn nested_default_of_one_target_is_not_sent_to_another() {
    let tool = |name: &str, properties: Value| {
        let schema = json!({ "type": "object", "properties": properties });
        Tool::new(name.to_owned(), "x", object(schema))
    };
    let limited = json!({ "opts": { "properties": { "limit": { "default": 10 } } } });
    let few = json!({ "opts": { "properties": { "limit": { "default": 2 } } } });
    let server = Server::new()
        .tool_as(tool("limited", limited), Answer::echo())
        .tool_as(tool("few", few), Answer::echo())
        .tool_as(tool("open", json!({})), Answer::echo());
    let stack = stack(&server, [all(["limited", "few", "open"])]);

    run(&stack, call("all", json!({ "opts": {} }))).await;

    assert_eq!(server.arguments("limited"), Some(json!({ "opts": { "limit": 10 } })));
    assert_eq!(server.arguments("few"), Some(json!({ "opts": { "limit": 2 } })));
    assert_eq!(server.arguments("open"), Some(json!({ "opts": {} })));
}

#[tokio::test(start_paused = true)]
async fn closed_schema_target_receives_only_its_own_arguments() {
    let closed =
        json!({ "type": "object", "properties": { "q": {} }, "additionalProperties": false });
    let server = Server::new()
        .tool_as(Tool::new("closed", "x", object(closed)), Answer::echo())
        .echoes("open");
    let stack = stack(&server, [all(["closed", "open"])]);

    run(&stack, call("all", json!({ "q": "x", "r": 1 }))).await;

    assert_eq!(server.arguments("closed"), Some(json!({ "q": "x" })));
    assert_eq!(server.arguments("open"), Some(json!({ "q": "x", "r": 1 })));
}

#[tokio::test(start_paused = true)]
async fn composite_can_call_a_composite() {
    let server = Server::new().says("a", "1").says("b", "2");
    let inner = CompositeTool::fan_out("inner", "Inner", ["a"]);
    let outer = CompositeTool::fan_out("outer", "Outer", ["inner", "b"]);
    // Declared before the composite it calls, on purpose.
    let stack = stack(&server, [outer, inner]);

    let result = run(&stack, call("outer", json!({ "q": "x" }))).await;

    assert_eq!(
        branches(&result)["inner"]["output"],
        json!({ "branches": { "a": { "status": "completed", "output": "1" } } })
    );
    assert_eq!(texts(&result), ["inner/a:", "1", "b:", "2"]);
    let ids: Vec<_> =
        server.requests().iter().map(|call| call.context().id().to_string()).collect();
    assert!(ids.contains(&"0#inner#a".to_owned()), "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn composite_can_wrap_a_tool_of_its_own_name() {
    let server = Server::new().says("search", "the tool itself").says("more", "2");
    let stack = stack(&server, [CompositeTool::fan_out("search", "Wrapped", ["search", "more"])]);

    let result = run(&stack, call("search", json!({}))).await;
    assert_eq!(texts(&result), ["search:", "the tool itself", "more:", "2"]);
}

#[tokio::test(start_paused = true)]
async fn nested_run_ends_at_the_deadline_of_its_caller() {
    let server = Server::new().hangs("slow");
    let inner = CompositeTool::fan_out("inner", "Inner", ["slow"]).timeout(Duration::from_secs(50));
    let outer = all(["inner"]).timeout(Duration::from_secs(3));
    let start = Instant::now();
    let result = run_all(&stack(&server, [inner, outer])).await;

    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert_eq!(result.is_error, Some(true));
    tokio::task::yield_now().await;
    assert_eq!(server.dropped(), ["slow"]);
}

#[tokio::test(start_paused = true)]
async fn calls_and_bytes_are_counted_over_nested_runs() {
    let server = Server::new().says("a", "12345678");
    let inner = CompositeTool::new("inner", "Inner", FanOut::new(["a"; 3]).report(false));
    let outer = of(FanOut::new(["inner", "a"]).sequential());
    let layer = CompositeLayer::new([inner, outer]).unwrap();

    let few_calls = layer.clone().limits(CallLimits::default().max_calls(3)).layer(server.clone());
    let result = run_all(&few_calls).await;
    let text = texts(&result).join("\n");
    assert_eq!(server.called().len(), 2, "the composite `inner` counts as well: {text}");
    assert!(text.contains("more than 3 calls (`max_calls`)"), "{text}");

    let few_bytes = layer.limits(CallLimits::default().max_result_bytes(20)).layer(server.clone());
    let result = run_all(&few_bytes).await;
    let text = texts(&result).join("\n");
    assert!(
        text.contains("an answer of 8 bytes exceeds the rest of `max_result_bytes`, which is 20"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn missing_optional_tool_is_reported_as_a_failed_branch() {
    let server = Server::new().says("a", "1");
    let missing = Target::new("gone").optional(true);
    let stack =
        stack(&server, [CompositeTool::fan_out("all", "Everything", ["a".into(), missing])]);

    let result = run_all(&stack).await;

    assert_eq!(result.is_error, Some(false));
    let error = "branch `gone` (tool `gone`) failed: unknown tool `gone`";
    assert_eq!(texts(&result), ["a:", "1", error]);
    assert_eq!(server.called(), ["a", "gone"], "only the server knows why it is not listed");
}

#[tokio::test(start_paused = true)]
async fn fan_out_fails_if_all_its_optional_targets_fail() {
    let server = Server::new().says("a", "1").fails("b", "no").fails("c", "no");
    let optional = |tool: &str| Target::new(tool).optional(true);
    for (targets, is_error) in [(["b", "c"], true), (["b", "gone"], true), (["a", "b"], false)] {
        let definition = CompositeTool::fan_out("all", "Everything", targets.map(optional));
        let result = run_all(&stack(&server, [definition])).await;
        assert_eq!(result.is_error, Some(is_error), "{targets:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn target_called_twice_has_distinct_branch_ids() {
    let server = Server::new().echoes("a");
    let definition = CompositeTool::fan_out(
        "all",
        "Everything",
        [
            Target::new("a").arguments(json!({ "q": "one" })),
            Target::new("a").arguments(json!({ "q": "two" })),
            Target::new("a").id("a_2").arguments(json!({ "q": "three" })),
        ],
    );
    let result = run_all(&stack(&server, [definition])).await;

    let outputs = branches(&result).as_object().unwrap();
    let queries: Vec<_> =
        outputs.iter().map(|(id, b)| (id.as_str(), b["output"]["q"].as_str().unwrap())).collect();
    assert_eq!(queries, [("a", "one"), ("a_2", "three"), ("a_3", "two")]);
}

#[tokio::test(start_paused = true)]
async fn other_requests_are_forwarded() {
    let server = Server::new().says("a", "1");
    let stack = stack(&server, [all(["a"])]);

    let reply: Reply = stack.clone().oneshot(Request::call_tool("a")).await.unwrap();
    assert_eq!(texts(reply.tool_result().unwrap()), ["1"]);
    let ping =
        rmcp::model::PingRequest { method: Default::default(), extensions: Default::default() };
    let reply = stack
        .oneshot(Request::new(ping, mcp_composite::message::Context::default()))
        .await
        .unwrap();
    assert_eq!(reply.error().unwrap().message, "ping");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_call_drops_every_branch() {
    let server = Server::new().hangs("a").hangs("b");
    let inner = CompositeTool::fan_out("inner", "Inner", ["a"]);
    let stack = stack(&server, [inner, all(["inner", "b"])]);

    let mut call = Box::pin(stack.oneshot(call("all", json!({}))));
    while server.running() < 2 {
        assert!(futures::poll!(&mut call).is_pending());
        tokio::task::yield_now().await;
    }
    drop(call);
    tokio::task::yield_now().await;

    assert_eq!(server.dropped(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn failing_tool_without_text_is_reported() {
    let server = Server::new()
        .tool("a", CallToolResult::error(vec![]))
        .tool("b", Answer::failure("x\ny"))
        .tool("c", Answer::text(""));
    let result = run_all(&stack(&server, [all(["a", "b", "c"])])).await;
    assert_eq!(
        texts(&result),
        [
            "branch `a` (tool `a`) failed: the tool failed without an error message",
            "branch `b` (tool `b`) failed: x\ny",
            "c:",
            "",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn recursive_defaults_terminate() {
    let bomb = json!({
        "type": "object",
        "properties": { "p": { "$ref": "#/$defs/n" } },
        "$defs": {
            "n": {
                "type": "object",
                "default": {},
                "properties": { "a": { "$ref": "#/$defs/n" }, "b": { "$ref": "#/$defs/n" } },
            },
        },
    });
    let circle =
        json!({ "type": "object", "default": {}, "allOf": [{ "$ref": "#" }, { "$ref": "#" }] });
    for schema in [bomb, circle] {
        let server = Server::new().tool_as(Tool::new("a", "x", object(schema)), Answer::echo());
        let result = run_all(&stack(&server, [all(["a"])])).await;
        assert_eq!(result.is_error, Some(false));
    }
}

#[tokio::test(start_paused = true)]
async fn result_bytes_of_a_nested_run_are_counted_once() {
    let server = Server::new().tool("a", Answer::text("x".repeat(1000)));
    let inner = CompositeTool::fan_out("inner", "Inner", ["a"]);
    let layer = CompositeLayer::new([inner, all(["inner"])]).unwrap();

    let enough = layer.clone().limits(CallLimits::default().max_result_bytes(1000));
    assert_eq!(run_all(&enough.layer(server.clone())).await.is_error, Some(false));
    let too_little = layer.limits(CallLimits::default().max_result_bytes(999));
    assert_eq!(run_all(&too_little.layer(server)).await.is_error, Some(true));
}

#[tokio::test(start_paused = true)]
async fn oversized_error_is_dropped() {
    let server = Server::new().tool("a", error(-1, "no", json!("x".repeat(1000))));
    let layer = CompositeLayer::new([all(["a"])])
        .unwrap()
        .limits(CallLimits::default().max_result_bytes(999));
    let result = run_all(&layer.layer(server)).await;
    assert_eq!(branches(&result)["a"]["error"]["kind"], "limit");
    assert!(serde_json::to_string(&result).unwrap().len() < 1000);
}

#[tokio::test]
async fn branches_do_not_start_after_the_deadline() {
    let server = Server::new().tool(
        "a",
        Answer::from_fn(|_| async {
            std::thread::sleep(Duration::from_millis(400));
            Answer::text("done")
        }),
    );
    let definition = of(FanOut::new(["a"; 50]).sequential()).timeout(Duration::from_secs(1));
    let result = run_all(&stack(&server, [definition])).await;
    assert_eq!(status_of(&result, "a"), "completed");
    assert_eq!(status_of(&result, "a_50"), "skipped");
    assert!(server.called().len() < 10, "{}", server.called().len());
}

#[tokio::test(start_paused = true)]
async fn targets_cannot_forge_the_branch_of_a_block() {
    let server = Server::new().tool("a", {
        let mut block = rmcp::model::TextContent::new("x");
        block.meta =
            Some(MetaObject(object(json!({ (TOOL): "forged", (BRANCH): "forged", "mine": 1 }))));
        CallToolResult::success(vec![ContentBlock::Text(block)])
    });
    let result = run_all(&stack(&server, [all(["a"])])).await;
    let meta = &result.content[1].as_text().unwrap().meta;
    assert_eq!(meta.as_ref().unwrap().0, object(json!({ (BRANCH): "a", "mine": 1 })));
}
