//! The state of a run, which can be stored and resumed.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    branches::BranchId,
    finally::Settled,
    loop_state::LoopState,
    meter::Reached,
    observation::{Observation, Suspended},
    outcome::Outcome,
    plan::{Plan, StepSet},
    preserved_outputs::{Preservation, Preserved},
    question::{Question, Responses},
    scope::{Scope, Spent},
    serde_defaults::is_default,
};
use crate::message::Context;

/// The maximum number of attempts in a stored state. States with more attempts are rejected as
/// invalid, so that sums cannot overflow.
const MAX_ATTEMPTS: u64 = 1 << 30;

/// The key of the question that a step asks. The questions of a tool have keys from the tool.
pub(super) const OWN: &str = "";

/// The state of a run: its input, the outcomes of its finished steps, and its pending questions.
///
/// The state can be serialized. A run can therefore be suspended in one process and resume in
/// another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunState {
    /// The validated input of the run. Replaced with null after the last step that reads it has
    /// finished, to save memory.
    pub(crate) input: Value,
    /// The outcome of each step, in the order of the plan. `None` for steps that have not finished.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    /// The finished steps, in the order in which they finished.
    pub(crate) finished: Vec<usize>,
    /// The step that failed the run. `None` if the run has not failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) failed: Option<usize>,
    /// If `true`, the run ended because its deadline passed.
    #[serde(skip_serializing_if = "is_default", default)]
    pub(crate) timed_out: bool,
    /// The step that ended the run early: a stop step, or a question that the user declined or did
    /// not answer. `None` if no step has ended the run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ended_by: Option<usize>,
    /// The outcome of the run, saved while its finally steps run. `None` at all other times.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) settled: Option<Box<Settled>>,
    /// The limit that ended the run. `None` if no limit was reached. Not serialized, because a run
    /// that has reached a limit is not suspended. Only its finally steps can be, and `settled`
    /// contains the limit then.
    #[serde(skip)]
    pub(crate) reached: Option<Reached>,
    /// The loop elements that were skipped because a limit ended the run.
    #[serde(skip)]
    pub(crate) skipped_elements: Vec<BranchId>,
    /// The outputs of completed steps that no other step reads any more. The error report of a
    /// failed run contains them.
    #[serde(skip_serializing_if = "Preserved::is_empty", default)]
    pub(crate) preserved: Preserved,
    /// The pending questions, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) asked: Vec<PendingQuestion>,
    /// The loops that had started but not ended when the run was stored. Empty while the run is
    /// running.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) loops: Vec<LoopState>,
    /// The steps that were running when the state was stored, except loops. `None` if the run was
    /// suspended, because no step was running then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) running: Option<Vec<usize>>,
    /// The duration of the run in milliseconds, without the time for which it was suspended.
    #[serde(skip_serializing_if = "is_default", default)]
    pub(super) active_ms: u64,
    /// The resource usage of the run, from which a resumed run continues to count. `None` if the
    /// usage is zero, or if the run was not suspended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) spent: Option<Box<Spent>>,
    /// The ID of the run in events, so that observers recognize the resumed run. `None` if the run
    /// is not observed, or if it was not suspended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) watched: Option<u64>,
    /// The observation of a suspended run. If the run never resumes, dropping it reports that the
    /// run was dropped. Declared after `asked`, so that nested runs in `asked` are reported first.
    #[serde(skip)]
    pub(super) suspended: Suspended,
    /// The ID of the run. `None` if neither an expression nor a nested run needs it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) id: Option<String>,
    /// The name of the composite. `None` if no expression reads it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) name: Option<String>,
    /// The start of the run in RFC 3339 format. `None` if no expression reads it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) started_at: Option<String>,
}

/// The pending questions of a step or loop element, from the step itself or from its tool. The step
/// waits until the user has answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingQuestion {
    pub(super) id: BranchId,
    /// For questions of a tool, the number of calls so far. For the question of a step, the number
    /// of invalid answers so far.
    pub(super) attempts: u32,
    /// Milliseconds between the start of the run and the start of the call or step.
    pub(super) started_ms: u64,
    /// The index of the call site that a switch has chosen. `None` for other steps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) site: Option<usize>,
    /// The questions, indexed by their keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(super) questions: BTreeMap<String, Question>,
    /// The state of the tool, which the next call sends back with the answers. `None` for the
    /// question of a step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) resume: Option<Resume>,
    /// The client's responses so far, indexed by the keys of the questions.
    #[serde(skip_serializing_if = "Responses::is_empty", default)]
    pub(super) responses: Responses,
    /// If `true`, the run was resumed and has not processed the responses yet.
    #[serde(skip)]
    pub(super) is_resuming: bool,
}

/// The state from which a tool or a nested run continues after the user has answered its questions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resume {
    /// The `requestState` of a tool, which the next call sends back. `None` if the tool sent none.
    Tool(Option<String>),
    /// The state of a suspended nested run.
    Run(Box<RunState>),
}

// === impl RunState ===

impl RunState {
    /// Creates the state of a new run with `steps` steps.
    pub(crate) fn new(input: Value, steps: usize) -> Self {
        Self {
            input,
            outcomes: (0..steps).map(|_| None).collect(),
            finished: Vec::with_capacity(steps),
            ..Self::default()
        }
    }

    /// Returns `true` if the state matches `plan`. Used to reject a stored state of another plan,
    /// or of an earlier version of the plan.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        let steps = plan.steps().len();
        let Some(finished) = set(&self.finished, steps) else { return false };
        let loops: Vec<_> = self.loops.iter().map(|each| each.step).collect();
        let Some(loops) = set(&loops, steps) else { return false };
        let running = self.running.as_deref().unwrap_or_default();
        let Some(running) = set(running, steps) else { return false };
        let mut suspended: Vec<_> = self.asked.iter().map(|pending| pending.id).collect();
        suspended.sort_unstable();
        suspended.dedup();
        let waiting =
            |step: usize| self.asked.iter().filter(|pending| pending.id.step == step).count();
        let began = self.asked.iter().map(|pending| pending.id.step).chain(loops).chain(running);
        self.outcomes.len() == steps
            && self.preserved.fits(steps)
            && (0..steps).all(|step| self.outcomes[step].is_some() == finished.contains(step))
            && [self.failed, self.ended_by]
                .into_iter()
                .flatten()
                .all(|step| finished.contains(step))
            && suspended.len() == self.asked.len()
            && self.asked.iter().all(|pending| pending.fits(plan, &self.loops))
            && self.loops.iter().all(|each| each.fits(plan, waiting(each.step), self.was_running()))
            && { began }
                .all(|step| !finished.contains(step) && plan.needs(step).is_subset(finished))
            && self.fits_phase(plan, finished)
            && self.attempts() <= MAX_ATTEMPTS
    }

    /// Returns `true` if the finally steps in the state match its phase. For example, no finally
    /// step may have started before the outcome of the run is decided.
    fn fits_phase(&self, plan: &Plan, finished: StepSet) -> bool {
        match &self.settled {
            Some(settled) => {
                plan.grace().is_some()
                    && plan.ordinary.is_subset(finished)
                    && settled.fits(finished)
                    && (self.failed, self.ended_by, self.timed_out) == (None, None, false)
            }
            None => {
                let mut suspended = self.asked.iter().map(|pending| pending.id.step);
                let mut loops = self.loops.iter().map(|each| each.step);
                finished.is_subset(plan.ordinary)
                    && !suspended.any(|step| plan.is_final(step))
                    && !loops.any(|step| plan.is_final(step))
            }
        }
    }

    /// Returns `true` if the run was running when its state was stored. Some of its steps may have
    /// made progress since then.
    pub(crate) const fn was_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns `true` if the run waits for the user's answers.
    pub(crate) const fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Marks this run and its suspended nested runs as stored elsewhere, so that dropping this
    /// state does not report them as dropped.
    pub(crate) fn hand_over(&mut self) {
        self.suspended.release();
        self.asked.iter_mut().filter_map(PendingQuestion::run_mut).for_each(Self::hand_over);
    }

    /// Returns the number of attempts of all steps that have not ended.
    fn attempts(&self) -> u64 {
        let suspended = self.asked.iter().map(|pending| pending.attempts);
        suspended.chain(self.loops.iter().map(|each| each.attempts)).map(u64::from).sum()
    }

    /// Returns the duration of the run, without the time for which it was suspended.
    pub(crate) const fn active(&self) -> Duration {
        Duration::from_millis(self.active_ms)
    }

    /// Returns the last completed step in the order of the plan, ignoring finally steps.
    pub(crate) fn last_completed(&self, plan: &Plan) -> Option<usize> {
        let completed = |&step: &usize| {
            let outcome = self.outcomes[step].as_ref();
            !plan.is_final(step) && outcome.is_some_and(|outcome| outcome.is_success())
        };
        (0..self.outcomes.len()).rev().find(completed)
    }

    /// Truncates the preserved outputs of this run and its nested runs to at most `left` bytes in
    /// total. Subtracts the remaining size from `left`.
    pub(crate) fn trim_preserved(&mut self, left: &mut usize) {
        self.each_preserved(&mut |preserved| preserved.trim(left));
    }

    /// Calls `visit` with the preserved outputs of this run and of each suspended nested run.
    pub(crate) fn each_preserved(&mut self, visit: &mut dyn FnMut(&mut Preserved)) {
        visit(&mut self.preserved);
        for run in self.asked.iter_mut().filter_map(PendingQuestion::run_mut) {
            run.each_preserved(visit);
        }
    }

    /// Preserves the output of a step for the error report of a failed run. Removes the user's
    /// answer from the output of a question, because the caller must not see it.
    pub(super) fn preserve(&mut self, plan: &Plan, step: usize, mut output: Value) {
        // The answers of the user are meant for the run, and not for the caller of the run.
        if let (Some(_), Value::Object(answer)) =
            (plan.steps()[step].action.as_elicitation(), &mut output)
        {
            answer.remove("content");
        }
        self.preserved.add(step, output);
    }

    /// Removes and returns the output of a step, for the error report of a failed run. Returns
    /// `None` if the step has no output.
    pub(crate) fn take_output(&mut self, plan: &Plan, step: usize) -> Option<Preservation> {
        if let Some(output) = self.outcomes[step].as_mut().and_then(|it| it.take_any_output()) {
            self.preserve(plan, step, output);
        }
        self.preserved.take(step)
    }

    /// Returns the name of the limit that ended the run, such as `max_calls`.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        self.reached.as_ref().map(|reached| reached.setting.name())
    }

    /// Creates the observation of a run that starts or resumes. Returns `None` if nothing observes
    /// the run.
    pub(super) fn watch<'p>(
        &self,
        plan: &'p Plan,
        context: &Context,
        scope: &Scope,
        begun: Instant,
    ) -> Option<Box<Observation<'p>>> {
        let mut watching = Observation::new(
            plan,
            self.watched,
            context,
            &scope.observers,
            scope.place.as_ref(),
            begun,
        )?;
        if self.was_running() {
            watching.resume();
        }
        for each in &self.loops {
            watching.resume_loop(each.step, each.started_ms, each.attempts);
        }
        for pending in &self.asked {
            watching.resume_branch(pending.id, pending.started_ms, pending.attempts);
        }
        Some(watching)
    }
}

// === impl PendingQuestion ===

impl PendingQuestion {
    /// Returns the state of the nested run that asked the questions. Returns `None` if a step or
    /// another tool asked them.
    pub(super) fn run_mut(&mut self) -> Option<&mut RunState> {
        match &mut self.resume {
            Some(Resume::Run(run)) => Some(run),
            _ => None,
        }
    }

    /// Returns `true` if the pending question matches `plan`. Used to reject invalid stored states.
    ///
    /// The step must ask the user or call a tool. For a switch, the chosen call site must exist.
    /// For a loop, the loop element must be running in `loops`.
    pub(super) fn fits(&self, plan: &Plan, loops: &[LoopState]) -> bool {
        let BranchId { step, element } = self.id;
        let Some(definition) = plan.steps().get(step) else { return false };
        let has_site = |site| definition.action.sites().any(|call| call.site == site);
        let each = || loops.iter().find(|each| each.step == step);
        let action = &definition.action;
        if action.as_loop().is_some() {
            return self.is_call()
                && self.site.is_none()
                && each().is_some_and(|each| each.is_running(element));
        }
        element == 0
            && match self.is_call() {
                false => action.as_elicitation().is_some() && self.questions.contains_key(OWN),
                true if action.as_switch().is_some() => self.site.is_some_and(has_site),
                true => action.as_call().is_some() && self.site.is_none(),
            }
    }

    /// Returns the start of the call or step, as a duration since the start of the run.
    pub(super) const fn begun(&self) -> Duration {
        Duration::from_millis(self.started_ms)
    }

    /// Returns `true` if a tool or a nested run asked the questions, and `false` if the step did.
    pub(super) const fn is_call(&self) -> bool {
        self.resume.is_some()
    }
}

/// Converts a list of step indexes to a set. Returns `None` if an index occurs twice or is not less
/// than `count`.
fn set(steps: &[usize], count: usize) -> Option<StepSet> {
    if steps.iter().any(|&step| step >= count) {
        return None;
    }
    let set: StepSet = steps.iter().copied().collect();
    (set.len() == steps.len()).then_some(set)
}
