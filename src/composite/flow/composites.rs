//! Checks all composites of a layer.

use super::{policy::FlowLabel, steps::Flows, summary::Summary, violation::FlowReport};
use crate::composite::compile::Program;

/// Checks all composites of a program. `labels` returns the labels of a tool.
pub(in crate::composite) fn check(
    program: &Program,
    labels: &dyn Fn(&str) -> Vec<FlowLabel>,
) -> FlowReport {
    let mut summaries: Vec<_> = program.composites.iter().map(|_| Summary::default()).collect();
    let mut reports: Vec<_> = program.composites.iter().map(|_| FlowReport::default()).collect();
    for &at in &program.callees_first {
        let flows = Flows::new(program, at, &summaries, labels);
        (summaries[at], reports[at]) = flows.check();
    }
    let mut all = FlowReport::default();
    for report in reports {
        all.violations.extend(report.violations);
        all.remarks.extend(report.remarks);
    }
    all
}
