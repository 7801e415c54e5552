//! Stores the state of a running run, and continues a run whose process has stopped.

use std::time::Duration;

use super::{Command, Effects, Loop, NewCall, Scheduler};
use crate::engine::{
    branches::BranchId,
    milliseconds::milliseconds,
    outcome::{ErrorKind, Outcome, Status, StepError},
    plan::CallSite,
    scope::Spent,
    state::RunState,
};

/// Counts finished steps, ended loop elements and calls that wait for answers. Shows whether a run
/// has made progress since its state was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Progress {
    finished: usize,
    ended: usize,
    waiting_calls: usize,
}

/// Returns the error of a step whose call may have been made before the process stopped, and may
/// not be repeated.
pub(in crate::engine) fn lost(step: &str) -> StepError {
    let why = format!(
        "the server stopped while `{step}` ran, so the call may have had an effect; set \
         `retry_lost = true` if the tool may be called again"
    );
    StepError::new(ErrorKind::Lost, why)
}

// === impl Progress ===

impl Progress {
    /// Returns `true` if the run has made progress since `saved`, and must therefore be stored
    /// again.
    pub(in crate::engine) fn is_beyond(self, saved: Self) -> bool {
        (self.finished, self.ended) != (saved.finished, saved.ended)
            || self.waiting_calls > saved.waiting_calls
    }
}

// === impl Scheduler ===

impl<'p, E: Effects> Scheduler<'p, E> {
    /// Keeps the input of the run even after the last step has read it. Another process may need it
    /// to repeat a call.
    pub(in crate::engine) const fn keep_arguments(&mut self) {
        self.keeps_arguments = true;
    }

    pub(in crate::engine) fn progress(&self) -> Progress {
        let ended: usize = self.loops.iter().map(|each| each.ended().count()).sum();
        let resuming = self.state.loops.iter().map(|each| each.iterations.iter().flatten().count());
        Progress {
            finished: self.state.finished.len(),
            ended: ended + resuming.sum::<usize>(),
            waiting_calls: self.state.asked.iter().filter(|pending| pending.is_call()).count(),
        }
    }

    /// Returns `true` if the state of the run must be stored before the next command, because this
    /// command starts a call or waits for one. The caller must also check that the run has made
    /// progress. Returns `false` if the run is about to end.
    pub(in crate::engine) fn must_store(&mut self, now: Duration) -> bool {
        if self.is_over() || self.has_ended() || now >= self.deadline {
            return false;
        }
        if self.next_loop().is_some() {
            return true;
        }
        match self.next_ready() {
            Some(step) => !self.plan.without_calls.contains(step),
            None => !self.calls.is_empty() || self.loops.iter().any(Loop::is_paused),
        }
    }

    /// Calls `store` with a state from which another process can continue the run. `spent` is the
    /// resource usage of the run. `watched` is its ID in events.
    pub(in crate::engine) fn with_stored_state<R>(
        &mut self,
        spent: Option<Box<Spent>>,
        watched: Option<u64>,
        now: Duration,
        store: impl FnOnce(&RunState) -> R,
    ) -> R {
        let loops = self.state.loops.len();
        let state = &mut *self.state;
        state.loops.extend(self.loops.iter().map(|each| each.state.clone()));
        let waits = |step: usize| state.asked.iter().any(|pending| pending.id.step == step);
        let is_loop = |step: usize| state.loops.iter().any(|each| each.step == step);
        let running = self.running.filter(|&step| !waits(step) && !is_loop(step));
        state.running = Some(running.collect());
        state.active_ms = milliseconds(now);
        (state.spent, state.watched) = (spent, watched.or(state.watched));
        let stored = store(state);
        state.loops.truncate(loops);
        (state.running, state.spent) = (None, None);
        stored
    }

    /// Cancels all running steps and ends the run, because storing its state failed.
    pub(in crate::engine) fn abandon(&mut self, now: Duration) -> Command<'p> {
        self.stop(Status::Cancelled, now);
        Command::Pause(super::Pause::Ended)
    }

    /// Handles the next loop element that was running when the previous process stopped. Returns
    /// the command that calls its tool again, or `None` if no such element is left.
    pub(super) fn take_over_next(&mut self, now: Duration) -> Option<Command<'p>> {
        while let Some(id) = self.takeover.as_mut().and_then(|takeover| takeover.left.pop()) {
            // The loop has ended if another of its elements has failed.
            let Some(place) = self.place_of_loop(id.step) else { continue };
            let site = &self.loops[place].definition.call;
            if self.is_lost(id, site) {
                self.lose_call(id, site, now, now, 1);
                continue;
            }
            self.effects.begin_element(id);
            match self.element_arguments(place, id.element) {
                Ok(arguments) => {
                    return Some(Command::Call(NewCall { id, site, resumed: None }, arguments));
                }
                Err(error) => self.fail_call(id, site, error, now),
            }
        }
        None
    }

    /// Returns `true` if the call may have been running when the previous process stopped, and its
    /// tool must not be called twice.
    #[inline]
    pub(super) fn is_lost(&self, id: BranchId, site: &CallSite) -> bool {
        self.takeover.as_ref().is_some_and(|takeover| takeover.has_lost(id, site, self.plan))
    }

    /// Fails a call whose outcome is unknown, because the previous process stopped. `begun` is its
    /// start, and `attempts` is the number of its attempts.
    pub(super) fn lose_call(
        &mut self,
        id: BranchId,
        site: &CallSite,
        begun: Duration,
        now: Duration,
        attempts: u32,
    ) {
        let lost = lost(&self.plan.steps()[id.step].id);
        let outcome = Outcome::answered(begun, now, Err(lost));
        self.end_branch(id, site, Outcome { attempts, ..outcome }, now);
    }
}
