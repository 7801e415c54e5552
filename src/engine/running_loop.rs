//! A running loop, with the results of its elements.

use std::{ops::Range, time::Duration};

use serde_json::{Map, Value};

use super::{
    loop_state::{Iteration, LoopState},
    milliseconds::milliseconds,
    outcome::{ErrorKind, Outcome, Status, StepError},
    plan::LoopPlan,
    state::RunState,
};

/// A loop of a running step. It calls a tool once per element of a collection, or repeats a call
/// until a condition is true.
pub(super) struct Loop<'p> {
    pub(super) definition: &'p LoopPlan,
    /// The progress of the loop, which is stored in the state of the run.
    pub(super) state: LoopState,
    running: usize,
    /// The start of the loop, as a duration since the start of the run.
    pub(super) since: Duration,
    /// The time at which the delay before the next element ends. `None` while there is no delay.
    paused_until: Option<Duration>,
}

// === impl Loop ===

impl<'p> Loop<'p> {
    /// Creates a loop that starts at the time `since`. `items` are the elements of its collection.
    /// They are empty for a loop that repeats a call.
    pub(super) fn new(
        step: usize,
        definition: &'p LoopPlan,
        items: Vec<Value>,
        since: Duration,
    ) -> Self {
        let count = if definition.as_collection().is_some() { items.len() } else { 1 };
        let mut iterations = Vec::new();
        iterations.resize_with(count, || None);
        let started_ms = milliseconds(since);
        let state = LoopState { step, items, iterations, next: 0, attempts: 0, started_ms };
        Self { definition, state, running: 0, since, paused_until: None }
    }

    /// Creates the loop of a run that resumes from a stored state.
    pub(super) fn resumed(state: LoopState, definition: &'p LoopPlan) -> Self {
        let (running, since) = (state.running().count(), Duration::from_millis(state.started_ms));
        Self { definition, state, running, since, paused_until: None }
    }

    /// Returns the number of elements, including elements that have not started.
    pub(super) const fn count(&self) -> usize {
        self.state.iterations.len()
    }

    /// Returns the maximum number of elements of the loop: `max_iterations` or the size of the
    /// collection.
    pub(super) fn max_count(&self) -> usize {
        match self.definition.as_repeat() {
            Some(_) => self.definition.max_iterations,
            None => self.state.items.len(),
        }
    }

    /// Returns the indexes of the elements that have ended.
    pub(super) fn ended(&self) -> impl Iterator<Item = usize> {
        let ended = self.state.iterations.iter().enumerate().filter(|(_, ended)| ended.is_some());
        ended.map(|(element, _)| element)
    }

    /// Returns the item that expressions of an element read. In a loop over a collection, this is
    /// the element. In a loop that repeats a call, it is the output of the previous iteration.
    pub(super) fn item(&self, element: usize) -> Option<&Value> {
        match self.definition.as_repeat() {
            Some(_) => {
                self.state.iterations.get(element.checked_sub(1)?)?.as_ref()?.output.as_ref()
            }
            None => self.state.items.get(element),
        }
    }

    /// Returns `true` if an element is left and fewer than `max_parallel` elements are running.
    /// There may be a delay before the element can start.
    pub(super) fn has_next(&self) -> bool {
        self.state.next < self.state.iterations.len() && self.running < self.definition.max_parallel
    }

    /// Returns `true` if the next element can start now.
    pub(super) fn may_begin(&self) -> bool {
        self.has_next() && self.paused_until.is_none()
    }

    /// Returns `true` if the next element can start, but only after a delay.
    pub(super) fn is_paused(&self) -> bool {
        self.has_next() && self.paused_until.is_some()
    }

    /// Returns the end of the delay or the timeout of the loop, whichever is earlier. Returns
    /// `None` if there is neither.
    pub(super) fn due(&self) -> Option<Duration> {
        self.paused_until.into_iter().chain(self.deadline()).min()
    }

    /// Returns the time at which the loop times out. Returns `None` if it has no timeout of its
    /// own.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let timeout = self.definition.as_repeat()?.timeout?;
        Some(self.since.saturating_add(timeout))
    }

    /// Ends the delay before the next element if it has passed at the time `now`. Returns `false`
    /// if no delay has ended.
    pub(super) fn end_pause(&mut self, now: Duration) -> bool {
        self.paused_until.take_if(|until| *until <= now).is_some()
    }

    /// Starts the next element and returns its index. Returns `None` if no element can start now.
    pub(super) fn begin_next(&mut self, now: Duration) -> Option<usize> {
        self.may_begin().then(|| {
            self.running += 1;
            self.state.next += 1;
            if self.definition.max_parallel > 1 {
                self.pause(now);
            }
            self.state.next - 1
        })
    }

    /// Starts the delay before the next element.
    fn pause(&mut self, now: Duration) {
        let delay = self.definition.delay_before(self.state.next);
        if !delay.is_zero() && self.state.next < self.state.iterations.len() {
            self.paused_until = Some(now.saturating_add(delay));
        }
    }

    /// Adds an iteration to a loop that repeats a call. Returns `false` if the loop has already
    /// made `max_iterations` iterations.
    pub(super) fn repeat(&mut self, now: Duration) -> bool {
        if self.state.iterations.len() >= self.definition.max_iterations {
            return false;
        }
        self.state.iterations.push(None);
        self.pause(now);
        true
    }

    /// Skips all elements that have not started, with the error `why`, and returns their indexes.
    pub(super) fn cut(&mut self, why: &StepError) -> Range<usize> {
        let left = self.state.next..self.state.iterations.len();
        for element in left.clone() {
            self.skip(element, why.clone());
        }
        self.state.next = self.state.iterations.len();
        self.paused_until = None;
        left
    }

    /// Skips an element that was just started by [`begin_next`](Self::begin_next), before its tool
    /// is called.
    pub(super) fn hold_back(&mut self, element: usize, why: StepError) {
        self.running -= 1;
        self.skip(element, why);
    }

    fn skip(&mut self, element: usize, why: StepError) {
        let error = Some(Box::new(why));
        let skipped = Iteration { status: Status::Skipped, output: None, error };
        self.state.iterations[element] = Some(skipped);
    }

    pub(super) fn is_skipped(&self) -> bool {
        let is_skipped = |iteration: &Option<Iteration>| {
            iteration.as_ref().is_some_and(|it| it.status == Status::Skipped)
        };
        !self.state.iterations.is_empty() && self.state.iterations.iter().all(is_skipped)
    }

    /// Returns `true` if an element has ended. Skipped elements do not count.
    pub(super) fn has_ended_any(&self) -> bool {
        let mut iterations = self.state.iterations.iter().flatten();
        iterations.any(|iteration| iteration.status != Status::Skipped)
    }

    /// Returns the error of a loop that could not call its tool for any element, for example
    /// because the arguments read a value that does not exist. Returns `None` if the tool was
    /// called, or if there are no elements.
    pub(super) fn uncalled(&self) -> Option<StepError> {
        if self.state.attempts > 0 {
            return None;
        }
        let error = |iteration: &Option<Iteration>| {
            let error = iteration.as_ref()?.error.as_deref()?;
            matches!(error.kind, ErrorKind::Definition | ErrorKind::Protocol).then(|| error.clone())
        };
        let first = self.state.iterations.first().and_then(error)?;
        let is_of_all = self.state.iterations.iter().all(|iteration| error(iteration).is_some());
        is_of_all.then(|| first.at("no element was called; element 0"))
    }

    /// Stores the outcome of an element that ended at the time `now`.
    pub(super) fn end(&mut self, index: usize, mut outcome: Outcome, now: Duration) {
        self.running -= 1;
        self.state.attempts += outcome.attempts;
        let status = outcome.status;
        outcome.add_details();
        let error = outcome.error.take();
        let output = outcome.into_output();
        self.state.iterations[index] = Some(Iteration { status, output, error });
        if self.definition.max_parallel == 1 {
            self.pause(now);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.running == 0 && self.state.next == self.state.iterations.len()
    }

    pub(super) fn has_completed_any(&self) -> bool {
        let mut iterations = self.state.iterations.iter().flatten();
        iterations.any(|iteration| iteration.status == Status::Completed)
    }

    /// Returns the error of a loop in which no element completed.
    pub(super) fn no_success(&self) -> StepError {
        let count = self.state.iterations.len();
        let last = self.state.iterations.iter().rev().flatten().find_map(|it| it.error.clone());
        match last {
            Some(last) => {
                let elements = if count == 1 { "element" } else { "elements" };
                last.at(&format!("none of {count} {elements} succeeded, and the last failed"))
            }
            None => StepError::new(ErrorKind::Tool, "no element succeeded: there are none"),
        }
    }

    /// Returns the output of a loop that ends early. Running elements get the status `cancelled`.
    /// Elements of a collection that have not started get the status `skipped`.
    pub(super) fn into_partial_output(mut self) -> Value {
        if self.definition.as_repeat().is_some() {
            self.state.iterations.truncate(self.state.next);
        }
        for (element, iteration) in self.state.iterations.iter_mut().enumerate() {
            let has_begun = element < self.state.next;
            let status = if has_begun { Status::Cancelled } else { Status::Skipped };
            iteration.get_or_insert(Iteration { status, output: None, error: None });
        }
        self.into_output()
    }

    /// Returns the output of the loop. It contains a JSON object for each element, in order.
    pub(super) fn into_output(self) -> Value {
        let last = self.definition.as_repeat().map(|_| self.last_output());
        let ends_at_success = self.definition.ends_at_success();
        let [mut completed, mut skipped, mut cancelled] = [0; 3];
        let count = self.state.iterations.len();
        let mut items = self.state.items.into_iter();
        let iterations: Vec<_> = self
            .state
            .iterations
            .into_iter()
            .enumerate()
            .filter_map(|(index, iteration)| {
                let item = items.next();
                let Iteration { status, output, error } = iteration?;
                completed += usize::from(status == Status::Completed);
                skipped += usize::from(status == Status::Skipped);
                cancelled += usize::from(status == Status::Cancelled);
                let mut member = Map::with_capacity(4);
                member.insert("index".to_owned(), index.into());
                member.extend(item.map(|item| ("item".to_owned(), item)));
                member.insert("status".to_owned(), status.name().into());
                if let Some(error) = error {
                    member.insert("error".to_owned(), error.to_value());
                } else if let Some(output) = output {
                    member.insert("output".to_owned(), output);
                }
                Some(Value::Object(member))
            })
            .collect();
        let mut output = Map::with_capacity(6);
        if let Some(last) = last {
            output.insert("last".to_owned(), last);
            output.insert("iterations".to_owned(), iterations.into());
            output.insert("count".to_owned(), (count - skipped).into());
            return Value::Object(output);
        }
        let is_success = |iteration: &&Value| iteration["status"] == Status::Completed.name();
        let success = iterations.iter().find(is_success).filter(|_| ends_at_success).cloned();
        output.insert("iterations".to_owned(), iterations.into());
        output.insert("count".to_owned(), count.into());
        output.insert("completed".to_owned(), completed.into());
        output.insert("failed".to_owned(), (count - completed - skipped - cancelled).into());
        for (status, number) in [(Status::Skipped, skipped), (Status::Cancelled, cancelled)] {
            if number > 0 {
                output.insert(status.name().to_owned(), number.into());
            }
        }
        output.extend(success.map(|success| ("first_success".to_owned(), success)));
        Value::Object(output)
    }

    /// Returns the output of the last iteration that has one, or null if there is no output.
    fn last_output(&self) -> Value {
        let mut outputs = self.state.iterations.iter().rev().flatten();
        outputs.find_map(|iteration| iteration.output.clone()).unwrap_or_default()
    }
}

// === impl RunState ===

impl RunState {
    /// Stores the output of a loop that ends early for the error report of a failed run. Does
    /// nothing if no element has ended, not counting skipped ones.
    pub(super) fn preserve_loop(&mut self, each: Loop<'_>) {
        if each.has_ended_any() {
            self.preserved.add(each.state.step, each.into_partial_output());
        }
    }
}
