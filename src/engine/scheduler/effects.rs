//! Effects of the scheduler: actions that its driver executes without a response.

use super::Loop;
use crate::engine::{branches::BranchId, meter::LimitName, outcome::Outcome};

/// Executes the effects of a scheduler, such as reports to observers. The scheduler calls the
/// methods in the order in which the events occur.
pub(in crate::engine) trait Effects {
    /// Aborts the tool call of a step or loop element. The driver must ignore its result from then
    /// on.
    fn abort(&mut self, id: BranchId);

    /// Reports to the client that a step has started.
    fn begin_step(&mut self, step: usize);

    /// Reports to observers that a step without a call of its own has started: a question, or a
    /// loop with at least one element.
    fn open_step(&mut self, step: usize);

    /// Reports that a loop has started or resumed.
    fn split_step(&mut self, each: &Loop<'_>);

    /// Reports to the client that a loop element has started.
    fn begin_element(&mut self, id: BranchId);

    /// Reports that a step or loop element waits for the user's answers.
    fn wait(&mut self, id: BranchId);

    /// Reports the outcome of an attempt to call a tool.
    fn end_attempt(&mut self, id: BranchId, outcome: &Outcome);

    /// Reports that a loop element has ended. `limit` is the name of the limit that ended the run,
    /// such as `max_calls`, or `None`.
    fn end_element(&mut self, id: BranchId, outcome: &Outcome, limit: LimitName);

    /// Reports that a loop element was skipped. `limit` is the name of the limit that ended the
    /// run, such as `max_calls`, or `None`.
    fn skip_element(&mut self, id: BranchId, limit: LimitName);

    /// Reports that a step has ended or was skipped. `limit` is the name of the limit that ended
    /// the run, such as `max_calls`, or `None`.
    fn end_step(&mut self, step: usize, outcome: &Outcome, limit: LimitName);

    /// Reports that the run is ending, so that no further step starts.
    fn end_run(&mut self);
}
