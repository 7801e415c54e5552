//! The future of one tool call that a composite makes to the inner service.

use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll, ready},
};

use futures::{FutureExt, future::BoxFuture};
use pin_project_lite::pin_project;
use rmcp::model::{ErrorData, InputRequiredResult};
use serde_json::Value;
use tower::BoxError;
use tower_service::Service;

use crate::{
    engine::{
        caller::{Called, ToolReply},
        meter::Setting,
        outcome::{ErrorKind, StepError},
        question::Question,
        questions::Questions,
        scope::Scope,
        state::Resume,
    },
    message::{
        BackendErrorKind, Cause, Context, Refusal, Reply, Request, ToolAnswer, ToolResult,
        ToolService,
        client::{Abilities, MAX_QUESTIONS},
        is_deeper,
        tasks::cancel_task,
    },
    warnings::sanitize::Reason,
};

/// The maximum nesting depth of tool results, and of outputs that composites build. JSON parsers
/// commonly accept a depth of 128. The limit is lower, because composites nest results inside other
/// JSON values.
pub(super) const MAX_RESULT_DEPTH: usize = 110;
/// The maximum length in bytes of a question's key. A tool chooses the keys of the questions that
/// it asks the client.
const MAX_QUESTION_KEY: usize = 256;

pin_project! {
    /// The future of a tool call. Waits until the inner service is ready, sends the request, and
    /// converts the reply.
    ///
    /// The reply must be a tool result, or an `InputRequired` result with questions of the tool.
    /// Any other reply becomes an error whose message may be shown to clients. The size of tool
    /// results counts toward the limits of the run.
    pub(super) struct TargetCall<S>
    where
        S: Service<Request>,
    {
        service: S,
        #[pin]
        phase: Phase<S::Future>,
        abilities: Abilities,
        scope: Scope,
    }
}

pin_project! {
    #[project = PhaseProj]
    enum Phase<F> {
        NotReady { request: Option<Request> },
        Called {
            #[pin]
            reply: F,
        },
        // The tool continued as a task, although the request does not declare that its caller
        // supports tasks. The task is cancelled.
        Cancelling { cancelled: BoxFuture<'static, ()> },
        Done,
    }
}

// === impl TargetCall ===

impl<S: Service<Request>> TargetCall<S> {
    /// Creates the future of a tool call. `abilities` contains the kinds of questions that the
    /// client can answer. The tool may ask only such questions.
    pub(super) const fn new(
        service: S,
        request: Request,
        abilities: Abilities,
        scope: Scope,
    ) -> Self {
        Self { service, phase: Phase::NotReady { request: Some(request) }, abilities, scope }
    }

    /// Resets this future to make another call. This reuses its allocation for the next call of the
    /// same run.
    pub(super) fn restart(self: Pin<&mut Self>, request: Request) {
        self.project().phase.set(Phase::NotReady { request: Some(request) });
    }
}

impl<S> Future for TargetCall<S>
where
    S: ToolService,
{
    type Output = Called;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Called> {
        let mut this = self.project();
        let called = loop {
            match this.phase.as_mut().project() {
                PhaseProj::NotReady { request } => {
                    if let Err(error) = ready!(this.service.poll_ready(cx)) {
                        break Err(service_error(&error.into()));
                    }
                    let Some(request) = request.take() else { return Poll::Pending };
                    let reply = this.service.call(request);
                    this.phase.set(Phase::Called { reply });
                }
                PhaseProj::Called { reply } => match ready!(reply.poll(cx)) {
                    Ok(reply) => match ToolResult::of(reply).map_err(Reply::into_tool_answer) {
                        Ok(result) => break Ok(ToolReply::Result(result)),
                        Err(ToolAnswer::Error(error)) => break Err(StepError::protocol(error)),
                        Err(ToolAnswer::Refused(refusal)) => break Err(refused(&refusal)),
                        Err(ToolAnswer::InputRequired(asks)) => {
                            let questions =
                                questions_of(asks, *this.abilities, this.scope.closed());
                            break questions.map(|questions| ToolReply::Asks(Box::new(questions)));
                        }
                        Err(ToolAnswer::Result(_) | ToolAnswer::Invalid) => {
                            break Err(protocol("the tool's response is not a tool result"));
                        }
                        Err(ToolAnswer::Task(id)) => {
                            let cancelled =
                                cancel_task(this.service.clone(), id, Context::default()).boxed();
                            this.phase.set(Phase::Cancelling { cancelled });
                        }
                    },
                    Err(error) => break Err(service_error(&error.into())),
                },
                PhaseProj::Cancelling { cancelled } => {
                    ready!(cancelled.poll_unpin(cx));
                    break Err(protocol("the tool returned a task, which is not supported here"));
                }
                PhaseProj::Done => return Poll::Pending,
            }
        };
        this.phase.set(Phase::Done);
        Poll::Ready(match check_depth(&called).and_then(|()| this.scope.keep(&called)) {
            Ok(()) => called,
            Err(error) => Err(error),
        })
    }
}

/// Checks the nesting depth of a tool's reply. The reply becomes a part of the composite's result,
/// and clients could not parse a result that is nested too deep.
///
/// # Errors
///
/// Returns an error if the nesting depth exceeds [`MAX_RESULT_DEPTH`].
pub(super) fn check_depth(answer: &Called) -> Result<(), StepError> {
    let is_deep = |value: &Value| is_deeper(value, MAX_RESULT_DEPTH);
    let is_too_deep = match answer {
        Ok(ToolReply::Result(result)) => {
            let meta = result.meta.iter().flat_map(|meta| meta.0.values());
            result.structured_content.iter().chain(meta).any(is_deep)
        }
        // Questions are forwarded unchanged. If a question is nested too deep, it fails later: its
        // run cannot be stored, or its client cannot answer.
        Ok(ToolReply::Asks(_)) => false,
        Err(error) => error.data.as_ref().is_some_and(is_deep),
    };
    match is_too_deep {
        true => Err(protocol(&format!(
            "the tool's result is nested deeper than {MAX_RESULT_DEPTH} levels"
        ))),
        false => Ok(()),
    }
}

/// Converts a refusal to an error of the step that made the call. A layer between the composites
/// and the tools has refused the call, for example because a budget is exhausted.
fn refused(refusal: &Refusal) -> StepError {
    let Refusal::OverBudget { budget, .. } = refusal else {
        return StepError::protocol(refusal.to_error());
    };
    // Only the run's own cost limit ends the run. Other budgets only fail the call.
    let ends_run = *budget == Setting::Cost.name();
    let ErrorData { code, message, data } = refusal.to_error();
    let error = StepError::new(ErrorKind::Limit, message);
    StepError { code: Some(code.0), data, ends_run, ..error }
}

/// Returns the questions in a tool's `InputRequired` result. Returns an error if the client cannot
/// answer one of them. If the run must not ask questions, `closed` contains the reason, which is
/// returned as an error.
fn questions_of(
    asks: InputRequiredResult,
    abilities: Abilities,
    closed: Option<&Arc<str>>,
) -> Result<Questions, StepError> {
    let requests = asks.input_requests.unwrap_or_default();
    if let Some(why) = closed {
        return Err(StepError::new(ErrorKind::Limit, &**why));
    }
    if abilities.is_nothing() {
        return Err(protocol("the tool asks for input, which the client cannot give"));
    }
    if requests.is_empty() && asks.request_state.is_none() {
        return Err(protocol("the tool's response is not a tool result"));
    }
    if requests.len() > MAX_QUESTIONS || requests.keys().any(|key| key.len() > MAX_QUESTION_KEY) {
        return Err(protocol("the tool asks too many questions at once"));
    }
    if let Some(lacks) = requests.values().find_map(|request| abilities.lacks(request)) {
        return Err(protocol(&format!(
            "the tool asks for input, which the client cannot give: it does not declare the capability `{lacks}`"
        )));
    }
    let asked = requests.into_iter().map(|(key, request)| (key, Question::new(request))).collect();
    Ok(Questions { asked, resume: Resume::Tool(asks.request_state) })
}

/// Creates the error of a step whose tool returns a reply that violates the protocol or cannot be
/// processed.
pub(super) fn protocol(message: &str) -> StepError {
    StepError::new(ErrorKind::Protocol, message)
}

/// Converts an error of the inner service to an error of the step. The message contains no internal
/// details, such as addresses.
fn service_error(error: &BoxError) -> StepError {
    match Cause::of(&**error) {
        Cause::TimedOut => StepError::new(ErrorKind::Timeout, "no answer in time"),
        Cause::Overloaded => StepError::new(ErrorKind::Service, "the tool's server is overloaded"),
        Cause::Backend(backend) => {
            tracing::warn!(%error, source = backend.source(), "a backend failed to answer");
            let kind = match backend.kind() {
                BackendErrorKind::TimedOut => ErrorKind::Timeout,
                _ => ErrorKind::Service,
            };
            StepError::new(kind, backend.to_string())
        }
        Cause::Unknown => {
            tracing::warn!(error = %Reason(error), "the server of a tool failed to answer");
            StepError::new(ErrorKind::Service, "the tool's server failed to answer")
        }
    }
}
