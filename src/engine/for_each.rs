//! A running loop of a run, with the results of its elements.

use std::{mem, ops::Range, time::Duration};

use serde_json::{Map, Value};

use super::{
    loop_state::{Iteration, LoopState},
    milliseconds::milliseconds,
    outcome::{ErrorKind, Outcome, Status, StepError},
    plan::ForEach,
    state::RunState,
};

/// A running loop.
pub(super) struct Loop<'p> {
    pub(super) step: usize,
    pub(super) definition: &'p ForEach,
    pub(super) items: Vec<Value>,
    /// The results of the elements, in order. `None` for elements that have not ended.
    iterations: Vec<Option<Iteration>>,
    /// The index of the first element that has not started.
    next: usize,
    /// The number of elements that have started but not ended.
    running: usize,
    /// The number of tool calls that were made for elements that have ended, including retries.
    pub(super) attempts: u32,
    /// The time at which the loop started, as a duration since the start of the run.
    pub(super) since: Duration,
}

// === impl Loop ===

impl<'p> Loop<'p> {
    pub(super) fn new(
        step: usize,
        definition: &'p ForEach,
        items: Vec<Value>,
        since: Duration,
    ) -> Self {
        let mut iterations = Vec::new();
        iterations.resize_with(items.len(), || None);
        Self { step, definition, iterations, next: 0, running: 0, attempts: 0, since, items }
    }

    /// Creates the loop of a run that resumes after a suspension. `asked` is the number of loop
    /// elements that wait for the user to answer.
    pub(super) fn resumed(state: LoopState, definition: &'p ForEach, asked: usize) -> Self {
        let LoopState { step, items, iterations, next, attempts, started_ms } = state;
        let since = Duration::from_millis(started_ms);
        Self { step, definition, items, iterations, next, running: asked, attempts, since }
    }

    /// Converts the loop to the state that is stored while the run is suspended. At that time, all
    /// running elements wait for the user to answer.
    pub(super) fn into_state(self) -> LoopState {
        let Self { step, items, iterations, next, attempts, since, .. } = self;
        LoopState { step, items, iterations, next, attempts, started_ms: milliseconds(since) }
    }

    /// Returns the indexes of the elements that have ended.
    pub(super) fn ended(&self) -> impl Iterator<Item = usize> {
        let ended = self.iterations.iter().enumerate().filter(|(_, ended)| ended.is_some());
        ended.map(|(element, _)| element)
    }

    /// Returns `true` if the next element may start: elements are left, and fewer than the maximum
    /// number of parallel elements are running.
    pub(super) fn may_begin(&self) -> bool {
        self.next < self.items.len() && self.running < self.definition.max_parallel
    }

    /// Starts the next element and returns its index. Returns `None` if no element may start now.
    pub(super) fn begin_next(&mut self) -> Option<usize> {
        self.may_begin().then(|| {
            self.running += 1;
            self.next += 1;
            self.next - 1
        })
    }

    /// Skips all elements that have not started, and stores `why` as their error. Returns the
    /// indexes of these elements.
    pub(super) fn cut(&mut self, why: &StepError) -> Range<usize> {
        let left = self.next..self.items.len();
        for element in left.clone() {
            self.skip(element, why.clone());
        }
        self.next = self.items.len();
        left
    }

    /// Skips an element that was about to start, and stores `why` as its error.
    pub(super) fn hold_back(&mut self, element: usize, why: StepError) {
        self.running -= 1;
        self.skip(element, why);
    }

    fn skip(&mut self, element: usize, why: StepError) {
        let skipped = Iteration { status: Status::Skipped, output: None, error: Some(why) };
        self.iterations[element] = Some(skipped);
    }

    /// Returns `true` if all elements were skipped.
    pub(super) fn is_skipped(&self) -> bool {
        let is_skipped = |iteration: &Option<Iteration>| {
            iteration.as_ref().is_some_and(|it| it.status == Status::Skipped)
        };
        !self.items.is_empty() && self.iterations.iter().all(is_skipped)
    }

    /// Returns `true` if at least one loop element has ended, not counting elements that were
    /// skipped.
    pub(super) fn has_ended_any(&self) -> bool {
        let mut iterations = self.iterations.iter().flatten();
        iterations.any(|iteration| iteration.status != Status::Skipped)
    }

    /// Returns the error of the loop if its definition kept all elements from calling their tools,
    /// for example because a reference in the arguments has no value in any element. Returns `None`
    /// if a tool was called, or if there are no elements.
    pub(super) fn uncalled(&self) -> Option<StepError> {
        if self.attempts > 0 {
            return None;
        }
        let error = |iteration: &Option<Iteration>| {
            let error = iteration.as_ref()?.error.as_ref()?;
            matches!(error.kind, ErrorKind::Definition | ErrorKind::Protocol).then(|| error.clone())
        };
        let first = self.iterations.first().and_then(error)?;
        let is_of_all = self.iterations.iter().all(|iteration| error(iteration).is_some());
        is_of_all.then(|| first.at("no element was called; element 0"))
    }

    /// Stores the outcome of a loop element that has ended.
    pub(super) fn end(&mut self, index: usize, mut outcome: Outcome) {
        self.running -= 1;
        self.attempts += outcome.attempts;
        let status = outcome.status;
        outcome.add_details();
        let error = outcome.error.take().map(|error| *error);
        let output = outcome.into_output();
        self.iterations[index] = Some(Iteration { status, output, error });
    }

    pub(super) fn is_done(&self) -> bool {
        self.running == 0 && self.next == self.items.len()
    }

    /// Returns the output of a loop that ends early. Elements that were running get the status
    /// `cancelled`, and elements that have not started get the status `skipped`.
    pub(super) fn into_partial_output(mut self) -> Value {
        for (element, iteration) in self.iterations.iter_mut().enumerate() {
            let has_begun = element < self.next;
            let status = if has_begun { Status::Cancelled } else { Status::Skipped };
            iteration.get_or_insert(Iteration { status, output: None, error: None });
        }
        self.into_output()
    }

    /// Returns the output of the loop, which contains a JSON object for each element, in the order
    /// of the elements.
    pub(super) fn into_output(mut self) -> Value {
        let [mut completed, mut skipped] = [0; 2];
        let count = self.items.len();
        let items = mem::take(&mut self.items).into_iter().zip(self.iterations);
        let iterations: Vec<_> = items
            .enumerate()
            .filter_map(|(index, (item, iteration))| {
                let Iteration { status, output, error } = iteration?;
                completed += usize::from(status == Status::Completed);
                skipped += usize::from(status == Status::Skipped);
                let mut member = Map::with_capacity(4);
                member.insert("index".to_owned(), index.into());
                member.insert("item".to_owned(), item);
                member.insert("status".to_owned(), status.name().into());
                if let Some(error) = error {
                    member.insert("error".to_owned(), error.to_value());
                } else if let Some(output) = output {
                    member.insert("output".to_owned(), output);
                }
                Some(Value::Object(member))
            })
            .collect();
        let mut output = Map::with_capacity(5);
        output.insert("iterations".to_owned(), iterations.into());
        output.insert("count".to_owned(), count.into());
        output.insert("completed".to_owned(), completed.into());
        output.insert("failed".to_owned(), (count - completed - skipped).into());
        if skipped > 0 {
            output.insert("skipped".to_owned(), skipped.into());
        }
        Value::Object(output)
    }
}

// === impl RunState ===

impl RunState {
    /// Stores the output of a loop that ends early, so that the report of a failed run can contain
    /// it. Does nothing if no element has ended, or if all elements that have ended were skipped.
    pub(super) fn preserve_loop(&mut self, each: Loop<'_>) {
        if each.has_ended_any() {
            self.preserved.add(each.step, each.into_partial_output());
        }
    }
}
