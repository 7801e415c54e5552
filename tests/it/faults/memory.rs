//! A service in memory, with injected faults of the test kit.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use mcp_composite::testing::{self, Fault, Faults, Server, Status};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tower::{Layer, ServiceExt, limit::ConcurrencyLimit};

use super::{LATE, assert_failed, both, far};

const SECOND: Duration = Duration::from_secs(1);

/// Injects a fault into every second call.
fn every_second(fault: Fault) -> Faults {
    Faults::seeded(3).inject(fault, 0.5)
}

/// Returns which of 64 calls of each of these tools have failed.
async fn failures(faults: &Faults, tools: &[&str]) -> Vec<Vec<bool>> {
    let server = tools.iter().fold(Server::new(), |server, tool| server.says(tool, "fine"));
    let service = faults.layer(server);
    let mut failures = vec![Vec::new(); tools.len()];
    for _ in 0..64 {
        for (tool, failures) in tools.iter().zip(&mut failures) {
            let result = testing::call(&service, tool, Value::Null).await;
            failures.push(result.is_error == Some(true));
        }
    }
    failures
}

// === Random faults ===

#[tokio::test(start_paused = true)]
async fn same_seed_injects_the_same_faults() {
    let faults = |seed| Faults::seeded(seed).inject(Fault::Failure, 0.5);
    let one = failures(&faults(1), &["a", "b"]).await;
    assert_eq!(failures(&faults(1), &["a", "b"]).await, one);
    assert_ne!(failures(&faults(2), &["a", "b"]).await, one);
    assert_ne!(one[0], one[1], "each tool has a fate of its own");
    assert_eq!(failures(&faults(1), &["b"]).await[0], one[1], "whatever becomes of others");
}

#[tokio::test(start_paused = true)]
async fn faults_are_injected_at_about_their_rate() {
    let slow = Fault::Slow(SECOND);
    let faults = Faults::seeded(1)
        .inject(Fault::Failure, 0.25)
        .inject_into("a", slow, 0.5)
        .inject_into("b", Fault::Failure, 0.75);
    let failed: Vec<_> = failures(&faults, &["a", "b"])
        .await
        .into_iter()
        .map(|calls| calls.into_iter().filter(|&has_failed| has_failed).count())
        .collect();
    assert!((8..24).contains(&failed[0]) && failed[1] == 64, "{failed:?}");
    assert_eq!(faults.injected(Fault::Failure), failed[0] + failed[1]);
    let slow = faults.injected(Fault::Slow(Duration::ZERO));
    assert!((20..44).contains(&slow), "{slow}");
    assert_eq!(faults.injected(Fault::Panic), 0);
}

#[test]
fn invalid_fault_rates_are_rejected() {
    let refused = |inject: fn() -> Faults| {
        let panic = catch_unwind(AssertUnwindSafe(inject)).unwrap_err();
        *panic.downcast::<String>().unwrap()
    };
    assert_eq!(refused(|| nothing_of(-0.5)), "a share of -0.5 of all calls");
    assert_eq!(refused(|| nothing_of(f64::NAN)), "a share of NaN of all calls");
    let too_much = || {
        let faults = Faults::seeded(0).inject_into("a", Fault::Lost, 0.75);
        faults.inject_into("b", Fault::Lost, 0.75).inject(Fault::Never, 0.5)
    };
    assert_eq!(refused(too_much), "faults in 1.25 of all calls");
    let thirds = (0..3).fold(Faults::seeded(0), |faults, _| faults.inject(Fault::Lost, 1.0 / 3.0));
    assert_eq!(format!("{thirds:?}").matches("lost").count(), 3);
}

fn nothing_of(share: f64) -> Faults {
    Faults::seeded(0).inject(Fault::Never, share)
}

// === Composites ===

#[tokio::test(start_paused = true)]
async fn injected_fault_fails_only_its_branch_and_call() {
    let cases = [
        (Fault::Lost, ["failed", "service", "backend `far` could not answer"]),
        (Fault::Unavailable, ["failed", "service", "backend `far` could not answer"]),
        (Fault::Failure, ["failed", "tool", "a fault"]),
        (Fault::Error, ["failed", "protocol", "a fault"]),
        (Fault::Malformed, ["failed", "protocol", "the tool's response is not a tool result"]),
        (
            Fault::Asks,
            ["failed", "protocol", "the tool asks for input, which the client cannot give"],
        ),
        (Fault::Panic, ["failed", "panic", "the tool panicked"]),
        (Fault::Never, LATE),
        (Fault::Slow(3 * SECOND), LATE),
        (Fault::Late(3 * SECOND), LATE),
    ];
    for (fault, expected) in cases {
        let faults = every_second(fault);
        let service = both(faults.layer(Server::new().echoes("fault")));
        let mut completed = 0;
        for _ in 0..20 {
            let branch = far(&service, "mine", &json!({})).await;
            if branch["status"] == "completed" {
                assert_eq!(branch["output"], json!({ "marker": "mine" }), "{fault}");
                completed += 1;
            } else {
                assert_failed(&branch, expected, fault.name());
            }
        }
        assert_eq!(completed, 20 - faults.injected(fault), "{fault}");
        assert!((5..15).contains(&completed), "{fault}: {completed}");
    }
}

#[tokio::test(start_paused = true)]
async fn huge_result_completes_its_branch() {
    let faults = Faults::seeded(0).inject(Fault::Huge(1_000_000), 1.0);
    let branch = far(&both(faults.layer(Server::new().echoes("fault"))), "mine", &json!({})).await;
    assert_eq!(branch["output"].as_str().map(str::len), Some(1_000_000));
}

// === Abandoned calls ===

/// Gives up a call after a second, and returns how the server's call ended two seconds later, if it
/// was called.
async fn given_up(fault: Fault) -> Vec<Status> {
    let answer = testing::Answer::text("done").after(2 * SECOND);
    let server = Server::new().tool("work", answer);
    let service = Faults::seeded(0).inject(fault, 1.0).layer(server.clone());
    let call = testing::call(&service, "work", Value::Null);
    assert!(timeout(SECOND, call).await.is_err(), "{fault}");
    tokio::time::sleep(2 * SECOND).await;
    server.calls().iter().map(testing::RecordedCall::status).collect()
}

#[tokio::test(start_paused = true)]
async fn dropped_slow_call_reaches_no_tool() {
    assert_eq!(given_up(Fault::Slow(2 * SECOND)).await, []);
    assert_eq!(given_up(Fault::Late(SECOND)).await, [Status::Dropped]);
    assert_eq!(given_up(Fault::Deaf).await, [Status::Answered]);
}

#[tokio::test(start_paused = true)]
async fn late_reply_arrives_after_its_delay() {
    for (fault, takes) in
        [(Fault::Slow(3 * SECOND), 4), (Fault::Late(3 * SECOND), 3), (Fault::Deaf, 1)]
    {
        let server = Server::new().tool("work", testing::Answer::text("done").after(SECOND));
        let service = Faults::seeded(0).inject(fault, 1.0).layer(server);
        let start = Instant::now();
        let result = testing::call(&service, "work", Value::Null).await;
        assert_eq!((result.is_error, start.elapsed()), (Some(false), takes * SECOND), "{fault}");
    }
}

// === Tower ===

#[tokio::test(start_paused = true)]
async fn call_that_is_not_forwarded_releases_its_permit() {
    for fault in [Fault::Never, Fault::Failure, Fault::Unavailable] {
        let limited = ConcurrencyLimit::new(Server::new().says("work", "done"), 1);
        let service = Faults::seeded(0).inject_into("stuck", fault, 1.0).layer(limited);
        let stuck = service.clone().oneshot(testing::request("stuck", Value::Null));
        let mut stuck = std::pin::pin!(stuck);
        let _ = futures::poll!(&mut stuck);
        let done = timeout(SECOND, testing::call(&service, "work", Value::Null)).await;
        assert!(done.is_ok(), "{fault}");
    }
}
