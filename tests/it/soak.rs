//! What the soak looks for, it finds: each invariant is broken here on purpose.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use mcp_composite::{
    composite::{CompositeLayer, CompositeTool, Target},
    intercept,
    message::Reply,
    testing::{self, Answer, Server},
};
use serde_json::{Value, json};
use tower::Layer;

use crate::invariants::{Invariants, Runs, marker, markers};

/// How many breaches an answer to the call of marker 1 is.
fn breaches(answer: &Value) -> u64 {
    let invariants = Invariants::default();
    invariants.check_answer(&marker(1), answer);
    invariants.broken()
}

#[test]
fn a_sound_answer_is_no_breach() {
    let echo = json!({ "marker": marker(1), "branch": "near", "pid": 7 });
    let branches = json!({ "near": { "status": "completed", "output": echo } });
    assert_eq!(breaches(&json!({ "structuredContent": { "branches": branches } })), 0);
    assert_eq!(breaches(&json!({ "isError": true, "content": [] })), 0);
}

#[test]
fn what_is_of_another_call_is_found_wherever_it_stands() {
    let other = marker(2);
    assert_eq!(breaches(&json!({ "content": [{ "text": format!("see {other}.") }] })), 1);
    assert_eq!(breaches(&json!({ other.as_str(): [marker(1)] })), 1);
    let echo = json!({ "marker": other, "pid": 7 });
    assert_eq!(breaches(&json!({ "structuredContent": echo })), 2, "the marker and the echo");
    assert_eq!(breaches(&json!({ "structuredContent": { "pid": 7 } })), 1, "an echo of nothing");
}

#[test]
fn branches_that_have_each_others_answers_are_found() {
    let of =
        |branch: &str| json!({ "output": { "branch": branch, "marker": marker(1), "pid": 7 } });
    let nested = json!({ "output": { "branches": { "far": of("near") } } });
    let branches = json!({ "near": of("far"), "far": of("near"), "all": nested, "web": of("web") });
    assert_eq!(breaches(&json!({ "branches": branches })), 3);
}

#[test]
fn what_was_to_be_taken_out_and_what_came_second_is_found() {
    assert_eq!(breaches(&json!({ "secret": "hush" })), 1);
    assert_eq!(breaches(&json!({ "marker": "the second answer" })), 1);
}

#[test]
fn an_argument_in_a_line_of_the_log_is_found() {
    let invariants = Invariants::default();
    invariants.check_line("a run begins composite=\"all\"");
    assert_eq!(invariants.broken(), 0);
    invariants.check_line(&format!("a tool is called arguments={{\"marker\": {}}}", marker(9)));
    assert_eq!(invariants.broken(), 1);
    assert!(invariants.to_string().contains("BROKEN Log: a tool is called"), "{invariants}");
}

#[test]
fn markers_are_whole_and_no_two_are_the_same() {
    let text = format!("{} mark-1 mark-{} {}", marker(1), "g".repeat(16), marker(u64::MAX));
    assert_eq!(markers(&text).collect::<Vec<_>>(), [marker(1), marker(u64::MAX)]);
}

/// A stack whose answers are those that `twist` makes of them.
async fn broken_stack(
    twist: impl Fn(Reply) -> Reply + Clone + Send + Sync + 'static,
) -> (Arc<Invariants>, Vec<Value>) {
    let invariants = Arc::<Invariants>::default();
    let answer = Answer::from_fn(|call| async move {
        let mut echo = call.arguments();
        echo["pid"] = 7.into();
        Answer::structured(echo)
    });
    let twist = intercept::from_fn(move |request, next: intercept::Next| {
        let twist = twist.clone();
        async move { next.run(request).await.map(twist) }
    });
    let targets = ["near", "far"].map(|id| {
        let arguments = json!({ "marker": "$input.marker", "branch": id });
        Target::new("echo").id(id).arguments(arguments)
    });
    let both = CompositeTool::fan_out("both", "Both", targets);
    let runs = Arc::new(Runs::new(invariants.clone()));
    let layer = CompositeLayer::new([both]).unwrap().observer(runs.clone());
    let service = layer.layer(twist.layer(Server::new().tool("echo", answer)));
    let mut answers = Vec::new();
    for call in 0..4 {
        let result = testing::call(&service, "both", json!({ "marker": marker(call) })).await;
        let result = serde_json::to_value(result).unwrap();
        invariants.check_answer(&marker(call), &result);
        answers.push(result);
    }
    assert_eq!(runs.going_on(), 0);
    (invariants, answers)
}

#[tokio::test]
async fn a_stack_that_is_sound_breaks_nothing() {
    let (invariants, answers) = broken_stack(|reply| reply).await;
    assert_eq!(invariants.broken(), 0, "{invariants}");
    assert!(answers.iter().all(|answer| answer["isError"] == false));
    assert!(invariants.to_string().contains("every run ends, and once"));
}

#[tokio::test]
async fn a_layer_that_gives_one_call_the_answer_of_another_is_found_out() {
    let (before, turn) = (Arc::<Mutex<Option<Reply>>>::default(), Arc::<AtomicUsize>::default());
    let (invariants, _) = broken_stack(move |reply| {
        // Of each call of the composite, the second branch gets what was given last.
        let last = before.lock().unwrap().replace(reply.clone());
        match turn.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => last.unwrap_or(reply),
            _ => reply,
        }
    })
    .await;
    assert!(invariants.broken() > 0, "{invariants}");
    assert!(invariants.to_string().contains("BROKEN OwnMarker"), "{invariants}");
}

#[tokio::test]
async fn a_run_that_begins_and_ends_twice_is_found() {
    let invariants = Arc::<Invariants>::default();
    let runs = Arc::new(Runs::new(invariants.clone()));
    let all = CompositeTool::fan_out("all", "All", ["near"]);
    // Told of everything twice, it takes one run for two of the same id.
    let layer = CompositeLayer::new([all]).unwrap().observer(runs.clone()).observer(runs);
    testing::call(&layer.layer(Server::new().says("near", "a ship")), "all", json!({})).await;
    assert_eq!(invariants.broken(), 2, "{invariants}");
    let told = "BROKEN RunEnds: a run of `all` began when it could not";
    assert!(invariants.to_string().contains(told), "{invariants}");
}
