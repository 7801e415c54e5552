//! Decides which data of finished steps a run keeps. Data that no other step and no result of the
//! run reads is dropped.

use serde_json::Value;

use super::{
    outcome::Outcome,
    plan::{Plan, RunOutput, StepSet},
    state::RunState,
    step_output::text_of,
};
use crate::expr::Field;

// === impl RunState ===

impl RunState {
    /// Stores the outcome of a finished step. Drops the data of this step and of the steps whose
    /// data it read, unless another step or the result of the run reads it.
    pub(super) fn finish(
        &mut self,
        plan: &Plan,
        step: usize,
        mut outcome: Outcome,
        finished: StepSet,
    ) {
        let links = plan.links(step);
        let mut is_candidate = plan.may_be_last.contains(step) && outcome.is_success();
        if is_candidate && let Some(last) = self.candidate(plan, finished) {
            is_candidate = last < step;
            if is_candidate {
                self.demote(plan, last, finished);
            }
        }
        let keeps_result = is_candidate || matches!(plan.answer, RunOutput::Outcomes);
        if !outcome.is_success()
            && let Some(default) = &plan.steps()[step].default_results
        {
            if links.fields.contains(Field::Output) {
                outcome.set_output(default.clone());
            }
            if links.fields.contains(Field::Text)
                && let Some(text) = text_of(default)
            {
                outcome.record.get_or_insert_default().text = Some(text.clone());
            }
        }
        if !matches!(plan.answer, RunOutput::Outcomes) {
            if links.fields.contains(Field::Error) || !plan.steps()[step].may_fail() {
                outcome.add_details();
            }
            // A failed run may still report an output that no step reads.
            if let Some(dropped) = outcome.keep(links.fields, keeps_result) {
                self.preserve(plan, step, dropped);
            }
        } else {
            outcome.keep(links.fields, keeps_result);
        }
        self.outcomes[step] = Some(outcome);
        self.finished.push(step);
        if !plan.answer_reads_input && plan.input_readers.is_subset(finished) {
            self.input = Value::Null;
        }
        for read in links.reads {
            let links = plan.links(read);
            if !links.answers && links.readers.is_subset(finished) {
                self.release(plan, read, finished);
            }
        }
    }

    /// Returns the last completed step, in the order of the plan, whose result may become the
    /// result of the run. Returns `None` if there is no such step.
    fn candidate(&self, plan: &Plan, finished: StepSet) -> Option<usize> {
        let completed =
            |&step: &usize| self.outcomes[step].as_ref().is_some_and(Outcome::is_success);
        plan.may_be_last.intersection(finished).rfind(completed)
    }

    /// Drops the tool result of a step that can no longer become the result of the run. Keeps the
    /// parts that other steps still read, such as the output.
    fn demote(&mut self, plan: &Plan, step: usize, finished: StepSet) {
        let links = plan.links(step);
        let Some(outcome) = &mut self.outcomes[step] else { return };
        let dropped = if links.readers.is_subset(finished) {
            outcome.take_any_output()
        } else {
            outcome.keep(links.fields, false)
        };
        if let Some(dropped) = dropped {
            self.preserve(plan, step, dropped);
        }
    }

    /// Drops the data of a step, such as its output, after all steps that read it have finished.
    /// Keeps the data if it may become the result of the run.
    fn release(&mut self, plan: &Plan, step: usize, finished: StepSet) {
        let is_candidate = self.candidate(plan, finished) == Some(step);
        let Some(outcome) = &mut self.outcomes[step] else { return };
        // The result of a loop exists only as its record.
        let is_answer = is_candidate && outcome.result.is_none();
        if is_answer || matches!(plan.answer, RunOutput::Outcomes) {
            return;
        }
        let record = outcome.record.take();
        if outcome.result.is_none()
            && outcome.is_success()
            && let Some(dropped) = record.and_then(|record| record.into_output())
        {
            self.preserve(plan, step, dropped);
        }
    }
}
