//! Checks the data flows of all composites of a layer.

use super::{
    call_flow::CallFlow, policy::FlowLabel, steps::Flows, summary::Summary, violation::FlowReport,
};
use crate::composite::compile::Program;

/// Returns the violations and remarks of all composites. `labels` returns the labels of a tool.
pub(in crate::composite) fn check(
    program: &Program,
    labels: &dyn Fn(&str) -> Vec<FlowLabel>,
) -> FlowReport {
    let (_, reports) = analyze(program, labels);
    let mut all = FlowReport::default();
    for report in reports {
        all.violations.extend(report.violations);
        all.remarks.extend(report.remarks);
    }
    all
}

/// Returns the labels of the calls of each composite, in the order of the definitions. `labels`
/// returns the labels of a tool.
pub(in crate::composite) fn call_flows(
    program: &Program,
    labels: &dyn Fn(&str) -> Vec<FlowLabel>,
) -> Vec<CallFlow> {
    let (summaries, _) = analyze(program, labels);
    summaries.iter().map(CallFlow::from).collect()
}

/// Analyzes all composites of a program. Each composite is analyzed after the composites that it
/// calls.
fn analyze(
    program: &Program,
    labels: &dyn Fn(&str) -> Vec<FlowLabel>,
) -> (Vec<Summary>, Vec<FlowReport>) {
    let mut summaries: Vec<_> = program.composites.iter().map(|_| Summary::default()).collect();
    let mut reports: Vec<_> = program.composites.iter().map(|_| FlowReport::default()).collect();
    for &at in &program.callees_first {
        let flows = Flows::new(program, at, &summaries, labels);
        (summaries[at], reports[at]) = flows.check();
    }
    (summaries, reports)
}
