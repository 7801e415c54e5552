//! The loops of a run: how they start, advance and end.

use std::time::Duration;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::{Command, Effects, Loop, NewCall, Scheduler, object};
use crate::engine::{
    branches::BranchId,
    meter::Reached,
    outcome::{Outcome, Status, StepError},
    plan::{Arguments, ForEach, OnFailure},
};

// === impl Scheduler ===

impl<'p, E: Effects> Scheduler<'p, E> {
    /// Begins a loop.
    pub(super) fn begin_loop(
        &mut self,
        step: usize,
        each: &'p ForEach,
        items: Vec<Value>,
        now: Duration,
    ) {
        self.effects.begin_step(step);
        if !items.is_empty() {
            self.effects.open_step(step);
        }
        self.add_loop(Loop::new(step, each, items, now));
        self.advance(step, now);
    }

    /// Adds a loop that starts or resumes to the running loops.
    pub(super) fn add_loop(&mut self, each: Loop<'p>) {
        self.effects.split_step(&each);
        self.loops.push(each);
    }

    pub(super) fn place_of_loop(&self, step: usize) -> Option<usize> {
        self.loops.iter().position(|each| each.step == step)
    }

    /// Returns the step of a running loop that may start its next element.
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

    /// Begins the next element of a loop.
    pub(super) fn begin_element(&mut self, step: usize, now: Duration) -> Command<'p> {
        let Some(place) = self.place_of_loop(step) else { return Command::Continue };
        let Some(element) = self.loops[place].begin_next() else { return Command::Continue };
        let id = BranchId { step, element };
        self.effects.begin_element(id);
        let site = &self.loops[place].definition.call;
        match self.element_arguments(place, element) {
            Ok(arguments) => Command::Call(NewCall { id, site, resumed: None }, arguments),
            Err(error) => {
                self.fail_call(id, site, error, now);
                Command::Continue
            }
        }
    }

    /// Evaluates the arguments of a loop element's tool call.
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
                self.state.evaluate_at(&each.items, element, |data| expression.evaluate_in(data))
            }
        })
    }

    /// Lets a loop start its next elements. If all elements have ended, ends the loop and the step.
    pub(super) fn advance(&mut self, step: usize, now: Duration) {
        self.advancing.insert(step);
        let Some(place) = self.place_of_loop(step).filter(|&place| self.loops[place].is_done())
        else {
            return;
        };
        let each = self.loops.swap_remove(place);
        let outcome = if each.is_skipped() {
            self.state.skipped_elements.retain(|element| element.step != step);
            Outcome { error: self.why_ended().map(Box::new), ..Outcome::skipped() }
        } else if let Some(error) = each.uncalled() {
            let since = each.since;
            self.state.preserve_loop(each);
            let outcome = Outcome::ended(since, now, Status::Failed, Some(error));
            Outcome { attempts: 0, ..outcome }
        } else {
            let outcome = Outcome::ended(each.since, now, Status::Completed, None);
            let mut outcome = Outcome { attempts: each.attempts, ..outcome };
            outcome.set_output(each.into_output());
            outcome
        };
        self.finish(step, outcome);
    }

    /// Skips a loop element that was about to start. Ends the run, because a limit was reached.
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

    /// Records the outcome of a loop element. If the element has failed, and the loop does not
    /// continue on failure, ends the loop and stops its other elements.
    pub(super) fn end_element(&mut self, id: BranchId, outcome: Outcome, now: Duration) {
        let Some(place) = self.place_of_loop(id.step) else { return };
        self.effects.end_element(id, &outcome, self.state.limit());
        let goes_on = self.plan.steps()[id.step].on_failure == OnFailure::Continue
            // A rejection by a limit does not fail the loop, because the run ends with a partial
            // result.
            || (outcome.is_refused() && self.state.reached.is_some());
        if outcome.is_success() || goes_on {
            return self.loops[place].end(id.element, outcome);
        }
        let mut each = self.loops.swap_remove(place);
        let given_up = self.state.asked.extract_if(.., |asked| asked.id.step == id.step);
        let in_vain: u32 = given_up.map(|asked| asked.attempts).sum();
        let attempts = each.attempts + outcome.attempts + in_vain + self.drop_calls(id.step);
        let error = outcome.error.as_deref().cloned();
        let error = error.map(|error| error.at(&format!("element {}", id.element)));
        let ended = Outcome::ended(each.since, now, outcome.status, error);
        each.end(id.element, outcome);
        self.state.preserve_loop(each);
        self.finish(id.step, Outcome { attempts, ..ended });
    }
}
