//! Loops that repeat a call until a condition holds.

use super::{
    super::{limits::RunLimits, question::Response},
    *,
};

/// Returns a step that echoes the number of its iteration, with further keys.
fn repeat(step: &Value) -> Value {
    let mut repeat = json!({ "id": "poll", "tool": "echo", "until": "last.n == 3",
        "arguments": { "n": "$index", "after": "$last.n?" } });
    for (key, value) in step.as_object().unwrap() {
        repeat[key] = value.clone();
    }
    repeat
}

fn output_with(count: u64) -> Value {
    let output = |n: u64| match n.checked_sub(1) {
        Some(after) => json!({ "n": n, "after": after }),
        None => json!({ "n": n }),
    };
    let iteration = |n| json!({ "index": n, "status": "completed", "output": output(n) });
    let iterations: Vec<_> = (0..count).map(iteration).collect();
    json!({ "last": output(count - 1), "iterations": iterations, "count": count })
}

#[tokio::test(start_paused = true)]
async fn call_is_repeated_with_its_last_output_until_the_condition_holds() {
    let world = World::new();
    let plan = workflow(&json!([
        repeat(&json!({})),
        { "id": "after", "tool": "echo", "arguments": { "last": "$steps.poll.output.last.n" } },
    ]));
    let state = world.run(&plan, json!({})).await;
    assert_eq!(world.started(), ["poll[0]", "poll[1]", "poll[2]", "poll[3]", "after"]);
    assert_eq!(world.arguments_of("poll[0]"), Some(json!({ "n": 0 })));
    assert_eq!(world.arguments_of("poll[3]"), Some(json!({ "n": 3, "after": 2 })));
    assert_eq!(world.arguments_of("after"), Some(json!({ "last": 3 })));
    assert_eq!((outcome(&state, 0).attempts, state.failed), (4, None));
}

#[tokio::test(start_paused = true)]
async fn output_contains_all_iterations() {
    let state = run_new(&workflow(&json!([repeat(&json!({}))])), json!({})).await;
    let output = outcome(&state, 0).clone().take_any_output();
    assert_eq!(output, Some(output_with(4)));
}

#[tokio::test(start_paused = true)]
async fn delay_grows_from_the_end_of_each_iteration() {
    let world = World::new();
    let step = repeat(&json!({ "tool": "sleeps", "arguments": { "seconds": 1, "n": "$index" },
        "delay": 2, "backoff": 3, "max_delay": 10 }));
    let state = world.run(&workflow(&json!([step])), json!({})).await;
    let starts = [0, 1, 2, 3].map(|n| world.start_of(&format!("poll[{n}]")));
    assert_eq!(starts, [0, 1 + 2, 4 + 6, 11 + 10].map(Some));
    assert_eq!((statuses(&state), world.begun.elapsed().as_secs()), (vec![Status::Completed], 22));
}

#[tokio::test(start_paused = true)]
async fn other_steps_run_during_a_delay() {
    let world = World::new();
    let plan = workflow(&json!([
        repeat(&json!({ "until": "last.n == 1", "delay": 5 })),
        { "id": "a", "tool": "sleeps", "arguments": { "seconds": 2 } },
        { "id": "b", "arguments": {}, "depends_on": ["a"] },
        { "id": "c", "arguments": {}, "depends_on": ["poll"] },
    ]));
    world.run(&plan, json!({})).await;
    let starts = ["poll[1]", "b", "c"].map(|step| world.start_of(step));
    assert_eq!(starts, [5, 2, 5].map(Some));
}

#[tokio::test(start_paused = true)]
async fn condition_that_never_holds_fails_the_step() {
    let steps = |more: Value| {
        let mut poll = repeat(&json!({ "max_iterations": 3 }));
        poll.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        workflow(&json!([poll, { "id": "after", "arguments": {}, "depends_on": ["poll"] }]))
    };
    let message = "`last.n == 3` is still false after 3 iterations (`max_iterations`)";
    let state = run_new(&steps(json!({})), json!({})).await;
    assert_eq!(statuses(&state), [Status::Failed, Status::Skipped]);
    assert_eq!(error(&state, 0), &StepError::new(ErrorKind::Limit, message));
    assert_eq!((state.failed, outcome(&state, 0).attempts), (Some(0), 3));

    let state = run_new(&steps(json!({ "continue": true })), json!({})).await;
    assert_eq!(statuses(&state), [Status::Failed, Status::Completed]);
    assert_eq!((&*error(&state, 0).message, state.failed), (message, None));
}

#[tokio::test(start_paused = true)]
async fn failing_iteration_fails_the_step_after_its_retries() {
    let retry = json!({ "count": 2, "delay": 0.1 });
    let step = repeat(&json!({ "tool": "flaky", "retry": retry }));
    let state = World::flaky(2).run(&workflow(&json!([step])), json!({})).await;
    assert_eq!((statuses(&state), outcome(&state, 0).attempts), (vec![Status::Completed], 6));

    let step = repeat(&json!({ "tool": "picky", "continue": true,
        "arguments": { "n": "$index", "bad": "{{ index == 2 }}" } }));
    let after = json!({ "id": "after", "arguments": { "why": "$steps.poll.error.message" } });
    let world = World::new();
    let state = world.run(&workflow(&json!([step, after])), json!({})).await;
    assert_eq!(statuses(&state), [Status::Failed, Status::Completed]);
    assert_eq!(error(&state, 0).message, "iteration 2: bad item");
    assert_eq!(world.started(), ["poll[0]", "poll[1]", "poll[2]", "after"]);
}

#[tokio::test(start_paused = true)]
async fn condition_that_cannot_be_evaluated_fails_the_step() {
    let step = repeat(&json!({ "until": "$last.done" }));
    let state = run_new(&workflow(&json!([step])), json!({})).await;
    assert_eq!(statuses(&state), [Status::Failed]);
    assert_eq!(error(&state, 0).message, "until: `$last.done` has no value");
}

#[tokio::test(start_paused = true)]
async fn timeout_limits_all_iterations_with_their_delays() {
    for (more, calls, seconds, message) in [
        // During a delay.
        (
            json!({ "delay": 4 }),
            3,
            10,
            "`last.n == 9` is still false after 3 iterations (`timeout`)",
        ),
        // During a call.
        (
            json!({ "tool": "sleeps", "arguments": { "seconds": 7, "n": "$index" } }),
            2,
            10,
            "`last.n == 9` is still false after 1 iteration (`timeout`)",
        ),
        // In the first call, whose attempt times out at the same time.
        (json!({ "tool": "hangs" }), 1, 10, "iteration 0: no answer within 10s"),
    ] {
        let world = World::new();
        let mut step = repeat(&json!({ "until": "last.n == 9", "timeout": 10 }));
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let state = world.run(&workflow(&json!([step])), json!({})).await;
        assert_eq!((statuses(&state), state.failed), (vec![Status::TimedOut], Some(0)), "{step}");
        assert_eq!(error(&state, 0).message, message);
        assert_eq!((world.started().len(), world.begun.elapsed().as_secs()), (calls, seconds));
    }
}

#[tokio::test(start_paused = true)]
async fn run_that_ends_during_a_delay_makes_no_further_call() {
    let plan = workflow(&json!([
        repeat(&json!({ "delay": 20 })),
        { "id": "fails", "tool": "fails_late", "arguments": { "seconds": 5 } },
    ]));
    let world = World::new();
    let state = world.run(&plan, json!({})).await;
    assert_eq!(statuses(&state), [Status::Cancelled, Status::Failed]);
    assert_eq!(world.start_of("poll[1]"), None);

    // The deadline of the run.
    let world = World::new();
    let plan = workflow(&json!([repeat(&json!({ "delay": 20 }))]));
    let state = run(&plan, RunState::new(json!({}), 1), &scope(10), world.caller()).await;
    assert_eq!((statuses(&state), state.timed_out), (vec![Status::TimedOut], true));
    assert_eq!((world.started().len(), world.begun.elapsed().as_secs()), (1, 10));
}

#[tokio::test(start_paused = true)]
async fn limit_of_the_run_ends_the_loop_with_its_iterations() {
    for delay in [0, 5] {
        let limits = RunLimits { max_calls: Some(2), ..RunLimits::default() };
        let plan = workflow(&json!([repeat(&json!({ "delay": delay }))]));
        let scope = scope(600).of_run(&plan.name, limits, &Context::default(), None);
        let state = RunState::new(json!({}), 1);
        let state = run(&plan, state, &scope, World::new().caller()).await;
        assert_eq!((statuses(&state), state.failed), (vec![Status::Completed], None), "{delay}");
        let output = outcome(&state, 0).clone().take_any_output().unwrap();
        assert_eq!((&output["last"]["n"], &output["count"]), (&json!(1), &json!(2)));
        assert_eq!(output["iterations"][2]["status"], "skipped");
    }
}

#[tokio::test(start_paused = true)]
async fn run_resumes_in_the_middle_of_a_repetition() {
    // Each iteration asks, so the run is suspended and resumed in every one of them.
    let step = repeat(&json!({ "tool": "asks", "until": "last.n == 9", "delay": 1,
        "arguments": { "n": "$index", "after": "$last.n?", "rounds": 1 } }));
    let plan = workflow(&json!([step, { "id": "after", "arguments": {}, "depends_on": ["poll"] }]));
    let mut rounds = asks::Rounds::go_on(&plan, RunState::new(json!({}), 2), true).await;
    for n in 0..10 {
        let key = format!("poll[{n}]:sure");
        assert_eq!(rounds.questions(), [(key.clone(), "round 0".to_owned())]);
        let answer = json!({ "action": "accept", "content": {} });
        rounds.respond([(key, Response::Answer(answer))].into()).await;
    }
    assert_eq!(rounds.questions(), []);
    assert_eq!(statuses(&rounds.state), [Status::Completed; 2]);
    assert_eq!(rounds.world.arguments_of("poll[7]").unwrap()["after"], 6);
    // Each iteration calls the tool again with the answer, which is no further attempt.
    let calls = rounds.world.started().len();
    assert_eq!((calls, outcome(&rounds.state, 0).attempts), (21, 10));
}

#[tokio::test(start_paused = true)]
async fn state_of_another_loop_does_not_fit() {
    let step = repeat(&json!({ "tool": "asks", "arguments": { "rounds": 1 } }));
    let plan = workflow(&json!([step]));
    let state = asks::Rounds::go_on(&plan, RunState::new(json!({}), 1), true).await.state;
    assert!(state.fits(&plan));
    let mut more = state.clone();
    more.loops[0].items.push(json!(1));
    assert!(!more.fits(&plan));
    let mut more = state.clone();
    more.loops[0].iterations.push(None);
    assert!(!more.fits(&plan));
    // Two iterations do not wait at the same time.
    let mut more = state.clone();
    more.loops[0].iterations.push(None);
    more.loops[0].next = 2;
    let mut question = more.asked[0].clone();
    question.id.element = 1;
    more.asked.push(question);
    assert!(!more.fits(&plan));
    let each = workflow(&json!([{ "id": "poll", "collection": [1], "arguments": {} }]));
    assert!(!state.fits(&each));
}
