//! Computes a lower bound for the size of the state of a suspended run.

use super::{
    plan::{Plan, RunOutput, Step, StepSet},
    state::RunState,
};
use crate::{expr::Field, json_size::json_bytes};

/// A problem in a plan: the step `step` may have side effects, although the run may fail later at
/// the step `question`. The run fails there if its state is too large to store it while the user
/// answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unchecked {
    pub(crate) step: usize,
    /// The index of a step whose output is stored. The size of the output is not known before the
    /// run.
    pub(crate) output: usize,
    pub(crate) question: usize,
}

// === impl Plan ===

impl Plan {
    /// Returns `step` and all steps that wait for it, directly or indirectly.
    pub(crate) fn with_dependents(&self, step: usize) -> StepSet {
        let mut found: StepSet = [step].into_iter().collect();
        loop {
            let waits = |&later: &usize| !self.needs(later).intersection(found).is_empty();
            let waiting: StepSet = StepSet::first(self.steps().len()).filter(waits).collect();
            let all = found.union(waiting);
            if all == found {
                return found;
            }
            found = all;
        }
    }

    /// Returns `true` if data of `step`, such as its output, is kept until the steps in `waiting`
    /// have run. One of them or the result of the run must read this data.
    fn keeps_record(&self, step: usize, waiting: StepSet) -> bool {
        let links = self.links(step);
        links.answers || !links.readers.intersection(waiting).is_empty()
    }

    /// Finds a step with possible side effects that runs before one of the `questions`, although
    /// the run may fail at that question because its state is too large to store. `may_change`
    /// returns `true` for a step with possible side effects.
    pub(crate) fn find_unchecked(
        &self,
        questions: StepSet,
        may_change: impl Fn(&Step) -> bool,
    ) -> Option<Unchecked> {
        let steps = || StepSet::first(self.steps().len());
        let has_content =
            |&output: &usize| self.links(output).fields.iter().any(|field| field != Field::Error);
        { questions }.find_map(|question| {
            let waiting = self.with_dependents(question);
            let precedes = |&step: &usize| self.with_dependents(step).contains(question);
            let before: StepSet = steps().without(waiting).filter(precedes).collect();
            let is_kept = |&output: &usize| self.keeps_record(output, waiting);
            let kept: StepSet = { before }.filter(is_kept).filter(has_content).collect();
            let find = |step: usize| {
                let is_later = |&output: &usize| {
                    output == step || !self.with_dependents(output).contains(step)
                };
                let output = { kept }.find(is_later)?;
                Some(Unchecked { step, output, question })
            };
            { before }.filter(|&step| may_change(&self.steps()[step])).find_map(find)
        })
    }
}

// === impl RunState ===

impl RunState {
    /// Returns a lower bound for the size of the run's state when it asks `question`, in bytes of
    /// JSON. Counts the input and the outputs that this step, later steps or the result of the run
    /// read. Other data is not counted, because the run may drop it before it asks the question.
    pub(super) fn least_bytes_at(&self, question: usize, plan: &Plan) -> usize {
        let waiting = plan.with_dependents(question);
        let reads_input = !plan.input_readers.intersection(waiting).is_empty();
        let input =
            if reads_input || plan.answer_reads_input { json_bytes(&self.input) } else { 0 };
        let finished = self.finished.iter().filter_map(|&step| {
            let outcome = self.outcomes[step].as_ref()?;
            if matches!(plan.answer, RunOutput::Outcomes) {
                return Some(outcome.result.as_ref().map_or(0, json_bytes));
            }
            // The value of one field can be part of another, so only the largest is counted.
            let fields = plan.links(step).fields.iter();
            let largest =
                fields.filter_map(|field| Some(json_bytes(&*outcome.field(field)?))).max();
            largest.filter(|_| plan.keeps_record(step, waiting))
        });
        input + finished.sum::<usize>()
    }
}
