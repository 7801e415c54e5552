//! Checks the table of guarantees against the existing tests.

use std::{fs, path::Path};

use crate::floors::files;

const PAGE: &str = include_str!("../../../src/guide/security.md");
const LIMITS: &str = include_str!("../../../src/guide/limits.md");

/// Collects the names of all tests below a folder.
fn tests_in(folder: &Path, names: &mut Vec<String>) {
    for path in files(folder, "rs") {
        let text = fs::read_to_string(&path).unwrap();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            let name = line.trim_start_matches("async ").strip_prefix("fn ");
            match name.and_then(|name| name.split_once('(')) {
                Some((name, _)) if is_test => names.push(name.to_owned()),
                _ => (),
            }
            // Other attributes and comments may stand between the two.
            is_test = line.starts_with("#[test]")
                || line.starts_with("#[tokio::test")
                || is_test && (line.starts_with("#[") || line.starts_with("//"));
        }
    }
}

/// Returns the section of the limits that lists the memory that clients and backends fill.
fn memory() -> &'static str {
    let (_, section) = LIMITS.split_once("\n## Memory that clients and backends fill\n").unwrap();
    section.split("\n## ").next().unwrap()
}

/// Returns the guarantees of a page, each with the names of its tests.
fn promises(page: &'static str) -> Vec<(&'static str, Vec<&'static str>)> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.contains("| shown by"));
    let cells = rows.filter_map(|row| row.trim_matches(['|', ' ']).rsplit_once(" | "));
    cells.map(|(promise, tests)| (promise, tests.split('`').skip(1).step_by(2).collect())).collect()
}

#[test]
fn every_documented_guarantee_names_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = Vec::new();
    for folder in ["src", "tests/it", "tests/redis", "tests/foreign"] {
        tests_in(&root.join(folder), &mut tests);
    }
    let [mut promises, memory] = [PAGE, memory()].map(promises);
    assert!(promises.len() > 30 && memory.len() > 20, "{} and {}", promises.len(), memory.len());
    promises.extend(memory);
    for (promise, shown_by) in promises {
        assert!(!shown_by.is_empty(), "no test shows that {promise}");
        for test in shown_by {
            let name = test.rsplit("::").next().unwrap();
            assert!(
                tests.iter().any(|test| test == name),
                "there is no test `{test}`, which shows that {promise}"
            );
        }
    }
}
