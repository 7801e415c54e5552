//! Computes how large the state of a run is at least when the run is suspended for a question.

use super::{
    plan::{Fields, Plan, RunOutput, Step, StepSet},
    state::RunState,
};
use crate::json_size::json_bytes;

/// A problem that is found in a plan before it runs. The step `step` may have side effects although
/// the run may fail later, at the step `question`. The question fails if the state of the run is
/// too large to be stored, which depends on the size of a step's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unchecked {
    /// The index of the step that may have side effects.
    pub(crate) step: usize,
    /// The index of the step whose output is part of the stored state. Its size is unknown in
    /// advance.
    pub(crate) output: usize,
    /// The index of the step that asks the user.
    pub(crate) question: usize,
}

// === impl Plan ===

impl Plan {
    /// Returns `step` and all steps that depend on it, directly or indirectly.
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

    /// Returns `true` if the record of `step` is kept until the steps in `waiting` have run. This
    /// is the case if one of them or the answer of the run reads the record.
    fn keeps_record(&self, step: usize, waiting: StepSet) -> bool {
        let links = self.links(step);
        links.answers || !links.readers.intersection(waiting).is_empty()
    }

    /// Finds a step that may have side effects although the run may fail later at one of the
    /// `questions`. The run fails if its state is too large to be stored. The state contains
    /// outputs of steps, whose size may be unknown when the step with side effects starts.
    /// `may_change` returns `true` for a step that may have side effects.
    pub(crate) fn find_unchecked(
        &self,
        questions: StepSet,
        may_change: impl Fn(&Step) -> bool,
    ) -> Option<Unchecked> {
        let steps = || StepSet::first(self.steps().len());
        let has_content = |&output: &usize| {
            let Fields { output, content, blocks, text, .. } = self.links(output).fields;
            output || content || blocks || text
        };
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
    /// Returns a lower bound of the size of the run's state when it is suspended for `question`, in
    /// bytes of JSON. Counts the input and the records of finished steps if the answer or a step
    /// that depends on the question reads them.
    ///
    /// Excludes data that the run may drop before it asks the question.
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
