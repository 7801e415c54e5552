//! The commands of a scheduler to its driver.

use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::engine::{branches::BranchId, plan::CallSite, questions::Answered};

/// The next action that the driver of a run must perform.
pub(in crate::engine) enum Command<'p> {
    /// Check whether the limits of the run allow another call, and pass the result to
    /// [`permit`](super::Scheduler::permit).
    Permit,
    /// Prepare the evaluated arguments, and make the first attempt of the call.
    Call(NewCall<'p>, JsonObject),
    /// Make the next attempt of a call.
    Retry(BranchId),
    /// Count the output of a step that calls no tool toward the size limits of the run, and pass
    /// the result to [`count`](super::Scheduler::count).
    Count(Box<MadeOutput>),
    /// Read the clock, because evaluating expressions may have taken some time. Then execute the
    /// next command.
    Continue,
    /// Do not execute further commands for now. Contains the reason.
    Pause(Pause),
}

/// The reason why a run does not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Pause {
    /// The run waits for a call to end or for a deadline.
    Wait,
    /// The run yields to other tasks, because it has evaluated many expressions in a row.
    Yield,
    /// Only questions are pending, so the run is suspended until the user answers them.
    Suspended,
    /// The run has ended.
    Ended,
}

/// A tool call that is about to start.
pub(in crate::engine) struct NewCall<'p> {
    pub(in crate::engine) id: BranchId,
    pub(in crate::engine) site: &'p CallSite,
    /// The previous attempts of the call, and the answers to the tool's questions. `None` if the
    /// tool has not asked questions.
    pub(super) resumed: Option<Box<Resumed>>,
}

/// The previous attempts of a call whose tool has asked questions.
pub(super) struct Resumed {
    /// The start of the first attempt.
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
    /// Returns `true` if this call was made before, and the tool replied with questions.
    pub(in crate::engine) const fn is_resumed(&self) -> bool {
        self.resumed.is_some()
    }
}
