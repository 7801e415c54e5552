//! Makes the calls of tasks that another process has started.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use rmcp::model::ErrorData;
use tower::ServiceExt;

use super::record::{Call, Resume};
#[cfg(feature = "restate")]
use crate::fingerprint::Fingerprint;
use crate::{
    adapter::failure::failure,
    message::{Context, Reply, Request, ToolService, Tracing},
    tasks::tool::{METHOD, TaskTools},
};

/// The service below a task layer, which can continue the tasks of the layer's view.
pub(super) struct Runner {
    tools: Arc<TaskTools>,
    tracing: Option<Arc<Tracing>>,
    call: Box<dyn FnMut(Request) -> Replying + Send>,
}

pub(super) type Replying = BoxFuture<'static, Result<Reply, ErrorData>>;

// === impl Runner ===

impl Runner {
    pub(super) fn new<S>(tools: Arc<TaskTools>, tracing: Option<Arc<Tracing>>, inner: S) -> Self
    where
        S: ToolService,
    {
        let call = move |request| {
            let reply = inner.clone().oneshot(request);
            async move { reply.await.map_err(|error| failure(METHOD, &*error.into())) }.boxed()
        };
        Self { tools, tracing, call: Box::new(call) }
    }

    /// Returns `true` if the runner belongs to the layer with these composites.
    pub(super) fn is_of(&self, tools: &Arc<TaskTools>) -> bool {
        Arc::ptr_eq(&self.tools, tools)
    }

    /// Returns the fingerprint of the definition of a task's composite. Returns `None` if the layer
    /// has no such composite.
    #[cfg(feature = "restate")]
    pub(super) fn definition(&self, call: &Call) -> Option<Fingerprint> {
        self.tools.get(&*call.params.name).map(|tool| tool.definition)
    }

    /// Calls the composite of a task. `resume` contains the answers to its questions. `context` is
    /// the context of the request that has answered the last question, or `None` if there is no
    /// request. `keep` sets the place where the run stores its progress. Returns `None` if the
    /// layer has no such composite.
    pub(super) fn call(
        &mut self,
        call: &Call,
        resume: Resume,
        context: Option<Context>,
        keep: impl FnOnce(&mut Context),
    ) -> Option<Replying> {
        let Call { owner, params, meta, .. } = call;
        self.tools.get(&*params.name)?;
        let mut context = context.unwrap_or_else(|| {
            let mut context = Context::default();
            context.tracing = self.tracing.clone();
            context.set_task_caller(owner.caller.as_deref());
            context
        });
        *context.meta_mut() = meta.clone();
        keep(&mut context);
        let mut params = params.clone();
        params.input_responses = resume.answers;
        params.request_state = resume.request_state;
        Some((self.call)(Request::of_tool_call(params, context)))
    }
}
