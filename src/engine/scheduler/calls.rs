//! The tool calls of a run: their attempts, their deadlines, and the limits that end them.

use std::time::Duration;

use rmcp::model::JsonObject;

use super::{Command, Effects, Loop, NewCall, Scheduler, Start};
use crate::engine::{
    attempts::{AttemptInput, Attempts},
    branches::BranchId,
    meter::Reached,
    outcome::{Outcome, StepError},
    plan::{Action, CallSite},
};

/// A new attempt of a tool call, which the driver of the scheduler must make.
pub(in crate::engine) struct Attempt<'p> {
    pub(in crate::engine) id: BranchId,
    pub(in crate::engine) site: &'p CallSite,
    pub(in crate::engine) input: AttemptInput,
    /// The start of the first attempt.
    pub(in crate::engine) begun: Duration,
    /// The number of this attempt, starting at 1.
    pub(in crate::engine) count: u32,
    /// The error kind of the previous attempt of the call. `None` for the first attempt.
    pub(in crate::engine) after: Option<&'static str>,
}

// === impl Scheduler ===

impl<'p, E: Effects> Scheduler<'p, E> {
    /// Processes the driver's reply to [`Command::Permit`]. Starts the call for which the permit
    /// was requested, unless a limit was reached.
    pub(in crate::engine) fn permit(
        &mut self,
        reached: Option<Reached>,
        now: Duration,
    ) -> Command<'p> {
        self.reach(reached, now);
        match self.requested.take().map(|start| *start) {
            Some(start) if self.state.reached.is_none() => return self.begin(start, now),
            Some(Start::Call(step, _) | Start::Loop(step, ..)) => self.hold_back(step),
            Some(Start::Element(_)) | None => (),
        }
        Command::Continue
    }

    /// Adds a tool call to the pending calls, and returns its first attempt. `arguments` must
    /// already be prepared for the tool.
    pub(in crate::engine) fn begin_call(
        &mut self,
        call: NewCall<'p>,
        arguments: JsonObject,
        now: Duration,
    ) -> Attempt<'p> {
        let NewCall { id, site, resumed } = call;
        let step = &self.plan.steps()[id.step];
        let mut attempts = Attempts::new(id, site, arguments, step, now);
        if let Some(resumed) = resumed {
            attempts = attempts.resumed(resumed.begun, resumed.attempts, resumed.answered);
        }
        self.calls.push(attempts);
        self.begin_attempt(self.calls.len() - 1, now)
    }

    /// Starts the next attempt of a pending call, and returns the attempt. Returns `None` if the
    /// call has already ended.
    pub(in crate::engine) fn begin_retry(
        &mut self,
        id: BranchId,
        now: Duration,
    ) -> Option<Attempt<'p>> {
        let place = self.place_of(id)?;
        Some(self.begin_attempt(place, now))
    }

    fn begin_attempt(&mut self, place: usize, now: Duration) -> Attempt<'p> {
        let call = &mut self.calls[place];
        let after = call.failed_before();
        let input = call.begin(now);
        let Attempts { id, site, begun, count, due, .. } = *call;
        self.note_due(due);
        Attempt { id, site, input, begun, count, after }
    }

    /// Ends a tool call that cannot start, because its arguments are invalid or a limit was
    /// reached. If a limit ends the run, the step is skipped. Otherwise, the step fails.
    pub(in crate::engine) fn reject_call(
        &mut self,
        call: NewCall<'p>,
        error: StepError,
        reached: Option<Reached>,
        now: Duration,
    ) {
        let NewCall { id, site, resumed } = call;
        if let Some(resumed) = resumed {
            self.reach(reached, now);
            let outcome = Outcome::answered(resumed.begun, now, Err(error));
            let outcome = Outcome { attempts: resumed.attempts, ..outcome };
            return self.end_branch(id, site, outcome, now);
        }
        if !error.ends_run {
            return self.fail_call(id, site, error, now);
        }
        if self.plan.steps()[id.step].is_loop() {
            return self.skip_element(id, error, reached, now);
        }
        self.reach(reached, now);
        self.hold_back(id.step);
    }

    /// Ends a call whose next retry a limit prevents.
    pub(in crate::engine) fn reject_retry(
        &mut self,
        id: BranchId,
        error: StepError,
        reached: Option<Reached>,
        now: Duration,
    ) {
        let call = self.place_of(id).map(|place| self.calls.swap_remove(place));
        self.reach(reached, now);
        if let Some(call) = call {
            self.give_up(&call, error, now);
        }
    }

    /// Fails a call that never started.
    pub(super) fn fail_call(
        &mut self,
        id: BranchId,
        site: &CallSite,
        error: StepError,
        now: Duration,
    ) {
        let outcome = self.uncalled(error, now);
        self.end_branch(id, site, outcome, now);
    }

    /// Returns the call site of the pending call with this ID. Returns `None` if the call has
    /// ended.
    pub(in crate::engine) fn site_of(&self, id: BranchId) -> Option<&'p CallSite> {
        self.calls.iter().find(|call| call.id == id).map(|call| call.site)
    }

    /// Returns the call site of a pending call of this step. If the step has several pending calls,
    /// any of them is used. Returns `None` if the step has no pending call.
    pub(in crate::engine) fn site_of_step(&self, step: usize) -> Option<&'p CallSite> {
        self.calls.iter().find(|call| call.id.step == step).map(|call| call.site)
    }

    pub(super) fn place_of(&self, id: BranchId) -> Option<usize> {
        self.calls.iter().position(|call| call.id == id)
    }

    /// Returns the first pending call, in the order of the plan, whose next attempt is due.
    pub(super) fn next_retry(&mut self) -> Option<BranchId> {
        self.retrying = self.retrying.checked_sub(1)?;
        self.calls.iter().filter(|call| call.is_due()).map(|call| call.id).min()
    }

    /// Returns the earliest deadline of the run, of its pending calls and of its loops. Calls whose
    /// next attempt is already due are ignored.
    pub(in crate::engine) fn due(&self) -> Duration {
        let calls = self.calls.iter().filter(|call| !call.is_due()).map(|call| call.due);
        let loops = self.loops.iter().filter_map(Loop::due);
        calls.chain(loops).fold(self.deadline, Duration::min)
    }

    /// Returns the earliest of the deadlines that were set since the previous call of this method.
    /// Returns `None` if none was set.
    pub(in crate::engine) const fn take_soonest(&mut self) -> Option<Duration> {
        self.soonest.take()
    }

    /// Records a new deadline, so that [`take_soonest`](Self::take_soonest) returns the earliest
    /// deadline that was set.
    pub(super) fn note_due(&mut self, due: Duration) {
        self.soonest = Some(self.soonest.map_or(due, |soonest| soonest.min(due)));
    }

    /// Processes all deadlines up to the time `due`: times out attempts and loops whose deadline
    /// has passed, and marks retries whose delay has passed as due.
    pub(in crate::engine) fn pass(&mut self, due: Duration, now: Duration) {
        let mut late = Vec::new();
        for call in self.calls.iter_mut().filter(|call| call.due <= due) {
            if !call.is_waiting() {
                late.push(call.id);
            } else if call.make_due() {
                self.retrying += 1;
            }
        }
        // Processed in the order of the plan, regardless of the order in which the calls began.
        late.sort_unstable();
        for id in late {
            let place = self.place_of(id);
            if let Some(outcome) = place.map(|place| self.calls[place].late(now)) {
                self.effects.abort(id);
                self.effects.end_attempt(id, &outcome);
                self.end_attempt(id, outcome, now);
            }
        }
        self.pass_loops(due, now);
    }

    /// Records the outcome of an attempt that has ended. If the retry policy allows another
    /// attempt, schedules it. Otherwise, ends the call.
    pub(in crate::engine) fn end_attempt(
        &mut self,
        id: BranchId,
        mut outcome: Outcome,
        now: Duration,
    ) {
        let Some(place) = self.place_of(id) else { return };
        let call = &mut self.calls[place];
        let waits = call.wait(&mut outcome, now, &mut self.random);
        if waits {
            let due = call.due;
            self.note_due(due);
            if self.state.reached.is_none() {
                return;
            }
        }
        let call = self.calls.swap_remove(place);
        if waits && let Some(why) = self.why_ended() {
            return self.give_up(&call, why, now);
        }
        self.end_call(&call, outcome, now);
    }

    /// Records that an attempt ended with `error` and without a reply, for example because it
    /// panicked.
    pub(in crate::engine) fn lose(&mut self, id: BranchId, error: StepError, now: Duration) {
        let Some(place) = self.place_of(id) else { return };
        let outcome = Outcome::answered(self.calls[place].begun, now, Err(error));
        self.effects.end_attempt(id, &outcome);
        self.end_attempt(id, outcome, now);
    }

    /// Ends a call that waits for a retry, so that the retry is not made. `why` is the reason.
    pub(super) fn give_up(&mut self, call: &Attempts<'p>, why: StepError, now: Duration) {
        let outcome = Outcome::answered(call.begun, now, Err(call.not_again(why)));
        self.end_call(call, outcome, now);
    }

    /// Ends a tool call with the outcome of its last attempt. This also ends the step, unless the
    /// step is a loop.
    fn end_call(&mut self, call: &Attempts<'p>, outcome: Outcome, now: Duration) {
        self.end_branch(call.id, call.site, Outcome { attempts: call.count, ..outcome }, now);
    }

    /// Ends a branch with an outcome. For a step, records the outcome of the step. For a loop
    /// element, records the outcome of the element and lets the loop start its next elements.
    pub(super) fn end_branch(
        &mut self,
        id: BranchId,
        site: &CallSite,
        mut outcome: Outcome,
        now: Duration,
    ) {
        outcome.site = self.chosen(id.step, site);
        self.end_direct(id, outcome, now);
    }

    /// Ends a branch like [`end_branch`](Self::end_branch), if its step is not a switch.
    #[inline]
    pub(in crate::engine) fn end_direct(&mut self, id: BranchId, outcome: Outcome, now: Duration) {
        if self.loops.iter().any(|each| each.step == id.step) {
            self.end_element(id, outcome, now);
            self.advance(id.step, now);
        } else {
            self.finish(id.step, outcome);
        }
    }

    /// Returns the index of the call site that the step has chosen, if the step is a switch.
    /// Returns `None` for other steps.
    pub(super) fn chosen(&self, step: usize, site: &CallSite) -> Option<usize> {
        let action = &self.plan.steps()[step].action;
        matches!(action, Action::Switch(_)).then_some(site.site)
    }

    /// Moves a step that was about to start back to the steps that have not started.
    fn hold_back(&mut self, step: usize) {
        self.running.remove(step);
        self.waiting.insert(step);
    }

    /// Aborts all pending calls of a step. Returns the number of attempts that were made for them.
    pub(super) fn drop_calls(&mut self, step: usize) -> u32 {
        let mut made = 0;
        let Self { calls, effects, .. } = self;
        calls.retain(|call| {
            let is_dropped = call.id.step == step;
            if is_dropped {
                effects.abort(call.id);
                made += call.count;
            }
            !is_dropped
        });
        made
    }
}
