//! Calls, clients and gateways that end before their work is done.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    backends::{child, fan_out, logging, misbehaving},
    clients::{Client, by_command},
    gateway::{BOTH, Era, Gateway, Wire},
    processes::{descendants, signal, until_gone},
    support::{Folder, example, received, until},
};

/// A composite of two tools that never answer, and the logs of their servers.
struct Stuck {
    _folder: Folder,
    file: PathBuf,
    logs: [PathBuf; 2],
}

// === impl Stuck ===

impl Stuck {
    fn new() -> Self {
        let folder = Folder::new();
        let logs = [folder.path("old.log"), folder.path("new.log")];
        let file = folder.config(&[
            logging("old", "good", &logs[0]),
            logging("new", "modern", &logs[1]),
            fan_out("stuck", &["old/hang", "new/hang"]),
        ]);
        Self { _folder: folder, file, logs }
    }

    /// Waits until both servers work on a call.
    #[track_caller]
    fn until_it_hangs(&self) {
        until("calls of both", || self.logs.iter().all(|log| hanging(&received(log)).is_some()));
    }

    /// Waits until both servers received a cancellation.
    #[track_caller]
    fn until_it_is_cancelled(&self) {
        until("cancellation of both", || {
            self.logs.iter().all(|log| {
                let received = received(log);
                let call = hanging(&received).expect("it was called");
                received.iter().any(|message| {
                    message["method"] == "notifications/cancelled"
                        && message["params"]["requestId"] == *call
                })
            })
        });
    }

    /// Clears the logs of received messages.
    fn forget(&self) {
        for log in &self.logs {
            std::fs::write(log, "").unwrap();
        }
    }
}

/// Returns the id of the call that hangs.
fn hanging(received: &[Value]) -> Option<&Value> {
    let call = received.iter().find(|message| message["params"]["name"] == "hang")?;
    Some(&call["id"])
}

/// Calls it, and cancels the call if requested; stays connected either way.
fn script(connect: &Value, cancel: bool) -> Value {
    let step = if cancel {
        json!({ "cancel_call": { "name": "stuck", "after_ms": 700 } })
    } else {
        json!({ "call_tool": { "name": "stuck" } })
    };
    let steps = json!([{ "list_tools": {} }, step, { "sleep": { "ms": 60_000 } }]);
    json!({ "connect": connect, "steps": steps })
}

#[test]
fn cancellation_over_stdio_stops_every_target() {
    for client in Client::ALL {
        let stuck = Stuck::new();
        let running = client.start(script(&by_command(&stuck.file), true));
        running.step("list_tools");
        let cancelled = running.step("cancel_call");
        assert!(cancelled["error"].is_object(), "{cancelled}");
        stuck.until_it_is_cancelled();
    }
}

#[test]
fn cancellation_over_http_stops_every_target() {
    let stuck = Stuck::new();
    let gateway = Gateway::start(&stuck.file);
    for client in Client::ALL {
        stuck.forget();
        let running = client.start(script(&gateway.connect(), true));
        running.step("list_tools");
        let cancelled = running.step("cancel_call");
        assert!(cancelled["error"].is_object(), "{cancelled}");
        stuck.until_it_is_cancelled();
    }
}

#[test]
fn killed_client_leaves_no_processes() {
    for client in Client::ALL {
        let stuck = Stuck::new();
        let mut running = client.start(script(&by_command(&stuck.file), false));
        stuck.until_it_hangs();
        let started = descendants(running.process.number());
        // The gateway, and its two servers.
        assert!(started.len() >= 3, "{started:?}");
        running.process.kill();
        // Servers over stdio end with their input, even during a call.
        until_gone(&started);
    }
}

#[test]
fn killed_http_client_has_its_calls_cancelled() {
    let stuck = Stuck::new();
    let gateway = Gateway::start(&stuck.file);
    // One of before 2026-07-28 may come back for its answer.
    let mut running = Client::TypeScript2.start(script(&gateway.connect(), false));
    stuck.until_it_hangs();
    running.process.kill();
    stuck.until_it_is_cancelled();
}

#[test]
fn slow_server_fails_its_branch_and_is_cancelled() {
    let folder = Folder::new();
    let log = folder.path("slow.log");
    let slow = logging("slow", "good", &log);
    let file = folder.config(&[
        format!("{slow}timeout = \"500ms\""),
        misbehaving("quick", "good"),
        fan_out("both", &["slow/hang", "quick/pid"]),
    ]);
    for era in BOTH {
        let mut wire = Wire::start(&file, era);
        let both = wire.call("both", &json!({}));
        let branches = &both["structuredContent"]["branches"];
        assert_eq!(branches["quick_pid"]["status"], "completed");
        let message = &branches["slow_hang"]["error"]["message"];
        assert_eq!(message, "backend `slow` did not answer in time", "{both}");
        until("a cancellation", || {
            let received = received(&log);
            received.iter().any(|message| message["method"] == "notifications/cancelled")
        });
        std::fs::write(&log, "").unwrap();
    }
}

#[test]
fn terminated_gateway_leaves_no_processes() {
    for (how, era) in ["TERM", "INT", "the end of its input"].into_iter().zip([
        Era::Legacy,
        Era::Modern,
        Era::Modern,
    ]) {
        let stuck = Stuck::new();
        let mut wire = Wire::start(&stuck.file, era);
        wire.start_call("stuck", &json!({}));
        stuck.until_it_hangs();
        let gateway = wire.process.number();
        let started = descendants(gateway);
        assert_eq!(started.len(), 2, "{started:?}");
        let status = match how {
            "TERM" | "INT" => {
                signal(gateway, how);
                wire.process.wait()
            }
            _ => wire.hang_up(),
        };
        assert!(status.success(), "{how}: {status}");
        // The gateway waited for them.
        until_gone(&started);
    }
}

#[test]
fn terminated_http_gateway_leaves_no_processes() {
    let stuck = Stuck::new();
    for signalled in ["TERM", "INT"] {
        stuck.forget();
        let mut gateway = Gateway::start(&stuck.file);
        let clients = [Client::TypeScript1, Client::TypeScript2]
            .map(|client| client.start(script(&gateway.connect(), false)));
        stuck.until_it_hangs();
        let started = descendants(gateway.process.number());
        signal(gateway.process.number(), signalled);
        let status = gateway.process.wait();
        assert!(status.success(), "{signalled}: {status}");
        until_gone(&started);
        drop(clients);
    }
}

#[test]
fn server_that_ignores_shutdown_is_killed() {
    let folder = Folder::new();
    let stubborn = misbehaving("stubborn", "stubborn");
    // A shell that waits for the server it has started, like `npx`.
    let wrapped = format!("{} good; true", example("misbehaving"));
    let wrapped = child("wrapped", &["sh", "-c", &wrapped], "");
    let mut wire = Wire::start(&folder.config(&[stubborn, wrapped]), Era::Legacy);
    assert!(wire.tools().contains(&"wrapped_echo".to_owned()));
    let started = descendants(wire.process.number());
    assert_eq!(started.len(), 3, "{started:?}");
    assert!(wire.hang_up().success());
    until_gone(&started);
}
