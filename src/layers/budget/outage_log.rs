//! Limits how often warnings about an unavailable budget store are logged.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Minimum time between two warnings.
const QUIET: Duration = Duration::from_secs(10);

/// The time at which the last warning about an unavailable budget store was logged.
#[derive(Debug, Default)]
pub(super) struct Outage {
    logged: Mutex<Option<Instant>>,
}

// === impl Outage ===

impl Outage {
    /// Returns `true` if no warning was logged in the last ten seconds, and records the current
    /// time. Limits the number of warnings during an outage, because otherwise each rejected call
    /// would log one.
    pub(super) fn is_due_now(&self) -> bool {
        let now = Instant::now();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = logged.is_none_or(|logged| now.saturating_duration_since(logged) >= QUIET);
        if is_due {
            *logged = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn outage_is_logged_at_intervals() {
        let outage = Outage::default();
        for expected in [true, false, false, true, false] {
            assert_eq!(outage.is_due_now(), expected);
            tokio::time::advance(QUIET * 2 / 5).await;
        }
    }
}
