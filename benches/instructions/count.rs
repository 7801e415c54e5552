//! Counts instructions with callgrind.
//!
//! Unlike times, they hardly vary on a busy machine. They do vary with the compiler and the C
//! library, so the ratio to the count of another case of the same run is compared with a baseline.

#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::{
    env, fs,
    path::Path,
    process::{Command, ExitCode},
    thread,
};

use serde_json::{Map, Value};

use crate::profile::PROFILED_CALLS;

/// The allowed increase over the baseline.
const TOLERANCE: f64 = 0.03;
/// The number of processes of which [`median`] takes the middle one. The count of a case varies by
/// up to 2 % between processes, with the random seeds of its hash maps.
const PROCESSES: usize = 5;

/// Counts pairs of cases, and compares the ratio of each pair with that in the file `baseline`.
///
/// Fails if a ratio is larger than the baseline allows. With `update` on the command line, writes
/// the file instead.
pub(crate) fn run(pairs: impl IntoIterator<Item = (String, String)>, baseline: &Path) -> ExitCode {
    let is_update = env::args().any(|argument| argument == "update");
    let known = if is_update { Map::new() } else { read(baseline) };
    let mut counts = Map::new();
    let mut is_within = true;
    println!("| case | instructions | compared with | instructions | ratio | baseline | change |");
    println!("|---|---:|---|---:|---:|---:|---:|");
    for (case, other) in pairs {
        let mut instructions = |case: &String| {
            let counted = counts.get(case).and_then(Value::as_u64);
            counted.unwrap_or_else(|| {
                let counted = median(case);
                counts.insert(case.clone(), counted.into());
                counted
            })
        };
        let (taken, taken_by_other) = (instructions(&case), instructions(&other));
        let ratio = ratio(taken, taken_by_other);
        let count = |case| known.get(case).and_then(Value::as_u64);
        let (expected, change) = match (count(&*case), count(&*other)) {
            (Some(known), Some(known_of_other)) => {
                let expected = self::ratio(known, known_of_other);
                let change = ratio / expected - 1.0;
                is_within &= change <= TOLERANCE;
                (format!("{expected:.3}"), format!("{:+.1} %", 100.0 * change))
            }
            _ => {
                is_within &= is_update;
                ("missing".to_owned(), String::new())
            }
        };
        println!(
            "| `{case}` | {taken} | `{other}` | {taken_by_other} | {ratio:.3} | {expected} | {change} |"
        );
    }
    if is_update {
        let text = serde_json::to_string_pretty(&counts).expect("numbers can be written");
        fs::write(baseline, text + "\n").expect("the baseline can be written");
    }
    if is_within {
        return ExitCode::SUCCESS;
    }
    println!(
        "\nA case takes more than {:.0} % more instructions than in `{}`. If that is meant, run this \
         bench with `-- update`, and commit the file.",
        100.0 * TOLERANCE,
        baseline.display(),
    );
    ExitCode::FAILURE
}

fn read(file: &Path) -> Map<String, Value> {
    let text = fs::read(file).expect("the baseline can be read");
    serde_json::from_slice(&text).expect("the baseline is an object of counts")
}

#[expect(clippy::cast_precision_loss, reason = "counts are far smaller than 2^52")]
fn ratio(instructions: u64, peer: u64) -> f64 {
    instructions as f64 / peer as f64
}

/// Returns the median of the [instructions](count) of a case in several processes, which run at the
/// same time.
fn median(case: &str) -> u64 {
    let mut counts = thread::scope(|scope| {
        let processes = [(); PROCESSES].map(|()| scope.spawn(|| count(case)));
        processes.map(|process| process.join().expect("the case can be counted"))
    });
    counts.sort_unstable();
    counts[PROCESSES / 2]
}

/// Returns the instructions of one call of a case, counted in a separate process.
fn count(case: &str) -> u64 {
    let bench = env::current_exe().expect("a bench knows its own path");
    let directory = tempfile::tempdir().expect("a directory for the profile can be made");
    let profile = directory.path().join("callgrind");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*::profiled"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(bench)
        .args(["profile", case])
        .output()
        .expect("valgrind is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{case}` fails under valgrind:\n{errors}");
    let text = fs::read_to_string(&profile).expect("callgrind writes its profile");
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total: u64 = totals.and_then(|total| total.parse().ok()).expect("a profile has a total");
    assert!(total > 0, "callgrind has collected nothing for `{case}`:\n{errors}");
    total / PROFILED_CALLS as u64
}
