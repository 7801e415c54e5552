use std::{
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use futures::FutureExt;
use rmcp::model::{CallToolResult, JsonObject};
use serde_json::Value;
use tokio::time::{Instant, Sleep};

use super::{
    branches::{Branches, Lost},
    caller::{Call, Caller},
    limits::{Scope, after},
    outcome::{ErrorKind, Outcome, RunState, Status, StepError},
    plan::{Arguments, Plan, Stop},
};
use crate::message::{Context, Parts};

/// A run of a plan: of the steps that are not finished in its state.
///
/// It owns its branches: dropping it aborts them.
pub(crate) struct Run<'p, C> {
    plan: &'p Plan,
    context: &'p Context,
    scope: &'p Scope,
    caller: C,
    /// The first step that may not have started.
    next: usize,
    running: Vec<Running>,
    branches: Branches<Box<Outcome>>,
    begun: Instant,
    state: RunState,
    /// The progress of the branches, if anybody wants to know.
    progress: Option<Arc<Parts>>,
}

/// A step whose branch runs.
struct Running {
    step: usize,
    since: Instant,
    /// When it will have taken too long.
    deadline: Instant,
}

/// When the run and a step of it began.
#[derive(Clone, Copy)]
struct Times {
    run: Instant,
    step: Instant,
}

/// What a run waits for.
enum Next {
    /// A branch came back. Its outcome was made and boxed by the branch: results
    /// are large, and so pass through the task and the run as a pointer.
    Finished(usize, Result<Box<Outcome>, Lost>),
    /// A branch or the run takes too long.
    Due,
}

// === impl Run ===

impl<'p, C: Caller> Run<'p, C> {
    /// Makes a run that starts when it is driven.
    pub(crate) fn new(
        plan: &'p Plan,
        state: RunState,
        context: &'p Context,
        scope: &'p Scope,
        caller: C,
    ) -> Self {
        Self {
            plan,
            context,
            scope,
            caller,
            next: 0,
            running: Vec::with_capacity(plan.steps.len().min(plan.concurrency)),
            branches: Branches::new(plan.concurrency == 1 || plan.steps.len() == 1),
            begun: Instant::now(),
            state,
            progress: context.progress().map(|progress| progress.split(plan.steps.len())),
        }
    }

    /// The state of the run.
    pub(crate) fn into_state(self) -> RunState {
        self.state
    }

    /// Runs until all steps are finished: by their own end, by the deadline of
    /// the scope, or because the plan stopped.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime with its time enabled.
    pub(crate) async fn drive(&mut self) {
        self.start_waiting();
        // One timer, for whatever is due first: most branches are never late.
        let mut timer = pin!(tokio::time::sleep_until(self.due()));
        while !self.running.is_empty() {
            let branches = &mut self.branches;
            match poll_fn(|cx| poll_next(branches, timer.as_mut(), cx)).await {
                Next::Finished(step, end) => self.finish(step, end),
                Next::Due if timer.deadline() == self.scope.deadline => {
                    return self.stop(Status::TimedOut);
                }
                Next::Due => self.give_up(timer.deadline()),
            }
            if self.plan.stop == Stop::FirstSuccess && self.has_succeeded() {
                return self.stop(Status::Cancelled);
            }
            self.start_waiting();
            let due = self.due();
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
        }
        // Tools that never let go leave the timer no chance, but they leave time.
        self.stop(Status::TimedOut);
    }

    /// Starts as many steps as may run at the same time, while there is time.
    fn start_waiting(&mut self) {
        if self.running.len() == self.plan.concurrency {
            return;
        }
        let now = Instant::now();
        while now < self.scope.deadline
            && self.running.len() < self.plan.concurrency
            && let Some(step) = self.take_waiting()
        {
            self.start(step, now);
        }
    }

    /// The next step that has not started.
    fn take_waiting(&mut self) -> Option<usize> {
        let waiting = self.state.outcomes.get(self.next..)?;
        let step = self.next + waiting.iter().position(Option::is_none)?;
        self.next = step + 1;
        Some(step)
    }

    /// When something takes too long: a branch or the run.
    fn due(&self) -> Instant {
        let deadlines = self.running.iter().map(|running| running.deadline);
        deadlines.fold(self.scope.deadline, Instant::min)
    }

    fn has_succeeded(&self) -> bool {
        let last = self.state.finished.last().and_then(|&step| self.state.outcomes[step].as_ref());
        last.is_some_and(|outcome| outcome.is_success())
    }

    /// Starts a branch for a step, or fails the step if it cannot be called.
    fn start(&mut self, step: usize, now: Instant) {
        let arguments =
            self.scope.count_call().map_err(|limit| StepError::new(ErrorKind::Limit, limit));
        let arguments = match arguments.and_then(|()| self.arguments(step)) {
            Ok(arguments) => arguments,
            Err(error) => {
                let outcome = Outcome { attempts: 0, ..self.times(now).outcome(Err(error), now) };
                return self.state.finish(step, Box::new(outcome));
            }
        };
        let definition = &self.plan.steps[step];
        let id = definition.id.clone();
        let progress = self.progress.as_ref().map(|parts| parts.part(step, id.clone()));
        let call = self.caller.call(Call {
            step,
            tool: definition.tool.clone(),
            arguments,
            context: self.context.branch(id, progress),
            scope: self.scope.clone(),
        });
        let times = self.times(now);
        // `map` and not `async`, which would keep room for the call twice.
        let branch = call.map(move |result| Box::new(times.outcome(result, Instant::now())));
        self.branches.start(step, branch);
        let deadline = after(now, definition.timeout);
        self.running.push(Running { step, since: now, deadline });
    }

    fn times(&self, step: Instant) -> Times {
        Times { run: self.begun, step }
    }

    /// The arguments of a step that starts now.
    ///
    /// They are cloned, once, but for the last step that needs the input, which
    /// takes it.
    fn arguments(&mut self, step: usize) -> Result<JsonObject, StepError> {
        let last = self.state.outcomes[self.next..].iter().all(Option::is_some);
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

    /// Takes up what the branch of a step came back with.
    fn finish(&mut self, step: usize, end: Result<Box<Outcome>, Lost>) {
        let Some(place) = self.running.iter().position(|running| running.step == step) else {
            return;
        };
        let Running { since, .. } = self.running.swap_remove(place);
        let outcome = end.unwrap_or_else(|lost| {
            let error = match lost {
                Lost::Panicked => StepError::new(ErrorKind::Panic, "the tool panicked"),
                Lost::Stopped => StepError::new(ErrorKind::Service, "the server shuts down"),
            };
            Box::new(self.times(since).outcome(Err(error), Instant::now()))
        });
        self.state.finish(step, outcome);
    }

    /// Gives up the branches whose time has come, without waiting for them.
    fn give_up(&mut self, due: Instant) {
        let (late, running) = mem::take(&mut self.running)
            .into_iter()
            .partition(|running: &Running| running.deadline <= due);
        self.running = running;
        self.abort(late, Status::TimedOut);
    }

    /// Ends the run without waiting for what still runs.
    fn stop(&mut self, status: Status) {
        let running = mem::take(&mut self.running);
        self.abort(running, status);
        while let Some(step) = self.take_waiting() {
            self.state.finish(step, Box::new(Outcome::skipped()));
        }
    }

    fn abort(&mut self, mut branches: Vec<Running>, status: Status) {
        let now = Instant::now();
        // In the order of the plan, whichever branch was joined last.
        branches.sort_unstable_by_key(|running| running.step);
        for Running { step, since, .. } in branches {
            self.branches.abort(step);
            let outcome = self.times(since).outcome(Err(timed_out(now - since)), now);
            let outcome = match status {
                Status::TimedOut => outcome,
                status => Outcome { status, error: None, ..outcome },
            };
            self.state.finish(step, Box::new(outcome));
        }
    }
}

// === impl Times ===

impl Times {
    /// The outcome of a step that came to an end `at` this time.
    fn outcome(self, result: Result<CallToolResult, StepError>, at: Instant) -> Outcome {
        let (status, result, error) = match result {
            Ok(result) if result.is_error == Some(true) => {
                let error = StepError::new(ErrorKind::Tool, failure_text(&result));
                (Status::Failed, Some(result), Some(error))
            }
            Ok(result) => (Status::Completed, Some(result), None),
            Err(error) => (error.status(), None, Some(error)),
        };
        Outcome {
            status,
            result,
            error,
            attempts: 1,
            started_ms: milliseconds(self.step - self.run),
            duration_ms: milliseconds(at - self.step),
        }
    }
}

/// Branches first: what has finished by the deadline has finished in time.
fn poll_next(
    branches: &mut Branches<Box<Outcome>>,
    mut timer: Pin<&mut Sleep>,
    cx: &mut TaskContext<'_>,
) -> Poll<Next> {
    match branches.poll_next(cx) {
        Poll::Ready((step, end)) => Poll::Ready(Next::Finished(step, end)),
        Poll::Pending => timer.poll_unpin(cx).map(|()| Next::Due),
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
