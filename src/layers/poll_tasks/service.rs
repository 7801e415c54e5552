//! The service that waits for the tasks of the wrapped service.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use pin_project_lite::pin_project;
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
};

/// Middleware that waits for the tasks of a server. Created by
/// [`PollTasksLayer`](super::PollTasksLayer).
///
/// `PollTasks` is ready when the inner service is ready.
#[derive(Clone, Debug)]
pub struct PollTasks<S> {
    inner: S,
    settings: Arc<Settings>,
}

pin_project! {
    /// Response future of [`PollTasks`].
    ///
    /// Dropping a `ResponseFuture` cancels the task for which it waits.
    pub struct ResponseFuture<F, E> {
        #[pin]
        state: State<F, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, E> {
        Passed {
            #[pin]
            reply: F,
        },
        Called { reply: BoxFuture<'static, Result<Reply, E>> },
    }
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
        let state = match request.message() {
            ClientRequest::CallToolRequest(_) => {
                let inner = take_ready(&mut self.inner);
                State::Called { reply: Box::pin(call(self.settings.clone(), inner, request)) }
            }
            _ => State::Passed { reply: self.inner.call(request) },
        };
        ResponseFuture { state }
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

// === impl ResponseFuture ===

impl<F, E> Future for ResponseFuture<F, E>
where
    F: Future<Output = Result<Reply, E>>,
{
    type Output = Result<Reply, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Passed { reply } => reply.poll(cx),
            StateProj::Called { reply } => reply.as_mut().poll(cx),
        }
    }
}

impl<F, E> fmt::Debug for ResponseFuture<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
