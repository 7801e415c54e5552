//! One file of `tests/workflows` for each case: the scripted tools, the composites and a call, with
//! the expected calls, result and trace. The files `cookbook_*` are the workflows of the cookbook.
//!
//! A case has the keys of [`Case`](case::Case). Omitted expectations are not checked, except for
//! the
//! calls, which must be complete and in order.

mod case;
mod cookbook;

use std::{fs, path::Path};

use self::case::InMemory;
use crate::config::is_supported;

#[test]
fn workflow_cases_meet_their_expectations() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workflows");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let only = std::env::var("CASE").unwrap_or_default();
    let mut failures = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        if !name.contains(&only) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
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
