//! The `[limits]` section, which limits the runs of composites.

use serde::Deserialize;

use super::{read::Reader, set_some::SetSome};
use crate::composite::{CallLimits, CancelledRuns};

/// Limits on the runs of composites. Calls of nested composites count towards the limits of the
/// outer run.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsTable {
    /// Maximum number of tool calls in each run of a composite. Defaults to 10000.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_calls: Option<usize>,
    /// Maximum total size in bytes of the tool results in each run of a composite. Defaults to
    /// 4194304.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_result_bytes: Option<usize>,
    /// Maximum number of times that a run may pause for user input. Defaults to 10.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_rounds: Option<usize>,
    /// Maximum number of runs that execute their finally steps at the same time after their calls
    /// were cancelled. Runs of all views count. The finally steps of further cancelled runs are not
    /// executed. Defaults to 1000.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_cancelled_runs: Option<usize>,
}

/// Converts the `[limits]` section to the limits of each run and to the tracker of cancelled runs,
/// and reports errors in the section to `reader`.
pub(super) fn build(
    table: &LimitsTable,
    reader: &mut Reader<'_, '_>,
) -> (CallLimits, CancelledRuns) {
    let mut not_zero = |key, value| reader.not_zero(&["limits".into()], key, value);
    let max_cancelled_runs = not_zero("max_cancelled_runs", table.max_cancelled_runs);
    let cancelled_runs =
        max_cancelled_runs.map_or_else(CancelledRuns::new, CancelledRuns::with_max_runs);
    let limits = CallLimits::default()
        .set_some(not_zero("max_calls", table.max_calls), CallLimits::max_calls)
        .set_some(
            not_zero("max_result_bytes", table.max_result_bytes),
            CallLimits::max_result_bytes,
        )
        .set_some(not_zero("max_rounds", table.max_rounds), CallLimits::max_rounds);
    (limits, cancelled_runs)
}
