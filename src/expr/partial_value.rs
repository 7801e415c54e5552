use serde_json::Value;

/// A value as far as it is known before a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PartialValue {
    Known(Value),
    Unknown {
        /// Whether it may be left out altogether.
        optional: bool,
    },
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

// === impl PartialValue ===

impl PartialValue {
    /// Whether nothing of it is unknown.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Self::Known(_) => true,
            Self::Unknown { .. } => false,
            Self::Array(elements) => elements.iter().all(Self::is_known),
            Self::Object(members) => members.iter().all(|(_, member)| member.is_known()),
        }
    }
}
