//! The parts of a compiled composite that depend on its strategy, for example the plan of a
//! workflow or of a race.

use foldhash::HashMap;

use crate::{
    composite::{
        strategy::{BranchOrder, Labels, Success},
        tool_call::ToolCall,
    },
    engine::plan::Plan,
};

/// The maximum length of the id of a target or step.
const MAX_STEP_ID: usize = 64;

/// The properties of a target that the execution plan does not contain, for example whether the
/// target is a tool or another composite.
#[derive(Debug)]
pub(in crate::composite) struct CompiledTarget {
    pub(in crate::composite) route: Route,
    /// Whether the composite can be listed, and its runs can succeed, although the tool of this
    /// target does not exist.
    pub(in crate::composite) optional: bool,
    /// Whether every successful run calls this target. `false` if the call may be skipped, for
    /// example because of a condition.
    pub(in crate::composite) certain: bool,
}

/// The result of compiling the strategy of a composite, for example a workflow or a race.
pub(super) struct Parts {
    pub(super) plan: Plan,
    pub(super) answer: ResultForm,
    pub(super) targets: Vec<CompiledTarget>,
    pub(super) remarks: Vec<String>,
}

/// The callee of a target: a tool or another composite. It is determined once, when the layer is
/// built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::composite) enum Route {
    /// The target calls a tool of the service behind the layer.
    Inner,
    /// The target calls another composite of the same layer. The value is the index of this
    /// composite in the list of definitions.
    Composite(usize),
}

/// Determines how the result of a composite is built from the outcomes of its branches or steps.
/// Each strategy uses one variant.
#[derive(Clone, Copy, Debug)]
pub(in crate::composite) enum ResultForm {
    /// Used by fan-outs. The result contains the content of all branches, in the given `order`. The
    /// rule `success` determines whether the result is an error. If `report` is `true`, the
    /// structured content describes the outcome of each branch.
    Branches { success: Success, order: BranchOrder, report: bool, labels: Labels },
    /// Used by races and fallbacks. The result is the unchanged result of the first branch that
    /// succeeds.
    Winner,
    /// Used by pipelines and workflows. The result is the output block or the result of the last
    /// step. If the run fails, the result lists the completed steps instead. It includes their
    /// outputs only if `report` is `true`.
    Steps { report: bool },
}

// === impl CompiledTarget ===

impl CompiledTarget {
    /// Creates the target of a tool call. Determines whether the call goes to a tool or to another
    /// composite. `composite` is the name of the composite that makes the call.
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

    /// Returns `true` if the target is a tool behind the layer, and not another composite.
    pub(super) const fn is_tool(&self) -> bool {
        matches!(self.route, Route::Inner)
    }
}

/// Returns `true` if a string is a valid id of a target or step.
pub(super) fn is_id(id: &str) -> bool {
    (1..=MAX_STEP_ID).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
