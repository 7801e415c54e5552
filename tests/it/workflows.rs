//! One file of `tests/workflows` for each case: the scripted tools, the composites and a call, with
//! the expected calls, result and trace. The files `cookbook_*` are the workflows of the cookbook.
//!
//! A case has the keys of [`Case`](case::Case). Omitted expectations are not checked, except for
//! the
//! calls, which must be complete and in order.

mod case;
mod cookbook;

use self::case::InMemory;
use crate::config::is_supported;

#[test]
fn workflow_cases_meet_their_expectations() {
    let mut failures = Vec::new();
    for (name, text) in case::all() {
        if !is_supported(&text) {
            continue;
        }
        // A separate runtime, so that its time begins at zero.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        if let Err(differences) = runtime.block_on(case::run(&text, &InMemory)) {
            failures.push(format!("{name}: {}", differences.join("\n    ")));
        }
    }
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
}
