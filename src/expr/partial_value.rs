//! JSON values of which some parts are unknown before a run.

use serde_json::Value;

/// A JSON value that is only partially known before a run. References and templates are unknown
/// parts of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PartialValue {
    Known(Value),
    Unknown {
        /// If `true`, the array element or object member may be missing in the value that the run
        /// computes.
        optional: bool,
    },
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

// === impl PartialValue ===

impl PartialValue {
    /// Returns `true` if all parts of the value are known.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Self::Known(_) => true,
            Self::Unknown { .. } => false,
            Self::Array(elements) => elements.iter().all(Self::is_known),
            Self::Object(members) => members.iter().all(|(_, member)| member.is_known()),
        }
    }
}
