//! The section `[progress]`.

use serde::Deserialize;

use super::{duration::Duration, set_some::SetSome};
use crate::composite::CompositeLayer;

/// Progress notifications of composites.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProgressTable {
    /// Interval between the notifications that clients receive while a run makes no progress.
    /// Defaults to 15 seconds. `0s` disables these notifications.
    heartbeat: Option<Duration>,
}

/// Sets the layer's heartbeat interval to that of the `[progress]` section, if the section has one.
pub(super) fn apply(table: &ProgressTable, layer: CompositeLayer) -> CompositeLayer {
    let every = table.heartbeat.map(|Duration(every)| every);
    layer.set_some(every, CompositeLayer::heartbeat)
}
