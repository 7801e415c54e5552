//! Counts the instructions of fan-outs with callgrind, and compares them with
//! `instructions.json`.
//!
//! Unlike times, they hardly vary on a busy machine. They do vary with the compiler and the C
//! library, so the ratio to mcp-proxy's count of the same run is compared.
//!
//! ```sh
//! cargo bench -- instructions            # fails if a case takes 3 % more
//! cargo bench -- instructions update     # writes `instructions.json`
//! ```

#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use serde_json::{Map, Value};

/// The widths of the fan-outs.
const WIDTHS: [usize; 4] = [1, 4, 8, 64];
/// The case that others are compared with.
const PEER: &str = "mcp_proxy";
const CASES: [&str; 2] = ["ours_without_report", "ours"];
/// The allowed increase over `instructions.json`.
const TOLERANCE: f64 = 0.03;
/// The number of processes of which [`median`] takes the middle one. The count of a case varies by
/// up to 2 % between processes, with the random seeds of its hash maps.
const PROCESSES: usize = 5;
/// The number of calls that [`measure`](super::measure) makes for a profiler.
const CALLS: u64 = 32;

/// Counts all cases; fails if one takes more than its baseline allows.
pub(crate) fn run() -> ExitCode {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json");
    let is_update = env::args().any(|argument| argument == "update");
    let baseline = if is_update { Map::new() } else { read(&file) };
    let mut counts = Map::new();
    let mut is_within = true;
    println!("| case | instructions | ratio to `{PEER}` | baseline | change |");
    println!("|---|---:|---:|---:|---:|");
    for width in WIDTHS {
        let name = |case: &str| format!("fan_out/{width}/{case}");
        let peer = median(&name(PEER));
        counts.insert(name(PEER), peer.into());
        println!("| `{}` | {peer} | | | |", name(PEER));
        for case in CASES {
            let instructions = median(&name(case));
            counts.insert(name(case), instructions.into());
            let ratio = ratio(instructions, peer);
            if is_update {
                println!("| `{}` | {instructions} | {ratio:.3} | | |", name(case));
                continue;
            }
            let known = |case| baseline.get(&name(case)).and_then(Value::as_u64);
            let (Some(known_instructions), Some(known_peer)) = (known(case), known(PEER)) else {
                println!("| `{}` | {instructions} | {ratio:.3} | missing | |", name(case));
                is_within = false;
                continue;
            };
            let expected = self::ratio(known_instructions, known_peer);
            let change = ratio / expected - 1.0;
            is_within &= change <= TOLERANCE;
            let percent = 100.0 * change;
            println!(
                "| `{}` | {instructions} | {ratio:.3} | {expected:.3} | {percent:+.1} % |",
                name(case),
            );
        }
    }
    if is_update {
        let text = serde_json::to_string_pretty(&counts).expect("numbers can be written");
        fs::write(&file, text + "\n").expect("the baseline can be written");
    }
    if is_within {
        return ExitCode::SUCCESS;
    }
    println!(
        "\nA fan-out takes more than {:.0} % more instructions than in `{}`. If that is meant, \
         run `cargo bench -- instructions update` and commit the file.",
        100.0 * TOLERANCE,
        file.display(),
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

/// Returns the median of the [instructions](count) of a case in several processes.
fn median(case: &str) -> u64 {
    let mut counts = [0; PROCESSES];
    counts.fill_with(|| count(case));
    counts.sort_unstable();
    counts[PROCESSES / 2]
}

/// Returns the instructions of one call of a case, counted in a separate process.
fn count(case: &str) -> u64 {
    let bench = env::current_exe().expect("a bench knows its own path");
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(&directory).expect("a directory for profiles can be made");
    let profile = directory.join(format!("callgrind.{}", case.replace('/', ".")));
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
    total / CALLS
}
