//! Ends a run before all of its steps have run: at its deadline or at a limit.

use std::mem;

use tokio::time::Instant;

use super::{Run, no_answer};
use crate::engine::{
    attempts::Times,
    branches::BranchId,
    caller::Caller,
    meter::Reached,
    outcome::{ErrorKind, Outcome, Status, StepError},
    plan::{RunOutput, StepSet},
    state::PendingQuestion,
};

// === impl Run ===

impl<C: Caller> Run<'_, C> {
    /// Ends the run if a limit of it or of an outer run was reached.
    pub(super) fn note_limit(&mut self) {
        if self.state.reached.is_none()
            && let Some(reached) = self.scope.reached()
        {
            self.end_at(reached);
        }
    }

    /// Returns `true` if another call may begin; otherwise the run ends.
    pub(super) fn may_call(&mut self) -> bool {
        if self.state.reached.is_none()
            && let Some(reached) = self.scope.reached_by_call()
        {
            self.end_at(reached);
        }
        self.state.reached.is_none()
    }

    /// Returns a step that was about to start to the waiting ones; it is skipped at the end.
    pub(super) fn hold_back(&mut self, step: usize) {
        self.running.remove(step);
        self.waiting.insert(step);
    }

    /// Returns the error of steps that never begin because of a limit, if one was reached.
    pub(super) fn why_ended(&self) -> Option<StepError> {
        let reached = self.state.reached.as_ref()?;
        Some(reached.refusal(&self.plan.name))
    }

    /// Skips an element of a loop, which ends the run.
    pub(super) fn skip_element(&mut self, element: BranchId) {
        self.state.reached = self.state.reached.take().or_else(|| self.scope.reached());
        self.state.skipped_elements.push(element);
        if let Some(watching) = &self.watching {
            watching.skip_element(element, self.state.limit());
        }
        self.end_rest();
    }

    /// Ends the run: no further step starts, and running ones finish.
    fn end_at(&mut self, reached: Reached) {
        self.state.reached = Some(reached);
        self.end_rest();
    }

    /// Skips everything that has not begun, because a limit was reached.
    fn end_rest(&mut self) {
        let Some(why) = self.why_ended() else { return };
        let mut loops = StepSet::default();
        for each in &mut self.loops {
            let step = each.step;
            let skipped = each.cut(&why).map(|element| BranchId { step, element });
            self.state.skipped_elements.extend(skipped.clone());
            if let Some(watching) = &self.watching {
                let limit = self.state.limit();
                skipped.for_each(|element| watching.skip_element(element, limit));
            }
            loops.insert(step);
        }
        // A call that waits for its next attempt is not running.
        let now = Instant::now();
        let (mut waiting, calls) =
            mem::take(&mut self.calls).into_iter().partition(|call| call.is_waiting());
        self.calls = calls;
        waiting.sort_unstable_by_key(|call| call.id);
        for call in &waiting {
            self.give_up(call, why.clone(), now);
        }
        for step in loops {
            self.advance(step);
        }
    }

    /// Ends the loops whose elements wait for the user, who is not asked any more because a limit
    /// was reached. The results of their other elements are part of the partial result.
    pub(super) fn end_loops_that_wait(&mut self) {
        if self.is_over() || self.state.reached.is_none() {
            return;
        }
        let loops = self.loops.iter().filter(|each| each.has_ended_any());
        let loops: StepSet = loops.map(|each| each.step).collect();
        let now = Instant::now();
        let waits = |asked: &mut PendingQuestion| loops.contains(asked.id.step);
        for asked in self.state.asked.extract_if(.., waits).collect::<Vec<_>>() {
            let times = Times { run: self.begun, step: self.after(asked.started_ms) };
            let outcome = times.ended(Status::Cancelled, self.why_ended(), now);
            let (id, attempts) = (asked.id, asked.attempts);
            // Including the suspended runs within it, which end before it does.
            drop(asked);
            self.end_element(id, Outcome { attempts, ..outcome });
        }
        for step in loops {
            self.advance(step);
        }
    }

    /// Ends the run without waiting for running steps.
    pub(super) fn stop(&mut self, status: Status) {
        if let Some(watching) = &mut self.watching {
            watching.end_run();
        }
        let is_complete = self.running.is_empty() && self.waiting.is_empty();
        if is_complete && matches!(self.plan.answer, RunOutput::Outcomes) {
            return self.state.asked.clear();
        }
        let now = Instant::now();
        let is_late = status == Status::TimedOut;
        if is_late && self.running.is_empty() {
            self.end_late(now);
        }
        self.state.timed_out |= is_late && !(self.running.is_empty() && self.waiting.is_empty());
        // In the order of the plan, whichever began last.
        for step in self.running {
            let each = self.loops.iter().position(|each| each.step == step);
            let each = each.map(|place| self.loops.swap_remove(place));
            let call = self.calls.iter().find(|call| call.id.step == step);
            let site = call.and_then(|call| self.chosen(step, call.site));
            let asked = || self.state.asked.iter().filter(|asked| asked.id.step == step);
            let (since, error) = match (&each, call, asked().next()) {
                (Some(each), ..) => (each.since, no_answer(now - each.since)),
                (None, Some(call), _) => (call.begun, call.cut_off(now)),
                (None, None, Some(asked)) => {
                    let since = self.after(asked.started_ms);
                    (since, no_answer(now.saturating_duration_since(since)))
                }
                (None, None, None) => continue,
            };
            let in_vain: u32 = asked().map(|asked| asked.attempts).sum();
            let attempts =
                each.as_ref().map_or(0, |each| each.attempts) + in_vain + self.drop_calls(step);
            if let Some(each) = each {
                self.state.preserve_loop(each);
            }
            // Including the suspended runs within it, which end before it does.
            self.state.asked.retain(|asked| asked.id.step != step);
            let times = Times { run: self.begun, step: since };
            let outcome = times.ended(status, is_late.then_some(error), now);
            self.note(step, Outcome { attempts, site, ..outcome });
        }
        self.state.asked.clear();
        let why = self.why_ended();
        for step in mem::take(&mut self.waiting) {
            let skipped = Outcome { error: why.clone().map(Box::new), ..Outcome::skipped() };
            self.note(step, skipped);
        }
    }

    /// Marks the last step as timed out if the run has passed its deadline.
    ///
    /// The results of a fan-out count even if they are late.
    fn end_late(&mut self, now: Instant) {
        if now > self.scope.deadline
            && !matches!(self.plan.answer, RunOutput::Outcomes)
            && let Some(last) = self.last
            && let Some(outcome) = &mut self.state.outcomes[last]
        {
            self.state.timed_out = true;
            outcome.status = Status::TimedOut;
            let late = "the time of the run was over before it ended";
            outcome.error = Some(Box::new(StepError::new(ErrorKind::Timeout, late)));
        }
    }
}
