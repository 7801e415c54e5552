//! The parts of a compiled composite that depend on its strategy.

use foldhash::HashMap;

use crate::{
    composite::{
        step::ToolCall,
        strategy::{Labels, Order, Success},
    },
    engine::plan::Plan,
};

/// Maximum length of an id.
const MAX_STEP_ID: usize = 64;

/// The properties of a target besides its call.
#[derive(Debug)]
pub(in crate::composite) struct CompiledTarget {
    pub(in crate::composite) route: Route,
    /// Whether the composite can run and succeed without it.
    pub(in crate::composite) optional: bool,
    /// Whether it is called in each run that succeeds.
    pub(in crate::composite) certain: bool,
}

/// The parts of a composite that depend on its strategy.
pub(super) struct Parts {
    pub(super) plan: Plan,
    pub(super) answer: ResultForm,
    pub(super) targets: Vec<CompiledTarget>,
    pub(super) remarks: Vec<String>,
}

/// The route of a target's name, decided when the layer is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::composite) enum Route {
    /// To the service behind the layer.
    Inner,
    /// To another composite.
    Composite(usize),
}

/// The conversion of the outcomes of a run to one result.
#[derive(Clone, Copy, Debug)]
pub(in crate::composite) enum ResultForm {
    /// All branches, with a success rule.
    Branches { success: Success, order: Order, report: bool, labels: Labels },
    /// The branch that succeeded, unchanged.
    Winner,
    /// The answer of the plan. A run that fails reports its completed steps, with their outputs if
    /// `report` is set.
    Steps { report: bool },
}

// === impl CompiledTarget ===

impl CompiledTarget {
    /// Creates a target of `composite` at one of its call sites.
    pub(super) fn new(
        call: &ToolCall,
        composite: &str,
        places: &HashMap<String, usize>,
        optional: bool,
        certain: bool,
    ) -> Self {
        let route = match places.get(&call.tool) {
            // A composite that calls its own name calls the tool behind it, so that it can wrap a
            // tool under the same name.
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
