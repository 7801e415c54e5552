//! Declares the MCP extension for tasks, and cancels tasks of servers.

use rmcp::model::{CancelTaskParams, CancelTaskRequest, ServerCapabilities, TASKS_EXTENSION_ID};
use tower::{BoxError, ServiceExt};
use tower_service::Service;

use crate::{
    message::{Context, Reply, Request},
    warnings::sanitize::Reason,
};

/// Adds the tasks extension to the declared capabilities of a server.
pub(crate) fn declare_tasks(capabilities: &mut ServerCapabilities) {
    let extensions = capabilities.extensions.get_or_insert_default();
    extensions.entry(TASKS_EXTENSION_ID.to_owned()).or_default();
}

/// Cancels the task with the id `id` on its server, because no client will request its result.
pub(crate) async fn cancel_task<S>(service: S, id: String, context: Context)
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>>,
{
    let cancel = CancelTaskRequest::new(CancelTaskParams::new(id));
    if let Err(error) = service.oneshot(Request::new(cancel, context)).await {
        tracing::debug!(error = %Reason(error.into()), "failed to cancel a task");
    }
}
