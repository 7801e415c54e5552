//! Describes which limit ended a run early, as a message and as an object for the `_meta` of the
//! result.

use std::{fmt::Write, sync::Arc};

use serde_json::{Map, Value};

use super::compile::Compiled;
use crate::engine::{meter::Reached, outcome::Status, state::RunState};

/// The maximum number of steps that one message names. The message only counts further steps, as in
/// `and 3 more`.
pub(super) const MAX_NAMED_STEPS: usize = 10;

/// The reason why a run ended early: the limit that was reached, such as `max_calls`, and the steps
/// that were skipped or refused because of it.
pub(super) struct LimitEnd {
    reached: Reached,
    /// The name of the composite whose run ended early.
    run: Arc<str>,
    skipped: Vec<String>,
    refused: Vec<String>,
}

// === impl LimitEnd ===

impl LimitEnd {
    /// Returns the limit that ended a run, and the affected steps. Returns `None` if no limit ended
    /// the run.
    pub(super) fn of(compiled: &Compiled, state: &RunState) -> Option<Self> {
        let reached = state.reached.clone()?;
        let steps = compiled.plan.steps();
        let is = |place: usize, status: Status| {
            let outcome = state.outcomes[place].as_ref();
            outcome.is_some_and(|outcome| outcome.status == status && outcome.is_refused())
        };
        let all = |status: Status| {
            let places = (0..steps.len()).filter(move |&place| is(place, status));
            places.map(|place| steps[place].id.to_string())
        };
        let elements = state.skipped_elements.iter();
        let elements = elements.map(|id| format!("{}[{}]", steps[id.step].id, id.element));
        Some(Self {
            reached,
            run: compiled.name.clone(),
            skipped: elements.chain(all(Status::Skipped)).collect(),
            refused: all(Status::Failed).collect(),
        })
    }

    /// Returns a text for the result of the run. It names the limit and the affected steps, at most
    /// [`MAX_NAMED_STEPS`] of each kind.
    pub(super) fn message(&self) -> String {
        let mut text = format!("the run ended early: {}", self.reached.message(&self.run));
        for (what, names) in [("refused", &self.refused), ("skipped", &self.skipped)] {
            if names.is_empty() {
                continue;
            }
            let named: Vec<_> =
                names.iter().take(MAX_NAMED_STEPS).map(|name| format!("`{name}`")).collect();
            let _ = write!(text, "; {what}: {}", named.join(", "));
            if let Some(more @ 1..) = names.len().checked_sub(MAX_NAMED_STEPS) {
                let _ = write!(text, " and {more} more");
            }
        }
        text
    }

    /// Returns the limit and the affected steps as a JSON object. The result of the run contains
    /// the object in `_meta`, under the key [`LIMIT`](super::answer::LIMIT).
    pub(super) fn into_value(self) -> Value {
        let Reached { setting, limit, of } = self.reached;
        let mut value = Map::with_capacity(5);
        value.insert("setting".to_owned(), setting.name().into());
        value.insert("limit".to_owned(), limit.into());
        if *of != *self.run {
            value.insert("of".to_owned(), of.into());
        }
        value.insert("skipped".to_owned(), self.skipped.into());
        if !self.refused.is_empty() {
            value.insert("refused".to_owned(), self.refused.into());
        }
        value.into()
    }
}
