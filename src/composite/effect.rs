//! Whether the call of a tool can be destructive.

use rmcp::model::ToolAnnotations;

/// Whether a call of a tool can be destructive, as far as its annotations say so. Ordered by risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// The tool is annotated as read-only or as non-destructive.
    Harmless,
    /// The tool has no such annotation. MCP assumes that it is destructive, but many harmless tools
    /// have no annotations.
    Unknown,
    /// The tool is annotated as destructive.
    Destructive,
}

// === impl Effect ===

impl Effect {
    /// Returns the effect of a tool with these annotations.
    pub(super) fn new(annotations: Option<&ToolAnnotations>) -> Self {
        let read_only = annotations.and_then(|annotations| annotations.read_only_hint);
        let destructive = annotations.and_then(|annotations| annotations.destructive_hint);
        match (read_only, destructive) {
            // The destructive hint applies only to tools that are not read-only.
            (Some(true), _) | (_, Some(false)) => Self::Harmless,
            (_, Some(true)) => Self::Destructive,
            (_, None) => Self::Unknown,
        }
    }
}
