//! Reports the events of a run to observers, and records tracing spans and metrics of the run.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::model::{CallToolResult, JsonObject};
use tokio::time::Instant;
use tracing::Span;

use super::{
    branches::BranchId,
    meter::LimitName,
    outcome::{Outcome, Status},
    plan::Plan,
};
use crate::{
    message::Context,
    mutex::lock,
    observe::{Branch, Event, Observers, Parent, RunHandle, RunId, What},
    spans::{self, End},
};

/// Observes a run of a composite: reports its events to observers, and records its tracing spans
/// and metrics.
pub(crate) struct Observation<'p> {
    plan: &'p Plan,
    observed: ObservedRun,
    /// If `true`, the run is ending and starts no further steps. Such steps are reported as skipped
    /// with the reason `ended`.
    is_ending: bool,
    /// If `true`, the tracing spans contain the results of tools.
    traces_contents: bool,
}

/// The observers of a run, and the data for their events and for metrics.
///
/// If an `ObservedRun` is dropped while its run is running or suspended, it reports that the run
/// was dropped.
struct ObservedRun {
    phase: Phase,
    observers: Observers,
    run: RunId,
    handle: RunHandle,
    name: Arc<str>,
    /// The step of the outer run that called this run. `None` if the run is not nested, or if its
    /// outer run is not observed.
    place: Option<Arc<BranchPlace>>,
    /// The view that the client used, such as `/team-a`: a path of the server with composites and
    /// layers of its own. `None` if the client used no view.
    view: Option<Arc<str>>,
    /// The name of the task. `None` if the run is nested or does not belong to a task.
    task: Option<Arc<str>>,
    begun: Instant,
    /// The time for which the run ran before its suspension. `None` if the run is not suspended.
    suspended_after: Option<Duration>,
    span: Span,
    metrics: bool,
    /// The running steps and loop elements.
    open: Vec<Open>,
}

/// The observation of a suspended run, which waits for the user's answers. Exists only while the
/// state of the run is in the memory of this process.
///
/// Clones refer to the same run. If the last clone is dropped before [`release`](Self::release),
/// observers receive the event that the run was dropped.
#[derive(Clone, Default)]
pub(super) struct Suspended(Option<Arc<Mutex<Option<ObservedRun>>>>);

/// A running step or loop element.
struct Open {
    place: BranchPlace,
    /// The start of the branch, as a duration since the start of the run.
    started: Duration,
    /// The number of tool calls of the branch so far.
    attempts: u32,
    /// The running call of the branch to a tool of a server. `None` between calls, and while the
    /// branch calls another composite.
    call: Option<OpenCall>,
    /// The cache sets this flag to `true` when it answers the last call of the branch. `None`
    /// before the first call.
    cached: Option<Arc<AtomicBool>>,
}

/// A running call to a tool of a server. If it is dropped before the call ends, the call is
/// reported as cancelled.
struct OpenCall {
    tool: Arc<str>,
    begun: Instant,
    span: Span,
    metrics: bool,
    view: Option<Arc<str>>,
    has_ended: bool,
}

/// A step or loop element of a run. `id` is the name of the step. `element` is the index of the
/// loop element, or `None` if the step is not a loop.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BranchPlace {
    run: RunId,
    id: Arc<str>,
    element: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The run has not started, or it was suspended and has not resumed.
    Before {
        was_put_away: bool,
    },
    /// The run is running, or it is suspended in the memory of this process.
    Running,
    Over,
}

// === impl Observation ===

impl<'p> Observation<'p> {
    /// Creates the observation of a run. If the run resumes, `known_by` is its ID in earlier
    /// events. If the run is nested, `place` is the step of the outer run that calls it. Both are
    /// otherwise `None`. Returns `None` if nothing observes the run: no observers, logs, spans or
    /// metrics.
    pub(super) fn new(
        plan: &'p Plan,
        known_by: Option<u64>,
        context: &Context,
        observers: &Observers,
        place: Option<&Arc<BranchPlace>>,
        begun: Instant,
    ) -> Option<Box<Self>> {
        if !observers.are_there() && !context.is_measured() {
            return None;
        }
        let run = RunId(known_by.unwrap_or_else(|| fastrand::u64(..)));
        let view = context.view().cloned();
        let span = spans::run(&plan.name, run, place.map(|place| place.branch()), view.as_deref());
        // The span of a nested run is inside the span of the outer run.
        if place.is_none() {
            context.continue_trace_in_run(&span);
        }
        let observed = ObservedRun {
            phase: Phase::Before { was_put_away: false },
            observers: observers.clone(),
            run,
            handle: RunHandle::new(run),
            name: plan.name.clone(),
            place: place.cloned(),
            view,
            task: context.task_name().filter(|_| place.is_none()),
            begun,
            suspended_after: None,
            span,
            metrics: context.is_measured(),
            open: Vec::new(),
        };
        let traces_contents = context.is_traced_with_contents();
        Some(Box::new(Self { plan, observed, is_ending: false, traces_contents }))
    }

    pub(super) const fn id(&self) -> u64 {
        self.observed.run.0
    }

    /// Records that the run resumes after a suspension. [`begin`](Self::begin) then reports it as
    /// resumed instead of started.
    pub(super) const fn resume(&mut self) {
        self.observed.phase = Phase::Before { was_put_away: true };
    }

    /// Adds a branch of a resuming run: a step or loop element that was waiting for the user's
    /// answers when the run was suspended.
    pub(super) fn resume_branch(&mut self, id: BranchId, started_ms: u64, attempts: u32) {
        self.resume();
        self.push(self.place_of(id), started_ms, attempts);
    }

    /// Adds a loop of a resuming run, which had started before the run was suspended.
    pub(super) fn resume_loop(&mut self, step: usize, started_ms: u64, attempts: u32) {
        self.push(self.place(step, None), started_ms, attempts);
    }

    fn push(&mut self, place: BranchPlace, started_ms: u64, attempts: u32) {
        let started = Duration::from_millis(started_ms);
        self.observed.open.push(Open { place, started, attempts, call: None, cached: None });
    }

    /// Returns the tracing span of the run. The span is disabled unless a `tracing` subscriber
    /// enables it.
    pub(super) const fn span(&self) -> &Span {
        &self.observed.span
    }

    /// Returns the handle with which observers can cancel the run. Returns `None` without
    /// observers.
    pub(super) fn handle(&self) -> Option<&RunHandle> {
        self.observed.observers.is_some().then_some(&self.observed.handle)
    }

    /// Reports that the run has started or resumed. Does nothing if this was already reported.
    pub(super) fn begin(&mut self, arguments: Option<&JsonObject>) {
        let before = mem::replace(&mut self.observed.phase, Phase::Running);
        let Phase::Before { was_put_away } = before else { return };
        self.notify(if was_put_away { What::RunResumed } else { What::RunStarted { arguments } });
    }

    /// Reports that a loop or a step that asks a question has started. For a step that calls a
    /// tool, [`attempt`](Self::attempt) reports the start instead.
    pub(super) fn begin_step(&mut self, step: usize) {
        self.open(self.place(step, None));
    }

    /// Reports an attempt to call the tool of a branch, and the start of the branch before its
    /// first attempt. Returns the place of the branch.
    pub(super) fn attempt(
        &mut self,
        id: BranchId,
        tool: &str,
        attempt: u32,
        after: Option<&'static str>,
        arguments: &JsonObject,
    ) -> BranchPlace {
        let place = self.open(self.place_of(id));
        if let Some(open) = self.observed.open_mut(&place) {
            open.attempts = attempt;
        }
        let branch = place.branch();
        self.notify(What::Attempt { branch, tool, attempt, after, arguments: Some(arguments) });
        place
    }

    /// Records a call to a tool of a server, and returns the tracing span of the call. Calls to
    /// other composites are not recorded.
    pub(super) fn call(
        &mut self,
        place: &BranchPlace,
        tool: &Arc<str>,
        attempt: u32,
        arguments: Option<&JsonObject>,
    ) -> Span {
        let span = spans::call(tool, place.branch(), attempt, arguments);
        let (metrics, view) = (self.observed.metrics, self.observed.view.clone());
        if let Some(open) = self.observed.open_mut(place) {
            let (tool, begun, span) = (tool.clone(), Instant::now(), span.clone());
            open.call = Some(OpenCall { tool, begun, span, metrics, view, has_ended: false });
        }
        span
    }

    /// Returns a new flag for the next call of the branch to a server. The cache sets the flag to
    /// `true` if it answers this call. Returns `None` if the crate is built without the cache.
    pub(super) fn cached(&mut self, place: &BranchPlace) -> Option<Arc<AtomicBool>> {
        if cfg!(not(feature = "cache")) {
            return None;
        }
        let open = self.observed.open_mut(place)?;
        Some(open.cached.insert(Arc::default()).clone())
    }

    /// Records the outcome of a call to a server, and ends its tracing span. Does nothing if the
    /// branch has no such call.
    pub(super) fn end_call(&mut self, id: BranchId, outcome: &Outcome) {
        let Some(call) = self.take_call(id) else { return };
        if self.traces_contents
            && let Some(result) = &outcome.result
        {
            spans::record_result(&call.span, result);
        }
        call.end(&outcome.end());
    }

    /// Reports that a branch waits for the user's answers to questions.
    pub(super) fn wait(&mut self, id: BranchId) {
        if let Some(call) = self.take_call(id) {
            call.end(&End::SUSPENDED);
        }
        self.notify(What::BranchWaiting { branch: self.place_of(id).branch() });
    }

    /// Reports that a step has ended or was skipped. `limit` is the name of the limit that ended
    /// the run, such as `max_calls`, or `None`.
    pub(super) fn end_step(&mut self, step: usize, outcome: &Outcome, limit: LimitName) {
        // Elements of the loop that are still running were aborted.
        let id = &self.plan.steps()[step].id;
        let is_element = |open: &mut Open| open.place.id == *id && open.place.element.is_some();
        for open in self.observed.open.extract_if(.., is_element).collect::<Vec<_>>() {
            self.observed.cancelled(&open);
        }
        self.end(&self.place(step, None), outcome, limit);
    }

    /// Reports that a loop element has ended. `limit` is the name of the limit that ended the run,
    /// such as `max_calls`, or `None`.
    pub(super) fn end_element(&mut self, id: BranchId, outcome: &Outcome, limit: LimitName) {
        self.end(&self.place(id.step, Some(id.element)), outcome, limit);
    }

    /// Reports that a loop element was skipped. `limit` is the name of the limit that ended the
    /// run, such as `max_calls`, or `None`.
    pub(super) fn skip_element(&self, id: BranchId, limit: LimitName) {
        let place = self.place(id.step, Some(id.element));
        let reason = self.reason(limit);
        self.notify(What::BranchSkipped { branch: place.branch(), reason });
    }

    /// Records that the run is ending. Skipped steps are then reported with the reason `ended`.
    pub(super) const fn end_run(&mut self) {
        self.is_ending = true;
    }

    /// Records that the finally steps of the run start, after all other steps have ended.
    pub(super) const fn continue_run(&mut self) {
        self.is_ending = false;
    }

    /// Reports that the run is suspended until the user has answered its questions. Returns the ID
    /// of the run in events, and the observation to store in the state of the run. If the run never
    /// resumes, dropping the observation reports that the run was dropped.
    pub(super) fn put_away(self) -> (u64, Suspended) {
        let mut observed = self.observed;
        observed.notify(What::RunSuspended);
        End::SUSPENDED.record(&observed.span);
        // The run gets a new span when it resumes.
        observed.span = Span::none();
        observed.suspended_after = Some(observed.took());
        (observed.run.0, Suspended(Some(Arc::new(Mutex::new(Some(observed))))))
    }

    /// Reports that the run has ended with `result`. `limit` is the name of the limit that ended
    /// the run, such as `max_calls`, or `None`.
    pub(crate) fn finish(&mut self, result: &CallToolResult, limit: LimitName) {
        if mem::replace(&mut self.observed.phase, Phase::Over) == Phase::Running {
            let took = self.observed.took();
            let is_error = result.is_error == Some(true);
            self.notify(What::RunFinished { is_error, limit, took, result: Some(result) });
            self.observed.span.record("mcp_composite.limit", limit);
            End::of_result(is_error).record(&self.observed.span);
        }
    }

    fn end(&mut self, place: &BranchPlace, outcome: &Outcome, limit: LimitName) {
        let branch = place.branch();
        let is_open = self.observed.open_mut(place).is_some();
        if !is_open && outcome.status == Status::Skipped {
            let reason = self.reason(limit);
            return self.notify(What::BranchSkipped { branch, reason });
        }
        // If a step fails before its first tool call, its start was not reported yet.
        if !is_open {
            self.notify(What::BranchStarted { branch });
        }
        let is_it = |open: &mut Open| open.place == *place;
        let mut cached = false;
        for open in self.observed.open.extract_if(.., is_it) {
            cached |= open.cached.is_some_and(|cached| cached.load(Ordering::Relaxed));
            if let Some(call) = open.call {
                call.end(&outcome.end());
            }
        }
        self.notify(What::BranchFinished {
            branch,
            status: outcome.status.name(),
            error: outcome.error.as_ref().map(|error| error.kind.name()),
            attempts: outcome.attempts,
            cached,
            started: Duration::from_millis(outcome.started_ms),
            took: Duration::from_millis(outcome.duration_ms),
            result: outcome.result.as_deref(),
        });
    }

    /// Reports that a step or loop element has started, unless this was already reported.
    fn open(&mut self, place: BranchPlace) -> BranchPlace {
        if self.observed.open_mut(&place).is_none() {
            let started = self.observed.took();
            let (call, cached) = (None, None);
            let open = Open { place: place.clone(), started, attempts: 0, call, cached };
            self.observed.open.push(open);
            self.notify(What::BranchStarted { branch: place.branch() });
        }
        place
    }

    /// Returns the reason why a step or loop element is skipped. The reason is a limit such as
    /// `max_calls`, `ended` if the run has ended otherwise, or `condition` if a condition is false.
    const fn reason(&self, limit: LimitName) -> &'static str {
        match limit {
            // After a limit was reached, conditions are not evaluated, so the limit is the only
            // reason.
            Some(limit) => limit,
            None if self.is_ending => "ended",
            None => "condition",
        }
    }

    fn take_call(&mut self, id: BranchId) -> Option<OpenCall> {
        let place = self.place_of(id);
        self.observed.open_mut(&place)?.call.take()
    }

    fn place_of(&self, BranchId { step, element }: BranchId) -> BranchPlace {
        self.place(step, self.plan.steps()[step].is_loop().then_some(element))
    }

    fn place(&self, step: usize, element: Option<usize>) -> BranchPlace {
        BranchPlace { run: self.observed.run, id: self.plan.steps()[step].id.clone(), element }
    }

    fn notify(&self, what: What<'_>) {
        self.observed.notify(what);
    }
}

// === impl ObservedRun ===

impl ObservedRun {
    /// Returns the running branch at a place. Returns `None` if it has not started or has ended.
    fn open_mut(&mut self, place: &BranchPlace) -> Option<&mut Open> {
        self.open.iter_mut().find(|open| open.place == *place)
    }

    /// Reports all running branches as cancelled, and the run as dropped.
    fn end_all(&mut self) {
        // In reverse order of their start, so that loop elements end before their loops.
        for open in mem::take(&mut self.open).iter().rev() {
            self.cancelled(open);
        }
        self.notify(What::RunDropped { took: self.took() });
        End::CANCELLED.record(&self.span);
    }

    fn cancelled(&self, &Open { ref place, started, attempts, .. }: &Open) {
        self.notify(What::BranchFinished {
            branch: place.branch(),
            status: Status::Cancelled.name(),
            error: None,
            attempts,
            cached: false,
            started,
            took: self.took().saturating_sub(started),
            result: None,
        });
    }

    /// Returns the time for which the run has been running, without its suspension.
    fn took(&self) -> Duration {
        let until_now = || Instant::now().saturating_duration_since(self.begun);
        self.suspended_after.unwrap_or_else(until_now)
    }

    fn notify(&self, what: What<'_>) {
        let parent = self.place.as_deref();
        let parent = parent.map(|place| Parent { run: place.run, branch: place.branch() });
        let (view, task) = (self.view.as_deref(), self.task.as_deref());
        let (run, handle) = (self.run, &self.handle);
        let event = Event { run, handle, parent, composite: &self.name, view, task, what };
        self.span.in_scope(|| self.observers.notify(&event));
        if self.metrics {
            crate::metrics::happened(&event);
        }
    }
}

impl Drop for ObservedRun {
    fn drop(&mut self) {
        if self.phase == Phase::Running {
            self.end_all();
        }
    }
}

// === impl OpenCall ===

impl OpenCall {
    fn end(mut self, end: &End) {
        self.notify(end);
        self.has_ended = true;
    }

    fn notify(&self, end: &End) {
        end.record(&self.span);
        if self.metrics {
            crate::metrics::called(&self.tool, end, self.begun.elapsed(), self.view.as_deref());
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if !self.has_ended {
            self.notify(&End::CANCELLED);
        }
    }
}

// === impl Suspended ===

impl Suspended {
    /// Removes the observation, so that dropping it no longer reports the run as dropped. Called
    /// when the run resumes, or when a store takes over its state.
    pub(super) fn release(&mut self) {
        let Some(run) = self.0.take() else { return };
        let observed = lock(&run).take();
        if let Some(mut observed) = observed {
            observed.phase = Phase::Over;
        }
    }
}

/// Two observations are equal if they are clones of each other, or if both are empty.
impl PartialEq for Suspended {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

impl fmt::Debug for Suspended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Suspended").field(&self.0.is_some()).finish()
    }
}

// === impl BranchPlace ===

impl BranchPlace {
    fn branch(&self) -> Branch<'_> {
        Branch { id: &self.id, element: self.element }
    }
}
