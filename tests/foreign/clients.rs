//! Third-party clients and their scripts.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
};

use serde_json::{Value, json};

use crate::{
    gateway::Era,
    processes::{Process, json_lines, next},
    programs::PROGRAM,
    support::{installed, sources},
};

/// A client; each uses another SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    TypeScript1,
    TypeScript2,
    Python,
}

/// A client that performs its script.
pub(crate) struct Running {
    pub(crate) process: Process,
    /// The result of its `connect` step.
    connected: Value,
    lines: mpsc::Receiver<Value>,
}

/// Returns a connection by which a client starts its own gateway.
pub(crate) fn by_command(file: &Path) -> Value {
    json!({ "command": [PROGRAM, "serve", file] })
}

// === impl Client ===

impl Client {
    pub(crate) const ALL: [Self; 3] = [Self::TypeScript1, Self::TypeScript2, Self::Python];

    /// Returns the version that it uses by default.
    pub(crate) const fn era(self) -> Era {
        match self {
            Self::TypeScript1 => Era::Legacy,
            Self::TypeScript2 | Self::Python => Era::Modern,
        }
    }

    /// Starts a script: `connect`, `steps`, and perhaps `elicit`.
    pub(crate) fn start(self, mut script: Value) -> Running {
        let (program, client) = match self {
            Self::TypeScript1 => ("node".into(), "client.mjs"),
            Self::TypeScript2 => ("node".into(), "client-v2.mjs"),
            Self::Python => (installed().join("python/bin/python"), "client.py"),
        };
        installed();
        let era = match script["connect"]["mode"] == "legacy" {
            true => Era::Legacy,
            false => self.era(),
        };
        if self == Self::TypeScript2 && era == Era::Modern {
            // Only with this mode does it not fall back to the older protocol.
            script["connect"]["mode"] = "2026-07-28".into();
        }
        let mut command = Command::new(program);
        command.arg(sources().join(client)).arg(script.to_string());
        let mut process = Process::start(command.stdin(Stdio::null()).stdout(Stdio::piped()));
        let lines = json_lines(process.child.stdout.take().unwrap());
        let connected = next(&lines);
        let expected = match era {
            Era::Legacy => "2025-11-25",
            Era::Modern => "2026-07-28",
        };
        assert_eq!(connected["result"]["protocolVersion"], expected, "{connected}");
        Running { process, connected, lines }
    }

    /// Performs a script, and returns the lines of its steps, the first of which is `connect`.
    pub(crate) fn perform(self, script: Value) -> Vec<Value> {
        let mut running = self.start(script);
        let mut lines = vec![running.connected.take()];
        loop {
            let line = next(&running.lines);
            if line["step"] == "close" {
                return lines;
            }
            lines.push(line);
        }
    }
}

// === impl Running ===

impl Running {
    /// Returns the line of the next step, which must be this one.
    #[track_caller]
    pub(crate) fn step(&self, name: &str) -> Value {
        let line = next(&self.lines);
        assert_eq!(line["step"], name, "{line}");
        line
    }
}
