//! Previews of the calls of a composite.

use std::time::Duration;

use mcp_composite::{
    alias::{AliasLayer, ArgumentAlias, ToolAlias},
    composite::{
        Case, CompositeLayer, CompositeTool, ComputedValue, Elicitation, Fallback, FanOut, Finally,
        ForEach, JsonType, OnError, Otherwise, Output, OutputProperty, Pipeline, Plan, Race,
        Repeat, Step, Stop, Strategy, Switch, Target, ToolCall,
    },
    message::Context,
    stack::StackLayer,
    testing::{self, Answer, Server},
};
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, ErrorData, Tool};
use serde_json::{Value, json};
use tower::Layer;

use crate::scripted::{can_be_asked, object};

const SECOND: Duration = Duration::from_secs(1);

/// A tool that accepts only a number `n` and a list `all`.
fn strict_tool(name: &str) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" }, "all": { "type": "array" } },
        "additionalProperties": false,
    });
    Tool::new(name.to_owned(), "Counts", object(schema))
}

fn server() -> Server {
    Server::new().tool_as(strict_tool("count"), Answer::echo()).echoes("tell").echoes("ask")
}

/// A workflow with everything that a preview can show.
fn everything() -> CompositeTool {
    let words = Step::new(
        "words",
        ForEach::new(
            "$input.words",
            ToolCall::new("count").arguments(
                json!({ "n": "{{ index }}", "all": ["$item", "$steps.first.output.n"] }),
            ),
        )
        .max_parallel(2),
    )
    .on_error(OnError::Continue);
    let later = Step::new(
        "later",
        ForEach::new(
            "$steps.first.output.all",
            ToolCall::new("count").arguments(json!({ "all": ["$item"] })),
        ),
    );
    let cases = [
        Case::new("input.n == 7", ToolCall::new("tell").arguments(json!({ "about": "$input.n" }))),
        Case::new("steps.first.output.n > 1", "ask"),
    ];
    let choice = Step::new("choice", Switch::new(cases, Otherwise::Call("count".into())));
    CompositeTool::workflow(
        "everything",
        "Shows everything",
        [
            Step::new(
                "first",
                ToolCall::new("count")
                    .arguments(json!({ "n": "{{ input.n }}", "all": "$input.words" })),
            ),
            words,
            later,
            choice,
            Step::new("never", ToolCall::new("tell").arguments(json!({ "a": "$$b" })))
                .condition("$input.flag"),
        ],
    )
}

fn input() -> Value {
    json!({ "n": 7, "words": ["a", "b"], "flag": false })
}

#[tokio::test(start_paused = true)]
async fn preview_shows_waves_with_known_arguments() {
    let server = server();
    let service = CompositeLayer::new([everything()]).unwrap().layer(server.clone());
    let preview = service.preview("everything", object(input())).await.unwrap();

    let expected = r#"everything
   1  first   count {"all":["a","b"],"n":7}
      never   if $input.flag (which does not hold)
              tell {"a":"$b"}
   2  words   for each of $input.words, which are 2, 2 at a time:
              count {"all":["$item","$steps.first.output.n"],"n":"{{ index }}"}
      later   for each of $steps.first.output.all, 10 at a time:
              count {"all":["$item"]}
      choice  when input.n == 7 (which holds):
              tell {"about":7}
              when steps.first.output.n > 1:
              ask {}
              else:
              count {}
"#;
    assert_eq!(preview.to_string(), expected);
    assert!(server.calls().is_empty());

    let value = serde_json::to_value(&preview).unwrap();
    assert_eq!(value["composite"], "everything");
    assert_eq!(value["waves"][0]["steps"][0]["calls"][0]["arguments"]["n"], 7);
    assert_eq!(value["waves"][0]["steps"][1]["condition"]["holds"], false);
}

#[tokio::test(start_paused = true)]
async fn preview_shows_computed_values() {
    let steps = [
        Step::new(
            "known",
            ComputedValue::new(json!({ "n": "$input.n", "text": "{{ input.n }}!" })),
        ),
        Step::new("later", ComputedValue::new(json!(["$input.n", "$steps.known.output.n"]))),
        Step::new("fails", ComputedValue::new("$input.words[9]")).condition("input.flag"),
    ];
    let composite = CompositeTool::workflow("values", "Computes values", steps);
    let open = composite.input_schema(object(json!({ "type": "object" })));
    let service = CompositeLayer::new([open]).unwrap().layer(server());
    let preview = service.preview("values", object(input())).await.unwrap();

    let expected = r#"values
   1  known  = {"n":7,"text":"7!"}
      fails  if input.flag (which does not hold)
             which would fail: `$input.words[9]` has no value
   2  later  = [7,"$steps.known.output.n"]
"#;
    assert_eq!(preview.to_string(), expected);
    let value = serde_json::to_value(&preview).unwrap();
    assert_eq!(value["waves"][0]["steps"][0]["value"], json!({ "n": 7, "text": "7!" }));
    assert_eq!(value["waves"][0]["steps"][0].get("error"), None);
}

#[tokio::test(start_paused = true)]
async fn preview_shows_repeated_calls() {
    let count = || {
        let arguments = json!({ "n": "$last.n?", "all": "$input.words" });
        ToolCall::new("count").arguments(arguments)
    };
    let poll = Repeat::new(count(), "last.n == 9").delay(SECOND).backoff(2.0).max_iterations(5);
    let steps = [
        Step::new("pages", Repeat::new(count(), "$last.done")),
        Step::new("poll", poll).timeout(20 * SECOND),
    ];
    let composite = CompositeTool::workflow("repeats", "Repeats", steps);
    let service = CompositeLayer::new([composite]).unwrap().layer(server());
    let preview = service.preview("repeats", object(input())).await.unwrap();

    let expected = r#"repeats
   1  pages  until $last.done, 100 times at most:
             count {"all":["a","b"],"n":"$last.n?"}
      poll   until last.n == 9, 5 times at most, 1s apart, then 2 times as long up to 60s, within 20s:
             count {"all":["a","b"],"n":"$last.n?"}
"#;
    assert_eq!(preview.to_string(), expected);
    let value = serde_json::to_value(&preview).unwrap();
    let repeat = json!({
        "until": "last.n == 9", "max_iterations": 5, "delay_ms": 1000, "backoff": 2.0,
        "max_delay_ms": 60_000, "timeout_ms": 20_000,
    });
    assert_eq!(value["waves"][0]["steps"][1]["repeat"], repeat);
}

#[tokio::test(start_paused = true)]
async fn preview_shows_the_delay_and_the_end_of_a_loop() {
    let each = ForEach::new("$input.words", "ask").max_parallel(1).delay(SECOND / 2);
    let steps = [Step::new("try", each.stop_at_first_success())];
    let composite = CompositeTool::workflow("tries", "Tries", steps);
    let server = server();
    let service = CompositeLayer::new([composite]).unwrap().layer(server.clone());
    let preview = service.preview("tries", object(input())).await.unwrap();

    let expected = r#"tries
   1  try  for each of $input.words, which are 2, 1 at a time, 500ms apart, until one succeeds:
           ask {}
"#;
    assert_eq!(preview.to_string(), expected);
    assert!(server.calls().is_empty());
    let value = serde_json::to_value(&preview).unwrap();
    let each = &value["waves"][0]["steps"][0]["for_each"];
    assert_eq!((&each["delay_ms"], &each["first_success"]), (&json!(500), &json!(true)));
}

#[tokio::test(start_paused = true)]
async fn preview_shows_finally_steps_after_all_others() {
    let steps = [
        Step::new("undo", "tell")
            .condition("steps.first.status == 'completed'")
            .finally(Finally::new()),
        Step::new("unlock", "tell").finally(Finally::new().on_cancel(true)),
        Step::new("first", "count"),
        Step::new("next", "count").depends_on(["first"]),
    ];
    let composite = CompositeTool::workflow("undoes", "Undoes", steps);
    let service = CompositeLayer::new([composite]).unwrap().layer(server());
    let preview = service.preview("undoes", object(json!({}))).await.unwrap();

    let expected = r#"undoes
   1  first   count {}
   2  next    count {}
   3  undo    finally
              if steps.first.status == 'completed'
              tell {}
      unlock  finally, also after a cancellation
              tell {}
"#;
    assert_eq!(preview.to_string(), expected);
    let value = serde_json::to_value(&preview).unwrap();
    let [undo, unlock] = [0, 1].map(|step| &value["waves"][2]["steps"][step]);
    assert_eq!((&undo["finally"], undo.get("on_cancel")), (&json!(true), None));
    assert_eq!((&unlock["finally"], &unlock["on_cancel"]), (&json!(true), &json!(true)));
    assert_eq!(value["waves"][0]["steps"][0].get("finally"), None);
}

#[tokio::test(start_paused = true)]
async fn preview_shows_early_ends() {
    let steps = [
        Step::new("few", Stop::message("{{ input.n }} are few")).condition("input.n < 9"),
        Step::new("none", Stop::error("$input.no.text")).condition("input.flag"),
        Step::new("first", "count"),
        Step::new("out", Stop::output(json!(["$input.n", "$steps.first"]))).condition("input.flag"),
    ];
    let composite = CompositeTool::workflow("ends", "Ends early", steps);
    let open = composite.input_schema(object(json!({ "type": "object" })));
    let service = CompositeLayer::new([open]).unwrap().layer(server());
    let preview = service.preview("ends", object(input())).await.unwrap();

    let expected = r#"ends
   1  few    if input.n < 9 (which holds)
             end the run with "7 are few"
      none   if input.flag (which does not hold)
             fail the run with "$input.no.text"
             which would fail: `$input.no.text` has no value
      first  count {}
   2  out    if input.flag (which does not hold)
             end the run with [7,"$steps.first"]
"#;
    assert_eq!(preview.to_string(), expected);
    let value = serde_json::to_value(&preview).unwrap();
    let stops = json!({ "is_error": false, "result": "7 are few" });
    assert_eq!(value["waves"][0]["steps"][0]["stops"], stops);
}

#[tokio::test(start_paused = true)]
async fn preview_shows_steps_that_would_fail() {
    let steps = [
        Step::new("fits_not", ToolCall::new("count").arguments(json!({ "n": "$input.word" }))),
        Step::new(
            "missing",
            ToolCall::new("tell").arguments(json!({ "a": "{{ input.words[9] }}" })),
        ),
        Step::new("no_truth", "tell").condition("input.word"),
        Step::new("no_list", ForEach::new("$input.word", "tell")),
    ];
    let composite = CompositeTool::pipeline("fails", "Fails", steps);
    let input = json!({ "word": "seven", "words": [] });
    let open = composite.clone().input_schema(object(json!({ "type": "object" })));
    let service = CompositeLayer::new([open]).unwrap().layer(server());
    let preview = service.preview("fails", object(input.clone())).await.unwrap();
    let text = preview.to_string();
    let text: Vec<_> = text.lines().filter(|line| line.contains("fail:")).map(str::trim).collect();
    assert_eq!(
        text,
        [
            "which would fail: invalid arguments for `count`: at `/n`: the value is not of type \"integer\"",
            "which would fail: `input.words[9]` has no value",
            "3  no_truth  if input.word (which would fail: it is a string: expected a boolean, or the text `true` or `false`)",
        ]
    );

    let service = CompositeLayer::new([composite]).unwrap().layer(server());
    let preview = service.preview("fails", object(input)).await;
    // A loop requires an array, as the derived schema says.
    let error = preview.unwrap_err();
    assert_eq!(
        error.message,
        "invalid arguments for `fails`: at `/word`: the value is not valid under any of the schemas listed in the 'anyOf' keyword"
    );
}

#[tokio::test(start_paused = true)]
async fn preview_of_a_hidden_tool_is_rejected_like_a_call() {
    let layer = CompositeLayer::new([
        everything(),
        CompositeTool::fan_out("lonely", "Lacks its tool", ["nowhere"]),
    ])
    .unwrap();
    let service = layer.layer(server());
    for (composite, input, message) in [
        ("nothing", json!({}), "unknown tool `nothing`"),
        ("lonely", json!({}), "tool `lonely` is not available at the moment"),
        (
            "everything",
            json!({}),
            "invalid arguments for `everything`: at `/flag`: is required; at `/n`: is required; at `/words`: is required",
        ),
    ] {
        let error = service.preview(composite, object(input)).await.unwrap_err();
        assert_eq!(error.message, message);
    }
}

#[tokio::test(start_paused = true)]
async fn parallel_targets_form_one_wave_and_sequential_ones_many() {
    let targets =
        || [Target::new("tell"), Target::new("ask").arguments(json!({ "q": "$input.q" }))];
    for (strategy, waves) in [
        (Strategy::from(FanOut::new(targets())), 1),
        (Race::new(targets()).into(), 1),
        (FanOut::new(targets()).sequential().into(), 2),
        (Fallback::new(targets()).into(), 2),
    ] {
        let composite = CompositeTool::new("both", "Both", strategy.clone());
        let service = CompositeLayer::new([composite]).unwrap().layer(server());
        let preview = service.preview("both", object(json!({ "q": 1 }))).await.unwrap();
        assert_eq!(preview.waves.len(), waves, "{strategy:?}");
        let last = preview.waves.last().and_then(|wave| wave.steps.last()).unwrap();
        assert_eq!(last.calls[0].arguments, Some(json!({ "q": 1 })), "{strategy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn preview_does_not_reveal_hidden_arguments() {
    let secret = ArgumentAlias::new().hide().default(json!("hunter2"));
    let alias = ToolAlias::new("tell").name("told").argument("key", secret);
    let composite = CompositeTool::pipeline(
        "say",
        "Says",
        [Step::new("say", ToolCall::new("told").arguments(json!({ "text": "$input.text" })))],
    );
    let stack = StackLayer::new()
        .alias(AliasLayer::new().tools([alias]).unwrap())
        .composite(CompositeLayer::new([composite]).unwrap())
        .layer(server());
    let preview = stack.preview("say", object(json!({ "text": "x" }))).await.unwrap();
    assert_eq!(preview.to_string(), "say\n   1  say  told {\"text\":\"x\"}\n");
}

#[tokio::test(start_paused = true)]
async fn plan_runs_with_a_closure_and_previews_without_tools() {
    let plan = Plan::new(CompositeTool::pipeline(
        "twice",
        "Twice",
        [
            Step::new("one", ToolCall::new("double").arguments(json!({ "n": "$input.n" }))),
            Step::new("two", ToolCall::new("double").arguments(json!({ "n": "$prev.n" }))),
        ],
    ))
    .unwrap();
    let input = object(json!({ "n": 21 }));
    assert_eq!(
        plan.preview(input.clone()).unwrap().to_string(),
        "twice\n   1  one  double {\"n\":21}\n   2  two  double {\"n\":\"$prev.n\"}\n",
    );

    let double = |call: CallToolRequestParams, _: Context| async move {
        let n = call.arguments.unwrap()["n"].as_i64().unwrap();
        Ok::<_, ErrorData>(CallToolResult::structured(json!({ "n": 2 * n })))
    };
    let result = plan.run(input, &Context::default(), double).await.unwrap();
    assert_eq!(result.structured_content, Some(json!({ "n": 84 })));

    let refused = plan.run(object(json!({})), &Context::default(), double).await.unwrap_err();
    assert_eq!(refused.message, "invalid arguments for `twice`: at `/n`: is required");
}

#[tokio::test(start_paused = true)]
async fn preview_shows_the_input_of_each_target() {
    let other = Tool::new(
        "other",
        "Takes another",
        object(json!({
            "type": "object",
            "properties": { "y": { "type": "integer", "default": 2 } },
        })),
    );
    let server =
        Server::new().tool_as(strict_tool("count"), Answer::echo()).tool_as(other, Answer::echo());
    let both = CompositeTool::fan_out("both", "Both", ["count", "other"]);
    let service = CompositeLayer::new([both]).unwrap().layer(server.clone());
    let input = json!({ "n": 1 });

    let preview = service.preview("both", object(input.clone())).await.unwrap();
    let planned: Vec<_> = preview.waves[0]
        .steps
        .iter()
        .map(|step| step.calls[0].arguments.clone().unwrap_or_default())
        .collect();
    testing::call(&service, "both", input).await;
    let made: Vec<_> = server.calls().iter().map(testing::RecordedCall::arguments).collect();
    assert_eq!(planned, made);
    assert_eq!(planned[0], json!({ "n": 1 }));
}

#[tokio::test(start_paused = true)]
async fn nullable_output_has_a_nullable_schema() {
    let value = OutputProperty::new(JsonType::Integer, "$input.n?").default(Value::Null);
    let composite = CompositeTool::new(
        "may",
        "May be null",
        Pipeline::new([Step::new("a", "tell")]).output(Output::new().property("n", value)),
    );
    let service = CompositeLayer::new([composite]).unwrap().layer(server());

    let tools = testing::listed(&service).await;
    let schema = tools.iter().find(|tool| tool.name == "may").unwrap().output_schema.clone();
    assert_eq!(schema.unwrap()["properties"]["n"]["type"], json!(["integer", "null"]));
    let result = testing::call(&service, "may", json!({})).await;
    assert_eq!(result.structured_content, Some(json!({ "n": null })));
}

#[tokio::test(start_paused = true)]
async fn question_in_a_standalone_plan_fails_before_any_call() {
    let plan = Plan::new(CompositeTool::pipeline(
        "deploy",
        "Deploys",
        [
            Step::new("build", "build"),
            Step::new("approve", Elicitation::new("Sure?", json!({}))),
            Step::new("deploy", "deploy"),
        ],
    ))
    .unwrap();
    let mut context = Context::default();
    *context.meta_mut() = can_be_asked();
    let call = |call: CallToolRequestParams, _: Context| async move {
        let called = format!("`{}` is called", call.name);
        Ok::<_, ErrorData>(CallToolResult::success(vec![ContentBlock::text(called)]))
    };
    let result = plan.run(object(json!({})), &context, call).await.unwrap();
    assert_eq!(
        result.content[0].as_text().unwrap().text,
        "step `build` (tool `build`) failed: step `approve` asks the user, and cannot: a plan that \
         runs by itself asks nobody"
    );
}
