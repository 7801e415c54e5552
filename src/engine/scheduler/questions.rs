//! Questions to the user: asks them, and resumes the run with the answers.

use std::{mem, time::Duration};

use serde_json::{Value, json};

use super::{
    Asking, Command, Effects, Loop, NewCall, Scheduler, Start,
    command::{MadeOutput, Resumed},
};
use crate::{
    engine::{
        branches::BranchId,
        milliseconds::milliseconds,
        outcome::{ErrorKind, Outcome, Status, StepError},
        plan::{Action, CallSite, Elicitation, OnRefusal},
        questions::{Questions, Said},
        state::PendingQuestion,
    },
    expr::{Root, Use},
};

// === impl Scheduler ===

impl<'p, E: Effects> Scheduler<'p, E> {
    /// Resumes a run. Handles the user's answers until the driver must execute a command, and
    /// returns this command. The driver must call this method until it returns `None`.
    #[inline]
    pub(in crate::engine) fn resume(&mut self, now: Duration) -> Option<Command<'p>> {
        if !self.is_resuming && self.state.loops.is_empty() {
            return None;
        }
        self.resume_next(now)
    }

    fn resume_next(&mut self, now: Duration) -> Option<Command<'p>> {
        for state in mem::take(&mut self.state.loops) {
            let step = state.step;
            let Action::Loop(each) = &self.plan.steps()[step].action else { continue };
            self.add_loop(Loop::resumed(state, each));
            // In a run whose process has stopped, the loop may have no running element.
            self.advancing.insert(step);
        }
        if let Some(command) = self.take_over_next(now) {
            return Some(command);
        }
        // A command can withdraw further questions.
        while let Some(index) = self.state.asked.iter().position(|pending| pending.is_resuming) {
            let mut pending = self.state.asked.remove(index);
            pending.is_resuming = false;
            let action = &self.plan.steps()[pending.id.step].action;
            let command = match action {
                _ if self.is_over() => {
                    self.state.asked.push(pending);
                    None
                }
                Action::Elicit(elicitation) => self.accept(pending, elicitation, now),
                _ => self.call_again(pending, now),
            };
            if command.is_some() {
                return command;
            }
        }
        self.is_resuming = false;
        None
    }

    /// Adds the question of a step to the pending questions. Returns an error if the client cannot
    /// answer questions, or if the question cannot be evaluated.
    pub(super) fn ask(
        &mut self,
        step: usize,
        elicitation: &Elicitation,
        now: Duration,
    ) -> Result<(), StepError> {
        self.count_evaluation();
        match self.asking.as_deref() {
            Some(Asking { closed: Some(why), .. }) => {
                return Err(StepError::new(ErrorKind::Limit, *why));
            }
            Some(asking) if asking.has_forms => (),
            _ => return Err(self.cannot_be_asked("the user must be asked")),
        }
        let until = self.unix_ms(now.saturating_add(self.plan.steps()[step].timeout));
        let question = elicitation.question(&self.state, until)?;
        self.effects.begin_step(step);
        self.effects.open_step(step);
        self.effects.wait(BranchId { step, element: 0 });
        self.state.asked.push(PendingQuestion::step(step, milliseconds(now), question));
        Ok(())
    }

    /// Converts a time since the start of the run to Unix time in milliseconds.
    fn unix_ms(&self, time: Duration) -> u64 {
        let started = self.asking.as_ref().map_or(0, |asking| asking.started_unix_ms);
        started.saturating_add(milliseconds(time))
    }

    /// Handles the user's response to the question of a step. If the user has answered, returns the
    /// command that counts the answer. Otherwise, ends the step or keeps the question pending, and
    /// returns `None`.
    fn accept(
        &mut self,
        mut pending: PendingQuestion,
        elicitation: &Elicitation,
        now: Duration,
    ) -> Option<Command<'p>> {
        let step = &self.plan.steps()[pending.id.step];
        let said = pending.take_said(elicitation, self.unix_ms(now));
        let ended = match said {
            Said::NotYet => {
                self.state.asked.push(pending);
                return None;
            }
            Said::Misfit(why) if pending.attempts < step.retry.map_or(0, |retry| retry.count) => {
                pending.ask_again(&why, self.unix_ms(now.saturating_add(step.timeout)));
                self.state.asked.push(pending);
                return None;
            }
            Said::Misfit(why) => {
                let message = format!("the answer does not fit the form: {why}");
                Err(StepError::new(ErrorKind::Protocol, message))
            }
            Said::Refused(why) => Err(StepError::new(ErrorKind::Dismissed, why)),
            Said::Accept(content) => {
                let output = json!({ "action": "accept", "content": content });
                let (step, begun, attempts) =
                    (pending.id.step, pending.begun(), pending.attempts + 1);
                let made = MadeOutput { step, begun, attempts, output };
                return Some(Command::Count(Box::new(made)));
            }
            Said::Decline | Said::Cancel | Said::Late => {
                let on = elicitation.on(&said);
                self.note_refusal(pending.id.step, on);
                match on {
                    OnRefusal::Abort => Err(said.error(step.timeout)),
                    _ => Ok(json!({ "action": said.action() })),
                }
            }
        };
        self.end_step(pending.id.step, pending.begun(), pending.attempts + 1, ended, now);
        None
    }

    /// Handles the driver's response to [`Command::Count`], and ends the step. `counted` is an
    /// error if the output of the step exceeds a limit.
    pub(in crate::engine) fn count(
        &mut self,
        made: MadeOutput,
        counted: Result<(), StepError>,
        now: Duration,
    ) {
        let MadeOutput { step, begun, attempts, output } = made;
        if let (Ok(()), Action::Stop(end)) = (&counted, &self.plan.steps()[step].action) {
            return self.stop_early(step, end.result(output), now);
        }
        self.end_step(step, begun, attempts, counted.map(|()| output), now);
    }

    /// Ends a step that is not a single tool call. `ended` is its output or its error.
    pub(super) fn end_step(
        &mut self,
        step: usize,
        begun: Duration,
        attempts: u32,
        ended: Result<Value, StepError>,
        now: Duration,
    ) {
        let (status, output, error) = match ended {
            Ok(output) => (Status::Completed, Some(output), None),
            Err(error) => (error.status(), None, Some(error)),
        };
        let mut outcome = Outcome { attempts, ..Outcome::ended(begun, now, status, error) };
        if let Some(output) = output {
            outcome.set_output(output);
        }
        self.finish(step, outcome);
    }

    /// Returns the command that calls a tool again with the user's answers to its questions.
    /// Returns `None` if the user has not answered yet, or if the call has ended with an error, for
    /// example because its arguments cannot be evaluated.
    fn call_again(&mut self, mut pending: PendingQuestion, now: Duration) -> Option<Command<'p>> {
        let Some(answered) = pending.take_answers() else {
            self.state.asked.push(pending);
            return None;
        };
        let (id, attempts, begun) = (pending.id, pending.attempts, pending.begun());
        let site = self.chosen_site(id, pending.site)?;
        if self.is_lost(id, site) {
            self.lose_call(id, site, begun, now, attempts);
            return None;
        }
        let arguments = match self.place_of_loop(id.step) {
            Some(place) => self.element_arguments(place, id.element),
            None => self.arguments(site),
        };
        match arguments {
            Ok(arguments) => {
                let resumed = Some(Box::new(Resumed { begun, attempts, answered }));
                Some(Command::Call(NewCall { id, site, resumed }, arguments))
            }
            Err(error) => {
                let outcome = Outcome::answered(begun, now, Err(error));
                self.end_branch(id, site, Outcome { attempts, ..outcome }, now);
                None
            }
        }
    }

    /// Returns the call site of a step or loop element. For a switch, `chosen` is the index of the
    /// call site that it has chosen. For other steps, it is `None`.
    fn chosen_site(&self, id: BranchId, chosen: Option<usize>) -> Option<&'p CallSite> {
        let mut sites = self.plan.steps()[id.step].action.sites();
        match chosen {
            Some(chosen) => sites.find(|site| site.site == chosen),
            None => sites.next(),
        }
    }

    /// Ends an attempt to which the tool replied with questions, and adds them to the pending
    /// questions. When the user has answered, the tool is called again.
    pub(in crate::engine) fn wait_for_answers(&mut self, id: BranchId, questions: Questions) {
        let Some(place) = self.place_of(id) else { return };
        let call = self.calls.swap_remove(place);
        self.effects.wait(id);
        let chosen = self.chosen(id.step, call.site);
        let since = milliseconds(call.begun);
        let pending = PendingQuestion::call(id, call.count, since, chosen, questions);
        self.state.asked.push(pending);
    }

    /// Rejects the start of a step whose tool may have side effects, if the run will certainly fail
    /// at a later question. A question fails if the client cannot answer it, or if the state of the
    /// run is too large to store it until the user answers.
    pub(super) fn check_questions(
        &mut self,
        step: usize,
        start: &Start<'_>,
    ) -> Result<(), StepError> {
        let Some(asking) = self.asking.as_deref() else { return Ok(()) };
        let is_read_only = |site| asking.read_only.contains(&site);
        if asking.steps.is_empty() || start.site().is_none_or(is_read_only) {
            return Ok(());
        }
        let mut open = asking.steps.without(self.finished);
        let room = asking.room;
        let refused = if !asking.has_forms || asking.closed.is_some() {
            let later = open.find(|&later| self.is_certain(later));
            later.map(|later| {
                let later = &self.plan.steps()[later].id;
                self.cannot_be_asked(&format!("step `{later}` asks the user"))
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

    /// Returns the error of a step that must not start, because the run will fail at the question
    /// of the step `later`. The state of the run, with at least `bytes` bytes, exceeds the maximum
    /// of `room` bytes.
    fn cannot_be_kept(&self, later: usize, bytes: usize, room: usize) -> StepError {
        let later = &self.plan.steps()[later].id;
        let why = format!(
            "step `{later}` asks the user, and the run cannot wait for the answer: its state \
             has at least {bytes} bytes by then, and the store takes at most {room}; raise \
             `max_state_bytes` of `[state]`, set `store = \"memory\"`, or let the tools return less"
        );
        StepError::new(ErrorKind::Limit, why)
    }

    /// Returns `true` if the step certainly runs: it has no condition, or its condition is already
    /// known to be true.
    fn is_certain(&mut self, step: usize) -> bool {
        let Some(condition) = &self.plan.steps()[step].condition else { return true };
        let is_known = |used: &Use<'_>| match used.root {
            Root::Step { step, .. } => self.finished.contains(step),
            _ => true,
        };
        condition.uses().iter().all(is_known) && self.holds(condition) == Ok(true)
    }

    /// Returns the error of a step that must ask a question that the client cannot answer. The
    /// error message begins with `what`.
    fn cannot_be_asked(&self, what: &str) -> StepError {
        let why = "and the client cannot: it does not declare the capability `elicitation`";
        match self.asking.as_ref().and_then(|asking| asking.closed) {
            Some(why) => StepError::new(ErrorKind::Limit, format!("{what}, and cannot: {why}")),
            None => StepError::new(ErrorKind::Dismissed, format!("{what}, {why}")),
        }
    }
}
