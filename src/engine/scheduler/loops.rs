//! The loops of a run: their start, their elements and their end.

use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::{Command, Effects, Loop, NewCall, Scheduler, object};
use crate::engine::{
    branches::BranchId,
    meter::Reached,
    outcome::{ErrorKind, Outcome, Status, StepError},
    plan::{Arguments, LoopPlan, Repeat},
};

// === impl Scheduler ===

impl<'p, E: Effects> Scheduler<'p, E> {
    pub(super) fn begin_loop(
        &mut self,
        step: usize,
        each: &'p LoopPlan,
        items: Vec<Value>,
        now: Duration,
    ) {
        self.effects.begin_step(step);
        let each = Loop::new(step, each, items, now);
        if !each.is_done() {
            self.effects.open_step(step);
        }
        self.add_loop(each);
        self.advance(step, now);
    }

    /// Adds a loop to the running loops when it starts or resumes.
    pub(super) fn add_loop(&mut self, each: Loop<'p>) {
        self.effects.split_step(&each);
        self.loops.push(each);
        self.note_loop(self.loops.len() - 1);
    }

    pub(super) fn place_of_loop(&self, step: usize) -> Option<usize> {
        self.loops.iter().position(|each| each.state.step == step)
    }

    /// Returns the step of a loop that can start its next element now.
    #[inline]
    pub(super) fn next_loop(&mut self) -> Option<usize> {
        while let Some(step) = { self.advancing }.next() {
            if self.place_of_loop(step).is_some_and(|place| self.loops[place].may_begin()) {
                return Some(step);
            }
            self.advancing.remove(step);
        }
        None
    }

    /// Starts the next element of a loop.
    pub(super) fn begin_element(&mut self, step: usize, now: Duration) -> Command<'p> {
        let Some(place) = self.place_of_loop(step) else { return Command::Continue };
        let Some(element) = self.loops[place].begin_next(now) else { return Command::Continue };
        self.note_loop(place);
        let id = BranchId { step, element };
        self.effects.begin_element(id);
        let site = &self.loops[place].definition.call;
        if self.is_lost(id, site) {
            self.lose_call(id, site, now, now, 1);
            return Command::Continue;
        }
        match self.element_arguments(place, element) {
            Ok(arguments) => Command::Call(NewCall { id, site, resumed: None }, arguments),
            Err(error) => {
                self.fail_call(id, site, error, now);
                Command::Continue
            }
        }
    }

    /// Evaluates the arguments of the call of a loop element. `place` is the index of the loop in
    /// the list of running loops.
    pub(super) fn element_arguments(
        &mut self,
        place: usize,
        element: usize,
    ) -> Result<JsonObject, StepError> {
        self.count_evaluation();
        let each = &mut self.loops[place];
        object(match &each.definition.call.arguments {
            Arguments::Input => Ok(Some(self.state.input.clone())),
            Arguments::Mapped(expression) => {
                let item = each.item(element);
                self.state.evaluate_at(item, element, |data| expression.evaluate_in(data))
            }
        })
    }

    /// Records when the loop must continue: at the end of a delay, or at its timeout.
    fn note_loop(&mut self, place: usize) {
        if let Some(due) = self.loops[place].due() {
            self.note_due(due);
        }
    }

    /// Ends the delays of loops that have passed by the time `due`, and times out loops whose
    /// deadline has passed.
    pub(super) fn pass_loops(&mut self, due: Duration, now: Duration) {
        for each in &mut self.loops {
            if each.end_pause(due) {
                self.advancing.insert(each.state.step);
            }
        }
        let is_late = |each: &Loop<'_>| each.deadline().is_some_and(|deadline| deadline <= due);
        while let Some(place) = self.loops.iter().position(is_late) {
            let each = &self.loops[place];
            let ended = each.ended().count();
            let why = each.definition.as_repeat().map(|repeat| repeat.unfinished(ended, "timeout"));
            let why = StepError::new(ErrorKind::Timeout, why.unwrap_or_default());
            self.fail_loop(place, Status::TimedOut, Some(why), now);
        }
    }

    /// Lets a loop start its next elements. If all elements have ended, ends the loop.
    pub(super) fn advance(&mut self, step: usize, now: Duration) {
        self.advancing.insert(step);
        let Some(place) = self.place_of_loop(step).filter(|&place| self.loops[place].is_done())
        else {
            return;
        };
        let each = &self.loops[place];
        if each.is_skipped() {
            self.loops.swap_remove(place);
            self.state.skipped_elements.retain(|element| element.step != step);
            let error = self.why_ended().map(Box::new);
            return self.finish(step, Outcome { error, ..Outcome::skipped() });
        }
        let is_in_vain = each.definition.ends_at_success() && !each.has_completed_any();
        let no_success = || self.why_ended().unwrap_or_else(|| each.no_success());
        if let Some(error) = each.uncalled().or_else(|| is_in_vain.then(no_success)) {
            return self.fail_loop(place, Status::Failed, Some(error), now);
        }
        let each = self.loops.swap_remove(place);
        self.end_step(step, each.since, each.state.attempts, Ok(each.into_output()), now);
    }

    /// Ends a loop after the first success. Cancels its running elements and skips the remaining
    /// ones.
    fn end_at_success(&mut self, place: usize, now: Duration) {
        let each = self.loops.swap_remove(place);
        let attempts = each.state.attempts + self.drop_elements(each.state.step);
        self.end_step(each.state.step, each.since, attempts, Ok(each.into_partial_output()), now);
    }

    /// Drops the running calls and pending questions of a loop. Returns the number of their
    /// attempts.
    fn drop_elements(&mut self, step: usize) -> u32 {
        let dropped = self.state.asked.extract_if(.., |pending| pending.id.step == step);
        let pending_attempts: u32 = dropped.map(|pending| pending.attempts).sum();
        pending_attempts + self.drop_calls(step)
    }

    /// Skips a loop element that was about to start when the run reached a limit. This ends the
    /// run.
    pub(super) fn skip_element(
        &mut self,
        element: BranchId,
        why: StepError,
        reached: Option<Reached>,
        now: Duration,
    ) {
        if let Some(place) = self.place_of_loop(element.step) {
            self.loops[place].hold_back(element.element, why);
        }
        self.state.reached = self.state.reached.take().or(reached);
        self.state.skipped_elements.push(element);
        self.effects.skip_element(element, self.state.limit());
        self.end_rest(now);
        self.advance(element.step, now);
    }

    /// Records the outcome of a loop element. If the element failed and the loop does not tolerate
    /// failures, fails the loop.
    pub(super) fn end_element(&mut self, id: BranchId, outcome: Outcome, now: Duration) {
        let Some(place) = self.place_of_loop(id.step) else { return };
        self.effects.end_element(id, &outcome, self.state.limit());
        let ends_at_success = self.loops[place].definition.ends_at_success();
        let goes_on = ends_at_success
            || self.plan.steps()[id.step].tolerates_failures()
            // A rejection by a limit does not fail the loop, because the run ends with a partial
            // result.
            || (outcome.is_refused() && self.state.reached.is_some());
        let each = &mut self.loops[place];
        let (is_success, status) = (outcome.is_success(), outcome.status);
        let error = outcome.error.as_deref().filter(|_| !is_success && !goes_on);
        let error = error.cloned();
        each.end(id.element, outcome, now);
        match each.definition.as_repeat() {
            Some(repeat) if is_success => self.repeat(place, repeat, now),
            None if is_success && ends_at_success => self.end_at_success(place, now),
            _ if is_success || goes_on => self.note_loop(place),
            _ => {
                let noun = each.definition.noun();
                let error = error.map(|error| error.at(&format!("{noun} {}", id.element)));
                self.fail_loop(place, status, error, now);
            }
        }
    }

    /// Starts the next iteration of a loop that repeats a call. Ends the loop instead if its
    /// condition is true, and fails it after `max_iterations` iterations.
    fn repeat(&mut self, place: usize, repeat: &Repeat, now: Duration) {
        self.count_evaluation();
        let each = &mut self.loops[place];
        let count = each.count();
        let item = each.item(count);
        let index = count.saturating_sub(1);
        match self.state.evaluate_at(item, index, |data| repeat.until.evaluate(data)) {
            Ok(true) => (),
            Ok(false) if each.repeat(now) => {
                self.note_loop(place);
                // No further iteration begins after a limit was reached.
                self.end_rest(now);
            }
            Ok(false) => {
                let why = repeat.unfinished(count, "max_iterations");
                let why = StepError::new(ErrorKind::Limit, why);
                self.fail_loop(place, Status::Failed, Some(why), now);
            }
            Err(error) => {
                self.fail_loop(place, Status::Failed, Some(error.at("until")), now);
            }
        }
    }

    fn fail_loop(&mut self, place: usize, status: Status, error: Option<StepError>, now: Duration) {
        let each = self.loops.swap_remove(place);
        let step = each.state.step;
        let attempts = each.state.attempts + self.drop_elements(step);
        let ended = Outcome::ended(each.since, now, status, error);
        self.state.preserve_loop(each);
        self.finish(step, Outcome { attempts, ..ended });
    }
}
