//! A preview of the calls of a composite.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

pub use crate::engine::preview::{
    CallPreview, ConditionPreview, ElicitationPreview, LoopPreview, StepPreview, Wave,
};

/// The calls that a composite would make with given arguments, as far as they can be determined
/// before any tool is called.
///
/// `Display` prints the calls and questions of each step, in numbered waves of steps that may start
/// at the same time. Values that only a run can determine, such as the outputs of other steps, are
/// printed as they are written in the definition. A preview can also be serialized.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Preview {
    /// The name of the composite.
    pub composite: String,
    /// The steps grouped into waves. The steps of a wave may start at the same time.
    ///
    /// A step is in the first wave after the waves of all steps that it waits for. In an actual
    /// run, a step starts as soon as the steps that it waits for have finished, without waiting for
    /// others in their waves.
    pub waves: Vec<Wave>,
}

/// Prints lines with the same left margin.
struct Lines<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    /// The label to print before the next line. Empty for all lines after it.
    label: String,
    margin: usize,
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
                let label = format!("{number:>4}  {:width$}  ", step.id);
                let margin = label.len();
                print(step, &mut Lines { f, label, margin })?;
            }
        }
        Ok(())
    }
}

fn print(step: &StepPreview, lines: &mut Lines<'_, '_>) -> fmt::Result {
    if let Some(condition) = &step.condition {
        lines.line(&format!("if {}", condition_text(condition)))?;
    }
    if let Some(each) = &step.for_each {
        let items = each.items.as_ref().map(|items| format!(", which are {}", items.len()));
        let error = each.error.as_ref().map(|error| format!(", but {error}"));
        lines.line(&format!(
            "for each of {}{}{}, {} at a time:",
            each.collection,
            items.unwrap_or_default(),
            error.unwrap_or_default(),
            each.max_parallel,
        ))?;
    }
    if let Some(asks) = &step.asks {
        lines.line(&format!("ask {}", asks.message))?;
        if let Some(error) = &asks.error {
            lines.line(&format!("which would fail: {error}"))?;
        }
        lines.line(&format!("to fill in {}", asks.schema))?;
        let (declined, cancelled) = (asks.on_decline.name(), asks.on_cancel.name());
        lines.line(&format!("if declined {declined}, if cancelled {cancelled}"))?;
    }
    for call in &step.calls {
        if let Some(when) = &call.when {
            lines.line(&format!("when {}:", condition_text(when)))?;
        } else if step.calls.len() > 1 {
            lines.line("else:")?;
        }
        let arguments = call.arguments.as_ref().map(Value::to_string);
        lines.line(format!("{} {}", call.tool, arguments.unwrap_or_default()).trim_end())?;
        if let Some(error) = &call.error {
            lines.line(&format!("which would fail: {error}"))?;
        }
    }
    Ok(())
}

/// Prints a condition and its value, if known.
fn condition_text(condition: &ConditionPreview) -> String {
    let ConditionPreview { written, holds, error } = condition;
    match (holds, error) {
        (_, Some(error)) => format!("{written} (which would fail: {error})"),
        (Some(true), None) => format!("{written} (which holds)"),
        (Some(false), None) => format!("{written} (which does not hold)"),
        (None, None) => written.clone(),
    }
}

// === impl Lines ===

impl Lines<'_, '_> {
    fn line(&mut self, text: &str) -> fmt::Result {
        let margin = self.margin;
        writeln!(self.f, "{:margin$}{text}", std::mem::take(&mut self.label))
    }
}
