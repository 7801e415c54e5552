//! The description of a task that clients receive.

use std::time::Duration;

use jiff::Timestamp;
use rmcp::model::{Task, TaskStatus};

/// The recommended time between two requests of a client for the state of a task.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The data of a task that clients receive, without its payload.
pub(super) struct Description {
    pub(super) status: TaskStatus,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    /// The time from the creation of the task until it expires.
    pub(super) ttl: Duration,
}

// === impl Description ===

impl Description {
    /// Returns the task with this ID as clients receive it.
    pub(super) fn task(self, id: &str) -> Task {
        let [created, updated] = [self.created_at, self.updated_at].map(text);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Task::new(id, self.status, created, updated)
            .with_ttl_ms(ms(self.ttl))
            .with_poll_interval_ms(ms(POLL_INTERVAL))
    }
}

/// Formats a time as in ISO 8601, with milliseconds.
fn text(time: Timestamp) -> String {
    format!("{time:.3}")
}
