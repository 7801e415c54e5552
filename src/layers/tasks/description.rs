//! The description of a task that clients receive.

use std::time::Duration;

use jiff::Timestamp;
use rmcp::model::{Task, TaskStatus};

/// The poll interval that clients receive: the recommended time between two `tasks/get` requests.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The data that describes a task in every reply, such as its status. Does not include the payload,
/// such as the result or the open questions.
pub(super) struct Description {
    pub(super) status: TaskStatus,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    /// The time from the creation of the task until it expires.
    pub(super) ttl: Duration,
}

// === impl Description ===

impl Description {
    /// Converts the description to a [`Task`] with the given ID.
    pub(super) fn task(self, id: &str) -> Task {
        let [created, updated] = [self.created_at, self.updated_at].map(text);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Task::new(id, self.status, created, updated)
            .with_ttl_ms(ms(self.ttl))
            .with_poll_interval_ms(ms(POLL_INTERVAL))
    }
}

/// Formats a time as in ISO 8601, with milliseconds, such as `2026-01-31T12:00:00.000Z`.
fn text(time: Timestamp) -> String {
    format!("{time:.3}")
}
