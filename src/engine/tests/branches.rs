//! Tests of the tasks of branches, and of how their results are returned.

use std::{
    future::{pending, poll_fn},
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
};

use futures::FutureExt;
use tokio::{
    runtime::Builder,
    task::{try_id, yield_now},
};

use super::{
    super::branches::{BranchId, Branches, LONG, Lost, SpawnHint},
    *,
};

const fn id(step: usize) -> BranchId {
    BranchId { step, element: 0 }
}

#[tokio::test]
async fn aborted_branches_are_not_returned_and_others_are() {
    let mut branches = Branches::new(false, None);
    (0..4).for_each(|step| branches.start(id(step), &SpawnHint::default(), async move { step }));
    assert_eq!(poll_fn(|cx| branches.poll_next(cx)).await, (id(0), Ok(0)));
    // The other branches have ended too, but were not returned yet.
    branches.abort(id(1));
    // These branches have not been polled yet, and one of them is aborted.
    branches.start(id(4), &SpawnHint::default(), async { 4 });
    branches.start(id(5), &SpawnHint::default(), async { 5 });
    branches.abort(id(4));
    let mut came_back = Vec::new();
    for _ in 0..3 {
        came_back.push(poll_fn(|cx| branches.poll_next(cx)).await.0.step);
    }
    assert_eq!(came_back, [2, 3, 5]);
    assert!(poll_fn(|cx| Poll::Ready(branches.poll_next(cx).is_pending())).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn panic_of_a_spawned_branch_is_reported() {
    let mut branches = Branches::<()>::new(false, None);
    branches.start(id(0), &SpawnHint::default(), async {
        yield_now().await;
        panic!("secret");
    });
    assert_eq!(poll_fn(|cx| branches.poll_next(cx)).await, (id(0), Err(Lost::Panicked)));
}

#[test]
fn branch_is_reported_as_stopped_if_its_runtime_ends() {
    let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let within = runtime.enter();
    let mut branches = Branches::<()>::new(false, None);
    branches.start(id(0), &SpawnHint::default(), pending());
    drop(within);
    drop(runtime);
    let came_back = poll_fn(|cx| branches.poll_next(cx)).now_or_never();
    assert_eq!(came_back, Some((id(0), Err(Lost::Stopped))));
}

/// A tool that yields once, and then returns whether it runs in a separate task.
async fn place(_: Call) -> Result<CallToolResult, StepError> {
    yield_now().await;
    Ok(CallToolResult::structured(json!({ "in_task": try_id().is_some() })))
}

#[tokio::test]
async fn branch_is_spawned_only_if_others_run_beside_it() {
    let steps = json!([{ "id": "a" }, { "id": "b" }]);
    let two_elements = json!([{ "id": "a", "collection": [1, 2], "arguments": {} }]);
    let one_by_one =
        json!([{ "id": "a", "collection": [1, 2], "arguments": {}, "max_parallel": 1 }]);
    for (steps, concurrency, expected) in
        [(&steps, 1, 0), (&steps, 2, 2), (&two_elements, 1, 2), (&one_by_one, 1, 0)]
    {
        let plan = plan(steps, concurrency, RunOutput::Outcomes);
        let state = RunState::new(json!({}), plan.steps().len());
        let state = run(&plan, state, &scope(600), place).await;
        let outcomes: Vec<_> = state.outcomes.iter().flatten().map(|o| format!("{o:?}")).collect();
        let in_tasks = outcomes.concat().matches("\"in_task\": Bool(true)").count();
        assert_eq!(in_tasks, expected, "{steps}: {outcomes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn timed_out_call_is_dropped_before_the_next_begins() {
    struct Dropped(Arc<AtomicBool>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let plan = plan(
        &json!([{ "id": "hangs", "timeout": 1, "continue": true }, { "id": "next" }]),
        1,
        RunOutput::Outcomes,
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

/// Returns `count` steps with the IDs `s0`, `s1` and so on.
fn steps(count: usize) -> Value {
    (0..count).map(|step| json!({ "id": format!("s{step}") })).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_that_computes_delays_no_others_after_its_first_call() {
    let mut steps = steps(8);
    let others: Vec<_> = (1..8).map(|step| format!("s{step}")).collect();
    let after = json!({ "id": "after", "depends_on": others });
    steps.as_array_mut().unwrap().push(after);
    let plan = plan(&steps, 9, RunOutput::Outcomes);
    for is_first in [true, false] {
        let others_ended = Arc::new(Signal::default());
        let caller = |call: Call| {
            let others_ended = others_ended.clone();
            async move {
                match &*call.tool {
                    "s0" if is_first => std::thread::sleep(2 * LONG),
                    "s0" => others_ended.wait(),
                    "after" => others_ended.send(),
                    _ => (),
                }
                Ok(CallToolResult::success(Vec::new()))
            }
        };
        let state = run(&plan, RunState::new(json!({}), 9), &scope(600), caller).await;
        assert_eq!(statuses(&state), [Status::Completed; 9]);
        // In the first run, it was polled first.
        assert_eq!(state.finished[0] == 0, is_first, "{:?}", state.finished);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branches_after_one_that_computes_are_spawned() {
    let plan = plan(&steps(3), 3, RunOutput::Outcomes);
    let caller = async |call: Call| {
        if &*call.tool == "s0" {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(CallToolResult::structured(json!({ "in_task": try_id().map(|id| id.to_string()) })))
    };
    let state = run(&plan, RunState::new(json!({}), 3), &scope(600), caller).await;
    let is_here = |step: usize| {
        let result = outcome(&state, step).result.as_ref().unwrap();
        result.structured_content.as_ref().unwrap()["in_task"].is_null()
    };
    assert_eq!([is_here(0), is_here(1), is_here(2)], [true, false, false]);
}

/// Runs a plan twice, and returns whether its waiting tool is first polled in a separate task: for
/// the first run and for the second.
async fn waits_in_tasks() -> [bool; 2] {
    let steps = json!([{ "id": "s0", "continue": true }, { "id": "s1", "continue": true }]);
    let plan = plan(&steps, 2, RunOutput::Outcomes);
    let in_task = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        let in_task = in_task.clone();
        let caller = move |call: Call| {
            let in_task = in_task.clone();
            async move {
                if &*call.tool == "s0" {
                    in_task.lock().unwrap().push(try_id().is_some());
                    yield_now().await;
                }
                Ok(CallToolResult::success(Vec::new()))
            }
        };
        let state = run(&plan, RunState::new(json!({}), 2), &scope(600), caller).await;
        assert_eq!(statuses(&state), [Status::Completed; 2]);
    }
    let in_task = in_task.lock().unwrap();
    [in_task[0], in_task[1]]
}

#[test]
fn tool_that_waited_is_spawned_only_on_a_multi_thread_runtime() {
    // The future that is passed to `block_on` does not run in a task.
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    assert_eq!(runtime.block_on(waits_in_tasks()), [false, true]);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(runtime.block_on(waits_in_tasks()), [false, false]);
}

#[tokio::test]
async fn branch_after_the_deadline_is_not_polled() {
    let plan = plan(&steps(3), 3, RunOutput::Outcomes);
    let polled = Arc::new(Mutex::new(Vec::new()));
    let caller = |call: Call| {
        let polled = polled.clone();
        async move {
            polled.lock().unwrap().push(call.tool.to_string());
            if &*call.tool == "s1" {
                std::thread::sleep(Duration::from_millis(1_200));
            }
            Ok(CallToolResult::success(Vec::new()))
        }
    };
    let state = run(&plan, RunState::new(json!({}), 3), &scope(1), caller).await;
    assert_eq!(*polled.lock().unwrap(), ["s0", "s1"]);
    let expected = [Status::Completed, Status::Completed, Status::TimedOut];
    assert_eq!(statuses(&state), expected);
}

#[tokio::test]
async fn waiting_and_immediate_branches_complete() {
    branches_of_both_kinds_complete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_and_immediate_branches_complete_on_threads() {
    branches_of_both_kinds_complete().await;
}

async fn branches_of_both_kinds_complete() {
    let plan = plan(&steps(64), 64, RunOutput::Outcomes);
    let caller = async |call: Call| {
        if call.site % 2 == 1 {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(CallToolResult::success(Vec::new()))
    };
    let state = run(&plan, RunState::new(json!({}), 64), &scope(600), caller).await;
    assert_eq!(statuses(&state), [Status::Completed; 64]);
    let mut finished = state.finished.clone();
    finished.sort_unstable();
    assert!(finished.into_iter().eq(0..64), "{:?}", state.finished);
}

#[test]
fn branches_are_spawned_on_their_runtime_wherever_polled() {
    let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let within = runtime.enter();
    let mut branches = Branches::new(false, None);
    drop(within);
    branches.start(id(0), &SpawnHint::default(), async {
        yield_now().await;
        try_id().is_some()
    });
    let ended = futures::executor::block_on(poll_fn(|cx| branches.poll_next(cx)));
    assert_eq!(ended, (id(0), Ok(true)));
}

#[tokio::test]
async fn dropped_branches_are_not_polled() {
    let is_polled = Arc::new(AtomicBool::new(false));
    let mut branches = Branches::new(false, None);
    branches.start(id(0), &SpawnHint::default(), async {
        std::thread::sleep(Duration::from_millis(1));
    });
    let polled = is_polled.clone();
    branches.start(id(1), &SpawnHint::default(), async move {
        polled.store(true, Ordering::Relaxed);
    });
    assert_eq!(poll_fn(|cx| branches.poll_next(cx)).await, (id(0), Ok(())));
    assert!(branches.is_interrupted());
    drop(branches);
    yield_now().await;
    assert!(!is_polled.load(Ordering::Relaxed));
}
