//! Waits until the aborted calls of a run have ended, before the run starts other calls or answers.

use std::{
    future::poll_fn,
    task::{Context as TaskContext, Poll, ready},
    time::Duration,
};

use tokio::time::timeout;

use super::Run;
use crate::engine::{
    caller::Caller,
    outcome::{ErrorKind, StepError},
    plan::{Plan, StepSet},
    scheduler::Pause,
    scope::Scope,
    state::RunState,
};

/// The longest time for which a run without finally steps waits for its aborted calls.
const PATIENCE: Duration = Duration::from_secs(1);

// === impl Plan ===

impl Plan {
    /// Returns the longest time for which a run waits until its aborted calls have ended.
    fn patience(&self) -> Duration {
        self.grace().unwrap_or(PATIENCE)
    }
}

// === impl Scope ===

impl Scope {
    /// Waits until the aborted calls of a dropped run of `plan` have ended.
    pub(crate) async fn wait_for_aborted(&self, plan: &Plan) {
        let Some(account) = self.account() else { return };
        let ended = poll_fn(|cx| account.aborted_calls().poll_ended(cx));
        if timeout(plan.patience(), ended).await.is_err() {
            warn(plan, StepSet::default());
        }
    }
}

// === impl Run ===

impl<C: Caller> Run<'_, C> {
    /// Returns `true` if aborted calls of this run or of its nested runs may not have ended yet. No
    /// call starts during this time, and the run has not ended.
    pub(super) fn has_aborted(&self) -> bool {
        let effects = &self.scheduler.effects;
        // A journal ends its effects itself.
        effects.journaled.is_none()
            && (effects.branches.has_aborted()
                || self.scope.account().is_some_and(|it| !it.aborted_calls().is_empty()))
    }

    /// Pauses the run until its aborted calls have ended, but not for too long.
    pub(super) fn begin_patience(&mut self) {
        let now = self.now;
        let until = *self
            .patient_until
            .get_or_insert_with(|| now.saturating_add(self.scheduler.plan.patience()));
        self.scheduler.note_due(until);
        self.pause = Pause::Wait;
    }

    /// Returns `Ready` if all aborted calls have ended. The branches must have been polled before.
    pub(super) fn poll_aborted(&self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if let Some(account) = self.scope.account() {
            ready!(account.aborted_calls().poll_ended(cx));
        }
        if self.scheduler.effects.branches.has_aborted() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Waits for steps and deadlines until the run has ended or is suspended, and then until all
    /// aborted calls have ended.
    pub(super) async fn wait(&mut self) {
        self.wait_for_steps().await;
        self.wait_for_aborted().await;
    }

    /// Waits until all aborted calls have ended, after the run has ended or is suspended.
    async fn wait_for_aborted(&mut self) {
        if !self.has_aborted() {
            return;
        }
        let patience = self.scheduler.plan.patience();
        let ended = poll_fn(|cx| {
            // All other branches have ended.
            while self.scheduler.effects.branches.poll_next(cx).is_ready() {}
            self.poll_aborted(cx)
        });
        if timeout(patience, ended).await.is_err() {
            self.give_up_aborted();
        }
    }

    /// Stops waiting for aborted calls if the run was to wait for them until `now` or less.
    pub(super) fn end_patience(&mut self, now: Duration) {
        if self.patient_until.is_some_and(|until| until <= now) {
            self.give_up_aborted();
        }
    }

    /// Stops waiting for aborted calls, because they have not ended in time.
    fn give_up_aborted(&mut self) {
        self.patient_until = None;
        let given_up = self.scheduler.effects.branches.give_up_aborted();
        if let Some(account) = self.scope.account() {
            account.aborted_calls().clear();
        }
        let steps: StepSet = given_up.iter().map(|id| id.step).collect();
        self.scheduler.state.note_still_running(steps);
        warn(self.scheduler.plan, steps);
    }
}

// === impl RunState ===

impl RunState {
    /// Adds to the outcomes of these steps that their tools are still running.
    fn note_still_running(&mut self, steps: StepSet) {
        const STILL_RUNNING: &str = "the tool is still running";
        for step in steps {
            let Some(outcome) = &mut self.outcomes[step] else { continue };
            match &mut outcome.error {
                Some(error) => error.message = format!("{}; {STILL_RUNNING}", error.message),
                error => {
                    *error = Some(Box::new(StepError::new(ErrorKind::Timeout, STILL_RUNNING)));
                }
            }
        }
    }
}

/// Logs that the aborted calls of these steps, or of nested runs, are still running.
fn warn(plan: &Plan, steps: StepSet) {
    let steps: Vec<_> = steps.map(|step| &*plan.steps()[step].id).collect();
    tracing::warn!(
        composite = %plan.name, ?steps, waited = ?plan.patience(),
        "cancelled calls are still running: a tool keeps its thread busy instead of waiting",
    );
}
