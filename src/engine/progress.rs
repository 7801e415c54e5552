//! The progress of a run.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    limits::after,
    outcome::Status,
    plan::{Plan, StepSet},
};
use crate::message::{Parts, Progress};

/// The progress of a run whose client asked for it.
pub(super) struct RunProgress {
    steps: Arc<Parts>,
    beat: Option<Beat>,
}

/// The heartbeat while no step makes progress. Only sent by the outermost run.
struct Beat {
    every: Duration,
    due: Instant,
}

// === impl RunProgress ===

impl RunProgress {
    /// Creates the progress of a run in which these steps have finished.
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
        Self { steps, beat }
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

    /// Returns the progress of one step.
    pub(super) fn step(&self, step: usize) -> Progress {
        self.steps.part(step)
    }

    /// Returns the time of the next check for progress.
    pub(super) fn due(&self) -> Option<Instant> {
        self.beat.as_ref().map(|beat| beat.due)
    }

    /// Reports that these steps are still running, if a heartbeat is due.
    pub(super) fn beat(&mut self, running: StepSet, now: Instant) {
        let Some(beat) = &mut self.beat else { return };
        let Some(sent) = self.steps.sent() else { return };
        if now < beat.due {
            return;
        }
        // A notification since then counts as a heartbeat.
        beat.due = after(sent, beat.every);
        if now >= beat.due {
            self.steps.still(&running.into_iter().collect::<Vec<_>>());
            beat.due = after(now, beat.every);
        }
    }
}

/// Returns the description of a status for users.
pub(super) const fn in_words(status: Status) -> &'static str {
    match status {
        Status::TimedOut => "timed out",
        other => other.name(),
    }
}
