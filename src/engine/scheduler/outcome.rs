//! The end of a run: after its last step, at its deadline, or because of a limit.

use std::{mem, time::Duration};

use rmcp::model::CallToolResult;

use super::{Command, Effects, Loop, Pause, Scheduler};
use crate::engine::{
    attempts::no_answer,
    branches::BranchId,
    meter::Reached,
    milliseconds::milliseconds,
    outcome::{ErrorKind, Outcome, Status, StepError},
    plan::{RunOutput, StepSet},
    state::PendingQuestion,
};

// === impl Scheduler ===

impl<E: Effects> Scheduler<'_, E> {
    /// Ends the run early if it has reached a limit, such as `max_calls`. Running steps may finish,
    /// but no further step starts.
    #[inline]
    pub(in crate::engine) fn reach(&mut self, reached: Option<Reached>, now: Duration) {
        if self.state.reached.is_none() && reached.is_some() {
            self.state.reached = reached;
            self.end_rest(now);
        }
    }

    /// Returns the error of a step that cannot start because a limit ended the run. Returns `None`
    /// if no limit was reached.
    pub(super) fn why_ended(&self) -> Option<StepError> {
        let reached = self.state.reached.as_ref()?;
        Some(reached.refusal(&self.plan.name))
    }

    /// If a limit has ended the run, skips all loop elements that have not started, and ends all
    /// calls that wait for a retry.
    pub(super) fn end_rest(&mut self, now: Duration) {
        let Some(why) = self.why_ended() else { return };
        let mut loops = StepSet::default();
        for each in &mut self.loops {
            let step = each.state.step;
            let skipped = each.cut(&why).map(|element| BranchId { step, element });
            self.state.skipped_elements.extend(skipped.clone());
            let limit = self.state.limit();
            skipped.for_each(|element| self.effects.skip_element(element, limit));
            loops.insert(step);
        }
        // A call that waits for a retry does not count as running. It is ended now instead of being
        // allowed to finish.
        let (mut waiting, calls) =
            mem::take(&mut self.calls).into_iter().partition(|call| call.is_waiting());
        self.calls = calls;
        waiting.sort_unstable_by_key(|call| call.id);
        for call in &waiting {
            self.give_up(call, why.clone(), now);
        }
        for step in loops {
            self.advance(step, now);
        }
    }

    /// Ends the run if no work is left or its deadline has passed. Suspends the run if only
    /// questions to the user are pending.
    pub(in crate::engine) fn end(&mut self, now: Duration) -> Command<'static> {
        // The timer may not have fired yet, because branches that never yield keep it from being
        // polled. If work is left although nothing else has ended the run, the run has reached its
        // deadline.
        let is_late = !self.calls.is_empty()
            || self.loops.iter().any(Loop::has_next)
            || self.next_ready().is_some();
        if self.is_over() || (self.has_ended() && !is_late) {
            self.end_loops_that_wait(now);
            self.stop(Status::Cancelled, now);
        } else if is_late || self.state.asked.is_empty() {
            // This also ends a complete run. The status is irrelevant then, because no step is left
            // that could time out.
            self.stop(Status::TimedOut, now);
        } else {
            self.suspend(now);
            return Command::Pause(Pause::Suspended);
        }
        Command::Pause(Pause::Ended)
    }

    /// Ends the run at a stop step, with the result `result`. Cancels running steps and pending
    /// questions, and skips the remaining steps.
    pub(super) fn stop_early(&mut self, step: usize, result: CallToolResult, now: Duration) {
        let outcome = Outcome::ended(now, now, Status::Completed, None);
        self.finish(step, Outcome { attempts: 0, ..outcome });
        self.stop(Status::Cancelled, now);
        self.state.ended_by = Some(step);
        // The result is added after all other outcomes, because the run would otherwise drop it.
        if let Some(outcome) = &mut self.state.outcomes[step] {
            outcome.result = Some(result.into());
        }
    }

    /// Cancels the steps of a run whose caller has cancelled it. If the finally steps are running,
    /// those with `on_cancel` continue. Otherwise, the run ends, and the driver then starts them.
    pub(in crate::engine) fn cancel(&mut self, now: Duration) -> Command<'static> {
        if !self.state.is_settled() {
            self.stop(Status::Cancelled, now);
            return Command::Pause(Pause::Ended);
        }
        let kept = self.plan.on_cancel;
        for step in self.running.without(kept) {
            self.cut_off(step, Status::Cancelled, now);
        }
        for step in self.waiting.without(kept) {
            self.waiting.remove(step);
            self.record(step, Outcome::skipped());
        }
        Command::Continue
    }

    /// Updates the state of the run so that a new run can resume from it.
    fn suspend(&mut self, now: Duration) {
        let state = &mut self.state;
        state.asked.sort_unstable_by_key(|pending| pending.id);
        state.active_ms = milliseconds(now);
        state.loops = self.loops.drain(..).map(|each| each.state).collect();
        state.loops.sort_unstable_by_key(|each| each.step);
    }

    /// If a limit has ended the run, cancels the loop elements that wait for the user, because no
    /// more questions are asked. The results of the other elements become part of the partial
    /// result of the run.
    fn end_loops_that_wait(&mut self, now: Duration) {
        if self.is_over() || self.state.reached.is_none() {
            return;
        }
        let loops = self.loops.iter().filter(|each| each.has_ended_any());
        let loops: StepSet = loops.map(|each| each.state.step).collect();
        let waits = |pending: &mut PendingQuestion| loops.contains(pending.id.step);
        for pending in self.state.asked.extract_if(.., waits).collect::<Vec<_>>() {
            let outcome = Outcome::ended(pending.begun(), now, Status::Cancelled, self.why_ended());
            let (id, attempts) = (pending.id, pending.attempts);
            // Dropping the question drops its suspended nested runs. They must end before the
            // branch that waits for them.
            drop(pending);
            self.end_element(id, Outcome { attempts, ..outcome }, now);
        }
        for step in loops {
            self.advance(step, now);
        }
    }

    /// Ends the run immediately. Running steps end with `status`, and waiting steps are skipped.
    pub(super) fn stop(&mut self, status: Status, now: Duration) {
        self.effects.end_run();
        let is_complete = self.running.is_empty() && self.waiting.is_empty();
        if is_complete && matches!(self.plan.answer, RunOutput::Outcomes) {
            return self.state.asked.clear();
        }
        let is_late = status == Status::TimedOut;
        if is_late && self.running.is_empty() {
            self.end_late(now);
        }
        self.state.timed_out |= is_late && !is_complete;
        // Processed in the order of the plan, regardless of the order in which the steps began.
        for step in self.running {
            self.cut_off(step, status, now);
        }
        self.state.asked.clear();
        let why = self.why_ended();
        for step in mem::take(&mut self.waiting) {
            let skipped = Outcome { error: why.clone().map(Box::new), ..Outcome::skipped() };
            self.record(step, skipped);
        }
    }

    /// Ends a running step immediately, with the status [`Status::Cancelled`] or
    /// [`Status::TimedOut`].
    fn cut_off(&mut self, step: usize, status: Status, now: Duration) {
        let is_late = status == Status::TimedOut;
        let each = self.place_of_loop(step).map(|place| self.loops.swap_remove(place));
        let call = self.calls.iter().find(|call| call.id.step == step);
        let site = call.and_then(|call| self.chosen(step, call.site));
        let pending = || self.state.asked.iter().filter(|pending| pending.id.step == step);
        // The timer may have fired late, but the error names the time that the step had.
        let end = if is_late { now.min(self.deadline) } else { now };
        let unanswered = |since| (since, no_answer(end.saturating_sub(since)));
        let (since, error) = match (&each, call, pending().next()) {
            (Some(each), ..) => unanswered(each.since),
            (None, Some(call), _) => (call.begun, call.cut_off(end)),
            (None, None, Some(question)) => unanswered(question.begun()),
            (None, None, None) => return,
        };
        let pending_attempts: u32 = pending().map(|pending| pending.attempts).sum();
        let loop_attempts = each.as_ref().map_or(0, |each| each.state.attempts);
        let attempts = loop_attempts + pending_attempts + self.drop_calls(step);
        if let Some(each) = each {
            self.state.preserve_loop(each);
        }
        // Dropping the questions drops their suspended nested runs. They must end before the
        // branch that waits for them.
        self.state.asked.retain(|pending| pending.id.step != step);
        let outcome = Outcome::ended(since, now, status, is_late.then_some(error));
        self.record(step, Outcome { attempts, site, ..outcome });
    }

    /// Marks the last finished step as timed out if it finished after the deadline of the run. Does
    /// nothing with [`RunOutput::Outcomes`], because the results of late steps are still reported.
    fn end_late(&mut self, now: Duration) {
        if now > self.deadline
            && !matches!(self.plan.answer, RunOutput::Outcomes)
            && let Some(&last) = self.state.finished.last()
            && let Some(outcome) = &mut self.state.outcomes[last]
        {
            self.state.timed_out = true;
            outcome.status = Status::TimedOut;
            let late = "the time of the run was over before it ended";
            outcome.error = Some(Box::new(StepError::new(ErrorKind::Timeout, late)));
        }
    }
}
