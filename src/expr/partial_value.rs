//! A value that is partially known before a run.

use serde_json::Value;

/// The part of a value that is known before a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PartialValue {
    Known(Value),
    Unknown {
        /// Whether it may be omitted.
        optional: bool,
    },
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

// === impl PartialValue ===

impl PartialValue {
    /// Returns `true` if the whole value is known.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Self::Known(_) => true,
            Self::Unknown { .. } => false,
            Self::Array(elements) => elements.iter().all(Self::is_known),
            Self::Object(members) => members.iter().all(|(_, member)| member.is_known()),
        }
    }
}
