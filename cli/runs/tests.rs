//! Runs of composites in the log.

use std::sync::Arc;

use mcp_composite::{
    composite::{CompositeLayer, CompositeTool, FanOut, ForEach, Step},
    testing::{self, Server},
};
use serde_json::{Value, json};
use tower::Layer;

use super::*;

/// Calls a composite with this plan some times, while a log observes the runs.
async fn observed(log: &Arc<RunLog>, composite: CompositeTool, arguments: Value, calls: usize) {
    let name = composite.name().to_owned();
    let server = Server::new().says("near", "found").fails("far", "no ship");
    let service = CompositeLayer::new([composite]).unwrap().observer(log.clone()).layer(server);
    for _ in 0..calls {
        testing::call(&service, &name, arguments.clone()).await;
    }
}

fn look() -> CompositeTool {
    CompositeTool::new("look", "Looks everywhere", FanOut::new(["near", "far"]))
}

fn summaries(log: &RunLog, since: u64) -> (Value, u64) {
    log.since(since, &Redacted::default(), |runs, version| (json!(runs), version))
}

/// Returns the latest run.
fn latest(log: &RunLog) -> Value {
    let (runs, _) = summaries(log, 0);
    let id = runs.as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
    json!(log.run(&id, &Redacted::default()).unwrap().0)
}

#[tokio::test]
async fn run_has_its_branches_with_their_calls_and_outcomes() {
    let log = Arc::new(RunLog::new(false));
    observed(&log, look(), json!({ "secret": 1 }), 1).await;
    let run = latest(&log);
    assert_eq!((&run["composite"], &run["status"]), (&json!("look"), &json!("failed")));
    let branches = run["branches"].as_array().unwrap();
    let facts: Vec<_> = branches
        .iter()
        .map(|branch| json!([branch["id"], branch["status"], branch["error"], branch["calls"]]))
        .collect();
    assert_eq!(json!(facts), json!([["near", "completed", null, 1], ["far", "failed", "tool", 1]]));
    assert!(run["ended_ms"].is_u64() && branches[0]["ended_ms"].is_u64(), "{run}");
    assert!(!run.to_string().contains("secret"), "{run}");
}

#[tokio::test]
async fn arguments_are_kept_on_request_unless_they_are_large() {
    let log = Arc::new(RunLog::new(true));
    observed(&log, look(), json!({ "q": "tea" }), 1).await;
    let run = latest(&log);
    assert_eq!(run["arguments"], json!({ "q": "tea" }));
    assert_eq!(run["branches"][0]["attempts"][0]["arguments"], json!({ "q": "tea" }));

    observed(&log, look(), json!({ "q": "x".repeat(20_000) }), 1).await;
    assert_eq!(latest(&log)["arguments"], json!({ "(omitted)": "20008 bytes" }));
}

#[tokio::test]
async fn only_the_last_thousand_runs_are_kept() {
    let log = Arc::new(RunLog::new(false));
    observed(&log, look(), json!({}), 1).await;
    let (first, version) = summaries(&log, 0);
    observed(&log, look(), json!({}), MAX_RUNS).await;
    let (runs, _) = summaries(&log, version);
    assert_eq!(runs.as_array().unwrap().len(), MAX_RUNS);
    assert!(log.run(first[0]["id"].as_str().unwrap(), &Redacted::default()).is_none());
}

#[tokio::test]
async fn size_of_all_runs_is_limited() {
    let log = Arc::new(RunLog::new(true));
    // Each run has the arguments three times, and each counts four times.
    let arguments = json!({ "q": "x".repeat(15_000) });
    observed(&log, look(), arguments, 300).await;
    let kept = summaries(&log, 0).0.as_array().unwrap().len();
    assert!((100..250).contains(&kept), "{kept}");
    let runs = log.lock();
    let bytes: usize = runs.entries.values().map(|entry| entry.bytes).sum();
    assert_eq!((bytes, runs.order.len()), (runs.bytes, kept));
    assert!(bytes <= MAX_BYTES, "{bytes}");
}

#[tokio::test]
async fn branches_beyond_the_limit_are_counted() {
    let log = Arc::new(RunLog::new(false));
    let each = |id: &str, list| Step::new(id, ForEach::new(list, "near").max_iterations(1000));
    let steps = [each("most", "$input.most"), each("rest", "$input.rest")];
    let composite = CompositeTool::pipeline("each", "Calls for each", steps);
    let arguments = json!({ "most": vec![0; 1000], "rest": vec![0; 200] });
    observed(&log, composite, arguments, 1).await;
    let run = latest(&log);
    // Each loop is a branch, too.
    assert_eq!(run["branches"].as_array().unwrap().len(), 1000, "{}", run["status"]);
    assert_eq!(run["omitted_branches"], 202);
}

#[tokio::test]
async fn subscriber_sees_only_changes_since_its_version() {
    let log = Arc::new(RunLog::new(false));
    let mut subscriber = log.subscribe();
    observed(&log, look(), json!({}), 2).await;
    assert!(subscriber.has_changed().unwrap());
    let (runs, version) = summaries(&log, 0);
    assert_eq!(runs.as_array().unwrap().len(), 2);
    assert_eq!(*subscriber.borrow_and_update(), version);
    assert_eq!(summaries(&log, version).0, json!([]));
    observed(&log, look(), json!({}), 1).await;
    assert_eq!(summaries(&log, version).0.as_array().unwrap().len(), 1);
}
