//! The commands of a scheduler.

use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::engine::{
    branches::BranchId, plan::CallSite, questions::Answered, state::PendingQuestion,
};

/// The next action of the driver of a run.
pub(in crate::engine) enum Command<'p> {
    /// Ask the limits of the run whether another call may begin, then call
    /// [`permit`](super::Scheduler::permit).
    Permit,
    /// Prepare these evaluated arguments and make the first attempt of a call.
    Call(NewCall<'p>, JsonObject),
    /// Make the next attempt of a call.
    Retry(BranchId),
    /// Count the user's answer against the limits of the run, then call
    /// [`count`](super::Scheduler::count).
    Count(Box<Accepted>),
    /// Continue: expressions were evaluated, which may have taken some time.
    Continue,
    /// Continue later.
    Pause(Pause),
}

/// Why a run does not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Pause {
    /// It waits for a call to end or for a deadline.
    Wait,
    /// It has evaluated many expressions, and lets other tasks run.
    Yield,
    /// It is suspended: only questions to the user are pending.
    Suspended,
    /// It has ended.
    Ended,
}

/// A call that begins.
pub(in crate::engine) struct NewCall<'p> {
    pub(in crate::engine) id: BranchId,
    pub(in crate::engine) site: &'p CallSite,
    /// The previous calls, if the tool has asked the user.
    pub(super) resumed: Option<Box<Resumed>>,
}

/// The previous calls of a tool that has asked the user.
pub(super) struct Resumed {
    /// The start of the first of them.
    pub(super) begun: Duration,
    pub(super) attempts: u32,
    pub(super) answered: Box<Answered>,
}

/// The answer of the user to the question of a step.
pub(in crate::engine) struct Accepted {
    pub(super) asked: PendingQuestion,
    /// The output of the step.
    pub(in crate::engine) output: Value,
}

// === impl NewCall ===

impl NewCall<'_> {
    /// Returns `true` if the tool was called before and has asked the user.
    pub(in crate::engine) const fn is_resumed(&self) -> bool {
        self.resumed.is_some()
    }
}
