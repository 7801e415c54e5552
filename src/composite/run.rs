//! One call of a composite, from its arguments to its result.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelTaskParams, CancelTaskRequest,
    JsonObject,
};
use tokio::time::Instant;
use tower::{BoxError, ServiceExt, load_shed::error::Overloaded, timeout::error::Elapsed};
use tower_service::Service;

use super::{
    answer::answer,
    compile::{Program, Route},
    resolve::Resolved,
};
use crate::{
    catalog::Known,
    engine::{
        caller::{Call, Caller},
        limits::{Limits, Scope},
        outcome::{ErrorKind, RunState, StepError},
        plan::Arguments,
        run,
    },
    message::{Context, Refusal, Reply, Request, ToolAnswer},
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
    pub(super) async fn run(
        self,
        composite: usize,
        arguments: Option<JsonObject>,
        context: Context,
        limits: Limits,
    ) -> Result<CallToolResult, Refusal> {
        let deadline = Instant::now() + self.program.composites[composite].timeout;
        self.run_in(composite, arguments, context, Scope::new(limits, deadline)).await
    }

    async fn run_in(
        self,
        composite: usize,
        arguments: Option<JsonObject>,
        context: Context,
        scope: Scope,
    ) -> Result<CallToolResult, Refusal> {
        let program = self.program.clone();
        let known = self.known.clone();
        let compiled = &program.composites[composite];
        let Some(available) = known.derived().available(composite) else {
            return Err(Refusal::Unavailable { tool: compiled.name.to_string().into() });
        };
        let checked = available.input.check(&compiled.name, arguments)?;
        let defaulted = if available.derived { checked.defaulted } else { Vec::new() };
        let state = RunState::new(checked.arguments, compiled.plan.steps.len());
        let targets = Targets { runner: self, composite, defaulted };
        let state = run::run(&compiled.plan, state, &context, &scope, targets).await;
        Ok(answer(compiled, state))
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
    fn call(&mut self, call: Call) -> BoxFuture<'static, Result<CallToolResult, StepError>> {
        let Runner { program, known, inner } = &self.runner;
        let compiled = &program.composites[self.composite];
        let Call { step, tool, mut arguments, context, scope } = call;
        match compiled.targets[step].route {
            Route::Composite(callee) => {
                let runner = self.runner.clone();
                let deadline = Instant::now() + program.composites[callee].timeout;
                let scope = scope.nested(deadline);
                async move {
                    runner
                        .run_in(callee, Some(arguments), context, scope)
                        .await
                        .map_err(|refusal| StepError::protocol(refusal.to_error()))
                }
                .boxed()
            }
            Route::Inner => {
                let target = known
                    .derived()
                    .available(self.composite)
                    .map(|available| &available.targets[step]);
                let Some(target) = target.filter(|target| target.exists()) else {
                    let refusal = Refusal::UnknownTool { tool: tool.to_string().into() };
                    let error = StepError::protocol(refusal.to_error());
                    return futures::future::ready(Err(error)).boxed();
                };
                if matches!(compiled.plan.steps[step].arguments, Arguments::Input) {
                    target.narrow(&mut arguments, &self.defaulted);
                }
                let mut params = CallToolRequestParams::new(tool.to_string());
                params.arguments = Some(arguments);
                let request = Request::new(CallToolRequest::new(params), context);
                call_target(inner.clone(), request).boxed()
            }
        }
    }
}

/// Calls a tool of the service behind the layer.
///
/// What the service says in another way than as a result of the tool becomes a
/// text that may be shown to a client.
async fn call_target<S>(inner: S, request: Request) -> Result<CallToolResult, StepError>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    let reply = match inner.clone().oneshot(request).await {
        Ok(reply) => reply,
        Err(error) => return Err(service_error(&error.into())),
    };
    match reply.into_tool_answer() {
        ToolAnswer::Result(result) => Ok(result),
        ToolAnswer::Error(error) => Err(StepError::protocol(error)),
        ToolAnswer::Refused(refusal) => Err(StepError::protocol(refusal.to_error())),
        ToolAnswer::InputRequired(_) => Err(StepError::new(
            ErrorKind::Protocol,
            "the tool asks for input, which it cannot get here",
        )),
        ToolAnswer::Task(id) => {
            // Nobody will ever ask for it, so it should not go on.
            let cancel = CancelTaskRequest::new(CancelTaskParams::new(id));
            let cancel = Request::new(cancel, Context::default());
            if let Err(error) = inner.oneshot(cancel).await {
                tracing::debug!(error = %error.into(), "a task of a branch could not be cancelled");
            }
            Err(StepError::new(
                ErrorKind::Protocol,
                "the tool wants to go on as a task, which it cannot here",
            ))
        }
        ToolAnswer::Invalid => Err(StepError::new(
            ErrorKind::Protocol,
            "the tool's answer is not the result of a tool",
        )),
    }
}

/// Why a service could not answer, in words that say nothing about it.
fn service_error(error: &BoxError) -> StepError {
    if error.is::<Elapsed>() {
        return StepError::new(ErrorKind::Timeout, "no answer in time");
    }
    if error.is::<Overloaded>() {
        return StepError::new(ErrorKind::Service, "the tool's server is overloaded");
    }
    // It may hold addresses, paths and more that is nobody's business.
    tracing::warn!(%error, "a tool's server could not answer");
    StepError::new(ErrorKind::Service, "the tool's server could not answer")
}
