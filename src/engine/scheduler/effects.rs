//! The effects of a scheduler: actions that its driver must carry out, but that return nothing to
//! the scheduler.

use super::Loop;
use crate::engine::{branches::BranchId, meter::LimitName, outcome::Outcome};

/// Carries out the effects of a scheduler. The methods are called in the order in which the effects
/// occur.
pub(in crate::engine) trait Effects {
    /// Aborts the tool call of a branch. The caller must ignore its result from then on.
    fn abort(&mut self, id: BranchId);

    /// Reports to the client that a step has started.
    fn begin_step(&mut self, step: usize);

    /// Reports to observers that a question, or a loop with at least one element, has started.
    fn open_step(&mut self, step: usize);

    /// Reports that a loop has started or resumed. `each` contains all of its elements.
    fn split_step(&mut self, each: &Loop<'_>);

    /// Reports to the client that a loop element has started.
    fn begin_element(&mut self, id: BranchId);

    /// Reports that a branch waits for the user to answer its questions.
    fn wait(&mut self, id: BranchId);

    /// Reports the outcome of an attempt to call a tool.
    fn end_attempt(&mut self, id: BranchId, outcome: &Outcome);

    /// Reports that a loop element has ended. `limit` is the limit that has ended the run, if any.
    fn end_element(&mut self, id: BranchId, outcome: &Outcome, limit: LimitName);

    /// Reports that a loop element was skipped because of `limit`, the limit that has ended the
    /// run.
    fn skip_element(&mut self, id: BranchId, limit: LimitName);

    /// Reports that a step has ended or was skipped. `limit` is the limit that has ended the run,
    /// if any.
    fn end_step(&mut self, step: usize, outcome: &Outcome, limit: LimitName);

    /// Reports that the run is about to end, so that no further step starts.
    fn end_run(&mut self);
}
