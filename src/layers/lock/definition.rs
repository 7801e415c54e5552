//! The definition of a tool in the form that is stored in a lock and compared with it.

use std::fmt;

use rmcp::model::Tool;
use serde_json::Value;

#[cfg(any(feature = "config", test))]
use crate::fingerprint::Fingerprint;

/// The definition of a tool as a lock stores it: without icons and `_meta`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition(Tool);

/// A part of a tool's definition. `Display` formats it as its name in the protocol, such as
/// `inputSchema`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Title,
    Description,
    InputSchema,
    OutputSchema,
    Annotations,
}

/// The parts in which two definitions differ. `Display` formats them as a list with commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts(pub(super) Vec<Part>);

// === impl Definition ===

impl Definition {
    pub(crate) fn of(tool: &Tool) -> Self {
        let mut tool = tool.clone();
        (tool.icons, tool.meta) = (None, None);
        Self(tool)
    }

    pub(crate) fn to_json(&self) -> Value {
        // Serializing a tool never fails, because all its keys are strings.
        serde_json::to_value(&self.0).unwrap_or_default()
    }

    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(super) fn to_tool(&self) -> Tool {
        self.0.clone()
    }

    /// Returns the SHA-256 hash of the definition's canonical JSON.
    #[cfg(any(feature = "config", test))]
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.to_json())
    }

    /// Returns `true` if `tool` has the same name and definition. The order of the members in
    /// schemas does not matter.
    pub(super) fn is_same(&self, tool: &Tool) -> bool {
        self.0.name == tool.name && Part::ALL.iter().all(|part| part.is_same(&self.0, tool))
    }

    /// Returns the parts in which this definition and that of `tool` differ.
    pub(super) fn differing(&self, tool: &Tool) -> Parts {
        Parts(Part::ALL.into_iter().filter(|part| !part.is_same(&self.0, tool)).collect())
    }
}

// === impl Part ===

impl Part {
    /// All parts of a definition, in the order in which they are compared and displayed.
    const ALL: [Self; 5] =
        [Self::Title, Self::Description, Self::InputSchema, Self::OutputSchema, Self::Annotations];

    fn is_same(self, one: &Tool, other: &Tool) -> bool {
        match self {
            Self::Title => one.title == other.title,
            Self::Description => one.description == other.description,
            Self::InputSchema => one.input_schema == other.input_schema,
            Self::OutputSchema => one.output_schema == other.output_schema,
            Self::Annotations => one.annotations == other.annotations,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Description => "description",
            Self::InputSchema => "inputSchema",
            Self::OutputSchema => "outputSchema",
            Self::Annotations => "annotations",
        }
    }
}

// === impl Parts ===

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, part) in self.0.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}`{}`", part.name())?;
        }
        Ok(())
    }
}
