//! Durations and times in milliseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the current Unix time in milliseconds.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    milliseconds(since)
}
