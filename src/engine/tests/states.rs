//! Tests of suspended states: their content, and the rejection of invalid states.

use serde::Deserialize;

use super::{asks::Rounds, *};
use crate::engine::question::Response;

/// Returns a plan with a finished step, all kinds of pending questions, and steps that depend on
/// the answers.
fn waiting() -> Plan {
    let asks = |key: &str| json!({ "when": key, "tool": "asks", "arguments": {} });
    plan(
        &json!([
            { "id": "done", "arguments": {} },
            { "id": "question", "message": "go on?", "depends_on": ["done"] },
            { "id": "tool", "tool": "asks", "arguments": {} },
            { "id": "loop", "tool": "asks", "collection": [1, 2, 3], "arguments": {},
                "max_parallel": 2, "max_iterations": 3 },
            { "id": "switch", "cases": [asks("$input.no"), asks("$input.yes")] },
            { "id": "later", "message": "and now?", "depends_on": ["question"] },
        ]),
        10,
        RunOutput::Outcomes,
    )
}

async fn put_away(plan: &Plan) -> Value {
    let state = RunState::new(json!({ "no": false, "yes": true }), plan.steps().len());
    let rounds = Rounds::go_on(plan, state, true).await;
    let keys: Vec<_> = rounds.questions().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["loop[0]:sure", "loop[1]:sure", "question", "switch:sure", "tool:sure"]);
    serde_json::to_value(&rounds.state).unwrap()
}

/// Returns a pending question in the state, by its step and its element. For example, `loop[1]` is
/// the element 1.
fn question(state: &mut Value, step: u64, element: u64) -> &mut Value {
    let all = state["asked"].as_array_mut().unwrap();
    let is_meant =
        |question: &&mut Value| question["id"] == json!({ "step": step, "element": element });
    all.iter_mut().find(is_meant).unwrap()
}

fn forget(value: &mut Value, key: &str) {
    value.as_object_mut().unwrap().remove(key).unwrap();
}

fn push(array: &mut Value, element: Value) {
    array.as_array_mut().unwrap().push(element);
}

#[tokio::test(start_paused = true)]
async fn state_that_the_plan_cannot_reach_is_rejected() {
    const QUESTION: u64 = 1;
    const TOOL: u64 = 2;
    const LOOP: u64 = 3;
    const SWITCH: u64 = 4;
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 30] = [
        ("an outcome is missing", |state| {
            state["outcomes"].as_array_mut().unwrap().pop();
        }),
        ("a step has an outcome that has not finished", |state| {
            state["outcomes"][5] = state["outcomes"][0].clone();
        }),
        ("a step finished that there is not", |state| push(&mut state["finished"], json!(6))),
        ("a step finished twice", |state| push(&mut state["finished"], json!(0))),
        ("a step failed that has not finished", |state| state["failed"] = json!(5)),
        ("a step ended the run that has not finished", |state| state["ended_by"] = json!(5)),
        ("the same is asked twice", |state| {
            let twice = question(state, TOOL, 0).clone();
            push(&mut state["asked"], twice);
        }),
        ("a step asks that there is not", |state| {
            let mut other = question(state, TOOL, 0).clone();
            other["id"]["step"] = json!(6);
            push(&mut state["asked"], other);
        }),
        ("a step asks that has finished", |state| {
            let mut other = question(state, TOOL, 0).clone();
            other["id"]["step"] = json!(0);
            push(&mut state["asked"], other);
        }),
        ("a step asks that waits for another", |state| {
            let mut other = question(state, QUESTION, 0).clone();
            other["id"]["step"] = json!(5);
            push(&mut state["asked"], other);
        }),
        ("a question wants something back", |state| {
            question(state, QUESTION, 0)["resume"] = json!({ "tool": null });
        }),
        ("a question asks nothing", |state| forget(question(state, QUESTION, 0), "questions")),
        ("a question asks by another key", |state| {
            let questions = &mut question(state, QUESTION, 0)["questions"];
            *questions = json!({ "x": questions[""] });
        }),
        ("a tool wants nothing back", |state| forget(question(state, TOOL, 0), "resume")),
        ("a switch wants nothing back", |state| forget(question(state, SWITCH, 0), "resume")),
        ("a switch has no case", |state| forget(question(state, SWITCH, 0), "site")),
        ("a switch has a case of another step", |state| {
            question(state, SWITCH, 0)["site"] = json!(1);
        }),
        ("a call has a case", |state| question(state, TOOL, 0)["site"] = json!(0)),
        ("an element has a case", |state| question(state, LOOP, 1)["site"] = json!(0)),
        ("an element wants nothing back", |state| forget(question(state, LOOP, 1), "resume")),
        ("an element asks that has not begun", |state| {
            question(state, LOOP, 1)["id"]["element"] = json!(2);
        }),
        ("an element that has begun asks nothing", |state| {
            state["asked"]
                .as_array_mut()
                .unwrap()
                .retain(|question| question["id"]["element"] != 1);
        }),
        ("a loop waits for nothing", |state| {
            state["loops"][0]["next"] = json!(0);
            state["asked"]
                .as_array_mut()
                .unwrap()
                .retain(|question| question["id"]["step"] != LOOP);
        }),
        ("a loop goes on twice", |state| {
            let twice = state["loops"][0].clone();
            push(&mut state["loops"], twice);
        }),
        ("a loop goes on that is none", |state| {
            let mut other = state["loops"][0].clone();
            other["step"] = json!(TOOL);
            other["next"] = json!(1);
            push(&mut state["loops"], other);
        }),
        ("a loop has more elements than it may", |state| {
            push(&mut state["loops"][0]["items"], json!(4));
            push(&mut state["loops"][0]["iterations"], json!(null));
        }),
        ("a loop tells of more elements than it has", |state| {
            push(&mut state["loops"][0]["iterations"], json!(null));
        }),
        ("a loop is behind its last element", |state| state["loops"][0]["next"] = json!(4)),
        ("an element has ended that has not begun", |state| {
            state["loops"][0]["iterations"][2] = json!({ "status": "completed" });
        }),
        ("more calls were made than any run makes", |state| {
            question(state, TOOL, 0)["attempts"] = json!((1 << 30) + 1);
        }),
    ];
    let plan = waiting();
    let state = put_away(&plan).await;
    let fits = |state: &Value| RunState::deserialize(state).expect("a state").fits(&plan);
    assert!(fits(&state), "{state}");
    for (what, change) in cases {
        let mut changed = state.clone();
        change(&mut changed);
        assert!(!fits(&changed), "{what}: {changed}");
    }
    // The maximum number of calls in a state. Four of these calls belong to other pending
    // questions.
    let mut changed = state;
    question(&mut changed, TOOL, 0)["attempts"] = json!((1 << 30) - 3);
    assert!(fits(&changed), "{changed}");
    question(&mut changed, TOOL, 0)["attempts"] = json!((1 << 30) - 2);
    assert!(!fits(&changed), "{changed}");
}

#[test]
fn defaults_are_not_serialized_in_states() {
    let state = serde_json::to_value(RunState::new(json!({}), 2)).unwrap();
    assert_eq!(state, json!({ "input": {}, "outcomes": [null, null], "finished": [] }));
}

#[test]
fn state_survives_serialization() {
    let mut state = RunState::new(json!({ "q": 1 }), 1);
    state.timed_out = true;
    (state.failed, state.ended_by) = (Some(0), Some(0));
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<RunState>(&text).unwrap(), state);
}

#[tokio::test(start_paused = true)]
async fn resumed_call_keeps_its_first_start_time() {
    let plan = plan(
        &json!([
            { "id": "asks", "arguments": {} },
            { "id": "slow", "tool": "sleeps", "arguments": { "seconds": 5 } },
        ]),
        2,
        RunOutput::Outcomes,
    );
    let mut rounds = Rounds::go_on(&plan, RunState::new(json!({}), 2), true).await;
    assert_eq!(rounds.state.active(), Duration::from_secs(5));
    rounds.respond([("asks:sure".to_owned(), Response::Answer(json!("yes")))].into()).await;
    let Outcome { started_ms, duration_ms, attempts, .. } = *outcome(&rounds.state, 0);
    assert_eq!((started_ms, duration_ms, attempts), (0, 5000, 1));
}

#[tokio::test(start_paused = true)]
async fn attempts_before_a_question_are_counted() {
    let plan = workflow(&json!([{ "id": "asks", "arguments": {} }]));
    let rounds = Rounds::go_on(&plan, RunState::new(json!({}), 1), true).await;
    let mut state = serde_json::to_value(&rounds.state).unwrap();
    // Simulates two failed attempts of the tool before it asked.
    question(&mut state, 0, 0)["attempts"] = json!(3);
    let state = serde_json::from_value(state).unwrap();
    let mut rounds = Rounds::go_on(&plan, state, true).await;
    rounds.respond([("asks:sure".to_owned(), Response::Answer(json!("yes")))].into()).await;
    assert_eq!(
        (statuses(&rounds.state), outcome(&rounds.state, 0).attempts),
        (vec![Status::Completed], 3)
    );
}
