//! Compiles the retries of steps and targets.

use super::mistakes::DefinitionPath;
use crate::{
    composite::{error::DefinitionErrorKind as Kind, step::Retry},
    engine::plan,
};

/// Maximum number of retries of a step or target.
const MAX_RETRIES: u32 = 10;

/// Compiles the retry policy of a step or target. Errors are added to `at`, the path of the setting
/// `on_error` that contains the policy.
pub(super) fn compile(retry: Retry, at: &mut DefinitionPath<'_>) -> plan::Retry {
    let Retry { count, delay, max_delay, then: _ } = retry;
    if !(1..=MAX_RETRIES).contains(&count) {
        let (value, max) = (count as usize, MAX_RETRIES as usize);
        at.push(["retry_count"], Kind::OutOfBounds { key: "retry_count", value, max });
    }
    if delay > max_delay {
        at.push(["delay"], Kind::DelayTooLong { delay, max_delay });
    }
    plan::Retry { count, delay, max_delay }
}
