//! A child process, over pipes.

use std::time::Duration;

use mcp_composite::{
    adapter::{RemoteService, remote::stdio::ChildProcess},
    message::Request,
};
use serde_json::json;
use tower::ServiceExt;

use super::{
    LATE, MINUTE, assert_failed, both, both_within, far, leave_nothing_behind, until_called,
};
use crate::{
    programs::{example, is_running},
    support::{soon, until},
};

const LOST: [&str; 3] =
    ["failed", "service", "the connection to backend `far` was lost before it answered"];
async fn start() -> RemoteService {
    let process = ChildProcess::new(example("misbehaving")).args(["faulty"]);
    let remote = RemoteService::builder("far").child_process(process);
    soon(remote.connected()).await.unwrap();
    remote
}

async fn pid(remote: &RemoteService) -> Option<u64> {
    let reply = remote.clone().oneshot(Request::call_tool("pid")).await.ok()?;
    reply.tool_result()?.structured_content.as_ref()?["pid"].as_u64()
}

#[tokio::test]
async fn faulty_reply_fails_only_its_branch() {
    let remote = start().await;
    let (service, late) = (both_within(MINUTE, remote.clone()), both(remote.clone()));
    let process = pid(&remote).await.unwrap();
    let cases = [
        ("failure", ["failed", "tool", "a fault"]),
        ("error", ["failed", "protocol", "a fault"]),
        ("malformed", ["failed", "protocol", "backend `far` returned an invalid response"]),
        ("garbage", LATE),
        ("wrong-id", LATE),
        ("silent", LATE),
    ];
    for (how, expected) in cases {
        let service = if expected == LATE { &late } else { &service };
        assert_failed(&far(service, how, &json!({ "how": how })).await, expected, how);
        let well = far(service, "well", &json!({})).await;
        assert_eq!(well["output"]["marker"], "well", "after {how}");
    }
    assert_eq!(pid(&remote).await, Some(process), "none of it is a reason to start anew");
}

#[tokio::test]
async fn second_response_to_a_request_is_ignored() {
    let service = both_within(MINUTE, start().await);
    for round in 0..20 {
        let marker = format!("round {round}");
        let branch = far(&service, &marker, &json!({ "how": "twice" })).await;
        assert_eq!(branch["output"]["marker"], *marker);
    }
}

#[tokio::test]
async fn response_to_a_cancelled_call_is_ignored() {
    let service = both_within(MINUTE, start().await);
    let late = json!({ "how": "late", "ms": 300 });
    for (round, patience) in [0, 50, 100].into_iter().enumerate() {
        let call = far(&service, "given up", &late);
        assert!(tokio::time::timeout(Duration::from_millis(patience), call).await.is_err());
        let marker = format!("round {round}");
        let branch = far(&service, &marker, &late).await;
        assert_eq!(branch["output"]["marker"], *marker);
    }
}

#[tokio::test]
async fn server_request_outside_a_call_has_no_effect() {
    let service = both_within(MINUTE, start().await);
    let branch = far(&service, "mine", &json!({ "how": "asks" })).await;
    assert_eq!(branch["output"]["marker"], "mine");
}

#[tokio::test]
async fn oversized_reply_fails_only_its_branch() {
    let service = both_within(MINUTE, start().await);
    let huge = json!({ "how": "huge", "bytes": 20_000_000 });
    let message = "backend `far` sent an answer of more than 16 MiB";
    assert_failed(&far(&service, "mine", &huge).await, ["failed", "protocol", message], "huge");
    assert_eq!(far(&service, "well", &json!({})).await["output"]["marker"], "well");
}

#[tokio::test]
async fn lost_process_is_restarted_and_cleaned_up() {
    for how in ["exit", "killed", "breaks-off"] {
        let remote = start().await;
        let service = both_within(MINUTE, remote.clone());
        let process = pid(&remote).await.unwrap();
        assert_failed(&far(&service, "mine", &json!({ "how": how })).await, LOST, how);
        until(async || pid(&remote).await.is_some_and(|again| again != process)).await;
        assert_eq!(far(&service, "well", &json!({})).await["output"]["marker"], "well");
        // The one that has only closed its pipe is killed by the client.
        until(async || !is_running(process)).await;
    }
}

#[tokio::test]
async fn lost_process_fails_all_of_its_running_calls() {
    let remote = start().await;
    let service = both_within(MINUTE, remote.clone());
    let slow = json!({ "how": "slow", "ms": 60_000 });
    let slow: Vec<_> = (0..8).map(|place| (format!("slow {place}"), slow.clone())).collect();
    let slow = slow.iter().map(|(marker, slow)| far(&service, marker, slow));
    let lost = async {
        until_called(&remote, 8).await;
        far(&service, "last", &json!({ "how": "killed" })).await
    };
    let (slow, killed) = tokio::join!(futures::future::join_all(slow), lost);
    for branch in slow.iter().chain([&killed]) {
        assert_failed(branch, LOST, "killed");
    }
}

#[tokio::test]
async fn hanging_process_does_not_delay_closing() {
    let remote = start().await;
    let service = both_within(MINUTE, remote.clone());
    let process = pid(&remote).await.unwrap();
    let close = async {
        // One requested the process id.
        until_called(&remote, 2).await;
        remote.close().await;
    };
    let hanging = json!({ "how": "silent" });
    let (hung, ()) = soon(async { tokio::join!(far(&service, "mine", &hanging), close) }).await;
    assert_failed(&hung, LOST, "closed");
    assert!(!is_running(process));
}

#[tokio::test]
async fn dropped_calls_leave_no_tasks() {
    leave_nothing_behind(&start().await).await;
}
