//! The parts of a compiled composite that depend on its strategy.

use foldhash::HashMap;

use crate::{
    composite::{
        step::ToolCall,
        strategy::{BranchOrder, Labels, Success},
    },
    engine::plan::Plan,
};

/// The maximum length of the id of a target or step.
const MAX_STEP_ID: usize = 64;

/// The properties of a target that its call site in the plan does not contain.
#[derive(Debug)]
pub(in crate::composite) struct CompiledTarget {
    pub(in crate::composite) route: Route,
    /// Whether the composite can run and succeed without the tool of this target.
    pub(in crate::composite) optional: bool,
    /// Whether every run that succeeds has called this target.
    pub(in crate::composite) certain: bool,
}

/// The parts of a composite that depend on its strategy.
pub(super) struct Parts {
    pub(super) plan: Plan,
    pub(super) answer: ResultForm,
    pub(super) targets: Vec<CompiledTarget>,
    pub(super) remarks: Vec<String>,
}

/// The tool or composite that a target calls. Decided when the layer is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::composite) enum Route {
    /// A tool of the service behind the layer.
    Inner,
    /// Another composite, by its index.
    Composite(usize),
}

/// The rule that combines the outcomes of a run's branches or steps into one result.
#[derive(Clone, Copy, Debug)]
pub(in crate::composite) enum ResultForm {
    /// The result has the content of all branches. The rule `success` decides whether it is an
    /// error.
    Branches { success: Success, order: BranchOrder, report: bool, labels: Labels },
    /// The unchanged result of the branch that succeeded first.
    Winner,
    /// The result is the answer of the plan. If the run fails, the result reports the completed
    /// steps, with their outputs if `report` is set.
    Steps { report: bool },
}

// === impl CompiledTarget ===

impl CompiledTarget {
    /// Creates the target for a tool call in the definition of `composite`.
    pub(super) fn new(
        call: &ToolCall,
        composite: &str,
        places: &HashMap<String, usize>,
        optional: bool,
        certain: bool,
    ) -> Self {
        let route = match places.get(&call.tool) {
            // A composite that calls its own name calls the tool behind the layer, so that it can
            // wrap this tool under the same name.
            Some(&callee) if call.tool != composite && !call.behind => Route::Composite(callee),
            _ => Route::Inner,
        };
        Self { route, optional, certain }
    }
}

/// Returns `true` if a text can be the id of a target or a step.
pub(super) fn is_id(id: &str) -> bool {
    (1..=MAX_STEP_ID).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
