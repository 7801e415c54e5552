use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    caller::{Call, Caller},
    limits::{Limits, Scope},
    outcome::{ErrorKind, Outcome, RunState, Status, StepError},
    plan::{Arguments, Plan, Step, Stop},
    run::Run,
};
use crate::{expr::Expression, message::Context};

fn plan(tools: &[&str], concurrency: usize, stop: Stop) -> Plan {
    let step = |tool: &&str| Step {
        id: (*tool).into(),
        tool: (*tool).into(),
        arguments: Arguments::Input,
        timeout: Duration::from_secs(60),
    };
    Plan { steps: tools.iter().map(step).collect(), concurrency, stop }
}

fn scope() -> Scope {
    Scope::new(Limits::default(), Duration::from_secs(600))
}

/// Echoes its arguments; fails if the tool's name says so.
async fn echo(call: Call) -> Result<CallToolResult, StepError> {
    match &*call.tool {
        "fails" => Err(StepError::new(ErrorKind::Service, "no")),
        "panics" => panic!("secret"),
        _ => Ok(CallToolResult::structured(call.arguments.into())),
    }
}

async fn run(plan: &Plan, state: RunState, scope: &Scope, caller: impl Caller) -> RunState {
    let context = Context::default();
    let mut run = Run::new(plan, state, &context, scope, caller);
    run.drive().await;
    run.into_state()
}

async fn run_all(plan: &Plan, state: RunState) -> RunState {
    run(plan, state, &scope(), echo).await
}

fn statuses(state: &RunState) -> Vec<Status> {
    state.outcomes.iter().map(|outcome| outcome.as_ref().expect("all finished").status).collect()
}

#[tokio::test(start_paused = true)]
async fn a_plan_runs_over_any_async_closure() {
    let called = Arc::new(Mutex::new(Vec::new()));
    let caller = |call: Call| {
        called.lock().unwrap().push((
            call.step,
            call.tool.to_string(),
            call.context.id().to_string(),
        ));
        async { Ok(CallToolResult::success(vec![ContentBlock::text("ok")])) }
    };
    let plan = plan(&["a", "b"], 2, Stop::Never);
    let state = RunState::new(json!({}), 2);
    let state = run(&plan, state, &scope(), caller).await;

    assert_eq!(statuses(&state), [Status::Completed; 2]);
    let expected = [(0, "a".to_owned(), "0#a".to_owned()), (1, "b".to_owned(), "0#b".to_owned())];
    assert_eq!(*called.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_taken_up_where_its_state_ends_on_another_machine() {
    let plan = plan(&["a", "fails", "c"], 1, Stop::Never);
    let whole = run_all(&plan, RunState::new(json!({ "q": 1 }), 3)).await;

    // What a run looks like after its first step.
    let mut begun = RunState::new(json!({ "q": 1 }), 3);
    begun.outcomes[0].clone_from(&whole.outcomes[0]);
    begun.finished.push(0);
    let text = serde_json::to_string(&begun).unwrap();
    let elsewhere: RunState = serde_json::from_str(&text).unwrap();
    assert_eq!(elsewhere, begun);
    let caller = |call: Call| {
        assert_ne!(&*call.tool, "a", "it has finished");
        echo(call)
    };
    let resumed = run(&plan, elsewhere, &scope(), caller).await;

    assert_eq!(resumed, whole);
    let text = serde_json::to_string(&resumed).unwrap();
    assert_eq!(serde_json::from_str::<RunState>(&text).unwrap(), resumed);
}

#[tokio::test(start_paused = true)]
async fn the_input_is_kept_only_while_a_step_needs_it() {
    let mut plan = plan(&["a", "b"], 2, Stop::Never);
    let mapped = Expression::parse(&json!({ "q": "$input.q" })).unwrap();
    for arguments in [Arguments::Input, Arguments::Mapped(mapped)] {
        plan.steps[1].arguments = arguments;
        let state = run_all(&plan, RunState::new(json!({ "q": 1 }), 2)).await;
        assert_eq!(state.input, Value::Null);
        let result = state.outcomes[1].as_ref().unwrap().result.as_ref().unwrap();
        assert_eq!(result.structured_content, Some(json!({ "q": 1 })));
    }
}

#[tokio::test(start_paused = true)]
async fn every_step_has_an_outcome_and_finishes_once_whatever_the_tools_do() {
    let tools = ["a", "panics", "b", "fails", "panics", "c"];
    for concurrency in 1..=tools.len() {
        for stop in [Stop::Never, Stop::FirstSuccess] {
            let plan = plan(&tools, concurrency, stop);
            let state = run_all(&plan, RunState::new(json!({}), tools.len())).await;
            let mut finished = state.finished.clone();
            finished.sort_unstable();
            assert_eq!(finished, [0, 1, 2, 3, 4, 5]);
            let panicked = statuses(&state)[1];
            let expected = match stop {
                Stop::Never => vec![Status::Failed],
                // It may not have come to that.
                Stop::FirstSuccess => vec![Status::Failed, Status::Cancelled, Status::Skipped],
            };
            assert!(expected.contains(&panicked), "{panicked:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_waited_for_after_the_deadline() {
    let plan = plan(&["a", "b", "c"], 2, Stop::Never);
    let scope = Scope::new(Limits::default(), Duration::from_secs(3));
    let caller = |call: Call| async move {
        match call.step {
            0 => futures::future::pending().await,
            _ => tokio::time::sleep(Duration::from_secs(2)).await,
        }
        echo(call).await
    };
    let start = Instant::now();
    let state = run(&plan, RunState::new(json!({}), 3), &scope, caller).await;

    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert_eq!(statuses(&state), [Status::TimedOut, Status::Completed, Status::TimedOut]);
    let Outcome { started_ms, duration_ms, attempts, .. } = *state.outcomes[2].clone().unwrap();
    assert_eq!((started_ms, duration_ms, attempts), (2000, 1000, 1));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_may_be_as_long_as_it_likes() {
    let mut plan = plan(&["a", "b"], 2, Stop::Never);
    plan.steps[0].timeout = Duration::MAX;
    let scope = Scope::new(Limits::default(), Duration::MAX).nested(Duration::MAX);
    let state = run(&plan, RunState::new(json!({}), 2), &scope, echo).await;
    assert_eq!(statuses(&state), [Status::Completed; 2]);
}
