//! The section `[progress]`.

use serde::Deserialize;

use super::{duration::Duration, set_some::SetSome};
use crate::composite::CompositeLayer;

/// Progress notifications of composites.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProgressTable {
    /// Interval of notifications while a run makes no progress. Defaults to 15 seconds; `0s`
    /// disables them.
    heartbeat: Option<Duration>,
}

/// Applies the section to the layer.
pub(super) fn apply(table: &ProgressTable, layer: CompositeLayer) -> CompositeLayer {
    let every = table.heartbeat.map(|Duration(every)| every);
    layer.set_some(every, CompositeLayer::heartbeat)
}
