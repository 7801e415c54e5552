//! Where branches run, and how they come back.

use std::{
    future::{pending, poll_fn},
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
};

use futures::FutureExt;
use tokio::task::{try_id, yield_now};

use super::{
    super::branches::{BranchId, Branches, Lost},
    *,
};

const fn id(step: usize) -> BranchId {
    BranchId { step, element: 0 }
}

#[tokio::test]
async fn what_is_aborted_does_not_come_back_and_what_is_beside_it_does() {
    let mut branches = Branches::new(false);
    (0..4).for_each(|step| branches.start(id(step), async move { step }));
    assert_eq!(poll_fn(|cx| branches.poll_next(cx)).await, (id(0), Ok(0)));
    // The others have ended too, and nobody has looked.
    branches.abort(id(1));
    // One more that has not begun.
    branches.start(id(4), async { 4 });
    branches.start(id(5), async { 5 });
    branches.abort(id(4));
    let mut came_back = Vec::new();
    for _ in 0..3 {
        came_back.push(poll_fn(|cx| branches.poll_next(cx)).await.0.step);
    }
    assert_eq!(came_back, [2, 3, 5]);
    assert!(poll_fn(|cx| Poll::Ready(branches.poll_next(cx).is_pending())).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_branch_that_panics_in_a_task_has_panicked() {
    let mut branches = Branches::<()>::new(false);
    branches.start(id(0), async {
        yield_now().await;
        panic!("secret");
    });
    assert_eq!(poll_fn(|cx| branches.poll_next(cx)).await, (id(0), Err(Lost::Panicked)));
}

#[test]
fn a_branch_is_lost_if_its_runtime_ends() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let within = runtime.enter();
    let mut branches = Branches::<()>::new(false);
    branches.start(id(0), pending());
    drop(within);
    drop(runtime);
    let came_back = poll_fn(|cx| branches.poll_next(cx)).now_or_never();
    assert_eq!(came_back, Some((id(0), Err(Lost::Stopped))));
}

/// A tool that waits a little, and says whether it does so in a task of its own.
async fn place(_: Call) -> Result<CallToolResult, StepError> {
    yield_now().await;
    Ok(CallToolResult::structured(json!({ "in_task": try_id().is_some() })))
}

#[tokio::test]
async fn only_what_has_others_beside_it_runs_in_a_task() {
    let steps = json!([{ "id": "a" }, { "id": "b" }]);
    let two_elements = json!([{ "id": "a", "collection": [1, 2], "arguments": {} }]);
    let one_by_one =
        json!([{ "id": "a", "collection": [1, 2], "arguments": {}, "max_parallel": 1 }]);
    for (steps, concurrency, expected) in
        [(&steps, 1, 0), (&steps, 2, 2), (&two_elements, 1, 2), (&one_by_one, 1, 0)]
    {
        let plan = plan(steps, concurrency, Answer::Outcomes);
        let state = RunState::new(json!({}), plan.steps().len());
        let state = run(&plan, state, &scope(600), place).await;
        let told: Vec<_> = state.outcomes.iter().flatten().map(|o| format!("{o:?}")).collect();
        let in_tasks = told.concat().matches("\"in_task\": Bool(true)").count();
        assert_eq!(in_tasks, expected, "{steps}: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_took_too_long_is_dropped_before_the_next_begins() {
    struct Dropped(Arc<AtomicBool>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let plan = plan(
        &json!([{ "id": "hangs", "timeout": 1, "continue": true }, { "id": "next" }]),
        1,
        Answer::Outcomes,
    );
    let is_dropped = Arc::new(AtomicBool::new(false));
    let caller = |call: Call| {
        let seen = is_dropped.load(Ordering::Relaxed);
        let held = (&*call.tool == "hangs").then(|| Dropped(is_dropped.clone()));
        async move {
            if held.is_some() {
                pending::<()>().await;
            }
            Ok(CallToolResult::structured(json!({ "dropped": seen })))
        }
    };
    let state = run(&plan, RunState::new(json!({}), 2), &scope(600), caller).await;
    assert_eq!(statuses(&state), [Status::TimedOut, Status::Completed]);
    let result = outcome(&state, 1).result.as_ref().unwrap();
    assert_eq!(result.structured_content, Some(json!({ "dropped": true })));
}
