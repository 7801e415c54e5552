use rmcp::model::ToolAnnotations;
use serde::Deserialize;

/// What a tool might do, spelled as in MCP.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct AnnotationsTable {
    /// What people are shown as its name.
    title: Option<String>,
    /// Whether it changes nothing.
    read_only_hint: Option<bool>,
    /// Whether it may destroy something.
    destructive_hint: Option<bool>,
    /// Whether calling it again with the same arguments changes nothing more.
    idempotent_hint: Option<bool>,
    /// Whether it deals with others than this server.
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
