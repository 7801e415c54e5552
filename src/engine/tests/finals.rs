//! Finally steps, which run after the outcome of a run is decided.

use proptest::prelude::*;

use super::{
    super::{limits::RunLimits, question::Response},
    properties::{block_on, ends, input, random_plan},
    *,
};

/// A run with its finally steps, by a client that can be asked.
async fn run_all(world: &World, plan: &Plan, state: RunState, scope: &Scope) -> RunState {
    let mut context = Context::default();
    let key = "io.modelcontextprotocol/clientCapabilities".to_owned();
    context.meta_mut().insert(key, json!({ "elicitation": {} }));
    let settled = scope.of_finals(plan.grace().unwrap_or_default(), Instant::now());
    let scope = if state.is_settled() { &settled } else { scope };
    let mut run = Run::new(plan, state, &context, scope, world.caller());
    run.drive().await;
    if !run.has_finals_left() {
        return *run.into_settled_parts().0;
    }
    let scope = scope.of_finals(plan.grace().unwrap_or_default(), Instant::now());
    let mut run = run.into_finals(&scope, None);
    run.drive().await;
    *run.into_settled_parts().0
}

async fn run_new(plan: &Plan, seconds: u64) -> (RunState, World) {
    let world = World::new();
    let state = RunState::new(json!({}), plan.steps().len());
    (run_all(&world, plan, state, &scope(seconds)).await, world)
}

/// Returns a plan of these steps and an `undo` step, which depends on the status of `create`.
fn with_undo(steps: &Value) -> Plan {
    let mut steps = steps.as_array().unwrap().clone();
    steps.push(json!({
        "id": "undo", "tool": "echo", "finally": {}, "arguments": { "n": "$steps.create.output.n?" },
        "condition": "steps.create.status == 'completed'",
    }));
    workflow(&steps.into())
}

#[tokio::test(start_paused = true)]
async fn finally_step_runs_after_all_others_whatever_their_outcome() {
    let create = json!({ "id": "create", "arguments": { "n": 1 } });
    let completed = Status::Completed;
    for (step, status, failed, timed_out, undone) in [
        (json!({ "id": "next", "arguments": {} }), completed, None, false, 0),
        (json!({ "id": "next", "tool": "fails" }), Status::Failed, Some(1), false, 0),
        (json!({ "id": "next", "tool": "hangs" }), Status::TimedOut, None, true, 20),
        (
            json!({ "id": "next", "tool": "fails_late", "arguments": { "seconds": 3 } }),
            Status::Failed,
            Some(1),
            false,
            3,
        ),
        (json!({ "id": "next", "stop": "enough" }), completed, None, false, 0),
    ] {
        let mut step = step;
        step["depends_on"] = json!(["create"]);
        let later = json!({ "id": "later", "arguments": {}, "depends_on": ["next"] });
        let is_ordinary = status == completed && step.get("stop").is_none();
        let plan = with_undo(&json!([create, step, later]));
        let (state, world) = run_new(&plan, 20).await;
        let later = if is_ordinary { completed } else { Status::Skipped };
        assert_eq!(statuses(&state), [completed, status, later, completed], "{step}");
        assert_eq!((state.failed, state.timed_out), (failed, timed_out), "{step}");
        assert!(!state.is_settled());
        assert_eq!(world.arguments_of("undo"), Some(json!({ "n": 1 })));
        assert_eq!(world.start_of("undo"), Some(undone), "{step}");
    }
}

#[tokio::test(start_paused = true)]
async fn condition_of_a_finally_step_reads_the_status_of_others() {
    let create = json!({ "id": "create", "tool": "fails", "arguments": {} });
    let (state, world) = run_new(&with_undo(&json!([create])), 20).await;
    assert_eq!(statuses(&state), [Status::Failed, Status::Skipped]);
    assert_eq!((state.failed, world.start_of("undo")), (Some(0), None));
}

#[tokio::test(start_paused = true)]
async fn finally_step_does_not_change_the_outcome() {
    let plan = workflow(&json!([
        { "id": "a", "arguments": { "n": 1 } },
        { "id": "fails", "tool": "fails", "finally": {}, "arguments": {} },
        { "id": "late", "tool": "hangs", "finally": { "grace": 7 }, "arguments": {} },
        { "id": "after", "finally": { "grace": 5 }, "arguments": {}, "depends_on": ["fails"] },
        { "id": "waits", "finally": {}, "arguments": {}, "depends_on": ["late"] },
    ]));
    // The longest grace period is that of the default.
    let (state, world) = run_new(&plan, 100).await;
    let expected =
        [Status::Completed, Status::Failed, Status::TimedOut, Status::Completed, Status::Skipped];
    assert_eq!(statuses(&state), expected);
    assert_eq!((state.failed, state.timed_out, state.ended_by), (None, false, None));
    assert_eq!(world.begun.elapsed().as_secs(), 30);
    assert_eq!(state.last_completed(&plan), Some(0));
    // The result of the answer was not dropped.
    assert!(outcome(&state, 0).result.is_some());
}

#[tokio::test(start_paused = true)]
async fn limit_of_the_run_does_not_apply_to_finally_steps() {
    let create = json!({ "id": "create", "arguments": { "n": 1 } });
    let next = json!({ "id": "next", "arguments": {}, "depends_on": ["create"] });
    let plan = with_undo(&json!([create, next]));
    let limits = RunLimits { max_calls: Some(1), ..RunLimits::default() };
    let scope = scope(600).of_run(&plan.name, limits, &Context::default(), None);
    let world = World::new();
    let state = run_all(&world, &plan, RunState::new(json!({}), 3), &scope).await;
    assert_eq!(statuses(&state), [Status::Completed, Status::Skipped, Status::Completed]);
    assert_eq!(state.limit(), Some("max_calls"));
    assert_eq!(world.started(), ["create", "undo"]);
}

#[tokio::test(start_paused = true)]
async fn finally_step_that_asks_resumes_with_the_same_outcome() {
    let plan = workflow(&json!([
        { "id": "a", "tool": "fails", "arguments": {} },
        { "id": "ask", "message": "Clean up?", "finally": {}, "on_decline": "abort" },
        { "id": "undo", "finally": {}, "arguments": {}, "depends_on": ["ask"] },
    ]));
    let (state, world) = run_new(&plan, 20).await;
    assert!(state.is_settled() && state.fits(&plan) && state.asked.len() == 1);
    assert_eq!(world.start_of("undo"), None);

    for (action, status) in [("accept", Status::Completed), ("decline", Status::Failed)] {
        let sealed = serde_json::to_string(&state).unwrap();
        let mut resumed: RunState = serde_json::from_str(&sealed).unwrap();
        assert!(resumed.fits(&plan));
        let answer = Response::Answer(json!({ "action": action, "content": {} }));
        resumed.answer(&plan, [("ask".to_owned(), answer)].into());
        let world = World::new();
        // The time of the run is over, but not that of the finally steps.
        let resumed = run_all(&world, &plan, resumed, &scope(0)).await;
        assert_eq!(statuses(&resumed), [Status::Failed, status, Status::Completed], "{action}");
        assert_eq!((resumed.failed, resumed.is_settled()), (Some(0), false));
        assert_eq!(world.started(), ["undo"]);
    }
}

#[tokio::test(start_paused = true)]
async fn state_with_finally_steps_of_an_undecided_run_does_not_fit() {
    let plan = workflow(&json!([
        { "id": "a", "arguments": {} },
        { "id": "ask", "message": "Clean up?", "finally": {} },
    ]));
    let (state, _) = run_new(&plan, 20).await;
    assert!(state.fits(&plan));
    let mut undecided = state.clone();
    undecided.settled = None;
    assert!(!undecided.fits(&plan));
    let other = workflow(&json!([
        { "id": "a", "arguments": {} },
        { "id": "ask", "message": "Clean up?" },
    ]));
    assert!(!state.fits(&other));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn finally_step_leaves_a_random_run_as_it_is(
        (mut steps, _, concurrency) in random_plan(),
        tool in prop::sample::select(vec!["echo", "fails", "hangs", "panics"]),
    ) {
        // Random delays before retries could end in another order.
        for step in steps.as_array_mut().unwrap() {
            step["retry"]["count"] = 0.into();
        }
        let count = steps.as_array().unwrap().len();
        // A plan of one step runs in one task, in which calls and timeouts can have another order.
        let concurrency = if count == 1 { 1 } else { concurrency };
        let without = plan(&steps, concurrency, RunOutput::Last);
        steps.as_array_mut().unwrap().push(json!({ "id": "end", "tool": tool, "finally": {},
            "arguments": {} }));
        let with = plan(&steps, concurrency, RunOutput::Last);
        let (expected, found, world) = block_on(async {
            let state = RunState::new(input(), count);
            let expected = run(&without, state, &scope(20), World::new().caller()).await;
            let world = World::new();
            let state = RunState::new(input(), count + 1);
            let found = run_all(&world, &with, state, &scope(20)).await;
            (expected, found, world)
        });
        prop_assert_eq!(&ends(&found)[..count], &ends(&expected)[..]);
        let of = |state: &RunState| (state.failed, state.timed_out, state.ended_by);
        prop_assert_eq!(of(&found), of(&expected));
        let status = match tool {
            "echo" => Status::Completed,
            "hangs" => Status::TimedOut,
            _ => Status::Failed,
        };
        prop_assert_eq!(outcome(&found, count).status, status);
        prop_assert_eq!(found.finished.last(), Some(&count));
        prop_assert!(world.start_of("end").is_some());
    }
}
