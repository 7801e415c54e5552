//! Runs plans on Tokio. The [scheduler](super::scheduler) decides what to do next. This module
//! calls the tools, waits for them and reads the clock.

mod aborted;
mod calls;
mod effects;
mod journal_events;
mod journaled;
mod saving;

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context as TaskContext, Poll, ready},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use tokio::{
    task::yield_now,
    time::{Instant, Sleep, sleep_until},
};
use tracing::{Instrument, Span};

pub(crate) use self::calls::LONG;
use self::{
    effects::{Ended, RunEffects},
    journaled::Journaled,
};
use super::{
    branches::{BranchId, Branches, Lost},
    caller::Caller,
    limits::after,
    milliseconds::{milliseconds, unix_ms},
    observation::Observation,
    plan::Plan,
    progress::RunProgress,
    saving::{Saved, Saving},
    scheduler::{Asking, Command, Pause, Scheduler, Settings},
    scope::Scope,
    state::RunState,
};
use crate::{
    message::{BranchParts, Context},
    observe::RunHandle,
};

/// An execution of a plan. A new run executes all steps. A resumed run executes the steps that had
/// not finished when its state was stored.
///
/// Dropping the run aborts its running steps and loop elements.
pub(crate) struct Run<'p, C> {
    context: &'p Context,
    branch_parts: BranchParts,
    scope: &'p Scope,
    caller: C,
    scheduler: Scheduler<'p, RunEffects<'p>>,
    /// The start of the run, shifted by the time for which the run was suspended. The time that
    /// users take to answer questions therefore does not count toward the deadline.
    begun: Instant,
    /// The last time that was read from the clock, as a duration since `begun`.
    now: Duration,
    pause: Pause,
    /// The caller sets this flag to `true` to cancel the run. `None` if the caller cancels the run
    /// by dropping it.
    cancelled: Option<Arc<AtomicBool>>,
    /// If `true`, the run has already cancelled its steps because of `cancelled`.
    has_cancelled: bool,
    /// Stores the state of the run while it is running. `None` if the run is not stored.
    saving: Option<Box<Saving>>,
    /// The time at which the run stops waiting for aborted calls, as a duration since `begun`.
    /// `None` while it does not wait for any.
    patient_until: Option<Duration>,
}

enum Next {
    /// A branch, which is a step or loop element, has ended.
    Finished(BranchId, Result<Ended, Lost>),
    /// A point in time has passed, such as the deadline of the run or the time of a retry.
    Due(Instant),
    /// The caller has cancelled the run.
    Cancelled,
    /// The state of the run was stored, or storing it failed.
    Saved(Saved),
    /// All aborted calls have ended.
    AbortedEnded,
}

// === impl Run ===

impl<'p, C: Caller> Run<'p, C> {
    /// Creates a run of `plan`. `state` is a new state or the state of a suspended run.
    pub(crate) fn new(
        plan: &'p Plan,
        state: impl Into<Box<RunState>>,
        context: &'p Context,
        scope: &'p Scope,
        caller: C,
    ) -> Self {
        Self::new_at(plan, state, context, scope, caller, Instant::now())
    }

    /// Like [`new`](Self::new), but takes the current time as `now`.
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
        // The IDs of nested runs are derived from the ID of this run.
        let has_nested = || plan.sites().any(|site| caller.is_nested(site.site));
        if state.id.is_none() && (plan.reads_id || has_nested()) {
            let random = || match context.journal() {
                Some(journal) => u128::from(journal.random()) << 64 | u128::from(journal.random()),
                None => fastrand::u128(..),
            };
            let own = || format!("{:032x}", random());
            state.id = Some(scope.run_id.as_deref().map_or_else(own, str::to_owned));
        }
        if plan.reads_name && state.name.is_none() {
            state.name = Some(plan.name.to_string());
        }
        if plan.reads_started_at && state.started_at.is_none() {
            state.started_at = Some(format!("{:.3}", start_time(context)));
        }
        let concurrency = steps.min(plan.concurrency);
        let active = state.active();
        let (begun, now) = match now.checked_sub(active) {
            Some(begun) => (begun, active),
            None => (now, Duration::ZERO),
        };
        let watching = state.watch(plan, context, scope, begun);
        // From here on, the new observation reports the end of the run to the observers.
        state.suspended.release();
        let effects = RunEffects {
            branches: Branches::new(concurrency <= 1 && !plan.has_parallel_loop(), scope.account()),
            progress: progress(plan, context, scope, &state),
            watching,
            journaled: context.journal().map(|it| Box::new(Journaled::new(it.clone(), scope))),
        };
        let was_running = state.was_running();
        let settings = settings(plan, context, scope, &caller, was_running, begun, now);
        Self {
            scheduler: Scheduler::new(plan, state, settings, effects),
            context,
            branch_parts: context.branch_parts(),
            scope,
            caller,
            begun,
            now,
            pause: Pause::Yield,
            cancelled: None,
            has_cancelled: false,
            saving: None,
            patient_until: None,
        }
    }

    /// Sets the flag with which the caller cancels the run. When the flag is `true`, the run
    /// cancels its steps, and then executes the finally steps with `on_cancel`. The caller must
    /// therefore poll the run to its end.
    pub(crate) fn set_cancelled(&mut self, cancelled: Arc<AtomicBool>) {
        self.cancelled = Some(cancelled);
    }

    /// Returns the handle with which observers can cancel the run. Returns `None` if
    /// nothing observes the run, or if it is suspended.
    pub(crate) fn handle(&self) -> Option<RunHandle> {
        self.scheduler.effects.watching.as_ref()?.handle().cloned()
    }

    /// Returns `true` if the caller has cancelled the run through the flag of
    /// [`set_cancelled`](Self::set_cancelled).
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled.load(Ordering::Acquire))
    }

    /// Returns `true` if the caller has cancelled the run, but the run has not cancelled its steps
    /// yet.
    fn must_cancel(&self) -> bool {
        !self.has_cancelled && self.is_cancelled()
    }

    #[cfg(test)]
    pub(crate) fn into_state(self) -> RunState {
        *self.scheduler.state
    }

    /// Returns the state and the observation of the run. The caller must report the result of the
    /// run with [`Observation::finish`].
    ///
    /// If the run is suspended, it has no observation, and a new run can resume from the returned
    /// state.
    #[inline(always)]
    pub(crate) fn into_parts(self) -> (Box<RunState>, Option<Box<Observation<'p>>>) {
        (self.scheduler.state, self.scheduler.effects.watching)
    }

    /// Like [`into_parts`](Self::into_parts), but for a run of finally steps. If they have ended,
    /// restores the outcome of the run from before the finally steps.
    pub(crate) fn into_settled_parts(mut self) -> (Box<RunState>, Option<Box<Observation<'p>>>) {
        if self.pause == Pause::Ended {
            self.scheduler.state.restore_outcome();
        }
        self.into_parts()
    }

    /// Starts the first steps of the run. Returns `true` if the run has already ended or is
    /// suspended.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime, or if time is not enabled in the runtime.
    pub(crate) fn begin_run(&mut self) -> bool {
        self.span().in_scope(|| {
            if let Some(watching) = &mut self.scheduler.effects.watching {
                watching.begin(self.scheduler.state.input.as_object());
            }
            if self.saving.is_some() {
                self.save();
            } else {
                self.resume();
                self.advance();
            }
            self.has_ended() && !self.has_aborted()
        })
    }

    /// Starts or resumes the run. Handles the user's answers, and the calls that were running when
    /// a previous process stopped.
    #[inline]
    fn resume(&mut self) {
        while let Some(command) = self.scheduler.resume(self.now) {
            self.execute(command);
        }
        self.note_limit();
    }

    /// Runs until all steps have finished, or until the run is suspended because only questions to
    /// the user are pending. Stops running steps at the deadline, or when the plan ends the run
    /// early. Boxed, so that runs that end in [`begin_run`](Self::begin_run) reserve no memory for
    /// the future.
    pub(crate) fn wait_until_end(mut self) -> BoxFuture<'p, Self>
    where
        C: 'p,
    {
        let span = self.span();
        let ended = async move {
            self.wait().await;
            self
        };
        ended.instrument(span).boxed()
    }

    /// Returns `true` if all other steps have ended and the plan has finally steps. The caller must
    /// then call [`into_finals`](Self::into_finals).
    pub(crate) fn has_finals_left(&self) -> bool {
        let state = &self.scheduler.state;
        state.asked.is_empty() && !state.is_settled() && self.scheduler.plan.grace().is_some()
    }

    /// Decides the outcome of the run, and returns the run of its finally steps. `scope` is [their
    /// scope](Scope::of_finals). `context` is their request context, or `None` to keep the context
    /// of the run.
    pub(crate) fn into_finals(self, scope: &'p Scope, context: Option<&'p Context>) -> Self {
        let branch_parts = context.map_or(self.branch_parts, Context::branch_parts);
        let context = context.unwrap_or(self.context);
        let Scheduler { plan, mut state, effects, .. } = self.scheduler;
        state.settle();
        let journaled = effects.journaled;
        let now = journaled.as_ref().map_or_else(Instant::now, |journaled| journaled.now());
        let now = now.saturating_duration_since(self.begun);
        let settings = settings(plan, context, scope, &self.caller, false, self.begun, now);
        let mut watching = effects.watching;
        if let Some(watching) = &mut watching {
            watching.continue_run();
        }
        let effects = RunEffects {
            branches: Branches::new(false, scope.account()),
            progress: progress(plan, context, scope, &state),
            watching,
            journaled,
        };
        let saving = self.saving;
        let mut finals = Self {
            scheduler: Scheduler::new(plan, state, settings, effects),
            context,
            branch_parts,
            scope,
            now,
            pause: Pause::Yield,
            has_cancelled: false,
            saving: None,
            ..self
        };
        if finals.must_cancel() {
            // A cancelled run is not continued by another process.
            finals.cancel();
        } else {
            finals.set_saving(saving);
        }
        finals
    }

    /// Runs until the run has ended or is suspended, without boxing the future.
    #[cfg(test)]
    pub(crate) async fn drive(&mut self) {
        if !self.begin_run() {
            let span = self.span();
            self.wait().instrument(span).await;
        }
    }

    fn span(&self) -> Span {
        let watching = self.scheduler.effects.watching.as_ref();
        watching.map_or_else(Span::none, |watching| watching.span().clone())
    }

    const fn has_ended(&self) -> bool {
        matches!(self.pause, Pause::Ended | Pause::Suspended)
    }

    /// Reads the clock. Returns the time since the start of the run, excluding suspensions.
    fn read_clock(&mut self) -> Duration {
        self.now = self.instant().saturating_duration_since(self.begun);
        self.now
    }

    /// Executes the commands of the scheduler until it must wait or the run ends.
    fn advance(&mut self) {
        loop {
            if self.has_aborted() {
                return self.begin_patience();
            }
            if self.must_save() {
                return self.save();
            }
            match self.scheduler.next(self.now) {
                // Most commands are calls. They are large, so this avoids another move of the
                // command.
                Command::Call(call, arguments) => self.call(call, arguments),
                Command::Pause(pause) => return self.pause(pause),
                command => self.execute(command),
            }
        }
    }

    fn execute(&mut self, command: Command<'p>) {
        match command {
            Command::Permit => {
                let reached = self.scope.reached_by_call();
                let permitted = self.scheduler.permit(reached, self.now);
                self.execute(permitted);
            }
            Command::Call(call, arguments) => self.call(call, arguments),
            Command::Retry(id) => self.retry(id),
            Command::Count(made) => {
                let counted = self.scope.keep_made(&made.output);
                // The evaluation of the output may have taken some time.
                self.read_clock();
                self.note_limit();
                self.scheduler.count(*made, counted, self.now);
            }
            Command::Continue => {
                self.read_clock();
            }
            Command::Pause(pause) => self.pause(pause),
        }
    }

    fn pause(&mut self, pause: Pause) {
        self.pause = pause;
        if pause == Pause::Suspended {
            let state = &mut self.scheduler.state;
            state.spent = self.scope.spent();
            if let Some(watching) = self.scheduler.effects.watching.take() {
                let (watched, suspended) = watching.put_away();
                (state.watched, state.suspended) = (Some(watched), suspended);
            }
        }
    }

    /// Ends the run early if it has reached a limit, such as `max_calls`, of this run or of an
    /// outer run.
    fn note_limit(&mut self) {
        let reached = self.scope.reached();
        self.scheduler.reach(reached, self.now);
    }

    /// Cancels the steps of the run after the caller has cancelled the run.
    fn cancel(&mut self) {
        self.has_cancelled = true;
        let cancelled = self.scheduler.cancel(self.now);
        self.execute(cancelled);
    }

    /// Waits for steps and deadlines until the run has ended or is suspended.
    async fn wait_for_steps(&mut self) {
        // A single timer fires at the earliest deadline.
        let mut timer = pin!(None);
        while !self.has_ended() {
            if self.pause == Pause::Yield {
                yield_now().await;
                self.scheduler.go_on();
                if self.must_cancel() {
                    self.read_clock();
                    self.cancel();
                    if self.has_ended() {
                        return;
                    }
                }
                self.collect().await;
                self.read_clock();
                let due = self.due();
                if due <= self.begun + self.now && due < self.scope.deadline {
                    self.pass(due);
                }
            } else {
                let next = poll_fn(|cx| self.poll_next(timer.as_mut(), cx)).await;
                self.read_clock();
                match next {
                    Next::Finished(id, end) => {
                        self.handle_returned(id, end);
                        if self.saving.is_some() {
                            // The outcomes of all branches that have ended are stored together.
                            self.collect().await;
                        }
                    }
                    Next::Saved(saved) => {
                        self.handle_saved(saved);
                        if self.has_ended() {
                            return;
                        }
                    }
                    Next::Due(due) if due == self.scope.deadline => {
                        let ended = self.scheduler.end(self.now);
                        self.execute(ended);
                        continue;
                    }
                    Next::Due(due) => self.pass(due),
                    Next::AbortedEnded => self.patient_until = None,
                    Next::Cancelled => {
                        self.cancel();
                        if self.has_ended() {
                            return;
                        }
                    }
                }
            }
            if !self.is_saving() {
                self.advance();
            }
        }
    }

    /// Processes all branches that have already ended, without waiting for the others. These
    /// branches count as in time, even if their deadlines have passed in the meantime.
    async fn collect(&mut self) {
        // A journal determines the order of the events.
        while !self.scheduler.is_over() && self.scheduler.effects.journaled.is_none() {
            let branches = &mut self.scheduler.effects.branches;
            let next = poll_fn(|cx| Poll::Ready(branches.poll_next(cx))).await;
            let Poll::Ready((id, end)) = next else { return };
            self.read_clock();
            self.handle_returned(id, end);
        }
    }

    /// Handles all deadlines up to `due`: sends heartbeats, times out attempts, and ends retry
    /// delays.
    fn pass(&mut self, due: Instant) {
        self.note_limit();
        let running = self.scheduler.running();
        if let Some(progress) = &mut self.scheduler.effects.progress {
            progress.beat(running, self.begun + self.now);
        }
        let due = due.saturating_duration_since(self.begun);
        self.end_patience(due);
        self.scheduler.pass(due, self.now);
    }

    /// Returns the next event, such as a branch that has ended or a deadline. Branches are polled
    /// before the timer, so that a branch that ends exactly at its deadline is in time.
    fn poll_next(
        &mut self,
        mut timer: Pin<&mut Option<Sleep>>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Next> {
        if self.must_cancel() {
            return Poll::Ready(Next::Cancelled);
        }
        if self.scheduler.effects.journaled.is_some() {
            return self.poll_journal(cx);
        }
        if let Some(saving) = &mut self.saving
            && let Poll::Ready(saved) = saving.poll(cx)
        {
            return Poll::Ready(Next::Saved(saved));
        }
        if self.scheduler.effects.branches.is_interrupted() {
            let due = self.due();
            if Instant::now() >= due {
                return Poll::Ready(Next::Due(due));
            }
        }
        let branches = &mut self.scheduler.effects.branches;
        let (next, long) = (branches.poll_next(cx), branches.took_long());
        if let Some(site) = long.and_then(|step| self.scheduler.site_of_step(step)) {
            site.hint.note_long();
        }
        if let Poll::Ready((id, end)) = next {
            return Poll::Ready(Next::Finished(id, end));
        }
        if self.patient_until.is_some() && self.poll_aborted(cx).is_ready() {
            return Poll::Ready(Next::AbortedEnded);
        }
        if timer.is_none() {
            timer.set(Some(sleep_until(self.due())));
        }
        let Some(mut timer) = timer.as_pin_mut() else { return Poll::Pending };
        if let Some(soonest) = self.scheduler.take_soonest()
            && let soonest = after(self.begun, soonest)
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
            // The timer was set for a call that has ended. Resetting the timer whenever a call ends
            // would wake another thread and iterate over all calls each time.
            timer.as_mut().reset(due);
        }
    }

    /// Returns the time at which the run must continue even if no branch has ended. Examples are
    /// the deadline of a call and the time of a retry or heartbeat.
    fn due(&self) -> Instant {
        let beat = self.scheduler.effects.progress.as_deref().and_then(RunProgress::due);
        let due = after(self.begun, self.scheduler.due()).min(self.scope.deadline);
        let due = self.patient_until.map_or(due, |until| due.min(after(self.begun, until)));
        beat.map_or(due, |beat| beat.min(due))
    }
}

/// Returns the progress of a run that starts or resumes. Returns `None` if the client requested no
/// progress notifications.
#[inline]
fn progress(
    plan: &Plan,
    context: &Context,
    scope: &Scope,
    state: &RunState,
) -> Option<Box<RunProgress>> {
    context.progress().map(|progress| {
        let finished = state.finished.iter().copied().collect();
        Box::new(RunProgress::new(plan, progress, scope.heartbeat, finished))
    })
}

/// Returns the settings of the scheduler. `begun` is the start of the run, and `now` is the
/// duration since then. `was_running` is `true` if another process has stopped while it was
/// executing the run.
#[inline]
fn settings<'p>(
    plan: &Plan,
    context: &Context,
    scope: &'p Scope,
    caller: &impl Caller,
    was_running: bool,
    begun: Instant,
    now: Duration,
) -> Settings<'p> {
    let abilities = caller.abilities(context);
    let asking = || {
        let sites = plan.sites().map(|site| site.site);
        Box::new(Asking {
            started_unix_ms: context
                .journal()
                .map_or_else(unix_ms, |it| it.unix_ms())
                .saturating_sub(milliseconds(now)),
            has_forms: abilities.form,
            closed: scope.closed().map(|why| &**why),
            room: scope.room(),
            steps: caller.asking().union(plan.certain_questions()),
            read_only: sites.filter(|&site| caller.is_read_only(site)).collect(),
        })
    };
    let repeatable = if was_running { repeatable(plan, caller) } else { Vec::new() };
    let may_ask = !plan.questions.is_empty() || !caller.asking().is_empty();
    Settings {
        deadline: scope.deadline.saturating_duration_since(begun),
        is_limited: scope.is_limited(),
        tools_may_ask: !abilities.is_nothing(),
        seed: match context.journal() {
            _ if !plan.has_retries => 0,
            Some(journal) => journal.random(),
            None => fastrand::u64(..),
        },
        asking: may_ask.then(asking),
        repeatable,
    }
}

/// Returns the current time, or the time of the last event in the journal.
fn start_time(context: &Context) -> Timestamp {
    let ms = context.journal().and_then(|journal| i64::try_from(journal.unix_ms()).ok());
    ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or_else(Timestamp::now)
}

/// Returns the indexes of the call sites whose tools may be called twice with the same arguments.
fn repeatable(plan: &Plan, caller: &impl Caller) -> Vec<usize> {
    let sites = plan.sites().map(|site| site.site);
    sites.filter(|&site| caller.is_repeatable(site)).collect()
}
