//! How far a loop is.

use std::{mem, sync::Arc};

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{
    outcome::{Outcome, Status, StepError},
    plan::ForEach,
};
use crate::message::{Context, Parts, Progress};

/// A loop that goes on.
pub(super) struct Loop<'p> {
    pub(super) step: usize,
    pub(super) definition: &'p ForEach,
    pub(super) items: Vec<Value>,
    /// Beside each item, how it ended.
    iterations: Vec<Option<Iteration>>,
    /// The first item that has not begun.
    next: usize,
    /// How many have begun and not ended.
    running: usize,
    /// How often the tool was called.
    pub(super) attempts: u32,
    pub(super) since: Instant,
    /// The progress of the elements, if anybody wants to know.
    pub(super) progress: Option<Arc<Parts>>,
}

/// How an element ended.
struct Iteration {
    status: Status,
    output: Option<Value>,
    error: Option<StepError>,
}

// === impl Loop ===

impl<'p> Loop<'p> {
    pub(super) fn new(
        step: usize,
        definition: &'p ForEach,
        items: Vec<Value>,
        since: Instant,
        progress: Option<&Progress>,
    ) -> Self {
        let mut iterations = Vec::new();
        iterations.resize_with(items.len(), || None);
        Self {
            step,
            definition,
            iterations,
            next: 0,
            running: 0,
            attempts: 0,
            since,
            progress: progress.map(|progress| progress.split(items.len())),
            items,
        }
    }

    /// The next element that begins, if one may.
    pub(super) fn begin_next(&mut self) -> Option<usize> {
        let may = self.next < self.items.len() && self.running < self.definition.max_parallel;
        may.then(|| {
            self.running += 1;
            self.next += 1;
            self.next - 1
        })
    }

    /// Notes how an element ended.
    pub(super) fn end(&mut self, index: usize, mut outcome: Outcome) {
        self.running -= 1;
        self.attempts += outcome.attempts;
        let status = outcome.status;
        let error = outcome.error.take();
        let output = outcome.into_output();
        self.iterations[index] = Some(Iteration { status, output, error });
    }

    pub(super) fn is_done(&self) -> bool {
        self.running == 0 && self.next == self.items.len()
    }

    /// The context of the call for an element of the step of this id.
    pub(super) fn context(&self, id: &str, index: usize, run: &Context) -> Context {
        let name: Arc<str> = format!("{id}[{index}]").into();
        let part = |parts: &Arc<Parts>| parts.part(index, format!("element {index}").into());
        run.branch(name, self.progress.as_ref().map(part))
    }

    /// What the loop gave, in the order of the elements.
    pub(super) fn into_output(mut self) -> Value {
        let mut completed = 0;
        let count = self.items.len();
        let items = mem::take(&mut self.items).into_iter().zip(self.iterations);
        let iterations: Vec<_> = items
            .enumerate()
            .filter_map(|(index, (item, iteration))| {
                let Iteration { status, output, error } = iteration?;
                completed += usize::from(status == Status::Completed);
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
        let mut output = Map::with_capacity(4);
        output.insert("iterations".to_owned(), iterations.into());
        output.insert("count".to_owned(), count.into());
        output.insert("completed".to_owned(), completed.into());
        output.insert("failed".to_owned(), (count - completed).into());
        Value::Object(output)
    }
}
