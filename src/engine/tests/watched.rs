//! Tests of the events that observers receive, including those of random runs and of runs with
//! limits.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    super::{limits::RunLimits, meter::Setting},
    properties::{block_on, input, random_plan},
    *,
};
use crate::observe::{self, Observer, Observers, What};

/// Counts how often each run and branch, by name, has started, ended or been skipped.
#[derive(Default)]
struct EventCounter {
    begun: Mutex<BTreeMap<String, [usize; 2]>>,
    skipped: Mutex<BTreeMap<String, usize>>,
    calls: Mutex<usize>,
    mistakes: Mutex<Vec<String>>,
}

impl Observer for EventCounter {
    fn on_event(&self, event: &observe::Event<'_>) {
        let (what, is_end) = match event.what {
            What::RunStarted { .. } => ("run".to_owned(), false),
            What::RunFinished { .. } | What::RunDropped { .. } => ("run".to_owned(), true),
            What::BranchStarted { branch } => (branch.to_string(), false),
            What::BranchFinished { branch, .. } => (branch.to_string(), true),
            What::BranchSkipped { branch, .. } => {
                *self.skipped.lock().unwrap().entry(branch.to_string()).or_default() += 1;
                return;
            }
            What::Attempt { .. } => {
                *self.calls.lock().unwrap() += 1;
                return;
            }
            _ => return,
        };
        let mut begun = self.begun.lock().unwrap();
        let counts = begun.entry(what.clone()).or_default();
        counts[usize::from(is_end)] += 1;
        if counts[1] > counts[0] {
            self.mistakes.lock().unwrap().push(format!("{what} ends before it begins"));
        }
        // All other events occur between the start and the end of the run.
        if what != "run" && begun.get("run") != Some(&[1, 0]) {
            self.mistakes.lock().unwrap().push(format!("{what} is reported outside of the run"));
        }
    }
}

/// Records the events of branches as strings.
#[derive(Default)]
struct EventLog(Mutex<Vec<String>>);

impl Observer for EventLog {
    fn on_event(&self, event: &observe::Event<'_>) {
        let line = match event.what {
            What::BranchStarted { branch } => format!("{branch} begins"),
            What::BranchFinished { branch, status, .. } => format!("{branch} {status}"),
            What::BranchSkipped { branch, reason } => format!("{branch} skipped: {reason}"),
            _ => return,
        };
        self.0.lock().unwrap().push(line);
    }
}

/// Runs a workflow, and returns the events of its branches.
async fn branch_events(steps: &Value, limits: RunLimits) -> Vec<String> {
    let plan = workflow(steps);
    let log = Arc::new(EventLog::default());
    let mut observers = Observers::default();
    observers.push(log.clone());
    let scope = scope(600).observers(observers);
    let scope = scope.of_run(&plan.name, limits, &Context::default(), None);
    run(&plan, RunState::new(json!({}), plan.steps().len()), &scope, World::new().caller()).await;
    log.0.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn failed_loop_cancels_its_own_elements_before_other_steps() {
    let events = branch_events(
        &json!([
            { "id": "a", "tool": "fails_late", "collection": [9, 2],
                "arguments": { "seconds": "$item" } },
            { "id": "b", "tool": "sleeps", "collection": [3], "arguments": { "seconds": "$item" } },
        ]),
        RunLimits::default(),
    )
    .await;
    let [begin, end] = [&events[..5], &events[5..]];
    assert_eq!(begin, ["a begins", "a[0] begins", "a[1] begins", "b begins", "b[0] begins"]);
    let expected = ["a[1] failed", "a[0] cancelled", "a failed", "b[0] cancelled", "b cancelled"];
    assert_eq!(end, expected);
}

#[tokio::test(start_paused = true)]
async fn first_success_cancels_running_elements_before_its_loop_completes() {
    let steps = json!([{ "id": "a", "tool": "sleeps", "collection": [5, 2, 9, 1], "max_parallel": 3,
        "end": "first_success", "arguments": { "seconds": "$item" } }]);
    let events = branch_events(&steps, RunLimits::default()).await;
    let [begin, end] = [&events[..4], &events[4..]];
    assert_eq!(begin, ["a begins", "a[0] begins", "a[1] begins", "a[2] begins"]);
    assert_eq!(end, ["a[1] completed", "a[0] cancelled", "a[2] cancelled", "a completed"]);
}

#[tokio::test(start_paused = true)]
async fn timeout_of_a_repeated_call_cancels_its_iteration() {
    let steps = json!([{ "id": "a", "tool": "sleeps", "until": "false", "timeout": 5,
        "arguments": { "seconds": 3 } }]);
    let events = branch_events(&steps, RunLimits::default()).await;
    let begin = ["a begins", "a[0] begins", "a[0] completed", "a[1] begins"];
    assert_eq!(events, [&begin[..], &["a[1] cancelled", "a timed_out"]].concat());
}

#[tokio::test(start_paused = true)]
async fn step_that_fails_before_its_call_is_reported_as_begun() {
    let steps = json!([{ "id": "a", "arguments": { "x": "$input.x" } }]);
    let events = branch_events(&steps, RunLimits::default()).await;
    assert_eq!(events, ["a begins", "a failed"]);
}

#[tokio::test(start_paused = true)]
async fn reason_of_a_skipped_step_is_reported() {
    let limits = RunLimits { max_calls: Some(1), ..RunLimits::default() };
    let events = branch_events(
        &json!([
            { "id": "no", "condition": "false" },
            { "id": "a", "tool": "fails", "arguments": {}, "depends_on": ["no"] },
            { "id": "b", "depends_on": ["a"] },
        ]),
        RunLimits::default(),
    )
    .await;
    assert_eq!(events, ["no skipped: condition", "a begins", "a failed", "b skipped: ended"]);
    let events = branch_events(
        &json!([
            { "id": "no", "condition": "false" },
            { "id": "a", "depends_on": ["no"] },
            { "id": "b", "depends_on": ["a"] },
        ]),
        limits,
    )
    .await;
    let expected = ["no skipped: condition", "a begins", "a completed", "b skipped: max_calls"];
    assert_eq!(events, expected);

    let elements = json!([{ "id": "loop", "collection": [1, 2], "arguments": {} }]);
    let events = branch_events(&elements, limits).await;
    let skipped = "loop[1] skipped: max_calls";
    let begin = ["loop begins", "loop[0] begins", skipped];
    assert_eq!(events, [&begin[..], &["loop[0] completed", "loop completed"]].concat());
}

#[tokio::test(start_paused = true)]
async fn suspended_run_is_reported_as_dropped_once_for_all_its_clones() {
    let plan = workflow(&json!([{ "id": "sure", "message": "Sure?" }]));
    let counter = Arc::new(EventCounter::default());
    let mut observers = Observers::default();
    observers.push(counter.clone());
    let scope = scope(600).observers(observers);
    let run = RunState::new(json!({}), 1);
    let state = asks::go_on(&plan, run, &scope, World::new().caller()).await;
    let ends = || counter.begun.lock().unwrap()["run"];

    let clone = state.clone();
    assert_eq!(clone, state);
    drop(state);
    assert_eq!(ends(), [1, 0]);
    drop(clone);
    assert_eq!(ends(), [1, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn each_reported_begin_has_one_end_even_if_the_run_is_dropped(
        (steps, needs, concurrency) in random_plan(),
        pause in proptest::option::of(0_u64..6_000),
        max_calls in proptest::option::of(1_usize..8),
    ) {
        let plan = plan(&steps, concurrency, RunOutput::Last);
        let counter = Arc::new(EventCounter::default());
        let mut observers = Observers::default();
        observers.push(counter.clone());
        let state = block_on(async {
            let limits = RunLimits { max_calls, ..RunLimits::default() };
            let (context, world) = (Context::default(), World::new());
            let scope = scope(20).observers(observers);
            let scope = scope.of_run(&"test".into(), limits, &context, None);
            let state = RunState::new(input(), needs.len());
            let mut run = Run::new(&plan, state, &context, &scope, world.caller());
            let pause = Duration::from_millis(pause.unwrap_or(60_000));
            if tokio::time::timeout(pause, run.drive()).await.is_err() {
                return None;
            }
            let (state, watching) = run.into_parts();
            watching.expect("somebody watches").finish(&CallToolResult::default(), None);
            Some(state)
        });

        prop_assert_eq!(&*counter.mistakes.lock().unwrap(), &Vec::<String>::new());
        let begun = counter.begun.lock().unwrap();
        for (what, counts) in &*begun {
            prop_assert_eq!(counts, &[1, 1], "{}", what);
        }
        let calls = *counter.calls.lock().unwrap();
        prop_assert!(max_calls.is_none_or(|max| calls <= max));
        let Some(state) = state else { return Ok(()) };
        let skipped = counter.skipped.lock().unwrap();
        for (at, status) in statuses(&state).into_iter().enumerate() {
            let id = format!("s{at}");
            let is_skipped = status == Status::Skipped;
            prop_assert_eq!(skipped.get(&id).copied(), is_skipped.then_some(1), "{}", &id);
            prop_assert_eq!(begun.contains_key(&id), !is_skipped, "{}", &id);
        }
        // A limit ends a run if and only if it is exceeded.
        if let Some(reached) = &state.reached {
            prop_assert_eq!((reached.setting, Some(calls)), (Setting::Calls, max_calls));
            let refused = state.failed.is_some_and(|step| outcome(&state, step).is_refused());
            prop_assert!(!refused, "what a limit refuses fails no run");
        }
    }
}
