//! Runs a composite once, from its arguments to its result. If the composite asks questions, the
//! run ends when it has to wait for the client's answers.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{self, BoxFuture, Either},
};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, InputResponses, JsonObject,
};
use tokio::task::yield_now;
use tower_service::Service;

use super::{
    answer::{OutputSchema, answer},
    checkpoints,
    compile::{Compiled, Program, Route},
    input::Checked,
    layer::CompositeLayer,
    resolve::{Available, Resolved},
    target_call::{TargetCall, check_depth, protocol},
};
use crate::{
    catalog::Known,
    engine::{
        caller::{Call, Called, Caller, FirstPoll, ToolReply},
        observation::Observation,
        outcome::StepError,
        plan::{CallSite, StepSet},
        question::Response,
        questions::{Answered, Questions},
        run::{LONG, Run},
        saving::{Saving, Unsaved},
        scope::Scope,
        state::{Resume, RunState},
    },
    message::{
        Context, ItemKind, Refusal, Request, ToolService, checkpoint::CheckpointError,
        client::Abilities,
    },
    observe::RunHandle,
};

/// The error text if a finally step asks the user a question after the call was cancelled.
const CANCELLED: &str = "the call was cancelled";

/// Runs composites. Calls the tools of the inner service and nested composites.
pub(super) struct Runner<S> {
    pub(super) layer: Arc<CompositeLayer>,
    pub(super) known: Arc<Known<Resolved>>,
    /// Boxed because the service may be large, and the future of a run has space for several copies
    /// of it.
    pub(super) inner: Box<S>,
}

/// Calls the targets of one composite for the engine, through the trait [`Caller`].
struct Targets<S>
where
    S: Service<Request>,
{
    runner: Runner<S>,
    composite: usize,
    /// The arguments of the composite as the client sent them, without defaults. `None` if no
    /// defaults were added, or if no target needs the original arguments.
    given: Option<Box<JsonObject>>,
    /// The kinds of questions that the client can answer. Targets may ask only such questions.
    abilities: Abilities,
    /// The future of an earlier call that completed at its first poll. The next call reuses its
    /// allocation and its clone of the service. `None` if there is no such future.
    spare: Option<Pin<Box<TargetCall<S>>>>,
}

/// A call of a composite whose run can be cancelled by an observer.
struct ObservedCall<'r> {
    handle: RunHandle,
    /// A flag that cancels the run when it is set. The finally steps for cancelled calls still run.
    /// `None` if the composite has no such steps.
    cancelled: Option<Arc<AtomicBool>>,
    compiled: &'r Compiled,
    context: &'r Context,
}

/// The outcome of running a composite once: a result, or open questions.
pub(super) enum Ended {
    /// The run has ended with a result. `reached` is `true` if a limit ended the run, so that the
    /// result may be partial.
    Result { result: CallToolResult, reached: bool },
    /// The run waits for answers to its questions. Contains the state from which it can be resumed
    /// after the client has answered.
    Asks(Box<RunState>),
}

// === impl Ended ===

impl Ended {
    /// Returns the outcome of a run whose call was cancelled. It contains an empty result, which no
    /// client receives.
    fn cancelled() -> Self {
        Self::Result { result: CallToolResult::default(), reached: false }
    }
}

// === impl ObservedCall ===

impl<'r> ObservedCall<'r> {
    /// Waits until the run has ended. If an observer cancels the run first, runs the finally steps
    /// for cancelled calls, and then returns the outcome of the call as an error.
    ///
    /// The future is boxed so that runs without observers reserve no memory for it.
    fn wait<C: Caller + Send + 'r>(
        self,
        run: Run<'r, C>,
        scope: &'r Scope,
        advertised: &'r OutputSchema,
    ) -> BoxFuture<'r, Result<Run<'r, C>, Ended>> {
        let Self { handle, cancelled, compiled, context } = self;
        let ended = async move {
            let cancellation = pin!(handle.cancelled());
            let waiting = match future::select(run.wait_until_end(), cancellation).await {
                Either::Left((run, _)) => return Ok(run),
                Either::Right(((), waiting)) => waiting,
            };
            tracing::info!(composite = &*compiled.name, "an operator cancelled a run");
            if let Some(cancelled) = cancelled {
                cancelled.store(true, Ordering::Release);
                finish(waiting.await, compiled, context, scope, advertised).await;
            } else {
                drop(waiting);
                scope.wait_for_aborted(&compiled.plan).await;
            }
            let text = ContentBlock::text("the run was cancelled by an operator");
            Err(Ended::Result { result: CallToolResult::error(vec![text]), reached: false })
        };
        ended.boxed()
    }
}

// === impl Runner ===

impl<S> Runner<S>
where
    S: ToolService,
{
    /// Runs a composite like [`run`](Self::run). If the call is cancelled, which drops the returned
    /// future, the finally steps for cancelled calls run in a separate task. If `saving` is set,
    /// the call counts as cancelled only if the cancellation token of `context` is cancelled.
    /// Otherwise, another process continues the run.
    pub(super) fn run_cancellable<'r>(
        self,
        program: &'r Program,
        called: (usize, Option<JsonObject>, Option<Box<RunState>>),
        context: &'r Context,
        scope: Scope,
        saving: Option<Box<Saving>>,
    ) -> impl Future<Output = Result<Ended, Refusal>> + Send + use<'r, S> {
        let (composite, ..) = called;
        let plan = &program.composites[composite].plan;
        if context.journal().is_some() {
            // A cancellation is an event of the journal. Dropping the future only stops the run.
            let cancelled = Some(Arc::default());
            return Either::Left(self.run(program, called, context, scope, cancelled, None));
        }
        if !plan.runs_on_cancel() {
            return Either::Left(self.run(program, called, context, scope, None, saving));
        }
        // The calls of finally steps must not end with the request of the client. All other calls
        // end because their futures are dropped.
        let cancellation =
            saving.as_ref().map(|_| context.cancellation().cloned().unwrap_or_default());
        let context = context.without_cancellation();
        let layer = self.layer.clone();
        let runs = layer.cancelled_runs.clone();
        let grace = plan.grace().unwrap_or_default();
        let outer = scope.account().or(context.account()).cloned();
        Either::Right(runs.start(grace, cancellation, outer, |cancelled| {
            let run = async move {
                self.run(&layer.program, called, &context, scope, Some(cancelled), saving).await
            };
            run.boxed()
        }))
    }

    /// Runs a composite. The tuple contains the index of the composite, its arguments, and the
    /// state of a suspended run. If the state is `None`, a new run starts. Otherwise, the suspended
    /// run is resumed.
    ///
    /// Dropping the returned future stops all steps. A caller that keeps polling the future after
    /// its call was cancelled must pass a flag as `cancelled`, and set the flag at the
    /// cancellation. If `saving` is set, the run stores its state while it runs.
    ///
    /// Arguments are checked before the future is created, which keeps the future small. `program`
    /// must be the program of the runner's layer.
    pub(super) fn run<'r>(
        self,
        program: &'r Program,
        (composite, arguments, state): (usize, Option<JsonObject>, Option<Box<RunState>>),
        context: &'r Context,
        scope: Scope,
        cancelled: Option<Arc<AtomicBool>>,
        saving: Option<Box<Saving>>,
    ) -> impl Future<Output = Result<Ended, Refusal>> + Send + use<'r, S> {
        let compiled = &program.composites[composite];
        let spent = state.as_ref().and_then(|state| state.spent.as_deref());
        let mut scope = scope.of_run(&compiled.name, compiled.definition.limits, context, spent);
        let prepared = self.prepare(compiled, composite, arguments, state, context);
        let mut now = context.now();
        let is_long = now - scope.started > LONG;
        async move {
            let (state, targets) = prepared?;
            if state.is_settled() {
                scope = scope.of_finals(compiled.plan.grace().unwrap_or_default(), now);
            }
            // Yields to other tasks first, because the first steps coerce arguments for their
            // tools, which can take just as long again.
            if is_long {
                yield_now().await;
                now = context.now();
            }
            let advertised = targets.output_schema();
            let mut run = Run::new_at(&compiled.plan, state, context, &scope, targets, now);
            if let Some(cancelled) = &cancelled {
                run.set_cancelled(cancelled.clone());
                if run.is_cancelled() {
                    return Ok(Ended::cancelled());
                }
            }
            run.set_saving(saving);
            // A run is large, so it is moved only if it must wait.
            if !run.begin_run() {
                run = match run.handle() {
                    None => run.wait_until_end().await,
                    Some(handle) => {
                        let call = ObservedCall { handle, cancelled, compiled, context };
                        match call.wait(run, &scope, &advertised).await {
                            Ok(run) => run,
                            Err(cancelled) => return Ok(cancelled),
                        }
                    }
                };
            }
            if let Some(unsaved) = run.unsaved() {
                return Ok(end_unsaved(unsaved.clone(), run));
            }
            if compiled.plan.grace().is_some() {
                return Ok(finish(run, compiled, context, &scope, &advertised).await);
            }
            Ok(end(run.into_parts(), compiled, context, &scope, &advertised))
        }
    }

    /// Checks the arguments. Returns the state with which the run starts or resumes, and the
    /// [`Targets`] that call its tools.
    fn prepare(
        self,
        compiled: &Compiled,
        composite: usize,
        arguments: Option<JsonObject>,
        state: Option<Box<RunState>>,
        context: &Context,
    ) -> Result<(Box<RunState>, Targets<S>), Refusal> {
        let Some(available) = self.known.derived().available(composite) else {
            return Err(Refusal::Unavailable {
                kind: ItemKind::Tool,
                name: compiled.name.to_string().into(),
            });
        };
        let Checked { arguments, given } = available.check(&compiled.name, arguments)?;
        let new = || Box::new(RunState::new(arguments, compiled.plan.steps().len()));
        let state = state.unwrap_or_else(new);
        let abilities = context.abilities();
        Ok((state, Targets { runner: self, composite, given, abilities, spare: None }))
    }
}

/// Runs the finally steps of a run whose other steps have ended, and returns the outcome of the
/// run.
///
/// The future is boxed so that runs without finally steps reserve no memory for it.
pub(super) fn finish<'r, C: Caller + Send + 'r>(
    run: Run<'r, C>,
    compiled: &'r Compiled,
    context: &'r Context,
    scope: &'r Scope,
    advertised: &'r OutputSchema,
) -> BoxFuture<'r, Ended> {
    let finished = async move {
        let Some(grace) = compiled.plan.grace().filter(|_| run.has_finals_left()) else {
            return end(run.into_settled_parts(), compiled, context, scope, advertised);
        };
        let mut of_finals = scope.of_finals(grace, run.instant());
        let without_client = run.is_cancelled().then(|| context.without_client());
        if without_client.is_some() {
            of_finals = of_finals.close(CANCELLED.into());
        }
        let mut run = run.into_finals(&of_finals, without_client.as_ref());
        if !run.begin_run() {
            run = run.wait_until_end().await;
        }
        if let Some(unsaved) = run.unsaved() {
            return end_unsaved(unsaved.clone(), run);
        }
        if run.is_cancelled() {
            return end_cancelled(run, compiled);
        }
        end(run.into_settled_parts(), compiled, context, scope, advertised)
    };
    finished.boxed()
}

/// Ends a run whose call was cancelled, after its finally steps have run. Reports the run to
/// observers as dropped. Logs each finally step that has failed, because no client receives a
/// result.
fn end_cancelled<C: Caller>(run: Run<'_, C>, compiled: &Compiled) -> Ended {
    let (state, _) = run.into_settled_parts();
    let outcomes = compiled.plan.steps().iter().zip(&state.outcomes);
    for (step, outcome) in outcomes.filter(|(step, _)| step.is_final()) {
        if let Some(outcome) = outcome.as_ref().filter(|outcome| outcome.has_failed()) {
            let (composite, step) = (&*compiled.name, &*step.id);
            let error =
                outcome.error.as_ref().map_or(outcome.status.name(), |error| error.kind.name());
            tracing::warn!(composite, step, error, "a finally step of a cancelled call has failed");
        }
    }
    Ended::cancelled()
}

/// Returns the outcome of a run that ended because its state could not be stored. Its finally steps
/// do not run.
fn end_unsaved<C: Caller>(unsaved: Unsaved, run: Run<'_, C>) -> Ended {
    let Unsaved { error, is_new } = unsaved;
    let text = checkpoints::unsaved(&error, is_new);
    let result = CallToolResult::error(vec![ContentBlock::text(text)]);
    // The run of another process continues, so observers are not notified of an end.
    if error != CheckpointError::Lost
        && let (_, Some(mut watching)) = run.into_parts()
    {
        watching.finish(&result, None);
    }
    Ended::Result { result, reached: false }
}

/// Returns the outcome of a run from its final state: the open questions if it has any, and
/// otherwise the result.
fn end(
    (state, watching): (Box<RunState>, Option<Box<Observation<'_>>>),
    compiled: &Compiled,
    context: &Context,
    scope: &Scope,
    advertised: &OutputSchema,
) -> Ended {
    if !state.asked.is_empty() {
        return Ended::Asks(state);
    }
    let reached = state.limit();
    let result = answer(compiled, state, context, scope, advertised);
    if let Some(mut watching) = watching {
        watching.finish(&result, reached);
    }
    Ended::Result { result, reached: reached.is_some() }
}

impl<S: Clone> Clone for Runner<S> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone(), known: self.known.clone(), inner: self.inner.clone() }
    }
}

// === impl Targets ===

impl<S: Service<Request>> Targets<S> {
    /// Returns the output schema that the composite advertises.
    fn output_schema(&self) -> OutputSchema {
        self.available().map(|available| available.output.clone()).unwrap_or_default()
    }

    /// Returns the tools that the composite calls. They always exist, because otherwise the run
    /// would not have started.
    fn available(&self) -> Option<&Available> {
        self.runner.known.derived().available(self.composite)
    }

    /// Returns whether the call site with the index `site` calls a tool of the inner service or
    /// another composite.
    fn route(&self, site: usize) -> Route {
        self.runner.layer.program.composites[self.composite].targets[site].route
    }
}

impl<S> Caller for Targets<S>
where
    S: ToolService,
{
    #[inline]
    fn prepare(&mut self, site: usize, arguments: JsonObject) -> Result<JsonObject, StepError> {
        let Some(available) = self.available() else { return Ok(arguments) };
        let target = &available.targets[site];
        target.prepare(arguments, self.given.as_deref())
    }

    fn is_nested(&self, site: usize) -> bool {
        matches!(self.route(site), Route::Composite(_))
    }

    fn is_read_only(&self, site: usize) -> bool {
        self.available().is_some_and(|available| available.targets[site].is_read_only)
    }

    fn is_repeatable(&self, site: usize) -> bool {
        self.available().is_some_and(|available| available.targets[site].is_repeatable)
    }

    fn abilities(&self, _: &Context) -> Abilities {
        self.abilities
    }

    fn asking(&self) -> StepSet {
        self.runner.layer.program.composites[self.composite].asking
    }

    fn call(&mut self, call: Call) -> impl Future<Output = Called> + Send + 'static {
        let Call { site, tool, arguments, context, scope, answered } = call;
        if let Route::Composite(callee) = self.route(site) {
            let runner = self.runner.clone();
            let run = run_nested(runner, callee, arguments, context, scope, answered);
            return Either::Right(run.map(|called| check_depth(&called).and(called)).boxed());
        }
        let mut params = params(&tool, arguments);
        let answered = answered.map_or(Ok(()), |answered| answer_target(&mut params, *answered));
        match answered {
            Ok(()) => {
                let request = Request::of_tool_call(params, context);
                let service = S::clone(&self.runner.inner);
                Either::Left(TargetCall::new(service, request, self.abilities, scope))
            }
            Err(refused) => Either::Right(future::ready(Err(refused)).boxed()),
        }
    }

    #[inline]
    fn call_here(
        &mut self,
        site: &CallSite,
        arguments: JsonObject,
        context: Context,
        scope: &Scope,
        cx: &mut TaskContext<'_>,
    ) -> FirstPoll {
        let request = Request::of_tool_call(params(&site.tool, arguments), context);
        // Taken out of its field, so that a call in an inconsistent state is not reused after a
        // panic.
        let mut called = match self.spare.take() {
            Some(mut spare) => {
                spare.as_mut().restart(request);
                spare
            }
            None => {
                let service = S::clone(&self.runner.inner);
                Box::pin(TargetCall::new(service, request, self.abilities, scope.clone()))
            }
        };
        match called.as_mut().poll(cx) {
            Poll::Ready(answer) => {
                // If the service returned an error, it may not be usable again, so its future is
                // not reused.
                self.spare = answer.is_ok().then_some(called);
                FirstPoll::Ended(answer)
            }
            Poll::Pending => FirstPoll::Waits(called),
        }
    }
}

/// Creates the parameters of a request that calls a tool of the inner service.
///
/// The tool may be missing from the tool list. In this case, the inner service returns the error,
/// because it knows the reason: the tool is unknown, or its backend is not connected.
#[inline]
fn params(tool: &str, arguments: JsonObject) -> CallToolRequestParams {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = Some(arguments);
    params
}

/// Runs the composite with the index `composite` for another composite that calls it. If an earlier
/// run has asked questions, `answered` contains the state of that run and the answers.
async fn run_nested<S>(
    runner: Runner<S>,
    composite: usize,
    arguments: JsonObject,
    context: Context,
    scope: Scope,
    answered: Option<Box<Answered>>,
) -> Called
where
    S: ToolService,
{
    let program = runner.layer.program.clone();
    let Compiled { plan, definition, .. } = &program.composites[composite];
    let state = match answered.map(|answered| *answered) {
        None => None,
        Some(Answered { responses, resume: Resume::Run(mut state) }) if state.fits(plan) => {
            state.answer(plan, responses);
            Some(state)
        }
        Some(_) => return Err(protocol("the tool cannot be resumed")),
    };
    let active = state.as_ref().map_or(Duration::ZERO, |state| state.active());
    let around = scope.nested(definition.timeout.saturating_sub(active));
    let called = (composite, Some(arguments), state);
    match runner.run_cancellable(&program, called, &context, around.clone(), None).await {
        // If the run ended because it reached a limit of an outer run, the error names that limit
        // instead of a failure of this composite.
        Ok(Ended::Result { result, reached: true })
            if result.is_error == Some(true)
                && let Some(reached) = around.reached() =>
        {
            Err(reached.refusal(""))
        }
        Ok(Ended::Result { result, .. }) => Ok(result.into()),
        Ok(Ended::Asks(state)) => {
            let (asked, resume) = (state.questions(plan), Resume::Run(state));
            Ok(ToolReply::Asks(Box::new(Questions { asked, resume })))
        }
        Err(refusal) => Err(StepError::protocol(refusal.to_error())),
    }
}

/// Adds the client's answers to the parameters of a repeated tool call. The questions come from an
/// earlier call of the tool. Returns an error if a question could not be asked or was not answered.
fn answer_target(params: &mut CallToolRequestParams, answered: Answered) -> Result<(), StepError> {
    let Resume::Tool(state) = answered.resume else {
        return Err(protocol("the tool cannot be resumed"));
    };
    params.request_state = state;
    let mut responses = InputResponses::new();
    for (key, response) in answered.responses {
        match response {
            Response::Answer(answer) => drop(responses.insert(key, answer)),
            Response::Refused(why) => return Err(protocol(&why)),
            // Only the questions of steps can time out, not those of tools.
            Response::Late => (),
        }
    }
    params.input_responses = (!responses.is_empty()).then_some(responses);
    Ok(())
}

#[cfg(test)]
mod tests;
