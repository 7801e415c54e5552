//! Plans, the validated definitions of composites: steps and their dependencies.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

pub(crate) use super::action::{
    Action, Computed, EarlyEnd, Elicitation, EndForm, PossibleCall, Switch,
};
pub(crate) use super::branches::SpawnHint;
pub(crate) use super::call_site::{Arguments, CallSite, Parse};
pub(crate) use super::loop_plan::{LoopKind, LoopPlan, Repeat};
use super::output::{Output, placed};
pub(crate) use super::step_set::StepSet;
pub use super::{action::OnRefusal, finally::Finally};
use crate::{
    expr::{Condition, Field, Root, Use},
    message::Labels,
};

pub(crate) const MAX_PLAN_STEPS: usize = 100;

/// The validated definition of a composite: its steps and their dependencies.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The name of the composite. Expressions read it as `workflow.name`.
    pub(crate) name: Arc<str>,
    steps: Vec<Step>,
    /// The maximum number of steps that run at the same time.
    pub(crate) concurrency: usize,
    /// Determines whether a run ends after the first step that succeeds.
    pub(crate) stop: Stop,
    pub(crate) answer: RunOutput,
    /// The names of the steps in progress notifications.
    pub(super) labels: Arc<Labels>,
    /// The dependencies of each step, in the order of `steps`.
    links: Vec<Links>,
    /// The steps that ask the user questions.
    pub(crate) questions: StepSet,
    /// The steps that end the run early when they start.
    stops: StepSet,
    /// All steps except the finally steps, which run after the outcome of the run is decided.
    pub(super) ordinary: StepSet,
    /// The time limit for all finally steps together. `None` if the plan has no finally steps.
    grace: Option<Duration>,
    /// The finally steps that also run after the client has cancelled the call.
    pub(super) on_cancel: StepSet,
    /// The steps that never call a tool. They do not count toward `concurrency`.
    pub(super) without_calls: StepSet,
    /// The steps that make at most one tool call at a time, without retries, and whose failure
    /// stops no other running step.
    single_calls: StepSet,
    /// The steps whose result may become the result of the run.
    pub(super) may_be_last: StepSet,
    pub(super) has_retries: bool,
    /// The steps that pass the input of the run to a tool or read it in expressions.
    pub(super) input_readers: StepSet,
    pub(super) answer_reads_input: bool,
    /// If `true`, an expression reads the ID of the run.
    pub(super) reads_id: bool,
    /// If `true`, an expression reads the name of the run.
    pub(super) reads_name: bool,
    /// If `true`, an expression reads the start time of the run.
    pub(super) reads_started_at: bool,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) id: Arc<str>,
    pub(crate) action: Action,
    /// The steps in `depends_on` of the definition, which must finish before this step starts.
    /// Excludes dependencies that follow only from expressions.
    pub(crate) depends_on: StepSet,
    /// The step is skipped if this condition is false. `None` if the step always runs.
    pub(crate) condition: Option<Condition>,
    /// The timeout of each attempt to call the tool.
    pub(crate) timeout: Duration,
    pub(crate) retry: Option<Retry>,
    pub(crate) on_failure: OnFailure,
    /// The settings of a finally step, which runs after the outcome of the run is decided. `None`
    /// for all other steps.
    pub(crate) finally: Option<Finally>,
    /// If `true`, the tool is called again after the process stopped during the call.
    pub(crate) retry_lost: bool,
    /// The output of the step if it is skipped or fails. `None` if it has no output then.
    pub(crate) default_results: Option<Value>,
}

/// The retry policy of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(crate) count: u32,
    /// The maximum delay before the first retry. The actual delay is random. The maximum doubles
    /// with each further retry, up to `max_delay`.
    pub(crate) delay: Duration,
    /// The upper bound for all retry delays.
    pub(crate) max_delay: Duration,
}

/// The effect on the run if a step fails after all of its retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Continue,
    Abort,
}

/// Determines whether a run ends after the first step that succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The run ends when all steps have ended, or when a failed step aborts it.
    #[default]
    Never,
    /// The run ends after the first step that succeeds.
    FirstSuccess,
}

/// Determines what a run returns.
#[derive(Debug, Default)]
pub(crate) enum RunOutput {
    /// The outcomes of all steps. Used for composites that call several targets in parallel.
    #[default]
    Outcomes,
    /// The result of the last completed step, in the order of the definition.
    Last,
    /// A JSON object that the `output` block of the definition builds.
    Output(Output),
}

/// The dependencies between a step and other steps. They follow from its definition and from
/// references in expressions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    /// The steps that must finish before this step starts.
    pub(super) needs: StepSet,
    /// The steps whose expressions read data of this step, such as its output.
    pub(super) readers: StepSet,
    /// The steps whose data the expressions of this step read.
    pub(super) reads: StepSet,
    /// If `true`, the result of the run is built from data of this step, which is then kept until
    /// the run ends.
    pub(super) answers: bool,
    /// The fields of this step that expressions read, such as `output`.
    pub(super) fields: Fields,
}

/// The fields of a step that expressions read, such as its output. Other fields are not stored.
/// Bit `n` is set if the set contains the variant of [`Field`] with the number `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(u8);

/// A cycle of steps that wait for each other: the indexes of the steps. The last index equals the
/// first, as in `[1, 4, 1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cycle(pub(crate) Vec<usize>);

// === impl Plan ===

impl Plan {
    /// Creates a plan. Steps refer to each other by their index in `steps`.
    ///
    /// # Errors
    ///
    /// Returns one of the cycles if steps wait for each other.
    pub(crate) fn new(
        name: Arc<str>,
        steps: Vec<Step>,
        concurrency: usize,
        stop: Stop,
        answer: RunOutput,
    ) -> Result<Self, Cycle> {
        debug_assert!(steps.len() <= MAX_PLAN_STEPS);
        let what = match answer {
            RunOutput::Outcomes => "branch",
            RunOutput::Last | RunOutput::Output(_) => "step",
        };
        let names = steps.iter().map(|step| step.id.clone()).collect();
        let mut plan = Self {
            name,
            labels: Labels::Named(what, names).into(),
            links: vec![Links::default(); steps.len()],
            concurrency,
            stop,
            ..Self::default()
        };
        for (at, step) in steps.iter().enumerate() {
            plan.index(at, step);
        }
        // Finally steps wait for all other steps.
        for (links, _) in plan.links.iter_mut().zip(&steps).filter(|(_, step)| step.is_final()) {
            links.needs = links.needs.union(plan.ordinary);
        }
        if let RunOutput::Output(output) = &answer {
            for used in output.uses() {
                plan.link(None, used.root);
            }
        }
        plan.steps = steps;
        if matches!(answer, RunOutput::Last) {
            plan.may_be_last = plan.last_steps();
        }
        plan.answer = answer;
        match plan.cycle() {
            None => Ok(plan),
            Some(cycle) => Err(cycle),
        }
    }

    /// Adds a step to the sets of the plan, such as `questions`. Links the step with the steps
    /// whose data its expressions read.
    fn index(&mut self, at: usize, step: &Step) {
        self.links[at].needs = step.depends_on;
        match step.finally {
            None => self.ordinary.insert(at),
            Some(Finally { grace, on_cancel }) => {
                self.grace = self.grace.max(Some(grace));
                if on_cancel {
                    self.on_cancel.insert(at);
                }
            }
        }
        if step.passes_input() {
            self.input_readers.insert(at);
        }
        if step.action.as_elicitation().is_some() {
            self.questions.insert(at);
        }
        if step.action.as_early_end().is_some() {
            self.stops.insert(at);
        }
        if step.action.sites().next().is_none() {
            self.without_calls.insert(at);
        }
        self.has_retries |= step.retry.is_some();
        let is_single = step.retry.is_none() && (step.may_fail() || self.concurrency <= 1);
        if is_single && step.action.calls_one_at_a_time() {
            self.single_calls.insert(at);
        }
        for used in step.uses() {
            self.link(Some(at), used.root);
        }
    }

    /// Records that an expression of the step `reader` refers to `root`. If `reader` is `None`, the
    /// expression belongs to the `output` block.
    fn link(&mut self, reader: Option<usize>, root: Root) {
        match (root, reader) {
            (Root::Step { step, field }, reader) => {
                self.links[step].fields.insert(field);
                match reader {
                    None => self.links[step].answers = true,
                    Some(reader) => {
                        self.links[reader].needs.insert(step);
                        self.links[reader].reads.insert(step);
                        self.links[step].readers.insert(reader);
                    }
                }
            }
            (Root::Input, Some(reader)) => self.input_readers.insert(reader),
            (Root::Input, None) => self.answer_reads_input = true,
            (Root::WorkflowId, _) => self.reads_id = true,
            (Root::WorkflowName, _) => self.reads_name = true,
            (Root::WorkflowStartedAt, _) => self.reads_started_at = true,
            (Root::Item | Root::Index, _) => (),
        }
    }

    /// Returns the steps that may be the last ones to complete, in the order of the definition.
    fn last_steps(&self) -> StepSet {
        let ends_early = self.may_end_early();
        let mut last = StepSet::default();
        for step in self.ordinary.rev() {
            last.insert(step);
            if !ends_early && !self.steps[step].may_be_skipped() {
                break;
            }
        }
        last
    }

    /// Records that a limit, such as `max_calls`, can end a run after any step. If the plan returns
    /// the result of the last completed step, the results of all steps except finally steps can
    /// then become the result of a run.
    pub(crate) fn may_end_anywhere(&mut self) {
        if matches!(self.answer, RunOutput::Last) {
            self.may_be_last = self.ordinary;
        }
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(super) fn links(&self, step: usize) -> &Links {
        &self.links[step]
    }

    /// Returns the steps that must finish before this step starts.
    pub(crate) fn needs(&self, step: usize) -> StepSet {
        self.links[step].needs
    }

    /// Returns `true` if the result of the run is built from data of this step.
    pub(crate) fn answer_reads(&self, step: usize) -> bool {
        self.links[step].answers
    }

    /// Returns `true` if the end of a tool call of this step affects no other call: the call is not
    /// retried, and no other step is stopped. If the first poll of such a call returns `Ready`, its
    /// step or loop element can end immediately.
    pub(super) fn is_direct(&self, step: usize) -> bool {
        self.single_calls.contains(step) && (self.concurrency <= 1 || self.stop == Stop::Never)
    }

    /// Returns `true` if a step before the last one can end the run early. It is a
    /// [stop](Action::Stop), or a question that skips the remaining steps if the user refuses it.
    pub(crate) fn may_end_early(&self) -> bool {
        let mut before = self.ordinary;
        before.next_back();
        before.any(|step| {
            let action = &self.steps[step].action;
            action.may_skip_rest() || action.as_early_end().is_some()
        })
    }

    pub(crate) fn is_stop(&self, step: usize) -> bool {
        self.stops.contains(step)
    }

    /// Returns `true` if the step is a finally step, which runs after the outcome of the run is
    /// decided.
    pub(crate) fn is_final(&self, step: usize) -> bool {
        !self.ordinary.contains(step)
    }

    /// Returns the time limit for all finally steps together. Returns `None` if there are no
    /// finally steps.
    pub(crate) const fn grace(&self) -> Option<Duration> {
        self.grace
    }

    /// Returns `true` if a finally step also runs after the client has cancelled the call.
    pub(crate) const fn runs_on_cancel(&self) -> bool {
        !self.on_cancel.is_empty()
    }

    pub(super) const fn has_stops(&self) -> bool {
        !self.stops.is_empty()
    }

    /// Returns `true` if no stop can end the run before this step has finished, because every
    /// [stop](Action::Stop) waits for it.
    pub(crate) fn precedes_stops(&self, step: usize) -> bool {
        self.stops.is_empty() || self.stops.is_subset(self.with_dependents(step))
    }

    /// Returns the questions without whose answers a run cannot succeed. A run may still skip one
    /// because of its condition.
    pub(crate) fn certain_questions(&self) -> StepSet {
        let is_certain = |&step: &usize| !self.steps[step].may_fail() && self.precedes_stops(step);
        self.questions.filter(is_certain).collect()
    }

    /// Returns `true` if a loop of the plan can run several elements at the same time.
    pub(super) fn has_parallel_loop(&self) -> bool {
        let is_parallel =
            |step: &Step| step.action.as_loop().is_some_and(|each| each.max_parallel > 1);
        self.steps.iter().any(is_parallel)
    }

    /// Returns all call sites of the plan in order, each with the ID of its step.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&str, &CallSite)> {
        let steps = self.steps.iter();
        steps.flat_map(|step| step.action.sites().map(|call| (&*step.id, call)))
    }

    /// Returns all call sites in order.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &CallSite> {
        self.steps.iter().flat_map(|step| step.action.sites())
    }

    /// Returns a cycle of steps that wait for each other, or `None` if there is none.
    fn cycle(&self) -> Option<Cycle> {
        let mut left = StepSet::first(self.steps.len());
        while let Some(free) =
            left.into_iter().find(|&step| self.links[step].needs.intersection(left).is_empty())
        {
            left.remove(free);
        }
        // Each of the steps that are left waits for another one of them.
        let mut path = vec![left.into_iter().next()?];
        loop {
            let last = *path.last()?;
            let next = self.links[last].needs.intersection(left).into_iter().next()?;
            if let Some(start) = path.iter().position(|&step| step == next) {
                path.drain(..start);
                path.push(next);
                return Some(Cycle(path));
            }
            path.push(next);
        }
    }
}

// === impl Step ===

impl Step {
    /// Returns all references in the expressions of the step, each with its path in the definition
    /// of the step.
    pub(crate) fn uses(&self) -> Vec<Use<'_>> {
        let condition = self.condition.iter().flat_map(Condition::uses);
        let mut uses: Vec<_> = placed(["condition"], condition.collect()).collect();
        uses.extend(self.action.decisions().map(|(_, used)| used));
        for call in self.action.calls() {
            uses.extend(placed(
                call.path.into_iter().chain(["arguments".into()]),
                call.site.uses(),
            ));
        }
        uses
    }

    /// Returns `true` if the step passes the input of the run to a tool, unchanged.
    fn passes_input(&self) -> bool {
        self.action.sites().any(|call| matches!(call.arguments, Arguments::Input))
    }

    /// Returns `true` if the failure of the step does not fail the run. Always `true` for finally
    /// steps.
    ///
    /// With [`OnFailure::Continue`], a loop over a collection completes even if elements fail. It
    /// fails only if it cannot start or cannot call its tool for any element. The run then
    /// continues only if the loop has default results.
    pub(crate) fn may_fail(&self) -> bool {
        let is_tolerant = || self.action.as_loop().is_some_and(LoopPlan::tolerates_failures);
        self.is_final()
            || (self.on_failure == OnFailure::Continue
                && (!is_tolerant() || self.default_results.is_some()))
    }

    /// Returns `true` if the step is a finally step, which runs after the outcome of the run is
    /// decided.
    pub(crate) const fn is_final(&self) -> bool {
        self.finally.is_some()
    }

    /// Returns `true` if the step is a loop that completes although some elements fail.
    pub(super) fn tolerates_failures(&self) -> bool {
        self.on_failure == OnFailure::Continue
            && self.action.as_loop().is_some_and(LoopPlan::tolerates_failures)
    }

    pub(super) const fn is_loop(&self) -> bool {
        self.action.as_loop().is_some()
    }

    /// Returns `true` if a run can succeed without a result of this step: the step may be skipped,
    /// or its failure does not fail the run.
    pub(crate) fn may_be_skipped(&self) -> bool {
        self.condition.is_some() || self.may_fail() || self.action.may_be_skipped()
    }
}

// === impl Fields ===

impl Fields {
    const fn insert(&mut self, field: Field) {
        self.0 |= 1 << field as u8;
    }

    pub(super) const fn contains(self, field: Field) -> bool {
        self.0 & (1 << field as u8) != 0
    }

    /// Iterates over the fields, without the status, which is always stored.
    pub(super) fn iter(self) -> impl Iterator<Item = Field> {
        let fields = [Field::Output, Field::Content, Field::Blocks, Field::Text, Field::Error];
        fields.into_iter().filter(move |&field| self.contains(field))
    }
}
