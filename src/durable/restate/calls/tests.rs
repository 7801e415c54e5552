//! Calls of a process that shuts down.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::FutureExt;
use tokio_test::{assert_pending, assert_ready, task};

use super::*;

/// The duration of a call, whose output is never stored.
const DURATION: Duration = Duration::from_secs(1);

fn calls() -> Calls {
    Calls::new(Client::new("http://127.0.0.1:1").unwrap())
}

/// Starts a call, and returns whether it is made.
fn start(calls: &Calls, permit: Permit) -> Arc<AtomicBool> {
    let made = Arc::new(AtomicBool::new(false));
    let is_made = made.clone();
    let call = async move {
        is_made.store(true, Ordering::Relaxed);
        std::future::pending().await
    };
    calls.start("awakeable".to_owned(), call.boxed(), Instant::now() + DURATION, permit);
    made
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_permits_and_their_calls() {
    let calls = calls();
    let permit = calls.permit().unwrap();
    let mut finished = task::spawn(calls.finished());
    assert_pending!(finished.poll());
    assert!(calls.permit().is_none());

    let made = start(&calls, permit);
    assert_pending!(finished.poll());
    sleep(DURATION / 2).await;
    assert!(made.load(Ordering::Relaxed));
    assert_pending!(finished.poll());
    sleep(DURATION).await;
    assert_ready!(finished.poll());
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_dropped_permits() {
    let calls = calls();
    let permit = calls.permit().unwrap();
    let mut finished = task::spawn(calls.finished());
    assert_pending!(finished.poll());
    drop(permit);
    assert_ready!(finished.poll());
}

#[tokio::test(start_paused = true)]
async fn closed_process_makes_no_calls() {
    let calls = calls();
    let (running, waiting) = (calls.permit().unwrap(), calls.permit().unwrap());
    start(&calls, running);
    calls.close().await;
    assert!(calls.permit().is_none());
    let made = start(&calls, waiting);
    sleep(DURATION).await;
    assert!(!made.load(Ordering::Relaxed));
    assert!(!calls.contains("awakeable"));
}
