//! The tool calls of a run: their attempts, deadlines and limits.

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

/// An attempt of a tool call, which the driver must make.
pub(in crate::engine) struct Attempt<'p> {
    pub(in crate::engine) id: BranchId,
    pub(in crate::engine) site: &'p CallSite,
    pub(in crate::engine) input: AttemptInput,
    pub(in crate::engine) begun: Duration,
    pub(in crate::engine) count: u32,
    /// The kind of the previous attempt's error, such as `timeout`. `None` for the first attempt.
    pub(in crate::engine) after: Option<&'static str>,
}

// === impl Scheduler ===

impl<'p, E: Effects> Scheduler<'p, E> {
    /// Handles the driver's response to [`Command::Permit`]. Starts the requested call, unless the
    /// run has reached a limit.
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

    /// Adds a tool call to the running calls, and returns its first attempt. The driver has already
    /// prepared `arguments` for the tool.
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

    /// Starts and returns the next attempt of a call. Returns `None` if the call has ended.
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

    /// Ends a tool call that cannot start, because its arguments are invalid or a limit is
    /// exceeded. If the limit ends the run, the step is skipped. Otherwise, the step fails.
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

    /// Ends a call because a limit forbids its next retry.
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

    /// Fails a call that has not started.
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

    /// Returns the call site of a running call. Returns `None` if the call has ended.
    pub(in crate::engine) fn site_of(&self, id: BranchId) -> Option<&'p CallSite> {
        self.calls.iter().find(|call| call.id == id).map(|call| call.site)
    }

    /// Returns the call site of a running call of this step. Returns `None` if the step has no
    /// running call.
    pub(in crate::engine) fn site_of_step(&self, step: usize) -> Option<&'p CallSite> {
        self.calls.iter().find(|call| call.id.step == step).map(|call| call.site)
    }

    pub(super) fn place_of(&self, id: BranchId) -> Option<usize> {
        self.calls.iter().position(|call| call.id == id)
    }

    /// Returns the first call, in the order of the plan, whose retry delay has passed.
    pub(super) fn next_retry(&mut self) -> Option<BranchId> {
        self.retrying = self.retrying.checked_sub(1)?;
        self.calls.iter().filter(|call| call.is_due()).map(|call| call.id).min()
    }

    /// Returns the earliest deadline of the run, of its calls and of its loops. Ignores calls whose
    /// retry delay has passed.
    pub(in crate::engine) fn due(&self) -> Duration {
        let calls = self.calls.iter().filter(|call| !call.is_due()).map(|call| call.due);
        let loops = self.loops.iter().filter_map(Loop::due);
        calls.chain(loops).fold(self.deadline, Duration::min)
    }

    /// Returns and clears the earliest deadline since the previous call of this method. Returns
    /// `None` if no deadline was set since then.
    pub(in crate::engine) const fn take_soonest(&mut self) -> Option<Duration> {
        self.soonest.take()
    }

    /// Records a new deadline for [`take_soonest`](Self::take_soonest).
    pub(in crate::engine) fn note_due(&mut self, due: Duration) {
        self.soonest = Some(self.soonest.map_or(due, |soonest| soonest.min(due)));
    }

    /// Handles all deadlines up to the time `due`: times out attempts and loops, and ends retry
    /// delays.
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

    /// Handles the end of an attempt. Schedules a retry if the retry policy allows one. Otherwise,
    /// ends the call with `outcome`.
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

    /// Handles an attempt that ended without a reply, for example because the tool panicked.
    pub(in crate::engine) fn lose(&mut self, id: BranchId, error: StepError, now: Duration) {
        let Some(place) = self.place_of(id) else { return };
        let outcome = Outcome::answered(self.calls[place].begun, now, Err(error));
        self.effects.end_attempt(id, &outcome);
        self.end_attempt(id, outcome, now);
    }

    /// Ends a call that waits for a retry. `why` is the reason.
    pub(super) fn give_up(&mut self, call: &Attempts<'p>, why: StepError, now: Duration) {
        let outcome = Outcome::answered(call.begun, now, Err(call.not_again(why)));
        self.end_call(call, outcome, now);
    }

    /// Ends a call with the outcome of its last attempt. Also ends the step, unless the step is a
    /// loop.
    fn end_call(&mut self, call: &Attempts<'p>, outcome: Outcome, now: Duration) {
        self.end_branch(call.id, call.site, Outcome { attempts: call.count, ..outcome }, now);
    }

    /// Ends a step or a loop element with an outcome. A loop may then start its next elements.
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

    /// Like [`end_branch`](Self::end_branch), but only for steps that are not a switch.
    #[inline]
    pub(in crate::engine) fn end_direct(&mut self, id: BranchId, outcome: Outcome, now: Duration) {
        if self.loops.iter().any(|each| each.state.step == id.step) {
            self.end_element(id, outcome, now);
            self.advance(id.step, now);
        } else {
            self.finish(id.step, outcome);
        }
    }

    /// Returns the index of the call site that a switch has chosen. Returns `None` if the step is
    /// not a switch.
    pub(super) fn chosen(&self, step: usize, site: &CallSite) -> Option<usize> {
        let action = &self.plan.steps()[step].action;
        matches!(action, Action::Switch(_)).then_some(site.site)
    }

    /// Moves a step from the running steps back to the waiting steps, because it must not start.
    fn hold_back(&mut self, step: usize) {
        self.running.remove(step);
        self.waiting.insert(step);
    }

    /// Aborts all running calls of a step. Returns the number of their attempts.
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
