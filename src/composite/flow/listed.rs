//! Checks the data flows of composites whenever tools are listed.

use std::{collections::BTreeSet, fmt};

use super::{composites::check, policy::FlowPolicy};
use crate::{
    catalog::Tools,
    composite::{compile::Program, error::Segment},
    warnings::Warnings,
};

/// A policy for data flows that is checked whenever tools are listed.
pub(in crate::composite) struct ListedFlows {
    policy: FlowPolicy,
    /// Converts the name by which composites call a tool to the name by which the policy selects
    /// it.
    original: Box<dyn Fn(&str) -> String + Send + Sync>,
}

// === impl ListedFlows ===

impl ListedFlows {
    pub(in crate::composite) fn new(
        policy: FlowPolicy,
        original: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self { policy, original: Box::new(original) }
    }

    /// Returns the indexes of the composites that the policy forbids. Logs a warning for each
    /// forbidden flow.
    pub(in crate::composite) fn forbidden(
        &self,
        program: &Program,
        tools: &Tools,
        warnings: &Warnings,
    ) -> BTreeSet<usize> {
        let labels = |name: &str| {
            let annotations = tools.get(name).and_then(|tool| tool.annotations.as_ref());
            self.policy.labels_of_listed(&(self.original)(name), annotations)
        };
        let mut forbidden = BTreeSet::new();
        for violation in check(program, &labels).violations {
            warnings.warn(format_args!("not listed: {violation}"));
            if let Some(Segment::Index(composite)) = violation.path().first() {
                forbidden.insert(*composite);
            }
        }
        forbidden
    }
}

impl fmt::Debug for ListedFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListedFlows").field("policy", &self.policy).finish_non_exhaustive()
    }
}
