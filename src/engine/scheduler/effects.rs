//! The effects of a scheduler: actions that it orders from its driver, and that need no reply.

use super::Loop;
use crate::engine::{branches::BranchId, meter::LimitName, outcome::Outcome};

/// Receives the effects of a scheduler, in the order in which they happen.
pub(in crate::engine) trait Effects {
    /// Stops a call. The result of the call is ignored from then on.
    fn abort(&mut self, id: BranchId);

    /// Reports that a step begins.
    fn begin_step(&mut self, step: usize);

    /// Reports that a loop with elements, or a question, begins.
    fn open_step(&mut self, step: usize);

    /// Reports the elements of a loop that begins or resumes.
    fn split_step(&mut self, each: &Loop<'_>);

    /// Reports that an element of a loop begins.
    fn begin_element(&mut self, id: BranchId);

    /// Reports that a call, or a step, waits for the user.
    fn wait(&mut self, id: BranchId);

    /// Reports the end of an attempt.
    fn end_attempt(&mut self, id: BranchId, outcome: &Outcome);

    /// Reports the end of an element of a loop.
    fn end_element(&mut self, id: BranchId, outcome: &Outcome, limit: LimitName);

    /// Reports that an element of a loop is skipped because of a limit.
    fn skip_element(&mut self, id: BranchId, limit: LimitName);

    /// Reports the end of a step.
    fn end_step(&mut self, step: usize, outcome: &Outcome, limit: LimitName);

    /// Reports that the run is ending: no further step begins.
    fn end_run(&mut self);
}
