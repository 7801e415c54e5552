//! Tests of runs that are suspended for questions to a person, and resume with the answers.

use std::collections::BTreeMap;

use rmcp::model::{ElicitRequestParams, InputRequest};

use super::*;
use crate::engine::{
    limits::RunLimits,
    question::{Question, Response},
    questions::{Answered, Questions},
    state::Resume,
};

/// Returns the question that a tool asks: `asks` once, `asks_twice` twice, and any tool with the
/// argument `rounds` that many times. The state that is returned to the tool counts the questions.
/// Returns `None` after the last question.
pub(super) fn asks(call: &mut Call) -> Option<Questions> {
    let times = match (&*call.tool, call.arguments.get("rounds").and_then(Value::as_u64)) {
        ("asks", _) => 1,
        ("asks_twice", _) => 2,
        (_, Some(rounds)) => rounds,
        _ => return None,
    };
    let answered = call.answered.take();
    let before = answered.as_ref().map_or(0, |answered| round(answered));
    if let Some(answered) = answered {
        let said = answered.responses.into_iter().map(|(key, response)| match response {
            Response::Answer(answer) => (key, answer),
            other => (key, format!("{other:?}").into()),
        });
        call.arguments.insert("said".to_owned(), said.collect());
    }
    let key = call.arguments.get("key").and_then(Value::as_str).unwrap_or("sure").to_owned();
    (before < times).then(|| Questions {
        asked: BTreeMap::from([(key, question(&format!("round {before}")))]),
        resume: Resume::Tool(Some((before + 1).to_string())),
    })
}

fn round(answered: &Answered) -> u64 {
    match &answered.resume {
        Resume::Tool(Some(state)) => state.parse().expect("the state that it gave"),
        resume => panic!("{resume:?} is not what it gave"),
    }
}

fn question(message: &str) -> Question {
    let request = json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": message,
            "requestedSchema": { "type": "object", "properties": {} },
        },
    });
    Question::new(serde_json::from_value(request).expect("a question"))
}

/// The rounds of a run whose client supports questions.
pub(super) struct Rounds<'p> {
    plan: &'p Plan,
    pub(super) world: World,
    pub(super) state: RunState,
    /// Whether the run moves to another process instance in each round.
    travels: bool,
}

impl<'p> Rounds<'p> {
    async fn begin(plan: &'p Plan, input: Value) -> Self {
        let state = RunState::new(input, plan.steps().len());
        Self::go_on(plan, state, true).await
    }

    /// Resumes a state. If `travels` is `true`, moves it to another process instance in each round.
    pub(super) async fn go_on(plan: &'p Plan, state: RunState, travels: bool) -> Self {
        let mut rounds = Self { plan, world: World::new(), state, travels };
        rounds.drive().await;
        rounds
    }

    async fn drive(&mut self) {
        let mut context = Context::default();
        let key = "io.modelcontextprotocol/clientCapabilities".to_owned();
        context.meta_mut().insert(key, json!({ "elicitation": {} }));
        assert!(self.state.fits(self.plan), "{:?}", self.state);
        let state = if self.travels { self.travelled() } else { self.state.clone() };
        let scope = scope(6_000);
        let mut run = Run::new(self.plan, state, &context, &scope, self.world.caller());
        run.drive().await;
        self.state = run.into_state();
        let bytes = serde_json::to_vec(&self.state).expect("it can be put away").len();
        for pending in &self.state.asked {
            let least = self.state.least_bytes_at(pending.id.step, self.plan);
            assert!(least <= bytes, "{least} of {bytes} bytes: {:?}", self.state);
        }
    }

    /// Returns the state after another instance has deserialized it.
    fn travelled(&self) -> RunState {
        let state = serde_json::to_string(&self.state).expect("it can be put away");
        let mut state: RunState = serde_json::from_str(&state).expect("it can be taken up");
        for (pending, answered) in state.asked.iter_mut().zip(&self.state.asked) {
            pending.set_responses(answered.responses().clone());
        }
        assert_eq!(state, self.state);
        state
    }

    /// Resumes the run with answers. Each key is that of a question.
    async fn answer(&mut self, answers: Value) {
        let answers = answers.as_object().expect("answers by their keys").clone();
        let answers = answers.into_iter().map(|(key, answer)| (key, Response::Answer(answer)));
        self.respond(answers.collect()).await;
    }

    pub(super) async fn respond(&mut self, responses: BTreeMap<String, Response>) {
        self.state.answer(self.plan, responses);
        self.drive().await;
    }

    /// Returns the keys and texts of the pending questions.
    pub(super) fn questions(&self) -> Vec<(String, String)> {
        let questions = self.state.questions(self.plan).into_iter();
        let text = |question: Question| match question.request {
            InputRequest::Elicitation(request) => match request.params {
                ElicitRequestParams::FormElicitationParams { message, .. } => message,
                other => panic!("{other:?} is no form"),
            },
            other => panic!("{other:?} is no elicitation"),
        };
        questions.map(|(key, question)| (key, text(question))).collect()
    }

    fn statuses(&self) -> Vec<Status> {
        assert_eq!(self.questions(), [], "it has ended");
        statuses(&self.state)
    }
}

fn asks_for(questions: &[(&str, &str)]) -> Vec<(String, String)> {
    questions.iter().map(|&(key, text)| (key.to_owned(), text.to_owned())).collect()
}

fn accept(content: &Value) -> Value {
    json!({ "action": "accept", "content": content })
}

/// Returns a plan with three steps: one that returns details, a question about these details, and a
/// step that runs if the answer is yes.
fn approval(keys: &Value) -> Plan {
    let mut ask = json!({
        "id": "ask",
        "message": "{{ steps.details.output.name }} to {{ input.to }}?",
        "schema": {
            "type": "object",
            "properties": { "sure": { "type": "boolean" }, "times": { "type": "integer" } },
            "required": ["sure"],
        },
    });
    ask.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    workflow(&json!([
        { "id": "details", "tool": "gives", "arguments": { "value": { "name": "$input.name" } } },
        ask,
        {
            "id": "deploy",
            "tool": "echo",
            "arguments": { "sure": "$steps.ask.output.content.sure?" },
            "depends_on": ["ask"],
        },
    ]))
}

async fn approve(keys: &Value) -> (Plan, Value) {
    (approval(keys), json!({ "name": "site", "to": "prod" }))
}

use Status::{Cancelled, Completed, Failed, Skipped, TimedOut};

#[tokio::test(start_paused = true)]
async fn run_is_suspended_by_a_question_and_resumes_with_the_answer() {
    let (plan, input) = approve(&json!({})).await;
    let mut rounds = Rounds::begin(&plan, input).await;
    assert_eq!(rounds.questions(), asks_for(&[("ask", "site to prod?")]));
    assert_eq!(rounds.world.started(), ["details"]);

    rounds.answer(json!({ "ask": accept(&json!({ "sure": "true" })) })).await;
    assert_eq!(rounds.statuses(), [Completed, Completed, Completed]);
    // Each tool is called once, and the answer is coerced to the type that the form declares.
    assert_eq!(rounds.world.started(), ["details", "deploy"]);
    assert_eq!(rounds.world.arguments_of("deploy"), Some(json!({ "sure": true })));
}

#[tokio::test(start_paused = true)]
async fn state_with_a_step_suspended_as_a_loop_element_is_rejected() {
    let (plan, input) = approve(&json!({})).await;
    let state = Rounds::begin(&plan, input).await.state;
    assert!(state.fits(&plan));
    let mut changed = serde_json::to_value(&state).unwrap();
    changed["asked"][0]["id"]["element"] = json!(128);
    let changed: RunState = serde_json::from_value(changed).unwrap();
    assert!(!changed.fits(&plan));
}

#[tokio::test(start_paused = true)]
async fn declined_question_ends_the_run_as_configured() {
    let cases = [
        ("decline", json!({}), [Completed, Failed, Skipped]),
        ("cancel", json!({}), [Completed, Failed, Skipped]),
        // `continue` has no effect on a refusal, because it applies only to errors.
        ("decline", json!({ "continue": true }), [Completed, Failed, Skipped]),
        ("decline", json!({ "on_decline": "continue" }), [Completed, Completed, Completed]),
        ("cancel", json!({ "on_cancel": "continue" }), [Completed, Completed, Completed]),
        ("decline", json!({ "on_cancel": "continue" }), [Completed, Failed, Skipped]),
        ("decline", json!({ "on_decline": "skip_remaining" }), [Completed, Completed, Skipped]),
        ("cancel", json!({ "on_cancel": "skip_remaining" }), [Completed, Completed, Skipped]),
    ];
    for (action, keys, expected) in cases {
        let (plan, input) = approve(&keys).await;
        let mut rounds = Rounds::begin(&plan, input).await;
        rounds.answer(json!({ "ask": { "action": action } })).await;
        assert_eq!(rounds.statuses(), expected, "{action} {keys}");
        let deployed = rounds.world.started().contains(&"deploy".to_owned());
        assert_eq!(deployed, expected[2] == Completed, "{action} {keys}");
        assert_eq!(rounds.state.ended_by, keys.to_string().contains("skip").then_some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn unanswered_question_times_out_and_follows_on_cancel() {
    let cases = [
        (json!({}), [Completed, TimedOut, Skipped]),
        (json!({ "on_cancel": "continue" }), [Completed, Completed, Completed]),
        (json!({ "on_cancel": "skip_remaining" }), [Completed, Completed, Skipped]),
    ];
    for (keys, expected) in cases {
        let (plan, input) = approve(&keys).await;
        let mut rounds = Rounds::begin(&plan, input).await;
        rounds.respond(BTreeMap::from([("ask".to_owned(), Response::Late)])).await;
        assert_eq!(rounds.statuses(), expected, "{keys}");
    }
    // The result is the same if the answer arrives after the timeout of the question.
    let (plan, input) = approve(&json!({ "timeout": 0.0 })).await;
    let mut rounds = Rounds::begin(&plan, input).await;
    rounds.answer(json!({ "ask": accept(&json!({ "sure": true })) })).await;
    assert_eq!(rounds.statuses(), [Completed, TimedOut, Skipped]);
    assert_eq!(error(&rounds.state, 1).message, "the user did not answer within 0ns");
}

#[tokio::test(start_paused = true)]
async fn invalid_answer_fails_the_step_or_is_requested_again() {
    let misfits = [
        json!({ "action": "accept", "content": { "sure": "maybe" } }),
        json!({ "action": "accept", "content": {} }),
        json!({ "action": "accept" }),
        json!({ "action": "accept", "content": [true] }),
        json!({ "action": "perhaps" }),
        json!({}),
        json!("yes"),
        json!(null),
    ];
    for misfit in misfits {
        let (plan, input) = approve(&json!({})).await;
        let mut rounds = Rounds::begin(&plan, input.clone()).await;
        rounds.answer(json!({ "ask": misfit })).await;
        assert_eq!(rounds.statuses(), [Completed, Failed, Skipped], "{misfit}");
        let message = &error(&rounds.state, 1).message;
        assert!(message.starts_with("the answer does not fit the form: "), "{message}");

        let (plan, _) = approve(&json!({ "retry": { "count": 1 } })).await;
        let mut rounds = Rounds::begin(&plan, input).await;
        rounds.answer(json!({ "ask": misfit })).await;
        let [(_, text)] = &rounds.questions()[..] else { panic!("it is asked again") };
        assert!(text.starts_with("site to prod?\n\nThe last answer cannot be used: "), "{text}");
        let answer = accept(&json!({ "sure": true }));
        let answer = if misfit.is_null() { misfit } else { answer };
        rounds.answer(json!({ "ask": answer })).await;
        let fits = !answer.is_null();
        assert_eq!(rounds.statuses()[1], if fits { Completed } else { Failed });
        assert_eq!(outcome(&rounds.state, 1).attempts, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn available_questions_are_asked_together_until_answered() {
    let plan = plan(
        &json!([
            { "id": "a", "message": "a?" },
            { "id": "slow", "tool": "sleeps", "arguments": { "seconds": 5 } },
            { "id": "b", "message": "b?" },
            { "id": "c", "message": "c?", "depends_on": ["a"] },
            { "id": "tool", "tool": "asks", "arguments": { "x": 1 }, "depends_on": ["slow"] },
        ]),
        1,
        RunOutput::Outcomes,
    );
    let mut rounds = Rounds::begin(&plan, json!({})).await;
    // All questions are asked together, even if they follow slow steps or other steps run in
    // parallel.
    let all = asks_for(&[("a", "a?"), ("b", "b?"), ("tool:sure", "round 0")]);
    assert_eq!(rounds.questions(), all);

    rounds.answer(json!({})).await;
    assert_eq!(rounds.questions(), all);
    rounds.answer(json!({ "b": accept(&json!({})), "x": 1, "tool": 1, "sure": 1 })).await;
    assert_eq!(rounds.questions(), asks_for(&[("a", "a?"), ("tool:sure", "round 0")]));
    rounds.answer(json!({ "a": accept(&json!({})) })).await;
    assert_eq!(rounds.questions(), asks_for(&[("c", "c?"), ("tool:sure", "round 0")]));
    assert_eq!(rounds.world.started(), ["slow", "tool"]);
    rounds.answer(json!({ "c": accept(&json!({})), "tool:sure": "yes" })).await;
    assert_eq!(rounds.statuses(), [Completed; 5]);
    let called = json!({ "x": 1, "said": { "sure": "yes" } });
    assert_eq!(output_of(&rounds.state, 4), Some(called));
    assert_eq!(outcome(&rounds.state, 4).attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn loop_elements_ask_and_resume_where_they_stopped() {
    let plan = plan(
        &json!([{
            "id": "each",
            "collection": "$input.items",
            "tool": "asks_twice",
            "arguments": { "item": "$item" },
            "max_parallel": 2,
        }]),
        1,
        RunOutput::Last,
    );
    let mut rounds = Rounds::begin(&plan, json!({ "items": ["p", "q", "r"] })).await;
    let yes = json!("yes");
    for questions in [
        [("each[0]:sure", "round 0"), ("each[1]:sure", "round 0")],
        [("each[0]:sure", "round 1"), ("each[1]:sure", "round 1")],
    ] {
        assert_eq!(rounds.questions(), asks_for(&questions));
        rounds.answer(json!({ "each[0]:sure": yes, "each[1]:sure": yes })).await;
    }
    assert_eq!(rounds.questions(), asks_for(&[("each[2]:sure", "round 0")]));
    rounds.answer(json!({ "each[2]:sure": yes })).await;
    rounds.answer(json!({ "each[2]:sure": yes })).await;
    assert_eq!(rounds.statuses(), [Completed]);
    let output = output_of(&rounds.state, 0).expect("the loop's record");
    assert_eq!(output["completed"], 3);
    assert_eq!(
        output["iterations"][2]["output"],
        json!({ "item": "r", "said": { "sure": "yes" } })
    );
    assert_eq!(outcome(&rounds.state, 0).attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn failed_element_cancels_suspended_ones_and_counts_their_calls() {
    let plan = workflow(&json!([{
        "id": "each",
        "collection": [{ "rounds": 1, "bad": false }, { "rounds": 0, "bad": true }],
        "tool": "picky",
        "arguments": { "rounds": "$item.rounds", "bad": "$item.bad" },
    }]));
    let rounds = Rounds::begin(&plan, json!({})).await;
    assert_eq!(rounds.statuses(), [Failed]);
    assert_eq!(rounds.world.started(), ["each[0]", "each[1]"]);
    assert_eq!(outcome(&rounds.state, 0).attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn skip_remaining_finishes_answered_steps_and_cancels_questions() {
    let plan = plan(
        &json!([
            { "id": "stop", "message": "go on?", "on_decline": "skip_remaining" },
            { "id": "open", "message": "and this?" },
            { "id": "tool", "tool": "asks", "arguments": {} },
            { "id": "next", "tool": "echo", "arguments": {}, "depends_on": ["tool"] },
        ]),
        10,
        RunOutput::Outcomes,
    );
    let mut rounds = Rounds::begin(&plan, json!({})).await;
    rounds.answer(json!({ "stop": { "action": "decline" }, "tool:sure": "yes" })).await;
    assert_eq!(rounds.statuses(), [Completed, Cancelled, Completed, Skipped]);
}

#[tokio::test(start_paused = true)]
async fn abort_cancels_all_other_questions() {
    let plan = workflow(&json!([
        { "id": "before", "tool": "asks", "arguments": {} },
        { "id": "stop", "message": "go on?" },
        { "id": "open", "message": "and this?" },
        { "id": "tool", "tool": "asks", "arguments": {} },
    ]));
    let mut rounds = Rounds::begin(&plan, json!({})).await;
    let stop = json!({ "action": "decline" });
    let answers = json!({ "before:sure": "yes", "stop": stop, "tool:sure": "yes" });
    rounds.answer(answers).await;
    assert_eq!(rounds.statuses(), [Cancelled, Failed, Cancelled, Cancelled]);
    // No tool is called again, whether it is before or after the refused question in the plan.
    assert_eq!(rounds.world.started(), ["before", "tool"]);
}

#[tokio::test(start_paused = true)]
async fn run_clock_is_stopped_while_the_run_is_suspended() {
    let plan = workflow(&json!([
        { "id": "before", "tool": "sleeps", "arguments": { "seconds": 5 } },
        { "id": "ask", "message": "go on?", "depends_on": ["before"] },
        { "id": "after", "tool": "sleeps", "arguments": { "seconds": 3 }, "depends_on": ["ask"] },
    ]));
    let mut rounds = Rounds::begin(&plan, json!({})).await;
    assert_eq!(rounds.state.active(), Duration::from_secs(5));
    tokio::time::advance(Duration::from_secs(1000)).await;
    rounds.answer(json!({ "ask": accept(&json!({})) })).await;
    assert_eq!(rounds.statuses(), [Completed; 3]);
    let ask = outcome(&rounds.state, 1);
    assert_eq!((ask.started_ms, ask.duration_ms), (5000, 0));
    let after = outcome(&rounds.state, 2);
    assert_eq!((after.started_ms, after.duration_ms), (5000, 3000));
}

#[tokio::test(start_paused = true)]
async fn run_fails_before_any_call_if_a_question_cannot_be_asked() {
    let (plan, input) = approve(&json!({})).await;
    let world = World::new();
    let state = world.run(&plan, input.clone()).await;
    assert_eq!(statuses(&state), [Failed, Skipped, Skipped]);
    let lacks = "and the client cannot: it does not declare the capability `elicitation`";
    assert_eq!(error(&state, 0).message, format!("step `ask` asks the user, {lacks}"));
    assert_eq!(world.started(), Vec::<String>::new());

    // If the question may fail, the run is not suspended and continues.
    let (plan, _) = approve(&json!({ "continue": true })).await;
    let state = world.run(&plan, input).await;
    assert_eq!(statuses(&state), [Completed, Failed, Completed]);
    assert_eq!(error(&state, 1).message, format!("the user must be asked, {lacks}"));
}

#[tokio::test(start_paused = true)]
async fn late_decline_counts_and_late_acceptance_does_not() {
    let keys = json!({ "timeout": 0.0, "on_cancel": "continue" });
    let (plan, input) = approve(&keys).await;
    for (answer, expected) in [
        (json!({ "action": "decline" }), [Completed, Failed, Skipped]),
        (accept(&json!({ "sure": true })), [Completed, Completed, Completed]),
    ] {
        let mut rounds = Rounds::begin(&plan, input.clone()).await;
        rounds.answer(json!({ "ask": answer })).await;
        assert_eq!(rounds.statuses(), expected, "{answer}");
        // The late answer is not used, although it accepts the question.
        assert_ne!(rounds.world.arguments_of("deploy"), Some(json!({ "sure": true })));
    }
}

#[tokio::test(start_paused = true)]
async fn answer_is_delivered_only_to_the_branch_that_asked() {
    let steps = json!([
        { "id": "v", "tool": "asks", "arguments": { "key": "x:sure" } },
        { "id": "v:x", "tool": "asks", "arguments": {} },
        { "id": "v%3Ax", "tool": "asks", "arguments": {} },
    ]);
    let plan = plan(&steps, 3, RunOutput::Outcomes);
    let mut rounds = Rounds::begin(&plan, json!({})).await;
    let keys: Vec<_> = rounds.questions().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["v%253Ax:sure", "v%3Ax:sure", "v:x:sure"]);
    rounds.answer(json!({ "v:x:sure": 1, "v%3Ax:sure": 2, "v%253Ax:sure": 3 })).await;
    assert_eq!(rounds.statuses(), [Completed; 3]);
    let said = |step| output_of(&rounds.state, step).expect("it was answered")["said"].clone();
    assert_eq!(said(0), json!({ "x:sure": 1 }));
    assert_eq!([said(1), said(2)], [json!({ "sure": 2 }), json!({ "sure": 3 })]);
}

/// Returns a plan with a single question. By default, the run continues after every answer. `keys`
/// are additional keys of the step.
fn question_alone(keys: &Value) -> Plan {
    let mut ask = json!({ "id": "ask", "message": "sure?" });
    ask.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    plan(&json!([ask]), 1, RunOutput::Outcomes)
}

/// Suspends a run at its only question, and returns the state after this response to it.
async fn respond_alone(keys: &Value, response: Response) -> RunState {
    let plan = question_alone(keys);
    let mut rounds = Rounds::begin(&plan, json!({})).await;
    rounds.respond(BTreeMap::from([("ask".to_owned(), response)])).await;
    rounds.statuses();
    rounds.state
}

#[tokio::test(start_paused = true)]
async fn question_step_outputs_the_response_action() {
    let keys = json!({ "on_decline": "continue", "on_cancel": "continue" });
    let answer = |action: &str| Response::Answer(json!({ "action": action }));
    for (response, expected) in [
        (answer("accept"), json!({ "action": "accept", "content": {} })),
        (answer("decline"), json!({ "action": "decline" })),
        (answer("cancel"), json!({ "action": "cancel" })),
        (Response::Late, json!({ "action": "timeout" })),
    ] {
        let state = respond_alone(&keys, response).await;
        assert_eq!(output_of(&state, 0), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn error_contains_the_reason_of_a_missing_answer() {
    let answer = |action: &str| Response::Answer(json!({ "action": action }));
    for (response, kind, message) in [
        (answer("decline"), ErrorKind::Declined, "the user declined"),
        (answer("cancel"), ErrorKind::Dismissed, "the user gave no answer"),
        (Response::Late, ErrorKind::Timeout, "the user did not answer within 300s"),
        (Response::Refused("not now".to_owned()), ErrorKind::Dismissed, "not now"),
    ] {
        let state = respond_alone(&json!({}), response).await;
        assert_eq!(error(&state, 0), &StepError::new(kind, message));
    }
}

#[tokio::test(start_paused = true)]
async fn expired_question_is_not_asked_again() {
    let plan = question_alone(&json!({ "timeout": 0.0 }));
    let mut rounds = Rounds::begin(&plan, json!({})).await;
    rounds.answer(json!({})).await;
    assert_eq!(rounds.statuses(), [TimedOut]);
}

#[tokio::test(start_paused = true)]
async fn question_reports_the_time_left_to_answer() {
    let plan = question_alone(&json!({ "timeout": 7_200 }));
    let rounds = Rounds::begin(&plan, json!({})).await;
    let left = rounds.state.questions(&plan)["ask"].left().unwrap();
    // The question has its full timeout, because the time of the person does not count toward the
    // run.
    assert!((7_100..=7_200).contains(&left.as_secs()), "{left:?}");
    assert_eq!(question("of a tool").left(), None);
    // The deadline is a Unix time in milliseconds.
    let state = serde_json::to_value(&rounds.state).unwrap();
    let until = state["asked"][0]["questions"][""]["until"].as_u64();
    assert!(until.is_some_and(|until| until > 1_700_000_000_000), "{until:?}");
}

#[test]
fn size_of_questions_includes_keys_requests_and_state() {
    let sure = question("sure?");
    let request = serde_json::to_value(&sure.request).unwrap();
    let questions = BTreeMap::from([("key".to_owned(), sure)]);
    let of = |state: Option<&str>, asked| {
        Questions { asked, resume: Resume::Tool(state.map(str::to_owned)) }.size()
    };
    assert_eq!(of(None, BTreeMap::new()), 0);
    assert_eq!(of(Some("state"), BTreeMap::new()), 5);
    let total = 3 + crate::message::content_size::of_value(&request) + 5;
    assert_eq!(of(Some("state"), questions), total);
}

#[tokio::test(start_paused = true)]
async fn state_predicts_which_answer_ends_the_run() {
    let plan = plan(
        &json!([
            { "id": "goes_on", "message": "a?", "on_decline": "continue" },
            { "id": "aborts", "message": "b?" },
            { "id": "tool", "tool": "asks", "arguments": {} },
        ]),
        3,
        RunOutput::Outcomes,
    );
    let rounds = Rounds::begin(&plan, json!({})).await;
    let answer = |action: &str| Response::Answer(json!({ "action": action }));
    for (key, response, expected) in [
        ("goes_on", answer("decline"), false),
        ("goes_on", answer("cancel"), true),
        ("goes_on", Response::Late, true),
        ("aborts", answer("decline"), true),
        ("aborts", answer("accept"), false),
        ("aborts", answer("perhaps"), false),
        ("aborts", Response::Refused("not now".to_owned()), false),
        ("tool", answer("decline"), false),
        ("tool:sure", answer("decline"), false),
        ("nobody", answer("decline"), false),
    ] {
        assert_eq!(rounds.state.is_ended_by(&plan, key, &response), expected, "{key} {response:?}");
    }
}

/// Resumes a state for a client that supports questions.
pub(super) async fn go_on(
    plan: &Plan,
    state: RunState,
    scope: &Scope,
    caller: impl Caller,
) -> RunState {
    let mut context = Context::default();
    let key = "io.modelcontextprotocol/clientCapabilities".to_owned();
    context.meta_mut().insert(key, json!({ "elicitation": {} }));
    let mut run = Run::new(plan, state, &context, scope, caller);
    run.drive().await;
    run.into_state()
}

#[tokio::test(start_paused = true)]
async fn call_rejected_on_resumption_keeps_its_attempt_count() {
    let plan = workflow(&json!([{ "id": "tool", "tool": "asks", "arguments": {} }]));
    let mut state = Rounds::begin(&plan, json!({})).await.state;
    state.answer(&plan, [("tool:sure".to_owned(), Response::Answer(json!("yes")))].into());
    // Simulates two failed attempts of the tool before it asked.
    state.asked[0].attempts = 3;
    let scope = Scope::new(CallLimits::default().max_calls(0), Duration::from_secs(600));
    let state = go_on(&plan, state, &scope, World::new().caller()).await;
    assert_eq!((error(&state, 0).kind, outcome(&state, 0).attempts), (ErrorKind::Limit, 3));
}

/// Returns a plan and its suspended state. It contains a loop with one ended element and one that
/// waits for a person, a loop whose elements all wait, and a question before another step.
async fn loops_that_wait() -> (Plan, RunState) {
    let plan = plan(
        &json!([
            { "id": "some", "tool": "picky", "collection": [0, 1],
                "arguments": { "rounds": "$item" }, "continue": true },
            { "id": "all", "tool": "asks", "collection": [0, 1], "arguments": {} },
            { "id": "ask", "message": "go on?", "on_decline": "skip_remaining" },
            { "id": "next", "depends_on": ["ask"], "arguments": {} },
        ]),
        10,
        RunOutput::Outcomes,
    );
    let mut state = Rounds::begin(&plan, json!({})).await.state;
    // Simulates one failed attempt of each tool before it asked.
    state.asked.iter_mut().filter(|it| it.is_call()).for_each(|it| it.attempts = 2);
    (plan, state)
}

#[tokio::test(start_paused = true)]
async fn limit_ends_suspended_loops_with_their_completed_elements() {
    let (plan, mut state) = loops_that_wait().await;
    let yes = Response::Answer(accept(&json!({})));
    state.answer(&plan, [("ask".to_owned(), yes)].into());
    let limits = RunLimits { max_calls: Some(0), ..RunLimits::default() };
    let scope = scope(600).of_run(&plan.name, limits, &Context::default(), None);
    let state = go_on(&plan, state, &scope, World::new().caller()).await;
    assert_eq!(statuses(&state), [Completed, Cancelled, Completed, Skipped]);
    let iterations = &output_of(&state, 0).unwrap()["iterations"];
    let of_each = [0, 1].map(|at: usize| iterations[at]["status"].clone());
    assert_eq!(of_each, ["completed", "cancelled"]);
    assert_eq!([0, 1].map(|step| outcome(&state, step).attempts), [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn skip_remaining_cancels_suspended_loops() {
    let (plan, mut state) = loops_that_wait().await;
    let no = Response::Answer(json!({ "action": "decline" }));
    state.answer(&plan, [("ask".to_owned(), no)].into());
    let state = go_on(&plan, state, &scope(600), World::new().caller()).await;
    assert_eq!(statuses(&state), [Cancelled, Cancelled, Completed, Skipped]);
}

#[tokio::test(start_paused = true)]
async fn decline_that_ends_the_run_prevents_further_calls() {
    let plan = workflow(&json!([
        { "id": "stop", "message": "go on?" },
        { "id": "tool", "tool": "asks", "arguments": {} },
    ]));
    let mut state = Rounds::begin(&plan, json!({})).await.state;
    let no = Response::Answer(json!({ "action": "decline" }));
    let yes = Response::Answer(json!("yes"));
    state.answer(&plan, [("stop".to_owned(), no), ("tool:sure".to_owned(), yes)].into());
    let mut calls = 0;
    let caller = |_: Call| {
        calls += 1;
        async { Ok(CallToolResult::success(vec![])) }
    };
    let state = go_on(&plan, state, &scope(600), caller).await;
    assert_eq!((statuses(&state), calls), (vec![Failed, Cancelled], 0));
}

#[tokio::test(start_paused = true)]
async fn switch_resumes_the_case_that_asked() {
    let case = |when: &str, name: &str| json!({ "when": when, "tool": "asks", "arguments": { "case": name } });
    let plan = plan(
        &json!([{ "id": "switch", "cases": [case("false", "a"), case("true", "b")] }]),
        1,
        RunOutput::Outcomes,
    );
    let mut rounds = Rounds::begin(&plan, json!({})).await;
    rounds.answer(json!({ "switch:sure": "yes" })).await;
    assert_eq!(rounds.statuses(), [Completed]);
    assert_eq!(rounds.world.arguments_of("switch").unwrap()["case"], "b");
    assert_eq!(outcome(&rounds.state, 0).site, Some(1));
}
