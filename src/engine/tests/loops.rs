use rmcp::model::JsonObject;

use super::{
    super::{branches::BranchId, limits::RunLimits},
    *,
};

fn picky(step: &Value) -> Value {
    let mut picky = json!({ "id": "loop", "tool": "picky", "collection": "$input.items",
        "arguments": { "item": "$item", "bad": "$item.bad?", "index": "$index" } });
    for (key, value) in step.as_object().unwrap() {
        picky[key] = value.clone();
    }
    picky
}

#[tokio::test(start_paused = true)]
async fn loop_calls_each_element_and_returns_outputs_in_order() {
    let world = World::new();
    let plan = workflow(&json!([
        { "id": "loop", "tool": "sleeps", "collection": "$input.items", "max_parallel": 2,
            "arguments": { "seconds": "$item.seconds", "index": "$index", "q": "$input.q" } },
        { "id": "after", "arguments": {
            "count": "$steps.loop.output.count",
            "first": "$steps.loop.output.iterations[0].output",
        } },
    ]));
    let items = json!([{ "seconds": 3 }, { "seconds": 1 }, { "seconds": 1 }]);
    let state = world.run(&plan, json!({ "items": items, "q": "x" })).await;

    assert_eq!(world.started(), ["loop[0]", "loop[1]", "loop[2]", "after"]);
    let ended: Vec<_> = world.events().into_iter().filter(|event| event.what == "ends").collect();
    assert_eq!(ended[0].branch, "loop[1]", "not the first, and yet");
    let expected = json!({ "count": 3, "first": { "seconds": 3, "index": 0, "q": "x" } });
    assert_eq!(world.arguments_of("after"), Some(expected));
    let Outcome { status, attempts, duration_ms, .. } = outcome(&state, 0);
    assert_eq!((*status, *attempts, *duration_ms), (Status::Completed, 3, 3000));
}

#[tokio::test(start_paused = true)]
async fn loop_output_lists_every_element() {
    let plan = workflow(&json!([picky(&json!({ "continue": true }))]));
    let state = run_new(&plan, json!({ "items": ["x", { "bad": true }, "z"] })).await;
    let expected = json!({
        "iterations": [
            { "index": 0, "item": "x", "status": "completed",
                "output": { "item": "x", "index": 0 } },
            { "index": 1, "item": { "bad": true }, "status": "failed",
                "error": { "kind": "tool", "message": "bad item" } },
            { "index": 2, "item": "z", "status": "completed",
                "output": { "item": "z", "index": 2 } },
        ],
        "count": 3,
        "completed": 2,
        "failed": 1,
    });
    assert_eq!(output_of(&state, 0), Some(expected));
    assert_eq!((state.failed, statuses(&state)[0]), (None, Status::Completed));
}

#[tokio::test(start_paused = true)]
async fn loop_without_elements_calls_no_tool() {
    let world = World::new();
    let state = world.run(&workflow(&json!([picky(&json!({}))])), json!({ "items": "[]" })).await;
    assert_eq!(world.started(), [""; 0]);
    let expected = json!({ "iterations": [], "count": 0, "completed": 0, "failed": 0 });
    assert_eq!((statuses(&state)[0], outcome(&state, 0).attempts), (Status::Completed, 0));
    assert_eq!(output_of(&state, 0), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn failed_element_fails_the_loop() {
    let world = World::new();
    let items: Vec<_> = (0..9).map(|at| json!({ "bad": at == 3 })).collect();
    let step = picky(&json!({ "max_parallel": 4, "default_results": "none" }));
    let plan =
        workflow(&json!([step, { "id": "after", "arguments": { "x": "$steps.loop.output" } }]));
    let state = world.run(&plan, json!({ "items": items })).await;
    let expected = StepError::new(ErrorKind::Tool, "element 3: bad item");
    assert_eq!((error(&state, 0), state.failed), (&expected, Some(0)));
    assert!(world.start_of("after").is_none());
}

#[tokio::test(start_paused = true)]
async fn failed_element_cancels_the_others() {
    let world = World::new();
    let plan = workflow(&json!([
        { "id": "loop", "tool": "fails_late", "collection": [9, 2, 9, 9], "max_parallel": 3,
            "arguments": { "seconds": "$item" } },
    ]));
    let state = world.run(&plan, json!({})).await;
    assert_eq!(error(&state, 0).message, "element 1: no");
    assert_eq!(world.begun.elapsed().as_secs(), 2);
    assert_eq!(world.started(), ["loop[0]", "loop[1]", "loop[2]"]);
    assert_eq!(outcome(&state, 0).attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn too_many_elements_fail_the_step_before_any_call() {
    let world = World::new();
    let plan = workflow(&json!([picky(&json!({ "max_iterations": 5, "retry": { "count": 1 } }))]));
    let state = world.run(&plan, json!({ "items": [1, 2, 3, 4, 5, 6] })).await;
    let expected = "6 elements: expected at most 5 (`max_iterations`)";
    assert_eq!((error(&state, 0).kind, &*error(&state, 0).message), (ErrorKind::Limit, expected));
    assert_eq!(world.started(), [""; 0]);
    let state = world.run(&plan, json!({ "items": [1, 2, 3, 4, 5] })).await;
    assert_eq!(state.failed, None);
}

#[tokio::test(start_paused = true)]
async fn loop_counts_as_one_step_and_obeys_its_own_max_parallel() {
    for (max_parallel, seconds) in [(1, 6), (2, 3), (3, 2), (50, 1)] {
        let world = World::new();
        let steps = json!([
            { "id": "loop", "tool": "sleeps", "collection": [1, 1, 1, 1, 1, 1],
                "max_parallel": max_parallel, "arguments": { "seconds": "$item" } },
            { "id": "last" },
        ]);
        world.run(&plan(&steps, 1, RunOutput::Last), json!({})).await;
        assert_eq!(world.start_of("last"), Some(seconds), "{max_parallel} at a time");
    }
}

#[tokio::test(start_paused = true)]
async fn elements_are_retried_and_time_out_individually() {
    let world = World::flaky(2);
    let retry = json!({ "count": 2, "delay": 0.1 });
    let steps = json!([{ "id": "loop", "tool": "flaky", "collection": [1, 2, 3], "max_parallel": 1,
        "arguments": { "item": "$item" }, "retry": retry }]);
    let state = world.run(&workflow(&steps), json!({})).await;
    assert_eq!(world.started(), ["loop[0]", "loop[0]", "loop[0]", "loop[1]", "loop[2]"]);
    assert_eq!((statuses(&state)[0], outcome(&state, 0).attempts), (Status::Completed, 5));

    let world = World::new();
    let steps = json!([{ "id": "loop", "tool": "sleeps", "collection": [1, 9, 2], "max_parallel": 1,
        "arguments": { "seconds": "$item" }, "timeout": 3, "continue": true }]);
    let state = world.run(&workflow(&steps), json!({})).await;
    let iterations = &output_of(&state, 0).unwrap()["iterations"];
    let of_each = |key: &str| [0, 1, 2].map(|at: usize| iterations[at][key].clone());
    assert_eq!(of_each("status"), ["completed", "timed_out", "completed"]);
    assert_eq!(iterations[1]["error"]["message"], "no answer within 3s");
    assert_eq!(world.begun.elapsed().as_secs(), 6);
}

#[tokio::test(start_paused = true)]
async fn element_with_missing_arguments_fails_alone() {
    let world = World::new();
    let steps = json!([{ "id": "loop", "tool": "echo", "collection": [{ "x": 1 }, {}, { "x": 3 }],
        "max_parallel": 1, "arguments": { "x": "$item.x" }, "continue": true }]);
    let state = world.run(&workflow(&steps), json!({})).await;
    assert_eq!(world.started(), ["loop[0]", "loop[2]"]);
    let output = output_of(&state, 0).unwrap();
    assert_eq!(
        output["iterations"][1]["error"],
        json!({ "kind": "definition", "message": "`$item.x` has no value" })
    );
    assert_eq!((&output["completed"], &output["failed"]), (&json!(2), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn loop_without_a_callable_element_fails_despite_continue() {
    let missing = "no element was called; element 0: `$item.x` has no value";
    for (items, defaults, message, failed) in [
        (json!([{}, { "y": 1 }]), None, Some(missing), Some(0)),
        (json!([{}]), None, Some(missing), Some(0)),
        (json!([{}]), Some(json!({ "count": 0 })), Some(missing), None),
        (json!([{}, { "x": 1 }]), None, None, None),
        (json!([]), None, None, None),
    ] {
        let mut step = json!({ "id": "loop", "tool": "echo", "collection": items,
            "arguments": { "x": "$item.x" }, "continue": true });
        if let Some(defaults) = defaults {
            step["default_results"] = defaults;
        }
        let world = World::new();
        let state = world.run(&workflow(&json!([step])), json!({})).await;
        assert_eq!(state.failed, failed, "{step}");
        let error = outcome(&state, 0).error.as_deref();
        assert_eq!(error.map(|error| &*error.message), message, "{step}");
        assert!(error.is_none_or(|error| error.kind == ErrorKind::Definition), "{step}");
    }
}

#[tokio::test(start_paused = true)]
async fn loop_whose_elements_fail_at_their_tool_completes() {
    let plan = workflow(&json!([picky(&json!({ "continue": true }))]));
    let state = run_new(&plan, json!({ "items": [{ "bad": true }, { "bad": true }] })).await;
    assert_eq!((state.failed, statuses(&state)[0]), (None, Status::Completed));
}

#[tokio::test(start_paused = true)]
async fn simultaneous_failures_of_many_elements_are_all_reported() {
    let items = (0..1000).map(|at| if at == 500 { json!({ "x": 1 }) } else { at.into() });
    let items = items.collect::<Vec<Value>>();
    let steps = json!([{ "id": "loop", "collection": items, "arguments": { "x": "$item.x" },
        "continue": true }]);
    let state = run_new(&workflow(&steps), json!({})).await;
    let output = output_of(&state, 0).unwrap();
    assert_eq!(output["iterations"].as_array().unwrap().len(), 1000);
    assert_eq!(output["failed"], 999);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elements_on_several_threads_are_returned_in_order() {
    let items: Vec<_> = (0..500).collect();
    let steps = json!([
        { "id": "a", "tool": "yields", "collection": items, "arguments": { "x": "$item" } },
        { "id": "b", "tool": "yields", "collection": "$steps.a.output.iterations",
            "max_parallel": 50, "arguments": { "x": "$item.output.x" } },
    ]);
    let state = run_new(&workflow(&steps), json!({})).await;
    let output = output_of(&state, 1).unwrap();
    let outputs = output["iterations"].as_array().unwrap().iter();
    let outputs: Vec<_> = outputs.map(|iteration| iteration["output"]["x"].as_u64()).collect();
    assert_eq!(outputs, (0..500).map(Some).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn collection_text_with_an_oversized_value_is_rejected() {
    let text = format!("[{}0]", r#"{"":0},"#.repeat(30_000));
    let state = run_new(&workflow(&json!([picky(&json!({}))])), json!({ "items": text })).await;
    assert_eq!(
        error(&state, 0).message,
        "collection: it is a text whose value is too large: expected an array, or a text that is a JSON array"
    );
}

/// A caller that uses up a call elsewhere just before each call of the run, so that the limit is
/// reached in between.
struct Late(Scope);

impl Caller for Late {
    fn prepare(&mut self, _: usize, arguments: JsonObject) -> Result<JsonObject, StepError> {
        self.0.count_call()?;
        Ok(arguments)
    }

    fn call(&mut self, _: Call) -> impl Future<Output = Called> + Send + 'static {
        std::future::ready(Ok(CallToolResult::success(vec![]).into()))
    }
}

#[tokio::test(start_paused = true)]
async fn step_or_loop_without_remaining_calls_is_skipped() {
    let limits = RunLimits { max_calls: Some(1), ..RunLimits::default() };
    for steps in [
        json!([{ "id": "loop", "collection": [1, 2], "arguments": {} }]),
        json!([{ "id": "step", "arguments": {} }]),
    ] {
        let plan = workflow(&steps);
        let scope = scope(600).of_run(&plan.name, limits, &Context::default(), None);
        let caller = Late(scope.clone());
        let state = run(&plan, RunState::new(json!({}), 1), &scope, caller).await;
        assert_eq!(statuses(&state), [Status::Skipped]);
        assert_eq!(error(&state, 0).message, "`max_calls`, which is 1, was reached");
        assert!(state.reached.is_some() && state.failed.is_none());
        assert_eq!(state.skipped_elements, []);
    }
}

#[tokio::test(start_paused = true)]
async fn elements_without_remaining_calls_are_skipped() {
    let limits = RunLimits { max_calls: Some(3), ..RunLimits::default() };
    let plan = workflow(&json!([{ "id": "loop", "collection": [1, 2, 3], "arguments": {} }]));
    let scope = scope(600).of_run(&plan.name, limits, &Context::default(), None);
    let state = run(&plan, RunState::new(json!({}), 1), &scope, Late(scope.clone())).await;
    assert_eq!(output_of(&state, 0).unwrap()["completed"], 1);
    assert_eq!(state.skipped_elements, [1, 2].map(|element| BranchId { step: 0, element }));
}

#[tokio::test(start_paused = true)]
async fn failure_after_a_reached_limit_still_fails_the_run() {
    let limits = RunLimits { max_calls: Some(1), ..RunLimits::default() };
    for (steps, expected, message) in [
        (
            json!([
                { "id": "a", "tool": "fails_late", "arguments": { "seconds": 1 } },
                { "id": "b", "arguments": {} },
            ]),
            vec![Status::Failed, Status::Skipped],
            "no",
        ),
        (
            json!([{ "id": "a", "tool": "fails_late", "collection": [1, 2],
                "arguments": { "seconds": 1 } }]),
            vec![Status::Failed],
            "element 0: no",
        ),
    ] {
        let plan = workflow(&steps);
        let scope = scope(600).of_run(&plan.name, limits, &Context::default(), None);
        let state = RunState::new(json!({}), plan.steps().len());
        let state = run(&plan, state, &scope, World::new().caller()).await;
        assert_eq!((statuses(&state), state.failed), (expected, Some(0)), "{steps}");
        assert_eq!(error(&state, 0).message, message);
    }
}

#[tokio::test(start_paused = true)]
async fn delay_separates_the_calls_of_a_loop() {
    for (max_parallel, starts) in [(1, [0, 1 + 3, 4 + 1 + 3]), (2, [0, 3, 6])] {
        let world = World::new();
        let steps = json!([{ "id": "loop", "tool": "sleeps", "collection": [1, 1, 1], "delay": 3,
            "max_parallel": max_parallel, "arguments": { "seconds": "$item" } }]);
        let state = world.run(&workflow(&steps), json!({})).await;
        let started = [0, 1, 2].map(|element| world.start_of(&format!("loop[{element}]")));
        assert_eq!((statuses(&state), started), (vec![Status::Completed], starts.map(Some)));
    }
}

#[tokio::test(start_paused = true)]
async fn first_success_cancels_running_elements_and_skips_the_rest() {
    let world = World::new();
    let plan = workflow(&json!([{ "id": "loop", "tool": "sleeps", "collection": [5, 2, 9, 1],
        "max_parallel": 3, "end": "first_success", "arguments": { "seconds": "$item" } }]));
    let state = world.run(&plan, json!({})).await;
    let output = outcome(&state, 0).clone().take_any_output().unwrap();
    let status = |element: usize| output["iterations"][element]["status"].clone();
    let statuses = [0, 1, 2, 3].map(status);
    assert_eq!(statuses, ["cancelled", "completed", "cancelled", "skipped"]);
    assert_eq!(output["first_success"], output["iterations"][1]);
    assert_eq!((&output["failed"], &output["cancelled"]), (&json!(0), &json!(2)));
    assert_eq!((world.begun.elapsed().as_secs(), outcome(&state, 0).attempts), (2, 3));
    assert_eq!(world.start_of("loop[3]"), None);
}

#[tokio::test(start_paused = true)]
async fn loop_without_any_success_fails() {
    let steps = |items: &Value, continues: bool| {
        let picky = picky(&json!({ "end": "first_success", "collection": items,
            "max_parallel": 1, "continue": continues }));
        workflow(&json!([picky, { "id": "after", "arguments": {}, "depends_on": ["loop"] }]))
    };
    let bad = json!({ "bad": true });
    for (items, calls, message) in [
        (json!([bad, bad]), 2, "none of 2 elements succeeded, and the last failed: bad item"),
        (json!([]), 0, "no element succeeded: there are none"),
    ] {
        let world = World::new();
        let state = world.run(&steps(&items, false), json!({})).await;
        assert_eq!(statuses(&state), [Status::Failed, Status::Skipped]);
        assert_eq!((&*error(&state, 0).message, world.started().len()), (message, calls));
        let state = run_new(&steps(&items, true), json!({})).await;
        assert_eq!(statuses(&state), [Status::Failed, Status::Completed]);
    }
    // A failure before the success does not end the loop.
    let state = run_new(&steps(&json!([bad, {}, {}]), false), json!({})).await;
    assert_eq!(statuses(&state), [Status::Completed; 2]);
}

#[tokio::test(start_paused = true)]
async fn limit_before_the_first_success_skips_the_rest() {
    let limits = RunLimits { max_calls: Some(1), ..RunLimits::default() };
    let plan = workflow(&json!([picky(&json!({ "end": "first_success", "max_parallel": 1,
        "collection": [{ "bad": true }, {}] }))]));
    let scope = scope(600).of_run(&plan.name, limits, &Context::default(), None);
    let state = RunState::new(json!({}), 1);
    let state = run(&plan, state, &scope, World::new().caller()).await;
    assert_eq!((statuses(&state), state.failed), (vec![Status::Failed], None));
    assert!(error(&state, 0).ends_run && state.reached.is_some());
}
