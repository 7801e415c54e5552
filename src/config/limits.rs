//! The section `[limits]`.

use serde::Deserialize;

use super::read::Reader;
use crate::composite::Limits;

/// Limits of one call of a composite, including nested calls.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsTable {
    /// Maximum number of tool calls. Defaults to 10000.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_calls: Option<usize>,
    /// Maximum total size of the tool results in bytes. Defaults to 4194304.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_result_bytes: Option<usize>,
    /// Maximum number of times that a run may pause for user input. Defaults to 10.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_rounds: Option<usize>,
}

/// Builds the section and reports mistakes in it.
pub(super) fn build(table: &LimitsTable, reader: &mut Reader<'_, '_>) -> Limits {
    let mut limits = Limits::default();
    if let Some(calls) = reader.at_least_one(&["limits".into()], "max_calls", table.max_calls) {
        limits = limits.max_calls(calls);
    }
    let bytes = table.max_result_bytes;
    if let Some(bytes) = reader.at_least_one(&["limits".into()], "max_result_bytes", bytes) {
        limits = limits.max_result_bytes(bytes);
    }
    let rounds = table.max_rounds;
    if let Some(rounds) = reader.at_least_one(&["limits".into()], "max_rounds", rounds) {
        limits = limits.max_rounds(rounds);
    }
    limits
}
