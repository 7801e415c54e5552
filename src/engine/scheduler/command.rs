//! The commands of a scheduler.

use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::engine::{branches::BranchId, plan::CallSite, questions::Answered};

/// The next action of the driver of a run.
pub(in crate::engine) enum Command<'p> {
    /// Check whether the limits of the run allow another call, and pass the result to
    /// [`permit`](super::Scheduler::permit).
    Permit,
    /// Prepare these evaluated arguments and make the first attempt of a call.
    Call(NewCall<'p>, JsonObject),
    /// Make the next attempt of a call.
    Retry(BranchId),
    /// Count the size of the output of a step that calls no tool against the limits of the run, and
    /// pass the result to [`count`](super::Scheduler::count).
    Count(Box<MadeOutput>),
    /// Read the clock, because evaluating expressions may have taken some time. Then continue with
    /// the next command.
    Continue,
    /// Do not continue now, for this reason.
    Pause(Pause),
}

/// The reason why a run does not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Pause {
    /// The run waits for a call to end or for a deadline.
    Wait,
    /// The run has evaluated many expressions, and lets other tasks run.
    Yield,
    /// No other work is left, so the run is suspended until the user answers its questions.
    Suspended,
    /// The run has ended.
    Ended,
}

/// A call that begins.
pub(in crate::engine) struct NewCall<'p> {
    pub(in crate::engine) id: BranchId,
    pub(in crate::engine) site: &'p CallSite,
    /// The previous calls of the tool, and the answers to its questions. `None` if the tool has not
    /// asked the user.
    pub(super) resumed: Option<Box<Resumed>>,
}

/// The previous calls of a tool that has asked the user.
pub(super) struct Resumed {
    /// The start of the first call.
    pub(super) begun: Duration,
    pub(super) attempts: u32,
    pub(super) answered: Box<Answered>,
}

/// The output of a step that calls no tool, such as the user's answer to the question of the step.
pub(in crate::engine) struct MadeOutput {
    pub(super) step: usize,
    /// The start of the step.
    pub(super) begun: Duration,
    pub(super) attempts: u32,
    pub(in crate::engine) output: Value,
}

// === impl NewCall ===

impl NewCall<'_> {
    /// Returns `true` if the tool was called before and has asked the user.
    pub(in crate::engine) const fn is_resumed(&self) -> bool {
        self.resumed.is_some()
    }
}
