//! A server over HTTP that is a process of the program `misbehaving`.

use std::{path::PathBuf, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, Command},
};
use tower::BoxError;

/// The process. It ends with its standard input, and so when this program ends.
pub(crate) struct Process {
    pub(crate) process: Child,
    _input: ChildStdin,
    pub(crate) url: String,
}

// === impl Process ===

impl Process {
    /// Starts a process of this behavior at this port, or at any free port if it is `0`.
    pub(crate) async fn start(behavior: &str, port: &str) -> Result<Self, BoxError> {
        let mut command = Command::new(misbehaving());
        command.args([behavior, "--http", port]).kill_on_drop(true);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let _input = process.stdin.take().ok_or("it has no input")?;
        let output = process.stdout.take().ok_or("it has no output")?;
        let url = BufReader::new(output).lines().next_line().await?.ok_or("it does not listen")?;
        Ok(Self { process, _input, url })
    }
}

/// Returns the path of the backends' program, in the directory of this one.
pub(crate) fn misbehaving() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("misbehaving")
}
