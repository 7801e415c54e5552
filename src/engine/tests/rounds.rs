//! Tests with randomly generated plans that ask questions, and people who answer them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use proptest::{prelude::*, test_runner::TestRunner};

use super::{
    asks::Rounds,
    properties::{block_on, ends, input},
    *,
};
use crate::engine::{plan::StepSet, question::Response};

/// The maximum number of rounds of questions in a test. A test may leave questions unanswered in a
/// round, but answers all of them long before this maximum.
const MAX_TESTED_ROUNDS: usize = 300;

/// A step of a random plan.
#[derive(Clone, Debug)]
struct Random {
    does: Does,
    /// Selects the dependencies of the step among the steps before it in a random order, as bits.
    needs: u16,
    may_fail: bool,
    retries: u64,
    condition: Option<bool>,
}

#[derive(Clone, Debug)]
enum Does {
    /// Calls a tool that asks a number of questions.
    Call(Tool),
    /// Calls such a tool for each element of a loop. Contains the number of elements, the maximum
    /// number of elements that run in parallel, and whether the loop ends after the first success.
    Loop(Tool, usize, usize, bool),
    /// Repeats the call of such a tool. Contains the number of iterations after which the condition
    /// holds, and the maximum number of iterations.
    Repeat(Tool, u64, usize),
    /// Calls the first tool if the flag is true. Otherwise calls the second tool, if any.
    Switch(Tool, Option<Tool>, bool),
    /// Asks a question. Contains the effects on the run if the person declines or dismisses it.
    Ask(&'static str, &'static str),
}

#[derive(Clone, Debug)]
struct Tool {
    name: &'static str,
    seconds: u64,
    rounds: u64,
}

/// A person's response to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Accept,
    Decline,
    Cancel,
    Late,
    Misfit,
    Nothing,
}

/// A person whose response depends only on the question, and on how many times it was asked.
#[derive(Clone, Copy, Debug)]
struct Whim {
    seed: u64,
    /// The average number of questions, out of four, that the person leaves unanswered.
    leaves: u64,
    /// Whether the person accepts every question of a step.
    agrees: bool,
}

/// The questions of a run, and the person's responses.
struct Conversation<'p> {
    rounds: Rounds<'p>,
    written: &'p Value,
    needs: &'p [Vec<usize>],
    whim: Whim,
    /// The number of times that each question was asked.
    times: HashMap<String, u64>,
}

fn random_tool() -> impl Strategy<Value = Tool> {
    let names = prop_oneof![
        5 => Just("sleeps"),
        2 => Just("fails_late"),
        1 => Just("hangs"),
        1 => Just("breaks"),
    ];
    (names, 0..4_u64, 0..4_u64).prop_map(|(name, seconds, rounds)| Tool { name, seconds, rounds })
}

fn random_step(may_end: bool) -> impl Strategy<Value = Random> {
    let on = move || match may_end {
        true => prop_oneof![Just("abort"), Just("continue"), Just("skip_remaining")].boxed(),
        false => Just("continue").boxed(),
    };
    // The element that succeeds first depends on when answers arrive.
    let ends = if may_end { any::<bool>().boxed() } else { Just(false).boxed() };
    let does = prop_oneof![
        3 => random_tool().prop_map(Does::Call),
        3 => (on(), on()).prop_map(|(on_decline, on_cancel)| Does::Ask(on_decline, on_cancel)),
        2 => (random_tool(), 0_usize..5, 1_usize..4, ends)
            .prop_map(|(tool, count, parallel, ends)| Does::Loop(tool, count, parallel, ends)),
        1 => (random_tool(), 1..5_u64, 1_usize..5)
            .prop_map(|(tool, count, max_iterations)| Does::Repeat(tool, count, max_iterations)),
        1 => (random_tool(), proptest::option::of(random_tool()), any::<bool>())
            .prop_map(|(tool, other, holds)| Does::Switch(tool, other, holds)),
    ];
    let may_fail = if may_end { any::<bool>().boxed() } else { Just(true).boxed() };
    let condition = proptest::option::weighted(0.2, any::<bool>());
    (does, any::<u16>(), may_fail, 0..3_u64, condition).prop_map(
        |(does, needs, may_fail, retries, condition)| Random {
            does,
            needs,
            may_fail,
            retries,
            condition,
        },
    )
}

/// Generates plans, together with the dependencies of each step and the concurrency limit. Steps
/// may depend on later steps, but not in a cycle. Unless `may_end` is true, all steps run
/// regardless of failures.
pub(super) fn random_plan(may_end: bool) -> impl Strategy<Value = (Value, Vec<Vec<usize>>, usize)> {
    let steps = proptest::collection::vec(random_step(may_end), 1..8);
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
    let read: serde_json::Map<_, _> = ids
        .iter()
        .map(|id| {
            (id.clone(), json!([format!("$steps.{id}.output?"), format!("$steps.{id}.status")]))
        })
        .collect();
    let call = |tool: &Tool| {
        let Tool { name, seconds, rounds } = tool;
        let arguments =
            json!({ "seconds": seconds, "rounds": rounds, "read": read, "input": "$input" });
        json!({ "tool": name, "arguments": arguments })
    };
    let mut written = match &step.does {
        Does::Call(tool) => call(tool),
        Does::Loop(tool, count, max_parallel, ends_at_success) => {
            let mut written = call(tool);
            written["arguments"]["item"] = "$item".into();
            written["collection"] = (0..*count).collect::<Vec<_>>().into();
            written["max_parallel"] = (*max_parallel).into();
            if *ends_at_success {
                written["end"] = "first_success".into();
            }
            // A loop whose collection may be invalid needs default results, so that its failure
            // does not fail the run.
            written["default_results"] = json!([]);
            written
        }
        Does::Repeat(tool, count, max_iterations) => {
            let mut written = call(tool);
            written["arguments"]["n"] = "$index".into();
            written["arguments"]["after"] = "$last.n?".into();
            written["until"] = format!("last.n + 1 == {count}").into();
            written["max_iterations"] = (*max_iterations).into();
            written
        }
        Does::Switch(tool, other, holds) => {
            let mut case = call(tool);
            case["when"] = if *holds { "$input.yes".into() } else { "$input.no".into() };
            let mut written = json!({ "cases": [case] });
            if let Some(other) = other {
                written["default"] = call(other);
            }
            written
        }
        Does::Ask(on_decline, on_cancel) => json!({
            "message": format!("s{at} after {}?", ids.join(", ")),
            "schema": {
                "type": "object",
                "properties": { "sure": { "type": "boolean" } },
                "required": ["sure"],
            },
            "on_decline": on_decline,
            "on_cancel": on_cancel,
        }),
    };
    written["id"] = format!("s{at}").into();
    written["depends_on"] = ids.into();
    written["continue"] = step.may_fail.into();
    // Retries have no delay, because the delay would be random.
    written["retry"] = json!({ "count": step.retries, "delay": 0 });
    // The clock of a run depends on when answers arrive, so only a call that never ends may time
    // out a repeated call.
    let may_time_out = match &step.does {
        Does::Ask(..) => false,
        Does::Repeat(tool, ..) => tool.name == "hangs",
        Does::Call(_) | Does::Loop(..) | Does::Switch(..) => true,
    };
    if may_time_out {
        written["timeout"] = 6.into();
    }
    if let Some(holds) = step.condition {
        written["condition"] = if holds { "$input.yes".into() } else { "$input.no".into() };
    }
    written
}

fn random_whim() -> impl Strategy<Value = Whim> {
    let agrees = proptest::bool::weighted(0.3);
    (any::<u64>(), 0..3_u64, agrees).prop_map(|(seed, leaves, agrees)| Whim {
        seed,
        leaves,
        agrees,
    })
}

// === impl Whim ===

impl Whim {
    /// Returns the response to a question that was already asked `times` times before.
    fn says(self, key: &str, times: u64) -> Says {
        let mut rng = self.rng(key, times);
        if rng.u64(0..4) < self.leaves {
            return Says::Nothing;
        }
        // The test tools accept every answer.
        if self.agrees || key.contains(':') {
            return Says::Accept;
        }
        // The response depends only on the question, and not on how often it was left unanswered.
        match self.rng(key, 0).u64(0..10) {
            0..4 => Says::Accept,
            4..6 => Says::Decline,
            6..8 => Says::Cancel,
            8 => Says::Late,
            _ => Says::Misfit,
        }
    }

    fn rng(self, key: &str, times: u64) -> fastrand::Rng {
        let mut hasher = DefaultHasher::new();
        (self.seed, key, times).hash(&mut hasher);
        fastrand::Rng::with_seed(hasher.finish())
    }
}

// === impl Says ===

impl Says {
    fn response(self) -> Option<Response> {
        let answer = match self {
            Self::Accept => json!({ "action": "accept", "content": { "sure": true } }),
            Self::Decline => json!({ "action": "decline" }),
            Self::Cancel => json!({ "action": "cancel" }),
            Self::Misfit => json!({ "action": "accept", "content": { "sure": "maybe" } }),
            Self::Late => return Some(Response::Late),
            Self::Nothing => return None,
        };
        Some(Response::Answer(answer))
    }
}

// === impl Conversation ===

impl<'p> Conversation<'p> {
    async fn begin(
        plan: &'p Plan,
        written: &'p Value,
        needs: &'p [Vec<usize>],
        whim: Whim,
        travels: bool,
    ) -> Self {
        let state = RunState::new(input(), needs.len());
        let rounds = Rounds::go_on(plan, state, travels).await;
        Self { rounds, written, needs, whim, times: HashMap::new() }
    }

    /// Answers questions until the run ends.
    async fn end(mut self) -> Rounds<'p> {
        for _ in 0..MAX_TESTED_ROUNDS {
            if self.rounds.state.asked.is_empty() {
                return self.rounds;
            }
            let said = self.said();
            self.answer(&said).await;
        }
        panic!("the run asks without an end: {:?}", self.rounds.state);
    }

    fn keys(&self) -> Vec<String> {
        self.rounds.questions().into_iter().map(|(key, _)| key).collect()
    }

    /// Returns the responses to all pending questions.
    fn said(&mut self) -> BTreeMap<String, Says> {
        let says = |key: String| {
            let times = self.times.entry(key.clone()).or_default();
            *times += 1;
            (key.clone(), self.whim.says(&key, *times - 1))
        };
        self.rounds.questions().into_iter().map(|(key, _)| key).map(says).collect()
    }

    async fn answer(&mut self, said: &BTreeMap<String, Says>) {
        let response = |(key, says): (&String, &Says)| Some((key.clone(), says.response()?));
        self.rounds.respond(said.iter().filter_map(response).collect()).await;
    }

    fn finished(&self) -> StepSet {
        self.rounds.state.finished.iter().copied().collect()
    }

    /// Returns the steps that wait for answers.
    fn open(&self) -> BTreeSet<usize> {
        self.rounds.state.asked.iter().map(|pending| pending.id.step).collect()
    }

    /// Returns the effect of these responses on the run if they end it. Returns `None` if the run
    /// continues.
    fn ending(&self, said: &BTreeMap<String, Says>) -> Option<&'p str> {
        let endings = said.iter().filter_map(|(key, says)| {
            let step = &self.written[key.strip_prefix('s')?.parse::<usize>().ok()?];
            let on = match says {
                Says::Decline => step["on_decline"].as_str(),
                Says::Cancel | Says::Late => step["on_cancel"].as_str(),
                _ => None,
            };
            on.filter(|&on| on != "continue")
        });
        // If one response aborts the run and another skips the rest, the run is aborted.
        endings.min()
    }

    /// Checks that the run has asked all questions that it can ask. Each waiting step must depend
    /// on an unfinished step, or exceed the concurrency limit.
    fn asks_all_it_can(&self, concurrency: usize) -> Result<(), TestCaseError> {
        let (finished, open) = (self.finished(), self.open());
        let is_question = |step: usize| self.written[step].get("message").is_some();
        let room = open.iter().filter(|&&step| !is_question(step)).count() < concurrency;
        for (step, needs) in self.needs.iter().enumerate() {
            if finished.contains(step) || open.contains(&step) {
                continue;
            }
            let could = needs.iter().all(|&step| finished.contains(step));
            prop_assert!(!(could && (room || is_question(step))), "s{step} could begin");
        }
        let state = serde_json::to_value(&self.rounds.state).unwrap();
        for each in state["loops"].as_array().into_iter().flatten() {
            let step = each["step"].as_u64().unwrap() as usize;
            let waiting = self.rounds.state.asked.iter().filter(|pending| pending.id.step == step);
            let count = each["iterations"].as_array().unwrap().len();
            let all = each["next"].as_u64() == Some(count as u64);
            let most = self.written[step]["max_parallel"].as_u64().unwrap_or(1) as usize;
            prop_assert!(all || waiting.count() == most, "s{step} could go on");
        }
        Ok(())
    }
}

/// Returns the index of a branch's step, for example 1 for `s1[0]`.
fn step_of(branch: &str) -> usize {
    branch[1..].split('[').next().unwrap().parse().unwrap()
}

/// Returns the index of the step whose question has this key, for example 1 for `s1[0]:sure`.
fn step_of_key(key: &str) -> usize {
    step_of(key.split(':').next().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn each_round_asks_all_it_can_and_repeats_no_ended_step(
        (written, needs, concurrency) in random_plan(true),
        whim in random_whim(),
    ) {
        let plan = plan(&written, concurrency, RunOutput::Last);
        block_on(async {
            let mut talk = Conversation::begin(&plan, &written, &needs, whim, true).await;
            let mut count = 0;
            while !talk.keys().is_empty() {
                count += 1;
                prop_assert!(count < MAX_TESTED_ROUNDS, "it asks without an end");
                talk.asks_all_it_can(concurrency)?;
                let (before, open) = (talk.rounds.state.finished.clone(), talk.open());
                let (keys, calls) = (talk.keys(), talk.rounds.world.started().len());
                let said = talk.said();
                let ending = talk.ending(&said);
                talk.answer(&said).await;

                let state = &talk.rounds.state;
                let called = talk.rounds.world.started().split_off(calls);
                prop_assert_eq!(&state.finished[..before.len()], &before[..]);
                for branch in &called {
                    let step = step_of(branch);
                    prop_assert!(!before.contains(&step), "{} was called again", branch);
                    if ending == Some("skip_remaining") {
                        prop_assert!(open.contains(&step), "{} began", branch);
                    }
                }
                if ending == Some("abort") {
                    prop_assert_eq!(called, Vec::<String>::new());
                    prop_assert!(state.failed.is_some());
                }
                if ending.is_some() {
                    prop_assert_eq!(talk.keys(), Vec::<String>::new());
                } else if state.failed.is_none() {
                    // A question without an answer is asked again, unless its loop has ended.
                    let may_end = |step: &Value| {
                        step.get("end").is_some() || step.get("until").is_some()
                    };
                    let left = keys.into_iter().filter(|key| said[key] == Says::Nothing);
                    let mut left = left.filter(|key| !may_end(&written[step_of_key(key)]));
                    let repeated = talk.keys();
                    prop_assert!(left.all(|key| repeated.contains(&key)));
                }
            }

            // Each step has ended once, after all its dependencies.
            let state = &talk.rounds.state;
            prop_assert!(state.outcomes.iter().all(Option::is_some));
            prop_assert_eq!(talk.finished().len(), needs.len());
            prop_assert_eq!(state.finished.len(), needs.len());
            let place = |step: usize| state.finished.iter().position(|&other| other == step);
            for branch in talk.rounds.world.started() {
                let step = step_of(&branch);
                prop_assert!(needs[step].iter().all(|&needed| place(needed) < place(step)));
            }
            Ok(())
        })?;
    }

    #[test]
    fn tool_is_called_once_plus_once_per_round_that_it_asks(
        (written, needs, concurrency) in random_plan(true),
        whim in random_whim(),
    ) {
        let plan = plan(&written, concurrency, RunOutput::Last);
        let rounds = block_on(async {
            Conversation::begin(&plan, &written, &needs, whim, true).await.end().await
        });
        let mut calls = HashMap::<String, [u64; 3]>::new();
        for event in rounds.world.events() {
            let asks = event.arguments["rounds"].as_u64().unwrap();
            let [starts, questions, expected] = calls.entry(event.branch).or_default();
            *starts += u64::from(event.what == "starts");
            *questions += u64::from(event.what == "asks");
            *expected = asks;
        }
        for (step, outcome) in rounds.state.outcomes.iter().enumerate() {
            let outcome = outcome.as_ref().unwrap();
            let branches = calls.iter().filter(|(branch, _)| step_of(branch) == step);
            let branches: Vec<_> = branches.map(|(_, calls)| *calls).collect();
            let sum = |of: fn(&[u64; 3]) -> u64| branches.iter().map(of).sum::<u64>();
            // A call that was cancelled may not have been repeated for all rounds.
            let cancels = written[step].get("end").is_some();
            if outcome.is_success() && !cancels && written[step].get("message").is_none() {
                prop_assert!(branches.iter().all(|[_, questions, expected]| questions == expected));
                let answered = sum(|[starts, questions, _]| starts - questions);
                prop_assert_eq!(answered, u64::from(outcome.attempts), "s{}", step);
                let is_loop = ["collection", "until"].iter().any(|&key| written[step].get(key).is_some());
                prop_assert!(is_loop || outcome.attempts <= 3);
            } else if outcome.status == Status::Skipped {
                prop_assert!(branches.is_empty());
            }
        }
    }

    #[test]
    fn run_resumed_by_another_process_has_the_same_outcome(
        (written, needs, concurrency) in random_plan(true),
        whim in random_whim(),
    ) {
        let plan = plan(&written, concurrency, RunOutput::Last);
        let end = |travels| block_on(async {
            Conversation::begin(&plan, &written, &needs, whim, travels).await.end().await.state
        });
        let (stayed, travelled) = (end(false), end(true));
        prop_assert_eq!(ends(&travelled), ends(&stayed));
        prop_assert_eq!(travelled.finished, stayed.finished);
        prop_assert_eq!((travelled.failed, travelled.ended_by), (stayed.failed, stayed.ended_by));
    }

    #[test]
    fn outcome_does_not_depend_on_when_answers_arrive(
        (written, needs, concurrency) in random_plan(false),
        whim in random_whim(),
    ) {
        let plan = plan(&written, concurrency, RunOutput::Last);
        let end = |leaves| block_on(async {
            let whim = Whim { leaves, ..whim };
            Conversation::begin(&plan, &written, &needs, whim, true).await.end().await.state
        });
        prop_assert_eq!(ends(&end(0)), ends(&end(2)));
    }
}

// === Invalid states ===

/// Makes one random change to a JSON value: removes, duplicates or replaces a part of it.
fn change(value: &mut Value, rng: &mut fastrand::Rng) {
    let deeper = rng.u8(0..8) > 0;
    match value {
        Value::Object(members) if deeper && !members.is_empty() => {
            let place = rng.usize(0..members.len());
            let key = members.keys().nth(place).unwrap().clone();
            match rng.u8(0..8) {
                0 => drop(members.remove(&key)),
                _ => change(&mut members[&key], rng),
            }
        }
        Value::Array(elements) if deeper && !elements.is_empty() => {
            let place = rng.usize(0..elements.len());
            match rng.u8(0..8) {
                0 => drop(elements.remove(place)),
                1 => elements.truncate(place),
                2 => elements.push(elements[place].clone()),
                3 => rng.shuffle(elements),
                _ => change(&mut elements[place], rng),
            }
        }
        Value::Number(_) => {
            let numbers = [0, 1, 2, 3, 7, 99, 128, u64::from(u32::MAX), u64::MAX, u64::MAX / 1_000];
            *value = rng.choice(numbers).unwrap().into();
        }
        _ => {
            *value =
                [json!(null), json!([]), json!({}), json!("x"), json!(1)][rng.usize(0..5)].clone()
        }
    }
}

/// The result of resuming a state that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fate {
    NoState,
    Refused,
    Ran,
}

/// Changes the state of a suspended run, and resumes it until it ends.
fn change_and_go_on(
    (written, needs, concurrency): &(Value, Vec<Vec<usize>>, usize),
    whim: Whim,
    changes: usize,
) -> Option<Fate> {
    let plan = plan(written, *concurrency, RunOutput::Last);
    block_on(async {
        let mut rng = whim.rng("change", 0);
        let mut talk = Conversation::begin(&plan, written, needs, whim, true).await;
        for _ in 0..rng.usize(0..4) {
            let said = talk.said();
            talk.answer(&said).await;
        }
        if talk.keys().is_empty() {
            return None;
        }
        let mut state = serde_json::to_value(&talk.rounds.state).unwrap();
        (0..changes).for_each(|_| change(&mut state, &mut rng));
        let Ok(state) = serde_json::from_value::<RunState>(state) else {
            return Some(Fate::NoState);
        };
        if !state.fits(&plan) {
            return Some(Fate::Refused);
        }
        talk.rounds = Rounds::go_on(&plan, state, true).await;
        let rounds = talk.end().await;
        assert!(rounds.state.outcomes.iter().all(Option::is_some));
        Some(Fate::Ran)
    })
}

#[test]
fn changed_state_is_rejected_or_runs_to_its_end() {
    let fates = Mutex::new(HashMap::new());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) };
    // Does not use the `proptest` macro, because the number of its cases depends on
    // `PROPTEST_CASES`, and this test counts the fates of all cases.
    let cases = (random_plan(true), random_whim(), 1_usize..4);
    let run = TestRunner::new(config).run(&cases, |(plan, whim, changes)| {
        if let Some(fate) = change_and_go_on(&plan, whim, changes) {
            *fates.lock().unwrap().entry(fate).or_insert(0) += 1;
        }
        Ok(())
    });
    run.unwrap();
    // Changed states have all possible fates. Many are not only unreadable.
    let fates = fates.into_inner().unwrap();
    for fate in [Fate::NoState, Fate::Refused, Fate::Ran] {
        assert!(fates.get(&fate).is_some_and(|&count| count > 20), "{fates:?}");
    }
}
