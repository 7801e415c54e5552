//! Records the outcomes of runs, so that flowcharts can show them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Mutex,
};

use super::tally::{Status, Tally};
use crate::{
    mutex::lock,
    observe::{Branch, Event, Observer, RunId, What},
};

/// The default maximum number of runs that a recorder stores.
const KEPT: usize = 100;

/// An observer that records the outcomes of runs, so that [flowcharts](super::Flowchart::run) can
/// show them.
///
/// Pass the `Recorder` as an `Arc` to
/// [`CompositeLayer::observer`](crate::composite::CompositeLayer::observer), and read the runs from
/// a clone of the `Arc`. By default, a recorder stores the last 100 runs with their nested runs. It
/// stores no arguments and no results. For each step, it stores only how often each outcome
/// occurred.
#[derive(Debug)]
pub struct Recorder {
    max_runs: usize,
    notes: Mutex<Notes>,
}

/// A run of a composite, as recorded by a [`Recorder`]. If the composite calls other composites, it
/// includes their runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    id: RunId,
    composite: String,
    is_over: bool,
    /// The outcomes of all composites that were called in the run, by the name of the composite.
    /// Includes the outermost composite.
    records: BTreeMap<String, Record>,
    /// The current status of each run and branch that has not ended. Includes the recorded run
    /// itself, its nested runs, and their branches.
    open: HashMap<Open, Status>,
}

/// The outcomes of all calls of one composite within a recorded run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    pub(super) runs: Tally,
    /// The outcomes of the targets or steps of the composite, by their IDs.
    pub(super) branches: BTreeMap<String, Branches>,
}

/// The outcomes of one target or step in all runs of its composite.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Branches {
    pub(super) own: Tally,
    /// The outcomes of the elements over which the step iterates. Empty if the step is not a loop.
    pub(super) elements: Tally,
}

/// Identifies a run, or a branch of a run, that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Open {
    run: RunId,
    branch: Option<(String, Option<usize>)>,
}

#[derive(Debug, Default)]
struct Notes {
    /// The recorded runs by ID. Nested runs are not included, because they are a part of the outer
    /// run.
    runs: HashMap<RunId, Run>,
    /// The IDs of the recorded runs, from the oldest to the newest.
    order: VecDeque<RunId>,
    /// Maps the ID of each run that has not ended to the ID of the outermost run that contains it.
    outermost: HashMap<RunId, RunId>,
}

// === impl Recorder ===

impl Recorder {
    /// Creates a recorder that keeps the last 100 runs.
    #[must_use]
    pub fn new() -> Self {
        Self { max_runs: KEPT, notes: Mutex::default() }
    }

    /// Sets the maximum number of recorded runs, including runs that have not ended. When more runs
    /// start, the oldest runs are removed. Defaults to 100.
    #[must_use]
    pub const fn max_runs(mut self, runs: usize) -> Self {
        self.max_runs = runs;
        self
    }

    /// Returns the recorded runs in their current state, from the newest to the oldest. The runs of
    /// composites that were called by another composite are part of the outer run.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        let notes = lock(&self.notes);
        notes.order.iter().rev().filter_map(|id| notes.runs.get(id).cloned()).collect()
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Recorder {
    fn on_event(&self, event: &Event<'_>) {
        let mut notes = lock(&self.notes);
        if matches!(event.what, What::RunStarted { .. } | What::RunResumed) {
            notes.begin(event, self.max_runs);
        }
        // The run is missing if it was removed because of the maximum number of runs.
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
    /// Adds a run that has started or that was resumed in this process. A nested run becomes a part
    /// of its outer run. Does nothing if the run is already recorded and has not ended.
    fn begin(&mut self, event: &Event<'_>, max_runs: usize) {
        if self.outermost.contains_key(&event.run) {
            return;
        }
        if let Some(parent) = event.parent {
            // The outer run is missing if it was removed because of the maximum number of runs.
            if let Some(&around) = self.outermost.get(&parent.run) {
                self.outermost.insert(event.run, around);
            }
            return;
        }
        self.outermost.insert(event.run, event.run);
        if self.runs.insert(event.run, Run::new(event.run, event.composite)).is_some() {
            // The run had already ended, but a client has sent its state again.
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

    /// Returns the identifier of the run, which observers also receive in
    /// [events](crate::observe::Event::run).
    #[must_use]
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// Returns the name of the composite that was called.
    #[must_use]
    pub fn composite(&self) -> &str {
        &self.composite
    }

    /// Returns `true` if the run has ended. Returns `false` if it is running or suspended.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the outcomes of a composite in this run. Returns `None` if the composite was not
    /// called in the run.
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
                // The attempts of a loop are counted for the elements of the loop.
                if !is_loop {
                    tally.called(attempts);
                }
            }
            What::BranchSkipped { branch, reason } => {
                self.ended(event, Some(branch), Status::Skipped).because(Some(reason));
            }
        }
    }

    /// Records the current status of a run that has not ended, or of a branch of the run. `branch`
    /// is `None` for the run itself.
    fn stands(&mut self, event: &Event<'_>, branch: Option<Branch<'_>>, status: Status) {
        let before = self.open.insert(Open::new(event, branch), status);
        self.tally(event, branch).note(before, status);
    }

    /// Records the final status of a run, or of a branch of the run. `branch` is `None` for the run
    /// itself. Returns the tally that counts the status.
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
