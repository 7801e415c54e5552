use std::{future::poll_fn, task::Poll};

use super::{
    super::branches::{BranchId, Branches},
    *,
};

/// Returns a step that makes at most `more` retries after its first attempt.
fn tried(tool: &str, more: u64) -> Value {
    json!({ "id": "a", "tool": tool, "timeout": 5, "arguments": { "x": "$input" },
        "retry": { "count": more, "delay": 1, "max_delay": 4 } })
}

#[tokio::test(start_paused = true)]
async fn call_is_retried_until_it_succeeds() {
    for (failures, attempts, status) in
        [(0, 1, Status::Completed), (2, 3, Status::Completed), (3, 3, Status::Failed)]
    {
        let world = World::flaky(failures);
        let state = world.run(&workflow(&json!([tried("flaky", 2)])), json!("in")).await;
        assert_eq!(statuses(&state), [status]);
        assert_eq!(outcome(&state, 0).attempts, attempts);
        assert_eq!(world.started().len(), attempts as usize);
        // Each attempt has the same arguments.
        assert!(world.events().iter().all(|event| event.arguments == json!({ "x": "in" })));
        if status == Status::Failed {
            assert_eq!(error(&state, 0).message, "no, 0 more", "of the last attempt");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_failure_is_retried_except_rejected_arguments() {
    for tool in ["fails", "refuses", "breaks", "panics", "hangs"] {
        let world = World::new();
        let state = world.run(&workflow(&json!([tried(tool, 2)])), json!({})).await;
        let (calls, attempts) = if tool == "refuses" { (1, 1) } else { (3, 3) };
        let found = (world.started().len(), outcome(&state, 0).attempts);
        assert_eq!(found, (calls, attempts), "{tool}");
        assert_eq!(state.failed, Some(0));
    }
}

/// Protocol errors are retried, except those for an unknown tool and for invalid arguments.
#[tokio::test(start_paused = true)]
async fn temporary_protocol_errors_are_retried() {
    for (code, attempts) in [(-32601, 1), (-32602, 1), (-32603, 3), (-32000, 3)] {
        let caller = move |_: Call| async move {
            let error = ErrorData::new(rmcp::model::ErrorCode(code), "no", None);
            Err::<CallToolResult, _>(StepError::protocol(error))
        };
        let plan = workflow(&json!([tried("a", 2)]));
        let state = run(&plan, RunState::new(json!({}), 1), &scope(600), caller).await;
        assert_eq!(outcome(&state, 0).attempts, attempts, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_applies_to_each_attempt() {
    let world = World::new();
    let state = world.run(&workflow(&json!([tried("hangs", 2)])), json!({})).await;
    assert_eq!(error(&state, 0).message, "no answer within 5s");
    let taken = Duration::from_millis(outcome(&state, 0).duration_ms);
    assert_eq!(taken.as_secs(), world.begun.elapsed().as_secs());
    // Three attempts of 5 s, with delays of at most 1 s and 2 s between them.
    assert!((15.0..=18.1).contains(&taken.as_secs_f64()), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn limit_error_is_not_retried() {
    let caller =
        |_: Call| async { Err::<CallToolResult, _>(StepError::new(ErrorKind::Limit, "too much")) };
    let plan = workflow(&json!([tried("a", 5)]));
    let state = run(&plan, RunState::new(json!({}), 1), &scope(600), caller).await;
    assert_eq!(outcome(&state, 0).attempts, 1);

    let scope = Scope::new(CallLimits::default().max_calls(2), Duration::from_secs(600));
    let plan = workflow(&json!([tried("fails", 5)]));
    let state = run(&plan, RunState::new(json!({}), 1), &scope, World::new().caller()).await;
    assert_eq!((error(&state, 0).kind, outcome(&state, 0).attempts), (ErrorKind::Limit, 2));
}

#[test]
fn retry_delay_doubles_up_to_its_maximum() {
    let retry =
        Retry { count: 99, delay: Duration::from_secs(1), max_delay: Duration::from_secs(60) };
    let waits = [1, 2, 3, 6, 7, 8, 99].map(|attempts| retry.longest_wait(attempts).as_secs());
    assert_eq!(waits, [1, 2, 4, 32, 60, 60, 60]);
    // The delay does not overflow if it exceeds the range of `Duration`.
    let retry = Retry { delay: Duration::MAX, max_delay: Duration::MAX, ..retry };
    assert_eq!(retry.longest_wait(3), Duration::MAX);
    // The maximum also applies to the first delay.
    let retry = Retry { delay: Duration::from_secs(9), max_delay: Duration::from_secs(2), ..retry };
    assert_eq!(retry.longest_wait(1).as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn retry_delay_is_random_up_to_its_maximum() {
    let mut waited = Vec::new();
    for _ in 0..50 {
        let world = World::new();
        world.run(&workflow(&json!([tried("fails", 1)])), json!({})).await;
        waited.push(world.begun.elapsed().as_secs_f64());
    }
    // The timer of a paused clock has a resolution of milliseconds.
    assert!(waited.iter().all(|wait| (0.0..=1.001).contains(wait)), "{waited:?}");
    // All delays are on one side of the middle in only one of 2^49 test runs.
    assert!(waited.iter().any(|wait| *wait < 0.5) && waited.iter().any(|wait| *wait > 0.5));
}

#[tokio::test(start_paused = true)]
async fn waiting_retry_keeps_its_parallel_slot() {
    let steps = json!([tried("fails", 3), { "id": "b", "depends_on": [] }]);
    let world = World::new();
    world.run(&plan(&steps, 1, RunOutput::Last), json!({})).await;
    // The step `b` never starts, because the run has failed after the last retry.
    assert_eq!(world.started(), ["a"; 4]);
}

#[tokio::test]
async fn late_result_is_not_taken_for_the_next_attempt() {
    let id = BranchId { step: 0, element: 0 };
    let mut branches = Branches::new(false, None);
    branches.start(id, &SpawnHint::default(), async {
        tokio::task::yield_now().await;
        "late"
    });
    assert!(poll_fn(|cx| Poll::Ready(branches.poll_next(cx).is_pending())).await);
    // The branch ends before it is polled by the run, and is then aborted.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    branches.abort(id);
    branches.start(id, &SpawnHint::default(), async {
        tokio::task::yield_now().await;
        "next"
    });
    assert_eq!(poll_fn(|cx| branches.poll_next(cx)).await, (id, Ok("next")));
}

#[tokio::test(start_paused = true)]
async fn arguments_are_prepared_once_and_a_rejection_fails_the_step() {
    struct Prepares(World, Vec<usize>);

    impl Caller for &mut Prepares {
        fn prepare(
            &mut self,
            site: usize,
            mut arguments: rmcp::model::JsonObject,
        ) -> Result<rmcp::model::JsonObject, StepError> {
            self.1.push(site);
            arguments.insert("prepared".to_owned(), site.into());
            match arguments.get("bad") {
                Some(_) => Err(StepError::new(ErrorKind::Definition, "`bad` is not allowed")),
                None => Ok(arguments),
            }
        }

        fn call(&mut self, call: Call) -> impl Future<Output = Called> + Send + 'static {
            self.0.clone().serve(call)
        }
    }

    let mut caller = Prepares(World::flaky(2), Vec::new());
    let plan = workflow(&json!([
        tried("flaky", 3),
        { "id": "b", "collection": [1, 2], "arguments": { "item": "$item" }, "depends_on": ["a"] },
        { "id": "c", "arguments": { "bad": true }, "depends_on": ["b"] },
    ]));
    let state = run(&plan, RunState::new(json!({}), 3), &scope(600), &mut caller).await;
    assert_eq!(caller.1, [0, 1, 1, 2]);
    let prepared = |branch| caller.0.arguments_of(branch).unwrap()["prepared"].clone();
    assert_eq!([prepared("a"), prepared("b[1]")], [0, 1]);
    assert_eq!(error(&state, 2).message, "`bad` is not allowed");
    assert_eq!((state.failed, outcome(&state, 2).attempts), (Some(2), 0));
}

#[tokio::test(start_paused = true)]
async fn attempt_that_the_deadline_ends_is_reported() {
    let plan =
        workflow(&json!([{ "id": "a", "arguments": {}, "retry": { "count": 1, "delay": 0 } }]));
    let mut calls = 0;
    let caller = |_: Call| {
        calls += 1;
        let is_first = calls == 1;
        async move {
            if !is_first {
                pending::<()>().await;
            }
            Err::<CallToolResult, _>(StepError::new(ErrorKind::Service, "not now"))
        }
    };
    let state = run(&plan, RunState::new(json!({}), 1), &scope(9), caller).await;
    let StepError { kind, message, .. } = error(&state, 0);
    assert_eq!((*kind, &**message), (ErrorKind::Timeout, "no answer within 9s"));
    assert_eq!(outcome(&state, 0).attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn error_contains_the_message_of_the_tool() {
    let plan = workflow(&json!([{ "id": "a", "arguments": {} }]));
    let nothing = "the tool failed without an error message";
    for (text, structured, expected) in [
        ("a text", json!({ "message": "not this" }), "a text"),
        ("  ", json!({ "message": "so" }), "so"),
        ("", json!({ "error": { "message": "so" } }), "so"),
        ("", json!({ "error": "so" }), "so"),
        ("", json!({ "text": "so" }), "so"),
        ("", json!({ "message": " ", "text": "so" }), "so"),
        ("", json!({ "message": 7 }), nothing),
        ("", json!({}), nothing),
    ] {
        let caller = |_: Call| {
            let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
            result.structured_content = Some(structured.clone());
            async { Ok(result) }
        };
        let state = run(&plan, RunState::new(json!({}), 1), &scope(600), caller).await;
        assert_eq!(error(&state, 0).message, expected, "{structured}");
    }
}
