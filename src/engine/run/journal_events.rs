//! The events of a run in a durable engine.

use std::{
    sync::atomic::Ordering,
    task::{Context as TaskContext, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::{Next, Run, effects::Ended, journaled::JournaledCall};
use crate::{
    engine::{
        branches::BranchId,
        caller::{Called, Caller},
        detached::Detached,
        outcome::StepError,
        scheduler::Scheduler,
        scope::Scope,
    },
    message::journal::JournalEvent,
};

// === impl Run ===

impl<C: Caller> Run<'_, C> {
    /// Returns the current time: the time of the last event if the run has a journal.
    pub(crate) fn instant(&self) -> Instant {
        self.scheduler.effects.journaled.as_ref().map_or_else(Instant::now, |it| it.now())
    }

    /// Returns the description of a call that becomes an effect of the journal. Returns `None` if
    /// the run has no journal.
    pub(super) fn journaled_call(
        &self,
        id: BranchId,
        tool: &str,
        begun: Duration,
        site: usize,
    ) -> Option<JournaledCall> {
        let journaled = self.scheduler.effects.journaled.as_ref()?;
        let step = &self.scheduler.plan.steps()[id.step];
        let is_nested = self.caller.is_nested(site);
        Some(JournaledCall {
            id,
            name: tool.to_owned(),
            begun,
            is_nested,
            is_repeatable: step.retry_lost || self.caller.is_repeatable(site),
            detached: Detached::new(self.scope.meter(), journaled.account(), is_nested),
        })
    }

    /// Returns the scope of a call that becomes an effect of the journal.
    pub(super) fn scope_in_journal(&self, call: &JournaledCall) -> Scope {
        let journaled = self.scheduler.effects.journaled.as_ref();
        let account = journaled.map(|journaled| journaled.account());
        self.scope.detached(call.detached.meter(), account)
    }

    /// Makes a tool call an effect of the journal. `called` is `None` if the call has panicked.
    pub(super) fn call_in_journal<F>(&mut self, call: JournaledCall, called: Option<F>)
    where
        F: Future<Output = Called> + Send + 'static,
    {
        let called = async move {
            match called {
                Some(called) => called.await,
                None => Err(StepError::panicked()),
            }
        };
        let Scheduler { plan, effects, .. } = &mut self.scheduler;
        if let Some(journaled) = &mut effects.journaled {
            let step = &plan.steps()[call.id.step].id;
            journaled.start(call, called, step, self.scope.deadline);
        }
    }

    /// Returns the next event of a run with a journal.
    pub(super) fn poll_journal(&mut self, cx: &mut TaskContext<'_>) -> Poll<Next> {
        loop {
            let due = self.due();
            let Some(journaled) = &mut self.scheduler.effects.journaled else {
                return Poll::Pending;
            };
            match ready!(journaled.poll_next(due, cx)) {
                JournalEvent::Due => return Poll::Ready(Next::Due(due)),
                JournalEvent::Cancelled => {
                    if let Some(cancelled) = &self.cancelled {
                        cancelled.store(true, Ordering::Release);
                    }
                    return Poll::Ready(Next::Cancelled);
                }
                JournalEvent::Ended { effect, output } => {
                    if let Some((running, called)) = journaled.end(effect, output, self.scope) {
                        let at = self.instant().saturating_duration_since(self.begun);
                        let ended = Ended::of(running.begun, called, at);
                        return Poll::Ready(Next::Finished(running.id, Ok(ended)));
                    }
                }
                // A late answer to a question of an earlier round.
                JournalEvent::Answered { .. } => (),
            }
        }
    }
}
