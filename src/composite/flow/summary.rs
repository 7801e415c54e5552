//! Summaries of the data flows through composites.

use super::{
    rule::Rule,
    taint::{Hop, InputName, Taint},
};

/// A summary of the data flows through a composite. Callers of the composite are analyzed with this
/// summary instead of the composite's steps.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// The labels of the result of a successful run.
    pub(super) result: Taint,
    /// The labels of the result of any run, also of a failed one, which contains the outputs of
    /// completed steps.
    pub(super) outcome: Taint,
    /// The uses of input properties for which a rule forbids certain labels. An example is an input
    /// property that becomes an argument of an egress tool.
    pub(super) sinks: Vec<Sink>,
    /// The path to the first call of an egress tool. `None` if the composite calls none.
    pub(super) egress: Option<Vec<Hop>>,
    /// The path to the first call of a destructive tool. `None` if the composite calls none.
    pub(super) destructive: Option<Vec<Hop>>,
    /// Whether the composite calls an egress tool in a step that does not set `allow_flow`, and
    /// whose arguments the user does not approve.
    pub(super) has_open_egress: bool,
}

/// A use of an input property for which a rule forbids a label.
#[derive(Clone, Debug)]
pub(super) struct Sink {
    pub(super) input: InputName,
    pub(super) rule: Rule,
    /// The path from the input property to its use.
    pub(super) hops: Vec<Hop>,
}

// === impl Summary ===

impl Summary {
    /// Adds a use of an input property that `rule` restricts. Keeps only the first use for each
    /// property and rule.
    pub(super) fn add_sink(&mut self, input: &InputName, rule: Rule, hops: Vec<Hop>) {
        if !self.sinks.iter().any(|sink| sink.input == *input && sink.rule == rule) {
            self.sinks.push(Sink { input: input.clone(), rule, hops });
        }
    }
}
