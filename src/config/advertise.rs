//! The section `[advertise]`.

use serde::Deserialize;

use super::{filter::selection, read::Reader};
use crate::advertise::{AdvertiseLayer, Calls, Mode};

/// The key of the section.
const SECTION: &str = "advertise";

/// Advertised tools and search mode.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdvertiseTable {
    /// Tools to advertise besides composites. Defaults to all tools.
    allow: Option<Vec<String>>,
    /// Tools to hide from lists. A composite is only hidden by its exact name.
    deny: Option<Vec<String>>,
    /// Whether unadvertised tools can be called.
    calls: Option<CallsName>,
    /// Whether to list the tools, or only two tools that search and call them.
    mode: Option<ModeName>,
}

/// Whether unadvertised tools can be called.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum CallsName {
    /// Reject calls as if the tools did not exist.
    Refuse,
    /// Allow calls by name.
    Allow,
}

/// Whether to list the tools, or only two tools that search and call them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum ModeName {
    /// List the tools.
    List,
    /// List `search_tools` and `call_tool`.
    Search,
}

/// Builds the section and reports mistakes in it.
pub(super) fn build(table: AdvertiseTable, reader: &mut Reader<'_, '_>) -> AdvertiseLayer {
    let path = [SECTION.into()];
    AdvertiseLayer::new()
        .tools(selection(table.allow, table.deny, ["allow", "deny"], &path, reader))
        .calls(table.calls.map(Calls::from).unwrap_or_default())
        .mode(table.mode.map(Mode::from).unwrap_or_default())
}

// === impl CallsName ===

impl From<CallsName> for Calls {
    fn from(name: CallsName) -> Self {
        match name {
            CallsName::Refuse => Self::Refuse,
            CallsName::Allow => Self::Allow,
        }
    }
}

// === impl ModeName ===

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::List => Self::List,
            ModeName::Search => Self::Search,
        }
    }
}
