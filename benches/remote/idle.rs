//! The memory of an idle gateway.
//!
//! It is the example `gateway`, over four backends that are child processes, used by a client over
//! stdio. Requires `/proc`.

#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::{env, fs, path::PathBuf, process::Command as Cargo, process::Stdio, time::Duration};

use rmcp::{ServiceExt, transport::TokioChildProcess};
use tokio::{process::Command, time::sleep};

use super::{
    WIDTH,
    backend::{arguments, this_program},
    measure::Threads,
    protocol_version::Era,
};

/// The number of tools of the gateway.
const TOOLS: [usize; 3] = [0, 1_000, 10_000];
/// The idle time before each measurement.
const IDLE: Duration = Duration::from_secs(2);
/// The number of repeated lists, to find leaks.
const LISTS: usize = 100;

/// The memory of a process, in KiB.
struct Memory {
    resident: u64,
    /// Resident memory, with shared pages counted in part.
    proportional: u64,
    /// The memory it has allocated and touched.
    anonymous: u64,
    peak: u64,
}

/// Prints a table of the memory of gateways of several sizes.
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
    command.arg("serve").arg(&file).env("RUST_LOG", "off").stderr(Stdio::null());
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

/// The path of the program, built by cargo like this bench: optimized.
fn gateway() -> PathBuf {
    let built = Cargo::new(env!("CARGO"))
        .args(["build", "--release", "--all-features", "--bin", "mcp-composite"])
        .status()
        .expect("cargo can be started");
    assert!(built.success(), "the gateway can be built");
    let this_program = this_program();
    let target = this_program.ancestors().nth(2).expect("a bench is in target/release/deps");
    target.join("mcp-composite")
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
