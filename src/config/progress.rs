//! The `[progress]` section, which configures progress notifications of composites.

use serde::Deserialize;

use super::{duration::Duration, set_some::SetSome};
use crate::composite::CompositeLayer;

/// Configures the progress notifications that clients receive during a run of a composite.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProgressTable {
    /// Interval of the progress notifications that clients receive while a run makes no progress.
    /// Defaults to 15 seconds. `0s` disables these notifications.
    heartbeat: Option<Duration>,
}

/// Sets the heartbeat interval of a composite layer. If the `[progress]` section contains no
/// interval, returns the layer unchanged.
pub(super) fn apply(table: &ProgressTable, layer: CompositeLayer) -> CompositeLayer {
    let every = table.heartbeat.map(|Duration(every)| every);
    layer.set_some(every, CompositeLayer::heartbeat)
}
