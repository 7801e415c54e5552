//! The definition of a tool in the form that is stored in a lock and compared with it.

use std::fmt;

use rmcp::model::Tool;
use serde_json::Value;

#[cfg(any(feature = "config", test))]
use crate::fingerprint::Fingerprint;

/// The definition of a tool as a lock stores it: without icons and `_meta`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition(Tool);

/// Returns `true` if a part of the definition is the same in two tools.
type IsSame = fn(&Tool, &Tool) -> bool;

/// All parts of a definition except the name, in the order in which they are compared and
/// displayed. Each part consists of its name in the protocol and its comparison.
const PARTS: [(&str, IsSame); 5] = [
    ("title", |one, other| one.title == other.title),
    ("description", |one, other| one.description == other.description),
    ("inputSchema", |one, other| one.input_schema == other.input_schema),
    ("outputSchema", |one, other| one.output_schema == other.output_schema),
    ("annotations", |one, other| one.annotations == other.annotations),
];

/// The names of the parts in which two definitions differ. `Display` formats them as a list with
/// commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts(Vec<&'static str>);

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
        self.0.name == tool.name && PARTS.iter().all(|(_, is_same)| is_same(&self.0, tool))
    }

    /// Returns the parts in which this definition and that of `tool` differ.
    pub(super) fn differing(&self, tool: &Tool) -> Parts {
        let differing = PARTS.iter().filter(|(_, is_same)| !is_same(&self.0, tool));
        Parts(differing.map(|(name, _)| *name).collect())
    }
}

// === impl Parts ===

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}`{part}`")?;
        }
        Ok(())
    }
}
