//! Adds composites to tool lists, and adds the `tools` capability to the declared server
//! capabilities.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    approval,
    compile::Compiled,
    layer::CompositeLayer,
    resolve::{Available, Resolved},
};
use crate::{
    catalog::{Known, Needs, Tools},
    engine::plan::Step,
    intercept::InterceptInformed,
    message::{ItemKind, Reply, Request},
};

/// Adds the composites of a layer to the replies that list tools, and declares the `tools`
/// capability in the replies that contain the server capabilities.
///
/// Checks composites against the tools of the inner service whenever tools are listed. Logs
/// problems as warnings and remarks.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) layer: Arc<CompositeLayer>,
}

/// The part of a reply that this layer changes. It depends on the method of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    /// The request lists tools. The layer adds the composites to the list.
    Tools,
    /// The reply contains the capabilities of the server. The layer adds the `tools` capability.
    Capabilities,
    Nothing,
}

// === impl Concern ===

impl Concern {
    pub(super) fn of(request: &Request) -> Self {
        if request.lists_tools() {
            Self::Tools
        } else if request.asks_for_capabilities() {
            Self::Capabilities
        } else {
            Self::Nothing
        }
    }
}

// === impl Listing ===

impl Listing {
    /// Logs a remark if the state of a run may be too large for the store when the run asks a
    /// question. The run would then fail after earlier steps may have changed something.
    fn remark_state(&self, composite: &Compiled, available: &Available) {
        let max = self.layer.limits.result_bytes(composite.definition.limits);
        let Some(room) = self.layer.state.max_bytes().filter(|&room| room < max) else { return };
        let plan = &composite.plan;
        let may_change = |step: &Step| {
            step.action.sites().any(|call| !available.targets[call.site].is_read_only)
        };
        let Some(found) = plan.find_unchecked(composite.asking, may_change) else { return };
        let id = |step: usize| &*plan.steps()[step].id;
        let (step, output, question) = (id(found.step), id(found.output), id(found.question));
        self.layer.remarks.warn(format_args!(
            "composite `{}`: step `{step}` may change something, and the output of `{output}` is \
             kept for later until `{question}` is answered; if the state is then larger than \
             {room} bytes, the run fails after `{step}`: set `store = \"memory\"` or a larger \
             `max_state_bytes` in `[state]`, or a smaller `max_result_bytes`",
            composite.name
        ));
    }
}

impl InterceptInformed for Listing {
    type Derived = Resolved;
    type Memo = Concern;

    fn derive(&self, tools: &Tools) -> Resolved {
        let CompositeLayer { program, warnings, remarks, approved_tools, flow, .. } = &*self.layer;
        let forbidden = flow.as_ref().map(|flow| flow.forbidden(program, tools, warnings));
        let forbidden = forbidden.unwrap_or_default();
        let resolved = Resolved::new(program, tools, &forbidden, warnings);
        for (at, composite) in program.composites.iter().enumerate() {
            if let Some(available) = resolved.available(at) {
                self.remark_state(composite, available);
            }
        }
        approval::check(program, &resolved, remarks, approved_tools);
        resolved
    }

    fn needs_tools(&self) -> bool {
        !self.layer.program.is_empty()
    }

    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        if !self.layer.program.is_empty() && request.lists_first_tools() {
            Needs::AllTools
        } else {
            Needs::Nothing
        }
    }

    fn on_request(
        &self,
        request: &mut Request,
        _: Option<&Arc<Known<Resolved>>>,
    ) -> ControlFlow<Reply, Concern> {
        ControlFlow::Continue(Concern::of(request))
    }

    fn awaits_reply(&self, concern: &Concern) -> bool {
        *concern != Concern::Nothing && !self.layer.program.is_empty()
    }

    fn on_reply(&self, concern: Concern, known: Option<&Arc<Known<Resolved>>>, reply: &mut Reply) {
        if concern == Concern::Capabilities {
            reply.declare_tools();
            return;
        }
        if known.is_some() {
            reply.list_missing_tools();
        }
        if reply.refuse_other_than_list(ItemKind::Tool) {
            return;
        }
        let Some(list) = reply.tools_mut() else { return };
        // The composite owns its name even while it cannot run. Otherwise, a tool of the same name
        // would appear and disappear again as the composite's tools change.
        list.tools.retain(|tool| self.layer.program.find(&tool.name).is_none());
        // The tools are known only if the request lists the first page. Composites are appended to
        // this page.
        let Some(known) = known else { return };
        let composites = 0..self.layer.program.composites.len();
        list.tools.reserve_exact(composites.len());
        let available = composites.filter_map(|composite| known.derived().available(composite));
        list.tools.extend(available.map(|available| available.tool.clone()));
    }
}
