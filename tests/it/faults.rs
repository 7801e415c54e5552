//! Composites over a backend that fails in every way: in memory, as a child process, and over HTTP.
//! The other branches are unaffected, and the backend recovers.

#[cfg(feature = "http")]
mod http;
mod memory;
#[cfg(feature = "stdio")]
mod stdio;

use std::time::Duration;

#[cfg(any(feature = "http", feature = "stdio"))]
use mcp_composite::adapter::RemoteService;
use mcp_composite::{
    adapter::{Router, router::Backend},
    composite::{Composite, CompositeLayer, CompositeTool, Target},
    message::{Reply, Request},
    testing::{self, Server},
};
use serde_json::{Value, json};
use tower::{BoxError, Layer};
use tower_service::Service;

#[cfg(any(feature = "http", feature = "stdio"))]
use crate::support::until;

/// The timeout of a target that does not answer.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The timeout of a target that answers, which is never reached.
#[cfg(any(feature = "http", feature = "stdio"))]
const MINUTE: Duration = Duration::from_secs(60);
/// The status, kind and message of a timeout.
const LATE: [&str; 3] = ["timed_out", "timeout", "no answer within 1."];

/// A fan-out to a backend that fails, `far`, and to one that does not, `near`.
fn both<S>(far: S) -> Composite<Router>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    both_within(PATIENCE, far)
}

fn both_within<S>(patience: Duration, far: S) -> Composite<Router>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let router = Router::builder()
        .backend(Backend::new("near", Server::new().echoes("fault")))
        .backend(Backend::new("far", far))
        .build()
        .unwrap();
    let targets = [
        Target::new("near_fault").id("near").arguments(json!({ "marker": "$input.marker" })),
        Target::new("far_fault").id("far").timeout(patience),
    ];
    let both = CompositeTool::fan_out("both", "Both of them", targets);
    CompositeLayer::new([both]).unwrap().layer(router)
}

/// Returns the outcome of the failing branch, and checks the other one.
async fn far<S>(service: &S, marker: &str, how: &Value) -> Value
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    let mut arguments = how.clone();
    arguments["marker"] = marker.into();
    let result = testing::call(service, "both", arguments).await;
    let mut branches = result.structured_content.unwrap()["branches"].take();
    let near = json!({ "status": "completed", "output": { "marker": marker } });
    assert_eq!(branches["near"], near, "{how}");
    branches["far"].take()
}

/// Asserts that a branch failed with this status, error kind and prefix of the message.
#[track_caller]
fn assert_failed(branch: &Value, [status, kind, message]: [&str; 3], how: &str) {
    let text = &branch["error"]["message"];
    let has_prefix = text.as_str().is_some_and(|text| text.starts_with(message));
    let is_expected = branch["status"] == status && branch["error"]["kind"] == kind && has_prefix;
    assert!(is_expected, "{how}: {branch}, expected {status}, {kind}, {message}");
}

/// Waits until a server has received this many calls, besides those that request this number.
#[cfg(any(feature = "http", feature = "stdio"))]
async fn until_called(remote: &RemoteService, others: u64) {
    let mut polls = 0;
    until(async || {
        polls += 1;
        let calls = testing::call(remote, "calls", json!({})).await;
        let count = calls.structured_content.unwrap()["count"].as_u64();
        count >= Some(others + polls)
    })
    .await;
}

/// Asserts that abandoned calls leave no task behind, and that the server still works.
#[cfg(any(feature = "http", feature = "stdio"))]
async fn leave_nothing_behind(remote: &RemoteService) {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for how in ["silent", "slow", "late"] {
        testing::call(remote, "fault", json!({})).await;
        let before = tasks();
        for patience in 0..40 {
            let arguments = json!({ "how": how, "ms": 20 });
            let call = testing::call(remote, "fault", arguments);
            let _ = tokio::time::timeout(Duration::from_millis(patience / 2), call).await;
        }
        // Pooled connections have their own tasks.
        until(async || tasks() <= before + 4).await;
    }
}
