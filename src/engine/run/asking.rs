//! Asks the questions of a run, and resumes it with the answers.

use std::mem;

use serde_json::json;
use tokio::time::Instant;

use super::Run;
use crate::{
    engine::{
        attempts::{Attempts, Times},
        branches::BranchId,
        caller::Caller,
        for_each::Loop,
        milliseconds::milliseconds,
        outcome::{ErrorKind, Outcome, Status, StepError},
        plan::{Action, CallSite, Elicitation, OnRefusal},
        questions::{Questions, Said},
        state::PendingQuestion,
    },
    expr::{Root, Use},
};

// === impl Run ===

impl<'p, C: Caller> Run<'p, C> {
    /// Resumes the calls and steps for which there are answers.
    pub(super) fn resume(&mut self) {
        for state in mem::take(&mut self.state.loops) {
            let step = state.step;
            let Action::ForEach(each) = &self.plan.steps()[step].action else { continue };
            let asked = self.state.asked.iter().filter(|asked| asked.id.step == step).count();
            let since = self.after(state.started_ms);
            let part = self.progress_of(step);
            self.loops.push(Loop::resumed(state, each, since, asked, part.as_ref()));
        }
        let mut asked = mem::take(&mut self.state.asked);
        // Answers to steps first: they may end the run before a tool is called again.
        asked.sort_unstable_by_key(|asked| (asked.is_call(), asked.id));
        for asked in asked {
            match &self.plan.steps()[asked.id.step].action {
                _ if self.is_over() => self.state.asked.push(asked),
                Action::Elicit(elicitation) => self.accept(asked, elicitation),
                _ => self.call_again(asked),
            }
        }
    }

    /// Suspends the run, since only questions are pending.
    pub(super) fn put_away(&mut self) {
        let now = Instant::now();
        self.state.asked.sort_unstable_by_key(|asked| asked.id);
        self.state.spent = self.scope.spent();
        if let Some(watching) = &mut self.watching {
            let (watched, suspended) = watching.put_away();
            (self.state.watched, self.state.suspended) = (Some(watched), suspended);
        }
        self.state.active_ms = milliseconds(now.saturating_duration_since(self.begun));
        let begun = self.begun;
        self.state.loops = self.loops.drain(..).map(|each| each.into_state(begun)).collect();
        self.state.loops.sort_unstable_by_key(|each| each.step);
    }

    /// Asks the user.
    pub(super) fn ask(&mut self, step: usize, elicitation: &Elicitation) -> Result<(), StepError> {
        self.count_evaluation();
        if let Some(why) = self.scope.closed() {
            return Err(StepError::new(ErrorKind::Limit, &**why));
        }
        if !self.context.abilities().form {
            return Err(self.cannot_be_asked("a person must be asked"));
        }
        let timeout = self.plan.steps()[step].timeout;
        let question = elicitation.question(&mut self.state, timeout)?;
        self.report_begin(step);
        if let Some(watching) = &mut self.watching {
            watching.begin_step(step);
            watching.wait(BranchId { step, element: 0 });
        }
        let since = milliseconds(Instant::now().saturating_duration_since(self.begun));
        self.state.asked.push(PendingQuestion::step(step, since, question));
        Ok(())
    }

    /// Handles the user's response to the question of a step.
    fn accept(&mut self, mut asked: PendingQuestion, elicitation: &Elicitation) {
        let step = asked.id.step;
        let (timeout, retry) = {
            let step = &self.plan.steps()[step];
            (step.timeout, step.retry)
        };
        let said = asked.take_said(elicitation);
        let accepted = match said {
            Said::NotYet => return self.state.asked.push(asked),
            Said::Misfit(why) if asked.attempts < retry.map_or(0, |retry| retry.count) => {
                asked.ask_again(&why, timeout);
                return self.state.asked.push(asked);
            }
            Said::Misfit(why) => {
                let told = format!("the answer does not fit the form: {why}");
                Err(StepError::new(ErrorKind::Protocol, told))
            }
            Said::Refused(why) => Err(StepError::new(ErrorKind::Dismissed, why)),
            Said::Accept(content) => {
                let output = json!({ "action": "accept", "content": content });
                let kept = self.scope.keep_made(&output).map(|()| output);
                self.note_limit();
                kept
            }
            Said::Decline | Said::Cancel | Said::Late => {
                let on = elicitation.on(&said);
                match on {
                    OnRefusal::Abort => drop(self.state.failed.get_or_insert(step)),
                    OnRefusal::SkipRemaining => drop(self.state.ended_by.get_or_insert(step)),
                    OnRefusal::Continue => (),
                }
                let unanswered = || said.error(timeout);
                if on == OnRefusal::Abort {
                    Err(unanswered())
                } else {
                    Ok(json!({ "action": said.action() }))
                }
            }
        };
        let now = Instant::now();
        let times = Times { run: self.begun, step: self.after(asked.started_ms) };
        let (status, output, error) = match accepted {
            Ok(output) => (Status::Completed, Some(output), None),
            Err(error) => (error.status(), None, Some(error)),
        };
        let mut outcome =
            Outcome { attempts: asked.attempts + 1, ..times.ended(status, error, now) };
        if let Some(output) = output {
            outcome.set_output(output);
        }
        self.finish(step, outcome);
    }

    /// Calls a tool again that has asked, if there is an answer.
    fn call_again(&mut self, mut asked: PendingQuestion) {
        let Some(answered) = asked.take_answers() else { return self.state.asked.push(asked) };
        let (id, now) = (asked.id, Instant::now());
        let Some(site) = self.site_of(id, asked.site) else { return };
        let begun = self.after(asked.started_ms);
        let place = self.loops.iter().position(|each| each.step == id.step);
        let arguments = match place {
            Some(place) => self.element_arguments(place, id.element),
            None => self.arguments(site),
        };
        let called = arguments.and_then(|arguments| {
            let arguments = self.prepare(site.site, arguments)?;
            let step = &self.plan.steps()[id.step];
            let call = Attempts::new(id, site, arguments, step.timeout, step.retry, now);
            let mut call = call.resumed(begun, asked.attempts, answered);
            self.attempt(&mut call, now)?;
            self.keep_call(call);
            Ok(())
        });
        if let Err(error) = called {
            self.note_limit();
            let times = Times { run: self.begun, step: begun };
            let outcome = times.outcome(Err(error), now);
            let outcome = Outcome { attempts: asked.attempts, ..outcome };
            self.end_branch(id, site, outcome);
        }
    }

    /// Returns the call site of a branch.
    fn site_of(&self, id: BranchId, chosen: Option<usize>) -> Option<&'p CallSite> {
        let mut sites = self.plan.steps()[id.step].action.sites();
        match chosen {
            Some(chosen) => sites.find(|site| site.site == chosen),
            None => sites.next(),
        }
    }

    /// Suspends the call of a tool that asks, until it is answered.
    pub(super) fn wait_for_answers(&mut self, id: BranchId, questions: Questions) {
        let Some(place) = self.calls.iter().position(|call| call.id == id) else { return };
        let call = self.calls.swap_remove(place);
        if let Some(watching) = &mut self.watching {
            watching.wait(id);
        }
        let since = milliseconds(call.begun.saturating_duration_since(self.begun));
        let chosen = self.chosen(id.step, call.site);
        self.state.asked.push(PendingQuestion::call(id, call.count, since, chosen, questions));
    }

    /// Rejects a call that may change something if a later step is certain to ask a user who cannot
    /// be asked, or to suspend the run with a state that is too large to store.
    pub(super) fn check_questions(
        &mut self,
        step: usize,
        site: &CallSite,
    ) -> Result<(), StepError> {
        if self.asking.is_empty() || self.caller.is_read_only(site.site) {
            return Ok(());
        }
        let mut open = self.asking.without(self.finished);
        let room = self.scope.room();
        let refused = if !self.may_ask_person() {
            let later = open.find(|&later| self.is_certain(later));
            later.map(|later| {
                let later = &self.plan.steps()[later].id;
                self.cannot_be_asked(&format!("step `{later}` asks a person"))
            })
        } else if room < usize::MAX {
            open.find_map(|later| {
                let bytes = self.state.least_bytes_at(later, self.plan);
                let is_too_large = bytes > room && self.is_certain(later);
                is_too_large.then(|| self.cannot_be_kept(later, bytes, room))
            })
        } else {
            None
        };
        let Some(refused) = refused else { return Ok(()) };
        self.state.failed.get_or_insert(step);
        Err(refused)
    }

    /// Returns `true` if the client can ask the user.
    fn may_ask_person(&self) -> bool {
        self.context.abilities().form && self.scope.closed().is_none()
    }

    /// Returns the error of a step that is rejected because a later step suspends the run with a
    /// state of at least `bytes` bytes.
    fn cannot_be_kept(&self, later: usize, bytes: usize, room: usize) -> StepError {
        let later = &self.plan.steps()[later].id;
        let why = format!(
            "step `{later}` asks a person, and the run cannot wait for the answer: its state \
             has at least {bytes} bytes by then, and the store takes at most {room}; raise \
             `max_state_bytes` of `[state]`, set `store = \"memory\"`, or let the tools return less"
        );
        StepError::new(ErrorKind::Limit, why)
    }

    /// Returns `true` if a step is certain to begin: it has no condition, or one that is true and
    /// refers only to known values.
    fn is_certain(&mut self, step: usize) -> bool {
        let Some(condition) = &self.plan.steps()[step].condition else { return true };
        let is_known = |used: &Use<'_>| match used.root {
            Root::Step { step, .. } => self.finished.contains(step),
            _ => true,
        };
        condition.uses().iter().all(is_known) && self.holds(condition) == Ok(true)
    }

    /// Returns the error of a step that needs an answer of the user; `what` describes the question.
    fn cannot_be_asked(&self, what: &str) -> StepError {
        let why = "and the client cannot: it does not declare the capability `elicitation`";
        match self.scope.closed() {
            Some(why) => StepError::new(ErrorKind::Limit, format!("{what}, and cannot: {why}")),
            None => StepError::new(ErrorKind::Dismissed, format!("{what}, {why}")),
        }
    }
}
