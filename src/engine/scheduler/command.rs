//! The commands of a scheduler to its driver.

use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::engine::{branches::BranchId, plan::CallSite, questions::Answered};

/// An instruction of the scheduler: the next action that its driver must perform.
pub(in crate::engine) enum Command<'p> {
    /// Check whether the limits of the run allow another tool call, and pass the result to
    /// [`permit`](super::Scheduler::permit).
    Permit,
    /// Prepare the evaluated arguments of a tool call, and make the first attempt of the call.
    Call(NewCall<'p>, JsonObject),
    /// Make the next attempt of a branch's tool call, after its retry delay has passed.
    Retry(BranchId),
    /// Count the size of an output toward the limits of the run, and pass the result to
    /// [`count`](super::Scheduler::count). A step has produced this output without a tool call.
    Count(Box<MadeOutput>),
    /// Read the clock, because evaluating expressions may have taken some time. Then request the
    /// next command.
    Continue,
    /// Request no more commands until the reason for the pause is over.
    Pause(Pause),
}

/// The reason why a run does not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Pause {
    /// The run waits for a call to end or for a point in time, such as its deadline.
    Wait,
    /// The run yields to other tasks, because it has evaluated many expressions in a row.
    Yield,
    /// Only questions are pending. The run is suspended until the user answers them.
    Suspended,
    /// The run has ended. No command follows.
    Ended,
}

/// A tool call that is about to start.
pub(in crate::engine) struct NewCall<'p> {
    pub(in crate::engine) id: BranchId,
    pub(in crate::engine) site: &'p CallSite,
    /// The previous attempts of the call and the answers to the tool's questions, if the tool has
    /// asked questions. Otherwise `None`.
    pub(super) resumed: Option<Box<Resumed>>,
}

/// The previous attempts of a tool call that was interrupted because the tool asked questions.
pub(super) struct Resumed {
    /// The start of the first attempt, as a duration since the start of the run.
    pub(super) begun: Duration,
    pub(super) attempts: u32,
    pub(super) answered: Box<Answered>,
}

/// An output that a step has produced without calling a tool, such as the user's answer to a
/// question.
pub(in crate::engine) struct MadeOutput {
    pub(super) step: usize,
    /// The start of the step, as a duration since the start of the run.
    pub(super) begun: Duration,
    pub(super) attempts: u32,
    pub(in crate::engine) output: Value,
}

// === impl NewCall ===

impl NewCall<'_> {
    /// Returns `true` if the tool replied with questions to a previous attempt of this call.
    pub(in crate::engine) const fn is_resumed(&self) -> bool {
        self.resumed.is_some()
    }
}
