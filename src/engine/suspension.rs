//! The state that a run is certain to keep while it is suspended for a question.

use std::io;

use serde::Serialize;

use super::{
    plan::{Answer, Plan, StepSet},
    state::RunState,
};

// === impl Plan ===

impl Plan {
    /// A step and all steps that cannot finish before it.
    fn with_dependents(&self, step: usize) -> StepSet {
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

    /// Whether the record of a step is kept while all of these wait.
    fn keeps_record(&self, step: usize, waiting: StepSet) -> bool {
        let links = self.links(step);
        links.answers || !links.readers.intersection(waiting).is_empty()
    }
}

// === impl RunState ===

impl RunState {
    /// The least size, as JSON, of the state that waits for the answer to a question: of
    /// the input and the records that a step reads which cannot finish before the answer,
    /// or that the output reads.
    ///
    /// What may be dropped until then does not count.
    pub(super) fn least_bytes_at(&self, question: usize, plan: &Plan) -> usize {
        let waiting = plan.with_dependents(question);
        let reads_input = !plan.input_readers.intersection(waiting).is_empty();
        let input =
            if reads_input || plan.answer_reads_input { json_bytes(&self.input) } else { 0 };
        let finished = self.finished.iter().filter_map(|&step| {
            let outcome = self.outcomes[step].as_deref()?;
            if matches!(plan.answer, Answer::Outcomes) {
                return Some(outcome.result.as_ref().map_or(0, json_bytes));
            }
            // One field can stand in another.
            let fields = plan.links(step).fields.iter();
            let largest =
                fields.filter_map(|field| Some(json_bytes(&*outcome.field(field)?))).max();
            largest.filter(|_| plan.keeps_record(step, waiting))
        });
        input + finished.sum::<usize>()
    }
}

/// The size of a value as JSON.
fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    // A value that cannot be written counts as far as it was.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}
