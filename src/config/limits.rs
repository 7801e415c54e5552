//! The section `[limits]`.

use serde::Deserialize;

use super::{read::Reader, set_some::SetSome};
use crate::composite::CallLimits;

/// Limits on each call of a composite, including the calls of nested composites.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsTable {
    /// Maximum number of tool calls in each call of a composite. Defaults to 10000.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_calls: Option<usize>,
    /// Maximum total size in bytes of the tool results in each call of a composite. Defaults to
    /// 4194304.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_result_bytes: Option<usize>,
    /// Maximum number of times that a run may pause for user input. Defaults to 10.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_rounds: Option<usize>,
}

/// Converts the `[limits]` section to [`CallLimits`]. Errors in the section are recorded in
/// `reader`.
pub(super) fn build(table: &LimitsTable, reader: &mut Reader<'_, '_>) -> CallLimits {
    let mut at_least_one = |key, value| reader.at_least_one(&["limits".into()], key, value);
    CallLimits::default()
        .set_some(at_least_one("max_calls", table.max_calls), CallLimits::max_calls)
        .set_some(
            at_least_one("max_result_bytes", table.max_result_bytes),
            CallLimits::max_result_bytes,
        )
        .set_some(at_least_one("max_rounds", table.max_rounds), CallLimits::max_rounds)
}
