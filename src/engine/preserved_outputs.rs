//! Preserves the outputs of completed steps for the error report of a failed run.

use std::{collections::BTreeMap, mem};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::content_size;

/// The maximum total size of the outputs that a run preserves, in bytes.
const MAX_PRESERVED_BYTES: usize = 64 * 1024;
/// The maximum size of the prefix that is preserved of a large output, in bytes.
const MAX_PRESERVED_PREFIX: usize = 1024;

/// Outputs of completed steps that no expression reads any more. If the run fails, its error report
/// contains them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<usize, Preservation>", into = "BTreeMap<usize, Preservation>")]
pub(crate) struct Preserved {
    outputs: BTreeMap<usize, Preservation>,
    bytes: usize,
}

/// The preserved output of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Preservation {
    Output(Value),
    /// A part of an output that is too large: a prefix of the output as text. For a loop, the
    /// output without members such as `output` of its elements, if that is small enough.
    Truncated(Value),
    /// Not even a part of the output fits into the remaining bytes.
    TooLarge,
}

// === impl Preservation ===

impl Preservation {
    fn bytes(&self) -> usize {
        match self {
            Self::Output(output) | Self::Truncated(output) => content_size::of_value(output),
            Self::TooLarge => 0,
        }
    }

    /// Truncates the output to at most `max` bytes, or drops it if this is not possible. Returns it
    /// with its size in bytes.
    fn within(self, max: usize) -> (Self, usize) {
        let bytes = self.bytes();
        if bytes <= max {
            return (self, bytes);
        }
        let shortened = match self {
            Self::Output(output) | Self::Truncated(output) => {
                shortened(output, max).map_or(Self::TooLarge, Self::Truncated)
            }
            Self::TooLarge => Self::TooLarge,
        };
        let bytes = shortened.bytes();
        (shortened, bytes)
    }
}

/// Truncates an output to at most `max` bytes. Returns `None` if not even a prefix fits.
fn shortened(mut output: Value, max: usize) -> Option<Value> {
    // In the output of a loop, the outputs of the elements are removed first, then their items,
    // then their errors, and then the members that repeat a part of an element.
    for key in ["output", "item", "error"] {
        let Some(elements) = elements_mut(&mut output) else { break };
        elements.for_each(|element| drop(element.remove(key)));
        if content_size::of_value(&output) <= max {
            return Some(output);
        }
    }
    if elements_mut(&mut output).is_some()
        && let Some(members) = output.as_object_mut()
    {
        for key in ["last", "first_success"] {
            members.remove(key);
        }
        if content_size::of_value(&output) <= max {
            return Some(output);
        }
    }
    let mut text = match output {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let mut end = max.min(MAX_PRESERVED_PREFIX).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    let prefix = Value::from(text);
    (end > 0 && content_size::of_value(&prefix) <= max).then_some(prefix)
}

/// Returns the objects in the `iterations` array of a loop's output. Returns `None` if `output`
/// does not look like the output of a loop.
fn elements_mut(output: &mut Value) -> Option<impl Iterator<Item = &mut Map<String, Value>>> {
    let is_element = |element: &Value| element.get("index").is_some_and(Value::is_u64);
    let elements = output.get_mut("iterations")?.as_array_mut()?;
    let is_loop = !elements.is_empty() && elements.iter().all(is_element);
    is_loop.then(|| elements.iter_mut().filter_map(Value::as_object_mut))
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

    /// Preserves the output of a step. Does nothing if an output of this step is already preserved.
    pub(super) fn add(&mut self, step: usize, output: Value) {
        if self.outputs.contains_key(&step) {
            return;
        }
        let left = MAX_PRESERVED_BYTES - self.bytes;
        let (preservation, bytes) = Preservation::Output(output).within(left);
        self.bytes += bytes;
        self.outputs.insert(step, preservation);
    }

    pub(crate) fn take(&mut self, step: usize) -> Option<Preservation> {
        self.outputs.remove(&step)
    }

    /// Truncates the preserved outputs to at most `left` bytes in total, and subtracts their
    /// remaining size from `left`. Outputs of earlier steps have precedence.
    pub(super) fn trim(&mut self, left: &mut usize) {
        self.bytes = 0;
        for preservation in self.outputs.values_mut() {
            let whole = mem::replace(preservation, Preservation::TooLarge);
            let (trimmed, bytes) = whole.within(*left);
            *preservation = trimmed;
            *left -= bytes;
            self.bytes += bytes;
        }
    }

    /// Returns `true` if the outputs belong to a plan with this number of steps and are not too
    /// large. Used to reject invalid stored states.
    pub(super) fn fits(&self, steps: usize) -> bool {
        self.bytes <= MAX_PRESERVED_BYTES && self.outputs.keys().all(|&step| step < steps)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn preserved(lengths: &[usize]) -> Preserved {
        let mut preserved = Preserved::default();
        for (step, &length) in lengths.iter().enumerate() {
            preserved.add(step, "x".repeat(length).into());
        }
        preserved
    }

    /// Returns the length of each preserved output in bytes, and `true` if the output is complete.
    fn lengths(mut preserved: Preserved) -> Vec<(usize, bool)> {
        let length = |step| match preserved.take(step).unwrap() {
            Preservation::Output(output) => (output.as_str().unwrap().len(), true),
            Preservation::Truncated(prefix) => (prefix.as_str().unwrap().len(), false),
            Preservation::TooLarge => (0, false),
        };
        (0..3).map(length).collect()
    }

    /// Returns the output of a loop with `count` elements. The output, the item and the error of
    /// each element have the given lengths.
    fn loop_output(count: usize, [output, item, error]: [usize; 3]) -> Value {
        let text = |length| "x".repeat(length);
        let element = |index| match index % 2 {
            0 => {
                json!({ "index": index, "item": text(item), "status": "completed", "output": text(output) })
            }
            _ => {
                json!({ "index": index, "item": text(item), "status": "failed", "error": { "message": text(error) } })
            }
        };
        let iterations: Vec<_> = (0..count).map(element).collect();
        json!({ "iterations": iterations, "count": count })
    }

    #[test]
    fn outputs_share_a_byte_limit() {
        let outputs = preserved(&[60_000, 60_000, 5_000]);
        assert_eq!(lengths(outputs), [(60_000, true), (1_024, false), (1_024, false)]);
        let outputs = preserved(&[65_000, 60_000, 5_000]);
        assert_eq!(lengths(outputs), [(65_000, true), (536, false), (0, false)]);
    }

    #[test]
    fn outputs_of_later_steps_are_trimmed_first() {
        let mut outputs = preserved(&[3_000, 3_000, 1_000]);
        let mut left = 4_096;
        outputs.trim(&mut left);
        assert_eq!(left, 0);
        assert_eq!(lengths(outputs), [(3_000, true), (1_024, false), (72, false)]);

        let mut outputs = preserved(&[3_000, 3_000, 1_000]);
        outputs.trim(&mut 0);
        assert_eq!(lengths(outputs), [(0, false); 3]);
    }

    #[test]
    fn last_output_of_a_repeated_call_is_removed_after_the_others() {
        let text = "x".repeat(1_000);
        let element = json!({ "index": 0, "status": "completed", "output": text });
        let output = json!({ "last": text, "iterations": [element], "count": 1 });
        let bare = json!({ "index": 0, "status": "completed" });
        let expected = json!({ "last": text, "iterations": [bare], "count": 1 });
        assert_eq!(shortened(output.clone(), 1_500), Some(expected));
        let expected = json!({ "iterations": [bare], "count": 1 });
        assert_eq!(shortened(output, 500), Some(expected));
    }

    #[test]
    fn truncated_text_ends_at_a_character_boundary() {
        let text = "ö".repeat(2_000);
        let Some(Value::String(prefix)) = shortened(text.into(), 1_001) else { panic!() };
        assert_eq!(prefix, "ö".repeat(500));
        let Some(Value::String(prefix)) = shortened(json!(["x".repeat(2_000)]), 10) else {
            panic!()
        };
        assert_eq!(prefix, "[\"xxxxxxxx");
    }

    #[test]
    fn large_loop_output_keeps_the_status_of_its_elements() {
        let expect = |sizes, expected: &[&str]| {
            let Some(output) = shortened(loop_output(100, sizes), MAX_PRESERVED_BYTES) else {
                panic!()
            };
            assert!(content_size::of_value(&output) <= MAX_PRESERVED_BYTES);
            assert_eq!(output["count"], 100);
            assert_eq!(output["iterations"].as_array().unwrap().len(), 100);
            for element in 0..2 {
                let keys: Vec<_> =
                    output["iterations"][element].as_object().unwrap().keys().collect();
                let expected: Vec<_> = expected
                    .iter()
                    .copied()
                    .filter(|key| *key != "error" || element == 1)
                    .collect();
                assert_eq!(keys, expected, "{sizes:?}");
            }
        };
        expect([2_000, 10, 10], &["error", "index", "item", "status"]);
        expect([2_000, 2_000, 10], &["error", "index", "status"]);
        expect([10, 10, 2_000], &["index", "status"]);
        // A loop's output without elements is truncated like any other output.
        let other = json!({ "iterations": "x".repeat(70_000) });
        assert!(shortened(other, MAX_PRESERVED_BYTES).unwrap().is_string());
    }

    #[test]
    fn state_with_oversized_outputs_is_rejected() {
        let large = json!({ "0": { "output": "x".repeat(70_000) } });
        let claimed: Preserved = serde_json::from_value(large).unwrap();
        assert!(!claimed.fits(1));
        assert!(preserved(&[1]).fits(1) && !preserved(&[1]).fits(0));
    }
}
