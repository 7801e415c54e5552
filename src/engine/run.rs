//! Runs plans on Tokio. Drives the [scheduler](super::scheduler), which decides what to do: calls
//! tools, waits for them, and reads the clock.

mod calling;
mod effects;
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

pub(crate) use self::calling::LONG;
use self::effects::{Ended, RunEffects};
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

/// An execution of a plan. It executes all steps that its initial [`RunState`] does not mark as
/// finished.
///
/// A run owns its branches, which are its running steps and loop elements. Dropping the run aborts
/// them.
pub(crate) struct Run<'p, C> {
    context: &'p Context,
    branch_parts: BranchParts,
    scope: &'p Scope,
    caller: C,
    scheduler: Scheduler<'p, RunEffects<'p>>,
    /// The time at which the run would have started if it had never been suspended. The time that
    /// users take to answer questions therefore does not count toward the deadline.
    begun: Instant,
    /// The time at which the clock was last read, as a duration since `begun`.
    now: Duration,
    pause: Pause,
    /// A flag that is set when the client's call that started the run is cancelled. `None` if the
    /// run is dropped together with this call.
    cancelled: Option<Arc<AtomicBool>>,
    /// If `true`, the run has already cancelled its steps because the client's call was cancelled.
    has_cancelled: bool,
    /// Stores the state of the run while it runs. `None` if the run is not stored.
    saving: Option<Box<Saving>>,
}

/// An event that the run waits for.
enum Next {
    /// A branch has ended with this result.
    Finished(BranchId, Result<Ended, Lost>),
    /// A point in time has passed: the deadline of a tool call or of the run, or the time of a
    /// retry or a heartbeat.
    Due(Instant),
    /// The client's call that started the run was cancelled.
    Cancelled,
    /// The state of the run was stored, or storing it has failed.
    Saved(Saved),
}

// === impl Run ===

impl<'p, C: Caller> Run<'p, C> {
    /// Creates a run of `plan`. `state` is a new state, or the state of a suspended run that
    /// resumes.
    pub(crate) fn new(
        plan: &'p Plan,
        state: impl Into<Box<RunState>>,
        context: &'p Context,
        scope: &'p Scope,
        caller: C,
    ) -> Self {
        Self::new_at(plan, state, context, scope, caller, Instant::now())
    }

    /// Creates a run like [`new`](Self::new), but uses `now` as the current time instead of reading
    /// the clock.
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
            let own = || format!("{:032x}", fastrand::u128(..));
            state.id = Some(scope.run_id.as_deref().map_or_else(own, str::to_owned));
        }
        if plan.reads_name && state.name.is_none() {
            state.name = Some(plan.name.to_string());
        }
        if plan.reads_started_at && state.started_at.is_none() {
            state.started_at = Some(format!("{:.3}", Timestamp::now()));
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
            branches: Branches::new(concurrency <= 1 && !plan.has_parallel_loop()),
            progress: progress(plan, context, scope, &state),
            watching,
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
        }
    }

    /// Sets a flag by which the caller can cancel the run. When the flag is `true`, the run cancels
    /// its steps, but continues with the finally steps that run on a cancellation. The caller must
    /// therefore poll the run to its end.
    pub(crate) fn set_cancelled(&mut self, cancelled: Arc<AtomicBool>) {
        self.cancelled = Some(cancelled);
    }

    /// Returns the handle with which observers can cancel the run, if there are observers.
    pub(crate) fn handle(&self) -> Option<RunHandle> {
        self.scheduler.effects.watching.as_ref()?.handle().cloned()
    }

    /// Returns `true` if the flag of [`set_cancelled`](Self::set_cancelled) is set.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled.load(Ordering::Acquire))
    }

    /// Returns `true` if the run was cancelled and has not cancelled its steps yet.
    fn must_cancel(&self) -> bool {
        !self.has_cancelled && self.is_cancelled()
    }

    #[cfg(test)]
    pub(crate) fn into_state(self) -> RunState {
        *self.scheduler.state
    }

    /// Returns the state and the observation of the run. The caller reports the answer of the run
    /// with [`Observation::finish`].
    ///
    /// If only questions are pending, the run is suspended. A new run can then resume from the
    /// returned state.
    #[inline(always)]
    pub(crate) fn into_parts(self) -> (Box<RunState>, Option<Box<Observation<'p>>>) {
        (self.scheduler.state, self.scheduler.effects.watching)
    }

    /// Like [`into_parts`](Self::into_parts), but for a run of finally steps. If these steps have
    /// ended, restores the outcome that was decided before they started.
    pub(crate) fn into_settled_parts(mut self) -> (Box<RunState>, Option<Box<Observation<'p>>>) {
        if self.pause == Pause::Ended {
            self.scheduler.state.restore_outcome();
        }
        self.into_parts()
    }

    /// Starts the run and its first steps. Returns `true` if the run has already ended or is
    /// already suspended.
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
            self.has_ended()
        })
    }

    /// Processes the answers with which the run resumes, and the calls that were running when its
    /// process stopped.
    #[inline]
    fn resume(&mut self) {
        while let Some(command) = self.scheduler.resume(self.now) {
            self.execute(command);
        }
        self.note_limit();
    }

    /// Runs until all steps have finished, or until only questions to the user are pending. In the
    /// latter case, the state of the run contains the questions. Running steps are stopped if the
    /// deadline of the scope passes or if the plan ends the run early.
    ///
    /// The future is boxed, so that a run that has already ended in [`begin_run`](Self::begin_run)
    /// reserves no memory for it.
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

    /// Returns `true` if all steps but the finally steps have ended. The caller must then continue
    /// with [`into_finals`](Self::into_finals).
    pub(crate) fn has_finals_left(&self) -> bool {
        let state = &self.scheduler.state;
        state.asked.is_empty() && !state.is_settled() && self.scheduler.plan.grace().is_some()
    }

    /// Decides the outcome of a run whose other steps have ended, and returns the run of its
    /// finally steps. `scope` is the [scope of these steps](Scope::of_finals). `context` is their
    /// request context, or `None` to keep the context of the run.
    pub(crate) fn into_finals(self, scope: &'p Scope, context: Option<&'p Context>) -> Self {
        let Self { mut branch_parts, caller, begun, scheduler, cancelled, saving, .. } = self;
        if let Some(context) = context {
            branch_parts = context.branch_parts();
        }
        let context = context.unwrap_or(self.context);
        let Scheduler { plan, mut state, effects, .. } = scheduler;
        state.settle();
        let now = Instant::now().saturating_duration_since(begun);
        let settings = settings(plan, context, scope, &caller, false, begun, now);
        let mut watching = effects.watching;
        if let Some(watching) = &mut watching {
            watching.continue_run();
        }
        let effects = RunEffects {
            branches: Branches::new(false),
            progress: progress(plan, context, scope, &state),
            watching,
        };
        let scheduler = Scheduler::new(plan, state, settings, effects);
        let pause = Pause::Yield;
        let has_cancelled = false;
        let mut finals = Self {
            scheduler,
            context,
            branch_parts,
            scope,
            caller,
            begun,
            now,
            pause,
            cancelled,
            has_cancelled,
            saving: None,
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

    /// Reads the clock. Returns the time since the start of the run, without its suspensions.
    fn read_clock(&mut self) -> Duration {
        self.now = Instant::now().saturating_duration_since(self.begun);
        self.now
    }

    /// Executes the commands of the scheduler until the run pauses.
    fn advance(&mut self) {
        loop {
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
            if let Some(watching) = &mut self.scheduler.effects.watching {
                let (watched, suspended) = watching.put_away();
                (state.watched, state.suspended) = (Some(watched), suspended);
            }
        }
    }

    /// Ends the run early if a limit of this run or of an outer run was reached.
    fn note_limit(&mut self) {
        let reached = self.scope.reached();
        self.scheduler.reach(reached, self.now);
    }

    /// Cancels the steps of the run after the client's call was cancelled.
    fn cancel(&mut self) {
        self.has_cancelled = true;
        let cancelled = self.scheduler.cancel(self.now);
        self.execute(cancelled);
    }

    /// Waits for branches and deadlines until the run has ended or is suspended.
    async fn wait(&mut self) {
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

    /// Records the outcomes of all branches that have already ended, and does not wait for the
    /// others. The recorded branches are in time, even if their deadlines have passed in the
    /// meantime.
    async fn collect(&mut self) {
        while !self.scheduler.is_over() {
            let branches = &mut self.scheduler.effects.branches;
            let next = poll_fn(|cx| Poll::Ready(branches.poll_next(cx))).await;
            let Poll::Ready((id, end)) = next else { return };
            self.read_clock();
            self.handle_returned(id, end);
        }
    }

    /// Processes all points in time up to `due`: sends a heartbeat if one is due, times out
    /// attempts, and marks retries as due when their delay has passed.
    fn pass(&mut self, due: Instant) {
        self.note_limit();
        let running = self.scheduler.running();
        if let Some(progress) = &mut self.scheduler.effects.progress {
            progress.beat(running, self.begun + self.now);
        }
        self.scheduler.pass(due.saturating_duration_since(self.begun), self.now);
    }

    /// Returns the next event: a branch that has ended, or a deadline that has passed. Branches are
    /// polled before the timer, so that a branch that ends exactly at its deadline is still in
    /// time.
    fn poll_next(
        &mut self,
        mut timer: Pin<&mut Option<Sleep>>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Next> {
        if self.must_cancel() {
            return Poll::Ready(Next::Cancelled);
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

    /// Returns the time until which the run waits if no branch ends: the earliest deadline of a
    /// call or of the run, or the time of the next retry or heartbeat.
    fn due(&self) -> Instant {
        let beat = self.scheduler.effects.progress.as_deref().and_then(RunProgress::due);
        let due = after(self.begun, self.scheduler.due()).min(self.scope.deadline);
        beat.map_or(due, |beat| beat.min(due))
    }
}

/// Returns the progress of a run that starts or resumes. Returns `None` if the client receives no
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

/// Returns the scheduler settings of a run that started at `begun`. `now` is the duration since
/// then. `was_running` is `true` if the run continues after its process has stopped.
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
            started_unix_ms: unix_ms().saturating_sub(milliseconds(now)),
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
        seed: if plan.has_retries { fastrand::u64(..) } else { 0 },
        asking: may_ask.then(asking),
        repeatable,
    }
}

/// Returns the indexes of the call sites whose tools may be called again if it is unknown whether
/// they were called.
fn repeatable(plan: &Plan, caller: &impl Caller) -> Vec<usize> {
    let sites = plan.sites().map(|site| site.site);
    sites.filter(|&site| caller.is_repeatable(site)).collect()
}
