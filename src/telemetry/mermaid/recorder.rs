//! An observer that records the outcome of runs, so that flowcharts can show it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::tally::{Status, Tally};
use crate::observe::{Branch, Event, Observer, RunId, What};

/// The default number of runs that a recorder keeps.
const KEPT: usize = 100;

/// An observer that records the outcome of runs, so that [flowcharts](super::Flowchart::run) can
/// show it.
///
/// Pass the recorder to a layer as an `Arc`, and keep a clone of the `Arc` to read the runs. By
/// default, the recorder keeps the last 100 runs with their nested runs. It counts the outcomes of
/// each step, and records neither arguments nor results. So the memory for a run grows only with
/// the number of its concurrent calls, not with the number of all its calls.
#[derive(Debug)]
pub struct Recorder {
    max_runs: usize,
    notes: Mutex<Notes>,
}

/// The record of one run and its nested runs, as kept by a [`Recorder`].
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    id: RunId,
    composite: String,
    is_over: bool,
    /// The records of the composites that take part in the run, by name.
    records: BTreeMap<String, Record>,
    /// The status of each part of the run that has not ended: the run itself, a nested run, or a
    /// branch.
    open: HashMap<Open, Status>,
}

/// The outcomes of all runs of one composite within a recorded run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    pub(super) runs: Tally,
    /// The outcomes of each target or step, by its id.
    pub(super) branches: BTreeMap<String, Branches>,
}

/// The outcomes of one target or step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Branches {
    pub(super) own: Tally,
    /// The outcomes of the elements, if the step is a loop.
    pub(super) elements: Tally,
}

/// The key of a run or branch that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Open {
    run: RunId,
    branch: Option<(String, Option<usize>)>,
}

#[derive(Debug, Default)]
struct Notes {
    /// The recorded outermost runs, by id.
    runs: HashMap<RunId, Run>,
    /// The ids of the runs in `runs`, the oldest first.
    order: VecDeque<RunId>,
    /// Maps each run that has not ended to the outermost run that contains it.
    outermost: HashMap<RunId, RunId>,
}

// === impl Recorder ===

impl Recorder {
    /// Creates a recorder that keeps the last 100 runs.
    #[must_use]
    pub fn new() -> Self {
        Self { max_runs: KEPT, notes: Mutex::default() }
    }

    /// Sets the maximum number of runs to keep, including runs that have not ended. Older runs are
    /// removed. Defaults to 100.
    #[must_use]
    pub const fn max_runs(mut self, runs: usize) -> Self {
        self.max_runs = runs;
        self
    }

    /// Returns the recorded runs in their current state, the newest first. Nested runs are part of
    /// the run that contains them.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        let notes = self.lock();
        notes.order.iter().rev().filter_map(|id| notes.runs.get(id).cloned()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Recorder {
    fn on_event(&self, event: &Event<'_>) {
        let mut notes = self.lock();
        if matches!(event.what, What::RunStarted { .. } | What::RunResumed) {
            notes.begin(event, self.max_runs);
        }
        // Missing if the run is no longer kept.
        let Some(&outermost) = notes.outermost.get(&event.run) else { return };
        let is_end = matches!(event.what, What::RunFinished { .. } | What::RunDropped { .. });
        if is_end {
            notes.outermost.remove(&event.run);
        }
        if let Some(run) = notes.runs.get_mut(&outermost) {
            run.is_over |= is_end && event.run == outermost;
            run.note(event);
        }
    }
}

// === impl Notes ===

impl Notes {
    /// Adds a run that starts, or one that is resumed here after it was started in another process.
    fn begin(&mut self, event: &Event<'_>, max_runs: usize) {
        if self.outermost.contains_key(&event.run) {
            return;
        }
        if let Some(parent) = event.parent {
            // Missing if the enclosing run is no longer kept.
            if let Some(&around) = self.outermost.get(&parent.run) {
                self.outermost.insert(event.run, around);
            }
            return;
        }
        self.outermost.insert(event.run, event.run);
        if self.runs.insert(event.run, Run::new(event.run, event.composite)).is_some() {
            // The run had already ended, and a client has sent its state again.
            self.order.retain(|run| *run != event.run);
        }
        self.order.push_back(event.run);
        while self.order.len() > max_runs
            && let Some(oldest) = self.order.pop_front()
        {
            self.runs.remove(&oldest);
            self.outermost.retain(|_, outermost| *outermost != oldest);
        }
    }
}

// === impl Run ===

impl Run {
    fn new(id: RunId, composite: &str) -> Self {
        Self {
            id,
            composite: composite.to_owned(),
            is_over: false,
            records: BTreeMap::new(),
            open: HashMap::new(),
        }
    }

    /// Returns the id of the run.
    #[must_use]
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// Returns the name of the composite that was called.
    #[must_use]
    pub fn composite(&self) -> &str {
        &self.composite
    }

    /// Returns `true` if the run has ended, and `false` if it is running or suspended.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns what was recorded about a composite in this run, or `None` if the composite was not
    /// called.
    pub(super) fn of(&self, composite: &str) -> Option<&Record> {
        self.records.get(composite)
    }

    fn note(&mut self, event: &Event<'_>) {
        match event.what {
            What::RunStarted { .. } | What::RunResumed => {
                self.stands(event, None, Status::Running);
            }
            What::RunSuspended => {
                self.stands(event, None, Status::Waiting);
            }
            What::RunFinished { is_error, limit, took, .. } => {
                let status = if is_error { Status::Failed } else { Status::Completed };
                let tally = self.ended(event, None, status);
                tally.because(limit);
                tally.took(took);
            }
            What::RunDropped { took } => self.ended(event, None, Status::Cancelled).took(took),
            What::BranchStarted { branch } | What::Attempt { branch, .. } => {
                self.stands(event, Some(branch), Status::Running);
            }
            What::BranchWaiting { branch } => {
                self.stands(event, Some(branch), Status::Waiting);
            }
            What::BranchFinished { branch, status, error, attempts, took, .. } => {
                let is_loop = branch.element.is_none() && self.has_elements(event, branch);
                let tally = self.ended(event, Some(branch), Status::of(status));
                tally.because(error);
                tally.took(took);
                // The attempts of a loop are counted for its elements.
                if !is_loop {
                    tally.called(attempts);
                }
            }
            What::BranchSkipped { branch, reason } => {
                self.ended(event, Some(branch), Status::Skipped).because(Some(reason));
            }
        }
    }

    /// Records the current status of a run or branch that has not ended.
    fn stands(&mut self, event: &Event<'_>, branch: Option<Branch<'_>>, status: Status) {
        let before = self.open.insert(Open::new(event, branch), status);
        self.tally(event, branch).note(before, status);
    }

    /// Records the final status of a run or branch.
    fn ended(
        &mut self,
        event: &Event<'_>,
        branch: Option<Branch<'_>>,
        status: Status,
    ) -> &mut Tally {
        let before = self.open.remove(&Open::new(event, branch));
        let tally = self.tally(event, branch);
        tally.note(before, status);
        tally
    }

    fn has_elements(&self, event: &Event<'_>, branch: Branch<'_>) -> bool {
        let record = self.of(event.composite);
        let branches = record.and_then(|record| record.branches.get(branch.id));
        branches.is_some_and(|branches| branches.elements.worst().is_some())
    }

    fn tally(&mut self, event: &Event<'_>, branch: Option<Branch<'_>>) -> &mut Tally {
        let record = self.records.entry(event.composite.to_owned()).or_default();
        let Some(branch) = branch else { return &mut record.runs };
        let branches = record.branches.entry(branch.id.to_owned()).or_default();
        match branch.element {
            Some(_) => &mut branches.elements,
            None => &mut branches.own,
        }
    }
}

// === impl Open ===

impl Open {
    fn new(event: &Event<'_>, branch: Option<Branch<'_>>) -> Self {
        let branch = branch.map(|branch| (branch.id.to_owned(), branch.element));
        Self { run: event.run, branch }
    }
}
