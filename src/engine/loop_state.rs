//! The state of a loop, which is stored with its run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    outcome::{Status, StepError},
    plan::Plan,
    record::present,
};

/// The progress of a loop, from which a stored run can resume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoopState {
    pub(super) step: usize,
    /// The elements of the collection. Empty for a loop that repeats a call.
    pub(super) items: Vec<Value>,
    /// The result of each element, or `None` for elements that have not ended. A loop that repeats
    /// a call adds an element for each further iteration.
    pub(super) iterations: Vec<Option<Iteration>>,
    /// The index of the first element that has not started.
    pub(super) next: usize,
    /// The number of tool calls of the elements that have ended, including retries.
    pub(super) attempts: u32,
    /// Milliseconds between the start of the run and the start of the loop.
    pub(super) started_ms: u64,
}

/// The result of a loop element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Iteration {
    pub(super) status: Status,
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "present")]
    pub(super) output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) error: Option<Box<StepError>>,
}

// === impl LoopState ===

impl LoopState {
    /// Returns `true` if the loop element has started but not ended.
    pub(super) fn is_running(&self, element: usize) -> bool {
        element < self.next && matches!(self.iterations.get(element), Some(None))
    }

    /// Returns the loop elements that have started but not ended.
    pub(super) fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.next).filter(|&element| self.is_running(element))
    }

    /// Returns `true` if this state matches the plan of the run. `waiting` is the number of loop
    /// elements with pending questions. `was_running` is `true` if the state was stored while the
    /// run was running. Used to reject invalid stored states.
    pub(super) fn fits(&self, plan: &Plan, waiting: usize, was_running: bool) -> bool {
        let each = plan.steps().get(self.step).and_then(|step| step.action.as_loop());
        let count = self.iterations.len();
        let is_loop = each.is_some_and(|each| {
            let is_whole = match each.as_repeat() {
                // Only the last iteration can be left. In a suspended run, it has begun.
                Some(_) => {
                    let mut earlier = self.iterations.iter().rev().skip(1);
                    self.items.is_empty()
                        && (self.next == count || was_running && self.next + 1 == count)
                        && earlier.all(Option::is_some)
                }
                None => self.items.len() == count,
            };
            is_whole && each.reject(count).is_none()
        });
        if !is_loop || self.next > count || self.iterations[self.next..].iter().any(Option::is_some)
        {
            return false;
        }
        let open = self.running().count();
        if was_running {
            return self.iterations.iter().any(Option::is_none) && waiting <= open;
        }
        // While a run is suspended, each running element of a loop waits for answers, and a loop
        // has at least one such element.
        (open, open > 0) == (waiting, true)
    }
}
