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
    /// Make the next attempt of a call.
    Retry(BranchId),
    /// Count the size of an output toward the limits of the run. A step has produced this output
    /// without a tool call. Pass the result to [`count`](super::Scheduler::count).
    Count(Box<MadeOutput>),
    /// Read the clock, because evaluating expressions may have taken some time. Then request the
    /// next command.
    Continue,
    /// Stop requesting commands for now. Contains the reason.
    Pause(Pause),
}

/// The reason why a run does not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Pause {
    /// The run waits for a call to end or for a deadline.
    Wait,
    /// The run yields to other tasks, because it has evaluated many expressions in a row.
    Yield,
    /// Only questions are pending. The run is suspended until the user answers them.
    Suspended,
    /// The run has ended.
    Ended,
}

/// A tool call that is about to start.
pub(in crate::engine) struct NewCall<'p> {
    pub(in crate::engine) id: BranchId,
    pub(in crate::engine) site: &'p CallSite,
    /// The previous attempts of the call, and the answers to the questions that the tool asked in
    /// the last of them. `None` if the tool has not asked questions.
    pub(super) resumed: Option<Box<Resumed>>,
}

/// The previous attempts of a tool call that was interrupted by questions of the tool.
pub(super) struct Resumed {
    /// The start of the first attempt.
    pub(super) begun: Duration,
    pub(super) attempts: u32,
    pub(super) answered: Box<Answered>,
}

/// An output that a step has produced without calling a tool, such as the user's answer to a
/// question.
pub(in crate::engine) struct MadeOutput {
    pub(super) step: usize,
    /// The start of the step.
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
