//! JSON values that are only partially known before a run.

use serde_json::Value;

/// A JSON value that is only partially known before a run, because some parts are references or
/// templates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PartialValue {
    Known(Value),
    Unknown {
        /// Whether the value is omitted if it is missing in the run.
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
