//! The section `[limits]`.

use serde::Deserialize;

use super::read::Reader;
use crate::composite::Limits;

/// What one call of a composite may use, everything nested in it included.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsTable {
    /// How many tools it may call; 10000, if not set.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_calls: Option<usize>,
    /// How many bytes the answers of the tools may have together; 4194304, if not set.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_result_bytes: Option<usize>,
    /// How often it may stop to ask a person, each time all that can be asked then; 10,
    /// if not set.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_rounds: Option<usize>,
}

/// Builds the section and reports what is wrong with it.
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
