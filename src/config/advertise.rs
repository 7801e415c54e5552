//! The `[advertise]` section, which selects the tools that clients see in lists.

use serde::Deserialize;

use super::{filter::selection, read::Reader};
use crate::advertise::{AdvertiseLayer, Calls, Mode};

const SECTION: &str = "advertise";

/// Selects the tools that clients see, and whether clients list these tools or search for them.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdvertiseTable {
    /// Name patterns of the tools to list. Composites are listed even if they match no pattern.
    /// Defaults to all tools.
    allow: Option<Vec<String>>,
    /// Name patterns of the tools to hide: they are omitted from lists and, unless `calls` is
    /// `"allow"`, cannot be called. A composite is hidden only if its exact name is in this list.
    deny: Option<Vec<String>>,
    /// Whether clients can call tools that are not in the tool list. Defaults to `refuse`.
    calls: Option<Calls>,
    /// How clients discover tools. With `list`, the tool list contains all selected tools. With
    /// `search`, it contains only `search_tools` and `call_tool`, with which clients find and call
    /// the selected tools. Defaults to `list`.
    mode: Option<Mode>,
}

/// Converts the `[advertise]` section to an [`AdvertiseLayer`], and reports errors in the section
/// to `reader`.
pub(super) fn build(table: AdvertiseTable, reader: &mut Reader<'_, '_>) -> AdvertiseLayer {
    let path = [SECTION.into()];
    AdvertiseLayer::new()
        .tools(selection(table.allow, table.deny, ["allow", "deny"], &path, reader))
        .calls(table.calls.unwrap_or_default())
        .mode(table.mode.unwrap_or_default())
}
