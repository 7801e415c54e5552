//! The composites whose calls can become tasks.

use std::{collections::HashMap, time::Duration};

#[cfg(feature = "restate")]
use crate::fingerprint::Fingerprint;

/// The method of all calls that become tasks.
pub(super) const METHOD: &str = "tools/call";

/// The composites whose calls can become tasks, by name.
pub(super) type TaskTools = HashMap<String, TaskTool>;

/// A composite whose calls can become tasks.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskTool {
    /// `true` for `TaskMode::Always`: each call becomes a task immediately.
    pub(super) is_immediate: bool,
    pub(super) timeout: Duration,
    /// The fingerprint of its definition, and of those of the composites that it calls.
    #[cfg(feature = "restate")]
    pub(super) definition: Fingerprint,
}
