//! Provides the data of a run to expressions.

use std::{
    borrow::Cow,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde_json::Value;

use super::{outcome::StepError, state::RunState};
use crate::expr::{Data, Root};

/// The data for expressions inside a loop: the state of the run and the current loop element.
struct Element<'a> {
    state: &'a RunState,
    item: Option<&'a Value>,
    index: usize,
}

// === impl RunState ===

impl RunState {
    /// Calls `evaluate` with the data of the run, such as the input and the step outputs. Converts
    /// an error or a panic of `evaluate` to a [`StepError`].
    pub(crate) fn evaluate<R, E: fmt::Display>(
        &self,
        evaluate: impl FnOnce(&dyn Data) -> Result<R, E>,
    ) -> Result<R, StepError> {
        caught(|| evaluate(self))
    }

    /// Like [`evaluate`](Self::evaluate), for an expression inside a loop. `index` and `item` are
    /// the index and the value of the current loop element. `item` is `None` if the element has no
    /// value, such as the first iteration of a `repeat` loop.
    pub(super) fn evaluate_at<R, E: fmt::Display>(
        &self,
        item: Option<&Value>,
        index: usize,
        evaluate: impl FnOnce(&dyn Data) -> Result<R, E>,
    ) -> Result<R, StepError> {
        let element = Element { state: self, item, index };
        caught(|| evaluate(&element))
    }
}

impl Data for RunState {
    fn get(&self, root: Root) -> Option<Cow<'_, Value>> {
        let text = |text: &Option<String>| text.as_deref().map(Value::from).map(Cow::Owned);
        match root {
            Root::Input => Some(Cow::Borrowed(&self.input)),
            Root::Step { step, field } => self.outcomes.get(step)?.as_ref()?.field(field),
            Root::Item | Root::Index => None,
            Root::WorkflowId => text(&self.id),
            Root::WorkflowName => text(&self.name),
            Root::WorkflowStartedAt => text(&self.started_at),
        }
    }
}

// === impl Element ===

impl Data for Element<'_> {
    fn get(&self, root: Root) -> Option<Cow<'_, Value>> {
        match root {
            Root::Item => self.item.map(Cow::Borrowed),
            Root::Index => Some(Cow::Owned(self.index.into())),
            root => self.state.get(root),
        }
    }
}

/// Calls `evaluate`. Converts an error or a panic to a [`StepError`].
fn caught<R, E: fmt::Display>(evaluate: impl FnOnce() -> Result<R, E>) -> Result<R, StepError> {
    // A panic would be a bug in this crate. It must fail only the step, because the run would
    // otherwise be lost.
    match catch_unwind(AssertUnwindSafe(evaluate)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(StepError::definition(error.to_string())),
        Err(_) => Err(StepError::definition("it could not be evaluated")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn evaluation_that_panics_fails_without_its_message() {
        let state = RunState::new(json!({ "a": 1 }), 2);
        let failed = state.evaluate::<(), String>(|_| panic!("secret"));
        let failed_at = state.evaluate_at::<(), String>(Some(&json!(1)), 0, |_| panic!("secret"));
        let expected = Err(StepError::definition("it could not be evaluated"));
        assert_eq!((&failed, &failed_at), (&expected, &expected));
    }
}
