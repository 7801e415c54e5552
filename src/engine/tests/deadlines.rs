use std::{
    future::{poll_fn, ready},
    pin::pin,
};

use futures::FutureExt;
use rmcp::model::JsonObject;
use tokio::time::advance;

use super::{asks::go_on, *};

/// A caller that blocks for a second before it rejects or accepts arguments.
struct Slow;

impl Caller for Slow {
    fn prepare(&mut self, _: usize, arguments: JsonObject) -> Result<JsonObject, StepError> {
        // Advances the paused clock immediately.
        let _ = advance(Duration::from_secs(1)).now_or_never();
        match arguments.get("fits") {
            Some(_) => Ok(arguments),
            None => Err(StepError::definition("they do not fit")),
        }
    }

    fn call(&mut self, _: Call) -> impl Future<Output = Called> + Send + 'static {
        ready(Ok(CallToolResult::success(vec![]).into()))
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_a_run_that_never_waits() {
    use Status::{Completed, Failed, Skipped, TimedOut};
    let steps = |count: usize, concurrency| {
        let steps: Vec<_> =
            (0..count).map(|at| json!({ "id": format!("s{at}"), "continue": true })).collect();
        plan(&steps.into(), concurrency, RunOutput::Last)
    };
    let elements = |count: usize| {
        // A loop in which no element can be called would fail.
        let items = (0..count).map(|at| if at == 0 { json!({ "fits": 1 }) } else { json!({}) });
        workflow(&json!([{ "id": "loop", "collection": items.collect::<Value>(),
            "arguments": { "fits": "$item.fits?" }, "continue": true }]))
    };
    let after_a_step = workflow(&json!([
        { "id": "step", "continue": true },
        { "id": "loop", "collection": [1, 2, 3], "arguments": { "x": "$item" },
            "depends_on": ["step"], "continue": true },
    ]));
    for (what, plan, input, seconds, expected) in [
        ("steps", steps(5, 1), json!({}), 3, vec![Failed, Failed, TimedOut, Skipped, Skipped]),
        ("steps side by side", steps(4, 4), json!({}), 2, vec![Failed, TimedOut, Skipped, Skipped]),
        ("elements", elements(9), json!({}), 3, vec![TimedOut]),
        ("the last step", steps(2, 1), json!({}), 2, vec![Failed, TimedOut]),
        ("the last element", elements(2), json!({}), 2, vec![TimedOut]),
        ("elements after a step", after_a_step, json!({}), 2, vec![Failed, TimedOut]),
        ("what is called", steps(1, 1), json!({ "fits": 1 }), 1, vec![TimedOut]),
        ("nothing", steps(1, 1), json!({ "fits": 1 }), 2, vec![Completed]),
    ] {
        let begun = Instant::now();
        let state = RunState::new(input, plan.steps().len());
        // The deadline is half a second before a full second, so that it does not coincide with the
        // end of a preparation.
        let scope = Scope::new(CallLimits::default(), Duration::from_millis(seconds * 1000 - 500));
        let state = run(&plan, state, &scope, Slow).await;
        assert_eq!(statuses(&state), expected, "{what}");
        assert_eq!(state.timed_out, what != "nothing", "{what}");
        assert!(begun.elapsed().as_secs() <= seconds, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_a_run_with_an_open_question() {
    use Status::{Failed, Skipped, TimedOut};
    let plan = |others: &[Value]| {
        let question = json!({ "id": "ask", "message": "go on?" });
        plan(&[&[question], others].concat().into(), 1, RunOutput::Last)
    };
    let ended = |state: RunState| (statuses(&state), state.asked.len(), state.timed_out);

    let steps = ["a", "b"].map(|id| json!({ "id": id, "continue": true }));
    let elements = json!({ "id": "loop", "collection": [1, 2], "arguments": { "x": "$item" },
        "continue": true });
    for (plan, expected) in [
        (plan(&steps), vec![TimedOut, Failed, Skipped]),
        (plan(&[elements]), vec![TimedOut, TimedOut]),
    ] {
        let state = RunState::new(json!({}), plan.steps().len());
        let scope = Scope::new(CallLimits::default(), Duration::from_millis(500));
        let state = go_on(&plan, state, &scope, Slow).await;
        assert_eq!(ended(state), (expected, 0, true));
    }

    let plan = plan(&[json!({ "id": "a", "tool": "hangs", "arguments": {} })]);
    let state = go_on(&plan, RunState::new(json!({}), 2), &scope(3), World::new().caller()).await;
    assert_eq!(ended(state), (vec![TimedOut, TimedOut], 0, true));
}

#[tokio::test(start_paused = true)]
async fn run_that_never_waits_yields_to_other_tasks() {
    let items: Vec<_> = (0..1000).collect();
    let plan = workflow(&json!([{ "id": "loop", "collection": items, "continue": true,
        "arguments": { "x": "$item.x" } }]));
    let (context, scope) = (Context::default(), scope(600));
    let mut run =
        Run::new(&plan, RunState::new(json!({}), 1), &context, &scope, World::new().caller());
    let mut turns = 0;
    {
        let mut driven = pin!(run.drive());
        poll_fn(|cx| {
            turns += 1;
            driven.as_mut().poll(cx)
        })
        .await;
    }
    assert!(turns > 1000 / 32, "{turns}");
    let expected = "no element was called; element 0: `$item.x` has no value";
    assert_eq!(error(&run.into_state(), 0).message, expected);
}

#[tokio::test(start_paused = true)]
async fn call_that_ends_at_the_deadline_completes_and_is_the_last() {
    use Status::{Completed, Skipped, TimedOut};
    let sleeps = |id: &str, seconds: u64| json!({ "id": id, "tool": "sleeps", "arguments": { "seconds": seconds } });
    let elements = json!({ "id": "loop", "tool": "sleeps", "collection": [3, 0],
        "arguments": { "seconds": "$item" }, "max_parallel": 1 });
    for (steps, expected) in [
        (json!([sleeps("a", 3)]), vec![Completed]),
        (json!([sleeps("a", 3), { "id": "b", "depends_on": ["a"] }]), vec![Completed, Skipped]),
        (json!([elements]), vec![TimedOut]),
    ] {
        let plan = plan(&steps, 1, RunOutput::Last);
        let state = RunState::new(json!({}), plan.steps().len());
        let state = run(&plan, state, &scope(3), World::new().caller()).await;
        assert_eq!(statuses(&state), expected, "{steps}");
        assert_eq!(state.timed_out, expected != [Completed], "{steps}");
    }
}

#[tokio::test(start_paused = true)]
async fn ended_call_is_in_time_if_preparing_the_next_takes_longer() {
    // Preparing each element takes a second, and its call ends at the first poll.
    let plan = workflow(&json!([{ "id": "loop", "collection": [1, 2, 3, 4],
        "arguments": { "fits": "$item" }, "timeout": 2 }]));
    let state = run(&plan, RunState::new(json!({}), 1), &scope(60), Slow).await;
    assert_eq!(statuses(&state), [Status::Completed], "{:?}", outcome(&state, 0).error);
}
