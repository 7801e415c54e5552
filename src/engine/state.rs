//! All that a run knows.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    branches::BranchId,
    for_each::{Loop, LoopState},
    meter::Reached,
    observation::{Observation, Suspended},
    outcome::Outcome,
    plan::{Action, Plan, StepSet},
    preserved_outputs::{Preservation, Preserved},
    questions::PendingQuestion,
    scope::{Scope, Spent},
};
use crate::message::Context;

/// More calls than any run makes for what it puts away, and few enough to count on.
const MAX_ATTEMPTS: u64 = 1 << 30;

/// All that a run knows: what it was given and what has finished.
///
/// It is a plain value, so that a run can be put away and taken up elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunState {
    /// What the run was called with, checked; null once nothing needs it.
    pub(crate) input: Value,
    /// What became of each step, in the order of the plan.
    ///
    /// Boxed, since together they would be an allocation large enough to make
    /// the system's allocator tidy up, which takes longer than the boxes do.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    /// The steps that have finished, in the order they did.
    pub(crate) finished: Vec<usize>,
    /// The step that made the run fail, if one did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) failed: Option<usize>,
    /// Whether the run took too long.
    #[serde(skip_serializing_if = "is_false", default)]
    pub(crate) timed_out: bool,
    /// The step at which a person ended the run before the other steps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ended_by: Option<usize>,
    /// The limit that ended the run before the other steps; what waits for a person
    /// then waits no longer, so that it is never put away.
    #[serde(skip)]
    pub(crate) reached: Option<Reached>,
    /// The elements of loops that did not begin because of that.
    #[serde(skip)]
    pub(crate) skipped_elements: Vec<BranchId>,
    /// The outputs of completed steps that no step reads any more.
    #[serde(skip_serializing_if = "Preserved::is_empty", default)]
    pub(crate) preserved: Preserved,
    /// What waits for a person, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) asked: Vec<PendingQuestion>,
    /// The loops that are not done.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) loops: Vec<LoopState>,
    /// How long it has run, in milliseconds, without the time that it waited for
    /// a person.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(super) active_ms: u64,
    /// What it has used of its own limits, while it waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) spent: Option<Box<Spent>>,
    /// What those call it who watch it, while it waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) watched: Option<u64>,
    /// What they are told if it never goes on, after those within it that wait too.
    #[serde(skip)]
    pub(super) suspended: Suspended,
    /// The id and the name of the run, if the plan refers to them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) name: Option<String>,
}

// === impl RunState ===

impl RunState {
    /// The state of a run that has not begun.
    pub(crate) fn new(input: Value, steps: usize) -> Self {
        Self {
            input,
            outcomes: vec![None; steps],
            finished: Vec::with_capacity(steps),
            ..Self::default()
        }
    }

    /// Whether it can be the state of a run of this plan that was put away, or has
    /// not begun.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        let steps = plan.steps().len();
        let Some(finished) = set(&self.finished, steps) else { return false };
        let loops: Vec<_> = self.loops.iter().map(|each| each.step).collect();
        let Some(loops) = set(&loops, steps) else { return false };
        let mut asked: Vec<_> = self.asked.iter().map(|asked| asked.id).collect();
        asked.sort_unstable();
        asked.dedup();
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
            && self.loops.iter().all(|each| each.fits(plan, &self.asked))
            && { began }
                .all(|step| !finished.contains(step) && plan.needs(step).is_subset(finished))
            && self.attempts() <= MAX_ATTEMPTS
    }

    /// Takes it that somebody else goes on with the run, and with those within it that
    /// wait too: nobody is told here that they have ended.
    pub(crate) fn hand_over(&mut self) {
        self.suspended.release();
        self.asked.iter_mut().filter_map(PendingQuestion::run_mut).for_each(Self::hand_over);
    }

    /// How many calls were made for what has not ended.
    fn attempts(&self) -> u64 {
        let asked = self.asked.iter().map(|asked| asked.attempts);
        asked.chain(self.loops.iter().map(|each| each.attempts)).map(u64::from).sum()
    }

    /// The last step, in the order of the plan, that completed.
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

    /// Preserves the elements that have ended of a loop that ends now.
    pub(super) fn preserve_loop(&mut self, each: Loop<'_>) {
        if each.has_ended_any() {
            self.preserved.add(each.step, each.into_partial_output());
        }
    }

    /// Preserves the output of a step.
    pub(super) fn preserve(&mut self, plan: &Plan, step: usize, mut output: Value) {
        // A person answers to the run, and not to its caller.
        if let (Action::Elicit(_), Value::Object(answer)) =
            (&plan.steps()[step].action, &mut output)
        {
            answer.remove("content");
        }
        self.preserved.add(step, output);
    }

    /// Takes the output of a step for the answer of a failed run: that of a step that has
    /// completed, or of the elements of a loop that were called before it failed.
    pub(crate) fn take_output(&mut self, plan: &Plan, step: usize) -> Option<Preservation> {
        if let Some(output) = self.outcomes[step].as_mut().and_then(|it| it.take_any_output()) {
            self.preserve(plan, step, output);
        }
        self.preserved.take(step)
    }

    /// The name of the limit that ended the run before the other steps, if one did.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        self.reached.as_ref().map(|reached| reached.setting.name())
    }

    /// What is told of the run from here on, if anybody wants to know.
    pub(super) fn watch<'p>(
        &self,
        plan: &'p Plan,
        context: &Context,
        scope: &Scope,
        begun: Instant,
    ) -> Option<Box<Observation<'p>>> {
        let mut watching = Observation::new(plan, self.watched, context, scope, begun)?;
        for each in &self.loops {
            watching.take_up_loop(each.step, each.started_ms, each.attempts);
        }
        for asked in &self.asked {
            watching.resume_branch(asked.id, asked.started_ms, asked.attempts);
        }
        Some(watching)
    }
}

/// These steps of so many as a set, if each is there and stands once.
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
