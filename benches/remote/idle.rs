//! The memory of a gateway that has nothing to do.
//!
//! It is the example `gateway`, over four backends that are child processes, as
//! a client over stdio finds it. Without a `/proc` there is nothing to read.

#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::{env, fs, path::PathBuf, process::Command as Cargo, process::Stdio, time::Duration};

use rmcp::{ServiceExt, transport::TokioChildProcess};
use tokio::{process::Command, time::sleep};

use super::{
    WIDTH,
    backend::{arguments, this_program},
    era::Era,
    measure::Threads,
};

/// How many tools the gateway has in all.
const TOOLS: [usize; 3] = [0, 1_000, 10_000];
/// How long it is left alone before it is looked at.
const IDLE: Duration = Duration::from_secs(2);
/// How often everything is listed again, to see what that leaves behind.
const LISTS: usize = 100;

/// What a process takes, in KiB.
struct Memory {
    resident: u64,
    /// Pages that are shared with others count in part.
    proportional: u64,
    /// What it has allocated and touched.
    anonymous: u64,
    peak: u64,
}

/// Prints a table of what gateways of several sizes take.
pub(crate) fn run() {
    let gateway = gateway();
    println!();
    println!("| idle gateway | resident | proportional | anonymous | peak |");
    println!("|---|---:|---:|---:|---:|");
    let runtime = Threads::Current.runtime();
    for tools in TOOLS {
        runtime.block_on(look(&gateway, tools));
    }
}

async fn look(gateway: &PathBuf, tools: usize) {
    let backend = arguments(tools / WIDTH, Era::Newer);
    let file = env::temp_dir().join(format!("mcp-composite-idle-{}.toml", std::process::id()));
    let sections = (0..WIDTH).map(|index| {
        let program = this_program();
        format!("[[backends]]\nname = \"b{index}\"\ncommand = {program:?}\nargs = {backend:?}\n\n")
    });
    fs::write(&file, sections.collect::<String>()).expect("a file can be written");

    let mut command = Command::new(gateway);
    command.arg(&file).env("RUST_LOG", "off").stderr(Stdio::null());
    let process = TokioChildProcess::new(command).expect("the gateway can be started");
    let id = process.id().expect("it runs");
    let client = ().serve(process).await.expect("the gateway answers");
    for (lists, when) in [(0, "connected"), (1, "listed once"), (LISTS, "listed again and again")] {
        for _ in 0..lists {
            let listed = client.list_all_tools().await.expect("the gateway lists");
            assert_eq!(listed.len(), tools);
        }
        sleep(IDLE).await;
        let Some(Memory { resident, proportional, anonymous, peak }) = Memory::of(id) else {
            println!("| there is no `/proc` here | | | | |");
            break;
        };
        println!("| {tools} tools, {when} | {resident} | {proportional} | {anonymous} | {peak} |");
    }
    let _ = client.cancel().await;
    let _ = fs::remove_file(file);
}

/// The example, built by cargo as this bench is: optimised.
fn gateway() -> PathBuf {
    let built = Cargo::new(env!("CARGO"))
        .args(["build", "--release", "--all-features", "--example", "gateway"])
        .status()
        .expect("cargo can be started");
    assert!(built.success(), "the gateway can be built");
    let this_program = this_program();
    let target = this_program.ancestors().nth(2).expect("a bench is in target/release/deps");
    target.join("examples").join("gateway")
}

// === impl Memory ===

impl Memory {
    fn of(process: u32) -> Option<Self> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).ok();
        let (status, rollup) = (read("status")?, read("smaps_rollup")?);
        Some(Self {
            resident: field(&status, "VmRSS:")?,
            proportional: field(&rollup, "Pss:")?,
            anonymous: field(&status, "RssAnon:")?,
            peak: field(&status, "VmHWM:")?,
        })
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
