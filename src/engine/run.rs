use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    pin::pin,
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use futures::FutureExt;
use rmcp::model::{CallToolResult, JsonObject};
use serde_json::Value;
use tokio::{
    task::{Id, JoinError, JoinSet},
    time::{Instant, Sleep},
};
use tracing::Instrument;

use super::{
    caller::{Call, Caller},
    limits::Scope,
    outcome::{ErrorKind, Outcome, RunState, Status, StepError},
    plan::{Arguments, Plan, Stop},
};
use crate::message::{Context, size};

/// Runs the steps of `plan` that are not finished in `state`.
///
/// When it returns, all are: by their own end, by the deadline of `scope`, or
/// because the plan stopped.
///
/// # Panics
///
/// Panics outside a Tokio runtime with its time enabled.
pub(crate) async fn run(
    plan: &Plan,
    state: RunState,
    context: &Context,
    scope: &Scope,
    caller: impl Caller,
) -> RunState {
    let waiting = (0..plan.steps.len()).filter(|&step| state.outcomes[step].is_none()).collect();
    let mut run = Run {
        plan,
        context,
        scope,
        caller,
        waiting,
        running: Vec::with_capacity(plan.steps.len().min(plan.concurrency)),
        branches: JoinSet::new(),
        begun: Instant::now(),
        state,
    };
    run.drive().await;
    run.state
}

/// A run that goes on.
///
/// It owns its branches: dropping it aborts them.
struct Run<'p, C> {
    plan: &'p Plan,
    context: &'p Context,
    scope: &'p Scope,
    caller: C,
    waiting: VecDeque<usize>,
    running: Vec<Running>,
    branches: JoinSet<Finished>,
    begun: Instant,
    state: RunState,
}

/// A step whose branch runs.
struct Running {
    step: usize,
    branch: Id,
    since: Instant,
}

/// What a branch comes back with.
struct Finished {
    step: usize,
    result: Result<CallToolResult, StepError>,
    at: Instant,
}

// === impl Run ===

impl<C: Caller> Run<'_, C> {
    async fn drive(&mut self) {
        let mut deadline = pin!(tokio::time::sleep_until(self.scope.deadline));
        loop {
            while self.running.len() < self.plan.concurrency
                && let Some(step) = self.waiting.pop_front()
            {
                self.start(step);
            }
            if self.running.is_empty() && self.waiting.is_empty() {
                return;
            }
            let branches = &mut self.branches;
            match poll_fn(|cx| poll_next(branches, deadline.as_mut(), cx)).await {
                Next::Joined(joined) => self.join(joined),
                Next::Deadline => return self.stop(Status::TimedOut),
            }
            if self.plan.stop == Stop::FirstSuccess && self.has_succeeded() {
                return self.stop(Status::Cancelled);
            }
        }
    }

    fn has_succeeded(&self) -> bool {
        let last = self.state.finished.last().and_then(|&step| self.state.outcomes[step].as_ref());
        last.is_some_and(Outcome::is_success)
    }

    /// Starts a branch for a step, or fails the step if it cannot be called.
    fn start(&mut self, step: usize) {
        let since = Instant::now();
        let arguments =
            self.scope.count_call().map_err(|limit| StepError::new(ErrorKind::Limit, limit));
        let arguments = match arguments.and_then(|()| self.arguments(step)) {
            Ok(arguments) => arguments,
            Err(error) => return self.finish(step, Err(error), since, since, 0),
        };
        let definition = &self.plan.steps[step];
        let call = self.caller.call(Call {
            step,
            tool: definition.tool.clone(),
            arguments,
            context: self.context.branch(&definition.id),
            scope: self.scope.clone(),
        });
        let timeout = definition.timeout;
        let branch = async move {
            let result = match tokio::time::timeout(timeout, call).await {
                Ok(result) => result,
                Err(_) => Err(timed_out(timeout)),
            };
            Finished { step, result, at: Instant::now() }
        };
        // The span is what a task does not inherit by itself.
        let branch = self.branches.spawn(branch.in_current_span()).id();
        self.running.push(Running { step, branch, since });
    }

    /// The arguments of a step that starts now.
    ///
    /// They are cloned, once, but for the last step that needs the input, which
    /// takes it.
    fn arguments(&mut self, step: usize) -> Result<JsonObject, StepError> {
        let last = self.waiting.is_empty();
        let input = &mut self.state.input;
        let value = match &self.plan.steps[step].arguments {
            Arguments::Input if last => Ok(Some(mem::take(input))),
            Arguments::Input => Ok(Some(input.clone())),
            Arguments::Mapped(expression) => expression.evaluate(input),
        };
        if last {
            *input = Value::Null;
        }
        match value {
            Ok(Some(Value::Object(arguments))) => Ok(arguments),
            Ok(_) => Err(StepError::new(ErrorKind::Definition, "the arguments are no object")),
            Err(missing) => Err(StepError::new(ErrorKind::Definition, missing.to_string())),
        }
    }

    /// Takes up what a branch came back with.
    fn join(&mut self, joined: Result<Finished, JoinError>) {
        let now = Instant::now();
        let place = match &joined {
            Ok(finished) => self.running.iter().position(|running| running.step == finished.step),
            Err(error) => self.running.iter().position(|running| running.branch == error.id()),
        };
        let Some(place) = place else {
            return;
        };
        let Running { step, since, .. } = self.running.swap_remove(place);
        match joined {
            Ok(Finished { result, at, .. }) => self.finish(step, result, since, at, 1),
            Err(error) => {
                let error = if error.is_panic() {
                    // What it panicked with may hold anything; the panic hook has printed it.
                    StepError::new(ErrorKind::Panic, "the tool panicked")
                } else {
                    // Nobody but the runtime aborts a branch that is still waited for.
                    StepError::new(ErrorKind::Service, "the server is shutting down")
                };
                self.finish(step, Err(error), since, now, 1);
            }
        }
    }

    fn finish(
        &mut self,
        step: usize,
        result: Result<CallToolResult, StepError>,
        since: Instant,
        at: Instant,
        attempts: u32,
    ) {
        let result = result.and_then(|result| {
            let bytes = size::of_result(&result);
            match self.scope.count_result(bytes) {
                Ok(()) => Ok(result),
                Err(limit) => Err(StepError::new(ErrorKind::Limit, limit)),
            }
        });
        let (status, result, error) = match result {
            Ok(result) if result.is_error == Some(true) => {
                let error = StepError::new(ErrorKind::Tool, failure_text(&result));
                (Status::Failed, Some(result), Some(error))
            }
            Ok(result) => (Status::Completed, Some(result), None),
            Err(error) => (error.status(), None, Some(error)),
        };
        let outcome = Outcome {
            status,
            result,
            error,
            attempts,
            started_ms: milliseconds(since - self.begun),
            duration_ms: milliseconds(at - since),
        };
        self.state.finish(step, outcome);
    }

    /// Ends the run without waiting for what still runs.
    fn stop(&mut self, status: Status) {
        self.branches.abort_all();
        let now = Instant::now();
        // In the order of the plan, whichever branch was joined last.
        self.running.sort_unstable_by_key(|running| running.step);
        for Running { step, since, .. } in mem::take(&mut self.running) {
            let error = match status {
                Status::TimedOut => Some(timed_out(now - since)),
                _ => None,
            };
            let outcome = Outcome {
                status,
                result: None,
                error,
                attempts: 1,
                started_ms: milliseconds(since - self.begun),
                duration_ms: milliseconds(now - since),
            };
            self.state.finish(step, outcome);
        }
        for step in mem::take(&mut self.waiting) {
            self.state.finish(step, Outcome::skipped());
        }
    }
}

/// What a run waits for.
enum Next {
    Joined(Result<Finished, JoinError>),
    Deadline,
}

/// Branches first: what has finished by the deadline has finished in time.
fn poll_next(
    branches: &mut JoinSet<Finished>,
    mut deadline: std::pin::Pin<&mut Sleep>,
    cx: &mut TaskContext<'_>,
) -> Poll<Next> {
    match branches.poll_join_next(cx) {
        Poll::Ready(Some(joined)) => Poll::Ready(Next::Joined(joined)),
        Poll::Ready(None) | Poll::Pending => deadline.poll_unpin(cx).map(|()| Next::Deadline),
    }
}

fn timed_out(after: Duration) -> StepError {
    // Whole milliseconds: nobody set a timeout of `4.999812s`.
    let after = Duration::from_millis(milliseconds(after));
    StepError::new(ErrorKind::Timeout, format!("no answer within {after:?}"))
}

/// What a tool that failed says about it.
fn failure_text(result: &CallToolResult) -> String {
    let texts: Vec<_> = result
        .content
        .iter()
        .filter_map(|block| block.as_text())
        .map(|text| text.text.as_str())
        .collect();
    if texts.is_empty() {
        "the tool failed without saying why".to_owned()
    } else {
        texts.join("\n")
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
