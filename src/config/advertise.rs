//! The section `[advertise]`.

use serde::Deserialize;

use super::{filter::selection, read::Reader};
use crate::advertise::{AdvertiseLayer, Calls, Mode};

/// The key of the `[advertise]` section in a configuration file.
const SECTION: &str = "advertise";

/// Selects the tools that clients see, and whether clients list them or search for them.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdvertiseTable {
    /// Patterns of the tools to advertise. Composites are advertised without matching a pattern.
    /// Defaults to all tools.
    allow: Option<Vec<String>>,
    /// Patterns of the tools to hide from lists. A composite is hidden only by its exact name.
    deny: Option<Vec<String>>,
    /// Whether clients can call tools that are not advertised.
    calls: Option<CallsName>,
    /// Whether to list all advertised tools, or only two tools that search and call them.
    mode: Option<ModeName>,
}

/// Whether clients can call tools that are not advertised.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum CallsName {
    /// Reject calls of tools that are not advertised, as if these tools did not exist.
    Refuse,
    /// Allow calls by name.
    Allow,
}

/// Whether to list all advertised tools, or only two tools that search and call them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum ModeName {
    /// List the tools.
    List,
    /// List `search_tools` and `call_tool`.
    Search,
}

/// Converts the `[advertise]` section to an [`AdvertiseLayer`]. Errors in the section are recorded
/// in `reader`.
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
