//! The tool `fault`: each call requests the fault that it gets.
//!
//! The behaviors of the program are those of a permanently broken server. This tool fails per call,
//! so that a single process can be good to one caller while it misbehaves for another.

use std::{
    env,
    io::{self, Write},
    process, thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{Request, tools::Tools};

/// The prefix of the ids of unexpected questions, before the id of the call.
const QUESTION: &str = "fault";

/// The transport of messages to the client.
pub(crate) trait Wire {
    /// Sends a message before the answer.
    fn tell(&mut self, message: &Value);

    /// Sends the answer, after which only another answer follows.
    fn answer(&mut self, message: &Value);

    /// Sends an invalid message in place of an answer.
    fn garbage(&mut self);

    /// Sends the first half of the answer and closes the connection.
    fn break_off(&mut self, message: &Value);

    /// Sends nothing.
    fn silence(&mut self);

    /// Rejects the request at the transport.
    fn refuse(&mut self);
}

/// The fault, by the name in the argument `how`. Defaults to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// No fault.
    Well,
    /// It answers after `ms` milliseconds, unless it is cancelled.
    Slow,
    /// It answers after `ms` milliseconds, also when it was cancelled.
    Late,
    /// It never answers.
    Silent,
    /// The tool fails.
    Failure,
    /// It answers with a JSON-RPC error.
    Error,
    /// It answers with a result of the wrong shape.
    Malformed,
    /// It answers with invalid JSON.
    Garbage,
    /// It answers with an id that was not requested.
    WrongId,
    /// It answers twice, the second time with something else.
    Twice,
    /// It answers with a text of `bytes` bytes.
    Huge,
    /// It sends all kinds of requests to the client, and an unknown one, waits for no answer, and
    /// answers.
    Asks,
    /// It rejects the request: an HTTP error; over pipes, no answer.
    Refuses,
    /// It sends half of its answer and closes the connection; over pipes, the process stays and
    /// sends nothing more.
    BreaksOff,
    /// The process ends.
    Exit,
    /// The process is killed.
    Killed,
}

impl How {
    fn of(arguments: &Value) -> Option<Self> {
        Some(match arguments["how"].as_str().unwrap_or_default() {
            "" | "well" => Self::Well,
            "slow" => Self::Slow,
            "late" => Self::Late,
            "silent" => Self::Silent,
            "failure" => Self::Failure,
            "error" => Self::Error,
            "malformed" => Self::Malformed,
            "garbage" => Self::Garbage,
            "wrong-id" => Self::WrongId,
            "twice" => Self::Twice,
            "huge" => Self::Huge,
            "asks" => Self::Asks,
            "refuses" => Self::Refuses,
            "breaks-off" => Self::BreaksOff,
            "exit" => Self::Exit,
            "killed" => Self::Killed,
            _ => return None,
        })
    }
}

/// Answers a call of the tool with the requested fault.
pub(crate) fn answer(request: &Request, tools: &Tools, wire: &mut impl Wire) {
    let arguments = &request.params["arguments"];
    let id = &request.id;
    let well = || result(id, &json!({"content": [], "structuredContent": echo(arguments)}));
    let Some(how) = How::of(arguments) else {
        return wire.answer(&error(id, -32602, "no such fault"));
    };
    match how {
        How::Well => wire.answer(&well()),
        How::Slow | How::Late => {
            thread::sleep(milliseconds(arguments));
            if how == How::Late || !tools.was_cancelled(id) {
                wire.answer(&well());
            } else {
                wire.silence();
            }
        }
        How::Silent => wire.silence(),
        How::Failure => {
            let why = json!([{"type": "text", "text": "a fault"}]);
            wire.answer(&result(id, &json!({"content": why, "isError": true})));
        }
        How::Error => wire.answer(&error(id, -32603, "a fault")),
        How::Malformed => wire.answer(&result(id, &json!({"content": "no list"}))),
        How::Garbage => wire.garbage(),
        How::WrongId => {
            let mut wrong = well();
            wrong["id"] = json!("nobody asked for this");
            wire.answer(&wrong);
        }
        How::Twice => {
            wire.tell(&well());
            let second = json!({"marker": "the second answer"});
            wire.answer(&result(id, &json!({"content": [], "structuredContent": second})));
        }
        How::Huge => {
            let bytes = arguments["bytes"].as_u64().unwrap_or_default();
            let text = "x".repeat(usize::try_from(bytes).expect("a size that fits into memory"));
            let content = json!([{"type": "text", "text": text}]);
            wire.answer(&result(id, &json!({"content": content})));
        }
        How::Asks => {
            for method in
                ["elicitation/create", "sampling/createMessage", "roots/list", "no/such/method"]
            {
                let id = format!("{QUESTION}-{method}-{id}");
                wire.tell(&json!({
                    "jsonrpc": "2.0", "id": id, "method": method, "params": question_params(method)
                }));
            }
            wire.answer(&well());
        }
        How::Refuses => wire.refuse(),
        How::BreaksOff => wire.break_off(&well()),
        How::Exit => process::exit(3),
        How::Killed => kill(),
    }
}

/// Returns the received arguments and the process, with a value to redact.
fn echo(arguments: &Value) -> Value {
    let mut echo = match arguments {
        Value::Object(_) => arguments.clone(),
        _ => json!({}),
    };
    echo["pid"] = process::id().into();
    echo["secret"] = "hush".into();
    echo
}

fn question_params(method: &str) -> Value {
    let form = json!({"type": "object", "properties": {}});
    match method {
        "elicitation/create" => {
            json!({"mode": "form", "message": "Your password?", "requestedSchema": form})
        }
        "sampling/createMessage" => json!({"messages": [], "maxTokens": 1}),
        _ => json!({}),
    }
}

fn result(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

fn milliseconds(arguments: &Value) -> Duration {
    Duration::from_millis(arguments["ms"].as_u64().unwrap_or_default())
}

/// Kills this process, with the help of a shell.
fn kill() -> ! {
    let kill = format!("kill -s KILL {}", process::id());
    let killed = process::Command::new("sh").args(["-c", &kill]).status();
    // It is killed before this line.
    crate::die(&format!("cannot be killed: {killed:?}"));
}

// === Over pipes ===

/// Standard output, one message to a line.
pub(crate) struct Pipe;

impl Wire for Pipe {
    fn tell(&mut self, message: &Value) {
        crate::send(message);
    }

    fn answer(&mut self, message: &Value) {
        crate::send(message);
    }

    fn garbage(&mut self) {
        crate::send_line("this is no JSON {");
    }

    fn break_off(&mut self, message: &Value) {
        let text = message.to_string();
        let mut stdout = io::stdout().lock();
        // A closed pipe can be ignored.
        let _ = stdout.write_all(&text.as_bytes()[..text.len() / 2]);
        let _ = stdout.flush();
        close_stdout();
    }

    fn silence(&mut self) {}

    fn refuse(&mut self) {}
}

/// Closes standard output, while the process stays: it becomes a program with another standard
/// output that never writes.
#[cfg(unix)]
fn close_stdout() -> ! {
    use std::os::unix::process::CommandExt;

    let this_program = env::current_exe().expect("a program knows its file");
    let error =
        process::Command::new(this_program).arg("silent").stdout(process::Stdio::null()).exec();
    crate::die(&format!("cannot start anew: {error}"));
}

#[cfg(not(unix))]
fn close_stdout() -> ! {
    process::exit(3)
}
