//! Cancels tasks that tools have started. This crate does not support results that are returned by
//! tasks, so no client would request the result of the task.

use rmcp::model::{CancelTaskParams, CancelTaskRequest};
use tower::{BoxError, ServiceExt};
use tower_service::Service;

use crate::{
    message::{Context, Reply, Request},
    warnings::sanitize::Reason,
};

/// Cancels the task with the id `id` by sending a request to the server, because no client will
/// request the result of the task.
pub(crate) async fn cancel_task<S>(service: S, id: String, context: Context)
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>>,
{
    let cancel = CancelTaskRequest::new(CancelTaskParams::new(id));
    if let Err(error) = service.oneshot(Request::new(cancel, context)).await {
        tracing::debug!(error = %Reason(error.into()), "failed to cancel a task");
    }
}
