//! Limits how often a message is logged.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Limits a log message about requests, so that clients cannot fill the log. Counts the messages
/// that are left out.
pub(crate) struct LogLimit {
    /// The minimum time between two messages.
    pause: Duration,
    /// The time of the last message, and the number of messages that were left out since then.
    last: Mutex<(Option<Instant>, u64)>,
}

// === impl LogLimit ===

impl LogLimit {
    /// Creates a limit with this minimum time between two messages.
    pub(crate) const fn new(pause: Duration) -> Self {
        Self { pause, last: Mutex::new((None, 0)) }
    }

    /// Returns the end of a message that may be logged now: the number of messages that were left
    /// out before, if there are any. Returns `None` if the message must be left out.
    pub(crate) fn admit(&self) -> Option<String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (before, omitted) = *last;
        if before.is_some_and(|before| now - before < self.pause) {
            last.1 += 1;
            return None;
        }
        *last = (Some(now), 0);
        Some(if omitted == 0 { String::new() } else { format!("; {omitted} others before") })
    }
}
