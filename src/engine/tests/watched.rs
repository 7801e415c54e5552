//! What is told of runs that nobody thought of, and of what a limit leaves of them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    super::{limits::RunLimits, meter::Setting},
    properties::{block_on, input, random_plan},
    *,
};
use crate::observe::{self, Observer, Observers, What};

/// How often something began, and how often it ended, by what it is called; and how
/// often something was skipped.
#[derive(Default)]
struct Told {
    begun: Mutex<BTreeMap<String, [usize; 2]>>,
    skipped: Mutex<BTreeMap<String, usize>>,
    calls: Mutex<usize>,
    mistakes: Mutex<Vec<String>>,
}

impl Observer for Told {
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
        // Whatever else there is belongs to the run.
        if what != "run" && begun.get("run") != Some(&[1, 0]) {
            self.mistakes.lock().unwrap().push(format!("{what} is told outside of the run"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn whatever_begins_ends_once_also_if_the_run_is_dropped_or_ended(
        (steps, needs, concurrency) in random_plan(),
        pause in proptest::option::of(0_u64..6_000),
        max_calls in proptest::option::of(1_usize..8),
    ) {
        let plan = plan(&steps, concurrency, Answer::Last);
        let told = Arc::new(Told::default());
        let mut observers = Observers::default();
        observers.push(told.clone());
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
            watching.expect("somebody watches").finish(false, None);
            Some(state)
        });

        prop_assert_eq!(&*told.mistakes.lock().unwrap(), &Vec::<String>::new());
        let begun = told.begun.lock().unwrap();
        for (what, counts) in &*begun {
            prop_assert_eq!(counts, &[1, 1], "{}", what);
        }
        let calls = *told.calls.lock().unwrap();
        prop_assert!(max_calls.is_none_or(|max| calls <= max));
        let Some(state) = state else { return Ok(()) };
        let skipped = told.skipped.lock().unwrap();
        for (at, status) in statuses(&state).into_iter().enumerate() {
            let id = format!("s{at}");
            let is_skipped = status == Status::Skipped;
            prop_assert_eq!(skipped.get(&id).copied(), is_skipped.then_some(1), "{}", &id);
            prop_assert_eq!(begun.contains_key(&id), !is_skipped, "{}", &id);
        }
        // A limit ends a run if it is in the way, and only then.
        if let Some(reached) = &state.reached {
            prop_assert_eq!((reached.setting, Some(calls)), (Setting::Calls, max_calls));
            let refused = state.failed.is_some_and(|step| outcome(&state, step).is_refused());
            prop_assert!(!refused, "what a limit refuses fails no run");
        }
    }
}
