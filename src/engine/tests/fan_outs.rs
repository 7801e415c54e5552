use super::*;

/// Returns a fan-out plan over these tools.
fn fan_out(tools: &[&str], concurrency: usize, stop: Stop) -> Plan {
    let steps: Vec<_> = tools
        .iter()
        .enumerate()
        .map(|(at, tool)| json!({ "id": format!("{tool}_{at}"), "tool": tool, "continue": true }))
        .collect();
    let mut plan = plan(&steps.into(), concurrency, RunOutput::Outcomes);
    plan.stop = stop;
    plan
}

#[tokio::test(start_paused = true)]
async fn plan_runs_with_an_async_closure_as_caller() {
    let called = Arc::new(Mutex::new(Vec::new()));
    let caller = |call: Call| {
        let Call { site, tool, context, .. } = call;
        called.lock().unwrap().push((site, tool.to_string(), context.id().to_string()));
        async { Ok(CallToolResult::success(vec![ContentBlock::text("ok")])) }
    };
    let plan = fan_out(&["a", "b"], 2, Stop::Never);
    let state = run(&plan, RunState::new(json!({}), 2), &scope(600), caller).await;

    assert_eq!(statuses(&state), [Status::Completed; 2]);
    let expected =
        [(0, "a".to_owned(), "0#a_0".to_owned()), (1, "b".to_owned(), "0#b_1".to_owned())];
    assert_eq!(*called.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn every_step_finishes_once_with_an_outcome() {
    let tools = ["a", "panics", "b", "breaks", "panics", "c"];
    for concurrency in 1..=tools.len() {
        for stop in [Stop::Never, Stop::FirstSuccess] {
            let plan = fan_out(&tools, concurrency, stop);
            let state = run_new(&plan, json!({})).await;
            let mut finished = state.finished.clone();
            finished.sort_unstable();
            assert_eq!(finished, [0, 1, 2, 3, 4, 5]);
            let panicked = statuses(&state)[1];
            let expected = match stop {
                Stop::Never => vec![Status::Failed],
                // The panicking branch may have been cancelled, or may not have started.
                Stop::FirstSuccess => vec![Status::Failed, Status::Cancelled, Status::Skipped],
            };
            assert!(expected.contains(&panicked), "{panicked:?}");
            assert_eq!((state.failed, state.timed_out), (None, false));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn results_are_kept_unchanged_also_from_failed_tools() {
    let state = run_new(&fan_out(&["a", "fails"], 2, Stop::Never), json!({ "q": 1 })).await;
    let result = |step| outcome(&state, step).result.as_ref().unwrap();
    assert_eq!(result(0).structured_content, Some(json!({ "q": 1 })));
    assert_eq!(result(1).content, [ContentBlock::text("no")]);
    assert!(outcome(&state, 0).record.is_none(), "nothing is held twice");
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_running_branches_and_skips_the_rest() {
    let plan = fan_out(&["hangs", "sleeps", "sleeps", "a"], 2, Stop::Never);
    let world = World::new();
    let state = RunState::new(json!({ "seconds": 2 }), 4);
    let state = run(&plan, state, &scope(3), world.caller()).await;

    assert_eq!(world.begun.elapsed(), Duration::from_secs(3));
    use Status::{Completed, Skipped, TimedOut};
    assert_eq!(statuses(&state), [TimedOut, Completed, TimedOut, Skipped]);
    assert!(state.timed_out);
    let Outcome { started_ms, duration_ms, attempts, .. } = *outcome(&state, 2);
    assert_eq!((started_ms, duration_ms, attempts), (2000, 1000, 1));
}

#[tokio::test(start_paused = true)]
async fn timeout_of_any_length_is_accepted() {
    let steps = json!([{ "id": "a", "timeout": 1e19 }, { "id": "b" }]);
    let plan = plan(&steps, 2, RunOutput::Outcomes);
    let scope = Scope::new(CallLimits::default(), Duration::MAX).nested(Duration::MAX);
    let state = run(&plan, RunState::new(json!({}), 2), &scope, World::new().caller()).await;
    assert_eq!(statuses(&state), [Status::Completed; 2]);
}

#[tokio::test(start_paused = true)]
async fn calls_over_max_calls_fail() {
    let plan = fan_out(&["a", "b", "c"], 1, Stop::Never);
    let scope = Scope::new(CallLimits::default().max_calls(2), Duration::from_secs(600));
    let state = run(&plan, RunState::new(json!({}), 3), &scope, World::new().caller()).await;
    assert_eq!(statuses(&state), [Status::Completed, Status::Completed, Status::Failed]);
    assert_eq!((error(&state, 2).kind, outcome(&state, 2).attempts), (ErrorKind::Limit, 0));
}

#[tokio::test(start_paused = true)]
async fn tool_that_panics_before_returning_a_future_fails_alone() {
    for concurrency in [1, 3] {
        let plan = fan_out(&["a", "b", "c"], concurrency, Stop::Never);
        let caller = |call: Call| {
            assert!(&*call.tool != "b", "secret");
            async { Ok(CallToolResult::success(vec![])) }
        };
        let state = run(&plan, RunState::new(json!({}), 3), &scope(600), caller).await;
        assert_eq!(statuses(&state), [Status::Completed, Status::Failed, Status::Completed]);
        let expected = StepError::new(ErrorKind::Panic, "the tool panicked");
        assert_eq!((error(&state, 1), outcome(&state, 1).attempts), (&expected, 1));
    }
}
