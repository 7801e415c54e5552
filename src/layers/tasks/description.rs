//! The description of a task that clients receive.

use std::time::Duration;

use jiff::Timestamp;
use rmcp::model::{Task, TaskStatus};

/// The poll interval that clients receive: the recommended time between two `tasks/get` requests.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the data that describes a task in every reply. Does not include the payload, such as the
/// result or the open questions. The status is `working`, and [`DetailedTask::new`] replaces it
/// with the status of the payload. `ttl` is the time from the creation of the task until it
/// expires.
///
/// [`DetailedTask::new`]: rmcp::model::DetailedTask::new
pub(super) fn describe(
    id: &str,
    created_at: Timestamp,
    updated_at: Timestamp,
    ttl: Duration,
) -> Task {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Task::new(id, TaskStatus::Working, text(created_at), text(updated_at))
        .with_ttl_ms(ms(ttl))
        .with_poll_interval_ms(ms(POLL_INTERVAL))
}

/// Formats a time as in ISO 8601, with milliseconds, such as `2026-01-31T12:00:00.000Z`.
fn text(time: Timestamp) -> String {
    format!("{time:.3}")
}
