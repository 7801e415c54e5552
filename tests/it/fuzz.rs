//! The checks of the fuzz targets, on random data and on all stored files: a corpus, and findings
//! of fuzzers.

mod checks;

use std::{
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestRunner};

use self::checks::{Check, TARGETS};

/// The maximum length of random data, about that of a fuzzer.
const MAX_BYTES: usize = 1_500;

/// The targets whose input is text.
const OF_TEXTS: [&str; 3] = ["config", "expr", "normalize"];

/// The folder of the targets. A published package does not contain them.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz")
}

/// Returns the files in a folder of a target, with their names.
fn kept(kind: &str, target: &str) -> Vec<(String, Vec<u8>)> {
    let Ok(folder) = fs::read_dir(folder().join(kind).join(target)) else { return Vec::new() };
    let paths = folder.map(|entry| entry.unwrap().path());
    paths.map(|path| (path.display().to_string(), fs::read(&path).unwrap())).collect()
}

fn holds(check: Check, data: &[u8], whose: &str) {
    catch_unwind(|| check(data)).unwrap_or_else(|_| panic!("{whose} shows it"));
}

/// Runs a check on samples of a strategy.
fn holds_for(check: Check, made: impl Strategy<Value = Vec<u8>>) {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) };
    let checked = TestRunner::new(config).run(&made, |data| {
        check(&data);
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
}

fn check_of(target: &str) -> Check {
    let (_, check) = TARGETS.iter().find(|(name, _)| *name == target).unwrap();
    *check
}

/// Returns the words of a libFuzzer dictionary.
fn words(target: &str) -> Vec<String> {
    let path = folder().join("dictionaries").join(format!("{target}.dict"));
    let Ok(text) = fs::read_to_string(path) else { return vec![" ".to_owned()] };
    let lines = text.lines().filter(|line| line.starts_with('"'));
    let word = |line: &str| {
        let escaped = &line[1..line.len() - 1];
        escaped.replace("\\x0a", "\n").replace("\\\"", "\"").replace("\\\\", "\\")
    };
    lines.map(word).collect()
}

/// Texts of dictionary words and separators.
fn texts(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![3 => select(words(target)), 1 => "[ -~\n]{0,4}", 1 => "\\PC?"];
    vec(part, 0..40).prop_map(|parts| parts.concat().into_bytes())
}

/// Stored files with a replaced part.
fn changed(target: &str, with: Vec<String>) -> impl Strategy<Value = Vec<u8>> {
    let mut files: Vec<_> = kept("corpus", target).into_iter().map(|(_, data)| data).collect();
    files.push(Vec::new());
    let other = prop_oneof![select(with).prop_map(String::into_bytes), vec(any::<u8>(), 0..4)];
    (select(files), any::<prop::sample::Index>(), 0..20_usize, other).prop_map(
        |(mut file, at, length, other)| {
            let start = at.index(file.len() + 1);
            let end = file.len().min(start + length);
            drop(file.splice(start..end, other));
            file
        },
    )
}

#[test]
fn checks_pass_on_corpus_and_regressions() {
    for (target, check) in TARGETS {
        let corpus = kept("corpus", target);
        assert!(!corpus.is_empty() || !folder().exists(), "{target} has no corpus");
        for (name, data) in corpus.into_iter().chain(kept("regressions", target)) {
            holds(check, &data, &name);
        }
    }
}

#[test]
fn fuzz_files_belong_to_existing_targets() {
    for kind in ["corpus", "regressions", "targets", "dictionaries"] {
        let Ok(folder) = fs::read_dir(folder().join(kind)) else { continue };
        for entry in folder {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(TARGETS.iter().any(|(target, _)| *target == name), "{}", path.display());
        }
    }
}

#[test]
fn config_check_passes_on_random_words() {
    holds_for(check_of("config"), texts("config"));
}

#[test]
fn expression_check_passes_on_random_words() {
    holds_for(check_of("expr"), texts("expr"));
}

#[test]
fn normalize_check_passes_on_random_words() {
    holds_for(check_of("normalize"), texts("normalize"));
}

#[test]
fn state_check_passes_on_random_bytes() {
    holds_for(check_of("state"), vec(any::<u8>(), 0..MAX_BYTES));
}

#[test]
fn names_check_passes_on_random_bytes() {
    holds_for(check_of("names"), vec(any::<u8>(), 0..MAX_BYTES));
}

#[test]
fn uris_check_passes_on_random_bytes() {
    holds_for(check_of("uris"), vec(any::<u8>(), 0..64));
}

#[test]
fn replies_check_passes_on_random_bytes() {
    holds_for(check_of("replies"), vec(any::<u8>(), 0..MAX_BYTES));
}

#[test]
fn requests_check_passes_on_random_bytes() {
    holds_for(check_of("requests"), vec(any::<u8>(), 0..MAX_BYTES));
}

#[test]
fn checks_pass_on_mutated_inputs() {
    for (target, check) in TARGETS {
        let with = if OF_TEXTS.contains(&target) { words(target) } else { vec![String::new()] };
        holds_for(check, changed(target, with));
    }
}
