//! The commands of a scheduler to its driver.

use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::engine::{branches::BranchId, plan::CallSite, questions::Answered};

/// A command of the scheduler, which its driver must execute next.
pub(in crate::engine) enum Command<'p> {
    /// Check whether the limits of the run, such as `max_calls`, allow another tool call. Pass the
    /// result to [`permit`](super::Scheduler::permit).
    Permit,
    /// Prepare the arguments of a tool call, and make its first attempt.
    Call(NewCall<'p>, JsonObject),
    /// Make the next attempt of a tool call. Its retry delay has passed.
    Retry(BranchId),
    /// Count the output of a step that called no tool toward the limits of the run. Pass the result
    /// to [`count`](super::Scheduler::count).
    Count(Box<MadeOutput>),
    /// Request the next command with the current time, because evaluating expressions may have
    /// taken some time.
    Continue,
    /// Stop requesting commands until the reason for the pause has passed.
    Pause(Pause),
}

/// The reason why the scheduler has no next command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Pause {
    /// The run waits for the end of a call or for a point in time, such as a deadline.
    Wait,
    /// The run has evaluated many expressions in a row, and yields to other tasks.
    Yield,
    /// The run is suspended until the user has answered its questions.
    Suspended,
    Ended,
}

/// A tool call to start.
pub(in crate::engine) struct NewCall<'p> {
    pub(in crate::engine) id: BranchId,
    pub(in crate::engine) site: &'p CallSite,
    /// The previous attempts of the call, and the user's answers to the tool's questions. `None` if
    /// the tool has not asked questions.
    pub(super) resumed: Option<Box<Resumed>>,
}

/// The previous attempts of a tool call that the tool has interrupted with questions to the user.
pub(super) struct Resumed {
    /// The start of the first attempt, as a duration since the start of the run.
    pub(super) begun: Duration,
    pub(super) attempts: u32,
    pub(super) answered: Box<Answered>,
}

/// The output of a step that called no tool, such as the user's answer to a question.
pub(in crate::engine) struct MadeOutput {
    pub(super) step: usize,
    /// The start of the step, as a duration since the start of the run.
    pub(super) begun: Duration,
    pub(super) attempts: u32,
    pub(in crate::engine) output: Value,
}

// === impl NewCall ===

impl NewCall<'_> {
    /// Returns `true` if a previous attempt of this call returned questions to the user.
    pub(in crate::engine) const fn is_resumed(&self) -> bool {
        self.resumed.is_some()
    }
}
