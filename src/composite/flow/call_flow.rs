//! The data labels of tool calls, for checks at run time.

use super::{
    policy::FlowLabel,
    summary::Summary,
    taint::{Source, Taint},
};

/// The labels of data, for example of all data that a client has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DataLabels {
    pub(crate) private: bool,
    pub(crate) untrusted: bool,
}

/// The labels of a tool's results, and whether its calls can disclose data. Also used for
/// composites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallFlow {
    /// The labels of a successful result: private, untrusted, both or none.
    pub(crate) result: DataLabels,
    /// The labels of any other reply, such as an error result that contains the outputs of
    /// completed steps.
    pub(crate) outcome: DataLabels,
    /// Whether a call makes its arguments visible to others. For a composite, ignores steps that
    /// set `allow_flow`, and steps whose arguments the user approves.
    pub(crate) is_egress: bool,
}

// === impl DataLabels ===

impl DataLabels {
    pub(crate) const fn is_empty(self) -> bool {
        !self.private && !self.untrusted
    }

    /// Returns `true` if the data is both private and untrusted.
    pub(crate) const fn are_complete(self) -> bool {
        self.private && self.untrusted
    }

    #[must_use]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self {
            private: self.private || other.private,
            untrusted: self.untrusted || other.untrusted,
        }
    }

    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let labels = [(self.private, FlowLabel::Private), (self.untrusted, FlowLabel::Untrusted)];
        labels.into_iter().filter(|(is_set, _)| *is_set).map(|(_, label)| label.name())
    }
}

impl From<&Taint> for DataLabels {
    fn from(taint: &Taint) -> Self {
        Self {
            private: taint.get(Source::Private).is_some(),
            untrusted: taint.get(Source::Untrusted).is_some(),
        }
    }
}

// === impl CallFlow ===

impl CallFlow {
    /// Returns the labels of the calls of a tool to which the policy assigns `labels`.
    pub(crate) fn of_tool(labels: &[FlowLabel]) -> Self {
        let result = DataLabels {
            private: labels.contains(&FlowLabel::Private),
            untrusted: labels.contains(&FlowLabel::Untrusted),
        };
        Self { result, outcome: result, is_egress: labels.contains(&FlowLabel::Egress) }
    }
}

impl From<&Summary> for CallFlow {
    fn from(summary: &Summary) -> Self {
        let result = DataLabels::from(&summary.result);
        Self {
            result,
            outcome: result.union(DataLabels::from(&summary.outcome)),
            is_egress: summary.has_open_egress,
        }
    }
}
