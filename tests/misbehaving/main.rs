//! A stdio MCP server that misbehaves on command, to test the effects of a broken backend on
//! everything above it.
//!
//! The first argument names the behavior; in all other respects the server behaves well. It is
//! written without an SDK, because an SDK would not let it break the rules.
//!
//! The behavior `faulty` is to behave well except for the tool `fault`, whose calls each request a
//! fault. With `faulty --http PORT` it is served over streamable HTTP; it prints its address in a
//! line on its standard output, and ends when its standard input does. With `--slow-to-hear MS`
//! after that, it handles cancellations with this delay.
//!
//! The behaviors of the module `hostile` are attacks on the client; `brief-streams` needs
//! `--http PORT`.
//!
//! If `MISBEHAVING_LOG` names a file, every received message is appended to it
//! as one line, so that tests see what arrived and what did not.

mod fault;
mod hostile;
mod http;
mod tools;
mod well_behaved;

use std::{
    env,
    fs::{File, OpenOptions},
    io::{self, BufRead, Write},
    path::Path,
    process,
    str::FromStr,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{hostile::Attack, tools::Tools, well_behaved::MODERN_VERSION};

/// A failed test may leave its children behind; none of them lives longer.
const LONGEST_STUBBORNNESS: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// Follows the specification, in the version of 2025-11-25.
    Good,
    /// Follows the specification, in the version of 2026-07-28 and no other.
    Modern,
    /// Prints lines of invalid JSON instead of answers.
    Garbage,
    /// The same for calls only, so that the connection succeeds.
    GarbageCalls,
    /// Reads and never answers.
    Silent,
    /// Answers with ids that were not requested.
    OtherIds,
    /// The same for calls only, so that the connection succeeds.
    OtherIdsCalls,
    /// Always has one more page of tools.
    Flood,
    /// Ends before it reads anything.
    Exit,
    /// Ends once it has answered `initialize`.
    ExitAfterInitialize,
    /// Lists tools under names that clients and models choke on.
    BadNames,
    /// Lists two tools of one name.
    Twins,
    /// Waits before it answers anything.
    Late(Duration),
    /// Ends on `server/discover`, as servers of before 2026-07-28 may.
    DiesOnDiscover,
    /// Never answers `server/discover`, as servers of before 2026-07-28 may.
    IgnoresDiscover,
    /// Answers calls with results of the wrong shape.
    Malformed,
    /// Answers calls with one line that has no end.
    EndlessLine,
    /// Answers requests that were cancelled all the same.
    AnswersCancelled,
    /// Like `Good`, with the tool `fault`.
    Faulty,
    /// Ends neither when its stdin ends nor on SIGTERM.
    Stubborn,
    /// Costs its client as much as it can.
    Hostile(Attack),
}

impl Behaviour {
    /// Returns `true` if it speaks the version of 2026-07-28 and no other.
    fn is_modern(self) -> bool {
        matches!(self, Self::Modern | Self::Hostile(Attack::ModernQuestions))
    }

    fn attack(self) -> Option<Attack> {
        match self {
            Self::Hostile(attack) => Some(attack),
            _ => None,
        }
    }

    fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let name = arguments.next().ok_or("which behaviour?")?;
        Ok(match name.as_str() {
            "good" => Self::Good,
            "modern" => Self::Modern,
            "garbage" => Self::Garbage,
            "garbage-calls" => Self::GarbageCalls,
            "silent" => Self::Silent,
            "other-ids" => Self::OtherIds,
            "other-ids-calls" => Self::OtherIdsCalls,
            "flood" => Self::Flood,
            "exit" => Self::Exit,
            "exit-after-initialize" => Self::ExitAfterInitialize,
            "bad-names" => Self::BadNames,
            "twins" => Self::Twins,
            "late" => {
                let milliseconds = arguments.next().and_then(|argument| argument.parse().ok());
                Self::Late(Duration::from_millis(milliseconds.ok_or("late by how many ms?")?))
            }
            "dies-on-discover" => Self::DiesOnDiscover,
            "ignores-discover" => Self::IgnoresDiscover,
            "malformed" => Self::Malformed,
            "endless-line" => Self::EndlessLine,
            "answers-cancelled" => Self::AnswersCancelled,
            "faulty" => Self::Faulty,
            "stubborn" => Self::Stubborn,
            name => match Attack::named(name) {
                Some(attack) => Self::Hostile(attack),
                None => return Err(format!("no behaviour is named {name:?}")),
            },
        })
    }
}

/// A JSON-RPC error: its code, message and data.
type Refusal = (i64, String, Value);

fn refusal(code: i64, message: impl Into<String>) -> Refusal {
    (code, message.into(), Value::Null)
}

/// A request that waits for its answer.
#[derive(Clone, Debug)]
struct Request {
    id: Value,
    method: String,
    params: Value,
}

struct Server {
    behaviour: Behaviour,
    tools: Tools,
    log: Option<Mutex<File>>,
    /// The delay over HTTP before a cancellation is handled.
    slow_to_hear: Duration,
}

impl Server {
    fn receive(self: &Arc<Self>, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            self.write_log(&Value::from(line));
            let error = json!({"code": -32700, "message": "no JSON"});
            send(&json!({"jsonrpc": "2.0", "id": null, "error": error}));
            return;
        };
        self.write_log(&message);
        if self.behaviour == Behaviour::Silent {
            return;
        }
        let params = message["params"].clone();
        match (message["method"].as_str(), message.get("id")) {
            (Some(method), Some(id)) => {
                self.start(Request { id: id.clone(), method: method.to_owned(), params });
            }
            (Some("notifications/initialized"), None) => {
                if let Some(attack) = self.behaviour.attack() {
                    attack.begin();
                }
            }
            (Some("notifications/cancelled"), None) => {
                self.tools.note_cancellation(&params["requestId"]);
            }
            (Some(_), None) => {}
            (None, _) => self.tools.note_answer(&message),
        }
    }

    fn start(self: &Arc<Self>, request: Request) {
        if request.method == "tools/call" {
            self.tools.note_call();
        }
        // Only slow requests get a thread, so that all other answers keep the order of their
        // requests.
        if request.method == "tools/call" || matches!(self.behaviour, Behaviour::Late(_)) {
            let server = Arc::clone(self);
            thread::spawn(move || server.answer(&request));
        } else {
            self.answer(&request);
        }
    }

    fn answer(&self, request: &Request) {
        let is_call = request.method == "tools/call";
        if is_call && self.behaviour == Behaviour::Faulty && request.params["name"] == "fault" {
            return fault::answer(request, &self.tools, &mut fault::Pipe);
        }
        if is_call
            && let Some(line) = self.behaviour.attack().and_then(|attack| attack.line(request))
        {
            return send_line(&line);
        }
        let mut id = request.id.clone();
        match self.behaviour {
            Behaviour::Garbage => return send_line("this is no JSON {"),
            Behaviour::GarbageCalls if is_call => return send_line("this is no JSON {"),
            Behaviour::OtherIds => id = json!("nobody asked for this"),
            Behaviour::OtherIdsCalls if is_call => id = json!("nobody asked for this"),
            Behaviour::Late(delay) => thread::sleep(delay),
            Behaviour::EndlessLine if is_call => send_endless_line(),
            _ => {}
        }
        let outcome = self.outcome(request);
        if self.behaviour != Behaviour::AnswersCancelled && self.tools.was_cancelled(&request.id) {
            return;
        }
        match outcome {
            None => return,
            Some(Ok(result)) => send(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
            Some(Err((code, message, data))) => {
                let mut error = json!({"code": code, "message": message});
                if !data.is_null() {
                    error["data"] = data;
                }
                send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        }
        if self.behaviour == Behaviour::ExitAfterInitialize && request.method == "initialize" {
            process::exit(1);
        }
    }

    /// Returns the answer; `None` for no answer at all.
    fn outcome(&self, request: &Request) -> Option<Result<Value, Refusal>> {
        let modern = self.behaviour.is_modern();
        let params = &request.params;
        let mut outcome = match request.method.as_str() {
            "server/discover" => match self.behaviour {
                _ if modern => Ok(well_behaved::discovery()),
                Behaviour::DiesOnDiscover => die("no such method: server/discover"),
                Behaviour::IgnoresDiscover => return None,
                _ => Err(well_behaved::no_such_method(&request.method)),
            },
            "initialize" if modern => {
                let data = json!({
                    "supported": [MODERN_VERSION],
                    "requested": params["protocolVersion"],
                });
                Err((-32022, "there is no handshake here".to_owned(), data))
            }
            "initialize" => Ok(well_behaved::handshake()),
            "tools/list" => Ok(self.tools.list(self.behaviour, params)),
            "tools/call" if self.behaviour == Behaviour::Malformed => {
                Ok(json!({"content": "a text where a list belongs"}))
            }
            "tools/call" => self.tools.call(self.behaviour, request)?,
            "resources/subscribe" if !modern => Ok(self.tools.subscribe(params)),
            "resources/unsubscribe" if !modern => Ok(self.tools.unsubscribe(params)),
            // Stays open until it is cancelled.
            "subscriptions/listen" if modern => {
                self.tools.listen(&request.id, params);
                return None;
            }
            _ => match self.behaviour.attack().and_then(|attack| attack.resources(request)) {
                Some(resources) => Ok(resources),
                None => well_behaved::answer(request, modern),
            },
        };
        if modern && let Ok(result) = &mut outcome {
            well_behaved::modernize(&request.method, result);
        }
        Some(outcome)
    }

    /// Returns `true` if its event streams end as soon as they have begun.
    fn is_brief(&self) -> bool {
        self.behaviour == Behaviour::Hostile(Attack::BriefStreams)
    }

    fn write_log(&self, message: &Value) {
        if let Some(log) = &self.log {
            let mut log = log.lock().expect("the log's lock");
            // One write per line: several processes may append to one file.
            log.write_all(format!("{message}\n").as_bytes()).expect("the log takes a line");
        }
    }
}

/// Sends one message. A client that is gone ends the server.
fn send(message: &Value) {
    send_line(&message.to_string());
}

fn send_line(line: &str) {
    let mut stdout = io::stdout().lock();
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        process::exit(1);
    }
}

/// Holds stdout forever, so that the line never ends.
fn send_endless_line() -> ! {
    let mut stdout = io::stdout().lock();
    let piece = [b'x'; 8192];
    while stdout.write_all(&piece).is_ok() {}
    process::exit(1)
}

fn die(last_words: &str) -> ! {
    // If this fails, the error cannot be reported.
    let _ = writeln!(io::stderr(), "misbehaving: {last_words}");
    process::exit(1)
}

/// Restarts this program in a process that ignores SIGTERM. Ignored signals are inherited, so a
/// shell can set this.
#[cfg(unix)]
fn ignore_termination() {
    use std::os::unix::process::CommandExt;

    const DONE: &str = "MISBEHAVING_IGNORES_TERMINATION";
    if env::var_os(DONE).is_some() {
        return;
    }
    let this_program = env::current_exe().expect("a program knows its file");
    let error = process::Command::new("sh")
        .args(["-c", r#"trap "" TERM; exec "$@""#, "sh"])
        .arg(this_program)
        .arg("stubborn")
        .env(DONE, "1")
        .exec();
    die(&format!("cannot start sh: {error}"));
}

#[cfg(not(unix))]
fn ignore_termination() {}

fn open_log(file: impl AsRef<Path>) -> Mutex<File> {
    let log = OpenOptions::new().create(true).append(true).open(file);
    Mutex::new(log.expect("MISBEHAVING_LOG can be written to"))
}

/// Returns the number after an option, if present.
fn option<T: FromStr>(name: &str) -> Option<T> {
    let mut arguments = env::args().skip(2);
    arguments.find(|argument| argument == name)?;
    let number = arguments.next().and_then(|number| number.parse().ok());
    Some(number.unwrap_or_else(|| die(&format!("which number is {name}?"))))
}

fn main() {
    let behaviour = match Behaviour::from_arguments(env::args().skip(1)) {
        Ok(behaviour) => behaviour,
        Err(mistake) => die(&mistake),
    };
    match behaviour {
        Behaviour::Exit => die("told to exit"),
        Behaviour::Stubborn => ignore_termination(),
        _ => {}
    }
    let server = Arc::new(Server {
        behaviour,
        tools: Tools::default(),
        log: env::var_os("MISBEHAVING_LOG").map(open_log),
        slow_to_hear: Duration::from_millis(option("--slow-to-hear").unwrap_or_default()),
    });
    let port = option("--http");
    if let Some(port) = port {
        http::serve(&server, port);
    }
    for line in io::stdin().lock().lines() {
        match line {
            Ok(_) if port.is_some() => {}
            Ok(line) => server.receive(&line),
            Err(_) => break,
        }
    }
    if behaviour == Behaviour::Stubborn {
        thread::sleep(LONGEST_STUBBORNNESS);
    }
}
