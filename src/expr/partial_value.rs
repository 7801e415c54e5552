//! JSON values with parts that are unknown before a run.

use serde_json::Value;

/// A JSON value with parts that are unknown before a run. These are references and templates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PartialValue {
    Known(Value),
    Unknown {
        /// If `true`, the array element or object member may be missing when the run evaluates it.
        optional: bool,
    },
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

// === impl PartialValue ===

impl PartialValue {
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Self::Known(_) => true,
            Self::Unknown { .. } => false,
            Self::Array(elements) => elements.iter().all(Self::is_known),
            Self::Object(members) => members.iter().all(|(_, member)| member.is_known()),
        }
    }
}
