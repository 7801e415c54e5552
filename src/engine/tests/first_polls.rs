//! Tests of the first poll of branches, on single-threaded and multi-threaded runtimes.

use std::{future::poll_fn, task::Poll, thread, time::Duration};

use futures::FutureExt;
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Barrier, Notify},
    task::yield_now,
};

use super::{
    super::{branches::LONG, limits::RunLimits},
    *,
};

/// Returns a runtime with one thread, and a runtime with two threads.
fn runtimes() -> [Runtime; 2] {
    [
        Builder::new_current_thread().enable_time().build().unwrap(),
        Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap(),
    ]
}

/// Runs a fan-out over these tools on both runtimes, and passes the final states to `check`.
fn each<F, R>(tools: &[&str], scope: impl Fn() -> Scope, caller: F, check: impl Fn(RunState))
where
    F: Fn(Call) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<CallToolResult, StepError>> + Send + 'static,
{
    for runtime in runtimes() {
        let plan = fan_out(tools);
        let caller = caller.clone();
        let steps = tools.len();
        check(runtime.block_on(async {
            let scope = scope();
            run(&plan, RunState::new(json!({}), steps), &scope, caller).await
        }));
    }
}

fn fan_out(tools: &[&str]) -> Plan {
    let steps = tools.iter().enumerate().map(|(at, tool)| {
        let timeout = if *tool == "late" { 0.01 } else { 300.0 };
        json!({ "id": format!("s{at}"), "tool": tool, "continue": true, "timeout": timeout })
    });
    plan(&steps.collect(), tools.len(), RunOutput::Outcomes)
}

fn done() -> Result<CallToolResult, StepError> {
    Ok(CallToolResult::success(Vec::new()))
}

#[test]
fn branch_that_panics_at_its_first_poll_fails_alone() {
    let caller = async |call: Call| {
        assert!(&*call.tool != "panics", "secret");
        done()
    };
    let caller = move |call: Call| caller(call).boxed();
    each(
        &["a", "panics", "b"],
        || scope(600),
        caller,
        |state| {
            let expected = [Status::Completed, Status::Failed, Status::Completed];
            assert_eq!(statuses(&state), expected);
            assert_eq!(error(&state, 1).kind, ErrorKind::Panic);
            assert!(!format!("{state:?}").contains("secret"));
        },
    );
}

#[test]
fn call_that_panics_before_it_is_polled_fails_alone() {
    let caller = |call: Call| {
        assert!(&*call.tool != "panics", "secret");
        async { done() }
    };
    each(
        &["panics", "a"],
        || scope(600),
        caller,
        |state| {
            assert_eq!(statuses(&state), [Status::Failed, Status::Completed]);
        },
    );
}

#[test]
fn branch_that_panics_after_it_waited_fails_alone() {
    let caller = async |call: Call| {
        yield_now().await;
        assert!(&*call.tool != "panics", "secret");
        done()
    };
    let caller = move |call: Call| caller(call).boxed();
    for tools in [&["panics"][..], &["a", "panics", "b"]] {
        each(
            tools,
            || scope(600),
            caller,
            |state| {
                for (step, tool) in tools.iter().enumerate() {
                    let failed = outcome(&state, step).status == Status::Failed;
                    assert_eq!(failed, *tool == "panics", "{state:?}");
                }
            },
        );
    }
}

#[test]
fn branches_beside_one_that_blocks_complete() {
    let caller = async |call: Call| {
        if &*call.tool == "blocks" {
            thread::sleep(Duration::from_millis(5));
        } else {
            sleep(Duration::from_millis(1)).await;
        }
        done()
    };
    let caller = move |call: Call| caller(call).boxed();
    each(
        &["a", "blocks", "b", "blocks", "c"],
        || scope(600),
        caller,
        |state| {
            assert_eq!(statuses(&state), [Status::Completed; 5]);
        },
    );
}

#[test]
fn branches_beside_one_that_blocks_end_before_it_on_threads() {
    let steps = json!([
        { "id": "blocks" }, { "id": "a" }, { "id": "b" }, { "id": "c" },
        { "id": "after", "depends_on": ["a", "b", "c"] },
    ]);
    let plan = plan(&steps, 5, RunOutput::Outcomes);
    let [_, threads] = runtimes();
    threads.block_on(async {
        // The hint of the slow tool is set in the first run, and takes effect in the second run.
        for is_hinted in [false, true] {
            let others_ended = Arc::new(Signal::default());
            let caller = |call: Call| {
                let others_ended = others_ended.clone();
                async move {
                    match &*call.tool {
                        "blocks" if is_hinted => others_ended.wait(),
                        "blocks" => thread::sleep(2 * LONG),
                        "after" => others_ended.send(),
                        _ => (),
                    }
                    done()
                }
            };
            let state = run(&plan, RunState::new(json!({}), 5), &scope(600), caller).await;
            assert_eq!(statuses(&state), [Status::Completed; 5]);
            assert_eq!(state.finished[0] == 0, !is_hinted, "{:?}", state.finished);
        }
    });
}

#[test]
fn branch_that_wakes_itself_completes() {
    let caller = |_: Call| {
        let mut left = 3;
        poll_fn(move |cx| {
            if left == 0 {
                return Poll::Ready(done());
            }
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    };
    for tools in [&["a"][..], &["a", "b", "c"]] {
        each(
            tools,
            || scope(600),
            caller,
            |state| {
                assert!(statuses(&state).iter().all(|status| *status == Status::Completed));
            },
        );
    }
}

#[test]
fn branch_that_completes_in_a_late_first_poll_is_in_time() {
    let caller = async |call: Call| {
        if &*call.tool == "late" {
            thread::sleep(Duration::from_millis(30));
        }
        done()
    };
    let caller = move |call: Call| caller(call).boxed();
    each(
        &["late", "a"],
        || scope(600),
        caller,
        |state| {
            assert_eq!(statuses(&state), [Status::Completed; 2]);
        },
    );
}

#[test]
fn waiting_branch_times_out_beside_computing_ones() {
    let caller = async |call: Call| match &*call.tool {
        "late" => std::future::pending().await,
        _ => {
            thread::sleep(Duration::from_millis(20));
            done()
        }
    };
    let plan = fan_out(&["late", "a", "b", "c"]);
    for (runtime, is_single) in runtimes().iter().zip([true, false]) {
        let state = runtime
            .block_on(async { run(&plan, RunState::new(json!({}), 4), &scope(600), caller).await });
        let [late, rest @ ..] = &*statuses(&state) else { panic!("{state:?}") };
        assert_eq!((*late, rest), (Status::TimedOut, &[Status::Completed; 3][..]));
        // On a single thread, the timeout is detected between two branches, and not only after
        // all of them.
        assert!(!is_single || state.finished[3] != 0, "{:?}", state.finished);
    }
}

#[test]
fn branch_after_the_deadline_of_the_run_is_not_called() {
    let caller = async |_: Call| {
        thread::sleep(Duration::from_millis(1_050));
        done()
    };
    let [one, _] = runtimes();
    let plan = fan_out(&["a", "b", "c"]);
    let state = one.block_on(async {
        let scope = Scope::new(CallLimits::default(), Duration::from_secs(1));
        run(&plan, RunState::new(json!({}), 3), &scope, caller).await
    });
    assert_eq!(statuses(&state)[0], Status::Completed);
    assert!(state.timed_out);
    assert_eq!(outcome(&state, 2).attempts, 0);
}

#[test]
fn run_that_is_dropped_between_two_branches_calls_no_other() {
    let called = Arc::new(Mutex::new(Vec::new()));
    let seen = called.clone();
    let caller = move |call: Call| {
        seen.lock().unwrap().push(call.tool.to_string());
        async {
            thread::sleep(Duration::from_millis(1));
            done()
        }
    };
    let plan = fan_out(&["a", "b"]);
    let (context, [one, _]) = (Context::default(), runtimes());
    one.block_on(async {
        let scope = scope(600);
        let mut run = Run::new(&plan, RunState::new(json!({}), 2), &context, &scope, caller);
        // After a branch that took long, the run yields to other tasks before it polls the next
        // branch.
        assert_eq!(run.drive().now_or_never(), None);
    });
    assert_eq!(*called.lock().unwrap(), ["a"]);
}

#[test]
fn limit_reached_between_two_branches_skips_the_rest() {
    let scope = || {
        let limits = RunLimits { max_calls: Some(2), ..RunLimits::default() };
        scope(600).of_run(&"test".into(), limits, &Context::default(), None)
    };
    each(
        &["a", "b", "c", "d"],
        scope,
        |_: Call| async { done() },
        |state| {
            let (ended, skipped) = (Status::Completed, Status::Skipped);
            assert_eq!(statuses(&state), [ended, ended, skipped, skipped]);
            assert_eq!(state.limit(), Some("max_calls"));
        },
    );
}

#[test]
fn calls_beyond_the_limit_of_all_runs_fail_alone() {
    let scope = || Scope::new(CallLimits::default().max_calls(1), Duration::from_secs(600));
    each(
        &["a", "b"],
        scope,
        |_: Call| async { done() },
        |state| {
            assert_eq!(statuses(&state), [Status::Completed, Status::Failed]);
            assert_eq!(outcome(&state, 1).attempts, 0);
        },
    );
}

#[test]
fn branches_finish_in_the_order_of_their_ends() {
    let steps = json!([
        { "id": "last" }, { "id": "one" }, { "id": "second" }, { "id": "two" },
        { "id": "ends second", "depends_on": ["one", "two"] },
        { "id": "ends last", "depends_on": ["second"] },
    ]);
    let plan = plan(&steps, 6, RunOutput::Outcomes);
    for runtime in runtimes() {
        let ends = Arc::new([Notify::new(), Notify::new()]);
        let caller = |call: Call| {
            let ends = ends.clone();
            async move {
                match &*call.tool {
                    "second" => ends[0].notified().await,
                    "last" => ends[1].notified().await,
                    "ends second" => ends[0].notify_one(),
                    "ends last" => ends[1].notify_one(),
                    _ => (),
                }
                done()
            }
        };
        let state = runtime
            .block_on(async { run(&plan, RunState::new(json!({}), 6), &scope(600), caller).await });
        let mut finished = state.finished;
        finished.retain(|step| *step < 4);
        // On a busy machine, a first poll can take so long that the remaining branches run as
        // tasks.
        finished[..2].sort_unstable();
        assert_eq!(finished, [1, 3, 2, 0]);
    }
}

#[test]
fn branches_complete_if_half_of_them_wait() {
    let caller = async |call: Call| {
        if call.site % 2 == 1 {
            sleep(Duration::from_millis(1)).await;
        }
        done()
    };
    let caller = move |call: Call| caller(call).boxed();
    each(
        &["a"; 64],
        || scope(600),
        caller,
        |state| {
            assert_eq!(statuses(&state), [Status::Completed; 64]);
            let mut finished = state.finished;
            finished.sort_unstable();
            assert!(finished.into_iter().eq(0..64));
        },
    );
}

#[test]
fn branches_wait_at_the_same_time() {
    let all = Arc::new(Barrier::new(8));
    let caller = move |_: Call| {
        let all = all.clone();
        async move {
            all.wait().await;
            done()
        }
    };
    each(
        &["a"; 8],
        || scope(600),
        caller,
        |state| {
            assert_eq!(statuses(&state), [Status::Completed; 8]);
        },
    );
}
