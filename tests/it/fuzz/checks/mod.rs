//! Properties that hold for any input, each as a function of bytes that panics if it is violated.
//!
//! The fuzz targets in `tests/fuzz` run them on the input of a fuzzer, the tests beside this folder
//! on random input and on all findings of fuzzers.

mod config;
mod expr;
mod json;
mod names;
mod normalize;
mod replies;
mod requests;
mod stack;
mod state;
mod uris;

use std::time::Duration;

/// A check of bytes.
pub(crate) type Check = fn(&[u8]);

/// Every target with its check.
pub(crate) const TARGETS: [(&str, Check); 8] = [
    ("config", config::check),
    ("expr", expr::check),
    ("state", state::check),
    ("names", names::check),
    ("replies", replies::check),
    ("requests", requests::check),
    ("normalize", normalize::check),
    ("uris", uris::check),
];

/// Runs a request of a service to its end, in paused time: all waits end at once, and a request
/// that never ends fails.
fn run<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let years = Duration::from_secs(2 * 365 * 24 * 60 * 60);
        tokio::time::timeout(years, future).await.expect("an answer at some time")
    })
}
