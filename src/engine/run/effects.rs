//! The external effects of a run: progress notifications, reports to observers, and aborted
//! branches.

use std::time::Duration;

use super::journaled::Journaled;
use crate::engine::{
    branches::{BranchId, Branches},
    caller::{Called, ToolReply},
    meter::LimitName,
    observation::Observation,
    outcome::Outcome,
    progress::RunProgress,
    questions::Questions,
    scheduler::{Effects, Loop},
};

/// The way in which a branch ended: with an outcome, or with questions of its tool.
pub(super) enum Ended {
    Outcome(Outcome),
    Asks(Box<Questions>),
}

/// The effects that the scheduler requests: progress notifications to the client, reports to
/// observers, and aborted branches.
pub(super) struct RunEffects<'p> {
    pub(super) branches: Branches<Ended>,
    /// The journal of the run, in which its calls are effects instead of branches. `None` if no
    /// durable engine executes the run.
    pub(super) journaled: Option<Box<Journaled>>,
    /// `None` if the client sent no progress token.
    pub(super) progress: Option<Box<RunProgress>>,
    /// `None` if nothing observes the run, or if the run is suspended.
    pub(super) watching: Option<Box<Observation<'p>>>,
}

// === impl Ended ===

impl Ended {
    /// Converts the reply of a tool to the end of the branch that called the tool. `begun` and `at`
    /// are the start and the end of the call, as durations since the start of the run.
    #[inline]
    pub(super) fn of(begun: Duration, called: Called, at: Duration) -> Self {
        Self::Outcome(match called {
            Ok(ToolReply::Asks(questions)) => return Self::Asks(questions),
            Ok(ToolReply::Result(result)) => Outcome::answered(begun, at, Ok(result)),
            Err(error) => Outcome::answered(begun, at, Err(error)),
        })
    }
}

// === impl RunEffects ===

impl Effects for RunEffects<'_> {
    fn abort(&mut self, id: BranchId) {
        match &mut self.journaled {
            Some(journaled) => journaled.abort(id),
            None => self.branches.abort(id),
        }
    }

    #[inline]
    fn begin_step(&mut self, step: usize) {
        if let Some(progress) = &self.progress {
            progress.begin(step);
        }
    }

    fn open_step(&mut self, step: usize) {
        if let Some(watching) = &mut self.watching {
            watching.begin_step(step);
        }
    }

    fn split_step(&mut self, each: &Loop<'_>) {
        if let Some(progress) = &mut self.progress {
            progress.split(each);
        }
    }

    fn begin_element(&mut self, id: BranchId) {
        if let Some(progress) = &self.progress {
            progress.begin_element(id);
        }
    }

    fn wait(&mut self, id: BranchId) {
        if let Some(watching) = &mut self.watching {
            watching.wait(id);
        }
    }

    #[inline]
    fn end_attempt(&mut self, id: BranchId, outcome: &Outcome) {
        if let Some(watching) = &mut self.watching {
            watching.end_call(id, outcome);
        }
    }

    fn end_element(&mut self, id: BranchId, outcome: &Outcome, limit: LimitName) {
        if let Some(watching) = &mut self.watching {
            watching.end_element(id, outcome, limit);
        }
        if let Some(progress) = &self.progress {
            progress.end_element(id, outcome.status);
        }
    }

    fn skip_element(&mut self, id: BranchId, limit: LimitName) {
        if let Some(watching) = &self.watching {
            watching.skip_element(id, limit);
        }
    }

    #[inline]
    fn end_step(&mut self, step: usize, outcome: &Outcome, limit: LimitName) {
        if let Some(progress) = &self.progress {
            progress.end(step, outcome.status);
        }
        if let Some(watching) = &mut self.watching {
            watching.end_step(step, outcome, limit);
        }
    }

    fn end_run(&mut self) {
        // The client receives no progress notifications for steps that are cut off by the end of
        // the run.
        self.progress = None;
        if let Some(watching) = &mut self.watching {
            watching.end_run();
        }
    }
}
