use std::{ops::ControlFlow, sync::Arc};

use super::{compile::Program, resolve::Resolved};
use crate::{
    catalog::{Known, Needs, Tools},
    complaints::Complaints,
    intercept::InterceptInformed,
    message::{ItemKind, Reply, Request},
};

/// The rule that adds composites to the list of tools.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) program: Arc<Program>,
    pub(super) complaints: Complaints,
}

/// The part of a request that composites change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    /// The list of tools.
    Tools,
    /// The capabilities that the server declares.
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

impl InterceptInformed for Listing {
    type Derived = Resolved;
    type Memo = Concern;

    fn derive(&self, tools: &Tools) -> Resolved {
        Resolved::new(&self.program, tools, &self.complaints)
    }

    fn needs_tools(&self) -> bool {
        !self.program.is_empty()
    }

    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        if !self.program.is_empty() && request.lists_first_tools() {
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
        *concern != Concern::Nothing && !self.program.is_empty()
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
        // The name is the composite's, also while it cannot run: a tool must not
        // appear under it and vanish again.
        list.tools.retain(|tool| self.program.find(&tool.name).is_none());
        // Only the first page needs to know tools, and has the composites at its end.
        let Some(known) = known else { return };
        let composites = 0..self.program.composites.len();
        list.tools.reserve_exact(composites.len());
        let available = composites.filter_map(|composite| known.derived().available(composite));
        list.tools.extend(available.map(|available| available.tool.clone()));
    }
}
