//! Counts the instructions of fan-outs with callgrind, and compares them with `baseline.json`.
//!
//! ```sh
//! cargo bench --profile instructions -p instructions             # fails if a case takes 3 % more
//! cargo bench --profile instructions -p instructions -- update   # writes `baseline.json`
//! ```
//!
//! The ratio to a fan-out by hand that returns the same answer is compared.

#[path = "../fan_out/answer.rs"]
mod answer;
#[path = "../fan_out/by_hand.rs"]
mod by_hand;
mod count;
#[path = "../fan_out/leaf.rs"]
mod leaf;
#[path = "../fan_out/profile.rs"]
mod profile;

use std::{env, path::Path, process::ExitCode};

use self::{
    by_hand::by_hand,
    leaf::{FAN_OUT, Leaf, SHORT_TEXT, call, composite, small_arguments},
    profile::profile,
};

/// The numbers of targets.
const WIDTHS: [usize; 4] = [1, 4, 8, 64];

fn main() -> ExitCode {
    if let Some(case) = env::args().skip_while(|argument| argument != "profile").nth(1) {
        profile_case(&case);
        return ExitCode::SUCCESS;
    }
    let cases = WIDTHS.into_iter().flat_map(|width| {
        ["", "_without_report"].map(|suffix| {
            let name = |who| format!("fan_out/{width}/{who}{suffix}");
            (name("ours"), name("by_hand"))
        })
    });
    count::run(cases, &Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline.json"))
}

/// Calls the case `fan_out/WIDTH/NAME` for a profiler.
fn profile_case(case: &str) {
    let mut parts = case.split('/').skip(1);
    let width = parts.next().and_then(|width| width.parse().ok()).expect("the width is a number");
    let (leaf, request) = (Leaf::new(width, SHORT_TEXT), call(FAN_OUT, small_arguments()));
    match parts.next() {
        Some("ours") => profile(&composite(&leaf, true), &request),
        Some("ours_without_report") => profile(&composite(&leaf, false), &request),
        Some("by_hand") => profile(&by_hand(&leaf, true), &request),
        Some("by_hand_without_report") => profile(&by_hand(&leaf, false), &request),
        _ => panic!("there is no case `{case}`"),
    }
}
