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

/// A bound above the number of calls that any run makes, small enough for the sums not to overflow.
const MAX_ATTEMPTS: u64 = 1 << 30;

/// The key of the only question that a step asks.
pub(super) const OWN: &str = "";

/// The state of a run: its input and the outcomes of finished steps.
///
/// It is a plain value, so that a run can be suspended and resumed elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunState {
    /// The checked input of the run; null when no step needs it any more.
    pub(crate) input: Value,
    /// The outcome of each step, in the order of the plan.
    ///
    /// The outcomes are boxed: together they would be an allocation large enough for the system's
    /// allocator to release memory, which takes longer than the boxes do.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    /// The finished steps, in the order in which they finished.
    pub(crate) finished: Vec<usize>,
    /// The step that failed the run, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) failed: Option<usize>,
    /// Whether the run timed out.
    #[serde(skip_serializing_if = "is_false", default)]
    pub(crate) timed_out: bool,
    /// The step at which the user ended the run before the other steps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ended_by: Option<usize>,
    /// The limit that ended the run before the other steps. Questions then wait no longer, so that
    /// the run is never suspended.
    #[serde(skip)]
    pub(crate) reached: Option<Reached>,
    /// The elements of loops that did not begin because of the limit.
    #[serde(skip)]
    pub(crate) skipped_elements: Vec<BranchId>,
    /// The outputs of completed steps that no step reads any more.
    #[serde(skip_serializing_if = "Preserved::is_empty", default)]
    pub(crate) preserved: Preserved,
    /// The pending questions, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) asked: Vec<PendingQuestion>,
    /// The loops that are not done.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) loops: Vec<LoopState>,
    /// The running time in milliseconds, without the time spent waiting for the user.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(super) active_ms: u64,
    /// The used amounts of the run's own limits, while it is suspended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) spent: Option<Box<Spent>>,
    /// The run's id for observers, while it is suspended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) watched: Option<u64>,
    /// Reports the run as dropped if it is never resumed. Declared after `asked`, so that nested
    /// runs are reported first.
    #[serde(skip)]
    pub(super) suspended: Suspended,
    /// The id and the name of the run, if the plan refers to them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) name: Option<String>,
}

/// A call or a step of a run that waits for answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingQuestion {
    pub(super) id: BranchId,
    /// The number of calls of its tool, or of invalid answers of the user.
    pub(super) attempts: u32,
    /// The start time, in milliseconds after that of the run.
    pub(super) started_ms: u64,
    /// The called site, if the step has several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) site: Option<usize>,
    /// The questions by their keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(super) questions: BTreeMap<String, Question>,
    /// The state to return to a tool; `None` for the question of a step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) resume: Option<Resume>,
    /// The responses since then.
    #[serde(skip)]
    pub(super) responses: Responses,
}

/// The state to return to the tool or run that asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resume {
    /// A tool: the state that it sent, if any.
    Tool(Option<String>),
    /// A composite: the state of its run.
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

    /// Returns `true` if this can be the state of a suspended or new run of this plan.
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

    /// Marks this run and the nested runs that wait as resumed elsewhere, so that they are not
    /// reported as ended here.
    pub(crate) fn hand_over(&mut self) {
        self.suspended.release();
        self.asked.iter_mut().filter_map(PendingQuestion::run_mut).for_each(Self::hand_over);
    }

    /// Returns the number of calls for steps that have not ended.
    fn attempts(&self) -> u64 {
        let asked = self.asked.iter().map(|asked| asked.attempts);
        asked.chain(self.loops.iter().map(|each| each.attempts)).map(u64::from).sum()
    }

    /// Returns the running time, without the time spent waiting for the user.
    pub(crate) const fn active(&self) -> Duration {
        Duration::from_millis(self.active_ms)
    }

    /// Returns the last step, in the order of the plan, that completed.
    pub(crate) fn last_completed(&self) -> Option<usize> {
        let completed = |outcome: &Option<Outcome>| {
            outcome.as_ref().is_some_and(|outcome| outcome.is_success())
        };
        self.outcomes.iter().rposition(completed)
    }

    /// Shortens the preserved outputs of this run, and of the runs nested in it that wait
    /// too, to at most `left` bytes together, and subtracts their size.
    pub(crate) fn trim_preserved(&mut self, left: &mut usize) {
        self.each_preserved(&mut |preserved| preserved.trim(left));
    }

    /// Visits the preserved outputs of this run and of the runs nested in it that wait.
    pub(crate) fn each_preserved(&mut self, visit: &mut dyn FnMut(&mut Preserved)) {
        visit(&mut self.preserved);
        for run in self.asked.iter_mut().filter_map(PendingQuestion::run_mut) {
            run.each_preserved(visit);
        }
    }

    /// Preserves the output of a step.
    pub(super) fn preserve(&mut self, plan: &Plan, step: usize, mut output: Value) {
        // The user's answer is for the run, and not for its caller.
        if let (Some(_), Value::Object(answer)) =
            (plan.steps()[step].action.as_elicitation(), &mut output)
        {
            answer.remove("content");
        }
        self.preserved.add(step, output);
    }

    /// Takes the output of a step for the answer of a failed run: that of a completed step, or of
    /// the elements of a loop that were called before it failed.
    pub(crate) fn take_output(&mut self, plan: &Plan, step: usize) -> Option<Preservation> {
        if let Some(output) = self.outcomes[step].as_mut().and_then(|it| it.take_any_output()) {
            self.preserve(plan, step, output);
        }
        self.preserved.take(step)
    }

    /// Returns the name of the limit that ended the run before the other steps, if any.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        self.reached.as_ref().map(|reached| reached.setting.name())
    }

    /// Returns the observation of the run from here on, if it is observed.
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
    /// Returns the waiting run, if a composite asks.
    pub(super) fn run_mut(&mut self) -> Option<&mut RunState> {
        match &mut self.resume {
            Some(Resume::Run(run)) => Some(run),
            _ => None,
        }
    }

    /// Returns `true` if the question can wait in a run of this plan with these loops.
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

    /// Returns the start time, since that of the run.
    pub(super) const fn begun(&self) -> Duration {
        Duration::from_millis(self.started_ms)
    }

    /// Returns `true` if a tool waits rather than a step.
    pub(super) const fn is_call(&self) -> bool {
        self.resume.is_some()
    }
}

/// Returns these steps as a set, or `None` if one is out of range or repeated.
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
