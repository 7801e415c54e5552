//! The state of a run, including its pending questions.

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
    serde_defaults::{is_false, is_zero},
};
use crate::message::Context;

/// The maximum number of tool calls that a stored state may contain. States with more calls are
/// rejected as invalid, so that later sums cannot overflow.
const MAX_ATTEMPTS: u64 = 1 << 30;

/// The key of the question that a step itself asks. The key can be empty, because such a step asks
/// only one question. The questions of a tool have the keys that the tool has chosen.
pub(super) const OWN: &str = "";

/// The state of a run: its input, the outcomes of its finished steps, its pending questions, and
/// what it needs to resume.
///
/// The state can be serialized. A run can therefore be suspended in one process and resumed in
/// another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunState {
    /// The validated input of the run. Set to null, to save memory, after the last step that reads
    /// it has finished.
    pub(crate) input: Value,
    /// The outcome of each step, in the order of the plan. `None` for a step that has not finished.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    /// The finished steps, in the order in which they finished.
    pub(crate) finished: Vec<usize>,
    /// The step whose failure has failed the run. `None` if the run has not failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) failed: Option<usize>,
    /// If `true`, the run ended because its deadline passed.
    #[serde(skip_serializing_if = "is_false", default)]
    pub(crate) timed_out: bool,
    /// The step that ended the run early: a stop step, or a question that the user declined or did
    /// not answer. `None` if no step did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ended_by: Option<usize>,
    /// The saved outcome of the run while its finally steps run. Otherwise `None`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) settled: Option<Box<Settled>>,
    /// The limit that ended the run. `None` if no limit was reached. Not serialized, because such a
    /// run is not suspended any more until its finally steps run, and the outcome is saved in
    /// `settled` then.
    #[serde(skip)]
    pub(crate) reached: Option<Reached>,
    /// The loop elements that were skipped because a limit ended the run.
    #[serde(skip)]
    pub(crate) skipped_elements: Vec<BranchId>,
    /// The outputs of completed steps that no other step reads any more. The run reports them if it
    /// fails.
    #[serde(skip_serializing_if = "Preserved::is_empty", default)]
    pub(crate) preserved: Preserved,
    /// The pending questions, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) asked: Vec<PendingQuestion>,
    /// The unfinished loops of a stored run. Empty while the run is active.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) loops: Vec<LoopState>,
    /// The steps whose calls were running when this state was stored, without loops. `None` if the
    /// run was suspended then, so that none of its calls was running.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) running: Option<Vec<usize>>,
    /// The duration for which the run was active, in milliseconds. Excludes the time for which it
    /// waited for the user.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(super) active_ms: u64,
    /// The resource usage of a suspended run, so that the run continues to count from these values
    /// after it resumes. `None` if it is zero or the run was not suspended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) spent: Option<Box<Spent>>,
    /// The run's ID in the events of a suspended run, so that observers recognize the run after it
    /// resumes. `None` if the run is not observed or was not suspended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) watched: Option<u64>,
    /// A guard of a suspended run. If the run is never resumed, dropping the guard reports the run
    /// to observers as dropped. Declared after `asked`, so that nested runs in `asked` are dropped
    /// and reported first.
    #[serde(skip)]
    pub(super) suspended: Suspended,
    /// The ID of the run. `None` if neither an expression nor a nested run needs the ID.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) id: Option<String>,
    /// The name of the run. `None` if no expression reads the name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) name: Option<String>,
    /// The time at which the run started, in RFC 3339 format. `None` if no expression reads this
    /// time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) started_at: Option<String>,
}

/// The pending questions of a branch. Either a step asks the user, or a tool has replied to a call
/// with questions. The branch waits until the user has answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingQuestion {
    pub(super) id: BranchId,
    /// If a tool asked the questions, the number of tool calls so far. If a step asked the
    /// question, the number of invalid answers so far.
    pub(super) attempts: u32,
    /// The time at which the tool call or the step started, in milliseconds after the start of the
    /// run.
    pub(super) started_ms: u64,
    /// The index of the call site that a switch has chosen. `None` if the step is not a switch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) site: Option<usize>,
    /// The questions, indexed by their keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(super) questions: BTreeMap<String, Question>,
    /// The state that the next call must send back to the tool, together with the answers. `None`
    /// if the step itself asked the question.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) resume: Option<Resume>,
    /// The client's responses that have arrived so far, indexed by the keys of the questions.
    #[serde(skip_serializing_if = "Responses::is_empty", default)]
    pub(super) responses: Responses,
    /// Whether the responses have not been processed since the run was resumed.
    #[serde(skip)]
    pub(super) is_resuming: bool,
}

/// The state of a tool or nested run that has asked questions. It is needed for continuing after
/// the user has answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resume {
    /// The state that a tool sent with its questions (`requestState`). The next call sends it back.
    /// `None` if the tool sent none.
    Tool(Option<String>),
    /// The state of a suspended nested run, which resumes from it.
    Run(Box<RunState>),
}

// === impl RunState ===

impl RunState {
    /// Creates the state of a run with `steps` steps that has not started.
    pub(crate) fn new(input: Value, steps: usize) -> Self {
        Self {
            input,
            outcomes: (0..steps).map(|_| None).collect(),
            finished: Vec::with_capacity(steps),
            ..Self::default()
        }
    }

    /// Returns `true` if the state is consistent with `plan`. Used for rejecting a stored state
    /// that belongs to another plan, or to an earlier version of the plan.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        let steps = plan.steps().len();
        let Some(finished) = set(&self.finished, steps) else { return false };
        let loops: Vec<_> = self.loops.iter().map(|each| each.step).collect();
        let Some(loops) = set(&loops, steps) else { return false };
        let running = self.running.as_deref().unwrap_or_default();
        let Some(running) = set(running, steps) else { return false };
        let mut asked: Vec<_> = self.asked.iter().map(|asked| asked.id).collect();
        asked.sort_unstable();
        asked.dedup();
        let waiting = |step: usize| self.asked.iter().filter(|asked| asked.id.step == step).count();
        let began = self.asked.iter().map(|asked| asked.id.step).chain(loops).chain(running);
        self.outcomes.len() == steps
            && self.preserved.fits(steps)
            && (0..steps).all(|step| self.outcomes[step].is_some() == finished.contains(step))
            && [self.failed, self.ended_by]
                .into_iter()
                .flatten()
                .all(|step| finished.contains(step))
            && asked.len() == self.asked.len()
            && self.asked.iter().all(|asked| asked.fits(plan, &self.loops))
            && self.loops.iter().all(|each| each.fits(plan, waiting(each.step), self.was_running()))
            && { began }
                .all(|step| !finished.contains(step) && plan.needs(step).is_subset(finished))
            && self.fits_phase(plan, finished)
            && self.attempts() <= MAX_ATTEMPTS
    }

    /// Returns `true` unless a finally step has started although the outcome of the run is not
    /// decided, or the state is otherwise inconsistent with the saved outcome.
    fn fits_phase(&self, plan: &Plan, finished: StepSet) -> bool {
        match &self.settled {
            Some(settled) => {
                plan.grace().is_some()
                    && plan.ordinary.is_subset(finished)
                    && settled.fits(finished)
                    && (self.failed, self.ended_by, self.timed_out) == (None, None, false)
            }
            None => {
                let mut asked = self.asked.iter().map(|asked| asked.id.step);
                let mut loops = self.loops.iter().map(|each| each.step);
                finished.is_subset(plan.ordinary)
                    && !asked.any(|step| plan.is_final(step))
                    && !loops.any(|step| plan.is_final(step))
            }
        }
    }

    /// Returns `true` if the state was stored while the run was running, so that its steps may have
    /// continued after that.
    pub(crate) const fn was_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns `true` if the run waits for answers.
    pub(crate) const fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Marks this run and its suspended nested runs as stored elsewhere. Dropping this state then
    /// does not report them to observers as dropped.
    pub(crate) fn hand_over(&mut self) {
        self.suspended.release();
        self.asked.iter_mut().filter_map(PendingQuestion::run_mut).for_each(Self::hand_over);
    }

    /// Returns the sum of the attempts of all steps that have not ended.
    fn attempts(&self) -> u64 {
        let asked = self.asked.iter().map(|asked| asked.attempts);
        asked.chain(self.loops.iter().map(|each| each.attempts)).map(u64::from).sum()
    }

    /// Returns the duration for which the run has been active, without the time for which it waited
    /// for the user.
    pub(crate) const fn active(&self) -> Duration {
        Duration::from_millis(self.active_ms)
    }

    /// Returns the last completed step in the order of the plan, except for finally steps. Returns
    /// `None` if no such step has completed.
    pub(crate) fn last_completed(&self, plan: &Plan) -> Option<usize> {
        let completed = |&step: &usize| {
            let outcome = self.outcomes[step].as_ref();
            !plan.is_final(step) && outcome.is_some_and(|outcome| outcome.is_success())
        };
        (0..self.outcomes.len()).rev().find(completed)
    }

    /// Truncates the preserved outputs of this run and of its suspended nested runs to at most
    /// `left` bytes in total. Subtracts their remaining size from `left`.
    pub(crate) fn trim_preserved(&mut self, left: &mut usize) {
        self.each_preserved(&mut |preserved| preserved.trim(left));
    }

    /// Calls `visit` with the preserved outputs of this run, and then with those of each suspended
    /// nested run.
    pub(crate) fn each_preserved(&mut self, visit: &mut dyn FnMut(&mut Preserved)) {
        visit(&mut self.preserved);
        for run in self.asked.iter_mut().filter_map(PendingQuestion::run_mut) {
            run.each_preserved(visit);
        }
    }

    /// Preserves the output of a step, so that the run can report it if it fails. If the step asked
    /// the user, removes the user's answer, because the caller must not see it.
    pub(super) fn preserve(&mut self, plan: &Plan, step: usize, mut output: Value) {
        // The answers of the user are meant for the run, and not for the caller of the run.
        if let (Some(_), Value::Object(answer)) =
            (plan.steps()[step].action.as_elicitation(), &mut output)
        {
            answer.remove("content");
        }
        self.preserved.add(step, output);
    }

    /// Removes and returns the output of a step, for the report of a failed run. If a loop ended
    /// early, the output contains only the elements that had started. Returns `None` if the step
    /// has no output.
    pub(crate) fn take_output(&mut self, plan: &Plan, step: usize) -> Option<Preservation> {
        if let Some(output) = self.outcomes[step].as_mut().and_then(|it| it.take_any_output()) {
            self.preserve(plan, step, output);
        }
        self.preserved.take(step)
    }

    /// Returns the name of the limit that ended the run, such as `max_calls`. Returns `None` if no
    /// limit ended the run.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        self.reached.as_ref().map(|reached| reached.setting.name())
    }

    /// Creates the observation of a run that starts or resumes. Returns `None` if the run has no
    /// observers and its metrics are not recorded.
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
        for asked in &self.asked {
            watching.resume_branch(asked.id, asked.started_ms, asked.attempts);
        }
        Some(watching)
    }
}

// === impl PendingQuestion ===

impl PendingQuestion {
    /// Returns the state of the nested run that asked the questions. Returns `None` if a tool or
    /// the step itself asked them.
    pub(super) fn run_mut(&mut self) -> Option<&mut RunState> {
        match &mut self.resume {
            Some(Resume::Run(run)) => Some(run),
            _ => None,
        }
    }

    /// Returns `true` if the pending question is consistent with `plan`. Used for rejecting invalid
    /// stored states.
    ///
    /// The step must exist, and must ask the user or call a tool. If the step is a switch, the
    /// chosen call site must exist. If the step is a loop, `loops` must contain its state, and the
    /// loop element must be running.
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

    /// Returns the time at which the tool call or step started, as a duration since the start of
    /// the run.
    pub(super) const fn begun(&self) -> Duration {
        Duration::from_millis(self.started_ms)
    }

    /// Returns `true` if a tool or a nested run asked the questions. Returns `false` if the step
    /// itself asked.
    pub(super) const fn is_call(&self) -> bool {
        self.resume.is_some()
    }
}

/// Converts a list of step indexes to a set. Returns `None` if the list contains duplicates, or an
/// index that is not less than `count`.
fn set(steps: &[usize], count: usize) -> Option<StepSet> {
    if steps.iter().any(|&step| step >= count) {
        return None;
    }
    let set: StepSet = steps.iter().copied().collect();
    (set.len() == steps.len()).then_some(set)
}
