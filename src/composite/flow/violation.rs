//! Violations of a flow policy.

use std::fmt;

use super::{rule::Rule, taint::Hop};
use crate::{
    composite::error::{DisplayPath, Segment},
    mermaid::{Flowchart, ForbiddenFlow, StepNode},
};

/// The end of each error message about a violation. It lists the ways to correct the violation.
const ADVICE: &str = "remove this use, let a person approve the value first, or set `allow_flow` \
                      to the reason why it is safe";

/// A use of labeled data that a [`FlowPolicy`](super::FlowPolicy) forbids.
///
/// `Display` prints the composite, the place in its definition, and the path of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowViolation {
    composite: String,
    pub(super) path: Vec<Segment>,
    pub(super) rule: Rule,
    trace: Vec<String>,
    /// The steps on the path of the data.
    steps: Vec<StepNode>,
}

/// The result of checking the composites of a layer against a flow policy.
#[derive(Debug, Default)]
pub(crate) struct FlowReport {
    /// All uses of data that the policy forbids, in the order of the composite definitions.
    pub(crate) violations: Vec<FlowViolation>,
    /// A remark for each `allow_flow` setting that is not needed, because its step or target uses
    /// no forbidden data.
    pub(crate) remarks: Vec<String>,
}

// === impl FlowReport ===

#[cfg(feature = "config")]
impl FlowReport {
    /// Returns the path of each setting with a violation, and a text that describes all violations
    /// in this setting.
    pub(crate) fn places(&self) -> Vec<(&[Segment], String)> {
        let mut places: Vec<(&[Segment], String)> = Vec::new();
        for violation in &self.violations {
            match places.iter_mut().find(|(path, _)| *path == violation.path) {
                Some((_, text)) => {
                    text.push_str("; also, ");
                    text.push_str(&violation.finding());
                }
                None => places.push((&violation.path, violation.finding())),
            }
        }
        let advised = |(path, text)| (path, format!("{text}; {ADVICE}"));
        places.into_iter().map(advised).collect()
    }
}

// === impl FlowViolation ===

impl FlowViolation {
    pub(super) fn new(composite: &str, path: Vec<Segment>, rule: Rule, hops: &[Hop]) -> Self {
        let mut trace: Vec<_> = hops.iter().map(|hop| hop.described(composite)).collect();
        trace.dedup();
        let steps = hops.iter().filter_map(|hop| {
            let place = hop.place.as_ref()?;
            Some(StepNode { composite: hop.composite.clone(), step: place.id.clone() })
        });
        let mut steps: Vec<_> = steps.collect();
        steps.dedup();
        Self { composite: composite.to_owned(), path, rule, trace, steps }
    }

    /// Returns the name of the composite that uses the data.
    #[must_use]
    pub fn composite(&self) -> &str {
        &self.composite
    }

    /// Returns the path of the place in the list of definitions at which the data is used. The
    /// first segment is the index of the composite. See
    /// [`DefinitionError::path`](crate::composite::DefinitionError::path).
    #[must_use]
    pub fn path(&self) -> &[Segment] {
        &self.path
    }

    /// Returns the way of the data through the composite: first the tool that returned the data,
    /// then each step that uses it, and last the argument or condition in which it is not allowed.
    #[must_use]
    pub fn trace(&self) -> &[String] {
        &self.trace
    }

    /// Returns the description of the violation without its place in the definition.
    #[must_use]
    pub fn message(&self) -> String {
        format!("{}; {ADVICE}", self.finding())
    }

    /// Returns a text that describes the violated rule and the path of the data.
    fn finding(&self) -> String {
        format!("{}: {}", self.rule.violated(), self.trace.join(" → "))
    }
}

impl Flowchart {
    /// Marks the forbidden flows of data that [`CompositeLayer::check_flow`] has found. Violations
    /// in composites that are not part of the flowchart are ignored.
    ///
    /// [`CompositeLayer::check_flow`]: crate::composite::CompositeLayer::check_flow
    #[must_use]
    pub fn violations(self, violations: &[FlowViolation]) -> Self {
        self.forbid(violations.iter().map(ForbiddenFlow::from))
    }
}

impl From<&FlowViolation> for ForbiddenFlow {
    fn from(violation: &FlowViolation) -> Self {
        Self {
            composite: violation.composite.clone(),
            steps: violation.steps.clone(),
            data: violation.rule.source().data(),
            reason: violation.rule.violated(),
        }
    }
}

impl fmt::Display for FlowViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = DisplayPath(self.path.get(1..).unwrap_or_default());
        write!(f, "composite `{}` at `{path}`: {}", self.composite, self.message())
    }
}
