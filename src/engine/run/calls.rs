//! Makes the tool calls of a run. Creates their futures, tracing spans and nested scopes.

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

use super::{Run, effects::Ended};
use crate::{
    engine::{
        branches::{self, BranchId, Lost},
        caller::{Call, Called, Caller, FirstPoll},
        outcome::{ErrorKind, StepError},
        scheduler::{Attempt, Effects as _, NewCall},
    },
    message::{BranchName, Context},
    random,
};

/// If preparing the arguments of a tool call takes longer than this, the run yields to other tasks
/// before it starts the next step.
pub(crate) const LONG: Duration = Duration::from_millis(1);

/// Returns the ID of a nested run. It is derived from the ID of the outer run and the branch that
/// calls the nested run. Retries get the same ID, so that servers can use it as an idempotency key.
fn nested_id(id: &str, BranchId { step, element }: BranchId) -> String {
    let digest = Sha256::digest(format!("{id}/{step}/{element}"));
    random::hex(&digest[..16])
}

/// Converts the reply of a tool to the end of its branch, like [`Ended::of`]. The call ends now.
/// `run` is the start of the run, and `begun` is the duration from there to the start of the call.
fn ended_now(called: Called, begun: Duration, run: Instant) -> Ended {
    Ended::of(begun, called, Instant::now().saturating_duration_since(run))
}

// === impl Run ===

impl<'p, C: Caller> Run<'p, C> {
    /// Prepares the arguments of a tool call and makes its first attempt. Rejects the call if the
    /// arguments are invalid or a limit is exceeded.
    pub(super) fn call(&mut self, call: NewCall<'p>, arguments: JsonObject) {
        let begun = self.now;
        let prepared = self.caller.prepare(call.site.site, arguments);
        let counted = prepared.and_then(|arguments| self.scope.count_call().map(|()| arguments));
        match counted {
            Ok(arguments) if self.polls_here(&call) => self.call_here(call, arguments),
            counted => {
                if self.read_clock().saturating_sub(begun) > LONG {
                    self.scheduler.yield_next();
                }
                match counted {
                    Ok(arguments) => {
                        let attempt = self.scheduler.begin_call(call, arguments, begun);
                        self.attempt(attempt);
                    }
                    Err(error) => {
                        let reached = self.scope.reached();
                        self.scheduler.reject_call(call, error, reached, begun);
                    }
                }
            }
        }
    }

    /// Returns `true` if the call can be polled immediately, before it is added to the branches of
    /// the run.
    #[inline]
    fn polls_here(&self, call: &NewCall<'_>) -> bool {
        let effects = &self.scheduler.effects;
        self.scheduler.plan.is_direct(call.id.step)
            && !call.is_resumed()
            && effects.watching.is_none()
            && self.saving.is_none()
            && effects.journaled.is_none()
            && effects.branches.polls_here(&call.site.hint)
            && !self.caller.is_nested(call.site.site)
    }

    pub(super) fn retry(&mut self, id: BranchId) {
        if let Err(error) = self.scope.count_call() {
            let reached = self.scope.reached();
            return self.scheduler.reject_retry(id, error, reached, self.now);
        }
        if let Some(attempt) = self.scheduler.begin_retry(id, self.now) {
            self.attempt(attempt);
        }
    }

    /// Starts a tool call and polls it once. If the call ends at this poll, its step or loop
    /// element ends too. Otherwise, adds the call to the branches of the run.
    ///
    /// Calls that end at their first poll are cheap, such as calls to tools in the same process.
    /// They need no entry in the list of pending calls, no clone of the scope, no task and no
    /// timer.
    #[inline]
    fn call_here(&mut self, call: NewCall<'p>, arguments: JsonObject) {
        let (id, site, begun) = (call.id, call.site, self.now);
        let mut cx = TaskContext::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // The context is created inside the closure, because creating it outside would move it
            // into the closure.
            let mut context = self.branch_context(id);
            context.call_within(&Span::none());
            self.caller.call_here(site, arguments, context, self.scope, &mut cx)
        }));
        let polled = polled.unwrap_or_else(|_| FirstPoll::Ended(Err(StepError::panicked())));
        let took = self.read_clock().saturating_sub(begun);
        if took > branches::LONG {
            site.hint.note_long();
            if !self.scheduler.effects.branches.note_long() || took > LONG {
                self.scheduler.yield_next();
            }
        }
        match polled {
            FirstPoll::Ended(called) => {
                site.hint.note_end();
                self.note_limit();
                match Ended::of(begun, called, self.now) {
                    Ended::Outcome(mut outcome) => {
                        if let Some(format) = site.parse {
                            outcome.parse(format, self.scope);
                        }
                        self.scheduler.end_direct(id, outcome, self.now);
                    }
                    Ended::Asks(questions) => {
                        self.scheduler.begin_call(call, JsonObject::new(), begun);
                        self.scheduler.wait_for_answers(id, *questions);
                    }
                }
            }
            FirstPoll::Waits(called) => {
                site.hint.note_wait();
                self.scheduler.begin_call(call, JsonObject::new(), begun);
                let run = self.begun;
                let called = called.map(move |called| ended_now(called, begun, run));
                self.scheduler.effects.branches.resume(id, called);
            }
        }
    }

    fn attempt(&mut self, attempt: Attempt<'p>) {
        let Attempt { id, site: called_site, input: (arguments, answered), begun, count, after } =
            attempt;
        let mut context = self.branch_context(id);
        let (site, tool) = (called_site.site, called_site.tool.clone());
        let is_nested = self.caller.is_nested(site);
        let journaled = self.journaled_call(id, &tool, begun, site);
        let mut scope = match &journaled {
            Some(call) => self.scope_in_journal(call),
            None => self.scope.clone(),
        };
        scope.run_id = match &self.scheduler.state.id {
            Some(run) if is_nested => Some(nested_id(run, id).into()),
            _ => None,
        };
        let mut span = Span::none();
        if let Some(watching) = &mut self.scheduler.effects.watching {
            let without_secrets = called_site.without_secrets(&arguments);
            let visible = without_secrets.as_ref().unwrap_or(&arguments);
            let place = watching.attempt(id, &tool, count, after, visible);
            if !is_nested {
                let contents = context.is_traced_with_contents().then_some(visible);
                span = watching.call(&place, &tool, count, contents);
                context.cached = watching.cached(&place);
            }
            scope.place = Some(Arc::new(place));
        }
        // The calls that a nested run makes propagate their own spans.
        if !is_nested {
            context.call_within(&span);
        }
        let made = Call { site, tool, arguments, context, scope, answered };
        let run = self.begun;
        let hint = &called_site.hint;
        // The future is created here, and not in the task of the branch, so that the call starts
        // now.
        let called = catch_unwind(AssertUnwindSafe(|| span.in_scope(|| self.caller.call(made))));
        if let Some(call) = journaled {
            return self.call_in_journal(call, called.map(|called| called.instrument(span)).ok());
        }
        let branches = &mut self.scheduler.effects.branches;
        match called {
            Ok(called) => {
                // Uses `map`, because an `async` block would reserve memory for the call twice.
                let called = called.map(move |called| ended_now(called, begun, run));
                if span.is_none() {
                    branches.start(id, hint, called);
                } else {
                    branches.start(id, hint, called.instrument(span));
                }
            }
            Err(_) => {
                let panicked = ended_now(Err(StepError::panicked()), begun, run);
                branches.start(id, hint, ready(panicked));
            }
        }
    }

    fn branch_context(&self, id: BranchId) -> Context {
        let step = &self.scheduler.plan.steps()[id.step];
        let name = if step.is_loop() {
            BranchName::element(step.id.clone(), id.element)
        } else {
            step.id.clone().into()
        };
        let effects = &self.scheduler.effects;
        let progress = effects.progress.as_ref().map(|progress| progress.part(id));
        let journaled = effects.journaled.as_ref().map(|journaled| journaled.account());
        let account = journaled.or(self.scope.account());
        self.context.branch_charged(&self.branch_parts, name, progress, account)
    }

    /// Handles a branch that has ended: a step or loop element whose tool call has a reply.
    pub(super) fn handle_returned(&mut self, id: BranchId, end: Result<Ended, Lost>) {
        self.note_limit();
        let Some(site) = self.scheduler.site_of(id) else { return };
        let error = match end {
            Ok(Ended::Outcome(mut outcome)) => {
                self.scheduler.effects.end_attempt(id, &outcome);
                if let Some(format) = site.parse {
                    outcome.parse(format, self.scope);
                }
                return self.scheduler.end_attempt(id, outcome, self.now);
            }
            Ok(Ended::Asks(questions)) => {
                return self.scheduler.wait_for_answers(id, *questions);
            }
            Err(Lost::Panicked) => StepError::panicked(),
            Err(Lost::Stopped) => StepError::new(ErrorKind::Service, "the server is shutting down"),
        };
        self.scheduler.lose(id, error, self.now);
    }
}
