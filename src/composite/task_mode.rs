//! Determines whether calls of a composite become MCP tasks.

use std::time::Duration;

use super::strategy::Strategy;
use crate::named::named;

/// A workflow becomes a task by default if its timeout is longer than this.
const LONG_RUN: Duration = Duration::from_secs(60);

/// Determines whether calls of a composite become MCP tasks, which continue in the background; see
/// [`tasks`](crate::tasks).
///
/// A call becomes a task only if the client declares that it supports tasks, and if a
/// [`TaskLayer`](crate::tasks::TaskLayer) is above the composite layer. All other calls return
/// their result directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskMode {
    /// Calls never become tasks.
    Never,
    /// A call becomes a task if it takes longer than a second. If a client with a protocol version
    /// before 2026-07-28 declares that it can be asked questions, a call also becomes a task when
    /// it asks the first one.
    Optional,
    /// Each call becomes a task immediately.
    Always,
}

// === impl TaskMode ===

impl TaskMode {
    /// Returns the default mode of a composite with this strategy and timeout.
    pub(super) fn default_of(strategy: &Strategy, timeout: Duration) -> Self {
        match strategy {
            Strategy::Workflow(_) if timeout > LONG_RUN => Self::Optional,
            _ => Self::Never,
        }
    }
}

named! {
    TaskMode {
        Never => "never",
        Optional => "optional",
        Always => "always",
    }
}
