//! A run in the log, as its events change it.

use std::{
    io::{self, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use mcp_composite::observe::{Branch, Event, RunHandle, What};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::record::{AttemptRecord, BranchRecord, ParentRecord, RunRecord, WaitRecord};

/// The maximum number of branches of a run that are kept.
const MAX_BRANCHES: usize = 1000;
/// The maximum number of calls of a branch that are kept.
const MAX_ATTEMPTS: usize = 20;
/// The maximum size of the arguments or the result of one call, as JSON.
const MAX_VALUE_BYTES: usize = 16 * 1024;
/// The maximum size of all arguments and results of a run.
const MAX_RUN_BYTES: usize = 1024 * 1024;

/// The approximate size of a record without its texts.
const RECORD_BYTES: usize = 256;

/// A run, its clock and its approximate size in memory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) record: RunRecord,
    pub(super) bytes: usize,
    /// The number of the last change in the log.
    pub(super) version: u64,
    begun: Instant,
    /// Cancels the run. `None` if the run is recorded.
    handle: Option<RunHandle>,
}

/// The outcome of an attempt to cancel a run.
pub(crate) enum Cancelled {
    /// The run was running.
    Running,
    /// The run waits for a person. To cancel it, cancel its task.
    Waiting { task: String },
    /// The run has ended, or it waits and is not a task.
    No,
}

/// A text that is not written further than its maximum size.
struct Bounded {
    text: Vec<u8>,
    room: usize,
}

// === impl Entry ===

impl Entry {
    /// Creates the entry of a run whose first event this is.
    pub(super) fn new(event: &Event<'_>) -> Self {
        let parent = event.parent.map(|parent| ParentRecord {
            run: parent.run.to_string(),
            branch: parent.branch.to_string(),
        });
        let record = RunRecord {
            id: event.run.to_string(),
            parent,
            composite: event.composite.to_owned(),
            view: event.view.map(str::to_owned),
            task: event.task.map(str::to_owned),
            status: "running".into(),
            started_at_ms: now_ms(),
            is_partial: !matches!(event.what, What::RunStarted { .. }),
            ..RunRecord::default()
        };
        let bytes = RECORD_BYTES + record.composite.len() + event.view.map_or(0, str::len);
        Self { handle: Some(event.handle.clone()), ..Self::of(record, bytes) }
    }

    /// Creates the entry of a recorded run of this approximate size.
    pub(super) fn of(record: RunRecord, bytes: usize) -> Self {
        Self { record, bytes, version: 0, begun: Instant::now(), handle: None }
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.record.ended_ms.is_some()
    }

    /// Cancels the run if it is running.
    pub(super) fn cancel(&self) -> Cancelled {
        match (&*self.record.status, &self.handle, &self.record.task) {
            ("running", Some(handle), _) => {
                handle.cancel();
                Cancelled::Running
            }
            ("waiting", Some(_), Some(task)) => Cancelled::Waiting { task: task.clone() },
            _ => Cancelled::No,
        }
    }

    /// Records that the task of a waiting run was cancelled.
    pub(super) fn drop_waiting(&mut self) {
        if self.record.status == "waiting" {
            let at_ms = self.elapsed_ms();
            self.record.status = "dropped".into();
            self.record.ended_ms = Some(at_ms);
            self.record.branches.iter_mut().for_each(|branch| branch.cancel(at_ms));
        }
    }

    /// Applies an event of the run. Returns `true` if the run has ended or was suspended.
    pub(super) fn apply(&mut self, event: &Event<'_>) -> bool {
        match event.what {
            What::RunStarted { arguments, .. } => self.record.arguments = self.keep(arguments),
            What::RunSuspended => {
                self.record.status = "waiting".into();
                return true;
            }
            What::RunResumed => {
                // The run may resume in another call, which has a handle of its own.
                self.handle = Some(event.handle.clone());
                self.resume();
            }
            What::RunFinished { is_error, limit, took, result, .. } => {
                self.record.result = self.keep(result);
                self.record.limit = limit.map(Into::into);
                self.end(if is_error { "failed" } else { "completed" }, took.as_millis());
                return true;
            }
            What::RunDropped { took, .. } => {
                self.end("dropped", took.as_millis());
                return true;
            }
            _ => self.apply_to_branch(&event.what),
        }
        false
    }

    fn apply_to_branch(&mut self, what: &What<'_>) {
        let at_ms = self.elapsed_ms();
        match *what {
            What::BranchStarted { branch, .. } => {
                let is_kept = self.branch(branch).is_some();
                self.record.omitted_branches += u64::from(!is_kept);
            }
            What::Attempt { branch, tool, attempt, after, arguments, .. } => {
                let is_kept = |branch: &mut BranchRecord| branch.attempts.len() < MAX_ATTEMPTS;
                let mut kept = None;
                if self.branch(branch).is_some_and(is_kept) {
                    self.bytes += RECORD_BYTES / 4 + tool.len();
                    kept = Some(self.keep(arguments));
                }
                let Some(branch) = self.branch(branch) else { return };
                branch.stop_waiting(at_ms);
                branch.status = "running".into();
                branch.calls = attempt;
                if let Some(arguments) = kept {
                    let (tool, after) = (tool.to_owned(), after.map(Into::into));
                    branch.attempts.push(AttemptRecord { at_ms, tool, after, arguments });
                }
            }
            What::BranchWaiting { branch, .. } => {
                let Some(branch) = self.branch(branch) else { return };
                branch.status = "waiting".into();
                if branch.waits.len() < MAX_ATTEMPTS {
                    branch.waits.push(WaitRecord { from_ms: at_ms, until_ms: None });
                }
            }
            What::BranchFinished {
                branch, status, error, attempts, cached, took, result, ..
            } => {
                let is_kept = self.branch(branch).is_some();
                let result = if is_kept { self.keep(result) } else { None };
                let Some(branch) = self.branch(branch) else { return };
                branch.stop_waiting(at_ms);
                branch.status = status.into();
                branch.error = error.map(Into::into);
                branch.calls = attempts;
                branch.cached = cached;
                branch.ended_ms = Some(at_ms);
                branch.took_ms = Some(millis(took.as_millis()));
                branch.result = result;
            }
            What::BranchSkipped { branch, reason, .. } => {
                let Some(branch) = self.branch(branch) else {
                    self.record.omitted_branches += 1;
                    return;
                };
                branch.status = "skipped".into();
                branch.reason = Some(reason.into());
                branch.ended_ms = Some(at_ms);
            }
            // Other events are not about branches, or unknown.
            _ => (),
        }
    }

    /// Continues the branches that waited while the run was suspended.
    fn resume(&mut self) {
        let at_ms = self.elapsed_ms();
        self.record.status = "running".into();
        // A client may send the state of a run again after the run has ended.
        self.record.ended_ms = None;
        self.record.branches.iter_mut().for_each(|branch| branch.stop_waiting(at_ms));
    }

    fn end(&mut self, status: &'static str, took: u128) {
        self.record.status = status.into();
        self.record.ended_ms = Some(self.elapsed_ms());
        self.record.took_ms = Some(millis(took));
    }

    /// Returns the record of a branch, which is added if it is new. Returns `None` if the run has
    /// too many branches.
    fn branch(&mut self, branch: Branch<'_>) -> Option<&mut BranchRecord> {
        let is_it =
            |record: &BranchRecord| record.element == branch.element && record.id == branch.id;
        // Most events are about one of the latest branches.
        if let Some(at) = self.record.branches.iter().rposition(is_it) {
            return self.record.branches.get_mut(at);
        }
        if self.record.branches.len() >= MAX_BRANCHES || self.bytes > MAX_RUN_BYTES {
            return None;
        }
        self.bytes += RECORD_BYTES + branch.id.len();
        self.record.branches.push(BranchRecord {
            id: branch.id.to_owned(),
            element: branch.element,
            status: "running".into(),
            started_ms: self.elapsed_ms(),
            ..BranchRecord::default()
        });
        self.record.branches.last_mut()
    }

    /// Returns arguments or a result to keep, or a note about their size if they are too large.
    fn keep(&mut self, value: Option<&impl Serialize>) -> Option<Value> {
        let room = MAX_VALUE_BYTES.min(MAX_RUN_BYTES.saturating_sub(self.bytes));
        let mut text = Bounded { text: Vec::new(), room };
        if serde_json::to_writer(&mut text, value?).is_err() {
            return Some(json!({ "(omitted)": format!("more than {room} bytes") }));
        }
        // Parsed values take several times the space of their text.
        self.bytes += 4 * text.text.len();
        serde_json::from_slice(&text.text).ok()
    }

    fn elapsed_ms(&self) -> u64 {
        millis(self.begun.elapsed().as_millis())
    }
}

// === impl Bounded ===

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.room {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// === impl BranchRecord ===

impl BranchRecord {
    /// Records that the branch was cancelled if it was waiting.
    fn cancel(&mut self, at_ms: u64) {
        if self.status == "waiting" {
            self.stop_waiting(at_ms);
            self.status = "cancelled".into();
            self.ended_ms = Some(at_ms);
        }
    }

    fn stop_waiting(&mut self, at_ms: u64) {
        if self.status == "waiting" {
            self.status = "running".into();
        }
        if let Some(wait) = self.waits.last_mut() {
            wait.until_ms.get_or_insert(at_ms);
        }
    }
}

/// Returns the time, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis())
}

fn millis(millis: u128) -> u64 {
    millis.try_into().unwrap_or(u64::MAX)
}
