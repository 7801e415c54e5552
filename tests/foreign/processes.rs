//! Processes that tests start, and that are killed with them.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread::{self, JoinHandle},
};

use serde_json::Value;

use crate::{
    programs::{self, is_running},
    support::{LIMIT, until},
};

/// A process that is killed when this value is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// The lines of its standard error, and of its child processes.
    pub(crate) errors: Lines,
    reader: JoinHandle<()>,
}

/// The lines that another process has written so far.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

/// Returns the ids of all descendants of a process.
pub(crate) fn descendants(process: u64) -> Vec<u64> {
    let mut children = HashMap::<u64, Vec<u64>>::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let name = entry.unwrap().file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // The process may have ended.
        let status = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        // The state and the parent follow the name, which may contain any characters.
        let rest = status.rsplit_once(") ").map(|(_, rest)| rest);
        let Some(parent) = rest.and_then(|rest| rest.split(' ').nth(1)) else { continue };
        children.entry(parent.parse().unwrap()).or_default().push(number);
    }
    let mut found = Vec::new();
    let mut open = vec![process];
    while let Some(process) = open.pop() {
        let started = children.remove(&process).unwrap_or_default();
        found.extend(&started);
        open.extend(started);
    }
    found
}

/// Waits until all these processes have ended.
#[track_caller]
pub(crate) fn until_gone(processes: &[u64]) {
    until(&format!("the end of {processes:?}"), || processes.iter().all(|&one| !is_running(one)));
}

/// Sends a signal, such as `TERM`.
#[track_caller]
pub(crate) fn signal(process: u64, signal: &str) {
    assert!(programs::signal(process, signal));
}

/// Forwards each line that is JSON, as it arrives.
pub(crate) fn json_lines(source: impl Read + Send + 'static) -> mpsc::Receiver<Value> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(source).lines() {
            let Ok(line) = line else { return };
            let value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
            if sender.send(value).is_err() {
                return;
            }
        }
    });
    receiver
}

// === impl Process ===

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let errors = Lines::default();
        let (lines, stderr) = (errors.clone(), child.stderr.take().unwrap());
        let reader = thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.0.lock().unwrap().push(line);
            }
        });
        Self { child, errors, reader }
    }

    pub(crate) fn number(&self) -> u64 {
        self.child.id().into()
    }

    /// Waits until it exits by itself, and returns its status.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the end of a process", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Returns everything that it has written to standard error.
    #[track_caller]
    pub(crate) fn last_words(&self) -> String {
        until("the end of standard error", || self.reader.is_finished());
        self.errors.text()
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "what a test that fails wants to know")]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.errors.text());
        }
        // A killed process cannot end its children, some of which would stay.
        let started = descendants(self.number());
        // It may have already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in started {
            programs::signal(process, "KILL");
        }
    }
}

// === impl Lines ===

impl Lines {
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }

    /// Waits for the first line that contains this text, and returns the rest of it.
    #[track_caller]
    pub(crate) fn after(&self, text: &str) -> String {
        let mut found = None;
        until(&format!("a line with `{text}`"), || {
            let lines = self.0.lock().unwrap();
            let mut rests =
                lines.iter().filter_map(|line| Some(line.split_once(text)?.1.to_owned()));
            found = rests.next();
            found.is_some()
        });
        found.unwrap()
    }
}

/// Returns the next item of a channel.
#[track_caller]
pub(crate) fn next(source: &mpsc::Receiver<Value>) -> Value {
    source.recv_timeout(LIMIT).expect("should have come by now")
}
