//! The name of the task that a call runs as.

use std::sync::Arc;

use super::Context;

/// The name of a task. Clients do not know it, and cannot access the task with it.
#[derive(Clone)]
struct TaskName(Arc<str>);

// === impl Context ===

impl Context {
    /// Sets the name of the task that this call runs as.
    pub(crate) fn set_task_name(&mut self, name: &str) {
        self.extensions_mut().insert(TaskName(name.into()));
    }

    /// Returns the name of the task that this call runs as. Returns `None` if it is not a task.
    pub(crate) fn task_name(&self) -> Option<Arc<str>> {
        self.extensions().get().map(|TaskName(name)| name.clone())
    }
}
