use super::*;

#[tokio::test(start_paused = true)]
async fn step_starts_as_soon_as_its_last_dependency_ends() {
    let sleeps = |id: &str, seconds: u64, needs: &[&str]| {
        let arguments = json!({ "seconds": seconds });
        json!({ "id": id, "tool": "sleeps", "arguments": arguments, "depends_on": needs })
    };
    let world = World::new();
    let plan = workflow(&json!([
        sleeps("quick", 1, &[]),
        sleeps("slow", 5, &[]),
        sleeps("after_quick", 2, &["quick"]),
        sleeps("after_that", 1, &["after_quick"]),
        sleeps("after_both", 1, &["quick", "slow"]),
    ]));
    let state = world.run(&plan, json!({})).await;
    let starts = ["quick", "slow", "after_quick", "after_that", "after_both"];
    assert_eq!(
        starts.map(|id| world.start_of(id).unwrap()),
        [0, 0, 1, 3, 5],
        "{:?}",
        world.events()
    );
    assert_eq!(state.finished, [0, 2, 3, 1, 4]);
    let Outcome { started_ms, duration_ms, .. } = *outcome(&state, 4);
    assert_eq!((started_ms, duration_ms), (5000, 1000));
}

#[tokio::test(start_paused = true)]
async fn ready_step_declared_first_starts_first() {
    let world = World::new();
    let plan = plan(
        &json!([
            { "id": "late", "depends_on": ["gate"] },
            { "id": "gate" },
            { "id": "other", "tool": "sleeps", "arguments": { "seconds": 1 } },
            { "id": "last" },
        ]),
        1,
        RunOutput::Last,
    );
    world.run(&plan, json!({})).await;
    assert_eq!(world.started(), ["gate", "late", "other", "last"]);
}

#[tokio::test(start_paused = true)]
async fn running_steps_are_limited_by_max_parallel() {
    let steps: Vec<_> = (0..10)
        .map(
            |at| json!({ "id": format!("s{at}"), "tool": "sleeps", "arguments": { "seconds": 1 } }),
        )
        .collect();
    for (concurrency, seconds) in [(1, 10), (2, 5), (3, 4), (10, 1), (99, 1)] {
        let world = World::new();
        world.run(&plan(&json!(steps), concurrency, RunOutput::Last), json!({})).await;
        assert_eq!(world.begun.elapsed().as_secs(), seconds, "{concurrency} at a time");
    }
}

#[tokio::test(start_paused = true)]
async fn false_condition_skips_the_step_but_not_the_steps_after_it() {
    let world = World::new();
    let plan = workflow(&json!([
        { "id": "skipped", "condition": "$input.no", "default_results": { "x": 1 } },
        { "id": "run", "condition": "$input.yes" },
        { "id": "by_text", "condition": "$input.text" },
        { "id": "after", "arguments": {
            "status": "$steps.skipped.status", "x": "$steps.skipped.output.x",
            "error": "$steps.skipped.error", "text": "$steps.skipped.text?",
        } },
    ]));
    let state = world.run(&plan, json!({ "no": false, "yes": true, "text": "false" })).await;

    use Status::{Completed, Skipped};
    assert_eq!(statuses(&state), [Skipped, Completed, Skipped, Completed]);
    assert_eq!(world.started(), ["run", "after"]);
    let expected = json!({ "status": "skipped", "x": 1, "error": null });
    assert_eq!(world.arguments_of("after"), Some(expected));
    assert_eq!(state.failed, None);
}

#[tokio::test(start_paused = true)]
async fn evaluation_error_fails_the_step_before_its_call() {
    let cases = [
        (json!({ "condition": "$input.no" }), "condition: `$input.no` has no value"),
        (
            json!({ "condition": "$input.n" }),
            "condition: it is a number: expected a boolean, or the text `true` or `false`",
        ),
        (
            json!({ "collection": "$input.n", "arguments": {} }),
            "collection: it is a number: expected an array, or a text that is a JSON array",
        ),
        (
            json!({ "collection": "$input.no", "arguments": {} }),
            "collection: `$input.no` has no value",
        ),
        (json!({ "arguments": { "x": ["$input.no"] } }), "`$input.no` has no value"),
        (json!({ "arguments": "$input.n" }), "the arguments are not an object"),
        (json!({ "arguments": "$input.no?" }), "the arguments are not an object"),
        (
            json!({ "cases": [
                { "when": "$input.yes?", "arguments": { "x": "$input.no" } },
            ] }),
            "`$input.no` has no value",
        ),
        (
            json!({ "cases": [
                { "when": "$input.never", "arguments": {} },
                { "when": "$input.no", "arguments": {} },
            ] }),
            "case 1: `$input.no` has no value",
        ),
    ];
    for (mut step, expected) in cases {
        step["id"] = "a".into();
        // Evaluation errors are not retried, because a retry would have the same error.
        step["retry"] = json!({ "count": 3 });
        let world = World::new();
        let input = json!({ "n": 1, "yes": true, "never": false });
        let state = world.run(&workflow(&json!([step])), input).await;
        let StepError { kind, message, .. } = error(&state, 0);
        assert_eq!((*kind, &**message), (ErrorKind::Definition, expected));
        assert_eq!((state.failed, outcome(&state, 0).attempts), (Some(0), 0));
        assert_eq!(world.started(), [""; 0], "{step}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_step_ends_the_run_and_cancels_running_steps() {
    let world = World::new();
    let plan = workflow(&json!([
        { "id": "hangs" },
        { "id": "loops", "tool": "hangs", "collection": [1, 2], "arguments": {} },
        { "id": "done" },
        { "id": "bad", "tool": "fails_late", "arguments": { "seconds": 2 } },
        { "id": "retries", "tool": "fails", "retry": { "count": 9, "delay": 1e9, "max_delay": 1e9 } },
        { "id": "after", "depends_on": ["bad"] },
    ]));
    let state = world.run(&plan, json!({})).await;
    use Status::{Cancelled, Completed, Failed, Skipped};
    assert_eq!(statuses(&state), [Cancelled, Cancelled, Completed, Failed, Cancelled, Skipped]);
    assert_eq!((state.failed, state.timed_out), (Some(3), false));
    assert_eq!(error(&state, 3), &StepError::new(ErrorKind::Tool, "no"));
    assert_eq!(world.begun.elapsed().as_secs(), 2);
    let made = [0, 1, 4].map(|step| outcome(&state, step).attempts);
    assert_eq!(made, [1, 2, 1]);
    assert!([0, 1, 4].iter().all(|&step| outcome(&state, step).error.is_none()));
}

#[tokio::test(start_paused = true)]
async fn tolerated_failure_provides_its_default_to_later_steps() {
    for tool in ["fails", "refuses", "breaks", "panics", "hangs"] {
        let world = World::new();
        let plan = workflow(&json!([
            {
                "id": "bad", "tool": tool, "timeout": 1, "continue": true,
                "default_results": { "x": "default" },
            },
            { "id": "after", "arguments": {
                "x": "$steps.bad.output.x", "status": "$steps.bad.status",
                "text": "$steps.bad.text?", "content": "$steps.bad.content?",
                "kind": "$steps.bad.error.kind",
            } },
        ]));
        let state = world.run(&plan, json!({})).await;
        let (status, kind) = match tool {
            "fails" => ("failed", "tool"),
            "refuses" => ("failed", "protocol"),
            "breaks" => ("failed", "service"),
            "panics" => ("failed", "panic"),
            _ => ("timed_out", "timeout"),
        };
        assert_eq!(
            world.arguments_of("after"),
            Some(json!({ "x": "default", "status": status, "kind": kind }))
        );
        assert_eq!((state.failed, state.timed_out), (None, false));
        assert!(!error(&state, 0).message.contains("secret"));
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_the_run_even_if_failures_are_tolerated() {
    let world = World::new();
    let plan = workflow(&json!([
        { "id": "done" },
        { "id": "hangs", "continue": true },
        { "id": "loops", "tool": "hangs", "collection": [1, 2], "arguments": {}, "continue": true },
        { "id": "retries", "tool": "fails", "continue": true,
            "retry": { "count": 9, "delay": 1e9, "max_delay": 1e9 } },
        { "id": "after", "depends_on": ["hangs"] },
    ]));
    let state = RunState::new(json!({}), 5);
    let state = run(&plan, state, &scope(3), world.caller()).await;
    use Status::{Completed, Skipped, TimedOut};
    assert_eq!(statuses(&state), [Completed, TimedOut, TimedOut, TimedOut, Skipped]);
    assert!(state.timed_out);
    let messages = [1, 2, 3].map(|step| &*error(&state, step).message);
    let of_retries = "the run ended before it was tried again: no";
    assert_eq!(messages, ["no answer within 3s", "no answer within 3s", of_retries]);
    assert_eq!(world.begun.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn switch_reports_the_case_that_failed_before_its_call() {
    let plan = workflow(&json!([{ "id": "a", "cases": [
        { "when": "input.at == 0", "tool": "x", "arguments": { "y": "$input.missing" } },
        { "when": "input.at == 1", "tool": "y", "arguments": { "y": "$input.missing" } },
        { "when": "input.missing", "tool": "z" },
    ] }]));
    for (at, site) in [(0, Some(0)), (1, Some(1)), (2, None)] {
        let state = run_new(&plan, json!({ "at": at })).await;
        let Outcome { status, site: chosen, attempts, .. } = *outcome(&state, 0);
        assert_eq!((status, chosen, attempts), (Status::Failed, site, 0), "case {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn switch_calls_the_first_case_that_applies() {
    let plan = workflow(&json!([
        {
            "id": "switch",
            "cases": [
                { "when": "$input.first", "tool": "one", "arguments": { "n": 1 } },
                { "when": "$input.second", "tool": "two", "arguments": { "n": 2 } },
            ],
            "default": { "tool": "other", "arguments": { "n": "$input.missing?" } },
        },
        { "id": "after", "arguments": { "n": "$steps.switch.output.n?" } },
    ]));
    let cases = [
        (true, true, 0, json!({ "n": 1 })),
        (true, false, 0, json!({ "n": 1 })),
        (false, true, 1, json!({ "n": 2 })),
        (false, false, 2, json!({})),
    ];
    for (first, second, site, expected) in cases {
        let world = World::new();
        let state = world.run(&plan, json!({ "first": first, "second": second })).await;
        assert_eq!(outcome(&state, 0).site, Some(site));
        assert_eq!(world.arguments_of("switch").as_ref(), Some(&expected));
        assert_eq!(world.arguments_of("after"), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn switch_reports_its_case_however_the_call_ends() {
    for tool in ["fails", "hangs", "panics"] {
        let plan = workflow(&json!([{ "id": "switch", "cases": [
            { "when": "$input.no", "tool": "one" },
            { "when": "$input.yes", "tool": tool },
        ] }]));
        let state = RunState::new(json!({ "yes": true, "no": false }), 1);
        let state = run(&plan, state, &scope(3), World::new().caller()).await;
        assert_eq!(outcome(&state, 0).site, Some(1), "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn switch_without_a_matching_case_or_default_is_skipped() {
    let world = World::new();
    let cases = json!([{ "when": "$input.no", "arguments": {} }]);
    let plan = workflow(&json!([{ "id": "switch", "cases": cases }, { "id": "last" }]));
    let state = world.run(&plan, json!({ "no": "false" })).await;
    assert_eq!(statuses(&state), [Status::Skipped, Status::Completed]);
    assert_eq!(outcome(&state, 0).site, None);
    assert_eq!(world.started(), ["last"]);
}

#[tokio::test(start_paused = true)]
async fn run_has_an_id_and_a_name_if_a_step_reads_them() {
    let world = World::new();
    let plan = workflow(&json!([
        { "id": "a", "arguments": { "id": "$workflow.id", "name": "$workflow.name" } },
        { "id": "b", "arguments": { "id": "$workflow.id", "name": "$workflow.name" } },
    ]));
    let state = world.run(&plan, json!({})).await;
    let arguments = world.arguments_of("a").unwrap();
    assert_eq!(world.arguments_of("b").as_ref(), Some(&arguments));
    assert_eq!(arguments["name"], "test");
    let id = arguments["id"].as_str().unwrap();
    assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    assert_eq!(state.id.as_deref(), Some(id));

    let again = world.run(&plan, json!({})).await;
    assert_ne!(again.id, state.id);
    let nobody_asks = world.run(&workflow(&json!([{ "id": "a" }])), json!({})).await;
    assert_eq!((nobody_asks.id, nobody_asks.name), (None, None));
}

#[tokio::test(start_paused = true)]
async fn serialized_state_resumes_where_the_run_stopped() {
    let plan = plan(
        &json!([
            { "id": "a", "arguments": { "q": "$input.q", "id": "$workflow.id" } },
            { "id": "bad", "tool": "fails", "arguments": {}, "continue": true },
            { "id": "hangs", "arguments": {}, "timeout": 1, "continue": true },
            { "id": "c", "arguments": {
                "a": "$steps.a.output", "bad": "$steps.bad.error", "q": "$input.q",
                "id": "$workflow.id",
            } },
        ]),
        1,
        RunOutput::Last,
    );
    let context = Context::default();
    let scope = scope(600);
    let world = World::new();
    let state = RunState::new(json!({ "q": 1 }), 4);
    let mut begun = Run::new(&plan, state, &context, &scope, world.caller());
    // The run is interrupted while `hangs` runs.
    assert!(futures::poll!(std::pin::pin!(begun.drive())).is_pending());
    let begun = begun.into_state();
    assert_eq!(begun.finished, [0, 1]);
    let text = serde_json::to_string(&begun).unwrap();
    let elsewhere: RunState = serde_json::from_str(&text).unwrap();
    assert_eq!(elsewhere, begun);

    let world = World::new();
    let resumed = run(&plan, elsewhere, &scope, world.caller()).await;
    assert_eq!(world.started(), ["hangs", "c"]);
    let id = &begun.id;
    let expected = json!({
        "a": { "q": 1, "id": id }, "bad": { "kind": "tool", "message": "no" }, "q": 1, "id": id,
    });
    assert_eq!(world.arguments_of("c"), Some(expected));
    let text = serde_json::to_string(&resumed).unwrap();
    assert_eq!(serde_json::from_str::<RunState>(&text).unwrap(), resumed);
}

#[tokio::test(start_paused = true)]
async fn failed_run_makes_no_calls_when_resumed() {
    let plan = workflow(&json!([{ "id": "a" }, { "id": "b" }]));
    let mut state = RunState::new(json!({}), 2);
    state.failed = Some(0);
    let world = World::new();
    let state = run(&plan, state, &scope(600), world.caller()).await;
    assert_eq!(statuses(&state), [Status::Skipped; 2]);
    assert_eq!(world.started(), [""; 0]);
}
