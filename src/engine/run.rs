//! Runs the steps of a plan.

mod asking;
mod calling;
mod ending;
mod looping;

use std::{
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    task::{Context as TaskContext, Poll, ready},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use rmcp::model::JsonObject;
use serde_json::Value;
use tokio::{
    task::yield_now,
    time::{Instant, Sleep, sleep_until},
};
use tracing::{Instrument, Span};

pub(crate) use self::calling::LONG;
use super::{
    attempts::{Attempts, Times, no_answer},
    branches::{BranchId, Branches, Lost},
    caller::Caller,
    for_each::Loop,
    observation::Observation,
    outcome::{ErrorKind, Outcome, Status, StepError},
    plan::{Action, Arguments, CallSite, Elicitation, ForEach, Plan, StepSet, Stop, Switch},
    progress::RunProgress,
    questions::Questions,
    scope::Scope,
    state::RunState,
};
use crate::{
    expr::Condition,
    message::{BranchParts, Context, Progress},
};

/// The maximum number of consecutive evaluations before the task yields: each can take long.
const EVALUATIONS: usize = 32;

/// A run of a plan, over the steps that are not finished in its state.
///
/// It owns its branches: dropping it aborts them.
pub(crate) struct Run<'p, C> {
    plan: &'p Plan,
    context: &'p Context,
    branch_parts: BranchParts,
    scope: &'p Scope,
    caller: C,
    /// The steps that have not started, those that are running, and those that have ended.
    waiting: StepSet,
    running: StepSet,
    finished: StepSet,
    /// The current calls: of steps, and of the elements of `loops`.
    calls: Vec<Attempts<'p>>,
    loops: Vec<Loop<'p>>,
    branches: Branches<Ended>,
    /// The start time, moved by the time spent waiting for the user.
    begun: Instant,
    /// The time at which steps start, read again after each polled call.
    now: Instant,
    /// Boxed because it is large and moved often.
    state: Box<RunState>,
    /// The number of evaluations left before the task yields.
    left: usize,
    /// The step that finished last.
    last: Option<usize>,
    /// The progress of the steps; `None` if the client sent no progress token.
    progress: Option<Box<RunProgress>>,
    /// The observation of the run; `None` if it is not observed.
    watching: Option<Box<Observation<'p>>>,
    /// The earliest deadline of the calls that began since the timer was set.
    soonest: Option<Instant>,
    /// Whether tools may ask questions, and so be called again with the same arguments.
    may_ask: bool,
    /// The steps that ask the user, and without which the run fails.
    asking: StepSet,
}

/// The end of a branch.
enum Ended {
    Outcome(Outcome),
    Asks(Box<Questions>),
}

/// The start of a step.
enum Begin<'p> {
    Skip,
    Call(&'p CallSite),
    Loop(&'p ForEach, Vec<Value>),
    Ask(&'p Elicitation),
}

/// The event that a run waits for.
enum Next {
    /// A branch has ended.
    Finished(BranchId, Result<Ended, Lost>),
    /// The deadline of a call or of the run, or a heartbeat, is due.
    Due(Instant),
}

// === impl Run ===

impl<'p, C: Caller> Run<'p, C> {
    /// Creates a run that starts when it is driven, or resumes from its suspended state.
    pub(crate) fn new(
        plan: &'p Plan,
        state: impl Into<Box<RunState>>,
        context: &'p Context,
        scope: &'p Scope,
        caller: C,
    ) -> Self {
        Self::new_at(plan, state, context, scope, caller, Instant::now())
    }

    /// Creates a run at the time `now`.
    pub(crate) fn new_at(
        plan: &'p Plan,
        state: impl Into<Box<RunState>>,
        context: &'p Context,
        scope: &'p Scope,
        caller: C,
        now: Instant,
    ) -> Self {
        let mut state = state.into();
        let steps = plan.steps().len();
        let finished: StepSet = state.finished.iter().copied().collect();
        // The ids of nested runs derive from it.
        let has_nested = || plan.sites().any(|site| caller.is_nested(site.site));
        if state.id.is_none() && (plan.reads_id || has_nested()) {
            let own = || format!("{:032x}", fastrand::u128(..));
            state.id = Some(scope.run_id.as_deref().map_or_else(own, str::to_owned));
        }
        if plan.reads_name && state.name.is_none() {
            state.name = Some(plan.name.to_string());
        }
        let concurrency = steps.min(plan.concurrency);
        let asked = state.asked.iter().map(|asked| asked.id.step);
        let running: StepSet = asked.chain(state.loops.iter().map(|each| each.step)).collect();
        let needed = |&step: &usize| !plan.steps()[step].may_fail();
        let questions: StepSet = plan.questions.filter(needed).collect();
        let asking = questions.union(caller.asking());
        let begun = now.checked_sub(state.active()).unwrap_or(now);
        let watching = state.watch(plan, context, scope, begun);
        // Reported by this observation from here on.
        state.suspended.release();
        Self {
            watching,
            plan,
            context,
            branch_parts: context.branch_parts(),
            scope,
            caller,
            waiting: StepSet::first(steps).without(finished).without(running),
            running,
            finished,
            calls: Vec::new(),
            loops: Vec::new(),
            branches: Branches::new(concurrency <= 1 && !plan.has_parallel_loop()),
            begun,
            now,
            state,
            left: EVALUATIONS,
            last: None,
            progress: context.progress().map(|progress| {
                Box::new(RunProgress::new(plan, progress, scope.heartbeat, finished))
            }),
            soonest: None,
            may_ask: !context.abilities().is_nothing() || !running.is_empty(),
            asking,
        }
    }

    #[cfg(test)]
    pub(crate) fn into_state(self) -> RunState {
        *self.state
    }

    /// Returns the state of the run and the observation of its answer.
    ///
    /// A state in which only questions were pending can be resumed by another run.
    pub(crate) fn into_parts(self) -> (Box<RunState>, Option<Box<Observation<'p>>>) {
        (self.state, self.watching)
    }

    /// Starts the first steps; returns `true` if the run has ended with them.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime with its time enabled.
    pub(crate) fn begin_run(&mut self) -> bool {
        self.span().in_scope(|| {
            if let Some(watching) = &mut self.watching {
                watching.begin(self.state.input.as_object());
            }
            self.resume();
            self.note_limit();
            self.start_at(self.now);
            let has_ended = !self.is_waiting();
            if has_ended {
                self.end_run();
            }
            has_ended
        })
    }

    /// Runs until all steps are finished: by their own end, by the deadline of the scope, or
    /// because the plan stopped; or until only questions are pending, which are then in its state.
    ///
    /// Boxed, so that the future of a run that ends when it begins needs no memory for this.
    pub(crate) fn wait_until_end(mut self) -> BoxFuture<'p, Self>
    where
        C: 'p,
    {
        let span = self.span();
        let ended = async move {
            self.wait().await;
            self.end_run();
            self
        };
        ended.instrument(span).boxed()
    }

    /// Runs until the end, in the future of the caller.
    #[cfg(test)]
    pub(crate) async fn drive(&mut self) {
        if !self.begin_run() {
            let span = self.span();
            self.wait().instrument(span).await;
            self.end_run();
        }
    }

    fn span(&self) -> Span {
        self.watching.as_ref().map_or_else(Span::none, |watching| watching.span().clone())
    }

    /// Ends the run, or suspends it until its questions are answered.
    fn end_run(&mut self) {
        // Branches that never yield do not let the timer fire. If work is left and nothing else has
        // ended the run, it has reached its deadline.
        let is_late = !self.calls.is_empty()
            || self.loops.iter().any(Loop::may_begin)
            || self.next_ready().is_some();
        let was_ended = self.has_ended();
        if self.is_over() || (was_ended && !is_late) {
            self.end_loops_that_wait();
            self.stop(Status::Cancelled);
        } else if is_late || self.state.asked.is_empty() {
            self.stop(Status::TimedOut);
        } else {
            self.put_away();
        }
    }

    /// Returns `true` if the run waits for an event.
    fn is_waiting(&self) -> bool {
        !self.is_over() && (!self.calls.is_empty() || !self.may_go_on())
    }

    /// Waits for branches and starts the steps that depend on them.
    async fn wait(&mut self) {
        // One timer for the earliest deadline.
        let mut timer = pin!(None);
        while self.is_waiting() {
            if !self.may_go_on() {
                yield_now().await;
                self.go_on();
                continue;
            }
            match poll_fn(|cx| self.poll_next(timer.as_mut(), cx)).await {
                Next::Finished(id, end) => self.handle_returned(id, end),
                Next::Due(due) if due == self.scope.deadline => break,
                Next::Due(due) => self.act(due),
            }
            self.start_ready();
        }
    }

    /// Returns the time this many milliseconds after the start of the run.
    fn after(&self, milliseconds: u64) -> Instant {
        self.begun.checked_add(Duration::from_millis(milliseconds)).unwrap_or(self.begun)
    }

    /// Returns `true` if the run ends before all of its steps have run.
    fn is_over(&self) -> bool {
        self.state.failed.is_some()
            || (self.plan.stop == Stop::FirstSuccess && self.has_succeeded())
    }

    fn has_succeeded(&self) -> bool {
        let last = self.state.finished.last().and_then(|&step| self.state.outcomes[step].as_ref());
        last.is_some_and(|outcome| outcome.is_success())
    }

    /// Returns `true` if no other step starts, because the user or a limit has ended the run.
    const fn has_ended(&self) -> bool {
        self.state.ended_by.is_some() || self.state.reached.is_some()
    }

    /// Polls branches first: a branch that ends by the deadline is in time.
    fn poll_next(
        &mut self,
        mut timer: Pin<&mut Option<Sleep>>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Next> {
        if self.branches.is_interrupted() {
            let due = self.due();
            if Instant::now() >= due {
                return Poll::Ready(Next::Due(due));
            }
        }
        let next = self.branches.poll_next(cx);
        if let Some(step) = self.branches.took_long()
            && let Some(call) = self.calls.iter().find(|call| call.id.step == step)
        {
            call.site.hint.note_long();
        }
        if let Poll::Ready((id, end)) = next {
            return Poll::Ready(Next::Finished(id, end));
        }
        if timer.is_none() {
            timer.set(Some(sleep_until(self.due())));
        }
        let Some(mut timer) = timer.as_pin_mut() else { return Poll::Pending };
        if let Some(soonest) = self.soonest.take()
            && soonest < timer.deadline()
        {
            timer.as_mut().reset(soonest);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            let due = self.due();
            if due <= timer.deadline() {
                return Poll::Ready(Next::Due(due));
            }
            // It was set for a call that has ended. Resetting it at each end of a call would wake
            // another thread and iterate over all calls each time.
            timer.as_mut().reset(due);
        }
    }

    /// Returns the earliest deadline of a call or of the run, or the next heartbeat.
    fn due(&self) -> Instant {
        let beat = self.progress.as_deref().and_then(RunProgress::due);
        let calls = self.calls.iter().map(|call| call.due);
        calls.chain(beat).fold(self.scope.deadline, Instant::min)
    }

    /// Returns `true` if the task need not yield first.
    const fn may_go_on(&self) -> bool {
        self.left > 0
    }

    /// Continues after yielding.
    fn go_on(&mut self) {
        self.left = EVALUATIONS;
        let (now, due) = (Instant::now(), self.due());
        if due <= now && due < self.scope.deadline {
            self.act(due);
        }
        let loops: StepSet = self.loops.iter().map(|each| each.step).collect();
        for step in loops {
            self.advance(step);
        }
        self.start_ready();
    }

    /// Starts as many steps as may run at the same time, until the deadline.
    fn start_ready(&mut self) {
        if !self.startable().is_empty() {
            self.start_at(Instant::now());
        }
    }

    /// Starts steps at the time `now`.
    fn start_at(&mut self, now: Instant) {
        self.now = now;
        while self.now < self.scope.deadline
            && self.may_go_on()
            && !self.is_over()
            && let Some(step) = self.next_ready()
        {
            let left = self.left;
            self.start(step, self.now);
            // Only evaluations take time.
            if self.left < left {
                self.now = Instant::now();
            }
        }
    }

    /// Returns the waiting steps that the concurrency limit permits.
    fn startable(&self) -> StepSet {
        if self.has_ended() {
            return StepSet::default();
        }
        // A question does not count, since no step runs while it is pending.
        let questions = self.plan.questions;
        if self.running.without(questions).len() < self.plan.concurrency {
            self.waiting
        } else {
            self.waiting.intersection(questions)
        }
    }

    /// Returns the first step, in the order of the plan, whose dependencies have finished.
    fn next_ready(&self) -> Option<usize> {
        let mut startable = self.startable();
        startable.find(|&step| self.plan.needs(step).is_subset(self.finished))
    }

    fn start(&mut self, step: usize, now: Instant) {
        self.waiting.remove(step);
        self.running.insert(step);
        let id = BranchId { step, element: 0 };
        let outcome = match self.begin(step) {
            Ok(Begin::Skip) => Outcome::skipped(),
            Ok(Begin::Call(_)) if !self.may_call() => return self.hold_back(step),
            Ok(Begin::Loop(_, items)) if !items.is_empty() && !self.may_call() => {
                return self.hold_back(step);
            }
            Ok(Begin::Call(site)) => {
                self.report_begin(step);
                let arguments = self.arguments(site);
                match arguments.and_then(|arguments| self.call(id, site, arguments, now)) {
                    Ok(()) => return,
                    Err(error) if error.ends_run => {
                        self.note_limit();
                        return self.hold_back(step);
                    }
                    Err(error) => {
                        let site = self.chosen(step, site);
                        Outcome { site, ..self.uncalled(error, now) }
                    }
                }
            }
            Ok(Begin::Loop(each, items)) => {
                self.report_begin(step);
                if let Some(watching) = self.watching.as_mut().filter(|_| !items.is_empty()) {
                    watching.begin_step(step);
                }
                let progress = self.progress_of(step);
                self.loops.push(Loop::new(step, each, items, now, progress.as_ref()));
                return self.advance(step);
            }
            Ok(Begin::Ask(elicitation)) => match self.ask(step, elicitation) {
                Ok(()) => return,
                Err(error) => self.uncalled(error, now),
            },
            Err(error) => self.uncalled(error, now),
        };
        self.finish(step, outcome);
    }

    /// Returns the outcome of a step that failed before its tool was called.
    fn uncalled(&mut self, error: StepError, now: Instant) -> Outcome {
        // Preparing its arguments may have taken as long.
        self.count_evaluation();
        let times = Times { run: self.begun, step: now };
        Outcome { attempts: 0, ..times.outcome(Err(error), now) }
    }

    const fn count_evaluation(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Decides the action of a step, after its dependencies have finished.
    fn begin(&mut self, step: usize) -> Result<Begin<'p>, StepError> {
        let plan = self.plan;
        let definition = &plan.steps()[step];
        if let Some(condition) = &definition.condition
            && !self.holds(condition).map_err(|error| error.at("condition"))?
        {
            return Ok(Begin::Skip);
        }
        let site = match &definition.action {
            Action::Call(site) => Some(site),
            Action::Switch(switch) => self.case(switch)?,
            Action::ForEach(each) => {
                self.count_evaluation();
                let items = self.state.lend(|data| each.collection.evaluate(data));
                let items = items.map_err(|error| error.at("collection"))?;
                if let Some(too_many) = each.reject(items.len()) {
                    return Err(StepError::new(ErrorKind::Limit, too_many));
                }
                self.check_questions(step, &each.call)?;
                return Ok(Begin::Loop(each, items));
            }
            Action::Elicit(elicitation) => return Ok(Begin::Ask(elicitation)),
        };
        let Some(site) = site else { return Ok(Begin::Skip) };
        self.check_questions(step, site)?;
        Ok(Begin::Call(site))
    }

    fn holds(&mut self, condition: &Condition) -> Result<bool, StepError> {
        self.count_evaluation();
        self.state.lend(|data| condition.evaluate(data))
    }

    /// Returns the call of the first case that applies.
    fn case(&mut self, switch: &'p Switch) -> Result<Option<&'p CallSite>, StepError> {
        for (at, (when, site)) in switch.cases.iter().enumerate() {
            if self.holds(when).map_err(|error| error.at(&format!("case {at}")))? {
                return Ok(Some(site));
            }
        }
        Ok(switch.default.as_ref())
    }

    /// Returns the arguments of a step that starts now.
    fn arguments(&mut self, site: &CallSite) -> Result<JsonObject, StepError> {
        match &site.arguments {
            Arguments::Mapped(expression) => {
                self.count_evaluation();
                object(self.state.lend(|data| expression.evaluate_in(data)))
            }
            // The input is cloned, except for the last step that needs it, which takes it unless
            // its tool may ask and is then called again with it.
            Arguments::Input if !self.may_ask && self.is_last_to_read_input() => {
                object(Ok(Some(mem::take(&mut self.state.input))))
            }
            Arguments::Input => object(Ok(Some(self.state.input.clone()))),
        }
    }

    /// Returns `true` if neither the answer, a waiting step nor a loop reads the input.
    fn is_last_to_read_input(&self) -> bool {
        !self.plan.answer_reads_input
            && self.plan.input_readers.intersection(self.waiting).is_empty()
            && !self.loops.iter().any(|each| self.plan.input_readers.contains(each.step))
    }

    fn report_begin(&self, step: usize) {
        if let Some(progress) = &self.progress {
            progress.begin(step);
        }
    }

    fn progress_of(&self, step: usize) -> Option<Progress> {
        self.progress.as_ref().map(|progress| progress.step(step))
    }

    /// Records the outcome of a step.
    fn finish(&mut self, step: usize, outcome: Outcome) {
        let failed = outcome.has_failed();
        // A rejection by a limit has already ended the run.
        let failed = failed && !(outcome.is_refused() && self.state.reached.is_some());
        if failed && !self.plan.steps()[step].may_fail() {
            self.state.failed.get_or_insert(step);
        }
        if let Some(progress) = &self.progress {
            progress.end(step, outcome.status);
        }
        self.note(step, outcome);
    }

    fn note(&mut self, step: usize, outcome: Outcome) {
        if let Some(watching) = &mut self.watching {
            watching.end_step(step, &outcome, self.state.limit());
        }
        self.running.remove(step);
        self.finished.insert(step);
        self.last = Some(step);
        self.state.finish(self.plan, step, outcome, self.finished);
    }
}

/// Returns the error of a panicked branch, without the panic message, which may contain anything.
fn panicked() -> StepError {
    StepError::new(ErrorKind::Panic, "the tool panicked")
}

/// Returns evaluated arguments, which must be an object.
fn object(arguments: Result<Option<Value>, StepError>) -> Result<JsonObject, StepError> {
    match arguments? {
        Some(Value::Object(arguments)) => Ok(arguments),
        _ => Err(StepError::definition("the arguments are no object")),
    }
}
