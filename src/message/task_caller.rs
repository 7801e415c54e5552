//! The caller of a task that another process started.

use std::sync::Arc;

use super::{Context, ContextKey};

/// The caller of a task that continues in this process after another one started it. `None` if the
/// request that started the task had no caller.
#[derive(Clone)]
struct TaskCaller(Option<Arc<str>>);

/// Returns a function that identifies the caller of a request. For a task that another process
/// started, it returns the caller that was stored with the task. For all other requests, it calls
/// `caller`.
pub(crate) fn identified_by<F>(caller: F) -> ContextKey
where
    F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
{
    Arc::new(move |context| match context.extensions().get::<TaskCaller>() {
        Some(TaskCaller(known)) => known.as_deref().map(str::to_owned),
        None => caller(context),
    })
}

// === impl Context ===

impl Context {
    /// Sets the caller of a task that another process started.
    pub(crate) fn set_task_caller(&mut self, caller: Option<&str>) {
        self.extensions_mut().insert(TaskCaller(caller.map(Into::into)));
    }
}
