//! Handles calls of composites. If the composite asks questions, its call consists of several
//! rounds.

mod live;
mod stored;

use std::{sync::Arc, time::Duration};

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, ErrorData, InputRequiredResult,
    InputResponses, JsonObject, ServerResult,
};
use tokio::{runtime::Handle, time::Instant};

use super::{
    checkpoints::{CallCheckpoint, unsaved},
    compile::Compiled,
    journaled::answer_in_journal,
    layer::CompositeLayer,
    run::{Ended, Runner},
    suspended_run::SuspendedRun,
};
use crate::{
    engine::{
        limits::CallLimits,
        meter::Used,
        plan::Plan,
        question::{Response, requests},
        saving::Saving,
        scope::Scope,
        state::RunState,
    },
    fingerprint::Fingerprint,
    message::{
        Context, Reply, Request, ToolService,
        client::{MAX_REQUEST_QUESTIONS, too_many},
    },
};

/// The state of a composite call between two rounds. In each round, the composite runs until it
/// ends or asks questions.
#[derive(Default)]
struct Rounds {
    /// The number of rounds in which the call has asked questions.
    round: usize,
    /// The number of questions that the call has asked so far. Questions to a [`LiveClient`] are
    /// not counted.
    questions: usize,
    used: Used,
    /// The state from which the next round resumes the run. `None` before the first round.
    run: Option<Box<RunState>>,
    /// The reason why the run must not ask any more questions. `None` if it may ask questions.
    closed: Option<Arc<str>>,
}

/// A call of a composite by a client. If the composite asks questions, it runs in several rounds.
struct Called<'c> {
    at: usize,
    compiled: &'c Compiled,
    fingerprint: Fingerprint,
    /// The arguments as the client sent them.
    arguments: Option<JsonObject>,
    context: &'c Context,
    layer: &'c CompositeLayer,
    /// Stores the state of the run while it runs. `None` if the state is stored only while the run
    /// waits for answers, in the store of the layer.
    checkpoint: Option<Arc<CallCheckpoint>>,
}

/// Runs the composite with the index `composite`, and returns the reply to the call. `started` is
/// the time at which the call started.
pub(super) fn answer<S>(
    runner: Runner<S>,
    composite: usize,
    mut request: Request,
    started: Instant,
) -> impl Future<Output = Result<Reply, S::Error>> + Send + use<S>
where
    S: ToolService,
{
    request.context_mut().note_live_client();
    let layer = runner.layer.clone();
    // An `async` block at the end reserves space for fewer values than an `async fn`, which would
    // reserve space for its arguments twice.
    async move {
        if let Err(error) = check_runtime() {
            return Ok(error);
        }
        let layer = &*layer;
        let Some(call) = request.tool_call_mut() else {
            return Ok(Reply::malformed("tools/call"));
        };
        let arguments = call.arguments.take();
        let has_state = call.request_state.is_some();
        let compiled = &layer.program.composites[composite];
        let is_cancellable = compiled.plan.runs_on_cancel();
        let is_stored =
            request.context().checkpoint().is_some() || request.context().journal().is_some();
        let may_suspend = has_state || !request.context().abilities().is_nothing();
        if !may_suspend && !is_cancellable && !is_stored {
            // The client cannot answer questions, so there is only one round, and the run is never
            // suspended.
            let used = Used::default();
            let scope = Scope::resumed(layer.limits, compiled.definition.timeout, used, started);
            let scope = scope.heartbeat(layer.heartbeat).observers(layer.observers.clone());
            let context = request.context();
            let called = (composite, arguments, None);
            let run = runner.run(&layer.program, called, context, scope, None, None);
            return Ok(run.await.map_or_else(Reply::from, Reply::from));
        }
        let answered = |call: &mut CallToolRequestParams| {
            (call.input_responses.take(), call.request_state.take())
        };
        let (answers, state) = request.tool_call_mut().map(answered).unwrap_or_default();
        let fingerprint = layer.program.fingerprint(composite);
        let context = request.context();
        let (at, checkpoint) = (composite, None);
        let called = Called { at, compiled, fingerprint, arguments, context, layer, checkpoint };
        let checkpoint = context
            .checkpoint()
            .map(|checkpoint| Arc::new(CallCheckpoint::new(checkpoint.clone(), called.binding())));
        let called = Called { checkpoint, ..called };
        // Boxed because the future is large and rarely needed.
        Ok(Box::pin(called.answer(runner, answers, state)).await)
    }
}

/// Checks that the current thread belongs to a Tokio runtime, which the timers of a run need.
///
/// # Errors
///
/// Returns the error reply for the client, and logs that a runtime is missing.
pub(super) fn check_runtime() -> Result<(), Reply> {
    if Handle::try_current().is_ok() {
        return Ok(());
    }
    tracing::error!("composites need a Tokio runtime with the time driver enabled");
    Err(ErrorData::internal_error("internal error", None).into())
}

// === impl Rounds ===

impl Rounds {
    /// Returns the state of a call that continues a stored run with the client's answers.
    fn resumed(kept: SuspendedRun, plan: &Plan, answers: InputResponses) -> Self {
        let SuspendedRun { round, asked: questions, used, mut run } = kept;
        let answers = answers.into_iter();
        let answers = answers.map(|(key, answer)| (key, Response::Answer(answer)));
        run.answer(plan, answers.collect());
        Self { round, questions, used, run: Some(run), closed: None }
    }

    /// Adds one round with this number of questions to the totals of the call.
    ///
    /// # Errors
    ///
    /// Returns an error text that names the exceeded limit, if the call now has too many rounds or
    /// questions.
    fn count(&mut self, questions: usize, limits: CallLimits) -> Result<(), String> {
        self.round += 1;
        self.questions = self.questions.saturating_add(questions);
        limits.check_rounds(self.round)?;
        if self.questions > MAX_REQUEST_QUESTIONS { Err(too_many()) } else { Ok(()) }
    }
}

// === impl Called ===

impl Called<'_> {
    async fn answer<S>(
        &self,
        runner: Runner<S>,
        answers: Option<InputResponses>,
        state: Option<String>,
    ) -> Reply
    where
        S: ToolService,
    {
        let plan = &self.compiled.plan;
        let begun = match &self.checkpoint {
            Some(checkpoint) => self.go_on(checkpoint, answers),
            None => self.resume(answers, state).await,
        };
        let mut rounds = match begun {
            Ok(rounds) => rounds,
            Err(reply) => return reply,
        };
        loop {
            let mut asks = match self.run_once(runner.clone(), &mut rounds).await {
                Ok(asks) => asks,
                Err(reply) => return reply,
            };
            let client = self.context.live_client().filter(|_| self.is_in_memory());
            // A live client is asked while its call continues, and counts its questions itself.
            let more = if client.is_some() { 0 } else { asks.question_count() };
            let within = rounds.count(more, self.layer.limits);
            if let (Some(journal), Ok(()), None) = (self.context.journal(), &within, &rounds.closed)
            {
                let Some(answered) = answer_in_journal(journal, plan, asks).await else {
                    return failed("the task was cancelled".to_owned());
                };
                rounds.run = Some(answered);
                continue;
            }
            let why = match (within, client) {
                // A run that is closed to questions does not ask any.
                _ if rounds.closed.is_some() => return failed("no user can be asked".to_owned()),
                (Err(limit), _) => limit,
                (Ok(()), Some(client)) => {
                    let responses = self.ask(&client, &asks).await;
                    asks.answer(plan, responses);
                    rounds.run = Some(asks);
                    continue;
                }
                (Ok(()), None) => {
                    let Rounds { round, questions, used, .. } = rounds;
                    let mut kept = SuspendedRun { round, asked: questions, used, run: asks };
                    if let Some(checkpoint) = &self.checkpoint {
                        if more > 0 {
                            return self.suspend(checkpoint, kept).await;
                        }
                        // A tool asks only to be called again.
                        rounds.run = Some(kept.run);
                        continue;
                    }
                    match self.put(&mut kept).await {
                        Ok(asks) => return asks,
                        Err(why) => {
                            asks = kept.run;
                            why
                        }
                    }
                }
            };
            // The run continues without answers, as if the user could not be asked, and ends with
            // its partial result.
            asks.refuse(&why);
            rounds.closed = Some(why.into());
            rounds.run = Some(asks);
        }
    }

    /// Runs until the run asks questions, and returns its state. Returns the reply if the run ends.
    async fn run_once<S>(
        &self,
        runner: Runner<S>,
        rounds: &mut Rounds,
    ) -> Result<Box<RunState>, Reply>
    where
        S: ToolService,
    {
        let (scope, saving) = (self.scope(rounds), self.saving(rounds));
        let called = (self.at, self.arguments.clone(), rounds.run.take());
        let (program, scoped) = (&self.layer.program, scope.clone());
        let run = runner.run_cancellable(program, called, self.context, scoped, saving);
        match run.await {
            Ok(Ended::Asks(asks)) => {
                rounds.used = scope.used();
                Ok(asks)
            }
            Ok(Ended::Result { result, .. }) => Err(result.into()),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Returns `true` if the run is neither stored in a checkpoint nor executed by a durable
    /// engine.
    fn is_in_memory(&self) -> bool {
        self.checkpoint.is_none() && self.context.journal().is_none()
    }

    /// Loads the run that the client's `requestState` identifies, and adds the client's answers to
    /// it. Without a `requestState`, returns a new run.
    ///
    /// # Errors
    ///
    /// Returns an error reply if this call is not allowed to resume the run.
    async fn resume(
        &self,
        answers: Option<InputResponses>,
        state: Option<String>,
    ) -> Result<Rounds, Reply> {
        // Without a `requestState`, answers cannot be matched with questions and are ignored.
        let Some(text) = state else { return Ok(Rounds::default()) };
        let kept = self.take(&text).await?;
        Ok(Rounds::resumed(kept, &self.compiled.plan, answers.unwrap_or_default()))
    }

    /// Loads the run from the checkpoint of this call, and adds the client's answers to it. Returns
    /// a new run if the checkpoint is empty.
    ///
    /// # Errors
    ///
    /// Returns the reply to the client if the run cannot continue: the open questions if the client
    /// has not answered them, or an error.
    fn go_on(
        &self,
        checkpoint: &CallCheckpoint,
        answers: Option<InputResponses>,
    ) -> Result<Rounds, Reply> {
        let plan = &self.compiled.plan;
        match (checkpoint.load(self.compiled), answers) {
            (None, _) => Ok(Rounds::default()),
            (Some(Err(why)), _) => Err(failed(why)),
            // The client has not received the questions of a run that was not suspended, so the
            // answers belong to earlier questions, and the run has them already.
            (Some(Ok(kept)), _) if kept.run.was_running() => {
                Ok(Rounds::resumed(kept, plan, InputResponses::default()))
            }
            (Some(Ok(kept)), Some(answers)) => Ok(Rounds::resumed(kept, plan, answers)),
            (Some(Ok(kept)), None) => Err(self.asks(&kept.run, None)),
        }
    }

    /// Returns the object through which the next round stores the state of the run. Returns `None`
    /// if the call has no checkpoint.
    fn saving(&self, rounds: &Rounds) -> Option<Box<Saving>> {
        let checkpoint = self.checkpoint.as_ref()?;
        Some(checkpoint.saving(rounds.round, rounds.questions, rounds.run.is_none()))
    }

    /// Stores a suspended run in the checkpoint of the call. Returns the reply that sends its open
    /// questions to the client, or an error reply.
    async fn suspend(&self, checkpoint: &CallCheckpoint, mut kept: SuspendedRun) -> Reply {
        match checkpoint.suspend(&kept).await {
            Ok(()) => {
                kept.run.hand_over();
                self.asks(&kept.run, None)
            }
            Err(error) => failed(unsaved(&error, false)),
        }
    }

    /// Returns the reply that sends the open questions of a run to the client.
    fn asks(&self, run: &RunState, request_state: Option<String>) -> Reply {
        let questions = requests(run.questions(&self.compiled.plan));
        let questions = (!questions.is_empty()).then_some(questions);
        let asks = InputRequiredResult::new(questions, request_state);
        ServerResult::InputRequiredResult(asks).into()
    }

    /// Returns the scope of the next round. It contains the time and the other resources that the
    /// run may still use.
    fn scope(&self, rounds: &Rounds) -> Scope {
        let active = rounds.run.as_ref().map_or(Duration::ZERO, |run| run.active());
        let left = self.compiled.definition.timeout.saturating_sub(active);
        let CompositeLayer { limits, heartbeat, observers, state, .. } = self.layer;
        let scope = Scope::resumed(*limits, left, rounds.used, self.context.now());
        let scope = scope.heartbeat(*heartbeat).observers(observers.clone());
        match (&rounds.closed, state.max_bytes()) {
            (Some(why), _) => scope.close(why.clone()),
            // A live client is asked while the run stays in memory. Only for other clients, the
            // store limits the size of the state.
            (None, Some(room)) if self.is_in_memory() && self.context.live_client().is_none() => {
                scope.state_room(room)
            }
            (None, _) => scope,
        }
    }
}

fn failed(why: String) -> Reply {
    CallToolResult::error(vec![ContentBlock::text(why)]).into()
}

impl From<Ended> for Reply {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Result { result, .. } => result.into(),
            // A nested run asks a question, but the client cannot answer while the run waits.
            Ended::Asks(_) => failed("no user can be asked".to_owned()),
        }
    }
}
