//! Sends progress notifications for a run to the client.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    branches::BranchId,
    limits::after,
    outcome::Status,
    plan::{Plan, StepSet},
    running_loop::Loop,
};
use crate::message::{Labels, Parts, Progress};

/// The progress of a run. Exists only if the client sent a progress token with its call.
pub(super) struct RunProgress {
    steps: Arc<Parts>,
    /// The running loops: the index of the step, and the progress of its elements.
    loops: Vec<(usize, Arc<Parts>)>,
    beat: Option<Beat>,
}

/// The heartbeat of the outermost run: a progress notification that is sent at an interval while no
/// step makes progress. It keeps the client's request from timing out.
struct Beat {
    every: Duration,
    due: Instant,
}

// === impl RunProgress ===

impl RunProgress {
    /// Creates the progress of a run that starts or resumes. The steps in `finished` count as done.
    /// A `heartbeat` of zero disables heartbeats.
    pub(super) fn new(
        plan: &Plan,
        progress: &Progress,
        heartbeat: Duration,
        finished: StepSet,
    ) -> Self {
        let steps = progress.split(plan.labels.clone());
        finished.for_each(|step| steps.skip(step));
        let beats = !heartbeat.is_zero() && steps.sent().is_some();
        let beat = beats.then(|| Beat { every: heartbeat, due: after(Instant::now(), heartbeat) });
        Self { steps, loops: Vec::new(), beat }
    }

    pub(super) fn begin(&self, step: usize) {
        self.steps.begin(step);
    }

    pub(super) fn end(&self, step: usize, status: Status) {
        match status {
            Status::Skipped => self.steps.skip(step),
            _ => self.steps.end(step, in_words(status)),
        }
    }

    /// Divides the progress of a loop step among its elements. Called when the loop starts or
    /// resumes.
    pub(super) fn split(&mut self, each: &Loop<'_>) {
        let labels = Labels::Numbered(each.definition.noun(), each.max_count());
        let elements = self.steps.part(each.state.step).split(labels.into());
        each.ended().for_each(|element| elements.skip(element));
        self.loops.push((each.state.step, elements));
    }

    pub(super) fn begin_element(&self, id: BranchId) {
        if let Some(elements) = self.elements(id.step) {
            elements.begin(id.element);
        }
    }

    pub(super) fn end_element(&self, id: BranchId, status: Status) {
        if let Some(elements) = self.elements(id.step) {
            elements.end(id.element, in_words(status));
        }
    }

    fn elements(&self, step: usize) -> Option<&Arc<Parts>> {
        self.loops.iter().find(|(other, _)| *other == step).map(|(_, elements)| elements)
    }

    /// Returns the progress of a step or of a loop element.
    pub(super) fn part(&self, id: BranchId) -> Progress {
        match self.elements(id.step) {
            Some(elements) => elements.part(id.element),
            None => self.steps.part(id.step),
        }
    }

    /// Returns the time of the next heartbeat, or `None` if heartbeats are disabled.
    pub(super) fn due(&self) -> Option<Instant> {
        self.beat.as_ref().map(|beat| beat.due)
    }

    /// Sends a heartbeat to the client if one is due. `running` contains the steps that it names.
    pub(super) fn beat(&mut self, running: StepSet, now: Instant) {
        let Some(beat) = &mut self.beat else { return };
        let Some(sent) = self.steps.sent() else { return };
        if now < beat.due {
            return;
        }
        // Another notification in the meantime postpones the heartbeat.
        beat.due = after(sent, beat.every);
        if now >= beat.due {
            self.steps.still(&running.into_iter().collect::<Vec<_>>());
            beat.due = after(now, beat.every);
        }
    }
}

const fn in_words(status: Status) -> &'static str {
    match status {
        Status::TimedOut => "timed out",
        other => other.name(),
    }
}
