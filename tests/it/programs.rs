//! Programs that tests start.

use std::{path::PathBuf, process::Command};
#[cfg(feature = "cli")]
use std::{
    process::{Output, Stdio},
    time::Duration,
};

/// Returns the path of an example, which `cargo test` has built.
pub(crate) fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    if !path.exists() {
        // Cargo builds no examples if only this test is requested.
        let built = Command::new(env!("CARGO"))
            .args(["build", "--all-features", "--example", name])
            .status()
            .unwrap();
        assert!(built.success());
    }
    path
}

/// The program of this crate, which cargo builds with this test.
#[cfg(feature = "cli")]
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_mcp-composite");

/// Runs a command of the program without standard input. `${SHOP}` is the example of that name.
#[cfg(feature = "cli")]
pub(crate) async fn run(arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(PROGRAM);
    command.args(arguments).env("SHOP", example("shop")).stdin(Stdio::null()).kill_on_drop(true);
    // Without the helpers of these tests, since other test programs include this file as well.
    tokio::time::timeout(Duration::from_secs(60), command.output()).await.unwrap().unwrap()
}

/// Returns whether there is a process with this id.
#[cfg(feature = "stdio")]
pub(crate) fn is_running(process: u64) -> bool {
    // A process that was not waited for has ended as well.
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").map(|(_, rest)| rest.starts_with(['Z', 'X']));
    state == Some(false)
}

/// Sends a process a signal, such as `TERM`, and returns whether the process exists.
#[cfg(feature = "stdio")]
pub(crate) fn signal(process: u64, signal: &str) -> bool {
    // Every shell can, but not every machine has a program for it.
    let command = format!("kill -s {signal} {process} 2>&1");
    Command::new("sh").args(["-c", &command]).output().unwrap().status.success()
}
