//! The gateway, and messages sent to it directly.

use std::{
    io::Write,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::mpsc,
};

use serde_json::{Value, json};

use crate::{
    processes::{Process, json_lines, next},
    programs::PROGRAM,
};

/// The protocol version of a connection to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
}

pub(crate) const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];

/// A gateway over HTTP.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) url: String,
}

/// A gateway over stdio, with messages written directly, so that no SDK hides a part of its
/// answers.
pub(crate) struct Wire {
    pub(crate) process: Process,
    received: mpsc::Receiver<Value>,
    era: Era,
    requests: u64,
}

/// Returns the command that serves a file.
pub(crate) fn gateway(file: &Path) -> Command {
    program("serve", file)
}

/// Returns a command of the program for a file.
pub(crate) fn program(name: &str, file: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    // Independent of the environment of the test machine.
    command.arg(name).arg(file).env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

// === impl Gateway ===

impl Gateway {
    pub(crate) fn start(file: &Path) -> Self {
        Self::run(&mut gateway(file))
    }

    pub(crate) fn run(command: &mut Command) -> Self {
        // Tests end it during calls that never end.
        let process = Process::start(command.args(["--http", "127.0.0.1:0", "--drain", "1s"]));
        let url = process.errors.after("serving ");
        Self { process, url }
    }

    pub(crate) fn connect(&self) -> Value {
        json!({ "url": self.url })
    }
}

// === impl Wire ===

impl Wire {
    /// Starts a gateway and performs the handshake.
    pub(crate) fn start(file: &Path, era: Era) -> Self {
        Self::run(&mut gateway(file), era).0
    }

    /// The same, and returns the server information of the gateway.
    pub(crate) fn run(command: &mut Command, era: Era) -> (Self, Value) {
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let received = json_lines(process.child.stdout.take().unwrap());
        let mut wire = Self { process, received, era, requests: 0 };
        let hello = match era {
            Era::Legacy => {
                let client = json!({ "name": "by hand", "version": "0" });
                let params = json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": client,
                });
                let hello = wire.request("initialize", params);
                let method = "notifications/initialized";
                wire.write(&json!({ "jsonrpc": "2.0", "method": method }));
                hello
            }
            Era::Modern => wire.request("server/discover", json!({})),
        };
        (wire, hello)
    }

    /// Sends a request, and returns its id.
    pub(crate) fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.requests += 1;
        if self.era == Era::Modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            params["_meta"]["io.modelcontextprotocol/clientInfo"] =
                json!({ "name": "by hand", "version": "0" });
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let id = self.requests;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(&request);
        id
    }

    fn write(&mut self, message: &Value) {
        let stdin = self.process.child.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    /// Returns the answer to a request, unchanged.
    #[track_caller]
    pub(crate) fn answer(&self, id: u64) -> Value {
        loop {
            let message = next(&self.received);
            if message["id"] == id {
                return message;
            }
            assert!(message.get("id").is_none(), "nobody asked: {message}");
        }
    }

    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub(crate) fn start_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.send("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Returns the result of a call.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.start_call(tool, arguments);
        let mut answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].take()
    }

    /// Returns the names of all tools, in their order.
    #[track_caller]
    pub(crate) fn tools(&mut self) -> Vec<String> {
        let answer = self.request("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Closes its input.
    pub(crate) fn hang_up(&mut self) -> ExitStatus {
        drop(self.process.child.stdin.take());
        self.process.wait()
    }
}
