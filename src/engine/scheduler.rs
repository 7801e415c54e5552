//! The scheduler of a run: a state machine without I/O.
//!
//! The scheduler receives events, such as the end of a call or a deadline. It returns
//! [commands](Command), such as to call a tool or to suspend the run. Its driver executes the
//! commands: on Tokio, [`Run`](super::run::Run). The scheduler itself has no clock and no timer,
//! and takes the seed of its random numbers from the driver. It is therefore deterministic: the
//! same events at the same times result in the same commands.
//!
//! All times are durations since the start of the run.

mod calls;
mod command;
mod effects;
mod loops;
mod outcome;
mod questions;
mod takeover;

use std::{mem, time::Duration};

use fastrand::Rng;
use rmcp::model::JsonObject;
use serde_json::Value;

pub(super) use self::{
    calls::Attempt,
    command::{Command, MadeOutput, NewCall, Pause},
    effects::Effects,
    takeover::{Progress, lost},
};
pub(super) use super::running_loop::Loop;
use super::{
    attempts::Attempts,
    branches::BranchId,
    outcome::{ErrorKind, Outcome, StepError},
    plan::{
        Action, Arguments, CallSite, Elicitation, LoopPlan, OnRefusal, Plan, StepSet, Stop, Switch,
    },
    state::RunState,
    takeover::Takeover,
};
use crate::expr::{Condition, Expression};

/// The maximum number of expressions that a run evaluates before it yields to other tasks.
const EVALUATIONS: u8 = 32;

/// The state machine of a run. It decides which [`Command`] its driver executes next.
pub(super) struct Scheduler<'p, E> {
    pub(super) plan: &'p Plan,
    deadline: Duration,
    /// If `true`, the driver must permit each tool call before it starts, because a limit such as
    /// `max_calls` can end the run.
    is_limited: bool,
    /// The settings for questions to the user. `None` if no step asks the user, directly or in a
    /// nested run. Boxed because most plans ask no questions.
    asking: Option<Box<Asking<'p>>>,
    /// Boxed because it is large and moved often.
    pub(super) state: Box<RunState>,
    pub(super) effects: E,
    /// The steps that have not started.
    waiting: StepSet,
    /// The steps that have started but not ended. They include steps that wait for the user's
    /// answers.
    running: StepSet,
    finished: StepSet,
    /// The running calls of steps and loop elements, including calls that wait for a retry.
    calls: Vec<Attempts<'p>>,
    loops: Vec<Loop<'p>>,
    /// The loops that may be able to start their next element.
    advancing: StepSet,
    /// The number of calls whose retry delay has passed. Their next attempts have not started yet.
    retrying: u32,
    /// If `true`, the run was resumed and some questions have not been processed since then.
    is_resuming: bool,
    /// The call or loop for which the scheduler has requested a permit from the driver, if any.
    /// Boxed because most runs need no permits.
    requested: Option<Box<Start<'p>>>,
    /// The calls that may have been running when the previous process of the run stopped. `None` if
    /// the run has no previous process.
    takeover: Option<Box<Takeover>>,
    /// The earliest deadline since the last [`take_soonest`](Self::take_soonest). `None` if no
    /// deadline was set since then.
    soonest: Option<Duration>,
    /// The number of expressions that the run may evaluate before it yields to other tasks.
    evaluations: u8,
    /// If `true`, the input is kept after the last step has read it, because a tool may be called
    /// again with the same arguments. For example, this happens after the tool has asked the user
    /// questions.
    keeps_arguments: bool,
    random: Rng,
}

/// The settings of a scheduler.
pub(super) struct Settings<'p> {
    pub(super) deadline: Duration,
    /// If `true`, the driver must permit each tool call before it starts, because a limit such as
    /// `max_calls` can end the run.
    pub(super) is_limited: bool,
    /// If `true`, tools may ask the client questions, because the client can answer at least one
    /// kind of question.
    pub(super) tools_may_ask: bool,
    /// The seed for the random retry delays.
    pub(super) seed: u64,
    /// The settings for questions to the user. `None` if no step asks the user, directly or in a
    /// nested run.
    pub(super) asking: Option<Box<Asking<'p>>>,
    /// The indexes of the call sites whose tools may be called twice with the same arguments. Only
    /// needed, and otherwise empty, if the run continues after its process has stopped.
    pub(super) repeatable: Vec<usize>,
}

/// The settings for questions to the user.
pub(super) struct Asking<'p> {
    /// The start of the run, as Unix time in milliseconds. Used to compute the deadlines of
    /// questions.
    pub(super) started_unix_ms: u64,
    /// If `true`, the client can show forms (`elicitation`).
    pub(super) has_forms: bool,
    /// The reason why questions are forbidden. `None` if they are allowed.
    pub(super) closed: Option<&'p str>,
    /// The maximum size of the run's state, in bytes. A run with a larger state cannot be suspended
    /// for a question.
    pub(super) room: usize,
    /// The steps that ask the user questions, directly or in a nested run. Excludes steps whose
    /// failure does not fail the run.
    pub(super) steps: StepSet,
    /// The indexes of the call sites whose tools are read-only.
    pub(super) read_only: Vec<usize>,
}

/// A tool call, a loop or a loop element that is about to start.
enum Start<'p> {
    Call(usize, &'p CallSite),
    Loop(usize, &'p LoopPlan, Vec<Value>),
    /// The next element of the loop in the step with this index.
    Element(usize),
}

/// The first action of a step whose condition is true, or `Skip`.
enum Begin<'p> {
    Skip,
    Start(Start<'p>),
    Ask(&'p Elicitation),
    /// Completes the step with this output, without a tool call.
    Output(Value),
}

// === impl Scheduler ===

impl<'p, E: Effects> Scheduler<'p, E> {
    /// Creates the scheduler of a new run, or of a suspended run that resumes from `state`.
    #[inline(always)]
    pub(super) fn new(
        plan: &'p Plan,
        mut state: Box<RunState>,
        settings: Settings<'p>,
        effects: E,
    ) -> Self {
        let finished: StepSet = state.finished.iter().copied().collect();
        let suspended = state.asked.iter().map(|pending| pending.id.step);
        let running: StepSet = suspended.chain(state.loops.iter().map(|each| each.step)).collect();
        let steps = match state.is_settled() {
            false => plan.ordinary,
            true => StepSet::first(plan.steps().len()),
        };
        let waiting = steps.without(finished).without(running);
        let takeover = state
            .running
            .take()
            .map(|running| Takeover::new(plan, &state, running, waiting, settings.repeatable));
        // Questions of steps come first, because their answers may end the run before a tool is
        // called again.
        state.asked.sort_unstable_by_key(|pending| (pending.is_call(), pending.id));
        state.asked.iter_mut().for_each(|pending| pending.is_resuming = true);
        Self {
            plan,
            random: Rng::with_seed(settings.seed),
            keeps_arguments: settings.tools_may_ask || !running.is_empty(),
            deadline: settings.deadline,
            is_limited: settings.is_limited,
            asking: settings.asking,
            is_resuming: !state.asked.is_empty()
                || takeover.as_ref().is_some_and(|takeover| takeover.has_left()),
            state,
            effects,
            waiting,
            running,
            finished,
            calls: Vec::new(),
            loops: Vec::new(),
            advancing: StepSet::default(),
            retrying: 0,
            requested: None,
            takeover,
            soonest: None,
            evaluations: EVALUATIONS,
        }
    }

    /// Returns the next command for the driver. `now` is the time since the start of the run.
    #[inline]
    pub(super) fn next(&mut self, now: Duration) -> Command<'p> {
        if self.is_over() {
            return self.end(now);
        }
        let has_time = now < self.deadline;
        if !self.advancing.is_empty()
            && has_time
            && self.evaluations > 0
            && let Some(step) = self.next_loop()
        {
            return self.request(Start::Element(step), now);
        }
        if has_time && let Some(id) = self.next_retry() {
            return Command::Retry(id);
        }
        if has_time {
            let ready = self.next_ready();
            if self.evaluations == 0 && (ready.is_some() || !self.advancing.is_empty()) {
                return Command::Pause(Pause::Yield);
            }
            if let Some(step) = ready {
                return self.begin_step(step, now);
            }
        }
        let is_paused = || has_time && self.loops.iter().any(Loop::is_paused);
        if self.calls.is_empty() && !is_paused() {
            self.end(now)
        } else {
            Command::Pause(Pause::Wait)
        }
    }

    #[inline]
    pub(super) const fn running(&self) -> StepSet {
        self.running
    }

    /// Makes the run yield to other tasks before it starts the next step or loop element.
    #[inline]
    pub(super) const fn yield_next(&mut self) {
        self.evaluations = 0;
    }

    /// Resets the number of expressions that the run may evaluate after it has yielded.
    #[inline]
    pub(super) const fn go_on(&mut self) {
        self.evaluations = EVALUATIONS;
    }

    #[inline]
    const fn count_evaluation(&mut self) {
        self.evaluations = self.evaluations.saturating_sub(1);
    }

    /// Returns `true` if all running steps must be stopped, because the outcome of the run is
    /// decided. This is the case if the failure of a step failed the run, or after the first
    /// success with [`Stop::FirstSuccess`].
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.state.failed.is_some()
            || (self.plan.stop == Stop::FirstSuccess && self.has_succeeded())
    }

    fn has_succeeded(&self) -> bool {
        let last = self.state.finished.last().and_then(|&step| self.state.outcomes[step].as_ref());
        last.is_some_and(|outcome| outcome.is_success())
    }

    /// Returns `true` if the run has ended early because of a stop step, a user's response or a
    /// limit. Running steps may finish, but no further step starts.
    #[inline]
    const fn has_ended(&self) -> bool {
        self.state.ended_by.is_some() || self.state.reached.is_some()
    }

    /// Returns the waiting steps that may start within the concurrency limit. Their dependencies
    /// may not have finished yet.
    #[inline]
    fn startable(&self) -> StepSet {
        if self.has_ended() {
            return StepSet::default();
        }
        // Steps without tool calls, such as questions, do not count toward the concurrency limit,
        // because nothing runs for them.
        let without_calls = self.plan.without_calls;
        if self.running.without(without_calls).len() < self.plan.concurrency {
            self.waiting
        } else {
            self.waiting.intersection(without_calls)
        }
    }

    /// Returns the first step that can start now: its dependencies have finished, and the
    /// concurrency limit is not reached.
    #[inline]
    fn next_ready(&self) -> Option<usize> {
        let mut startable = self.startable();
        startable.find(|&step| self.plan.needs(step).is_subset(self.finished))
    }

    #[inline]
    fn begin_step(&mut self, step: usize, now: Duration) -> Command<'p> {
        self.waiting.remove(step);
        self.running.insert(step);
        let begun = match self.decide(step) {
            Ok(Begin::Start(Start::Call(step, site)))
                if self.is_lost(BranchId { step, element: 0 }, site) =>
            {
                self.effects.begin_step(step);
                self.lose_call(BranchId { step, element: 0 }, site, now, now, 1);
                Ok(())
            }
            Ok(Begin::Start(start)) => match self.check_questions(step, &start) {
                Ok(()) => return self.request(start, now),
                Err(error) => Err(error),
            },
            Ok(Begin::Ask(elicitation)) => self.ask(step, elicitation, now),
            Ok(Begin::Output(output)) => {
                self.effects.begin_step(step);
                let made = MadeOutput { step, begun: now, attempts: 0, output };
                return Command::Count(Box::new(made));
            }
            Ok(Begin::Skip) => {
                self.finish(step, Outcome::skipped());
                Ok(())
            }
            Err(error) => Err(error),
        };
        if let Err(error) = begun {
            let outcome = self.uncalled(error, now);
            self.finish(step, outcome);
        }
        Command::Continue
    }

    /// Evaluates the condition of a step, and decides what the step does. For example, it calls a
    /// tool, starts a loop, asks the user, or is skipped.
    ///
    /// # Errors
    ///
    /// Returns an error if an expression cannot be evaluated, or if a loop would have more than
    /// `max_iterations` elements.
    #[inline]
    fn decide(&mut self, step: usize) -> Result<Begin<'p>, StepError> {
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
            Action::Loop(each) => {
                let items = self.items(each)?;
                return Ok(Begin::Start(Start::Loop(step, each, items)));
            }
            Action::Elicit(elicitation) => return Ok(Begin::Ask(elicitation)),
            Action::Value(value) => return self.compute(value, "value").map(Begin::Output),
            Action::Stop(end) => {
                return self.compute(&end.result, end.form.key()).map(Begin::Output);
            }
        };
        Ok(site.map_or(Begin::Skip, |site| Begin::Start(Start::Call(step, site))))
    }

    /// Returns the elements of a loop's collection. Returns an empty list for a loop that repeats a
    /// call.
    fn items(&mut self, each: &LoopPlan) -> Result<Vec<Value>, StepError> {
        let Some(collection) = each.as_collection() else { return Ok(Vec::new()) };
        self.count_evaluation();
        let items = self.state.evaluate(|data| collection.evaluate(data));
        let items = items.map_err(|error| error.at("collection"))?;
        match each.reject(items.len()) {
            Some(too_many) => Err(StepError::new(ErrorKind::Limit, too_many)),
            None => Ok(items),
        }
    }

    fn holds(&mut self, condition: &Condition) -> Result<bool, StepError> {
        self.count_evaluation();
        self.state.evaluate(|data| condition.evaluate(data))
    }

    /// Evaluates an expression of a step that calls no tool. Error messages start with `key`, the
    /// name of the expression in the definition, such as `value`.
    fn compute(&mut self, expression: &Expression, key: &str) -> Result<Value, StepError> {
        self.count_evaluation();
        let value = self.state.evaluate(|data| expression.evaluate_in(data));
        value.map(Option::unwrap_or_default).map_err(|error| error.at(key))
    }

    /// Returns the call of the first case whose condition is true, or the default call if there is
    /// no such case. Returns `None` if the switch has no default.
    fn case(&mut self, switch: &'p Switch) -> Result<Option<&'p CallSite>, StepError> {
        for (at, (when, site)) in switch.cases.iter().enumerate() {
            if self.holds(when).map_err(|error| error.at(&format!("case {at}")))? {
                return Ok(Some(site));
            }
        }
        Ok(switch.default.as_ref())
    }

    /// Starts a tool call or a loop. If limits such as `max_calls` can end the run, first requests
    /// a permit from the driver.
    #[inline]
    fn request(&mut self, start: Start<'p>, now: Duration) -> Command<'p> {
        if self.is_limited && start.calls() {
            self.requested = Some(Box::new(start));
            return Command::Permit;
        }
        self.begin(start, now)
    }

    /// Starts a tool call, a loop or a loop element. If a permit was required, the driver has
    /// granted it.
    #[inline]
    fn begin(&mut self, start: Start<'p>, now: Duration) -> Command<'p> {
        match start {
            Start::Call(step, site) => {
                self.effects.begin_step(step);
                match self.arguments(site) {
                    Ok(arguments) => {
                        let id = BranchId { step, element: 0 };
                        Command::Call(NewCall { id, site, resumed: None }, arguments)
                    }
                    Err(error) => {
                        self.fail_call(BranchId { step, element: 0 }, site, error, now);
                        Command::Continue
                    }
                }
            }
            Start::Loop(step, each, items) => {
                self.begin_loop(step, each, items, now);
                Command::Continue
            }
            Start::Element(step) => self.begin_element(step, now),
        }
    }

    #[inline]
    fn arguments(&mut self, site: &CallSite) -> Result<JsonObject, StepError> {
        match &site.arguments {
            Arguments::Mapped(expression) => {
                self.count_evaluation();
                object(self.state.evaluate(|data| expression.evaluate_in(data)))
            }
            // The last step that needs the input moves it, and all other steps clone it. If tools
            // may ask questions, all steps clone the input, because it is needed to call the tools
            // again.
            Arguments::Input if !self.keeps_arguments && self.is_last_to_read_input() => {
                object(Ok(Some(mem::take(&mut self.state.input))))
            }
            Arguments::Input => object(Ok(Some(self.state.input.clone()))),
        }
    }

    /// Returns `true` if no other step and no output reads the input of the run after the current
    /// call. The call may then move the input instead of cloning it.
    #[inline]
    fn is_last_to_read_input(&self) -> bool {
        let readers = self.plan.input_readers;
        let loops =
            || self.running.intersection(readers).any(|step| self.plan.steps()[step].is_loop());
        !self.plan.answer_reads_input && readers.intersection(self.waiting).is_empty() && !loops()
    }

    /// Returns the outcome of a step that failed before its tool was called.
    fn uncalled(&mut self, error: StepError, now: Duration) -> Outcome {
        // Preparing the arguments may have taken as long as evaluating an expression.
        self.count_evaluation();
        Outcome { attempts: 0, ..Outcome::answered(now, now, Err(error)) }
    }

    /// Records the outcome of a step. If the step failed, the run fails too, unless the step may
    /// fail.
    #[inline]
    pub(super) fn finish(&mut self, step: usize, outcome: Outcome) {
        // If a limit rejected the step, the limit has already ended the run, and the run does not
        // fail.
        let is_excused = outcome.is_refused() && self.state.reached.is_some();
        if outcome.has_failed() && !is_excused && !self.plan.steps()[step].may_fail() {
            self.state.failed.get_or_insert(step);
        }
        self.record(step, outcome);
    }

    /// Records the outcome of a step. Unlike [`finish`](Self::finish), never fails the run.
    #[inline]
    fn record(&mut self, step: usize, outcome: Outcome) {
        self.effects.end_step(step, &outcome, self.state.limit());
        self.running.remove(step);
        self.finished.insert(step);
        self.state.finish(self.plan, step, outcome, self.finished);
    }

    /// Applies `on_decline` or `on_cancel` after the user has declined or not answered the question
    /// of a step. Fails the run, ends it early, or lets it continue.
    fn note_refusal(&mut self, step: usize, on_refusal: OnRefusal) {
        // A finally step does not change the outcome of the run.
        if self.plan.is_final(step) {
            return;
        }
        let state = &mut self.state;
        match on_refusal {
            OnRefusal::Abort => {
                state.failed.get_or_insert(step);
            }
            OnRefusal::SkipRemaining => {
                state.ended_by.get_or_insert(step);
            }
            OnRefusal::Continue => (),
        }
    }
}

// === impl Start ===

impl Start<'_> {
    /// Returns `true` if the start leads to a tool call. Returns `false` for a loop over an empty
    /// collection.
    const fn calls(&self) -> bool {
        match self {
            Self::Loop(_, each, items) => each.as_collection().is_none() || !items.is_empty(),
            Self::Call(..) | Self::Element(_) => true,
        }
    }

    /// Returns the index of the call site. Returns `None` for a loop element, because the start of
    /// the loop already covers its call site.
    const fn site(&self) -> Option<usize> {
        match self {
            Self::Call(_, site) => Some(site.site),
            Self::Loop(_, each, _) => Some(each.call.site),
            Self::Element(_) => None,
        }
    }
}

/// Converts evaluated arguments to a JSON object.
#[inline]
fn object(arguments: Result<Option<Value>, StepError>) -> Result<JsonObject, StepError> {
    match arguments? {
        Some(Value::Object(arguments)) => Ok(arguments),
        _ => Err(StepError::definition("the arguments are not an object")),
    }
}
