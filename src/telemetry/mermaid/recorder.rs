use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::tally::{Status, Tally};
use crate::observe::{Branch, Event, Observer, RunId, What};

/// How many runs are kept unless told otherwise.
const KEPT: usize = 100;

/// Notes what becomes of runs, for [flowcharts](super::Flowchart::run) of them.
///
/// Give it to a layer as an `Arc`, and keep another to ask it. It keeps the last 100 runs
/// with those nested in them: of each how often which step ended how, and neither
/// arguments nor results. So a run takes no more memory, however many tools it calls,
/// but for what goes on at the same time.
#[derive(Debug)]
pub struct Recorder {
    max_runs: usize,
    notes: Mutex<Notes>,
}

/// What a [`Recorder`] has noted of one run, with all that are nested in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    id: RunId,
    composite: String,
    is_over: bool,
    /// By the names of the composites.
    records: BTreeMap<String, Record>,
    /// How those stand that have not ended.
    open: HashMap<Open, Status>,
}

/// What became of one composite in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    pub(super) runs: Tally,
    /// By the ids of the targets or steps.
    pub(super) branches: BTreeMap<String, Branches>,
}

/// What became of one target or step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Branches {
    pub(super) own: Tally,
    /// Of the elements of a loop.
    pub(super) elements: Tally,
}

/// A run, or a branch of it, that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Open {
    run: RunId,
    branch: Option<(String, Option<usize>)>,
}

#[derive(Debug, Default)]
struct Notes {
    /// Those that are nested in no other.
    runs: HashMap<RunId, Run>,
    /// Their ids, the oldest first.
    order: VecDeque<RunId>,
    /// In which of them each run is that has not ended.
    outermost: HashMap<RunId, RunId>,
}

// === impl Recorder ===

impl Recorder {
    /// Keeps the last 100 runs.
    #[must_use]
    pub fn new() -> Self {
        Self { max_runs: KEPT, notes: Mutex::default() }
    }

    /// Sets how many runs are kept, those included that have not ended.
    #[must_use]
    pub const fn max_runs(mut self, runs: usize) -> Self {
        self.max_runs = runs;
        self
    }

    /// The runs that are nested in no other, the last that began first, each as it
    /// stands now.
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
        // There is none if it is no longer kept.
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
    /// Makes room for a run that begins, or goes on that began elsewhere.
    fn begin(&mut self, event: &Event<'_>, max_runs: usize) {
        if self.outermost.contains_key(&event.run) {
            return;
        }
        if let Some(parent) = event.parent {
            // There is none if the run around it is no longer kept.
            if let Some(&around) = self.outermost.get(&parent.run) {
                self.outermost.insert(event.run, around);
            }
            return;
        }
        self.outermost.insert(event.run, event.run);
        if self.runs.insert(event.run, Run::new(event.run, event.composite)).is_some() {
            // It has ended before: its state came back once more.
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

    /// What tells it from others.
    #[must_use]
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// The name of the composite.
    #[must_use]
    pub fn composite(&self) -> &str {
        &self.composite
    }

    /// Whether it has ended; if not, it goes on or waits for a person.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// What became of a composite in it.
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
            What::RunFinished { is_error, limit, took } => {
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
                // Those of a loop are those of its elements.
                if !is_loop {
                    tally.called(attempts);
                }
            }
            What::BranchSkipped { branch, reason } => {
                self.ended(event, Some(branch), Status::Skipped).because(Some(reason));
            }
        }
    }

    /// Notes how something stands that has not ended.
    fn stands(&mut self, event: &Event<'_>, branch: Option<Branch<'_>>, status: Status) {
        let before = self.open.insert(Open::new(event, branch), status);
        self.tally(event, branch).note(before, status);
    }

    /// Notes how something ended.
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
