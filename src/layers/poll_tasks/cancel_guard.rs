//! Cancels a task whose result is no longer needed.

use futures::FutureExt;
use tokio::{runtime::Handle, task::coop::unconstrained};
use tracing::Instrument;

use crate::message::{Context, ToolService, tasks::cancel_task};

/// A guard that sends `tasks/cancel` when it is dropped.
pub(super) struct CancelGuard<S: ToolService> {
    /// `None` if the task must not be cancelled any more.
    task: Option<RunningTask<S>>,
}

struct RunningTask<S> {
    service: S,
    id: String,
    context: Context,
}

// === impl CancelGuard ===

impl<S: ToolService> CancelGuard<S> {
    /// Creates a guard for a task of `service`. `context` is the context of the cancel request.
    pub(super) const fn new(service: S, id: String, context: Context) -> Self {
        Self { task: Some(RunningTask { service, id, context }) }
    }

    /// Prevents the cancellation. Called when the task has ended, or when a later call will
    /// continue to wait for the task.
    pub(super) fn disarm(&mut self) {
        self.task = None;
    }
}

impl<S: ToolService> Drop for CancelGuard<S> {
    fn drop(&mut self) {
        let Some(RunningTask { service, id, context }) = self.task.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let mut cancelling = cancel_task(service, id, context).in_current_span().boxed();
        // The first poll usually puts the request into the queue of the connection. Further polls
        // only wait for the reply.
        if unconstrained(&mut cancelling).now_or_never().is_none() {
            runtime.spawn(cancelling);
        }
    }
}
