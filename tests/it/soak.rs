//! The soak detects violations in answers, questions, lines of the log and runs: each of these
//! invariants is broken here on purpose.

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
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tower::Layer;

use crate::{
    invariants::{Invariant, Invariants, Runs, marker, markers},
    wire::Wire,
};

/// Returns the number of violations in an answer to the call of marker 1.
fn breaches(answer: &Value) -> u64 {
    let invariants = Invariants::default();
    invariants.check_answer(&marker(1), answer);
    invariants.broken()
}

#[test]
fn valid_answer_breaks_no_invariant() {
    let echo = json!({ "marker": marker(1), "branch": "near", "pid": 7 });
    let branches = json!({ "near": { "status": "completed", "output": echo } });
    assert_eq!(breaches(&json!({ "structuredContent": { "branches": branches } })), 0);
    assert_eq!(breaches(&json!({ "isError": true, "content": [] })), 0);
}

#[test]
fn checked_invariants_are_counted() {
    let invariants = Invariants::default();
    invariants.check_answer(&marker(1), &json!({ "marker": marker(1), "pid": 7 }));
    let looked = invariants.checked().map(|(invariant, count)| (invariant, count > 0));
    for (invariant, is_looked_at) in looked {
        let is_of_answers = matches!(
            invariant,
            Invariant::AnsweredOnce | Invariant::OwnMarker | Invariant::Echo | Invariant::Redacted
        );
        assert_eq!(is_looked_at, is_of_answers, "{invariant:?}");
    }
}

#[test]
fn content_of_another_call_is_detected_anywhere() {
    let other = marker(2);
    assert_eq!(breaches(&json!({ "content": [{ "text": format!("see {other}.") }] })), 1);
    assert_eq!(breaches(&json!({ other.as_str(): [marker(1)] })), 1);
    let echo = json!({ "marker": other, "pid": 7 });
    assert_eq!(breaches(&json!({ "structuredContent": echo })), 2, "the marker and the echo");
    assert_eq!(breaches(&json!({ "structuredContent": { "pid": 7 } })), 1, "an echo of nothing");
}

#[test]
fn swapped_branch_answers_are_detected() {
    let of =
        |branch: &str| json!({ "output": { "branch": branch, "marker": marker(1), "pid": 7 } });
    let nested = json!({ "output": { "branches": { "far": of("near") } } });
    let branches = json!({ "near": of("far"), "far": of("near"), "all": nested, "web": of("web") });
    assert_eq!(breaches(&json!({ "branches": branches })), 3);
}

#[test]
fn unredacted_secret_and_second_answer_are_detected() {
    assert_eq!(breaches(&json!({ "secret": "hush" })), 1);
    assert_eq!(breaches(&json!({ "marker": "the second answer" })), 1);
}

#[test]
fn argument_in_a_log_line_is_detected() {
    let invariants = Invariants::default();
    invariants.check_line("run started composite=\"all\"");
    assert_eq!(invariants.broken(), 0);
    invariants.check_line(&format!("calling a tool arguments={{\"marker\": {}}}", marker(9)));
    assert_eq!(invariants.broken(), 1);
    assert!(invariants.to_string().contains("BROKEN Log: calling a tool"), "{invariants}");
}

#[test]
fn markers_are_complete_and_unique() {
    let text = format!("{} mark-1 mark-{} {}", marker(1), "g".repeat(16), marker(u64::MAX));
    assert_eq!(markers(&text).collect::<Vec<_>>(), [marker(1), marker(u64::MAX)]);
}

/// Returns a stack whose answers are modified by `twist`.
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
async fn sound_stack_breaks_no_invariant() {
    let (invariants, answers) = broken_stack(|reply| reply).await;
    assert_eq!(invariants.broken(), 0, "{invariants}");
    assert!(answers.iter().all(|answer| answer["isError"] == false));
    assert!(invariants.to_string().contains("every run ends, and once"));
}

#[tokio::test]
async fn layer_that_mixes_up_answers_is_detected() {
    let (before, turn) = (Arc::<Mutex<Option<Reply>>>::default(), Arc::<AtomicUsize>::default());
    let (invariants, _) = broken_stack(move |reply| {
        // The second branch of each call of the composite gets the previous reply.
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
async fn run_that_starts_and_ends_twice_is_detected() {
    let invariants = Arc::<Invariants>::default();
    let runs = Arc::new(Runs::new(invariants.clone()));
    let all = CompositeTool::fan_out("all", "All", ["near"]);
    // With every event twice, it takes one run for two of the same id.
    let layer = CompositeLayer::new([all]).unwrap().observer(runs.clone()).observer(runs);
    testing::call(&layer.layer(Server::new().says("near", "a ship")), "all", json!({})).await;
    assert_eq!(invariants.broken(), 2, "{invariants}");
    let expected = "BROKEN RunEnds: a run of `all` began when it could not";
    assert!(invariants.to_string().contains(expected), "{invariants}");
}

/// A server that writes what the test says, for any request.
struct Peer(BufReader<DuplexStream>);

impl Peer {
    /// Returns the next message of this kind.
    async fn next(&mut self, is_wanted: fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if is_wanted(&message) {
                return message;
            }
        }
    }

    async fn request(&mut self) -> Value {
        self.next(|message| message.get("id").is_some() && message.get("method").is_some()).await
    }

    async fn write(&mut self, message: Value) {
        self.0.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Asks, and waits for the answer, so that all earlier messages have been read.
    async fn ask(&mut self, text: &str) {
        let params = json!({ "message": text, "requestedSchema": {} });
        let method = "elicitation/create";
        self.write(json!({ "jsonrpc": "2.0", "id": "q", "method": method, "params": params }))
            .await;
        self.next(|message| message.get("method").is_none()).await;
    }
}

async fn connected() -> (Arc<Invariants>, Arc<Wire>, Peer) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (invariants, mut peer) = (Arc::<Invariants>::default(), Peer(BufReader::new(far)));
    let introduced = async {
        let id = peer.request().await["id"].clone();
        let result = json!({ "protocolVersion": "2025-11-25" });
        peer.write(json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    };
    let (wire, ()) = tokio::join!(Wire::connect(near, invariants.clone()), introduced);
    (invariants, wire.unwrap(), peer)
}

#[tokio::test]
async fn duplicate_and_unsolicited_answers_are_detected() {
    let (invariants, wire, mut peer) = connected().await;
    let mut call = wire.call(&marker(1), "near", &json!({}));
    let id = peer.request().await["id"].clone();
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": {} });
    peer.write(answer.clone()).await;
    assert_eq!(call.answer().await, answer);
    assert_eq!(invariants.broken(), 0, "{invariants}");
    peer.write(answer).await;
    peer.write(json!({ "jsonrpc": "2.0", "id": 99, "result": {} })).await;
    peer.ask("Sure?").await;
    assert_eq!(wire.waiting(), 0);
    wire.close().await;
    let report = invariants.to_string();
    assert_eq!(invariants.broken(), 2, "{report}");
    assert!(report.contains(&format!("a second answer to {id}")), "{report}");
    assert!(report.contains("an answer to 99, which nobody asked"), "{report}");
}

#[tokio::test]
async fn foreign_question_is_detected_after_a_cancellation() {
    let (invariants, wire, mut peer) = connected().await;
    let _goes_on = wire.call(&marker(1), "near", &json!({}));
    drop(wire.call(&marker(2), "near", &json!({})));
    assert_eq!(wire.waiting(), 1);
    for own in [1, 2] {
        peer.ask(&marker(own)).await;
    }
    assert_eq!(invariants.broken(), 0, "{invariants}");
    peer.ask(&marker(3)).await;
    assert_eq!(invariants.broken(), 1, "{invariants}");
    peer.ask(&format!("{} {}", marker(1), marker(2))).await;
    assert_eq!(invariants.broken(), 2, "{invariants}");
}
