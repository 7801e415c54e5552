//! The service that waits for the tasks of the wrapped service.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use rmcp::model::{ClientRequest, ServerResult};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    layer::{PollTasksLayer, Settings},
    poll::Polling,
    state::{Owner, TaskState, handle},
};
use crate::{
    message::{Reply, Request, ToolService},
    readiness::take_ready,
    response_future::ResponseFuture,
};

/// Middleware that waits for the tasks of a server. Created by
/// [`PollTasksLayer`](super::PollTasksLayer).
///
/// `PollTasks` is ready when the inner service is ready. Dropping a response future cancels the
/// task for which it waits.
#[derive(Clone, Debug)]
pub struct PollTasks<S> {
    inner: S,
    settings: Arc<Settings>,
}

// === impl PollTasksLayer ===

impl<S> Layer<S> for PollTasksLayer {
    type Service = PollTasks<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PollTasks { inner, settings: Arc::new(self.settings.clone()) }
    }
}

// === impl PollTasks ===

impl<S> PollTasks<S> {
    /// Returns a reference to the inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S> Service<Request> for PollTasks<S>
where
    S: ToolService,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match request.message() {
            ClientRequest::CallToolRequest(_) => {
                let inner = take_ready(&mut self.inner);
                ResponseFuture::boxed(Box::pin(call(self.settings.clone(), inner, request)))
            }
            _ => ResponseFuture::forwarded(self.inner.call(request)),
        }
    }
}

/// Calls a tool of `inner`, which is ready. If the tool continues as a task, waits for the task.
async fn call<S>(
    settings: Arc<Settings>,
    mut inner: S,
    mut request: Request,
) -> Result<Reply, S::Error>
where
    S: ToolService,
{
    let abilities = request.context().abilities();
    request.context_mut().polls_tasks = true;
    let context = request.context().without_client();
    let service = inner.clone();
    let Some(params) = request.tool_call_mut() else { return inner.call(request).await };
    let tool = params.name.clone();
    if let Some(handle) = params.request_state.as_deref().and_then(handle) {
        drop(inner);
        let owner = Owner::of(&settings, &tool, &context);
        let state = match TaskState::take(handle, &settings, &owner).await {
            Ok(state) => state,
            Err(error) => return Ok(error.into()),
        };
        let answers = params.input_responses.take().unwrap_or_default();
        let polling = Polling::new(settings, service, context, abilities, owner, state);
        return Ok(Box::pin(polling.resume(answers)).await);
    }
    let reply = inner.call(request).await?;
    let Some(ServerResult::CreateTaskResult(created)) = reply.result() else { return Ok(reply) };
    let owner = Owner::of(&settings, &tool, &context);
    let state = TaskState::new(&created.task);
    let polling = Polling::new(settings, service, context, abilities, owner, state);
    Ok(Box::pin(polling.start(created.task.status)).await)
}
