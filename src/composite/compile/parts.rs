//! The parts of a compiled composite that differ between strategies, such as the plan.

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

/// Properties of a target that are not stored in the plan's call site.
#[derive(Debug)]
pub(in crate::composite) struct CompiledTarget {
    pub(in crate::composite) route: Route,
    /// Whether the composite can run and succeed even if this target's tool does not exist.
    pub(in crate::composite) optional: bool,
    /// Whether every successful run has called this target.
    pub(in crate::composite) certain: bool,
}

/// The parts of a compiled composite that differ between strategies.
pub(super) struct Parts {
    pub(super) plan: Plan,
    pub(super) answer: ResultForm,
    pub(super) targets: Vec<CompiledTarget>,
    pub(super) remarks: Vec<String>,
}

/// Determines whether a target calls a tool or another composite. Decided when the layer is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::composite) enum Route {
    /// A tool of the service behind the layer.
    Inner,
    /// Another composite of the layer, by its index.
    Composite(usize),
}

/// The rule that combines the outcomes of a run's branches or steps into one result.
#[derive(Clone, Copy, Debug)]
pub(in crate::composite) enum ResultForm {
    /// The content of all branches. The rule `success` decides whether the result is an error.
    Branches { success: Success, order: BranchOrder, report: bool, labels: Labels },
    /// The unchanged result of the branch that succeeded first.
    Winner,
    /// The answer of the plan. If the run fails, the result lists the completed steps instead, with
    /// their outputs if `report` is `true`.
    Steps { report: bool },
}

// === impl CompiledTarget ===

impl CompiledTarget {
    /// Creates the target for a tool call in the definition of the composite named `composite`.
    pub(super) fn new(
        call: &ToolCall,
        composite: &str,
        places: &HashMap<String, usize>,
        optional: bool,
        certain: bool,
    ) -> Self {
        let route = match places.get(&call.tool) {
            // If a composite has the same name as a tool behind the layer and calls that name, it
            // calls the tool. This lets a composite wrap a tool and replace it in the list.
            Some(&callee) if call.tool != composite && !call.behind => Route::Composite(callee),
            _ => Route::Inner,
        };
        Self { route, optional, certain }
    }
}

/// Returns `true` if a string is a valid id of a target or step.
pub(super) fn is_id(id: &str) -> bool {
    (1..=MAX_STEP_ID).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
