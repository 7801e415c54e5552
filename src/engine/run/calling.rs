//! The calls of a run, from the first attempt to their outcome.

use std::{
    future::ready,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context as TaskContext, Waker},
    time::Duration,
};

use futures::FutureExt;
use rmcp::model::JsonObject;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::{Ended, Run, panicked};
use crate::{
    engine::{
        attempts::{Attempts, Times},
        branches::{self, BranchId, Lost},
        caller::{Call, Called, Caller, FirstPoll, ToolReply},
        outcome::{ErrorKind, Outcome, StepError},
        plan::{Action, CallSite},
    },
    message::Context,
    random,
};

/// The time that preparing arguments may take before the task yields.
pub(crate) const LONG: Duration = Duration::from_millis(1);

/// Returns the id of a run nested at this place of another. Retries of the step get the same id, so
/// that it can serve as an idempotency key.
fn nested_id(id: &str, BranchId { step, element }: BranchId) -> String {
    let digest = Sha256::digest(format!("{id}/{step}/{element}"));
    random::hex(&digest[..16])
}

/// Returns the end of a branch whose tool answered `at` this time.
fn ended(called: Called, times: Times, at: Instant) -> Ended {
    Ended::Outcome(match called {
        Ok(ToolReply::Asks(questions)) => return Ended::Asks(questions),
        Ok(ToolReply::Result(result)) => times.outcome(Ok(result), at),
        Err(error) => times.outcome(Err(error), at),
    })
}

// === impl Run ===

impl<'p, C: Caller> Run<'p, C> {
    /// Begins a call, if its tool can be called.
    pub(super) fn call(
        &mut self,
        id: BranchId,
        site: &'p CallSite,
        arguments: JsonObject,
        now: Instant,
    ) -> Result<(), StepError> {
        if self.plan.is_direct(id.step)
            && self.watching.is_none()
            && self.branches.polls_here(&site.hint)
            && !self.caller.is_nested(site.site)
        {
            return self.call_here(id, site, arguments, now);
        }
        let arguments = self.prepare(site.site, arguments)?;
        let step = &self.plan.steps()[id.step];
        let mut call = Attempts::new(id, site, arguments, step.timeout, step.retry, now);
        self.attempt(&mut call, now)?;
        self.keep_call(call);
        Ok(())
    }

    /// Calls the tool of a step and polls the call once; if the call ends, the step ends too.
    ///
    /// Only a call that waits needs the state that other parts of the run keep for it: an entry
    /// among the calls, a clone of the scope, a task and a timer.
    fn call_here(
        &mut self,
        id: BranchId,
        site: &'p CallSite,
        arguments: JsonObject,
        now: Instant,
    ) -> Result<(), StepError> {
        let arguments = self.caller.prepare(site.site, arguments)?;
        self.scope.count_call()?;
        let mut cx = TaskContext::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // Created inside the closure, since it would be moved with it.
            let mut context = self.branch_context(id);
            context.call_within(&Span::none());
            self.caller.call_here(site, arguments, context, self.scope, &mut cx)
        }));
        let polled = polled.unwrap_or_else(|_| FirstPoll::Ended(Err(panicked())));
        self.now = Instant::now();
        let took = self.now - now;
        if took > branches::LONG {
            site.hint.note_long();
            if !self.branches.note_long() || took > LONG {
                self.left = 0;
            }
        }
        let times = Times { run: self.begun, step: now };
        let waiting = || {
            let timeout = self.plan.steps()[id.step].timeout;
            let mut call = Attempts::new(id, site, JsonObject::new(), timeout, None, now);
            let _ = call.begin(now);
            call
        };
        match polled {
            FirstPoll::Ended(called) => {
                site.hint.note_end();
                self.note_limit();
                match ended(called, times, self.now) {
                    Ended::Outcome(mut outcome) => {
                        if self.plan.steps()[id.step].parse_json {
                            outcome.parse(self.scope);
                        }
                        self.finish(id.step, outcome);
                    }
                    Ended::Asks(questions) => {
                        self.keep_call(waiting());
                        self.wait_for_answers(id, *questions);
                    }
                }
            }
            FirstPoll::Waits(called) => {
                site.hint.note_wait();
                self.keep_call(waiting());
                let called = called.map(move |called| ended(called, times, Instant::now()));
                self.branches.resume(id, called);
            }
        }
        Ok(())
    }

    /// Prepares arguments for their tool. If that takes long, the task yields before the next step
    /// or element starts.
    pub(super) fn prepare(
        &mut self,
        site: usize,
        arguments: JsonObject,
    ) -> Result<JsonObject, StepError> {
        let begun = Instant::now();
        let prepared = self.caller.prepare(site, arguments);
        if begun.elapsed() > LONG {
            self.left = 0;
        }
        prepared
    }

    /// Makes one attempt of a call.
    pub(super) fn attempt(
        &mut self,
        call: &mut Attempts<'p>,
        now: Instant,
    ) -> Result<(), StepError> {
        self.scope.count_call()?;
        let (arguments, answered) = call.begin(now);
        let mut context = self.branch_context(call.id);
        let (site, tool) = (call.site.site, call.site.tool.clone());
        let mut scope = self.scope.clone();
        let is_nested = self.caller.is_nested(site);
        scope.run_id = match &self.state.id {
            Some(id) if is_nested => Some(nested_id(id, call.id).into()),
            _ => None,
        };
        let mut span = Span::none();
        if let Some(watching) = &mut self.watching {
            let (attempt, after) = (call.count, call.failed_before());
            let place = watching.attempt(call.id, &tool, attempt, after, &arguments);
            if !is_nested {
                let contents = context.is_traced_with_contents().then_some(&arguments);
                span = watching.call(&place, &tool, attempt, contents);
            }
            scope.place = Some(Arc::new(place));
        }
        // The calls of a nested run propagate their own spans.
        if !is_nested {
            context.call_within(&span);
        }
        let made = Call { site, tool, arguments, context, scope, answered };
        let times = call.times(self.begun);
        let hint = &call.site.hint;
        // The future is created here, and not in the task of the branch.
        match catch_unwind(AssertUnwindSafe(|| span.in_scope(|| self.caller.call(made)))) {
            Ok(called) => {
                // `map` and not `async`, which would reserve memory for the call twice.
                let called = called.map(move |called| ended(called, times, Instant::now()));
                if span.is_none() {
                    self.branches.start(call.id, hint, called);
                } else {
                    self.branches.start(call.id, hint, called.instrument(span));
                }
            }
            Err(_) => {
                let panicked = ended(Err(panicked()), times, Instant::now());
                self.branches.start(call.id, hint, ready(panicked));
            }
        }
        Ok(())
    }

    fn branch_context(&self, BranchId { step, element }: BranchId) -> Context {
        let (id, account) = (&self.plan.steps()[step].id, self.scope.account());
        match self.loops.iter().find(|each| each.step == step) {
            Some(each) => each.context(id, element, (self.context, &self.branch_parts), account),
            None => {
                let progress = self.progress_of(step);
                self.context.branch_charged(&self.branch_parts, id.clone(), progress, account)
            }
        }
    }

    /// Handles the end of a branch.
    pub(super) fn handle_returned(&mut self, id: BranchId, end: Result<Ended, Lost>) {
        self.note_limit();
        let outcome = match end {
            Ok(Ended::Outcome(outcome)) => outcome,
            Ok(Ended::Asks(questions)) => return self.wait_for_answers(id, *questions),
            Err(lost) => {
                let error = match lost {
                    Lost::Panicked => panicked(),
                    Lost::Stopped => StepError::new(ErrorKind::Service, "the server shuts down"),
                };
                let Some(call) = self.calls.iter().find(|call| call.id == id) else { return };
                call.times(self.begun).outcome(Err(error), Instant::now())
            }
        };
        self.end_attempt(id, outcome);
    }

    /// Handles a deadline: sends a heartbeat, begins the next attempt of a call, or ends a call
    /// that has timed out.
    pub(super) fn act(&mut self, due: Instant) {
        let now = Instant::now();
        self.note_limit();
        if let Some(progress) = &mut self.progress {
            progress.beat(self.running, now);
        }
        let mut ids: Vec<_> =
            self.calls.iter().filter(|call| call.due <= due).map(|call| call.id).collect();
        // In the order of the plan, whichever began last.
        ids.sort_unstable();
        for id in ids {
            let Some(place) = self.calls.iter().position(|call| call.id == id) else { continue };
            if !self.calls[place].is_waiting() {
                self.branches.abort(id);
                let outcome = self.calls[place].late(self.begun, now);
                self.end_attempt(id, outcome);
            } else if !self.is_over() {
                let mut call = self.calls.swap_remove(place);
                match self.attempt(&mut call, now) {
                    Ok(()) => self.keep_call(call),
                    Err(error) => {
                        self.note_limit();
                        self.give_up(&call, error, now);
                    }
                }
            }
        }
    }

    /// Stores a call that waits.
    pub(super) fn keep_call(&mut self, call: Attempts<'p>) {
        self.note_due(call.due);
        self.calls.push(call);
    }

    /// Updates the earliest deadline.
    fn note_due(&mut self, due: Instant) {
        self.soonest = Some(self.soonest.map_or(due, |soonest| soonest.min(due)));
    }

    /// Handles the end of an attempt: the call waits for the next attempt or ends.
    fn end_attempt(&mut self, id: BranchId, mut outcome: Outcome) {
        let Some(place) = self.calls.iter().position(|call| call.id == id) else { return };
        if let Some(watching) = &mut self.watching {
            watching.end_call(id, &outcome, self.context.is_traced_with_contents());
        }
        let step = &self.plan.steps()[id.step];
        if step.parse_json {
            outcome.parse(self.scope);
        }
        let now = Instant::now();
        let waits = step.retry.is_some() && self.calls[place].wait(&mut outcome, now);
        if waits {
            self.note_due(self.calls[place].due);
        }
        if waits && self.state.reached.is_none() {
            return;
        }
        let call = self.calls.swap_remove(place);
        if waits && let Some(why) = self.why_ended() {
            return self.give_up(&call, why, now);
        }
        self.end_call(&call, outcome);
    }

    /// Ends a call that waits for its next attempt without making it.
    pub(super) fn give_up(&mut self, call: &Attempts<'p>, why: StepError, now: Instant) {
        let outcome = call.times(self.begun).outcome(Err(call.not_again(why)), now);
        self.end_call(call, outcome);
    }

    /// Handles the end of a call, which also ends its step unless the step is a loop.
    fn end_call(&mut self, call: &Attempts<'p>, mut outcome: Outcome) {
        let id = call.id;
        outcome.attempts = call.count;
        self.end_branch(id, call.site, outcome);
    }

    /// Handles the end of a step, or of an element of its loop.
    pub(super) fn end_branch(&mut self, id: BranchId, site: &CallSite, mut outcome: Outcome) {
        outcome.site = self.chosen(id.step, site);
        if self.loops.iter().any(|each| each.step == id.step) {
            self.end_element(id, outcome);
            self.advance(id.step);
        } else {
            self.finish(id.step, outcome);
        }
    }

    /// Returns the called site of a step that has several.
    pub(super) fn chosen(&self, step: usize, site: &CallSite) -> Option<usize> {
        let action = &self.plan.steps()[step].action;
        matches!(action, Action::Switch(_)).then_some(site.site)
    }

    /// Aborts all calls of a step and returns the number of their attempts.
    pub(super) fn drop_calls(&mut self, step: usize) -> u32 {
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
}
