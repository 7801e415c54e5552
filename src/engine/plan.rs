//! The plan of a run: its steps and their dependencies.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

pub use super::action::OnRefusal;
pub(crate) use super::action::{Action, EarlyEnd, Elicitation, EndForm, PossibleCall, Switch};
pub(crate) use super::branches::SpawnHint;
pub(crate) use super::call_site::{Arguments, CallSite, Parse};
pub(crate) use super::finally::Finally;
pub(crate) use super::loop_plan::{LoopKind, LoopPlan, Repeat};
use super::output::{Output, placed};
pub(crate) use super::step_set::StepSet;
use crate::{
    expr::{Condition, Field, Root, Use},
    message::Labels,
};

/// The maximum number of steps in a plan.
pub(crate) const MAX_PLAN_STEPS: usize = 100;

/// The plan of a run: a validated set of steps with their dependencies.
///
/// A plan is validated when it is created.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The name of the plan. Expressions can read it as `workflow.name`.
    pub(crate) name: Arc<str>,
    steps: Vec<Step>,
    /// The concurrency limit: the maximum number of steps that run at the same time.
    pub(crate) concurrency: usize,
    /// Determines whether the run can end before all of its steps have ended.
    pub(crate) stop: Stop,
    pub(crate) answer: RunOutput,
    /// The names of the steps, as progress notifications show them.
    pub(super) labels: Arc<Labels>,
    /// The dependencies of each step. The order is that of `steps`.
    links: Vec<Links>,
    /// The steps that ask the user.
    pub(crate) questions: StepSet,
    /// The stops: steps that end the run early as soon as they start.
    stops: StepSet,
    /// The steps that run before the outcome of the run is decided: all but the finally steps.
    pub(super) ordinary: StepSet,
    /// The time that the finally steps have. `None` if there are none.
    grace: Option<Duration>,
    /// The finally steps that also run after the call of the run was cancelled.
    pub(super) on_cancel: StepSet,
    /// The steps that call no tool. They do not count toward the concurrency limit of the plan.
    pub(super) without_calls: StepSet,
    /// The steps that make at most one tool call at the same time, without retries, and whose
    /// failure does not affect other running steps.
    single_calls: StepSet,
    /// Whether any step has a retry policy.
    pub(super) has_retries: bool,
    /// The steps that read the input of the run.
    pub(super) input_readers: StepSet,
    pub(super) answer_reads_input: bool,
    /// Whether at least one expression of the plan reads the ID of the run.
    pub(super) reads_id: bool,
    /// Whether at least one expression of the plan reads the name of the run.
    pub(super) reads_name: bool,
    /// Whether at least one expression of the plan reads the start time of the run.
    pub(super) reads_started_at: bool,
}

/// A step of a plan.
#[derive(Debug)]
pub(crate) struct Step {
    /// The name of the step, which is unique within the plan.
    pub(crate) id: Arc<str>,
    pub(crate) action: Action,
    /// The steps that must finish before this step starts, as declared in its definition. Steps
    /// that the expressions of this step refer to may be missing.
    pub(crate) depends_on: StepSet,
    /// The condition under which the step runs. `None` if the step always runs.
    pub(crate) condition: Option<Condition>,
    /// The timeout of each attempt.
    pub(crate) timeout: Duration,
    pub(crate) retry: Option<Retry>,
    pub(crate) on_failure: OnFailure,
    /// The settings of a step that runs after the outcome of the run is decided. `None` for all
    /// other steps.
    pub(crate) finally: Option<Finally>,
    /// Whether the tool is called again if the process stopped while the step ran.
    pub(crate) retry_lost: bool,
    /// The default output of the step, used if the step is skipped or fails.
    pub(crate) default_results: Option<Value>,
}

/// The retry policy of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// The maximum number of retries.
    pub(crate) count: u32,
    /// The upper bound of the random delay before the first retry. The bound doubles with each
    /// retry, up to `max_delay`.
    pub(crate) delay: Duration,
    /// The maximum upper bound of the retry delay.
    pub(crate) max_delay: Duration,
}

/// Determines what happens to the run if a step fails after all of its retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Continue,
    Abort,
}

/// Determines whether a run can end before all of its steps have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The run ends when all of its steps have ended, unless a failed step aborts it earlier.
    #[default]
    Never,
    /// The run ends after the first step that succeeds.
    FirstSuccess,
}

/// The way in which a run builds its answer.
#[derive(Debug, Default)]
pub(crate) enum RunOutput {
    /// The outcomes of all steps.
    #[default]
    Outcomes,
    /// The result of the last completed step, in the order of the plan.
    Last,
    /// A JSON object that the output block of the plan builds at the end of the run.
    Output(Output),
}

/// The dependencies of a step on other steps and vice versa, derived from its definition and from
/// the references in expressions. The *record* of a step is its data that expressions can read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    /// All steps that must finish before this step starts.
    pub(super) needs: StepSet,
    /// The steps that read the record of this step.
    pub(super) readers: StepSet,
    /// The steps whose records this step reads.
    pub(super) reads: StepSet,
    /// Whether the answer of the run reads the record of this step. If so, the record is kept until
    /// the run ends.
    pub(super) answers: bool,
    /// The fields of this step's record that at least one expression reads.
    pub(super) fields: Fields,
    /// Whether the result of this step may become the answer of the run.
    pub(super) may_be_last: bool,
}

/// The fields of a step's record that at least one expression reads. The other fields are not
/// stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) output: bool,
    pub(super) content: bool,
    pub(super) blocks: bool,
    pub(super) text: bool,
    pub(super) error: bool,
}

/// A cycle of steps that wait for each other. Contains the indexes of these steps; the last index
/// repeats the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cycle(pub(crate) Vec<usize>);

// === impl Plan ===

impl Plan {
    /// Creates a plan from its steps. Steps refer to each other by their index in `steps`.
    ///
    /// # Errors
    ///
    /// Returns an error if some steps wait for each other. The error contains one such cycle.
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
            steps: Vec::new(),
            concurrency,
            stop,
            questions: StepSet::default(),
            stops: StepSet::default(),
            ordinary: StepSet::default(),
            grace: None,
            on_cancel: StepSet::default(),
            without_calls: StepSet::default(),
            single_calls: StepSet::default(),
            has_retries: false,
            input_readers: StepSet::default(),
            answer_reads_input: false,
            reads_id: false,
            reads_name: false,
            reads_started_at: false,
            answer: RunOutput::Outcomes,
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
        let ends_early = plan.may_end_early();
        let mut may_be_last = matches!(answer, RunOutput::Last);
        let steps = plan.steps.iter().zip(&mut plan.links).filter(|(step, _)| !step.is_final());
        for (step, links) in steps.rev() {
            links.may_be_last = may_be_last;
            may_be_last &= ends_early || step.may_be_skipped();
        }
        plan.answer = answer;
        match plan.cycle() {
            None => Ok(plan),
            Some(cycle) => Err(cycle),
        }
    }

    /// Adds a step to the plan's sets of steps, such as the set of questions. Also links the step
    /// with the steps whose data it reads.
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
    /// expression belongs to the answer of the plan.
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

    /// Prepares the plan for a limit that can end the run after any step. The result of each step
    /// can then become the answer of the run, so that it is stored while the step is the last
    /// completed step.
    pub(crate) fn may_end_anywhere(&mut self) {
        let may_be_last = matches!(self.answer, RunOutput::Last);
        for step in self.ordinary {
            self.links[step].may_be_last = may_be_last;
        }
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(super) fn links(&self, step: usize) -> &Links {
        &self.links[step]
    }

    /// Returns the steps that must finish before the step starts.
    pub(crate) fn needs(&self, step: usize) -> StepSet {
        self.links[step].needs
    }

    /// Returns `true` if the answer of the run reads the data of this step.
    pub(crate) fn answer_reads(&self, step: usize) -> bool {
        self.links[step].answers
    }

    /// Returns `true` if the end of each tool call of the step affects no other call: the call is
    /// not retried, and its end stops no other running step. The step or its loop element can then
    /// end immediately if the first poll of its call returns `Ready`.
    pub(super) fn is_direct(&self, step: usize) -> bool {
        self.single_calls.contains(step) && (self.concurrency <= 1 || self.stop == Stop::Never)
    }

    /// Returns `true` if a step other than the last can end the run early: a [stop](Action::Stop),
    /// or a question that the user may refuse.
    pub(crate) fn may_end_early(&self) -> bool {
        let last = { self.ordinary }.last();
        let mut before = { self.ordinary }.filter(|&step| Some(step) != last);
        before.any(|step| {
            let action = &self.steps[step].action;
            action.may_skip_rest() || action.as_early_end().is_some()
        })
    }

    /// Returns `true` if the step is a [stop](Action::Stop).
    pub(crate) fn is_stop(&self, step: usize) -> bool {
        self.stops.contains(step)
    }

    /// Returns `true` if the step runs after the outcome of the run is decided.
    pub(crate) fn is_final(&self, step: usize) -> bool {
        !self.ordinary.contains(step)
    }

    /// Returns the time that the finally steps of the run have. Returns `None` if there are none.
    pub(crate) const fn grace(&self) -> Option<Duration> {
        self.grace
    }

    /// Returns `true` if at least one finally step also runs after the call of the run was
    /// cancelled.
    pub(crate) const fn runs_on_cancel(&self) -> bool {
        !self.on_cancel.is_empty()
    }

    /// Returns `true` if the plan contains a [stop](Action::Stop).
    pub(super) const fn has_stops(&self) -> bool {
        !self.stops.is_empty()
    }

    /// Returns `true` if every [stop](Action::Stop) waits for this step, so that no stop can end
    /// the run before the step has finished.
    pub(crate) fn precedes_stops(&self, step: usize) -> bool {
        self.stops.is_empty() || self.stops.is_subset(self.with_dependents(step))
    }

    /// Returns the questions that the user must answer for a run to succeed. A condition may still
    /// skip them.
    pub(crate) fn certain_questions(&self) -> StepSet {
        let is_certain = |&step: &usize| !self.steps[step].may_fail() && self.precedes_stops(step);
        self.questions.filter(is_certain).collect()
    }

    /// Returns `true` if the plan contains a loop that can process several elements in parallel.
    pub(super) fn has_parallel_loop(&self) -> bool {
        let is_parallel =
            |step: &Step| step.action.as_loop().is_some_and(|each| each.max_parallel > 1);
        self.steps.iter().any(is_parallel)
    }

    /// Iterates over all call sites of the plan, in order. Each comes with the ID of its step.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&str, &CallSite)> {
        let steps = self.steps.iter();
        steps.flat_map(|step| step.action.sites().map(|call| (&*step.id, call)))
    }

    /// Returns all call sites in order.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &CallSite> {
        self.steps.iter().flat_map(|step| step.action.sites())
    }

    /// Returns one cycle of steps that wait for each other. Returns `None` if no cycle exists.
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
    /// Returns all references in the step. Each comes with its path within the definition of the
    /// step.
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

    /// Returns `true` if the step calls a tool with the unchanged input of the run as the
    /// arguments.
    fn passes_input(&self) -> bool {
        self.action.sites().any(|call| matches!(call.arguments, Arguments::Input))
    }

    /// Returns `true` if the run continues when the step fails. The failure of a finally step never
    /// affects the outcome of the run.
    ///
    /// A loop over a collection with [`OnFailure::Continue`] does not fail if its elements fail,
    /// but only if it cannot start, or if no element can be called. In this case, the run continues
    /// only if the loop has default results.
    pub(crate) fn may_fail(&self) -> bool {
        let is_tolerant = || self.action.as_loop().is_some_and(LoopPlan::tolerates_failures);
        self.is_final()
            || (self.on_failure == OnFailure::Continue
                && (!is_tolerant() || self.default_results.is_some()))
    }

    /// Returns `true` if the step runs after the outcome of the run is decided.
    pub(crate) const fn is_final(&self) -> bool {
        self.finally.is_some()
    }

    /// Returns `true` if the step is a loop that completes although elements fail.
    pub(super) fn tolerates_failures(&self) -> bool {
        self.on_failure == OnFailure::Continue
            && self.action.as_loop().is_some_and(LoopPlan::tolerates_failures)
    }

    pub(super) const fn is_loop(&self) -> bool {
        self.action.as_loop().is_some()
    }

    /// Returns `true` if the run can continue without a result of the step, because the step may be
    /// skipped or because its failure does not fail the run.
    pub(crate) fn may_be_skipped(&self) -> bool {
        self.condition.is_some() || self.may_fail() || self.action.may_be_skipped()
    }
}

// === impl Fields ===

impl Fields {
    fn insert(&mut self, field: Field) {
        match field {
            Field::Output => self.output = true,
            Field::Content => self.content = true,
            Field::Blocks => self.blocks = true,
            Field::Text => self.text = true,
            Field::Error => self.error = true,
            // The status of a step is always kept.
            Field::Status => (),
        }
    }

    /// Iterates over the fields in this set.
    pub(super) fn iter(self) -> impl Iterator<Item = Field> {
        let fields = [
            (self.output, Field::Output),
            (self.content, Field::Content),
            (self.blocks, Field::Blocks),
            (self.text, Field::Text),
            (self.error, Field::Error),
        ];
        fields.into_iter().filter_map(|(is_read, field)| is_read.then_some(field))
    }
}
