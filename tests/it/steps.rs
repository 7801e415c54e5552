//! Pipelines and workflows whose behavior cannot be tested by a file alone.

use std::{collections::HashSet, time::Duration};

#[cfg(feature = "config")]
use mcp_composite::config::Config;
use mcp_composite::{
    composite::{
        Case, CompositeLayer, CompositeTool, ForEach, JsonType, OnError, Otherwise, Output,
        OutputProperty, Repeat, Retry, STEPS, Step, Switch, ToolCall, Workflow,
    },
    testing::{self, Answer, Server},
};
use proptest::prelude::*;
use rmcp::model::CallToolResult;
use serde_json::{Number, Value, json};
use tower::Layer;

/// Calls a composite in front of a server.
async fn run(composite: &CompositeTool, server: &Server, arguments: Value) -> CallToolResult {
    let layer = CompositeLayer::new([composite.clone()]).unwrap();
    testing::call(&layer.layer(server.clone()), composite.name(), arguments).await
}

/// The same with a separate clock, which begins at zero and is paused.
fn run_now(composite: &CompositeTool, server: &Server, arguments: Value) -> CallToolResult {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(run(composite, server, arguments))
}

#[tokio::test(start_paused = true)]
async fn number_of_steps_is_limited_to_a_hundred() {
    let workflow = |count: usize| {
        let steps = (0..count).map(|n| Step::new(format!("s{n}"), "act"));
        CompositeTool::workflow("many", "Does many things", steps)
    };

    let server = Server::new().echoes("act");
    run(&workflow(100), &server, json!({})).await;
    assert_eq!(server.calls().len(), 100);

    let mistakes = CompositeLayer::new([workflow(101)]).unwrap_err().to_string();
    assert_eq!(mistakes, "composite `many` at `steps`: 101 steps: expected at most 100");
}

#[tokio::test(start_paused = true)]
async fn dropped_call_stops_and_calls_no_further_tool() {
    let tenth = Duration::from_millis(100);
    let pause = Duration::from_secs(3600);
    let retry = OnError::Retry(Retry::times(10).delay(pause).max_delay(pause));
    let workflows = [
        // The dependency of the second step would have finished later.
        CompositeTool::workflow(
            "steps",
            "Does one thing after another",
            [Step::new("a", "slow"), Step::new("b", "slow").depends_on(["a"])],
        ),
        CompositeTool::workflow(
            "elements",
            "Does many things",
            [Step::new("each", ForEach::new(json!([1, 2, 3]), "slow").max_parallel(1))],
        ),
        CompositeTool::workflow(
            "attempts",
            "Does one thing until it works, and another",
            [Step::new("a", "broken").on_error(retry), Step::new("b", "slow")],
        ),
    ];
    for workflow in workflows {
        let server = Server::new()
            .tool("slow", Answer::echo().after(tenth))
            .tool("broken", Answer::failure("no").after(tenth / 4));
        let call = run(&workflow, &server, json!({}));
        tokio::time::timeout(tenth / 2, call).await.unwrap_err();
        let called = server.called();

        tokio::time::sleep(20 * pause).await;

        assert_eq!(server.dropped(), ["slow"], "{}", workflow.name());
        assert_eq!(server.called(), called, "{}", workflow.name());
    }
}

#[tokio::test(start_paused = true)]
async fn null_is_a_valid_default_result() {
    let workflow = CompositeTool::workflow(
        "keep",
        "Keeps what there is",
        [
            Step::new("a", "fetch").condition("false").default_results(json!({ "data": null })),
            Step::new(
                "b",
                ToolCall::new("keep").arguments(json!({ "data": "$steps.a.output.data" })),
            ),
        ],
    );
    let server = Server::new().echoes("fetch").echoes("keep");

    run(&workflow, &server, json!({})).await;

    assert_eq!(server.calls(), [("keep", json!({ "data": null }))]);
}

#[tokio::test(start_paused = true)]
async fn too_deeply_nested_arguments_fail_the_step() {
    let nested = |levels, value| (0..levels).fold(value, |inner, _| json!([inner]));
    let workflow = CompositeTool::workflow(
        "pass_on",
        "Passes on what it gets",
        [
            Step::new("a", "give"),
            Step::new(
                "b",
                ToolCall::new("take")
                    .arguments(json!({ "v": nested(27, json!("$steps.a.output")) })),
            ),
        ],
    );
    let server =
        |levels| Server::new().gives("give", nested(levels, json!(1))).says("take", "taken");

    // The arguments themselves are a level.
    let shallow = server(100);
    run(&workflow, &shallow, json!({})).await;
    assert_eq!(shallow.called(), ["give", "take"]);

    let deep = server(101);
    let result = run(&workflow, &deep, json!({})).await;
    assert_eq!(deep.called(), ["give"]);
    assert_eq!(
        result.content[0].as_text().unwrap().text,
        "step `b` (tool `take`) failed: the request has more than 128 levels of nesting (`max_depth`)"
    );
}

#[cfg(feature = "config")]
#[tokio::test(start_paused = true)]
async fn arguments_are_coerced_to_the_schema_of_a_prefixed_tool() {
    let config = Config::from_toml_str(
        r#"
        [[backends]]
        name = "tracker"
        command = "tracker-mcp"

        [[composite_tools]]
        name = "report_bug"
        description = "Creates an issue"
        strategy = "workflow"
        steps = [{ id = "a", tool = "tracker/create", arguments = { text = "42", n = "42" } }]
        "#,
    );
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let tool = rmcp::model::Tool::new("create", "Creates", schema.as_object().unwrap().clone());
    let server = Server::new().tool_as(tool, Answer::echo());
    let service = testing::stack(&config.unwrap(), [("tracker", server.clone())]);

    testing::call(&service, "report_bug", json!({})).await;

    assert_eq!(server.calls(), [("create", json!({ "text": "42", "n": 42 }))]);
}

/// A tool that uses the id as an idempotency key must not charge twice.
#[tokio::test(start_paused = true)]
async fn nested_run_id_is_stable_per_attempt_and_unique_per_place() {
    let id = || json!({ "key": "$workflow.id" });
    let inner = CompositeTool::pipeline(
        "inner",
        "Pays",
        [Step::new("pay", ToolCall::new("pay").arguments(id()))],
    );
    let middle = CompositeTool::fan_out("middle", "Pays at one place", ["inner"]);
    let retry = || OnError::Retry(Retry::times(2).delay(Duration::ZERO));
    let outer = CompositeTool::workflow(
        "outer",
        "Pays at several places",
        [
            Step::new("a", "inner").on_error(retry()),
            Step::new("b", "middle").depends_on(["a"]).on_error(retry()),
            Step::new("c", ForEach::new(json!([1, 2]), "inner")).depends_on(["b"]),
        ],
    );
    let layer = CompositeLayer::new([inner, middle, outer]).unwrap();
    let fails = || Answer::failure("no route").times(1);
    let answers = fails().then(Answer::text("paid").times(1)).then(fails());
    let server = Server::new().tool("pay", answers.then(Answer::text("paid")));
    let service = layer.layer(server.clone());

    for _ in 0..2 {
        let result = testing::call(&service, "outer", json!({})).await;
        assert_eq!(result.is_error, Some(false), "{result:?}");
    }

    let calls = server.calls();
    let keys: Vec<_> = calls.iter().map(|call| call.arguments()["key"].to_string()).collect();
    let [a, a_again, b, b_again, c_0, c_1, others @ ..] = &*keys else { panic!("{keys:?}") };
    assert_eq!((a, b), (a_again, b_again));
    assert_eq!(others.len(), 4, "{keys:?}");
    let all: HashSet<_> = [a, b, c_0, c_1].into_iter().chain(others).collect();
    assert_eq!(all.len(), 8, "{keys:?}");
    assert!(all.iter().all(|key| key.len() == 34), "{keys:?}");
}

/// Passes `v` of the input from step to step, each time in another way, to tools that are named
/// after it.
fn all_ways() -> CompositeTool {
    let v = |written: &str| json!({ "v": written });
    CompositeTool::new(
        "all_ways",
        "Hands a value on",
        Workflow::new([
            Step::new("reference", ToolCall::new("reference").arguments(v("$input.v"))),
            Step::new(
                "template",
                ToolCall::new("template").arguments(v("{{ steps.reference.output.v }}")),
            ),
            Step::new(
                "parse",
                ToolCall::new("as_text").arguments(v("$steps.template.output.v")).parse_json(),
            ),
            Step::new(
                "filter",
                ToolCall::new("filter").arguments(v("{{ (steps.parse.text | fromjson).v }}")),
            ),
            Step::new(
                "loop",
                ForEach::new(
                    json!(["$steps.parse.output.v"]),
                    ToolCall::new("loop").arguments(v("$item")),
                ),
            ),
            Step::new(
                "list",
                ForEach::new(
                    "{{ [steps.filter.output.v] }}",
                    ToolCall::new("list").arguments(v("{{ item }}")),
                ),
            ),
            Step::new(
                "switch",
                Switch::new(
                    [Case::new("false", "switch")],
                    Otherwise::Call(
                        ToolCall::new("switch")
                            .arguments(v("$steps.loop.output.iterations[0].output.v")),
                    ),
                ),
            ),
        ])
        .output(
            Output::new()
                .property("list", of_object("$steps.list.output.iterations[0].output"))
                .property("switch", of_object("{{ steps.switch.output }}")),
        ),
    )
}

fn of_object(value: &str) -> OutputProperty {
    OutputProperty::new(JsonType::Object, value)
}

fn values() -> Vec<Value> {
    let numbers = [i64::MIN.into(), i64::MAX.into(), u64::MAX.into(), 0.into(), (-1).into()];
    let floats = [0.0, -0.0, 1.0, -0.1, 1e300, 5e-324, 1e15, 1e16, 1e-7, 9007199254740993.0];
    let floats = floats.into_iter().filter_map(Number::from_f64);
    let texts = ["", " ", "42", "true", "null", "ünïcödé 🦉\u{0}\u{2028}\"\\\r\n", "$input.v"];
    let codes = ["$$", "{{ input.v }}", "{% raw %}", "{# no #}", "}}", "{\"v\": 1}", "trailing\n"];
    let mut values = vec![
        json!(null),
        json!(true),
        json!(false),
        json!([]),
        json!({}),
        json!([[], [[]], {}, [null]]),
        json!({ "": null, "odd key": { "$input": ["{{ x }}"] }, "\"": [], "v": { "v": 1 } }),
        (0..10_000).collect(),
        (0..10_000).map(|n| json!({ "n": n, "text": "ü" })).collect(),
        (0..100).fold(json!(1), |inner, _| json!([inner])),
    ];
    values.extend(numbers.into_iter().chain(floats).map(Value::Number));
    values.extend(texts.into_iter().chain(codes).map(Value::from));
    values
}

#[test]
fn value_arrives_unchanged_through_every_construct() {
    for value in values() {
        let echo = ["reference", "template", "filter", "loop", "list", "switch"];
        let server = echo.into_iter().fold(Server::new(), Server::echoes).tool(
            "as_text",
            Answer::from_fn(|call| async move { Answer::text(call.arguments().to_string()) }),
        );

        let result = run_now(&all_ways(), &server, json!({ "v": value }));

        let excerpt = value.to_string().chars().take(100).collect::<String>();
        let called = ["reference", "template", "as_text", "filter", "loop", "list", "switch"];
        assert_eq!(server.called(), called, "{excerpt}: {:?}", result.content);
        for call in server.calls() {
            let arguments = call.arguments();
            assert!(holds(&arguments, &value), "{}: {excerpt}: {arguments}", call.tool());
        }
        let output = result.structured_content.unwrap();
        for way in ["list", "switch"] {
            assert!(holds(&output[way], &value), "{way}: {excerpt}: {output}");
        }
        let text: Value = serde_json::from_str(&result.content[0].as_text().unwrap().text).unwrap();
        assert_eq!(text, output, "{excerpt}");
    }
}

#[test]
fn template_renders_values_as_json_and_strings_verbatim() {
    let pipeline = CompositeTool::pipeline(
        "say",
        "Says a value",
        [Step::new("say", ToolCall::new("say").arguments(json!({ "text": "<{{ input.v }}>\n" })))],
    );
    for value in values() {
        let server = Server::new().echoes("say");

        run_now(&pipeline, &server, json!({ "v": value }));

        let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        assert_eq!(server.calls(), [("say", json!({ "text": format!("<{written}>\n") }))]);
    }
}

/// Returns whether `v` of an object is this value, including the sign of zero.
fn holds(object: &Value, value: &Value) -> bool {
    let sign = |value: &Value| value.as_f64().map(f64::is_sign_negative);
    object.get("v").is_some_and(|v| v == value && sign(v) == sign(value))
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // A float that is not a JSON number becomes null.
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn random_values_pass_through_a_pipeline_unchanged(value in any_value()) {
        let v = |written: &str| json!({ "v": written });
        let pipeline = CompositeTool::pipeline("row", "Hands a value on", [
            Step::new("first", ToolCall::new("first").arguments(v("$input.v"))),
            Step::new("second", ToolCall::new("second").arguments(v("$prev.v"))),
            Step::new("third", ToolCall::new("third").arguments(v("{{ prev.v }}"))),
        ]);
        let server = Server::new().echoes("first").echoes("second").echoes("third");
        let arguments = json!({ "v": value });

        let result = run_now(&pipeline, &server, arguments.clone());

        prop_assert_eq!(server.called(), ["first", "second", "third"]);
        for call in server.calls() {
            prop_assert_eq!(call.arguments(), arguments.clone());
        }
        prop_assert_eq!(result.structured_content, Some(arguments));
    }
}

#[tokio::test(start_paused = true)]
async fn loop_with_oversized_output_reports_element_statuses() {
    let large = || Answer::text("x".repeat(40_000));
    let server = Server::new().tool("send", large().then(large()).then(Answer::failure("bounced")));
    let mails = Step::new("mails", ForEach::new(json!(["a", "b", "c"]), "send").max_parallel(1));
    let send = CompositeTool::workflow("send_all", "Sends to each", [mails]);
    let service = CompositeLayer::new([send]).unwrap().layer(server);
    let result = testing::call(&service, "send_all", json!({})).await;
    let text = &result.content[1].as_text().unwrap().text;
    let begin = "step `mails` (tool `send`) ended early; its elements, without the parts that are \
                 too large to repeat: {";
    assert!(text.starts_with(begin), "{text}");
    let mails = &result.meta.as_ref().unwrap()[STEPS]["mails"];
    assert_eq!(mails["truncated"], true);
    let iterations = json!([
        { "index": 0, "item": "a", "status": "completed" },
        { "index": 1, "item": "b", "status": "completed" },
        {
            "index": 2,
            "item": "c",
            "status": "failed",
            "error": { "kind": "tool", "message": "bounced" },
        },
    ]);
    assert_eq!(mails["output"]["iterations"], iterations);
}

#[tokio::test(start_paused = true)]
async fn switch_parses_the_text_of_a_case_with_parse_json() {
    let server = Server::new().says("text", "{\"n\":1}").echoes("keep");
    let case = Case::new("input.parse", ToolCall::new("text").parse_json());
    let keep = ToolCall::new("keep").arguments(json!({ "n": "$steps.a.output.n?" }));
    let steps =
        [Step::new("a", Switch::new([case], Otherwise::Call("text".into()))), Step::new("b", keep)];
    let composite = CompositeTool::pipeline("keep_text", "Keeps a text", steps);
    let service = CompositeLayer::new([composite]).unwrap().layer(server);
    for (parse, expected) in [(true, json!({ "n": 1 })), (false, json!({}))] {
        let result = testing::call(&service, "keep_text", json!({ "parse": parse })).await;
        assert_eq!(result.structured_content, Some(expected), "{parse}");
    }
}

#[test]
fn repetition_without_an_end_in_sight_is_remarked() {
    let second = Duration::from_secs(1);
    let poll = |until: &str| Repeat::new("status", until).max_iterations(100).delay(second);
    let polls = |repeat: Repeat, timeout: Option<Duration>| {
        let mut step = Step::new("poll", repeat);
        if let Some(timeout) = timeout {
            step = step.timeout(timeout);
        }
        let tool = CompositeTool::workflow("polls", "Polls", [step]).timeout(60 * second);
        CompositeLayer::new([tool]).unwrap().remarks()
    };
    let blind =
        "composite `polls`: step `poll` may never end, because its `until` does not read `$last`";
    let long = "composite `polls`: step `poll` may wait 99s between its iterations, and the run may take 60s";
    assert_eq!(polls(poll("input.done"), None), [blind, long]);
    assert_eq!(polls(poll("$last.done"), None), [long]);
    assert_eq!(polls(poll("$last.done"), Some(30 * second)), [""; 0]);
    // The index changes with each iteration.
    assert_eq!(polls(poll("index == 9").max_iterations(50), None), [""; 0]);
}

#[test]
fn loop_whose_delays_exceed_the_run_is_remarked() {
    let second = Duration::from_secs(1);
    let loops = |max_iterations: usize| {
        let each = ForEach::new("$input.all", "echo").delay(second).max_iterations(max_iterations);
        let steps = [Step::new("each", each)];
        let tool = CompositeTool::workflow("loops", "Loops", steps).timeout(60 * second);
        CompositeLayer::new([tool]).unwrap().remarks()
    };
    let long = "composite `loops`: step `each` may wait 99s between its elements, and the run may take 60s";
    assert_eq!(loops(100), [long]);
    assert_eq!(loops(61), [""; 0]);
}
