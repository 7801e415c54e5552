//! The program with `--durable`, which is killed in the middle of a run.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use super::{
    ports::free_port,
    programs::{PROGRAM, example},
    replica::HANG,
    server::Server,
};

const FILE: &str = r#"
[[backends]]
name = "shop"
command = "${SHOP}"
args = ["catalogue"]

[[composite_tools]]
name = "approval"
description = "Asks"
strategy = "workflow"
task = "always"
steps = [
    { id = "before", type = "value", value = "before" },
    { id = "sure", type = "elicitation", message = "Sure?", schema = {}, depends_on = ["before"] },
]
"#;

/// The program, which ends with the test.
struct Program {
    process: Child,
    http: u16,
}

// === impl Program ===

impl Program {
    fn start(server: &Server, folder: &TempDir, http: u16, listen: u16) -> Self {
        let file = folder.path().join("tools.toml");
        std::fs::write(&file, FILE).unwrap();
        let process = Command::new(PROGRAM)
            .arg("serve")
            .arg(&file)
            .args(["--http", &format!("127.0.0.1:{http}")])
            .args(["--durable", &format!("restate={}", server.ingress())])
            .args(["--durable-listen", &format!("127.0.0.1:{listen}")])
            .args(["--durable-admin", &server.admin()])
            .env("SHOP", example("shop"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", http)).is_err() {
            assert!(start.elapsed() < HANG, "the program does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Self { process, http }
    }

    /// Sends a request of protocol version 2026-07-28, and returns its response.
    fn ask(&self, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {
                "elicitation": { "form": {} },
                "extensions": { "io.modelcontextprotocol/tasks": {} },
            },
        });
        let name = params["name"].as_str().or(params["taskId"].as_str()).unwrap().to_owned();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.http)).unwrap();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
             mcp-method: {method}\r\nmcp-name: {name}\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        let json = body.find('{').map(|start| &body[start..=body.rfind('}').unwrap()]);
        serde_json::from_str(json.unwrap_or_else(|| panic!("{response}"))).unwrap()
    }

    /// Starts a task when the program is registered with the server, and returns its ID.
    fn start_task(&self, tool: &str) -> String {
        let start = Instant::now();
        loop {
            let created = self.ask("tools/call", json!({ "name": tool, "arguments": {} }));
            if let Some(id) = created["result"]["taskId"].as_str() {
                return id.to_owned();
            }
            assert!(start.elapsed() < HANG, "{created}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a task has this status, and returns its response.
    fn wait(&self, id: &str, status: &str) -> Value {
        let start = Instant::now();
        loop {
            let response = self.ask("tasks/get", json!({ "taskId": id }));
            if response["result"]["status"] == status {
                return response;
            }
            assert!(start.elapsed() < HANG, "{response}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have been killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn program_continues_a_task_after_it_was_killed() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let [http, listen] = [(); 2].map(|()| free_port());
    let program = Program::start(&server, &folder, http, listen);
    let id = program.start_task("approval");
    program.wait(&id, "input_required");
    program.kill();

    let program = Program::start(&server, &folder, http, listen);
    program.wait(&id, "input_required");
    let answers = json!({ "1:sure": { "action": "accept", "content": {} } });
    program.ask("tasks/update", json!({ "taskId": id, "inputResponses": answers }));
    let ended = program.wait(&id, "completed");
    let text = ended["result"]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("accept"), "{ended}");
}
