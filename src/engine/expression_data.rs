//! The data of a run for expressions.

use std::{
    borrow::Cow,
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use serde_json::Value;

use super::{outcome::StepError, state::RunState};
use crate::expr::{Data, EvaluationError, Root};

/// A run and the current element of one of its loops.
#[derive(Clone, Debug, Default)]
struct Element {
    state: RunState,
    items: Vec<Value>,
    index: usize,
}

// === impl RunState ===

impl RunState {
    /// Lends the state to an evaluation.
    ///
    /// It is moved into an `Arc` and back: sharing it all the time would cost an allocation even
    /// for runs that evaluate nothing.
    pub(crate) fn lend<R, E: fmt::Display>(
        &mut self,
        evaluate: impl FnOnce(&Arc<dyn Data>) -> Result<R, E>,
    ) -> Result<R, StepError> {
        lend(self, evaluate)
    }

    /// Lends the state with an element of a loop.
    pub(super) fn lend_at<R>(
        &mut self,
        items: &mut Vec<Value>,
        index: usize,
        evaluate: impl FnOnce(&Arc<dyn Data>) -> Result<R, EvaluationError>,
    ) -> Result<R, StepError> {
        let mut element = Element { state: mem::take(self), items: mem::take(items), index };
        let result = lend(&mut element, evaluate);
        *self = element.state;
        *items = element.items;
        result
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
        }
    }
}

// === impl Element ===

impl Data for Element {
    fn get(&self, root: Root) -> Option<Cow<'_, Value>> {
        match root {
            Root::Item => self.items.get(self.index).map(Cow::Borrowed),
            Root::Index => Some(Cow::Owned(self.index.into())),
            root => self.state.get(root),
        }
    }
}

fn lend<D: Data + Clone + Default, R, E: fmt::Display>(
    data: &mut D,
    evaluate: impl FnOnce(&Arc<dyn Data>) -> Result<R, E>,
) -> Result<R, StepError> {
    let lent = Arc::new(mem::take(data));
    let shared: Arc<dyn Data> = lent.clone();
    // A panic would be a bug in this crate, and must not lose the run.
    let result = catch_unwind(AssertUnwindSafe(|| evaluate(&shared)));
    drop(shared);
    // No reference is left; if one were, the state would be cloned.
    *data = Arc::unwrap_or_clone(lent);
    match result {
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
    fn an_evaluation_that_panics_fails_and_leaves_the_state_as_it_was() {
        let before = RunState::new(json!({ "a": 1 }), 2);
        let (mut state, mut items) = (before.clone(), vec![json!(1)]);
        let failed = state.lend::<(), String>(|_| panic!("secret"));
        let failed_at = state.lend_at::<()>(&mut items, 0, |_| panic!("secret"));

        let expected = Err(StepError::definition("it could not be evaluated"));
        assert_eq!((&failed, &failed_at), (&expected, &expected));
        assert_eq!((state, items), (before, vec![json!(1)]));
    }
}
