//! The flows of data through a composite, for the composites that call it.

use super::{
    rule::Rule,
    taint::{Hop, InputName, Taint},
};

/// The flows of data through a composite, for the composites that call it.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// The labels of the result of a successful run.
    pub(super) result: Taint,
    /// The labels of the result of any run. The result of a failed run contains the outputs of the
    /// completed steps.
    pub(super) outcome: Taint,
    /// The places that restrict the labels of the input.
    pub(super) sinks: Vec<Sink>,
    /// The path to the first call of an egress tool. `None` if the composite calls none.
    pub(super) egress: Option<Vec<Hop>>,
    /// The path to the first call of a destructive tool. `None` if the composite calls none.
    pub(super) destructive: Option<Vec<Hop>>,
    /// Whether the composite calls an egress tool in a step that is neither exempted nor approved
    /// by a person.
    pub(super) has_open_egress: bool,
}

/// A place that an input property reaches, and that restricts the labels of this property.
#[derive(Clone, Debug)]
pub(super) struct Sink {
    pub(super) input: InputName,
    pub(super) rule: Rule,
    /// The path from the input to the place.
    pub(super) hops: Vec<Hop>,
}

// === impl Summary ===

impl Summary {
    /// Adds a place that restricts an input property. Only one place is kept for each property and
    /// rule.
    pub(super) fn add_sink(&mut self, input: &InputName, rule: Rule, hops: Vec<Hop>) {
        if !self.sinks.iter().any(|sink| sink.input == *input && sink.rule == rule) {
            self.sinks.push(Sink { input: input.clone(), rule, hops });
        }
    }
}
