//! The loops of a run.

use std::sync::Arc;

use rmcp::model::JsonObject;
use tokio::time::Instant;

use super::{Run, object};
use crate::{
    engine::{
        attempts::Times,
        branches::BranchId,
        caller::Caller,
        outcome::{Outcome, Status, StepError},
        plan::{Arguments, OnFailure},
    },
    expr::Data,
};

// === impl Run ===

impl<'p, C: Caller> Run<'p, C> {
    /// Starts as many elements of a loop as may run at the same time, until the deadline, and ends
    /// the loop after the last element.
    pub(super) fn advance(&mut self, step: usize) {
        let find = |run: &Self| run.loops.iter().position(|each| each.step == step);
        while self.may_go_on()
            && let now = Instant::now()
            && now < self.scope.deadline
            && let Some(place) = find(self)
            && self.loops[place].may_begin()
            && self.may_call()
            && let Some(element) = self.loops[place].begin_next()
        {
            let id = BranchId { step, element };
            let begun = self.element_arguments(place, element).and_then(|arguments| {
                self.call(id, &self.loops[place].definition.call, arguments, now)
            });
            match begun {
                Ok(()) => (),
                Err(error) if error.ends_run => {
                    self.loops[place].hold_back(element, error);
                    self.skip_element(id);
                }
                Err(error) => {
                    let outcome = self.uncalled(error, now);
                    self.end_element(id, outcome);
                }
            }
        }
        if let Some(place) = find(self)
            && self.loops[place].is_done()
        {
            let each = self.loops.swap_remove(place);
            if each.is_skipped() {
                self.state.skipped_elements.retain(|element| element.step != step);
                let skipped =
                    Outcome { error: self.why_ended().map(Box::new), ..Outcome::skipped() };
                return self.finish(step, skipped);
            }
            let times = Times { run: self.begun, step: each.since };
            let outcome = times.ended(Status::Completed, None, Instant::now());
            let mut outcome = Outcome { attempts: each.attempts, ..outcome };
            outcome.set_output(each.into_output());
            self.finish(step, outcome);
        }
    }

    /// Returns the arguments of an element of a loop that starts now.
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
                let evaluate = |data: &Arc<dyn Data>| expression.evaluate_in(data);
                self.state.lend_at(&mut each.items, element, evaluate)
            }
        })
    }

    /// Handles the end of an element. A failure that aborts the run also ends the loop with its
    /// other elements.
    pub(super) fn end_element(&mut self, id: BranchId, outcome: Outcome) {
        let Some(place) = self.loops.iter().position(|each| each.step == id.step) else { return };
        if let Some(watching) = &mut self.watching {
            watching.end_element(id, &outcome, self.state.limit());
        }
        let goes_on = self.plan.steps()[id.step].on_failure == OnFailure::Continue
            // A rejection by a limit ends the run with its partial result.
            || (outcome.is_refused() && self.state.reached.is_some());
        if outcome.is_success() || goes_on {
            return self.loops[place].end(id.element, outcome);
        }
        let mut each = self.loops.swap_remove(place);
        let given_up = self.state.asked.extract_if(.., |asked| asked.id.step == id.step);
        let in_vain: u32 = given_up.map(|asked| asked.attempts).sum();
        let attempts = each.attempts + outcome.attempts + in_vain + self.drop_calls(id.step);
        let times = Times { run: self.begun, step: each.since };
        let error = outcome.error.as_deref().cloned();
        let error = error.map(|error| error.at(&format!("element {}", id.element)));
        let ended = times.ended(outcome.status, error, Instant::now());
        each.end(id.element, outcome);
        self.state.preserve_loop(each);
        self.finish(id.step, Outcome { attempts, ..ended });
    }
}
