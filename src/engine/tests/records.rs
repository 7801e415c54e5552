use rmcp::model::{AudioContent, Resource, ResourceContents};

use super::*;
use crate::expr::Field;

/// Returns a result with every kind of content.
fn rich() -> CallToolResult {
    let resource = |text| ContentBlock::resource(ResourceContents::text(text, "file:///a"));
    CallToolResult::success(vec![
        ContentBlock::text("first"),
        ContentBlock::image("aW1n", "image/png"),
        ContentBlock::text("second"),
        resource("one"),
        ContentBlock::resource_link(Resource::new("file:///b", "b")),
        ContentBlock::Audio(AudioContent::new("c25k", "audio/wav")),
        ContentBlock::resource(ResourceContents::blob("Ymlu", "file:///c")),
        ContentBlock::text("third"),
        ContentBlock::image("aW1nMg==", "image/png"),
    ])
}

/// Runs a step whose tool returns `result`, and then a step with the arguments `reads`, which refer
/// to this result. Returns the evaluated arguments of the second step, and the final state of the
/// run.
async fn read(
    result: CallToolResult,
    step: Value,
    reads: Value,
    answer: RunOutput,
) -> (Value, RunState) {
    let mut first = json!({ "id": "a", "arguments": {} });
    for (key, value) in step.as_object().unwrap() {
        first[key] = value.clone();
    }
    let steps =
        json!([first, { "id": "b", "arguments": reads }, { "id": "c", "depends_on": ["b"] }]);
    let seen = Arc::new(Mutex::new(Value::Null));
    let caller = |call: Call| {
        if call.site == 1 {
            *seen.lock().unwrap() = call.arguments.into();
        }
        let result = if call.site == 0 { result.clone() } else { CallToolResult::success(vec![]) };
        async { Ok(result) }
    };
    let plan = plan(&steps, 10, answer);
    let state = run(&plan, RunState::new(json!({}), 3), &scope(600), caller).await;
    let seen = seen.lock().unwrap().clone();
    (seen, state)
}

/// Asserts that expressions read the same values from a stored result as from a record whose result
/// was dropped. Returns the values.
async fn read_both_ways(result: CallToolResult, step: Value, reads: Value) -> Value {
    let (taken, state) = read(result.clone(), step.clone(), reads.clone(), RunOutput::Last).await;
    assert!(outcome(&state, 0).result.is_none());
    let (in_place, state) = read(result.clone(), step, reads, RunOutput::Outcomes).await;
    if state.failed.is_none() {
        assert_eq!(outcome(&state, 0).result, Some(result.into()));
    }
    assert_eq!(taken, in_place);
    taken
}

#[tokio::test(start_paused = true)]
async fn content_becomes_an_object_without_links() {
    let expected = json!({
        "text": "first", "text_1": "second", "text_2": "third",
        "image_0": "aW1n", "image_1": "aW1nMg==", "audio_0": "c25k",
        "resource": "one", "resource_1": "Ymlu",
    });
    for field in ["", ".output", ".content"] {
        let reads = json!({ "x": format!("$steps.a{field}"), "text": "$steps.a.text" });
        let seen = read_both_ways(rich(), json!({}), reads).await;
        assert_eq!(seen, json!({ "x": expected, "text": "first" }), "{field}");
    }
    let seen = read_both_ways(rich(), json!({}), json!({ "text": "$steps.a.text" })).await;
    assert_eq!(seen, json!({ "text": "first" }));
}

#[tokio::test(start_paused = true)]
async fn structured_content_of_any_json_type_is_the_output() {
    for structured in [json!({ "text": "other" }), json!([1, 2]), json!(0), json!(null), json!("x")]
    {
        let mut result = rich();
        result.structured_content = Some(structured.clone());
        let reads = json!({ "output": "$steps.a.output", "text": "$steps.a.content.text" });
        // Structured content needs no parsing, so the text content may be anything.
        for step in [json!({}), json!({ "parse": "json" })] {
            let seen = read_both_ways(result.clone(), step, reads.clone()).await;
            assert_eq!(seen, json!({ "output": structured, "text": "first" }));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn text_result_is_parsed_only_if_parse_is_set() {
    let text = |text: &str| CallToolResult::success(vec![ContentBlock::text(text)]);
    let reads = json!({ "output": "$steps.a.output", "text": "$steps.a.text" });
    let step = json!({ "parse": "json" });
    for parsed in [json!({ "a": [1] }), json!([]), json!(null), json!("x"), json!(u64::MAX)] {
        let seen = read_both_ways(text(&parsed.to_string()), step.clone(), reads.clone()).await;
        assert_eq!(seen, json!({ "output": parsed, "text": parsed.to_string() }));
    }
    // A result with other content than text is not parsed.
    let seen = read_both_ways(rich(), step, reads.clone()).await;
    assert_eq!(seen["output"]["image_0"], "aW1n");
    // Without `parse`, the text is not parsed.
    let seen = read_both_ways(text("1"), json!({}), reads).await;
    assert_eq!(seen, json!({ "output": { "text": "1" }, "text": "1" }));
}

/// Runs a step whose tool returns `texts`, and returns its output or the message of its error.
async fn parsed(format: &str, texts: &[&str]) -> Result<Value, String> {
    let plan = workflow(&json!([
        { "id": "a", "tool": "says", "arguments": { "texts": texts }, "parse": format },
        { "id": "b", "arguments": { "x": "$steps.a.output" } },
    ]));
    let state = World::new().run(&plan, json!({})).await;
    match &outcome(&state, 0).error {
        None => Ok(output_of(&state, 1).unwrap()["x"].clone()),
        Some(error) => Err(error.message.clone()),
    }
}

#[tokio::test(start_paused = true)]
async fn several_json_texts_become_an_array() {
    for (texts, expected) in [
        (&["{\"a\": 1}", "[2]", "null"][..], json!([{ "a": 1 }, [2], null])),
        (&["[1]"], json!([1])),
        // A byte order mark.
        (&["\u{feff}{\"a\": 1}"], json!({ "a": 1 })),
        (&["\u{feff}[1]", "\u{feff}2"], json!([[1], 2])),
        // One text in several blocks.
        (&["{\"a\":", "1}"], json!({ "a": 1 })),
    ] {
        assert_eq!(parsed("json", texts).await, Ok(expected));
    }
    let message = parsed("json", &["1", "no", "secret"]).await.unwrap_err();
    assert_eq!(
        message,
        "text 2 of 3 in the result is not JSON, as its `parse` requires: expected ident at line 1 column 2"
    );
}

#[tokio::test(start_paused = true)]
async fn csv_text_becomes_an_array_of_objects() {
    for (texts, expected) in [
        (
            &["id,say\r\n1,\"a, \"\"b\"\"\nc\"\r\n\r\n2,\r\n"][..],
            json!([{ "id": "1", "say": "a, \"b\"\nc" }, { "id": "2", "say": "" }]),
        ),
        (&["\u{feff}a\n1"], json!([{ "a": "1" }])),
        (&["a,b"], json!([])),
        (&[""], json!([])),
        (&["a,b", "1,2"], json!([{ "a": "1", "b": "2" }])),
        (&["a\n\0\n\0"], json!([{ "a": "\0" }, { "a": "\0" }])),
        (&["[a],{b}\n1,2"], json!([{ "[a]": "1", "{b}": "2" }])),
    ] {
        assert_eq!(parsed("csv", texts).await, Ok(expected), "{texts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn text_that_is_not_csv_fails_the_step() {
    for (text, why) in [
        ("a,b\n1,2\nsecret\n", "line 3 has 1 fields, and the first line has 2"),
        ("a\n1,secret", "line 2 has 2 fields, and the first line has 1"),
        ("a,b,a\n1,2,3", "columns 1 and 3 have the same name"),
        ("Error: no such table", "it is a single line without a comma"),
        ("<!DOCTYPE html><p>Sorry, not found</p>", "it begins with `<`, as HTML and XML do"),
        ("{\"error\": \"secret\", \"code\": 3}", "it is JSON; use `parse = \"json\"`"),
        ("a,b\n1,2\n3,\"4\n5,6\n", "a quote in the row that begins in line 3 is not closed"),
        ("a,b\n1,2\n3,\"4\"\"", "a quote in the row that begins in line 3 is not closed"),
        ("a,\"b\n1,2\n", "a quote in the row that begins in line 1 is not closed"),
    ] {
        let expected = format!("the text of the result is not CSV, as its `parse` requires: {why}");
        assert_eq!(parsed("csv", &[text]).await, Err(expected), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn csv_is_not_parsed_beyond_the_shared_memory_limit() {
    let text = "a\n".to_owned() + &"1\n".repeat(100);
    let plan = workflow(&json!([
        { "id": "a", "tool": "says", "arguments": { "texts": [text] }, "parse": "csv" }
    ]));
    let scope = |max: usize| {
        Scope::new(CallLimits::default().max_result_bytes(max), Duration::from_secs(600))
    };
    let of = async |max: usize| {
        run(&plan, RunState::new(json!({}), 1), &scope(max), World::new().caller()).await
    };
    // Each row takes at least 640 bytes, of which 16 times the limit are allowed.
    assert_eq!(error(&of(100 * 640 / 16).await, 0).kind, ErrorKind::Limit);
    assert!(outcome(&of(100 * 800 / 16).await, 0).is_success());
}

#[tokio::test(start_paused = true)]
async fn structured_or_empty_result_is_not_parsed() {
    let reads = json!({ "output": "$steps.a.output" });
    let step = json!({ "parse": "json" });
    let mut result = CallToolResult::success(vec![ContentBlock::text("no JSON")]);
    result.structured_content = Some(json!({ "a": 1 }));
    let seen = read_both_ways(result, step.clone(), reads.clone()).await;
    assert_eq!(seen, json!({ "output": { "a": 1 } }));
    let seen = read_both_ways(CallToolResult::success(vec![]), step, reads).await;
    assert_eq!(seen, json!({ "output": {} }));
}

#[tokio::test(start_paused = true)]
async fn failed_tool_has_no_output() {
    let mut result = CallToolResult::error(vec![ContentBlock::text("no")]);
    result.structured_content = Some(json!({ "a": 1 }));
    let reads = json!({ "output": "$steps.a.output?", "why": "$steps.a.error.message" });
    let seen = read_both_ways(result, json!({ "continue": true }), reads).await;
    assert_eq!(seen, json!({ "why": "no" }));
}

#[tokio::test(start_paused = true)]
async fn default_replaces_only_a_missing_output() {
    let reads = json!({ "x": "$steps.a.output" });
    let step = json!({ "continue": true, "default_results": "default" });
    let result = CallToolResult::structured(json!({ "a": 1 }));
    let seen = read_both_ways(result, step.clone(), reads.clone()).await;
    assert_eq!(seen, json!({ "x": { "a": 1 } }));
    let seen = read_both_ways(CallToolResult::error(vec![]), step, reads).await;
    assert_eq!(seen, json!({ "x": "default" }));
}

#[tokio::test(start_paused = true)]
async fn record_keeps_only_the_parts_of_a_result_that_are_read() {
    let record = |state: &RunState| serde_json::to_value(&outcome(state, 0).record).unwrap();
    let text = json!({ "text": "first" });
    // If the result is kept, the record contains no copies of its values.
    let structured = CallToolResult::structured(json!({ "a": 1 }));
    let reads = json!({ "x": "$steps.a.output" });
    let (_, state) = read(structured, json!({}), reads, RunOutput::Outcomes).await;
    assert_eq!(record(&state), Value::Null);
    let reads = json!({ "x": "$steps.a.text" });
    let (_, state) = read(rich(), json!({}), reads, RunOutput::Outcomes).await;
    assert_eq!(record(&state), text);

    // If the result is not kept, only the values that are read are kept.
    let properties = json!({ "x": { "type": "string", "value": "$steps.a.text" } });
    let answer = RunOutput::Output(output(&["a"], &properties, &[]));
    let (_, state) = read(rich(), json!({}), json!({}), answer).await;
    assert_eq!(record(&state), text);
}

#[tokio::test(start_paused = true)]
async fn text_that_is_not_json_fails_the_step() {
    let world = World::new();
    let plan = workflow(
        &json!([{ "id": "a", "tool": "says", "arguments": { "texts": ["{\"a\": secret"] },
        "parse": "json", "retry": { "count": 1 } }]),
    );
    let state = world.run(&plan, json!({})).await;
    let StepError { kind, message, .. } = error(&state, 0);
    assert_eq!(*kind, ErrorKind::Tool);
    assert_eq!(
        message,
        "the text of the result is not JSON, as its `parse` requires: expected value at line 1 column 7"
    );
    assert_eq!(outcome(&state, 0).attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn output_is_dropped_after_its_last_reader() {
    let plan = workflow(&json!([
        { "id": "a", "arguments": { "x": 1 } },
        { "id": "b", "arguments": { "x": "$steps.a.output.x" } },
        { "id": "slow", "tool": "sleeps",
            "arguments": { "seconds": 1, "a": "$steps.a.output", "b": "$steps.b.output" } },
        { "id": "unread", "arguments": { "x": 2 } },
        { "id": "hangs", "depends_on": ["slow"] },
    ]));
    let context = Context::default();
    let scope = scope(600);
    let world = World::new();
    let mut running =
        Run::new(&plan, RunState::new(json!({ "q": 1 }), 5), &context, &scope, world.caller());
    {
        let mut drive = std::pin::pin!(running.drive());
        assert!(futures::poll!(drive.as_mut()).is_pending());
    }
    let held = |state: &RunState| {
        [0, 1, 2, 3].map(|step| state.outcomes[step].as_ref().is_some_and(|o| o.record.is_some()))
    };
    let state = running.into_state();
    assert_eq!(held(&state), [true, true, false, false], "`slow` still reads them");

    let mut running = Run::new(&plan, state, &context, &scope, world.caller());
    let drive = running.drive();
    assert!(tokio::time::timeout(Duration::from_secs(2), drive).await.is_err(), "`hangs` does");
    let state = running.into_state();
    assert_eq!(held(&state), [false; 4]);
    assert!(state.outcomes.iter().flatten().all(|outcome| outcome.result.is_none()));
}

#[tokio::test(start_paused = true)]
async fn run_keeps_only_the_last_declared_completed_result() {
    let step = |id: &str, seconds: u64| {
        json!({ "id": id, "tool": "sleeps", "arguments": { "seconds": seconds, "id": id },
            "continue": true })
    };
    // Tests different orders in which the steps finish.
    for seconds in [[1, 2, 3], [3, 2, 1], [2, 3, 1], [1, 3, 2]] {
        let plan = workflow(&json!([
            step("a", seconds[0]),
            step("b", seconds[1]),
            step("c", seconds[2]),
            { "id": "d", "tool": "fails", "continue": true },
            { "id": "e", "condition": "$input.no" },
            { "id": "f", "condition": "$steps.a.output.no", "continue": true },
        ]));
        let state = run_new(&plan, json!({ "no": false })).await;
        let kept = |state: &RunState| {
            let outcomes = state.outcomes.iter().enumerate();
            let kept = outcomes.filter(|(_, outcome)| {
                let outcome = outcome.as_ref().unwrap();
                outcome.result.is_some() || outcome.record.is_some()
            });
            kept.map(|(step, _)| step).collect::<Vec<_>>()
        };
        assert_eq!(kept(&state), [2], "{seconds:?}");
        assert_eq!(state.last_completed(&plan), Some(2));
        let result = outcome(&state, 2).result.as_ref().unwrap();
        assert_eq!(result.structured_content.as_ref().unwrap()["id"], "c");
    }
}

#[tokio::test(start_paused = true)]
async fn result_that_is_also_read_is_held_once() {
    // The result of `a` may be the answer only if `b` may be skipped.
    let plan = workflow(&json!([
        { "id": "a", "arguments": { "x": 1 } },
        { "id": "b", "condition": "$steps.a.output.x?", "continue": true },
        { "id": "c", "condition": "$input.last", "arguments": { "x": "$steps.a.output.x" } },
    ]));
    let world = World::new();
    let state = world.run(&plan, json!({ "last": true })).await;
    assert_eq!(world.arguments_of("c"), Some(json!({ "x": 1 })));
    assert!(outcome(&state, 0).result.is_none() && outcome(&state, 0).record.is_none());

    let state = world.run(&plan, json!({ "last": false })).await;
    assert_eq!(state.last_completed(&plan), Some(0));
    let result = outcome(&state, 0).result.as_ref().unwrap();
    assert_eq!(result.structured_content, Some(json!({ "x": 1 })));
    assert!(outcome(&state, 0).record.is_none());
}

#[tokio::test(start_paused = true)]
async fn loop_record_can_be_the_answer_after_it_is_read() {
    let plan = workflow(&json!([
        { "id": "loop", "collection": [1], "arguments": { "x": "$item" } },
        { "id": "reads", "tool": "fails", "continue": true,
            "arguments": { "x": "$steps.loop.output.count" } },
    ]));
    let mut state = run_new(&plan, json!({})).await;
    assert_eq!(state.last_completed(&plan), Some(0));
    let answer = state.outcomes[0].as_mut().unwrap().take_output().unwrap();
    assert_eq!(answer["iterations"][0]["output"], json!({ "x": 1 }));
}

#[tokio::test(start_paused = true)]
async fn input_is_kept_only_while_a_step_or_the_output_needs_it() {
    let of_step = |arguments: Option<Value>| {
        let mut step = json!({ "id": "b", "depends_on": ["a"] });
        if let Some(arguments) = arguments {
            step["arguments"] = arguments;
        }
        json!([{ "id": "a" }, step, { "id": "hangs", "arguments": {}, "depends_on": ["b"] }])
    };
    for arguments in [None, Some(json!({ "q": "$input.q" })), Some(json!({ "q": 1 }))] {
        let world = World::new();
        let plan = workflow(&of_step(arguments));
        let state = RunState::new(json!({ "q": 1 }), 3);
        let state = run(&plan, state, &scope(1), world.caller()).await;
        assert_eq!(world.arguments_of("b"), Some(json!({ "q": 1 })));
        assert_eq!(state.input, Value::Null);
    }
    let answer = output(&["a"], &json!({ "q": { "type": "integer", "value": "$input.q" } }), &[]);
    let plan = plan(&json!([{ "id": "a" }]), 10, RunOutput::Output(answer));
    let state = run_new(&plan, json!({ "q": 1 })).await;
    assert_eq!(state.input, json!({ "q": 1 }), "the answer needs it");
}

/// Runs a plan until only hanging calls are left, and returns the state of the run.
async fn while_something_hangs(plan: &Plan, input: Value) -> RunState {
    let (context, scope, world) = (Context::default(), scope(600), World::new());
    let state = RunState::new(input, plan.steps().len());
    let mut running = Run::new(plan, state, &context, &scope, world.caller());
    assert!(futures::poll!(Box::pin(running.drive())).is_pending());
    running.into_state()
}

#[tokio::test(start_paused = true)]
async fn input_is_dropped_after_its_last_reader() {
    let reads = json!({ "id": "a", "arguments": { "q": "$input.q" } });
    let hangs = json!({ "id": "hangs", "arguments": {}, "depends_on": ["a"] });
    let passes = json!({ "id": "later", "depends_on": ["hangs"] });
    let state = while_something_hangs(&workflow(&json!([reads, hangs])), json!({ "q": 1 })).await;
    assert_eq!(state.input, Value::Null);
    let plan = workflow(&json!([reads, hangs, passes]));
    let state = while_something_hangs(&plan, json!({ "q": 1 })).await;
    assert_eq!(state.input, json!({ "q": 1 }), "`later` needs it");
}

#[tokio::test(start_paused = true)]
async fn result_is_kept_if_skip_remaining_may_return_it() {
    for (on_decline, expected) in [("skip_remaining", true), ("continue", false)] {
        let plan = workflow(&json!([
            { "id": "a", "arguments": {} },
            { "id": "hangs", "arguments": {}, "depends_on": ["a"] },
            { "id": "ask", "message": "go on?", "on_decline": on_decline, "continue": true,
                "depends_on": ["hangs"] },
            { "id": "last", "arguments": {}, "depends_on": ["ask"] },
        ]));
        let state = while_something_hangs(&plan, json!({})).await;
        assert_eq!(outcome(&state, 0).result.is_some(), expected, "{on_decline}");
    }
}

#[test]
fn null_output_survives_serialization() {
    let mut outcome = Outcome::skipped();
    outcome.set_output(Value::Null);
    let text = serde_json::to_string(&outcome).unwrap();
    let again: Outcome = serde_json::from_str(&text).unwrap();
    assert_eq!(again.field(Field::Output).as_deref(), Some(&Value::Null));
}

#[tokio::test(start_paused = true)]
async fn error_is_copied_once_however_often_it_is_read() {
    let plan = workflow(&json!([
        { "id": "a", "tool": "refuses", "continue": true, "arguments": {} },
        { "id": "b", "tool": "refuses", "continue": true, "arguments": {} },
        { "id": "c", "tool": "hangs", "timeout": 1,
            "arguments": { "why": "$steps.a.error.data", "b": "$steps.b.status" } },
    ]));
    let world = World::new();
    let (context, scope) = (Context::default(), scope(600));
    let mut run = Run::new(&plan, RunState::new(json!({}), 3), &context, &scope, world.caller());
    // The record is dropped after the last step that reads it has finished.
    assert!(futures::poll!(Box::pin(run.drive())).is_pending());
    let state = run.into_state();
    assert_eq!(world.arguments_of("c").unwrap()["why"], json!({ "why": "so" }));
    let read = |step| outcome(&state, step).field(Field::Error).unwrap();
    assert!(matches!(read(0), std::borrow::Cow::Borrowed(_)));
    assert_eq!(read(0), read(1), "whether anybody reads it or not");
    assert!(outcome(&state, 1).record.is_none());
}

#[tokio::test(start_paused = true)]
async fn texts_are_not_parsed_beyond_the_shared_memory_limit() {
    // The parsed value of each text takes about 7 KB of memory.
    let text = format!("[{}0]", r#"{"":0},"#.repeat(10));
    let plan = workflow(&json!([{ "id": "a", "tool": "says", "collection": [1, 2, 3],
        "arguments": { "texts": [text] }, "parse": "json", "continue": true, "max_parallel": 1 }]));
    let limits = CallLimits::default().max_result_bytes(1_000);
    let scope = Scope::new(limits, Duration::from_secs(600));
    let state = RunState::new(json!({}), 1);
    let state = run(&plan, state, &scope, World::new().caller()).await;
    let iterations = &output_of(&state, 0).unwrap()["iterations"];
    assert_eq!(iterations[1]["output"].as_array().map(Vec::len), Some(11));
    let message =
        "the values of texts would take more than 16 times `max_result_bytes`, which is 1000";
    assert_eq!(iterations[2]["error"], json!({ "kind": "limit", "message": message }));
}
