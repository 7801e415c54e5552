//! The effects of a scheduler: actions that its driver must carry out, but that return nothing to
//! the scheduler.

use super::Loop;
use crate::engine::{branches::BranchId, meter::LimitName, outcome::Outcome};

/// Carries out the effects of a scheduler. The methods are called in the order in which the effects
/// occur.
pub(in crate::engine) trait Effects {
    /// Aborts the tool call of a branch. Its result must be ignored from then on.
    fn abort(&mut self, id: BranchId);

    /// Reports that a step begins.
    fn begin_step(&mut self, step: usize);

    /// Reports that a question, or a loop with at least one element, has started.
    fn open_step(&mut self, step: usize);

    /// Reports that a loop has started or resumed. `each` contains all of its elements.
    fn split_step(&mut self, each: &Loop<'_>);

    /// Reports that an element of a loop begins.
    fn begin_element(&mut self, id: BranchId);

    /// Reports that a branch waits for the user to answer its questions.
    fn wait(&mut self, id: BranchId);

    /// Reports the end of an attempt to call a tool, with the outcome of the attempt.
    fn end_attempt(&mut self, id: BranchId, outcome: &Outcome);

    /// Reports the end of an element of a loop.
    fn end_element(&mut self, id: BranchId, outcome: &Outcome, limit: LimitName);

    /// Reports that a loop element is skipped because a limit was reached.
    fn skip_element(&mut self, id: BranchId, limit: LimitName);

    /// Reports the end of a step.
    fn end_step(&mut self, step: usize, outcome: &Outcome, limit: LimitName);

    /// Reports that the run is about to end, so that no further step starts.
    fn end_run(&mut self);
}
