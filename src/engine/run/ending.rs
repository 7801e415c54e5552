//! How a run ends before all of its steps have run: late, or at a limit.

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
    questions::PendingQuestion,
};

// === impl Run ===

impl<C: Caller> Run<'_, C> {
    /// Ends the run if a limit of it was reached, or of one around it.
    pub(super) fn note_limit(&mut self) {
        if self.state.reached.is_none()
            && let Some(reached) = self.scope.reached()
        {
            self.end_at(reached);
        }
    }

    /// Whether another call may begin; if not, the run ends.
    pub(super) fn may_call(&mut self) -> bool {
        if self.state.reached.is_none()
            && let Some(reached) = self.scope.reached_by_call()
        {
            self.end_at(reached);
        }
        self.state.reached.is_none()
    }

    /// Takes a step back that was about to start; it is skipped at the end.
    pub(super) fn hold_back(&mut self, step: usize) {
        self.running.remove(step);
        self.waiting.insert(step);
    }

    /// Why what has not begun never will, if that is because of a limit.
    pub(super) fn why_ended(&self) -> Option<StepError> {
        let reached = self.state.reached.as_ref()?;
        Some(reached.refusal(&self.plan.name))
    }

    /// Notes that an element of a loop does not begin after all, which ends the run.
    pub(super) fn skip_element(&mut self, element: BranchId) {
        self.state.reached = self.state.reached.take().or_else(|| self.scope.reached());
        self.state.skipped_elements.push(element);
        if let Some(watching) = &self.watching {
            watching.skip_element(element, self.state.limit());
        }
        self.end_rest();
    }

    /// Ends the run: nothing further starts, and what runs goes on to its end.
    fn end_at(&mut self, reached: Reached) {
        self.state.reached = Some(reached);
        self.end_rest();
    }

    /// Ends what has not begun, since a limit was reached.
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
        // What waits for its next attempt does not run.
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

    /// Ends the loops of which elements wait for a person who is asked nothing more, since
    /// a limit was reached: what their other elements gave is part of what there is.
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
            // With what it keeps of runs within it, which end before it does.
            drop(asked);
            self.end_element(id, Outcome { attempts, ..outcome });
        }
        for step in loops {
            self.advance(step);
        }
    }

    /// Ends the run without waiting for what still runs.
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
            // With what it keeps of runs within it, which end before it does.
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

    /// Takes what was last for what took the run past its deadline, if it is past it.
    ///
    /// What a fan-out has counts whenever it came.
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
