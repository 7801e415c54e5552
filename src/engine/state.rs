//! The state of a run and its pending questions.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    branches::BranchId,
    loop_state::LoopState,
    meter::Reached,
    observation::{Observation, Suspended},
    outcome::Outcome,
    plan::{Plan, StepSet},
    preserved_outputs::{Preservation, Preserved},
    question::{Question, Responses},
    scope::{Scope, Spent},
};
use crate::message::Context;

/// The maximum number of calls that a stored state may contain. No run makes so many calls, and
/// sums of such numbers do not overflow.
const MAX_ATTEMPTS: u64 = 1 << 30;

/// The key of the question that a step itself asks. A step asks only one question.
pub(super) const OWN: &str = "";

/// The state of a run: its input, the outcomes of its finished steps, and its pending questions.
///
/// The state is a plain, serializable value. So a run can be suspended in one process and resumed
/// in another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunState {
    /// The checked input of the run. Null once no expression reads the input any more.
    pub(crate) input: Value,
    /// The outcome of each step, in the order of the plan.
    ///
    /// The outcome of a step that has not finished is `None`.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    /// The finished steps, in the order in which they finished.
    pub(crate) finished: Vec<usize>,
    /// The step that failed the run, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) failed: Option<usize>,
    /// Whether the run timed out.
    #[serde(skip_serializing_if = "is_false", default)]
    pub(crate) timed_out: bool,
    /// The step that ended the run early, if any: the user refused its question, or it is a stop.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ended_by: Option<usize>,
    /// The limit that ended the run early. Not serialized, because a run that was ended by a limit
    /// waits for no answer and is never suspended.
    #[serde(skip)]
    pub(crate) reached: Option<Reached>,
    /// The loop elements that did not begin because a limit ended the run.
    #[serde(skip)]
    pub(crate) skipped_elements: Vec<BranchId>,
    /// The outputs of completed steps that no step reads any more, kept for the report of a failed
    /// run.
    #[serde(skip_serializing_if = "Preserved::is_empty", default)]
    pub(crate) preserved: Preserved,
    /// The pending questions, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) asked: Vec<PendingQuestion>,
    /// The loops that have begun and not ended, saved while the run is suspended.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) loops: Vec<LoopState>,
    /// The running time in milliseconds, without the time spent waiting for the user.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(super) active_ms: u64,
    /// The resources that the run has used of its own limits, saved while the run is suspended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) spent: Option<Box<Spent>>,
    /// The id that observers have for the run, saved while the run is suspended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) watched: Option<u64>,
    /// Reports the run to observers as dropped if it is never resumed. Declared after `asked`, so
    /// that the nested runs in `asked` are dropped and reported first.
    #[serde(skip)]
    pub(super) suspended: Suspended,
    /// The id of the run. Present only if an expression or a nested run needs the id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) id: Option<String>,
    /// The name of the run. Present only if an expression reads the name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) name: Option<String>,
    /// The time at which the run started, as of RFC 3339. Present only if an expression reads it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) started_at: Option<String>,
}

/// A call of a tool, or a step with a question, that waits for answers of the user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingQuestion {
    pub(super) id: BranchId,
    /// The number of calls of the tool so far or, for the question of a step, the number of invalid
    /// answers so far.
    pub(super) attempts: u32,
    /// The start of the call or step, in milliseconds after the start of the run.
    pub(super) started_ms: u64,
    /// The index of the call site that a switch has chosen. `None` if the step is not a switch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) site: Option<usize>,
    /// The questions by their keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(super) questions: BTreeMap<String, Question>,
    /// The state to return to the tool with the answers; `None` for the question of a step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) resume: Option<Resume>,
    /// The responses that have arrived, by the keys of their questions.
    #[serde(skip)]
    pub(super) responses: Responses,
}

/// The state to return to the tool or run that asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resume {
    /// The state that a tool sent with its questions, if it sent any.
    Tool(Option<String>),
    /// The state of the suspended run of a composite.
    Run(Box<RunState>),
}

// === impl RunState ===

impl RunState {
    /// Creates the state of a run that has not begun.
    pub(crate) fn new(input: Value, steps: usize) -> Self {
        Self {
            input,
            outcomes: vec![None; steps],
            finished: Vec::with_capacity(steps),
            ..Self::default()
        }
    }

    /// Returns `true` if this state is consistent with the plan, whether the run is new or
    /// suspended. A state that was stored for another plan usually is not.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        let steps = plan.steps().len();
        let Some(finished) = set(&self.finished, steps) else { return false };
        let loops: Vec<_> = self.loops.iter().map(|each| each.step).collect();
        let Some(loops) = set(&loops, steps) else { return false };
        let mut asked: Vec<_> = self.asked.iter().map(|asked| asked.id).collect();
        asked.sort_unstable();
        asked.dedup();
        let waiting = |step: usize| self.asked.iter().filter(|asked| asked.id.step == step).count();
        let mut began = self.asked.iter().map(|asked| asked.id.step).chain(loops);
        self.outcomes.len() == steps
            && self.preserved.fits(steps)
            && (0..steps).all(|step| self.outcomes[step].is_some() == finished.contains(step))
            && [self.failed, self.ended_by]
                .into_iter()
                .flatten()
                .all(|step| finished.contains(step))
            && asked.len() == self.asked.len()
            && self.asked.iter().all(|asked| asked.fits(plan, &self.loops))
            && self.loops.iter().all(|each| each.fits(plan, waiting(each.step)))
            && { began }
                .all(|step| !finished.contains(step) && plan.needs(step).is_subset(finished))
            && self.attempts() <= MAX_ATTEMPTS
    }

    /// Marks this run and its suspended nested runs as handed over to a store. They are not
    /// reported as dropped when this state is dropped.
    pub(crate) fn hand_over(&mut self) {
        self.suspended.release();
        self.asked.iter_mut().filter_map(PendingQuestion::run_mut).for_each(Self::hand_over);
    }

    /// Returns the number of calls that were made for steps that have not ended.
    fn attempts(&self) -> u64 {
        let asked = self.asked.iter().map(|asked| asked.attempts);
        asked.chain(self.loops.iter().map(|each| each.attempts)).map(u64::from).sum()
    }

    /// Returns the running time of the run, without the time spent waiting for the user.
    pub(crate) const fn active(&self) -> Duration {
        Duration::from_millis(self.active_ms)
    }

    /// Returns the completed step that is last in the order of the plan.
    pub(crate) fn last_completed(&self) -> Option<usize> {
        let completed = |outcome: &Option<Outcome>| {
            outcome.as_ref().is_some_and(|outcome| outcome.is_success())
        };
        self.outcomes.iter().rposition(completed)
    }

    /// Truncates the outputs that are preserved for the report of a failure, in this run and in its
    /// suspended nested runs, to a total of at most `left` bytes. Subtracts their total size after
    /// the truncation from `left`.
    pub(crate) fn trim_preserved(&mut self, left: &mut usize) {
        self.each_preserved(&mut |preserved| preserved.trim(left));
    }

    /// Calls `visit` with the preserved outputs of this run and of each suspended run nested in it.
    pub(crate) fn each_preserved(&mut self, visit: &mut dyn FnMut(&mut Preserved)) {
        visit(&mut self.preserved);
        for run in self.asked.iter_mut().filter_map(PendingQuestion::run_mut) {
            run.each_preserved(visit);
        }
    }

    /// Keeps the output of a step for the report of a failed run, except for answers of the user.
    pub(super) fn preserve(&mut self, plan: &Plan, step: usize, mut output: Value) {
        // The user's answer is for the run, and not for its caller.
        if let (Some(_), Value::Object(answer)) =
            (plan.steps()[step].action.as_elicitation(), &mut output)
        {
            answer.remove("content");
        }
        self.preserved.add(step, output);
    }

    /// Takes the output of a step for the report of a failed run. For a loop that ended early, the
    /// output contains the elements that were called before. Returns `None` if there is no output.
    pub(crate) fn take_output(&mut self, plan: &Plan, step: usize) -> Option<Preservation> {
        if let Some(output) = self.outcomes[step].as_mut().and_then(|it| it.take_any_output()) {
            self.preserve(plan, step, output);
        }
        self.preserved.take(step)
    }

    /// Returns the name of the limit that ended the run early, or `None` if no limit did.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        self.reached.as_ref().map(|reached| reached.setting.name())
    }

    /// Starts the observation of a run that starts or resumes. Returns `None` if the run is not
    /// observed.
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
    /// Returns the state of the nested run that asked the questions. Returns `None` if a tool or a
    /// step asked them.
    pub(super) fn run_mut(&mut self) -> Option<&mut RunState> {
        match &mut self.resume {
            Some(Resume::Run(run)) => Some(run),
            _ => None,
        }
    }

    /// Returns `true` if this pending question is consistent with the plan.
    ///
    /// The step of the question must exist, and must either ask the user or call a tool, which can
    /// ask. If the step is a switch, the call site that it has chosen must exist. If the step is a
    /// loop, `loops` must contain its state, and the element that asks must be running.
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

    /// Returns `true` if a tool has asked the questions, and `false` if a step has.
    pub(super) const fn is_call(&self) -> bool {
        self.resume.is_some()
    }
}

/// Returns `steps` as a set. Returns `None` if `steps` repeats a step, or contains an index of
/// `count` or more.
fn set(steps: &[usize], count: usize) -> Option<StepSet> {
    if steps.iter().any(|&step| step >= count) {
        return None;
    }
    let set: StepSet = steps.iter().copied().collect();
    (set.len() == steps.len()).then_some(set)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
const fn is_false(truth: &bool) -> bool {
    !*truth
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
