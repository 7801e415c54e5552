//! Predicts whether the user's answer to one question ends the run at a stop step. Other pending
//! questions can then be withdrawn.

use std::time::Duration;

use super::{
    branches::BranchId,
    meter::LimitName,
    milliseconds::{milliseconds, unix_ms},
    outcome::Outcome,
    plan::{Plan, StepSet},
    question::Response,
    scheduler::{Asking, Command, Effects, Loop, Pause, Scheduler, Settings},
    state::RunState,
};

/// Ignores all effects. The prediction must not report events or abort calls of the real run.
struct NoEffects;

// === impl RunState ===

impl RunState {
    /// Returns `true` if `response` to the question `key` certainly ends the run at a stop step.
    /// The responses to other questions must make no difference, and no tool call may be necessary.
    /// To predict this, resumes a copy of the suspended run in which no tool call ends.
    pub(super) fn is_stopped_by(&self, plan: &Plan, key: &str, response: &Response) -> bool {
        let mut state = Box::new(self.clone());
        state.answer(plan, [(key.to_owned(), response.clone())].into());
        let now = state.active();
        let asking = Asking {
            started_unix_ms: unix_ms().saturating_sub(milliseconds(now)),
            has_forms: true,
            closed: None,
            room: usize::MAX,
            steps: StepSet::default(),
            read_only: Vec::new(),
        };
        let settings = Settings {
            deadline: Duration::MAX,
            is_limited: false,
            tools_may_ask: true,
            seed: 0,
            asking: Some(Box::new(asking)),
            repeatable: Vec::new(),
        };
        let mut scheduler = Scheduler::new(plan, state, settings, NoEffects);
        loop {
            match scheduler.resume(now).unwrap_or_else(|| scheduler.next(now)) {
                Command::Count(made) => scheduler.count(*made, Ok(()), now),
                Command::Pause(Pause::Yield) => scheduler.go_on(),
                Command::Pause(_) => break,
                Command::Permit | Command::Call(..) | Command::Retry(_) | Command::Continue => (),
            }
        }
        scheduler.state.ended_by.is_some_and(|step| plan.is_stop(step))
    }
}

// === impl NoEffects ===

impl Effects for NoEffects {
    fn abort(&mut self, _: BranchId) {}
    fn begin_step(&mut self, _: usize) {}
    fn open_step(&mut self, _: usize) {}
    fn split_step(&mut self, _: &Loop<'_>) {}
    fn begin_element(&mut self, _: BranchId) {}
    fn wait(&mut self, _: BranchId) {}
    fn end_attempt(&mut self, _: BranchId, _: &Outcome) {}
    fn end_element(&mut self, _: BranchId, _: &Outcome, _: LimitName) {}
    fn skip_element(&mut self, _: BranchId, _: LimitName) {}
    fn end_step(&mut self, _: usize, _: &Outcome, _: LimitName) {}
    fn end_run(&mut self) {}
}
