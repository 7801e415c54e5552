//! Limits how often a message is logged.

use std::{sync::Mutex, time::Duration};

use tokio::time::Instant;

use crate::mutex::lock;

/// The minimum time between two messages.
const QUIET: Duration = Duration::from_secs(10);

/// Limits the rate of a log message to one every ten seconds.
#[derive(Debug, Default)]
pub(crate) struct LogPause {
    logged: Mutex<Option<Instant>>,
}

// === impl LogPause ===

impl LogPause {
    /// Returns `true` if the caller should log the message now. Then returns `false` for ten
    /// seconds, so that a client that repeats the same call does not fill the log.
    pub(crate) fn is_due_now(&self) -> bool {
        let now = Instant::now();
        let mut logged = lock(&self.logged);
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
    async fn messages_are_logged_at_intervals() {
        let pause = LogPause::default();
        for expected in [true, false, false, true, false] {
            assert_eq!(pause.is_due_now(), expected);
            tokio::time::advance(QUIET * 2 / 5).await;
        }
    }
}
