use std::{
    future::{poll_fn, ready},
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use futures::FutureExt;
use rmcp::model::JsonObject;
use serde_json::Value;
use tokio::{
    task::yield_now,
    time::{Instant, Sleep},
};

use super::{
    attempts::{Attempts, Times, no_answer},
    branches::{BranchId, Branches, Lost},
    caller::{Call, Caller},
    for_each::Loop,
    limits::Scope,
    outcome::{ErrorKind, Outcome, RunState, Status, StepError},
    plan::{Action, Answer, Arguments, CallSite, ForEach, OnFailure, Plan, StepSet, Stop, Switch},
};
use crate::{
    expr::{Condition, Data},
    message::{Context, Parts},
};

/// How many evaluations may follow each other before others have their turn: each
/// can take long.
const EVALUATIONS: usize = 32;

/// A run of a plan: of the steps that are not finished in its state.
///
/// It owns its branches: dropping it aborts them.
pub(crate) struct Run<'p, C> {
    plan: &'p Plan,
    context: &'p Context,
    scope: &'p Scope,
    caller: C,
    /// The steps that have not started, those that have, and those that have ended.
    waiting: StepSet,
    running: StepSet,
    finished: StepSet,
    /// The calls that go on: of steps, and of the elements of `loops`.
    calls: Vec<Attempts<'p>>,
    loops: Vec<Loop<'p>>,
    branches: Branches<Box<Outcome>>,
    begun: Instant,
    state: RunState,
    /// How many evaluations may follow before others have their turn.
    left: usize,
    /// The step that has finished last.
    last: Option<usize>,
    /// The progress of the steps, if anybody wants to know.
    progress: Option<Arc<Parts>>,
}

/// How a step begins.
enum Begin<'p> {
    Skip,
    Call(&'p CallSite),
    Loop(&'p ForEach, Vec<Value>),
}

/// What a run waits for.
enum Next {
    /// A branch came back. Its outcome was made and boxed by the branch: results
    /// are large, and so pass through the task and the run as a pointer.
    Finished(BranchId, Result<Box<Outcome>, Lost>),
    /// The time of a call or of the run has come.
    Due,
}

// === impl Run ===

impl<'p, C: Caller> Run<'p, C> {
    /// Makes a run that starts when it is driven.
    pub(crate) fn new(
        plan: &'p Plan,
        mut state: RunState,
        context: &'p Context,
        scope: &'p Scope,
        caller: C,
    ) -> Self {
        let steps = plan.steps().len();
        let finished: StepSet = state.finished.iter().copied().collect();
        if plan.reads_id && state.id.is_none() {
            state.id = Some(format!("{:032x}", fastrand::u128(..)));
        }
        if plan.reads_name && state.name.is_none() {
            state.name = Some(plan.name.to_string());
        }
        let concurrency = steps.min(plan.concurrency);
        Self {
            plan,
            context,
            scope,
            caller,
            waiting: StepSet::first(steps).without(finished),
            running: StepSet::default(),
            finished,
            calls: Vec::with_capacity(concurrency),
            loops: Vec::new(),
            branches: Branches::new(concurrency <= 1 && !plan.has_parallel_loop()),
            begun: Instant::now(),
            state,
            left: EVALUATIONS,
            last: None,
            progress: context.progress().map(|progress| progress.split(steps)),
        }
    }

    /// The state of the run.
    ///
    /// A state in which no step was running can be taken up by another run.
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
        self.start_ready();
        // One timer, for whatever is due first: most branches are never late.
        let mut timer = pin!(tokio::time::sleep_until(self.due()));
        while !self.is_over() && (!self.running.is_empty() || !self.may_go_on()) {
            if !self.may_go_on() {
                yield_now().await;
                self.go_on();
                continue;
            }
            let branches = &mut self.branches;
            match poll_fn(|cx| poll_next(branches, timer.as_mut(), cx)).await {
                Next::Finished(id, end) => self.take_up(id, end),
                Next::Due if timer.deadline() == self.scope.deadline => break,
                Next::Due => self.act(timer.deadline()),
            }
            self.start_ready();
            let due = self.due();
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
        }
        // What never lets go leaves the timer no chance, but it leaves time: if steps
        // are left and nothing has ended the run, its time has.
        self.stop(if self.is_over() { Status::Cancelled } else { Status::TimedOut });
    }

    /// Whether it ends before all of its steps have run.
    fn is_over(&self) -> bool {
        self.state.failed.is_some()
            || (self.plan.stop == Stop::FirstSuccess && self.has_succeeded())
    }

    fn has_succeeded(&self) -> bool {
        let last = self.state.finished.last().and_then(|&step| self.state.outcomes[step].as_ref());
        last.is_some_and(|outcome| outcome.is_success())
    }

    /// When the time of a call or of the run comes.
    fn due(&self) -> Instant {
        self.calls.iter().map(|call| call.due).fold(self.scope.deadline, Instant::min)
    }

    /// Whether others need not have their turn first.
    const fn may_go_on(&self) -> bool {
        self.left > 0
    }

    /// Goes on where it stopped so that others had their turn.
    fn go_on(&mut self) {
        self.left = EVALUATIONS;
        let loops: StepSet = self.loops.iter().map(|each| each.step).collect();
        for step in loops {
            self.advance(step);
        }
        self.start_ready();
    }

    /// Starts as many steps as may run at the same time, while there is time.
    fn start_ready(&mut self) {
        if self.waiting.is_empty() || self.running.len() >= self.plan.concurrency {
            return;
        }
        let mut now = Instant::now();
        while now < self.scope.deadline
            && self.may_go_on()
            && self.running.len() < self.plan.concurrency
            && !self.is_over()
            && let Some(step) = self.next_ready()
        {
            let left = self.left;
            self.start(step, now);
            // Nothing else takes time.
            if self.left < left {
                now = Instant::now();
            }
        }
    }

    /// The first declared of the steps that wait for no other.
    fn next_ready(&self) -> Option<usize> {
        let mut waiting = self.waiting;
        waiting.find(|&step| self.plan.needs(step).is_subset(self.finished))
    }

    fn start(&mut self, step: usize, now: Instant) {
        self.waiting.remove(step);
        self.running.insert(step);
        let id = BranchId { step, element: 0 };
        let outcome = match self.begin(step) {
            Ok(Begin::Skip) => Outcome::skipped(),
            Ok(Begin::Call(site)) => {
                let arguments = self.arguments(site);
                match arguments.and_then(|arguments| self.call(id, site, arguments, now)) {
                    Ok(()) => return,
                    Err(error) => {
                        let site = self.chosen(step, site);
                        Outcome { site, ..self.uncalled(error, now) }
                    }
                }
            }
            Ok(Begin::Loop(each, items)) => {
                let part = self
                    .progress
                    .as_ref()
                    .map(|parts| parts.part(step, self.plan.steps()[step].id.clone()));
                self.loops.push(Loop::new(step, each, items, now, part.as_ref()));
                return self.advance(step);
            }
            Err(error) => self.uncalled(error, now),
        };
        self.finish(step, Box::new(outcome));
    }

    /// The outcome of what failed before its tool was called.
    fn uncalled(&mut self, error: StepError, now: Instant) -> Outcome {
        // To make its arguments fit may have taken as long.
        self.count_evaluation();
        let times = Times { run: self.begun, step: now };
        Outcome { attempts: 0, ..times.outcome(Err(error), now) }
    }

    const fn count_evaluation(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Decides what a step does, now that all it needs has finished.
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
                return Ok(Begin::Loop(each, items));
            }
        };
        match site {
            None => Ok(Begin::Skip),
            Some(site) => Ok(Begin::Call(site)),
        }
    }

    fn holds(&mut self, condition: &Condition) -> Result<bool, StepError> {
        self.count_evaluation();
        self.state.lend(|data| condition.evaluate(data))
    }

    /// The call of the first case that applies.
    fn case(&mut self, switch: &'p Switch) -> Result<Option<&'p CallSite>, StepError> {
        for (at, (when, site)) in switch.cases.iter().enumerate() {
            if self.holds(when).map_err(|error| error.at(&format!("case {at}")))? {
                return Ok(Some(site));
            }
        }
        Ok(switch.default.as_ref())
    }

    /// The arguments of a step that starts now.
    fn arguments(&mut self, site: &CallSite) -> Result<JsonObject, StepError> {
        match &site.arguments {
            Arguments::Mapped(expression) => {
                self.count_evaluation();
                object(self.state.lend(|data| expression.evaluate_in(data)))
            }
            // They are cloned but for the last step that needs the input, which takes it.
            Arguments::Input if self.is_last_to_read_input() => {
                object(Ok(Some(mem::take(&mut self.state.input))))
            }
            Arguments::Input => object(Ok(Some(self.state.input.clone()))),
        }
    }

    /// Whether nothing that is still to start reads the input, nor a loop, nor
    /// the answer.
    fn is_last_to_read_input(&self) -> bool {
        !self.plan.answer_reads_input
            && self.plan.input_readers.intersection(self.waiting).is_empty()
            && !self.loops.iter().any(|each| self.plan.input_readers.contains(each.step))
    }

    /// Begins a call, if its tool can be called.
    fn call(
        &mut self,
        id: BranchId,
        site: &'p CallSite,
        arguments: JsonObject,
        now: Instant,
    ) -> Result<(), StepError> {
        let arguments = self.caller.prepare(site.site, arguments)?;
        let step = &self.plan.steps()[id.step];
        let mut call = Attempts::new(id, site, arguments, step.timeout, step.retry, now);
        self.attempt(&mut call, now)?;
        self.calls.push(call);
        Ok(())
    }

    /// Calls the tool of a call once.
    fn attempt(&mut self, call: &mut Attempts<'p>, now: Instant) -> Result<(), StepError> {
        let counted = self.scope.count_call();
        counted.map_err(|limit| StepError::new(ErrorKind::Limit, limit))?;
        let arguments = call.begin(now);
        let context = self.branch_context(call.id);
        let (site, tool) = (call.site.site, call.site.tool.clone());
        let made = Call { site, tool, arguments, context, scope: self.scope.clone() };
        let times = call.times(self.begun);
        // Its future is made here, and not in the task of the branch.
        match catch_unwind(AssertUnwindSafe(|| self.caller.call(made))) {
            Ok(called) => {
                // `map` and not `async`, which would keep room for the call twice.
                let outcome = move |result| Box::new(times.outcome(result, Instant::now()));
                self.branches.start(call.id, called.map(outcome));
            }
            Err(_) => {
                let outcome = times.outcome(Err(panicked()), Instant::now());
                self.branches.start(call.id, ready(Box::new(outcome)));
            }
        }
        Ok(())
    }

    fn branch_context(&self, BranchId { step, element }: BranchId) -> Context {
        let id = &self.plan.steps()[step].id;
        match self.loops.iter().find(|each| each.step == step) {
            Some(each) => each.context(id, element, self.context),
            None => {
                let progress = self.progress.as_ref().map(|parts| parts.part(step, id.clone()));
                self.context.branch(id.clone(), progress)
            }
        }
    }

    /// Takes up what a branch came back with.
    fn take_up(&mut self, id: BranchId, end: Result<Box<Outcome>, Lost>) {
        let outcome = match end {
            Ok(outcome) => outcome,
            Err(lost) => {
                let error = match lost {
                    Lost::Panicked => panicked(),
                    Lost::Stopped => StepError::new(ErrorKind::Service, "the server shuts down"),
                };
                let Some(call) = self.calls.iter().find(|call| call.id == id) else { return };
                Box::new(call.times(self.begun).outcome(Err(error), Instant::now()))
            }
        };
        self.end_attempt(id, outcome);
    }

    /// Does what is due: the next attempt of a call, or the end of one, without
    /// waiting for it.
    fn act(&mut self, due: Instant) {
        let now = Instant::now();
        let mut ids: Vec<_> =
            self.calls.iter().filter(|call| call.due <= due).map(|call| call.id).collect();
        // In the order of the plan, whichever began last.
        ids.sort_unstable();
        for id in ids {
            let Some(place) = self.calls.iter().position(|call| call.id == id) else { continue };
            if !self.calls[place].is_waiting() {
                self.branches.abort(id);
                let outcome = self.calls[place].late(self.begun, now);
                self.end_attempt(id, Box::new(outcome));
            } else if !self.is_over() {
                let mut call = self.calls.swap_remove(place);
                match self.attempt(&mut call, now) {
                    Ok(()) => self.calls.push(call),
                    Err(error) => {
                        let outcome = call.times(self.begun).outcome(Err(error), now);
                        self.end_call(&call, Box::new(outcome));
                    }
                }
            }
        }
    }

    /// Takes up how an attempt ended: the call waits for the next, or has ended too.
    fn end_attempt(&mut self, id: BranchId, mut outcome: Box<Outcome>) {
        let Some(place) = self.calls.iter().position(|call| call.id == id) else { return };
        let step = &self.plan.steps()[id.step];
        if step.parse_json {
            outcome.parse(self.scope);
        }
        if step.retry.is_some() && self.calls[place].wait(&mut outcome, Instant::now()) {
            return;
        }
        let call = self.calls.swap_remove(place);
        self.end_call(&call, outcome);
    }

    /// Takes up how a call ended: so has the step, unless it is a loop.
    fn end_call(&mut self, call: &Attempts<'p>, mut outcome: Box<Outcome>) {
        let id = call.id;
        outcome.attempts = call.count;
        outcome.site = self.chosen(id.step, call.site);
        if self.loops.iter().any(|each| each.step == id.step) {
            self.end_element(id, *outcome);
            self.advance(id.step);
        } else {
            self.finish(id.step, outcome);
        }
    }

    /// Where a step is called that can be at several sites.
    fn chosen(&self, step: usize, site: &CallSite) -> Option<usize> {
        let action = &self.plan.steps()[step].action;
        matches!(action, Action::Switch(_)).then_some(site.site)
    }

    /// Starts as many elements of a loop as may run at the same time, while there
    /// is time, and ends it after the last.
    fn advance(&mut self, step: usize) {
        let find = |run: &Self| run.loops.iter().position(|each| each.step == step);
        while self.may_go_on()
            && let now = Instant::now()
            && now < self.scope.deadline
            && let Some(place) = find(self)
            && let Some(element) = self.loops[place].begin_next()
        {
            let id = BranchId { step, element };
            let begun = self.element_arguments(place, element).and_then(|arguments| {
                self.call(id, &self.loops[place].definition.call, arguments, now)
            });
            if let Err(error) = begun {
                let outcome = self.uncalled(error, now);
                self.end_element(id, outcome);
            }
        }
        if let Some(place) = find(self)
            && self.loops[place].is_done()
        {
            let each = self.loops.swap_remove(place);
            let times = Times { run: self.begun, step: each.since };
            let outcome = times.ended(Status::Completed, None, Instant::now());
            let mut outcome = Outcome { attempts: each.attempts, ..outcome };
            outcome.set_output(each.into_output());
            self.finish(step, Box::new(outcome));
        }
    }

    /// The arguments of an element of a loop that starts now.
    fn element_arguments(&mut self, place: usize, element: usize) -> Result<JsonObject, StepError> {
        self.count_evaluation();
        let each = &mut self.loops[place];
        object(match &each.definition.call.arguments {
            Arguments::Input => Ok(Some(self.state.input.clone())),
            Arguments::Mapped(expression) => {
                let evaluate = |data: &Arc<dyn Data>| expression.evaluate_in(data);
                self.state.lend_at(&mut each.items, element, evaluate)
            }
        })
    }

    /// Takes up how an element of a loop ended; if it may not fail, it ends the
    /// loop and the other elements with it.
    fn end_element(&mut self, id: BranchId, outcome: Outcome) {
        let Some(place) = self.loops.iter().position(|each| each.step == id.step) else { return };
        if outcome.is_success() || self.plan.steps()[id.step].on_failure == OnFailure::Continue {
            return self.loops[place].end(id.element, outcome);
        }
        let each = self.loops.swap_remove(place);
        let attempts = each.attempts + outcome.attempts + self.drop_calls(id.step);
        let error = outcome.error.map(|error| error.at(&format!("element {}", id.element)));
        let times = Times { run: self.begun, step: each.since };
        let outcome = times.ended(outcome.status, error, Instant::now());
        self.finish(id.step, Box::new(Outcome { attempts, ..outcome }));
    }

    /// Gives up all calls of a step; returns how many were made.
    fn drop_calls(&mut self, step: usize) -> u32 {
        let mut made = 0;
        let Self { calls, branches, .. } = self;
        calls.retain(|call| {
            let is_dropped = call.id.step == step;
            if is_dropped {
                branches.abort(call.id);
                made += call.count;
            }
            !is_dropped
        });
        made
    }

    /// Notes how a step ended.
    fn finish(&mut self, step: usize, outcome: Box<Outcome>) {
        let failed = matches!(outcome.status, Status::Failed | Status::TimedOut);
        if failed && !self.plan.steps()[step].may_fail() {
            self.state.failed.get_or_insert(step);
        }
        self.note(step, outcome);
    }

    fn note(&mut self, step: usize, outcome: Box<Outcome>) {
        self.running.remove(step);
        self.finished.insert(step);
        self.last = Some(step);
        self.state.finish(self.plan, step, outcome, self.finished);
    }

    /// Ends the run without waiting for what still runs.
    fn stop(&mut self, status: Status) {
        let now = Instant::now();
        let is_late = status == Status::TimedOut;
        if is_late && self.running.is_empty() {
            self.end_late(now);
        }
        self.state.timed_out |= is_late && !(self.running.is_empty() && self.waiting.is_empty());
        // In the order of the plan, whichever began last.
        for step in self.running {
            let each = self.loops.iter().position(|each| each.step == step);
            let each = each.map(|place| self.loops.swap_remove(place));
            let call = self.calls.iter().find(|call| call.id.step == step);
            let site = call.and_then(|call| self.chosen(step, call.site));
            let (since, error) = match (&each, call) {
                (Some(each), _) => (each.since, no_answer(now - each.since)),
                (None, Some(call)) => (call.begun, call.cut_off(now)),
                (None, None) => continue,
            };
            let attempts = each.map_or(0, |each| each.attempts) + self.drop_calls(step);
            let times = Times { run: self.begun, step: since };
            let outcome = times.ended(status, is_late.then_some(error), now);
            self.note(step, Box::new(Outcome { attempts, site, ..outcome }));
        }
        for step in mem::take(&mut self.waiting) {
            self.note(step, Box::new(Outcome::skipped()));
        }
    }

    /// Takes what was last for what took the run past its deadline, if it is past it.
    ///
    /// What a fan-out has counts whenever it came.
    fn end_late(&mut self, now: Instant) {
        if now > self.scope.deadline
            && !matches!(self.plan.answer, Answer::Outcomes)
            && let Some(last) = self.last
            && let Some(outcome) = &mut self.state.outcomes[last]
        {
            self.state.timed_out = true;
            outcome.status = Status::TimedOut;
            let late = "the time of the run was over before it ended";
            outcome.error = Some(StepError::new(ErrorKind::Timeout, late));
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
        Poll::Ready((id, end)) => Poll::Ready(Next::Finished(id, end)),
        Poll::Pending => timer.poll_unpin(cx).map(|()| Next::Due),
    }
}

/// Why a branch failed that panicked: what with may hold anything.
fn panicked() -> StepError {
    StepError::new(ErrorKind::Panic, "the tool panicked")
}

/// Evaluated arguments, which must be an object.
fn object(arguments: Result<Option<Value>, StepError>) -> Result<JsonObject, StepError> {
    match arguments? {
        Some(Value::Object(arguments)) => Ok(arguments),
        _ => Err(StepError::definition("the arguments are no object")),
    }
}
