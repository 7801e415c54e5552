//! A preview of the tool calls of a composite.

use std::fmt;

use serde::Serialize;

pub use crate::engine::preview::{
    CallPreview, ConditionPreview, ElicitationPreview, LoopPreview, RepeatPreview, StepPreview,
    StopPreview, Wave,
};

/// A preview of the tool calls that a composite tool would make with given arguments. The preview
/// shows how the definition behaves without calling any tool.
///
/// The `Display` implementation of a preview prints the tool calls and questions of each step,
/// grouped into numbered waves of steps that may start at the same time. A value that is known only
/// during a run, such as the output of a step, is printed as it is written in the definition. A
/// preview can also be serialized.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Preview {
    /// The name of the composite.
    pub composite: String,
    /// The steps of the composite, grouped into waves. The steps of a wave may start at the same
    /// time. Each step is in the first wave after all steps that it waits for. In an actual run, a
    /// step does not wait for the whole preceding wave, but only for the steps that it needs.
    pub waves: Vec<Wave>,
}

// === impl Preview ===

impl fmt::Display for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.waves.iter().flat_map(|wave| &wave.steps).map(|step| step.id.len());
        let width = ids.max().unwrap_or_default();
        writeln!(f, "{}", self.composite)?;
        for (number, wave) in self.waves.iter().enumerate() {
            for (place, step) in wave.steps.iter().enumerate() {
                let number = if place == 0 { (number + 1).to_string() } else { String::new() };
                let mut label = format!("{number:>4}  {:width$}  ", step.id);
                let margin = label.len();
                // Only the first line of a step has the label. The other lines are indented by the
                // same width.
                for line in step.lines() {
                    writeln!(f, "{:margin$}{line}", std::mem::take(&mut label))?;
                }
            }
        }
        Ok(())
    }
}
