//! The rules that forbid certain uses of labeled data.

use super::taint::Source;

/// A rule that forbids one kind of use of labeled data, for example untrusted data in a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    EgressArgument,
    EgressCall,
    DestructiveArgument,
    DestructiveCall,
    Condition,
    Switch,
    Collection,
    Until,
}

// === impl Rule ===

impl Rule {
    /// Returns the label of the data to which this rule applies.
    pub(super) const fn source(self) -> Source {
        match self {
            Self::EgressArgument | Self::EgressCall => Source::Private,
            Self::DestructiveArgument
            | Self::DestructiveCall
            | Self::Condition
            | Self::Switch
            | Self::Collection
            | Self::Until => Source::Untrusted,
        }
    }

    /// Returns a text for error messages that describes a violation of this rule.
    pub(super) const fn violated(self) -> &'static str {
        match self {
            Self::EgressArgument => "private data reaches an `egress` tool",
            Self::EgressCall => "private data decides whether an `egress` tool is called",
            Self::DestructiveArgument => "untrusted data reaches a `destructive` tool",
            Self::DestructiveCall => {
                "untrusted data decides whether a `destructive` tool is called"
            }
            Self::Condition => "untrusted data decides whether a step runs",
            Self::Switch => "untrusted data decides which tool a switch calls",
            Self::Collection => "untrusted data decides which elements a loop processes",
            Self::Until => "untrusted data decides how often a call is repeated",
        }
    }
}
