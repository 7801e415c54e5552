//! The limits on the number, size and lifetime of tasks.

use std::time::Duration;

/// The maximum number of tasks, including those that have ended.
pub(crate) const MAX_TASKS: usize = 10_000;
/// The maximum number of tasks that have not ended.
pub(crate) const MAX_UNFINISHED: usize = 1_000;
/// The maximum total size in bytes of the arguments, questions, answers and results of all tasks.
pub(super) const MAX_TASK_BYTES: usize = 64 << 20;
/// The minimum time from the last change of a task until the task expires.
pub(super) const LIFETIME: Duration = Duration::from_secs(60 * 60);
/// The maximum number of unfinished tasks that one caller can have in a shared store.
pub(crate) const MAX_CALLER_UNFINISHED: usize = 250;
/// The maximum size in bytes of a task in a shared store.
pub(crate) const MAX_RECORD_BYTES: usize = 8 << 20;
/// The default duration of a lease in a shared store. If a replica does not renew the lease of a
/// task in this time, another replica takes over the task.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
