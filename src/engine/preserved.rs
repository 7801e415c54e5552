//! The outputs of completed steps that the answer of a failed run reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::size;

/// The size of all preserved outputs of a run together.
const MAX_BYTES: usize = 64 * 1024;
/// The same while the run waits for a person, since the client may have to keep its state.
const MAX_BYTES_PUT_AWAY: usize = 4 * 1024;

/// The outputs of completed steps that no step reads any more, by step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<usize, Preservation>", into = "BTreeMap<usize, Preservation>")]
pub(crate) struct Preserved {
    outputs: BTreeMap<usize, Preservation>,
    /// The size of the outputs together.
    bytes: usize,
}

/// An output, if it is not too large.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Preservation {
    Output(Value),
    TooLarge,
}

// === impl Preservation ===

impl Preservation {
    fn bytes(&self) -> usize {
        match self {
            Self::Output(output) => size::of_value(output),
            Self::TooLarge => 0,
        }
    }
}

// === impl Preserved ===

impl From<BTreeMap<usize, Preservation>> for Preserved {
    fn from(outputs: BTreeMap<usize, Preservation>) -> Self {
        let bytes = outputs.values().map(Preservation::bytes).sum();
        Self { outputs, bytes }
    }
}

impl From<Preserved> for BTreeMap<usize, Preservation> {
    fn from(preserved: Preserved) -> Self {
        preserved.outputs
    }
}

impl Preserved {
    pub(crate) fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Adds the output of a step, unless it has one.
    pub(super) fn add(&mut self, step: usize, output: Value) {
        if self.outputs.contains_key(&step) {
            return;
        }
        let mut preservation = Preservation::Output(output);
        let bytes = preservation.bytes();
        if bytes > MAX_BYTES - self.bytes {
            preservation = Preservation::TooLarge;
        } else {
            self.bytes += bytes;
        }
        self.outputs.insert(step, preservation);
    }

    /// Takes the output of a step.
    pub(crate) fn take(&mut self, step: usize) -> Option<Preservation> {
        self.outputs.remove(&step)
    }

    /// Drops the outputs of later steps until the rest may be put away.
    pub(super) fn put_away(&mut self) {
        let mut bytes = 0;
        for preservation in self.outputs.values_mut() {
            let size = preservation.bytes();
            if size > MAX_BYTES_PUT_AWAY - bytes {
                *preservation = Preservation::TooLarge;
            } else {
                bytes += size;
            }
        }
        self.bytes = bytes;
    }

    /// Whether these can be the outputs of so many steps.
    pub(super) fn fits(&self, steps: usize) -> bool {
        self.bytes <= MAX_BYTES && self.outputs.keys().all(|&step| step < steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preserved(lengths: &[usize]) -> Preserved {
        let mut preserved = Preserved::default();
        for (step, &length) in lengths.iter().enumerate() {
            preserved.add(step, "x".repeat(length).into());
        }
        preserved
    }

    fn lengths(mut preserved: Preserved) -> Vec<Option<usize>> {
        let length = |step| match preserved.take(step)? {
            Preservation::Output(output) => Some(output.as_str()?.len()),
            Preservation::TooLarge => None,
        };
        (0..3).map(length).collect()
    }

    #[test]
    fn outputs_are_bounded_together() {
        assert_eq!(lengths(preserved(&[60_000, 60_000, 5_000])), [Some(60_000), None, Some(5_000)]);
    }

    #[test]
    fn outputs_that_are_put_away_are_bounded_together() {
        let mut preserved = preserved(&[3_000, 3_000, 1_000]);
        preserved.put_away();
        assert_eq!(lengths(preserved), [Some(3_000), None, Some(1_000)]);
    }

    #[test]
    fn a_state_that_claims_more_than_the_limit_does_not_fit() {
        let large = serde_json::json!({ "0": { "output": "x".repeat(70_000) } });
        let claimed: Preserved = serde_json::from_value(large).unwrap();
        assert!(!claimed.fits(1));
        assert!(preserved(&[1]).fits(1) && !preserved(&[1]).fits(0));
    }
}
