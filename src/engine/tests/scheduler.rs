//! Tests of the scheduler without a runtime. Random numbers stand for events: they decide which
//! call ends next, how it ends, and when.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    properties::{self, input},
    rounds, *,
};
use crate::engine::{
    attempts::no_answer,
    branches::BranchId,
    meter::{LimitName, Reached, Setting},
    plan::StepSet,
    question::{Question, Response},
    questions::Questions,
    scheduler::{Asking, Attempt, Command, Effects, Loop, Pause, Scheduler, Settings},
    state::Resume,
};

/// Records the effects of a scheduler as strings, each of which begins with the name of the effect.
/// Also records which calls the scheduler has aborted.
#[derive(Default)]
struct Log(Vec<String>, Vec<BranchId>);

/// A driver of the scheduler that calls no tools and has no clock.
struct Simulation<'p> {
    plan: &'p Plan,
    scheduler: Scheduler<'p, Log>,
    now: Duration,
    /// The attempts that have not ended. Each comes with the start time of its call.
    running: Vec<(BranchId, Duration)>,
    /// The number of times that the run was suspended for questions.
    rounds: usize,
}

impl Effects for Log {
    fn abort(&mut self, id: BranchId) {
        self.0.push(format!("abort {id:?}"));
        self.1.push(id);
    }

    fn begin_step(&mut self, step: usize) {
        self.0.push(format!("begin {step}"));
    }

    fn open_step(&mut self, step: usize) {
        self.0.push(format!("open {step}"));
    }

    fn split_step(&mut self, each: &Loop<'_>) {
        self.0.push(format!("split {} into {}", each.state.step, each.max_count()));
    }

    fn begin_element(&mut self, id: BranchId) {
        self.0.push(format!("element {id:?}"));
    }

    fn wait(&mut self, id: BranchId) {
        self.0.push(format!("wait {id:?}"));
    }

    fn end_attempt(&mut self, id: BranchId, outcome: &Outcome) {
        self.0.push(format!("attempt {id:?} {outcome:?}"));
    }

    fn end_element(&mut self, id: BranchId, outcome: &Outcome, limit: LimitName) {
        self.0.push(format!("end {id:?} {outcome:?} {limit:?}"));
    }

    fn skip_element(&mut self, id: BranchId, limit: LimitName) {
        self.0.push(format!("skip {id:?} {limit:?}"));
    }

    fn end_step(&mut self, step: usize, outcome: &Outcome, limit: LimitName) {
        self.0.push(format!("finish {step} {:?} {outcome:?} {limit:?}", outcome.status));
    }

    fn end_run(&mut self) {
        self.0.push("end_run".to_owned());
    }
}

impl<'p> Simulation<'p> {
    fn new(plan: &'p Plan, seed: u64) -> Self {
        let state = RunState::new(input(), plan.steps().len());
        let scheduler = Scheduler::new(plan, Box::new(state), settings(seed), Log::default());
        let (now, running) = (Duration::ZERO, Vec::new());
        let mut simulation = Self { plan, scheduler, now, running, rounds: 0 };
        simulation.advance(0);
        simulation
    }

    fn log(&mut self, text: String) {
        self.scheduler.effects.0.push(text);
    }

    /// Processes the event that `number` stands for. Returns `false` if the run has ended.
    fn handle(&mut self, number: u16) -> bool {
        let (choice, kind) = (usize::from(number >> 3), number & 7);
        self.now += Duration::from_millis(u64::from(number % 700));
        let (now, due) = (self.now, self.scheduler.due());
        if now >= due {
            if due == settings(0).deadline {
                let _ = self.scheduler.end(now);
                return self.pause(Pause::Ended);
            }
            self.scheduler.effects.1.clear();
            self.scheduler.pass(due, now);
            // Aborted attempts do not end by themselves.
            let aborted = std::mem::take(&mut self.scheduler.effects.1);
            self.running.retain(|(id, _)| !aborted.contains(id));
        } else if !self.running.is_empty() {
            let (id, begun) = self.running.remove(choice % self.running.len());
            match kind {
                0 => self.scheduler.lose(id, StepError::new(ErrorKind::Panic, "panicked"), now),
                1 => {
                    let request = serde_json::from_value(json!({
                        "method": "elicitation/create",
                        "params": { "message": "?", "requestedSchema": { "type": "object", "properties": {} } },
                    }));
                    let asked = [("key".to_owned(), Question::new(request.unwrap()))].into();
                    let questions = Questions { asked, resume: Resume::Tool(None) };
                    self.scheduler.wait_for_answers(id, questions);
                }
                2 => {
                    let error = Err(StepError::new(ErrorKind::Service, "away"));
                    self.scheduler.end_attempt(id, Outcome::answered(begun, now, error), now);
                }
                3 => {
                    let limit = Reached { setting: Setting::Cost, limit: 1, of: "test".into() };
                    self.running.push((id, begun));
                    self.scheduler.reach((choice % 4 == 0).then_some(limit), now);
                }
                _ => {
                    let result = CallToolResult::structured(json!({ "number": number }));
                    let outcome = Outcome::answered(begun, now, Ok(result.into()));
                    self.scheduler.end_attempt(id, outcome, now);
                }
            }
        }
        self.advance(number)
    }

    /// Executes commands until the run pauses. Returns `false` if the run has ended.
    fn advance(&mut self, number: u16) -> bool {
        let now = self.now;
        let mut pending = None;
        loop {
            let command = match pending.take().or_else(|| self.scheduler.resume(now)) {
                Some(command) => command,
                None => self.scheduler.next(now),
            };
            match command {
                Command::Permit => {
                    self.log("permit".to_owned());
                    let limit = Reached { setting: Setting::Calls, limit: 9, of: "test".into() };
                    pending = Some(self.scheduler.permit((number == 77).then_some(limit), now));
                }
                Command::Call(call, arguments) => {
                    self.log(format!("call {:?} {arguments:?}", call.id));
                    if number % 97 == 13 {
                        let error = StepError::definition("the arguments do not fit");
                        self.scheduler.reject_call(call, error, None, now);
                    } else {
                        let attempt = self.scheduler.begin_call(call, arguments, now);
                        self.begin(&attempt);
                    }
                }
                Command::Retry(id) => {
                    let attempt = self.scheduler.begin_retry(id, now).expect("it has not ended");
                    self.begin(&attempt);
                }
                Command::Count(accepted) => {
                    self.log(format!("count {}", accepted.output));
                    self.scheduler.count(*accepted, Ok(()), now);
                }
                Command::Continue => (),
                Command::Pause(Pause::Yield) => {
                    self.log("yield".to_owned());
                    self.scheduler.go_on();
                }
                Command::Pause(Pause::Suspended) => self.resume(number),
                Command::Pause(pause) => return self.pause(pause),
            }
        }
    }

    fn begin(&mut self, attempt: &Attempt<'_>) {
        let Attempt { id, input, begun, count, after, .. } = attempt;
        assert!(self.now < settings(0).deadline, "no call begins after the deadline");
        self.log(format!("attempt {count} of {id:?} after {after:?} with {input:?}"));
        self.running.push((*id, *begun));
    }

    fn pause(&mut self, pause: Pause) -> bool {
        self.log(format!("{pause:?} at {:?}", self.now));
        pause == Pause::Wait
    }

    /// Resumes the run from its serialized state, with an answer to each question.
    fn resume(&mut self, number: u16) {
        self.rounds += 1;
        let text = serde_json::to_string(&self.scheduler.state).unwrap();
        self.log(format!("suspended {text}"));
        let mut state: RunState = serde_json::from_str(&text).unwrap();
        assert!(state.fits(self.plan), "{text}");
        let action = if number & 1 == 0 { "accept" } else { "decline" };
        let sure = if number & 2 == 0 { json!(true) } else { json!("maybe") };
        let answer = Response::Answer(json!({ "action": action, "content": { "sure": sure } }));
        let responses = state.questions(self.plan).into_keys().map(|key| (key, answer.clone()));
        let responses = responses.collect();
        state.answer(self.plan, responses);
        let log = std::mem::take(&mut self.scheduler.effects);
        self.scheduler = Scheduler::new(self.plan, Box::new(state), settings(1), log);
    }
}

fn settings(seed: u64) -> Settings<'static> {
    Settings {
        deadline: Duration::from_secs(30),
        is_limited: true,
        tools_may_ask: true,
        seed,
        asking: Some(Box::new(Asking {
            started_unix_ms: 0,
            has_forms: true,
            closed: None,
            room: usize::MAX,
            steps: StepSet::default(),
            read_only: Vec::new(),
        })),
        repeatable: Vec::new(),
    }
}

/// The timer may fire some milliseconds late.
#[test]
fn timeout_error_names_the_configured_duration() {
    let plan = workflow(&json!([{ "id": "a", "arguments": {}, "timeout": 2 }]));
    let mut late = Simulation::new(&plan, 0);
    let due = late.scheduler.due();
    late.scheduler.pass(due, due + Duration::from_micros(1_400));
    let ended = outcome(&late.scheduler.state, 0);
    let message = &ended.error.as_ref().unwrap().message;
    assert_eq!((&**message, ended.duration_ms), ("no answer within 2s", 2001));

    let plan = workflow(&json!([{ "id": "a", "arguments": {}, "timeout": 60 }]));
    let mut late = Simulation::new(&plan, 0);
    let _ = late.scheduler.end(settings(0).deadline + Duration::from_micros(1_400));
    assert_eq!(error(&late.scheduler.state, 0).message, "no answer within 30s");
}

#[test]
fn duration_in_a_timeout_error_is_rounded() {
    for (micros, expected) in [
        (0, "0ns"),
        (1_400, "1ms"),
        (499_600, "500ms"),
        (1_999_400, "2s"),
        (2_503_000, "2.5s"),
        (u64::MAX, "18446744073709.55s"),
    ] {
        let error = no_answer(Duration::from_micros(micros));
        assert_eq!(error.message, format!("no answer within {expected}"));
    }
}

#[test]
fn loop_that_fails_while_it_resumes_withdraws_its_questions() {
    let each = json!({ "id": "each", "arguments": { "item": "$item" }, "collection": [0, 1],
        "max_parallel": 2 });
    let plan = workflow(&json!([each]));
    let mut simulation = Simulation::new(&plan, 0);
    // Both elements ask. The arguments of the first one are rejected when it resumes.
    assert!(simulation.handle(1));
    assert!(!simulation.handle(401));
    assert_eq!(simulation.rounds, 1);
    let failed = &error(&simulation.scheduler.state, 0).message;
    assert_eq!(failed, "element 0: the arguments do not fit");
}

/// Runs a plan with these events. Returns the state and the length of the log after each event, and
/// the whole log.
fn run_with(plan: &Plan, seed: u64, events: &[u16]) -> (Vec<(usize, String)>, Vec<String>) {
    let mut simulation = Simulation::new(plan, seed);
    let mut states = Vec::new();
    for &event in events {
        let goes_on = simulation.handle(event);
        let state = serde_json::to_string(&simulation.scheduler.state).unwrap();
        states.push((simulation.scheduler.effects.0.len(), state));
        if !goes_on {
            break;
        }
    }
    (states, simulation.scheduler.effects.0)
}

fn random_plans() -> impl Strategy<Value = (Value, Vec<Vec<usize>>, usize)> {
    prop_oneof![properties::random_plan(), rounds::random_plan(true)]
}

fn random_events() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(any::<u16>(), 120)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn scheduler_returns_the_same_commands_for_the_same_events(
        (steps, _, concurrency) in random_plans(),
        seed in any::<u64>(),
        events in random_events(),
    ) {
        let plan = plan(&steps, concurrency, RunOutput::Last);
        let whole = run_with(&plan, seed, &events);
        prop_assert_eq!(&run_with(&plan, seed, &events), &whole);
        // A part of the events results in a part of the log.
        let (states, log) = whole;
        for (count, (length, state)) in states.iter().enumerate() {
            let (part, part_of_log) = run_with(&plan, seed, &events[..=count]);
            prop_assert_eq!(&part[count].1, state);
            prop_assert_eq!(&part_of_log[..], &log[..*length]);
        }
    }

    #[test]
    fn scheduler_ends_each_step_once_after_its_dependencies(
        (steps, needs, concurrency) in random_plans(),
        events in random_events(),
    ) {
        let plan = plan(&steps, concurrency, RunOutput::Last);
        let mut simulation = Simulation::new(&plan, 1);
        let mut goes_on = true;
        for &event in events.iter().cycle().take(2_000) {
            goes_on = goes_on && simulation.handle(event);
        }
        prop_assert!(!goes_on, "{:?}", simulation.scheduler.effects.0);
        let mut begun = BTreeSet::new();
        let mut ended = BTreeSet::new();
        for text in &simulation.scheduler.effects.0 {
            let mut words = text.split(' ');
            let (what, step) = (words.next(), words.next().and_then(|step| step.parse().ok()));
            let Some(step): Option<usize> = step else { continue };
            match what {
                Some("begin") => {
                    prop_assert!(needs[step].iter().all(|needed| ended.contains(needed)), "{text}");
                    prop_assert!(begun.insert(step), "{text}");
                }
                Some("finish") => prop_assert!(ended.insert(step), "{text}"),
                _ => (),
            }
        }
        prop_assert_eq!(ended.len(), needs.len());
        prop_assert!(begun.is_subset(&ended));
    }
}
