//! The service that runs calls as tasks.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{FutureExt, ready};
use rmcp::model::{
    CallToolRequestParams, ClientRequest, CreateTaskResult, ErrorData, GetTaskResult, ServerResult,
    TaskAckResult,
};
use tokio::{runtime::Handle, time::timeout};
use tower_layer::Layer;
use tower_service::Service;

#[cfg(feature = "restate")]
use super::shared::durable::DurableTasks;
use super::{
    error::UnknownTask,
    id::{is_id, key_of},
    layer::{Settings, TaskLayer},
    run::{Call, ReplyFuture},
    shared::SharedTasks,
    tool::{METHOD, TaskTool, TaskTools},
};
use crate::{
    adapter::failure::failure,
    json_size::json_bytes,
    message::{Reply, Request, ToolService, Tracing, tasks::declare_tasks},
    readiness::take_ready,
    response_future::ResponseFuture,
};

/// A call with `TaskMode::Optional` becomes a task if it takes longer than this. Otherwise, it
/// returns its result directly.
const GRACE: Duration = Duration::from_secs(1);

/// Middleware that runs calls of composites as MCP tasks. Created by
/// [`TaskLayer`](super::TaskLayer).
///
/// `Tasks` is ready when the inner service is ready.
#[derive(Clone, Debug)]
pub struct Tasks<S> {
    inner: S,
    /// `None` if no calls become tasks.
    settings: Option<Arc<Settings>>,
}

/// A call that may become a task.
struct Start<S> {
    tool: TaskTool,
    params: CallToolRequestParams,
    inner: S,
    request: Request,
}

/// The component that runs and stores a task.
enum Host {
    /// The memory of this process.
    Local,
    Shared(Arc<SharedTasks>),
    #[cfg(feature = "restate")]
    Durable(Arc<DurableTasks>),
}

// === impl TaskLayer ===

impl<S> Layer<S> for TaskLayer {
    type Service = Tasks<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let settings = &self.settings;
        let settings = (!settings.are_idle()).then(|| Arc::new(settings.clone()));
        Tasks { inner, settings }
    }
}

// === impl Tasks ===

impl<S> Tasks<S> {
    /// Returns a reference to the inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: ToolService> Tasks<S> {
    /// Starts to look in the shared store for tasks whose replica has ended, which this service
    /// then continues. `tracing` contains the view of the service. Does nothing without a shared
    /// store.
    pub(crate) fn watch(&self, tracing: Option<&Arc<Tracing>>) {
        if let Some(settings) = &self.settings {
            settings.host_of_new_tasks().serve(&settings.composites, tracing, &self.inner);
        }
    }
}

impl<S> Service<Request> for Tasks<S>
where
    S: ToolService,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        let work = match &self.settings {
            Some(settings) => settings.clone().work(&mut self.inner, request),
            None => Err(request),
        };
        match work {
            Ok(reply) => ResponseFuture::boxed(reply),
            Err(request) => ResponseFuture::forwarded(self.inner.call(request)),
        }
    }
}

// === impl Settings ===

impl Settings {
    /// Handles a request that concerns tasks, and returns the future of the reply. Returns any
    /// other request unchanged as an error.
    fn work<S>(self: Arc<Self>, inner: &mut S, request: Request) -> Result<ReplyFuture<S>, Request>
    where
        S: ToolService,
    {
        match request.message() {
            ClientRequest::CallToolRequest(call) => match self.tool(&call.params.name) {
                Some(tool)
                    if request.context().supports_tasks() && Handle::try_current().is_ok() =>
                {
                    let (params, inner) = (call.params.clone(), take_ready(inner));
                    let start = Start { tool, params, inner, request };
                    Ok(match self.host_of_new_tasks() {
                        Host::Local => Box::pin(self.start(start)),
                        Host::Shared(shared) => Box::pin(self.start_shared(shared, start)),
                        #[cfg(feature = "restate")]
                        Host::Durable(durable) => Box::pin(self.start_durable(durable, start)),
                    })
                }
                _ => Err(request),
            },
            ClientRequest::GetTaskRequest(_)
            | ClientRequest::UpdateTaskRequest(_)
            | ClientRequest::CancelTaskRequest(_) => Ok(self.manage(inner, request)),
            ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_) => {
                Ok(Box::pin(declared(inner.call(request))))
            }
            _ if request.is_malformed() => {
                drop(take_ready(inner));
                Ok(Box::pin(ready(Ok(Reply::malformed(request.method())))))
            }
            _ => Err(request),
        }
    }

    /// Calls a composite. Returns the result or, if the call continues in the background, a new
    /// task.
    async fn start<S>(self: Arc<Self>, start: Start<S>) -> Result<Reply, S::Error>
    where
        S: ToolService,
    {
        let reserved = match self.registry.reserve(json_bytes(&start.params.arguments)) {
            Ok(reserved) => reserved,
            Err(error) => return start.without_task(error).await,
        };
        let Start { tool, params, mut inner, mut request } = start;
        let owner = self.owner(request.context()).to_bytes();
        let mut context = request.context_mut().for_task();
        context.set_task_name(&reserved.name());
        let is_live = request.context().known_live_client().is_some();
        drop(request);
        let call = Call { inner: inner.clone(), params, context };
        let mut first: ReplyFuture<S> = Box::pin(inner.call(call.request()));
        if !tool.is_immediate
            && let Ok(reply) = timeout(GRACE, &mut first).await
        {
            // A client that is asked over its connection cannot receive questions as a reply.
            if !is_live || !reply.as_ref().is_ok_and(Reply::asks) {
                return reply;
            }
            first = ready(reply).boxed();
        }
        let task = reserved.start(owner, tool.timeout, |task| call.run(task, first));
        Ok(ServerResult::CreateTaskResult(CreateTaskResult::new(task)).into())
    }

    /// Calls a composite. Returns the result or, if the call continues in the background, a new
    /// task in the shared store.
    async fn start_shared<S>(
        self: Arc<Self>,
        shared: Arc<SharedTasks>,
        mut start: Start<S>,
    ) -> Result<Reply, S::Error>
    where
        S: ToolService,
    {
        let context = start.request.context_mut();
        shared.serve(&self.composites, context.tracing.as_ref(), &start.inner);
        let owner = self.owner(context);
        let mut context = context.for_task();
        let begun = shared.begin(start.tool, owner, start.params.clone(), &mut context);
        let task = match begun.await {
            Ok(task) => task,
            Err(error) => return start.without_task(error).await,
        };
        let Start { tool, params, mut inner, request } = start;
        drop(request);
        let mut first: ReplyFuture<S> =
            Box::pin(inner.call(Request::of_tool_call(params, context)));
        // A call that is dropped before it has become a task is cancelled.
        let cancel = task.cancel_on_drop();
        if !tool.is_immediate {
            match timeout(GRACE, &mut first).await {
                // The state of a run that asks is in the shared store, so its call becomes a task.
                Ok(reply) if reply.as_ref().is_ok_and(Reply::asks) => first = ready(reply).boxed(),
                Ok(reply) => return reply,
                Err(_) => (),
            }
            if let Err(error) = task.create().await {
                // The call continues without a task, and cannot ask questions.
                let reply = first.await?;
                return Ok(if reply.asks() { error.into() } else { reply });
            }
        }
        cancel.disarm();
        let first = async { first.await.map_err(|error| failure(METHOD, &*error.into())) };
        let task = task.start(first.boxed());
        Ok(ServerResult::CreateTaskResult(CreateTaskResult::new(task)).into())
    }

    /// Starts the call of a composite as a task of a durable engine. Returns its result, or the
    /// task.
    #[cfg(feature = "restate")]
    async fn start_durable<S>(
        self: Arc<Self>,
        durable: Arc<DurableTasks>,
        start: Start<S>,
    ) -> Result<Reply, S::Error>
    where
        S: ToolService,
    {
        let Start { tool, params, inner, request } = start;
        let context = request.context();
        durable.serve(&self.composites, context.tracing.as_ref(), &inner);
        let started = durable.start(tool, self.owner(context), params, context.meta().clone());
        let task = match started.await {
            Ok(task) => task,
            // The engine may have started the run although its response was lost, so the composite
            // must not be called here as well.
            Err(error) => return Ok(error.into()),
        };
        if !tool.is_immediate
            && let Ok(Some(reply)) = timeout(GRACE, durable.reply(&task.task_id)).await
        {
            return Ok(reply);
        }
        Ok(ServerResult::CreateTaskResult(CreateTaskResult::new(task)).into())
    }

    /// Answers a `tasks/get`, `tasks/update` or `tasks/cancel` request.
    fn manage<S>(self: Arc<Self>, inner: &mut S, request: Request) -> ReplyFuture<S>
    where
        S: ToolService,
    {
        let id = match request.message() {
            ClientRequest::GetTaskRequest(get) => &get.params.task_id,
            ClientRequest::UpdateTaskRequest(update) => &update.params.task_id,
            ClientRequest::CancelTaskRequest(cancel) => &cancel.params.task_id,
            _ => return Box::pin(inner.call(request)),
        };
        // The inner service may have tasks itself, whose IDs have another form.
        if !is_id(id) {
            return Box::pin(known(inner.call(request)));
        }
        let host = self.host(id);
        host.serve(&self.composites, request.context().tracing.as_ref(), inner);
        drop(take_ready(inner));
        let reply = async move { self.answer(host, request).await };
        Box::pin(reply.map(|reply| Ok(reply.unwrap_or_else(Reply::from))))
    }

    /// Returns the host of the task with this ID. Outside a Tokio runtime, only the tasks in the
    /// memory of this process can be reached.
    fn host(&self, id: &str) -> Host {
        if self.registry.contains(id) || Handle::try_current().is_err() {
            Host::Local
        } else {
            self.host_of_new_tasks()
        }
    }

    fn host_of_new_tasks(&self) -> Host {
        #[cfg(feature = "restate")]
        if let Some(durable) = &self.registry.durable {
            return Host::Durable(durable.clone());
        }
        self.registry.shared.clone().map_or(Host::Local, Host::Shared)
    }

    /// Answers a request about a task.
    async fn answer(&self, host: Host, request: Request) -> Result<Reply, ErrorData> {
        let owner = self.owner(request.context());
        let (message, mut context) = request.into_parts();
        match message {
            ClientRequest::GetTaskRequest(get) => {
                let id = &get.params.task_id;
                let task = match host {
                    Host::Local => self.registry.get(id, &owner.to_bytes())?,
                    Host::Shared(shared) => shared.get(id, &owner).await?,
                    #[cfg(feature = "restate")]
                    Host::Durable(durable) => durable.get(id, &owner).await?,
                };
                return Ok(ServerResult::GetTaskResult(GetTaskResult::new(task)).into());
            }
            ClientRequest::UpdateTaskRequest(update) => {
                let (id, answers) = (&update.params.task_id, update.params.input_responses);
                match host {
                    Host::Local => self.registry.update(id, &owner.to_bytes(), answers)?,
                    Host::Shared(shared) => {
                        shared.update(id, &owner, answers, context.for_task()).await?;
                    }
                    #[cfg(feature = "restate")]
                    Host::Durable(durable) => durable.update(id, &owner, answers).await?,
                }
            }
            ClientRequest::CancelTaskRequest(cancel) => {
                let id = &cancel.params.task_id;
                match host {
                    Host::Local => self.registry.cancel(id, &owner.to_bytes())?,
                    Host::Shared(shared) => shared.cancel(&key_of(id), Some(&owner)).await?,
                    #[cfg(feature = "restate")]
                    Host::Durable(durable) => durable.cancel(&key_of(id), Some(&owner)).await?,
                }
            }
            _ => return Err(UnknownTask.into()),
        }
        Ok(ServerResult::TaskAckResult(TaskAckResult::new()).into())
    }
}

// === impl Start ===

impl<S: ToolService> Start<S> {
    /// Forwards the call without a task, because of `error`. If it must become a task, rejects it
    /// instead.
    async fn without_task(
        mut self,
        error: impl Into<ErrorData> + fmt::Debug,
    ) -> Result<Reply, S::Error> {
        tracing::warn!(tool = &*self.params.name, reason = ?error, "failed to start a task");
        if self.tool.is_immediate {
            return Ok(error.into().into());
        }
        self.inner.call(self.request).await
    }
}

// === impl Host ===

impl Host {
    /// Makes `inner`, the service below a task layer with the composites `tools`, run the tasks of
    /// other processes.
    fn serve<S: ToolService>(
        &self,
        tools: &Arc<TaskTools>,
        tracing: Option<&Arc<Tracing>>,
        inner: &S,
    ) {
        match self {
            Self::Local => (),
            Self::Shared(shared) => shared.serve(tools, tracing, inner),
            #[cfg(feature = "restate")]
            Self::Durable(durable) => durable.serve(tools, tracing, inner),
        }
    }
}

/// Waits for a reply that contains the capabilities of the server, and adds the tasks extension.
async fn declared<E>(reply: impl Future<Output = Result<Reply, E>>) -> Result<Reply, E> {
    let mut reply = reply.await?;
    if let Some(capabilities) = reply.capabilities_mut() {
        declare_tasks(capabilities);
    }
    Ok(reply)
}

/// Waits for the reply to a request about a task of the inner service. If the inner service has no
/// tasks, replaces its error with the error for an unknown task.
async fn known<E>(reply: impl Future<Output = Result<Reply, E>>) -> Result<Reply, E> {
    let reply = reply.await?;
    Ok(if reply.is_method_not_found() { ErrorData::from(UnknownTask).into() } else { reply })
}
