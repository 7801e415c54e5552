//! A server over HTTP, in a separate process.

use std::{process::Stdio, time::Duration};

use mcp_composite::{adapter::RemoteService, testing};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, Command},
};

use super::{
    LATE, MINUTE, assert_failed, both, both_within, far, leave_nothing_behind, until_called,
};
use crate::{
    programs::example,
    support::{soon, until},
};

const NO_ANSWER: [&str; 3] = ["failed", "service", "backend `far` could not answer"];

/// A server process that ends with its standard input, even if the test fails.
struct Server {
    process: Child,
    _input: ChildStdin,
    url: String,
}

impl Server {
    async fn start(port: &str) -> Self {
        Self::start_with(&["--http", port]).await
    }

    async fn start_with(options: &[&str]) -> Self {
        let mut command = Command::new(example("misbehaving"));
        command.arg("faulty").args(options).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let _input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = soon(output.next_line()).await.unwrap().expect("it says where it listens");
        Self { process, _input, url }
    }

    /// Restarts it at the same address, after it has ended.
    async fn start_again(self) -> Self {
        let Self { mut process, url, .. } = self;
        soon(process.wait()).await.unwrap();
        let port = url.rsplit(':').next().unwrap().trim_end_matches("/mcp").to_owned();
        Self::start(&port).await
    }

    async fn connect(&self) -> RemoteService {
        let remote = RemoteService::builder("far").http(&self.url, []);
        soon(remote.connected()).await.unwrap();
        remote
    }
}

#[tokio::test]
async fn faulty_reply_fails_only_its_branch() {
    let server = Server::start("0").await;
    let remote = server.connect().await;
    let (service, late) = (both_within(MINUTE, remote.clone()), both(remote));
    let cases = [
        ("failure", ["failed", "tool", "a fault"]),
        ("error", ["failed", "protocol", "a fault"]),
        ("malformed", ["failed", "protocol", "backend `far` returned an invalid response"]),
        ("garbage", NO_ANSWER),
        ("refuses", NO_ANSWER),
        ("breaks-off", NO_ANSWER),
        ("wrong-id", LATE),
        ("silent", LATE),
    ];
    for (how, expected) in cases {
        let service = if expected == LATE { &late } else { &service };
        assert_failed(&far(service, how, &json!({ "how": how })).await, expected, how);
        let well = far(service, "well", &json!({})).await;
        assert_eq!(well["output"]["marker"], "well", "after {how}: {well}");
    }
}

#[tokio::test]
async fn second_response_to_a_request_is_ignored() {
    let server = Server::start("0").await;
    let service = both_within(MINUTE, server.connect().await);
    for round in 0..20 {
        let marker = format!("round {round}");
        let branch = far(&service, &marker, &json!({ "how": "twice" })).await;
        assert_eq!(branch["output"]["marker"], *marker);
    }
}

#[tokio::test]
async fn response_to_a_cancelled_call_is_ignored() {
    let server = Server::start("0").await;
    let service = both_within(MINUTE, server.connect().await);
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
    let server = Server::start("0").await;
    let service = both_within(MINUTE, server.connect().await);
    let branch = far(&service, "mine", &json!({ "how": "asks" })).await;
    assert_eq!(branch["output"]["marker"], "mine");
}

#[tokio::test]
async fn oversized_reply_fails_only_its_branch() {
    let server = Server::start("0").await;
    let service = both_within(MINUTE, server.connect().await);
    let huge = json!({ "how": "huge", "bytes": 20_000_000 });
    assert_failed(&far(&service, "mine", &huge).await, NO_ANSWER, "huge");
    assert_eq!(far(&service, "well", &json!({})).await["output"]["marker"], "well");
}

#[tokio::test]
async fn restarted_server_is_called_again() {
    let mut server = Server::start("0").await;
    let service = both_within(MINUTE, server.connect().await);
    for how in ["exit", "killed"] {
        let branch = far(&service, "mine", &json!({ "how": how })).await;
        assert_eq!(branch["error"]["kind"], "service", "{branch}");
        server = server.start_again().await;
        until(async || far(&service, "well", &json!({})).await["output"]["marker"] == "well").await;
    }
}

#[tokio::test]
async fn hanging_server_does_not_delay_closing() {
    let server = Server::start("0").await;
    let remote = server.connect().await;
    let service = both_within(MINUTE, remote.clone());
    let close = async {
        until_called(&remote, 1).await;
        remote.close().await;
    };
    let hanging = json!({ "how": "silent" });
    let (hung, ()) = soon(async { tokio::join!(far(&service, "mine", &hanging), close) }).await;
    let lost = "the connection to backend `far` was lost before it answered";
    assert_failed(&hung, ["failed", "service", lost], "closed");
}

#[tokio::test]
async fn dropped_calls_leave_no_tasks() {
    let server = Server::start("0").await;
    leave_nothing_behind(&server.connect().await).await;
}

#[tokio::test]
async fn slow_cancellations_do_not_accumulate() {
    let server = Server::start_with(&["--http", "0", "--slow-to-hear", "1000"]).await;
    let remote = server.connect().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..200 {
        let call = testing::call(&remote, "fault", json!({ "how": "silent" }));
        assert!(tokio::time::timeout(Duration::from_millis(10), call).await.is_err());
    }
    // One after another they would take more than three minutes.
    until(async || tasks() <= before + 4).await;
}
