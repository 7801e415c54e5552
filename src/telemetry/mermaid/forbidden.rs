//! Forbidden flows of data, which flowcharts can show.

use std::sync::Arc;

/// A flow of data that a policy forbids.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ForbiddenFlow {
    /// The name of the composite in which the data is used.
    pub(crate) composite: String,
    /// The steps on the path of the data, from its source to its forbidden use.
    pub(crate) steps: Vec<StepNode>,
    /// The label of the arrows between the steps, such as `private data`.
    pub(crate) data: &'static str,
    /// A line of text in the last node, which describes the violated rule.
    pub(crate) reason: &'static str,
}

/// Identifies the node of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepNode {
    /// The name of the composite to which the step belongs.
    pub(crate) composite: Arc<str>,
    /// The ID of the step.
    pub(crate) step: Arc<str>,
}
