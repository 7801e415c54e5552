//! The stored form of a run of a composite.

use serde::{Deserialize, Serialize};

use crate::engine::{meter::Used, state::RunState};

/// The stored content of a run: its state, and the resources that it has used.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SuspendedRun<R = Box<RunState>> {
    /// The number of rounds in which the run has asked questions.
    pub(super) round: usize,
    /// The number of questions that the run has asked so far, in all rounds.
    #[serde(default)]
    pub(super) asked: usize,
    pub(super) used: Used,
    pub(super) run: R,
}

// === impl SuspendedRun ===

impl<R: Serialize> SuspendedRun<R> {
    /// Serializes the run to JSON. Returns `None` if a result in its state is nested so deep that
    /// the JSON could not be parsed.
    pub(super) fn to_json(&self) -> Option<Vec<u8>> {
        // Serialization cannot fail: all map keys are strings.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        // A deeply nested result can be serialized but would exceed the parser's depth limit.
        serde_json::from_slice::<SuspendedRun>(&bytes).is_ok().then_some(bytes)
    }
}
