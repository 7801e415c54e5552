use std::{sync::Arc, time::Duration};

use serde::Serialize;
use serde_json::Value;

pub(crate) use super::branches::SpawnHint;
use super::output::Output;
pub(crate) use super::step_set::StepSet;
use crate::{
    expr::{Collection, Condition, Expression, Field, PathSegment, Root, Use},
    message::Labels,
    schema::InputSchema,
};

/// How many steps a plan may have.
pub(crate) const MAX_STEPS: usize = 100;

/// What a run does: its steps, and how they are gone through.
///
/// A plan that exists can run.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// What the run is called in `workflow.name`.
    pub(crate) name: Arc<str>,
    steps: Vec<Step>,
    /// How many steps run at the same time.
    pub(crate) concurrency: usize,
    /// When a run ends before all steps have run.
    pub(crate) stop: Stop,
    pub(crate) answer: RunOutput,
    /// How progress names the steps.
    pub(super) labels: Arc<Labels>,
    /// Beside each step, what follows from all of them.
    links: Vec<Links>,
    /// The steps that ask a person.
    pub(crate) questions: StepSet,
    /// The steps that call a tool once, and whose failure stops no step that runs.
    single_calls: StepSet,
    /// The steps that read the input.
    pub(super) input_readers: StepSet,
    pub(super) answer_reads_input: bool,
    /// Whether anything reads the id or the name of the run.
    pub(super) reads_id: bool,
    pub(super) reads_name: bool,
}

/// One node of a plan.
#[derive(Debug)]
pub(crate) struct Step {
    /// Its name, unique in the plan.
    pub(crate) id: Arc<str>,
    pub(crate) action: Action,
    /// What must have finished before, besides what it refers to.
    pub(crate) depends_on: StepSet,
    /// It runs if there is none or it holds.
    pub(crate) condition: Option<Condition>,
    /// How long an attempt may take.
    pub(crate) timeout: Duration,
    pub(crate) retry: Option<Retry>,
    pub(crate) on_failure: OnFailure,
    /// Its output if it is skipped or has failed.
    pub(crate) default_results: Option<Value>,
    /// Whether the text of a result that is only text is JSON.
    pub(crate) parse_json: bool,
}

/// What a step does.
#[derive(Debug)]
pub(crate) enum Action {
    /// Calls a tool.
    Call(CallSite),
    /// Calls a tool for each element of a collection.
    ForEach(ForEach),
    /// Calls the tool of the first case that applies.
    Switch(Switch),
    /// Asks the person behind the run.
    Elicit(Elicitation),
}

/// A place in a plan where a tool is called.
#[derive(Debug)]
pub(crate) struct CallSite {
    /// Its place among all of the plan.
    pub(crate) site: usize,
    /// The tool it calls.
    pub(crate) tool: Arc<str>,
    /// What it calls the tool with.
    pub(crate) arguments: Arguments,
    /// Whether its calls begin in tasks.
    pub(crate) hint: SpawnHint,
}

/// What a step calls its tool with.
#[derive(Clone, Debug)]
pub(crate) enum Arguments {
    /// The input of the run.
    Input,
    /// An object made of what the run knows.
    Mapped(Expression),
}

#[derive(Debug)]
pub(crate) struct ForEach {
    pub(crate) collection: Collection,
    /// How many elements may be called for at the same time.
    pub(crate) max_parallel: usize,
    /// How many elements there may be.
    pub(crate) max_iterations: usize,
    pub(crate) call: CallSite,
}

#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) cases: Vec<(Condition, CallSite)>,
    /// What is called if no case applies; the step is skipped without.
    pub(crate) default: Option<CallSite>,
}

/// A question to the person behind the run.
#[derive(Debug)]
pub(crate) struct Elicitation {
    /// What the person is asked.
    pub(crate) message: Expression,
    /// The form to fill in, a JSON Schema whose texts may refer to what the run knows.
    pub(crate) form: Expression,
    /// What answers must fit: the form as it is written.
    pub(crate) schema: InputSchema,
    pub(crate) on_decline: OnRefusal,
    pub(crate) on_cancel: OnRefusal,
}

/// What becomes of a run if a person says no to a question, or does not answer it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum OnRefusal {
    /// The run fails.
    #[default]
    Abort,
    /// The step completes without an answer, and says how.
    Continue,
    /// The step completes and no other step starts; those that run finish.
    SkipRemaining,
}

/// How often and when a call is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// How often at most, besides the first time.
    pub(crate) count: u32,
    /// How long to wait at most before the first; twice as long before each further.
    pub(crate) delay: Duration,
    /// How long to wait at most before any.
    pub(crate) max_delay: Duration,
}

/// What becomes of the run when a step has failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Continue,
    Abort,
}

/// When a run ends before all of its steps have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Never, unless a step fails that may not.
    #[default]
    Never,
    /// As soon as a step has succeeded.
    FirstSuccess,
}

/// What a run leaves behind.
#[derive(Debug, Default)]
pub(crate) enum RunOutput {
    /// All that the tools have answered.
    #[default]
    Outcomes,
    /// The answer of the last step, in the order of the plan, that completed.
    Last,
    /// A value made of what the run knows at its end.
    Output(Output),
}

/// What follows for a step from what the others refer to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    /// What must have finished before it starts.
    pub(super) needs: StepSet,
    /// What reads its record.
    pub(super) readers: StepSet,
    /// What it reads the records of.
    pub(super) reads: StepSet,
    /// Whether the answer reads its record, so that it is kept to the end.
    pub(super) answers: bool,
    /// Which fields of its record are read.
    pub(super) fields: Fields,
    /// Whether its result may become the answer of the run.
    pub(super) may_be_last: bool,
}

/// Which fields of a record are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) output: bool,
    pub(super) content: bool,
    pub(super) text: bool,
    pub(super) error: bool,
}

/// Steps that wait for each other in a circle, the first again at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cycle(pub(crate) Vec<usize>);

// === impl Plan ===

impl Plan {
    /// Makes a plan of steps, whose places are meant by everything in them.
    ///
    /// # Errors
    ///
    /// Returns a circle of steps that wait for each other, if there is one.
    pub(crate) fn new(
        name: Arc<str>,
        steps: Vec<Step>,
        concurrency: usize,
        stop: Stop,
        answer: RunOutput,
    ) -> Result<Self, Cycle> {
        debug_assert!(steps.len() <= MAX_STEPS);
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
            input_readers: StepSet::default(),
            answer_reads_input: false,
            reads_id: false,
            reads_name: false,
            answer: RunOutput::Outcomes,
        };
        for (at, step) in steps.iter().enumerate() {
            plan.links[at].needs = step.depends_on;
            if step.passes_input() {
                plan.input_readers.insert(at);
            }
            if matches!(step.action, Action::Elicit(_)) {
                plan.questions.insert(at);
            }
            if matches!(step.action, Action::Call(_))
                && step.retry.is_none()
                && (step.may_fail() || concurrency <= 1)
            {
                plan.single_calls.insert(at);
            }
            for used in step.uses() {
                plan.link(Some(at), used.root);
            }
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

    /// Notes that a step, or the answer, reads something.
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

    /// Keeps the result of each step as long as it is the last, since a limit may end
    /// a run anywhere.
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

    /// What must have finished before a step starts.
    pub(crate) fn needs(&self, step: usize) -> StepSet {
        self.links[step].needs
    }

    /// Whether a step can end as soon as it begins, whatever other steps do: the run neither
    /// calls its tool again nor stops with it what would run beside it.
    pub(super) fn is_direct(&self, step: usize) -> bool {
        self.single_calls.contains(step) && (self.concurrency <= 1 || self.stop == Stop::Never)
    }

    /// Whether a person can end a run before its last step.
    pub(crate) fn may_end_early(&self) -> bool {
        let skips = |step: &Step| matches!(&step.action, Action::Elicit(ask) if ask.may_skip());
        self.steps.split_last().is_some_and(|(_, before)| before.iter().any(skips))
    }

    /// Whether one step can call several tools at the same time.
    pub(super) fn has_parallel_loop(&self) -> bool {
        let is_parallel =
            |step: &Step| matches!(&step.action, Action::ForEach(each) if each.max_parallel > 1);
        self.steps.iter().any(is_parallel)
    }

    /// All places where tools are called, in their order, each with the id of its step.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&str, &CallSite)> {
        let steps = self.steps.iter();
        steps.flat_map(|step| step.action.sites().map(|call| (&*step.id, call)))
    }

    /// All places where tools are called, in their order.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &CallSite> {
        self.steps.iter().flat_map(|step| step.action.sites())
    }

    /// A circle of steps that wait for each other.
    fn cycle(&self) -> Option<Cycle> {
        let mut left = StepSet::first(self.steps.len());
        while let Some(free) =
            left.into_iter().find(|&step| self.links[step].needs.intersection(left).is_empty())
        {
            left.remove(free);
        }
        // Whatever is left waits for something that is left.
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
    /// All that it refers to, each with its place in the step's definition.
    pub(crate) fn uses(&self) -> Vec<Use<'_>> {
        let mut uses = Vec::new();
        if let Some(condition) = &self.condition {
            uses.extend(placed(["condition"], condition.uses()));
        }
        match &self.action {
            Action::Call(call) => uses.extend(placed(["arguments"], call.uses())),
            Action::ForEach(each) => {
                uses.extend(placed(["collection"], each.collection.uses()));
                uses.extend(placed(["arguments"], each.call.uses()));
            }
            Action::Switch(switch) => {
                for (at, (when, call)) in switch.cases.iter().enumerate() {
                    let case = |key: &str| ["cases".into(), at.into(), key.into()];
                    uses.extend(placed::<PathSegment>(case("when"), when.uses()));
                    uses.extend(placed::<PathSegment>(case("arguments"), call.uses()));
                }
                if let Some(call) = &switch.default {
                    uses.extend(placed(["default", "arguments"], call.uses()));
                }
            }
            Action::Elicit(ask) => {
                uses.extend(placed(["message"], ask.message.uses()));
                uses.extend(placed(["schema"], ask.form.uses()));
            }
        }
        uses
    }

    /// Whether it is called with the input as it is.
    fn passes_input(&self) -> bool {
        self.action.sites().any(|call| matches!(call.arguments, Arguments::Input))
    }

    /// Whether the run goes on if it fails.
    ///
    /// What becomes of its elements does not fail a loop that goes on, so it fails
    /// only if it cannot begin; then there is nothing to go on with but defaults.
    pub(crate) fn may_fail(&self) -> bool {
        self.on_failure == OnFailure::Continue
            && (!self.is_loop() || self.default_results.is_some())
    }

    pub(super) const fn is_loop(&self) -> bool {
        matches!(self.action, Action::ForEach(_))
    }

    /// Whether the run can go on although it did not complete.
    pub(crate) fn may_be_skipped(&self) -> bool {
        self.condition.is_some()
            || self.may_fail()
            || matches!(&self.action, Action::Switch(Switch { default: None, .. }))
    }
}

/// Puts what a part of a definition refers to in its place.
pub(super) fn placed<'e, P: Into<PathSegment>>(
    place: impl IntoIterator<Item = P>,
    uses: Vec<Use<'e>>,
) -> impl Iterator<Item = Use<'e>> {
    let place: Vec<_> = place.into_iter().map(Into::into).collect();
    uses.into_iter().map(move |used| Use { place: [&*place, &used.place].concat(), ..used })
}

// === impl Action ===

impl Action {
    /// The places where it calls tools.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &CallSite> {
        let (cases, call) = match self {
            Self::Call(call) => (&[][..], Some(call)),
            Self::ForEach(each) => (&[][..], Some(&each.call)),
            Self::Switch(switch) => (&*switch.cases, switch.default.as_ref()),
            Self::Elicit(_) => (&[][..], None),
        };
        cases.iter().map(|(_, call)| call).chain(call)
    }
}

// === impl CallSite ===

impl CallSite {
    fn uses(&self) -> Vec<Use<'_>> {
        match &self.arguments {
            Arguments::Input => Vec::new(),
            Arguments::Mapped(expression) => expression.uses(),
        }
    }
}

// === impl ForEach ===

impl ForEach {
    /// What is wrong with this many elements, if anything is.
    pub(super) fn reject(&self, count: usize) -> Option<String> {
        let max = self.max_iterations;
        (count > max)
            .then(|| format!("{count} elements are more than `max_iterations`, which is {max}"))
    }
}

// === impl Elicitation ===

impl Elicitation {
    /// Whether the step can complete although nobody has answered, and the run go on.
    pub(crate) fn may_go_on(&self) -> bool {
        [self.on_decline, self.on_cancel].contains(&OnRefusal::Continue)
    }

    /// Whether whoever is asked can end the run without failing it.
    fn may_skip(&self) -> bool {
        [self.on_decline, self.on_cancel].contains(&OnRefusal::SkipRemaining)
    }
}

// === impl OnRefusal ===

impl OnRefusal {
    /// What it is called in a file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Continue => "continue",
            Self::SkipRemaining => "skip_remaining",
        }
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
            // It is always there.
            Field::Status => (),
        }
    }

    /// The fields that are read.
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
