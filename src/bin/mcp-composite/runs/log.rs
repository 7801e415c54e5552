//! The last runs, in memory.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use mcp_composite::observe::{Event, Observer, What};
use tokio::sync::watch;

use super::{
    entry::{Cancelled, Entry},
    record::{RunRecord, RunSummary},
    recording::Recorder,
};
use crate::redacted::Redacted;

/// The maximum number of runs that are kept.
pub(super) const MAX_RUNS: usize = 1000;
/// The maximum size of all runs that are kept, approximately.
pub(super) const MAX_BYTES: usize = 32 * 1024 * 1024;

/// The last runs, in memory.
///
/// At most 1000 runs and about 32 MiB are kept. Subscribers have no queues: each remembers the
/// version of the last change that it has seen, and asks for the runs that have changed since.
pub(crate) struct RunLog {
    runs: Mutex<Runs>,
    version: watch::Sender<u64>,
    recorder: Option<Recorder>,
    /// Whether arguments and results are kept.
    shows_data: bool,
}

#[derive(Default)]
pub(super) struct Runs {
    pub(super) entries: HashMap<String, Entry>,
    /// The ids of the entries, the oldest first.
    pub(super) order: VecDeque<String>,
    pub(super) bytes: usize,
    version: u64,
}

// === impl RunLog ===

impl RunLog {
    pub(crate) fn new(shows_data: bool, recorder: Option<Recorder>) -> Self {
        Self { runs: Mutex::default(), version: watch::Sender::default(), recorder, shows_data }
    }

    /// Adds a recorded run of this approximate size. Replaces an earlier record of the same run.
    pub(super) fn add(&self, record: RunRecord, bytes: usize) {
        let mut runs = self.lock();
        let id = record.id.clone();
        runs.remove(&id);
        runs.insert(id.clone(), Entry::of(record, bytes));
        runs.touch(&id);
        runs.evict();
    }

    /// Returns whether arguments and results are kept.
    pub(crate) const fn shows_data(&self) -> bool {
        self.shows_data
    }

    pub(crate) const fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// Returns a receiver of the version, which increases with each change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Calls `map` with the summaries of the runs that have changed since a version, the oldest
    /// first, and with the current version.
    pub(crate) fn since<T>(
        &self,
        version: u64,
        redacted: &Redacted,
        map: impl FnOnce(&[RunSummary<'_>], u64) -> T,
    ) -> T {
        let runs = self.lock();
        let entries = runs.order.iter().filter_map(|id| runs.entries.get(id));
        let changed = entries.filter(|entry| entry.version > version);
        let summaries: Vec<_> = changed.map(|entry| entry.record.summary(redacted)).collect();
        map(&summaries, runs.version)
    }

    /// Returns a run and its nested runs, without secrets.
    pub(crate) fn run(&self, id: &str, redacted: &Redacted) -> Option<(RunRecord, Vec<RunRecord>)> {
        let runs = self.lock();
        let run = runs.entries.get(id)?.record.clone();
        let is_nested =
            |record: &&RunRecord| record.parent.as_ref().is_some_and(|parent| parent.run == id);
        let records = runs.order.iter().filter_map(|id| runs.entries.get(id)).map(|it| &it.record);
        let nested: Vec<_> = records.filter(is_nested).cloned().collect();
        drop(runs);
        let nested = nested.into_iter().map(|run| run.without_data().redacted(redacted));
        Some((run.redacted(redacted), nested.collect()))
    }

    /// Cancels a run if it is running. Returns `None` if the run is not kept.
    pub(crate) fn cancel(&self, id: &str) -> Option<Cancelled> {
        self.lock().entries.get(id).map(Entry::cancel)
    }

    /// Records that the task of a waiting run was cancelled.
    pub(crate) fn drop_waiting(&self, id: &str) {
        self.change(|runs| {
            if let Some(entry) = runs.entries.get_mut(id) {
                entry.drop_waiting();
                runs.touch(id);
            }
        });
    }

    /// Records the runs that have not ended, and waits until the recording is written.
    pub(crate) fn close(&self) {
        let Some(recorder) = &self.recorder else { return };
        let open: Vec<_> = {
            let runs = self.lock();
            let open = runs.order.iter().filter_map(|id| runs.entries.get(id));
            open.filter(|entry| !entry.has_ended()).map(|entry| entry.record.clone()).collect()
        };
        recorder.close(open);
    }

    /// Changes runs, and publishes the new version.
    fn change(&self, change: impl FnOnce(&mut Runs)) {
        let version = {
            let mut runs = self.lock();
            change(&mut runs);
            runs.version
        };
        // Another change may have published a later version.
        self.version.send_if_modified(|known| {
            let is_later = *known < version;
            *known = version.max(*known);
            is_later
        });
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for RunLog {
    fn on_event(&self, event: &Event<'_>) {
        self.change(|runs| {
            let id = event.run.to_string();
            let begins = matches!(event.what, What::RunStarted { .. } | What::RunResumed);
            if begins && !runs.entries.contains_key(&id) {
                runs.insert(id.clone(), Entry::new(event));
            }
            // Missing if the run is no longer kept.
            let Some(entry) = runs.entries.get_mut(&id) else { return };
            let before = entry.bytes;
            let is_over = entry.apply(event);
            let added = entry.bytes - before;
            if is_over && let Some(recorder) = &self.recorder {
                recorder.record(&entry.record, entry.bytes);
            }
            runs.bytes += added;
            runs.touch(&id);
            runs.evict();
        });
    }

    fn wants_arguments(&self) -> bool {
        self.shows_data
    }

    fn wants_results(&self) -> bool {
        self.shows_data
    }
}

// === impl Runs ===

impl Runs {
    fn insert(&mut self, id: String, entry: Entry) {
        self.bytes += entry.bytes;
        self.order.push_back(id.clone());
        self.entries.insert(id, entry);
    }

    fn touch(&mut self, id: &str) {
        self.version += 1;
        if let Some(entry) = self.entries.get_mut(id) {
            entry.version = self.version;
        }
    }

    /// Removes the oldest runs until the limits are kept, first those that have ended.
    fn evict(&mut self) {
        while self.entries.len() > MAX_RUNS || (self.bytes > MAX_BYTES && self.entries.len() > 1) {
            let has_ended = |id: &String| self.entries.get(id).is_some_and(Entry::has_ended);
            self.remove_at(self.order.iter().position(has_ended).unwrap_or_default());
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(place) = self.order.iter().position(|other| other == id) {
            self.remove_at(place);
        }
    }

    /// Removes the run at this place in the order.
    fn remove_at(&mut self, place: usize) {
        let id = self.order.remove(place);
        if let Some(entry) = id.and_then(|id| self.entries.remove(&id)) {
            self.bytes -= entry.bytes;
        }
    }
}
