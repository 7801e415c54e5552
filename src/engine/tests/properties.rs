//! Tests with randomly generated plans and tools.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// The deadline of a run, in seconds.
const DEADLINE: u64 = 20;

/// A step of a random plan.
#[derive(Clone, Debug)]
struct Random {
    tool: &'static str,
    seconds: u64,
    /// Selects the dependencies of the step among the steps before it in a random order, as bits.
    needs: u16,
    /// Whether the step reads the records of its dependencies.
    reads: bool,
    may_fail: bool,
    timeout: u64,
    retries: u64,
    condition: Option<bool>,
    /// The loop of the step. `None` if the step is not a loop.
    looped: Option<RandomLoop>,
}

/// The loop of a random step.
#[derive(Clone, Copy, Debug)]
struct RandomLoop {
    until: Until,
    /// The number of elements, or the maximum number of iterations.
    count: usize,
    /// The delay between two calls, in seconds.
    delay: u64,
}

/// The end of a loop.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// After all elements of a collection. Contains the maximum number of elements that run in
    /// parallel, and whether the loop ends after the first success.
    Elements(usize, bool),
    /// When a condition holds, which it does after every fourth iteration. Contains the remainder
    /// for which it holds, and the factor by which the delay grows. For 4, it never holds.
    Condition(u64, u64),
}

fn random_step() -> impl Strategy<Value = Random> {
    let tools = prop_oneof![
        4 => Just("sleeps"),
        1 => Just("fails_late"),
        1 => Just("panics"),
        1 => Just("hangs"),
        1 => Just("breaks"),
        // Returns a successful result without JSON, although `parse` requires JSON.
        1 => Just("says"),
    ];
    let ways = (any::<bool>(), any::<bool>(), proptest::option::weighted(0.3, any::<bool>()));
    let looped = proptest::option::weighted(0.4, random_loop());
    (tools, 0..4_u64, any::<u16>(), ways, 1..6_u64, 0..3_u64, looped).prop_map(
        |(tool, seconds, needs, (reads, may_fail, condition), timeout, retries, looped)| Random {
            tool,
            seconds,
            needs,
            reads,
            may_fail,
            timeout,
            retries,
            condition,
            looped,
        },
    )
}

fn random_loop() -> impl Strategy<Value = RandomLoop> {
    let until = prop_oneof![
        (1_usize..4, any::<bool>()).prop_map(|(most, ends)| Until::Elements(most, ends)),
        (0..5_u64, 1..3_u64).prop_map(|(rest, backoff)| Until::Condition(rest, backoff)),
    ];
    (until, 0_usize..5, 0..3_u64).prop_map(|(until, count, delay)| RandomLoop {
        until,
        count,
        delay,
    })
}

/// Generates plans, together with the dependencies of each step and the concurrency limit. Steps
/// may depend on later steps, but not in a cycle.
pub(super) fn random_plan() -> impl Strategy<Value = (Value, Vec<Vec<usize>>, usize)> {
    let steps = proptest::collection::vec(random_step(), 1..8);
    (steps, any::<u64>(), 1_usize..5).prop_map(|(steps, seed, concurrency)| {
        let wanted: Vec<_> = steps.iter().map(|step| step.needs).collect();
        let needs = needs_in_some_order(&wanted, seed);
        let written = steps.iter().zip(&needs).enumerate();
        let written = written.map(|(at, (step, needs))| written_step(at, step, needs)).collect();
        (Value::Array(written), needs, concurrency)
    })
}

fn written_step(at: usize, step: &Random, needs: &[usize]) -> Value {
    let ids: Vec<_> = needs.iter().map(|step| format!("s{step}")).collect();
    let mut arguments = json!({ "seconds": step.seconds, "texts": ["no json"], "input": "$input" });
    if step.reads {
        for id in &ids {
            arguments[id] = json!([format!("$steps.{id}.output?"), format!("$steps.{id}.status")]);
        }
    }
    let mut written = json!({
        "id": format!("s{at}"),
        "tool": step.tool,
        "arguments": arguments,
        "depends_on": ids,
        "continue": step.may_fail,
        "timeout": step.timeout,
        "retry": { "count": step.retries, "delay": 1 },
        "parse": "json",
    });
    if let Some(holds) = step.condition {
        written["condition"] = if holds { "$input.yes".into() } else { "$input.no".into() };
    }
    if let Some(RandomLoop { until, count, delay }) = step.looped {
        written["delay"] = delay.into();
        match until {
            Until::Elements(max_parallel, ends_at_success) => {
                written["collection"] = vec![0; count].into();
                written["max_parallel"] = max_parallel.into();
                if ends_at_success {
                    written["end"] = "first_success".into();
                }
            }
            Until::Condition(rest, backoff) => {
                let until = format!("(last.number | default(index)) % 4 == {rest}");
                written["until"] = until.into();
                written["max_iterations"] = (count + 1).into();
                written["backoff"] = backoff.into();
            }
        }
    }
    written
}

pub(super) fn block_on<R>(future: impl Future<Output = R>) -> R {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(future)
}

pub(super) fn input() -> Value {
    json!({ "yes": true, "no": false })
}

/// Returns the outcome of each step, without its times.
pub(super) fn ends(state: &RunState) -> Vec<(Status, Option<ErrorKind>, Option<Value>)> {
    let outcomes = state.outcomes.iter().map(|outcome| outcome.as_ref().unwrap());
    let end = |outcome: &Outcome| {
        let output = outcome.field(crate::expr::Field::Output).map(|output| output.into_owned());
        (outcome.status, outcome.error.as_ref().map(|error| error.kind), output)
    };
    outcomes.map(end).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn every_step_ends_once_and_begins_after_its_dependencies(
        (steps, needs, concurrency) in random_plan(),
    ) {
        let plan = plan(&steps, concurrency, RunOutput::Last);
        let (state, world) = block_on(async {
            let world = World::new();
            let state = RunState::new(input(), needs.len());
            let state = run(&plan, state, &scope(DEADLINE), world.caller()).await;
            prop_assert!(world.begun.elapsed().as_secs() <= DEADLINE);
            Ok((state, world))
        })?;

        prop_assert!(state.outcomes.iter().all(Option::is_some));
        let mut finished = state.finished.clone();
        finished.sort_unstable();
        prop_assert_eq!(finished, (0..needs.len()).collect::<Vec<_>>());
        // A run fails if and only if a step fails that does not allow the run to continue.
        let failed = state.failed.map(|step| outcome(&state, step).status);
        prop_assert!(matches!(failed, None | Some(Status::Failed | Status::TimedOut)));
        let may_not_fail = |(step, status): (usize, Status)| {
            matches!(status, Status::Failed | Status::TimedOut) && steps[step]["continue"] == false
        };
        let has_failed = statuses(&state).into_iter().enumerate().any(may_not_fail);
        prop_assert_eq!(state.failed.is_some(), has_failed && !state.timed_out);

        // The start and end of each step are derived from the calls that were made for it.
        let place = |step: usize| state.finished.iter().position(|&other| other == step);
        for event in world.events() {
            let id = event.branch.split('[').next().unwrap().to_owned();
            let step: usize = id[1..].parse().unwrap();
            if event.what != "starts" {
                continue;
            }
            for &needed in &needs[step] {
                prop_assert!(place(needed) < place(step));
                let Outcome { started_ms, duration_ms, .. } = *outcome(&state, needed);
                let ended = started_ms + duration_ms;
                prop_assert!(ended / 1000 <= event.seconds, "{} needs s{}", id, needed);
            }
        }
    }

    #[test]
    fn running_steps_and_elements_obey_their_limits((mut steps, needs, concurrency) in random_plan()) {
        // Excludes cancelled calls, because they end a little later than the run continues.
        for step in steps.as_array_mut().unwrap() {
            step["timeout"] = 9.into();
            step["continue"] = true.into();
            if step["tool"] == "hangs" {
                step["tool"] = "breaks".into();
            }
            let members = step.as_object_mut().unwrap();
            members.remove("end");
            if members.contains_key("until") {
                members.remove("timeout");
            }
        }
        let plan = plan(&steps, concurrency, RunOutput::Outcomes);
        // Counts the running calls of each step. Dropping the guard decrements the count, however
        // the call ends.
        struct Guard(Arc<Mutex<HashMap<usize, usize>>>, usize);
        impl Drop for Guard {
            fn drop(&mut self) {
                let mut calls = self.0.lock().unwrap();
                let count = calls.get_mut(&self.1).unwrap();
                *count -= 1;
                if *count == 0 {
                    calls.remove(&self.1);
                }
            }
        }
        let calls: Arc<Mutex<HashMap<usize, usize>>> = Arc::default();
        let (most_steps, most_calls) = (Mutex::new(0), Mutex::new(HashMap::new()));
        let state = block_on(async {
            let world = World::new();
            let caller = |call: Call| {
                let guard = Guard(calls.clone(), call.site);
                let mut now = calls.lock().unwrap();
                *now.entry(call.site).or_default() += 1;
                let mut most = most_steps.lock().unwrap();
                *most = now.len().max(*most);
                let mut most = most_calls.lock().unwrap();
                let of_step: &mut usize = most.entry(call.site).or_default();
                *of_step = now[&call.site].max(*of_step);
                drop(now);
                let world = world.clone();
                async move {
                    let _guard = guard;
                    world.serve(call).await
                }
            };
            run(&plan, RunState::new(input(), needs.len()), &scope(600), caller).await
        });
        prop_assert!(*most_steps.lock().unwrap() <= concurrency);
        for (site, most) in most_calls.into_inner().unwrap() {
            let allowed = steps[site]["max_parallel"].as_u64().unwrap_or(1);
            prop_assert!(most as u64 <= allowed, "{} of step {}", most, site);
        }
        prop_assert!(calls.lock().unwrap().is_empty(), "all calls have ended");
        prop_assert!(!state.timed_out);
    }

    #[test]
    fn interrupted_run_ends_like_an_uninterrupted_one(
        (mut steps, needs, concurrency) in random_plan(),
        pauses in proptest::collection::vec(0_u64..4_000, 1..4),
    ) {
        // Excludes steps whose outcome depends on random delays or on the clock of the run.
        for step in steps.as_array_mut().unwrap() {
            step.as_object_mut().unwrap().remove("retry");
            if step["tool"] == "hangs" {
                step["timeout"] = 1.into();
            } else if step.get("until").is_some() {
                step.as_object_mut().unwrap().remove("timeout");
            }
            // Elements that end at the same time may end in any order.
            if step.get("end").is_some() {
                step["max_parallel"] = 1.into();
            }
            step["continue"] = true.into();
        }
        let plan = plan(&steps, concurrency, RunOutput::Last);
        let whole = block_on(async {
            let state = RunState::new(input(), needs.len());
            run(&plan, state, &scope(600), World::new().caller()).await
        });

        let mut text = serde_json::to_string(&RunState::new(input(), needs.len())).unwrap();
        for pause in pauses {
            text = block_on(async {
                let state: RunState = serde_json::from_str(&text).unwrap();
                let finished = state.finished.clone();
                let (context, scope, world) = (Context::default(), scope(600), World::new());
                let mut run = Run::new(&plan, state, &context, &scope, world.caller());
                let _ = tokio::time::timeout(Duration::from_millis(pause), run.drive()).await;
                for branch in world.started() {
                    let id = branch.split('[').next().unwrap();
                    let step: usize = id[1..].parse().unwrap();
                    prop_assert!(!finished.contains(&step), "{} was called again", id);
                }
                Ok(serde_json::to_string(&run.into_state()).unwrap())
            })?;
        }
        let resumed = block_on(async {
            let state: RunState = serde_json::from_str(&text).unwrap();
            run(&plan, state, &scope(600), World::new().caller()).await
        });
        prop_assert_eq!(ends(&resumed), ends(&whole));
    }
}
