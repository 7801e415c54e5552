//! One run of a composite, from its arguments to its result or its questions.

use std::{error::Error, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{self, Either},
};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ErrorData, InputRequiredResult,
    InputResponses, JsonObject,
};
use serde_json::Value;
use tokio::{task::yield_now, time::Instant};
use tower::{BoxError, ServiceExt};
use tower_service::Service;

use super::{
    answer::{OutputSchema, answer},
    compile::{Compiled, Program, Route},
    input::Checked,
    resolve::Resolved,
};
use crate::{
    catalog::Known,
    complaints::shown::Reason,
    engine::{
        ask::{Answered, Question, Questions, Response, Resume},
        caller::{Call, Called, Caller, ToolReply},
        meter::Setting,
        outcome::{ErrorKind, StepError},
        plan::StepSet,
        run::{LONG, Run},
        scope::Scope,
        state::RunState,
    },
    message::{
        BackendErrorKind, Cause, Context, ItemKind, Refusal, Reply, Request, ToolAnswer,
        client::{Abilities, MAX_QUESTIONS},
        is_deeper,
    },
    tasks::cancel_task,
};

/// How deep what a tool gives may be nested, and what is made of it. What composites put
/// around it has more levels, and no reader of JSON takes more than 128 in all.
pub(super) const MAX_LEVELS: usize = 110;
/// How many bytes the key of a tool's question may have.
const MAX_KEY: usize = 256;

/// Calls composites and their targets.
pub(super) struct Runner<S> {
    pub(super) program: Arc<Program>,
    pub(super) known: Arc<Known<Resolved>>,
    /// Boxed, since it may be large, and the future of a run keeps room for it more than
    /// once.
    pub(super) inner: Box<S>,
}

/// Calls the targets of one composite: what the engine sees of the world.
struct Targets<S> {
    runner: Runner<S>,
    composite: usize,
    /// The arguments without the defaults of the derived schema, if it has added any.
    given: Option<Box<JsonObject>>,
    /// What targets may ask for.
    abilities: Abilities,
}

/// How a run ends.
pub(super) enum Ended {
    /// With an answer, perhaps one that a limit has cut short.
    Result { result: CallToolResult, reached: bool },
    /// It goes on when it is answered.
    Asks(Box<RunState>),
}

// === impl Runner ===

impl<S> Runner<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    /// Runs a composite with these arguments, from the beginning or from where it
    /// stood when it asked.
    ///
    /// All that can be done before there is something to wait for is done here, and not
    /// in the future, which would have to keep room for what that takes. `program` is
    /// that of the runner.
    pub(super) fn run<'r>(
        self,
        program: &'r Program,
        composite: usize,
        arguments: Option<JsonObject>,
        state: Option<Box<RunState>>,
        context: &'r Context,
        scope: Scope,
    ) -> impl Future<Output = Result<Ended, Refusal>> + Send + use<'r, S> {
        let compiled = &program.composites[composite];
        let spent = state.as_ref().and_then(|state| state.spent.as_deref());
        let scope = scope.of_run(&compiled.name, compiled.limits, context, spent);
        let begun = Instant::now();
        let prepared = self.prepare(compiled, composite, arguments, state, context);
        let is_long = begun.elapsed() > LONG;
        async move {
            let (state, targets) = prepared?;
            // The first steps fit arguments to their tools, which can take as long again.
            if is_long {
                yield_now().await;
            }
            let advertised = targets.output_schema();
            let mut run = Run::new(&compiled.plan, state, context, &scope, targets);
            run.drive().await;
            let (state, watching) = run.into_parts();
            if !state.asked.is_empty() {
                return Ok(Ended::Asks(state));
            }
            let reached = state.limit();
            let result = answer(compiled, state, &scope, &advertised);
            if let Some(mut watching) = watching {
                watching.finish(result.is_error == Some(true), reached);
            }
            Ok(Ended::Result { result, reached: reached.is_some() })
        }
    }

    /// The state to go on from, and what calls the targets.
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
        Ok((state, Targets { runner: self, composite, given, abilities }))
    }
}

impl<S: Clone> Clone for Runner<S> {
    fn clone(&self) -> Self {
        Self { program: self.program.clone(), known: self.known.clone(), inner: self.inner.clone() }
    }
}

// === impl Targets ===

impl<S> Targets<S> {
    /// The output schema that the composite advertises.
    fn output_schema(&self) -> OutputSchema {
        let available = self.runner.known.derived().available(self.composite);
        available.map(|available| available.output.clone()).unwrap_or_default()
    }
}

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
        target.prepare(arguments, self.given.as_deref())
    }

    fn is_nested(&self, site: usize) -> bool {
        let targets = &self.runner.program.composites[self.composite].targets;
        matches!(targets[site].route, Route::Composite(_))
    }

    fn is_read_only(&self, site: usize) -> bool {
        let available = self.runner.known.derived().available(self.composite);
        available.is_some_and(|available| available.targets[site].is_read_only())
    }

    fn asking(&self) -> StepSet {
        self.runner.program.composites[self.composite].asking
    }

    fn call(&mut self, call: Call) -> impl Future<Output = Called> + Send + 'static {
        let Runner { program, known, inner } = &self.runner;
        let Call { site, tool, arguments, context, scope, answered } = call;
        match program.composites[self.composite].targets[site].route {
            Route::Composite(callee) => {
                let runner = self.runner.clone();
                let run = run_nested(runner, callee, arguments, context, scope, answered);
                Either::Right(run.map(readable).boxed())
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
                if let Some(answered) = answered
                    && let Err(refused) = answer_target(&mut params, *answered)
                {
                    return Either::Right(future::ready(Err(refused)).boxed());
                }
                let request = Request::new(CallToolRequest::new(params), context);
                // Counted here and not by the engine, since those of a nested run
                // were counted where they came in.
                let may_ask = MayAsk { abilities: self.abilities, closed: scope.closed().cloned() };
                let called = call_target(S::clone(inner), request, may_ask);
                Either::Left(called.map(move |reply| scope.keep(readable(reply))))
            }
        }
    }
}

/// Runs a composite for another one.
async fn run_nested<S>(
    runner: Runner<S>,
    composite: usize,
    arguments: JsonObject,
    context: Context,
    scope: Scope,
    answered: Option<Box<Answered>>,
) -> Called
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    let program = runner.program.clone();
    let Compiled { plan, timeout, .. } = &program.composites[composite];
    let state = match answered.map(|answered| *answered) {
        None => None,
        Some(Answered { responses, resume: Resume::Run(mut state) }) if state.fits(plan) => {
            state.answer(plan, responses);
            Some(state)
        }
        Some(_) => return Err(protocol("the tool cannot go on from where it was")),
    };
    let active = state.as_ref().map_or(Duration::ZERO, |state| state.active());
    let around = scope.nested(timeout.saturating_sub(active));
    let run = runner.run(&program, composite, Some(arguments), state, &context, around.clone());
    match run.await {
        // It is not this one that failed: it could not begin, or not end.
        Ok(Ended::Result { result, reached: true })
            if result.is_error == Some(true)
                && let Some(reached) = around.reached() =>
        {
            Err(reached.refusal(""))
        }
        Ok(Ended::Result { result, .. }) => Ok(ToolReply::Result(result)),
        Ok(Ended::Asks(state)) => {
            let (asked, resume) = (state.questions(plan), Resume::Run(state));
            Ok(ToolReply::Asks(Box::new(Questions { asked, resume })))
        }
        Err(refusal) => Err(StepError::protocol(refusal.to_error())),
    }
}

/// Puts into a call of a tool that has asked what it wanted to know.
fn answer_target(params: &mut CallToolRequestParams, answered: Answered) -> Result<(), StepError> {
    let Resume::Tool(state) = answered.resume else {
        return Err(protocol("the tool cannot go on from where it was"));
    };
    params.request_state = state;
    let mut responses = InputResponses::new();
    for (key, response) in answered.responses {
        match response {
            Response::Answer(answer) => drop(responses.insert(key, answer)),
            Response::Refused(why) => return Err(protocol(&why)),
            // Only what steps ask can be late.
            Response::Late => (),
        }
    }
    params.input_responses = (!responses.is_empty()).then_some(responses);
    Ok(())
}

/// What a tool answers, unless a client could not read what is made of it.
fn readable(answer: Called) -> Called {
    let is_too_deep = |value: &Value| is_deeper(value, MAX_LEVELS);
    let is_unreadable = match &answer {
        Ok(ToolReply::Result(result)) => {
            let meta = result.meta.iter().flat_map(|meta| meta.0.values());
            result.structured_content.iter().chain(meta).any(is_too_deep)
        }
        // It is asked as it is, and neither kept nor answered where it is too deep.
        Ok(ToolReply::Asks(_)) => false,
        Err(error) => error.data.as_ref().is_some_and(is_too_deep),
    };
    if is_unreadable {
        Err(protocol(&format!("the tool's answer is nested deeper than {MAX_LEVELS} levels")))
    } else {
        answer
    }
}

/// Calls a tool of the service behind the layer.
///
/// What the service says in another way than as a result of the tool becomes a
/// text that may be shown to a client.
fn call_target<S>(
    inner: S,
    request: Request,
    may_ask: MayAsk,
) -> impl Future<Output = Called> + Send + 'static
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    // Put together from parts and not `async`: every branch keeps room for this.
    inner.clone().oneshot(request).then(move |reply| {
        let answer = match reply {
            Ok(reply) => reply.into_tool_answer(),
            Err(error) => return Either::Left(future::ready(Err(service_error(&error.into())))),
        };
        let result = match answer {
            ToolAnswer::Result(result) => Ok(ToolReply::Result(result)),
            ToolAnswer::Error(error) => Err(StepError::protocol(error)),
            ToolAnswer::Refused(refusal) => Err(refused(&refusal)),
            ToolAnswer::InputRequired(asks) => {
                asked(asks, &may_ask).map(|questions| ToolReply::Asks(Box::new(questions)))
            }
            ToolAnswer::Invalid => Err(protocol("the tool's answer is not the result of a tool")),
            ToolAnswer::Task(id) => {
                let refused = protocol("the tool wants to go on as a task, which it cannot here");
                return Either::Right(
                    cancel_task(inner, id, Context::default()).map(|()| Err(refused)).boxed(),
                );
            }
        };
        Either::Left(future::ready(result))
    })
}

/// Why a call failed that was refused below.
fn refused(refusal: &Refusal) -> StepError {
    let Refusal::OverBudget { budget, .. } = refusal else {
        return StepError::protocol(refusal.to_error());
    };
    // Its own run is at its end, if it is that of one, and not of any other budget.
    let ends_run = *budget == Setting::Cost.name();
    let ErrorData { code, message, data } = refusal.to_error();
    let error = StepError::new(ErrorKind::Limit, message);
    StepError { code: Some(code.0), data, ends_run, ..error }
}

/// What a tool may ask.
struct MayAsk {
    abilities: Abilities,
    /// Why nothing more may be asked, if nothing may.
    closed: Option<Arc<str>>,
}

/// What a tool asks, if the client can be asked that.
fn asked(asks: InputRequiredResult, may_ask: &MayAsk) -> Result<Questions, StepError> {
    let MayAsk { abilities, closed } = may_ask;
    let requests = asks.input_requests.unwrap_or_default();
    if let Some(why) = closed {
        return Err(StepError::new(ErrorKind::Limit, &**why));
    }
    if abilities.is_nothing() {
        return Err(protocol("the tool asks for input, which the client cannot give"));
    }
    if requests.is_empty() && asks.request_state.is_none() {
        return Err(protocol("the tool's answer is not the result of a tool"));
    }
    if requests.len() > MAX_QUESTIONS || requests.keys().any(|key| key.len() > MAX_KEY) {
        return Err(protocol("the tool asks for too much at once"));
    }
    if let Some(lacks) = requests.values().find_map(|request| abilities.lacks(request)) {
        return Err(protocol(&format!(
            "the tool asks for input, which the client cannot give: it does not declare the capability `{lacks}`"
        )));
    }
    let asked = requests.into_iter().map(|(key, request)| (key, Question::new(request))).collect();
    Ok(Questions { asked, resume: Resume::Tool(asks.request_state) })
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
            tracing::warn!(error = %Reason(error), "a tool's server could not answer");
            StepError::new(ErrorKind::Service, "the tool's server could not answer")
        }
    }
}

#[cfg(test)]
mod tests;
