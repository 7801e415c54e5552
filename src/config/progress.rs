//! The section `[progress]`.

use serde::Deserialize;

use super::duration::Duration;
use crate::composite::CompositeLayer;

/// What clients are told while a composite runs.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProgressTable {
    /// How often they hear of it while nothing moves; 15 seconds, if not set, never, if `0s`.
    heartbeat: Option<Duration>,
}

/// Sets what the section does.
pub(super) fn apply(table: &ProgressTable, layer: CompositeLayer) -> CompositeLayer {
    match table.heartbeat {
        Some(Duration(every)) => layer.heartbeat(every),
        None => layer,
    }
}
