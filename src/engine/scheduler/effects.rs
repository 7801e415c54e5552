//! The effects of a scheduler: actions that it orders from its driver without expecting a reply.

use super::Loop;
use crate::engine::{branches::BranchId, meter::LimitName, outcome::Outcome};

/// Receives the effects of a scheduler, in the order in which they occur.
pub(in crate::engine) trait Effects {
    /// Aborts a call. Its result is ignored from then on.
    fn abort(&mut self, id: BranchId);

    /// Reports that a step begins.
    fn begin_step(&mut self, step: usize);

    /// Reports that a step begins that is a question, or a loop with at least one element.
    fn open_step(&mut self, step: usize);

    /// Reports that a loop begins or resumes, with all of its elements.
    fn split_step(&mut self, each: &Loop<'_>);

    /// Reports that an element of a loop begins.
    fn begin_element(&mut self, id: BranchId);

    /// Reports that a tool call or a step waits for answers of the user.
    fn wait(&mut self, id: BranchId);

    /// Reports the end of an attempt to call a tool.
    fn end_attempt(&mut self, id: BranchId, outcome: &Outcome);

    /// Reports the end of an element of a loop.
    fn end_element(&mut self, id: BranchId, outcome: &Outcome, limit: LimitName);

    /// Reports that an element of a loop is skipped because of a limit.
    fn skip_element(&mut self, id: BranchId, limit: LimitName);

    /// Reports the end of a step.
    fn end_step(&mut self, step: usize, outcome: &Outcome, limit: LimitName);

    /// Reports that the run is about to end, so that no further step begins.
    fn end_run(&mut self);
}
