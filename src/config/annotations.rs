//! Reads the annotations of a tool, such as `readOnlyHint`, from a configuration file.

use rmcp::model::ToolAnnotations;
use serde::Deserialize;

/// Hints about the behavior of a tool. The keys are the same as in MCP, such as `readOnlyHint`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct AnnotationsTable {
    /// Display name for users.
    title: Option<String>,
    /// Whether the tool has no side effects.
    read_only_hint: Option<bool>,
    /// Whether the tool may perform destructive updates.
    destructive_hint: Option<bool>,
    /// Whether repeated calls with the same arguments have no additional effect.
    idempotent_hint: Option<bool>,
    /// Whether the tool interacts with external systems.
    open_world_hint: Option<bool>,
}

// === impl AnnotationsTable ===

impl From<AnnotationsTable> for ToolAnnotations {
    fn from(table: AnnotationsTable) -> Self {
        Self::from_raw(
            table.title,
            table.read_only_hint,
            table.destructive_hint,
            table.idempotent_hint,
            table.open_world_hint,
        )
    }
}
