//! One call of a composite, from its arguments to its result.

use std::{error::Error, sync::Arc};

use futures::{
    FutureExt,
    future::{self, Either},
};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelTaskParams, CancelTaskRequest,
    JsonObject,
};
use tower::{BoxError, ServiceExt};
use tower_service::Service;

use super::{
    answer::answer,
    compile::{Program, Route},
    input::Checked,
    resolve::Resolved,
};
use crate::{
    catalog::Known,
    engine::{
        caller::{Call, Caller},
        limits::{Limits, Scope},
        outcome::{ErrorKind, RunState, StepError},
        run::Run,
    },
    message::{BackendErrorKind, Cause, Context, ItemKind, Refusal, Reply, Request, ToolAnswer},
};

/// Calls composites and their targets.
pub(super) struct Runner<S> {
    pub(super) program: Arc<Program>,
    pub(super) known: Arc<Known<Resolved>>,
    pub(super) inner: S,
}

/// Calls the targets of one composite: what the engine sees of the world.
struct Targets<S> {
    runner: Runner<S>,
    composite: usize,
    /// Arguments that are there only because the derived schema has a default
    /// for them; a target that does not declare them does not get them.
    defaulted: Vec<String>,
}

// === impl Runner ===

impl<S> Runner<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    /// Runs a composite that a client has called.
    pub(super) fn run(
        self,
        composite: usize,
        arguments: Option<JsonObject>,
        context: &Context,
        limits: Limits,
    ) -> impl Future<Output = Result<CallToolResult, Refusal>> + Send {
        let timeout = self.program.composites[composite].timeout;
        self.run_in(composite, arguments, context, Scope::new(limits, timeout))
    }

    async fn run_in(
        self,
        composite: usize,
        arguments: Option<JsonObject>,
        context: &Context,
        scope: Scope,
    ) -> Result<CallToolResult, Refusal> {
        let program = self.program.clone();
        let compiled = &program.composites[composite];
        let Some(available) = self.known.derived().available(composite) else {
            return Err(Refusal::Unavailable {
                kind: ItemKind::Tool,
                name: compiled.name.to_string().into(),
            });
        };
        let Checked { arguments, defaulted } = available.check(&compiled.name, arguments)?;
        let state = RunState::new(arguments, compiled.plan.steps().len());
        let targets = Targets { runner: self, composite, defaulted };
        let mut run = Run::new(&compiled.plan, state, context, &scope, targets);
        run.drive().await;
        Ok(answer(compiled, run.into_state(), &scope))
    }
}

impl<S: Clone> Clone for Runner<S> {
    fn clone(&self) -> Self {
        Self { program: self.program.clone(), known: self.known.clone(), inner: self.inner.clone() }
    }
}

// === impl Targets ===

impl<S> Caller for Targets<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    fn prepare(&mut self, site: usize, arguments: JsonObject) -> Result<JsonObject, StepError> {
        let available = self.runner.known.derived().available(self.composite);
        let Some(target) = available.map(|available| &available.targets[site]) else {
            return Ok(arguments);
        };
        target.prepare(arguments, &self.defaulted)
    }

    fn call(
        &mut self,
        call: Call,
    ) -> impl Future<Output = Result<CallToolResult, StepError>> + Send + 'static {
        let Runner { program, known, inner } = &self.runner;
        let Call { site, tool, arguments, context, scope } = call;
        match program.composites[self.composite].targets[site].route {
            Route::Composite(callee) => {
                let runner = self.runner.clone();
                let scope = scope.nested(program.composites[callee].timeout);
                let run = async move {
                    runner
                        .run_in(callee, Some(arguments), &context, scope)
                        .await
                        .map_err(|refusal| StepError::protocol(refusal.to_error()))
                };
                Either::Right(run.boxed())
            }
            Route::Inner => {
                let available = known.derived().available(self.composite);
                if !available.is_some_and(|available| available.targets[site].exists()) {
                    let refusal =
                        Refusal::Unknown { kind: ItemKind::Tool, name: tool.to_string().into() };
                    let missing = Err(StepError::protocol(refusal.to_error()));
                    return Either::Right(future::ready(missing).boxed());
                }
                let mut params = CallToolRequestParams::new(tool.to_string());
                params.arguments = Some(arguments);
                let request = Request::new(CallToolRequest::new(params), context);
                // Counted here and not by the engine, since those of a nested run
                // were counted where they came in.
                let called = call_target(inner.clone(), request);
                Either::Left(called.map(move |result| scope.keep(result)))
            }
        }
    }
}

/// Calls a tool of the service behind the layer.
///
/// What the service says in another way than as a result of the tool becomes a
/// text that may be shown to a client.
fn call_target<S>(
    inner: S,
    request: Request,
) -> impl Future<Output = Result<CallToolResult, StepError>> + Send + 'static
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    // Put together from parts and not `async`: every branch keeps room for this.
    inner.clone().oneshot(request).then(|reply| {
        let answer = match reply {
            Ok(reply) => reply.into_tool_answer(),
            Err(error) => return Either::Left(future::ready(Err(service_error(&error.into())))),
        };
        let result = match answer {
            ToolAnswer::Result(result) => Ok(result),
            ToolAnswer::Error(error) => Err(StepError::protocol(error)),
            ToolAnswer::Refused(refusal) => Err(StepError::protocol(refusal.to_error())),
            ToolAnswer::InputRequired(_) => {
                Err(protocol("the tool asks for input, which it cannot get here"))
            }
            ToolAnswer::Invalid => Err(protocol("the tool's answer is not the result of a tool")),
            ToolAnswer::Task(id) => {
                let refused = protocol("the tool wants to go on as a task, which it cannot here");
                return Either::Right(cancel_task(inner, id).map(|()| Err(refused)).boxed());
            }
        };
        Either::Left(future::ready(result))
    })
}

/// Cancels a task that nobody will ever ask for.
async fn cancel_task<S>(inner: S, id: String)
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>>,
{
    let cancel = CancelTaskRequest::new(CancelTaskParams::new(id));
    if let Err(error) = inner.oneshot(Request::new(cancel, Context::default())).await {
        tracing::debug!(error = %error.into(), "a task of a branch could not be cancelled");
    }
}

fn protocol(message: &str) -> StepError {
    StepError::new(ErrorKind::Protocol, message)
}

/// Why a service could not answer, in words that say nothing about it.
fn service_error(error: &BoxError) -> StepError {
    match Cause::of(&**error) {
        Cause::TimedOut => StepError::new(ErrorKind::Timeout, "no answer in time"),
        Cause::Overloaded => StepError::new(ErrorKind::Service, "the tool's server is overloaded"),
        Cause::Backend(backend) => {
            tracing::warn!(%error, source = backend.source(), "a backend could not answer");
            let kind = match backend.kind() {
                BackendErrorKind::TimedOut => ErrorKind::Timeout,
                _ => ErrorKind::Service,
            };
            StepError::new(kind, backend.to_string())
        }
        Cause::Unknown => {
            tracing::warn!(%error, "a tool's server could not answer");
            StepError::new(ErrorKind::Service, "the tool's server could not answer")
        }
    }
}
