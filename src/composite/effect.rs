//! The effect of a tool call: harmless, destructive or unknown.

use rmcp::model::ToolAnnotations;

/// The effect of a tool call, according to the annotations of the tool. The variants are ordered by
/// risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// The tool is annotated as read-only or as non-destructive, so its calls need no approval.
    Harmless,
    /// The tool has no annotation that states whether it is destructive. MCP assumes that such a
    /// tool is destructive, but many harmless tools have no annotations.
    Unknown,
    /// The tool is annotated as destructive.
    Destructive,
}

// === impl Effect ===

impl Effect {
    /// Returns the effect that a tool's annotations state. `None` means that the tool has no
    /// annotations.
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
