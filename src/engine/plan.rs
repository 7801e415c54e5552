//! The plan of a run: its steps and their dependencies.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

pub use super::action::OnRefusal;
pub(crate) use super::action::{Action, Arguments, CallSite, Elicitation, ForEach, Switch};
pub(crate) use super::branches::SpawnHint;
use super::output::{Output, placed};
pub(crate) use super::step_set::StepSet;
use crate::{
    expr::{Condition, Field, Root, Use},
    message::Labels,
};

/// The maximum number of steps in a plan.
pub(crate) const MAX_PLAN_STEPS: usize = 100;

/// A plan of a run: its steps and their order.
///
/// A plan is checked when it is built.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The value of `workflow.name`.
    pub(crate) name: Arc<str>,
    steps: Vec<Step>,
    /// The maximum number of steps that run at the same time.
    pub(crate) concurrency: usize,
    /// The condition under which a run ends before all steps have run.
    pub(crate) stop: Stop,
    pub(crate) answer: RunOutput,
    /// The names of the steps in progress messages.
    pub(super) labels: Arc<Labels>,
    /// The dependencies of each step, in the order of `steps`.
    links: Vec<Links>,
    /// The steps that ask the user.
    pub(crate) questions: StepSet,
    /// The steps that call a tool at most once and whose failure stops no running step.
    single_calls: StepSet,
    /// Whether any call is retried.
    pub(super) has_retries: bool,
    /// The steps that read the input.
    pub(super) input_readers: StepSet,
    pub(super) answer_reads_input: bool,
    /// Whether any expression reads the id or the name of the run.
    pub(super) reads_id: bool,
    pub(super) reads_name: bool,
}

/// One node of a plan.
#[derive(Debug)]
pub(crate) struct Step {
    /// The name of the step, unique in the plan.
    pub(crate) id: Arc<str>,
    pub(crate) action: Action,
    /// The steps that must finish before, in addition to those that it refers to.
    pub(crate) depends_on: StepSet,
    /// The condition under which the step runs; `None` if it always runs.
    pub(crate) condition: Option<Condition>,
    /// The timeout of an attempt.
    pub(crate) timeout: Duration,
    pub(crate) retry: Option<Retry>,
    pub(crate) on_failure: OnFailure,
    /// The output if the step is skipped or fails.
    pub(crate) default_results: Option<Value>,
}

/// The retry policy of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// The maximum number of retries.
    pub(crate) count: u32,
    /// The upper bound of the first delay; doubled before each further retry.
    pub(crate) delay: Duration,
    /// The upper bound of any delay.
    pub(crate) max_delay: Duration,
}

/// The outcome of the run when a step has finally failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Continue,
    Abort,
}

/// The condition under which a run ends before all of its steps have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Never, unless a step fails that aborts the run.
    #[default]
    Never,
    /// After the first step that succeeds.
    FirstSuccess,
}

/// The answer of a run.
#[derive(Debug, Default)]
pub(crate) enum RunOutput {
    /// All answers of the tools.
    #[default]
    Outcomes,
    /// The answer of the last step, in the order of the plan, that completed.
    Last,
    /// A value built from the data of the run at its end.
    Output(Output),
}

/// The dependencies of a step, derived from all references.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    /// The steps that must finish before it starts.
    pub(super) needs: StepSet,
    /// The steps that read its record.
    pub(super) readers: StepSet,
    /// The steps whose records it reads.
    pub(super) reads: StepSet,
    /// Whether the answer reads its record, so that it is kept until the end.
    pub(super) answers: bool,
    /// The fields of its record that are read.
    pub(super) fields: Fields,
    /// Whether its result may become the answer of the run.
    pub(super) may_be_last: bool,
}

/// The fields of a record that are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) output: bool,
    pub(super) content: bool,
    pub(super) text: bool,
    pub(super) error: bool,
}

/// A cycle of steps that wait for each other; the first is repeated at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cycle(pub(crate) Vec<usize>);

// === impl Plan ===

impl Plan {
    /// Creates a plan of steps, which refer to each other by index.
    ///
    /// # Errors
    ///
    /// Returns a cycle of steps that wait for each other, if there is one.
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
            single_calls: StepSet::default(),
            has_retries: false,
            input_readers: StepSet::default(),
            answer_reads_input: false,
            reads_id: false,
            reads_name: false,
            answer: RunOutput::Outcomes,
        };
        for (at, step) in steps.iter().enumerate() {
            plan.index(at, step);
        }
        if let RunOutput::Output(output) = &answer {
            for used in output.uses() {
                plan.link(None, used.root);
            }
        }
        plan.steps = steps;
        let ends_early = plan.may_end_early();
        let mut may_be_last = matches!(answer, RunOutput::Last);
        for (step, links) in plan.steps.iter().zip(&mut plan.links).rev() {
            links.may_be_last = may_be_last;
            may_be_last &= ends_early || step.may_be_skipped();
        }
        plan.answer = answer;
        match plan.cycle() {
            None => Ok(plan),
            Some(cycle) => Err(cycle),
        }
    }

    /// Adds a step to the sets of steps, and links the steps whose outputs it reads.
    fn index(&mut self, at: usize, step: &Step) {
        self.links[at].needs = step.depends_on;
        if step.passes_input() {
            self.input_readers.insert(at);
        }
        if step.action.as_elicitation().is_some() {
            self.questions.insert(at);
        }
        self.has_retries |= step.retry.is_some();
        let is_single = step.retry.is_none() && (step.may_fail() || self.concurrency <= 1);
        if is_single && step.action.as_call().is_some() {
            self.single_calls.insert(at);
        }
        for used in step.uses() {
            self.link(Some(at), used.root);
        }
    }

    /// Records a reference of a step, or of the answer.
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
            (Root::Item | Root::Index, _) => (),
        }
    }

    /// Makes steps keep their results while they are the last, since a limit may end a run
    /// anywhere.
    pub(crate) fn may_end_anywhere(&mut self) {
        let may_be_last = matches!(self.answer, RunOutput::Last);
        for links in &mut self.links {
            links.may_be_last = may_be_last;
        }
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(super) fn links(&self, step: usize) -> &Links {
        &self.links[step]
    }

    /// Returns the steps that must finish before a step starts.
    pub(crate) fn needs(&self, step: usize) -> StepSet {
        self.links[step].needs
    }

    /// Returns `true` if a step can end as soon as it begins, independently of other steps: the run
    /// neither retries its call nor stops other running steps with it.
    pub(super) fn is_direct(&self, step: usize) -> bool {
        self.single_calls.contains(step) && (self.concurrency <= 1 || self.stop == Stop::Never)
    }

    /// Returns `true` if the user can end a run before its last step.
    pub(crate) fn may_end_early(&self) -> bool {
        let skips = |step: &Step| step.action.as_elicitation().is_some_and(Elicitation::may_skip);
        self.steps.split_last().is_some_and(|(_, before)| before.iter().any(skips))
    }

    /// Returns `true` if one step can call several tools at the same time.
    pub(super) fn has_parallel_loop(&self) -> bool {
        let is_parallel =
            |step: &Step| step.action.as_loop().is_some_and(|each| each.max_parallel > 1);
        self.steps.iter().any(is_parallel)
    }

    /// Returns all call sites in order, each with the id of its step.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&str, &CallSite)> {
        let steps = self.steps.iter();
        steps.flat_map(|step| step.action.sites().map(|call| (&*step.id, call)))
    }

    /// Returns all call sites in order.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &CallSite> {
        self.steps.iter().flat_map(|step| step.action.sites())
    }

    /// Returns a cycle of steps that wait for each other, if there is one.
    fn cycle(&self) -> Option<Cycle> {
        let mut left = StepSet::first(self.steps.len());
        while let Some(free) =
            left.into_iter().find(|&step| self.links[step].needs.intersection(left).is_empty())
        {
            left.remove(free);
        }
        // Each remaining step waits for another remaining step.
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
    /// Returns all references of the step, each with its place in the step's definition.
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

    /// Returns `true` if a call passes the input unchanged.
    fn passes_input(&self) -> bool {
        self.action.sites().any(|call| matches!(call.arguments, Arguments::Input))
    }

    /// Returns `true` if the run continues after the step fails.
    ///
    /// A loop that continues does not fail with its elements. It fails only if it cannot begin; the
    /// run then continues only if the loop has default results.
    pub(crate) fn may_fail(&self) -> bool {
        self.on_failure == OnFailure::Continue
            && (!self.is_loop() || self.default_results.is_some())
    }

    pub(super) const fn is_loop(&self) -> bool {
        self.action.as_loop().is_some()
    }

    /// Returns `true` if the run can continue although the step did not complete.
    pub(crate) fn may_be_skipped(&self) -> bool {
        self.condition.is_some()
            || self.may_fail()
            || self.action.as_switch().is_some_and(|switch| switch.default.is_none())
    }
}

// === impl Fields ===

impl Fields {
    fn insert(&mut self, field: Field) {
        match field {
            Field::Output => self.output = true,
            Field::Content => self.content = true,
            Field::Text => self.text = true,
            Field::Error => self.error = true,
            // Always available.
            Field::Status => (),
        }
    }

    /// Returns the fields that are read.
    pub(super) fn iter(self) -> impl Iterator<Item = Field> {
        let fields = [
            (self.output, Field::Output),
            (self.content, Field::Content),
            (self.text, Field::Text),
            (self.error, Field::Error),
        ];
        fields.into_iter().filter_map(|(is_read, field)| is_read.then_some(field))
    }
}
