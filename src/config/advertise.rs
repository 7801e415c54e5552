//! The section `[advertise]`.

use serde::Deserialize;

use super::{filter::selection, read::Reader};
use crate::advertise::{AdvertiseLayer, Calls, Mode};

/// The key of the section.
const SECTION: &str = "advertise";

/// Which tools clients are shown.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdvertiseTable {
    /// The tools that are shown besides composites; all, if not set.
    allow: Option<Vec<String>>,
    /// The tools that are not shown; a composite only by its exact name.
    deny: Option<Vec<String>>,
    /// Whether tools that are not shown can be called.
    calls: Option<CallsName>,
    /// Whether clients are shown the tools, or two tools to search and call them.
    mode: Option<ModeName>,
}

/// Whether tools that are not shown can be called.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum CallsName {
    /// No, as if they did not exist.
    Refuse,
    /// Yes, by who knows their names.
    Allow,
}

/// Whether clients are shown the tools, or two tools to search and call them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum ModeName {
    /// The tools.
    List,
    /// `search_tools` and `call_tool`.
    Search,
}

/// Builds the section and reports what is wrong with it.
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
