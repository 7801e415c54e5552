//! Runs of composites in the log.

use std::{fs, io::Write as _, path::Path, pin::pin, sync::Arc};

use futures::FutureExt;
use mcp_composite::{
    adapter::Secrets,
    composite::{CompositeLayer, CompositeTool, FanOut, ForEach, Step},
    testing::{self, Server},
};
use serde_json::{Value, json};
use tower::Layer;

use super::{
    log::{MAX_BYTES, MAX_RUNS},
    *,
};
use crate::redacted::Redacted;

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
    let log = Arc::new(RunLog::new(false, None));
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
    assert!(!run.to_string().contains("secret") && !run.to_string().contains("found"), "{run}");
}

#[tokio::test]
async fn arguments_and_results_are_kept_on_request_unless_they_are_large() {
    let log = Arc::new(RunLog::new(true, None));
    observed(&log, look(), json!({ "q": "tea" }), 1).await;
    let run = latest(&log);
    assert_eq!(run["arguments"], json!({ "q": "tea" }));
    let branch = &run["branches"][0];
    assert_eq!(branch["attempts"][0]["arguments"], json!({ "q": "tea" }));
    assert_eq!(branch["result"]["content"][0]["text"], "found");
    assert_eq!(run["branches"][1]["result"]["isError"], true);
    assert_eq!(run["result"]["isError"], true);

    observed(&log, look(), json!({ "q": "x".repeat(20_000) }), 1).await;
    assert_eq!(latest(&log)["arguments"], json!({ "(omitted)": "more than 16384 bytes" }));
}

#[tokio::test]
async fn only_the_last_thousand_runs_are_kept() {
    let log = Arc::new(RunLog::new(false, None));
    observed(&log, look(), json!({}), 1).await;
    let (first, version) = summaries(&log, 0);
    observed(&log, look(), json!({}), MAX_RUNS).await;
    let (runs, _) = summaries(&log, version);
    assert_eq!(runs.as_array().unwrap().len(), MAX_RUNS);
    assert!(log.run(first[0]["id"].as_str().unwrap(), &Redacted::default()).is_none());
}

#[tokio::test]
async fn size_of_all_runs_is_limited() {
    let log = Arc::new(RunLog::new(true, None));
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
    let log = Arc::new(RunLog::new(false, None));
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
    let log = Arc::new(RunLog::new(false, None));
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

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or(Value::Null)).collect()
}

#[tokio::test]
async fn recording_is_extended_after_a_torn_line_and_has_no_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.ndjson");
    let redacted = Redacted::with(&Secrets::new(["hunter2".to_owned(), "8675309".to_owned()]));
    for _ in 0..2 {
        let recorder = Recorder::open(&path, u64::MAX, redacted.clone()).unwrap();
        let log = Arc::new(RunLog::new(true, Some(recorder)));
        let arguments = json!({ "q": "is it hunter2", "hunter2": [8_675_309] });
        observed(&log, look(), arguments, 2).await;
        log.close();
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"kind\":\"run\",").unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("8675309"), "{text}");
    let lines = lines(&path);
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap_or("-")).collect();
    let expected = ["header", "run", "run", "-", "header", "run", "run", "-"];
    assert_eq!(kinds, expected);
    assert_eq!(lines[1]["arguments"], json!({ "***": ["***"], "q": "is it ***" }));

    let recording = Recording::read(&path).unwrap();
    assert_eq!(summaries(&recording.runs, 0).0.as_array().unwrap().len(), 4);
    assert!(recording.warning.unwrap().starts_with("2 lines are incomplete"));
}

#[tokio::test]
async fn files_that_are_no_recordings_are_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tools.toml");
    fs::write(&path, "[[backends]]\n").unwrap();
    let error = Recorder::open(&path, u64::MAX, Redacted::default()).err().unwrap();
    assert!(error.ends_with("it is not a recording of `serve --record`; it was not changed"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "[[backends]]\n");
    for path in [Path::new("/dev/null"), folder.path(), &folder.path().join("none/runs")] {
        let error = Recorder::open(path, u64::MAX, Redacted::default()).err().unwrap();
        assert!(error.starts_with("cannot record to "), "{error}");
    }
}

#[tokio::test]
async fn run_that_has_not_ended_is_recorded_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.ndjson");
    let log = Arc::new(RunLog::new(
        false,
        Some(Recorder::open(&path, u64::MAX, Redacted::default()).unwrap()),
    ));
    let server = Server::new().tool("near", testing::Answer::never());
    let composite = CompositeTool::new("look", "Looks", FanOut::new(["near"]));
    let service = CompositeLayer::new([composite]).unwrap().observer(log.clone()).layer(server);
    let mut call = pin!(testing::call(&service, "look", json!({})));
    assert!(call.as_mut().now_or_never().is_none());
    log.close();
    let lines = lines(&path);
    assert_eq!((lines.len(), &lines[1]["status"]), (2, &json!("running")));
}
