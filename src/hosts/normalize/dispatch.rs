//! Executes the tool calls that a model has requested.

use std::{
    error::Error as _,
    num::NonZeroUsize,
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering},
};

use futures::{FutureExt, StreamExt, stream};
use rmcp::model::CallToolRequestParams;
use tower::{BoxError, ServiceExt};
use tower_service::Service;

use super::{
    call::{MalformedCall, ModelCall},
    names::ToolNames,
    outcome::{Dispatched, Failure, FailureKind, Outcome},
};
use crate::{
    message::{BackendErrorKind, Cause, Context, Reply, Request, ToolAnswer, tasks::cancel_task},
    warnings::sanitize::Reason,
};

/// Options for [`dispatch`], which executes the tool calls of a model.
///
/// With the default options, the calls run one after another, and the service receives the tool
/// names as the model wrote them.
#[derive(Clone, Debug, Default)]
pub struct DispatchOptions {
    order: DispatchOrder,
    stop_on_error: bool,
    names: Option<ToolNames>,
    context: Context,
    outer: Option<Context>,
}

/// The order in which the tool calls of one model response run: sequentially or concurrently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DispatchOrder {
    /// Run calls one after another, in the order in which the model wrote them.
    #[default]
    InOrder,
    /// Run calls concurrently. They are started in the order in which the model wrote them.
    Parallel {
        /// Maximum number of concurrent calls.
        max: NonZeroUsize,
    },
}

/// Executes the tool calls of a model, and returns their outcomes in the order of the calls.
///
/// The outcomes of the calls are independent: if a call fails, is malformed or panics, the other
/// calls still return their results. All calls run in the task that awaits this future. Dropping
/// the future cancels the running calls and starts no others.
///
/// `dispatch` sends each call to a clone of `service` as soon as the clone is ready. A call fails
/// if its tool requests user input or continues as a task. In the second case, `dispatch` cancels
/// the task. The model sees the JSON-RPC errors that the service returns. To hide a forbidden tool,
/// the service must return the same error as for an unknown tool.
///
/// See the [module docs](super) for an example.
pub async fn dispatch<S>(
    service: S,
    calls: impl IntoIterator<Item = Result<ModelCall, MalformedCall>>,
    options: &DispatchOptions,
) -> Vec<Dispatched>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    let at_once = match options.order {
        DispatchOrder::InOrder => 1,
        DispatchOrder::Parallel { max } => max.get(),
    };
    let has_failed = AtomicBool::new(false);
    let has_failed = &has_failed;
    // The service is moved into the closure, because it need not be `Sync`.
    let work = calls.into_iter().enumerate().map(move |(index, call)| {
        let service = service.clone();
        async move {
            let is_skipped = options.stop_on_error && has_failed.load(Ordering::Relaxed);
            let dispatched = one(service, call, options, is_skipped).await;
            has_failed.fetch_or(dispatched.is_error(), Ordering::Relaxed);
            (index, dispatched)
        }
    });
    let mut ended: Vec<_> = stream::iter(work).buffer_unordered(at_once).collect().await;
    ended.sort_unstable_by_key(|(index, _)| *index);
    ended.into_iter().map(|(_, dispatched)| dispatched).collect()
}

async fn one<S>(
    service: S,
    call: Result<ModelCall, MalformedCall>,
    options: &DispatchOptions,
    is_skipped: bool,
) -> Dispatched
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    match call {
        Err(malformed) => Dispatched {
            id: malformed.id.clone(),
            name: malformed.name.clone(),
            form: malformed.form,
            outcome: Outcome::Malformed(malformed),
        },
        Ok(ModelCall { id, name, arguments, form }) => {
            let outcome = if is_skipped {
                Outcome::Skipped
            } else {
                let tool = options.names.as_ref().and_then(|names| names.original(&name));
                let params = CallToolRequestParams::new(tool.unwrap_or(&name).to_owned())
                    .with_arguments(arguments);
                let answer = AssertUnwindSafe(answer(service, params, &name, options));
                answer.catch_unwind().await.unwrap_or_else(|_| {
                    // The panic message is not logged, because the panic hook has already received
                    // it.
                    tracing::error!(tool = name, "a tool panicked");
                    Outcome::Failed(Failure::new(FailureKind::Panic, "the tool panicked"))
                })
            };
            Dispatched { id: Some(id), name: Some(name), outcome, form }
        }
    }
}

async fn answer<S>(
    service: S,
    params: CallToolRequestParams,
    name: &str,
    options: &DispatchOptions,
) -> Outcome
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    let tool = params.name.clone();
    let request = options.request(Request::call_tool_with(params));
    let context = request.context().clone();
    let mut reply = match service.clone().oneshot(request).await {
        Ok(reply) => reply,
        Err(error) => return Outcome::Failed(service_failure(&error.into())),
    };
    // Replaces the original name in the error by the name that the model uses.
    if let Some(refused) = reply.refusal_mut().and_then(|refusal| refusal.name_mut())
        && *refused == tool
    {
        *refused = name.to_owned().into();
    }
    let failed = |kind, message| Outcome::Failed(Failure::new(kind, message));
    match reply.into_tool_answer() {
        ToolAnswer::Result(result) => Outcome::Completed(Box::new(result)),
        ToolAnswer::Error(error) => Outcome::Failed(error.into()),
        ToolAnswer::Refused(refusal) => Outcome::Failed(refusal.to_error().into()),
        ToolAnswer::InputRequired(_) => failed(
            FailureKind::InputRequired,
            "the tool asks the user, and no user can be asked here",
        ),
        ToolAnswer::Task(id) => {
            cancel_task(service, id, context).await;
            failed(FailureKind::Task, "the tool returned a task, which is not supported here")
        }
        ToolAnswer::Invalid => failed(FailureKind::Protocol, "the tool returned an invalid result"),
    }
}

/// Converts an error of the service to an error for the model, without internal details.
fn service_failure(error: &BoxError) -> Failure {
    match Cause::of(&**error) {
        Cause::TimedOut => Failure::new(FailureKind::Timeout, "no answer in time"),
        Cause::Overloaded => Failure::new(FailureKind::Service, "the tool's server is overloaded"),
        Cause::Backend(backend) => {
            tracing::warn!(%error, source = backend.source(), "a backend failed to answer");
            let kind = match backend.kind() {
                BackendErrorKind::TimedOut => FailureKind::Timeout,
                _ => FailureKind::Service,
            };
            Failure::new(kind, backend.to_string())
        }
        Cause::Unknown => {
            tracing::warn!(error = %Reason(error), "the server of a tool failed to answer");
            Failure::new(FailureKind::Service, "the tool's server failed to answer")
        }
    }
}

// === impl DispatchOptions ===

impl DispatchOptions {
    /// Creates options with the defaults: the calls run sequentially, and the tool names that the
    /// model wrote are used unchanged.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether calls run sequentially or concurrently. Defaults to sequential execution.
    #[must_use]
    pub const fn order(mut self, order: DispatchOrder) -> Self {
        self.order = order;
        self
    }

    /// Sets whether the remaining calls are [skipped](Outcome::Skipped) after an error. If `true`,
    /// `dispatch` starts no more calls after a call has failed, is malformed or has returned
    /// `isError`. Defaults to `false`.
    #[must_use]
    pub const fn stop_on_error(mut self, stop: bool) -> Self {
        self.stop_on_error = stop;
        self
    }

    /// Sets the names under which the model knows the tools. [`dispatch`] replaces them with the
    /// original names. It sends all other names in the model's calls unchanged.
    #[must_use]
    pub fn names(mut self, names: ToolNames) -> Self {
        self.names = Some(names);
        self
    }

    /// Sets the context of all calls, which determines their caller and the budgets that they are
    /// charged to. In a tool that executes the calls of a model, use [`within`](Self::within)
    /// instead, which also limits the nesting depth of calls.
    #[must_use]
    pub fn context(mut self, context: impl Into<Context>) -> Self {
        self.context = context.into();
        self
    }

    /// Executes all calls within the request that has the context `outer`. Use this method in a
    /// tool that prompts a model and executes the model's calls.
    ///
    /// [`Request::within`] lists the properties that the calls inherit from `outer`, such as the
    /// caller. Values that you set with [`context`](Self::context) take precedence. Calls that are
    /// nested too deeply are rejected, so that a recursion ends. If you pass `outer` to
    /// [`context`](Self::context) instead, the nesting depth is not limited.
    ///
    /// ```
    /// use mcp_composite::{
    ///     message::Request,
    ///     normalize::{CallId, DispatchOptions, ModelCall, dispatch},
    /// };
    /// use rmcp::model::{CallToolResult, JsonObject};
    /// use serde_json::json;
    /// use tower::{BoxError, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let depth = service_fn(async |request: Request| {
    ///     Ok::<_, BoxError>(CallToolResult::structured(json!(request.context().depth())).into())
    /// });
    /// // What a tool is called with.
    /// let outer = Request::call_tool("agent");
    ///
    /// let call = ModelCall::new(CallId::new("a"), "depth", JsonObject::new());
    /// let options = DispatchOptions::new().within(outer.context());
    /// let ended = dispatch(depth, [Ok(call)], &options).await;
    /// let result = ended[0].result().unwrap();
    /// assert_eq!(result.structured_content, Some(json!(1)));
    /// # }
    /// ```
    #[must_use]
    pub fn within(mut self, outer: &Context) -> Self {
        self.outer = Some(outer.clone());
        self
    }

    fn request(&self, request: Request) -> Request {
        let request = request.with_context(self.context.clone());
        match &self.outer {
            Some(outer) => request.within(outer),
            None => request,
        }
    }
}
