//! Computes the labels of the steps of one composite, and finds the steps that use labeled data
//! although this is forbidden.

use std::{slice, sync::Arc};

use super::{
    approval::{Approval, approvals},
    policy::FlowLabel,
    rule::Rule,
    summary::Summary,
    taint::{Hop, StepPlace, Taint},
    violation::{FlowReport, FlowViolation},
};
use crate::{
    composite::{
        compile::{Compiled, Program, ResultForm},
        definition::CompositeTool,
        error::Segment,
        strategy::{Fallback, FanOut, Pipeline, Race, Strategy, Workflow},
    },
    engine::plan::{
        Arguments, Computed, LoopKind, LoopPlan, OnFailure, PossibleCall, RunOutput, Step, StepSet,
        Stop,
    },
    expr::{Field, PathSegment, Root, Use},
};

/// The state of analyzing the data flows through one composite.
pub(super) struct Flows<'p> {
    program: &'p Program,
    /// The index of the composite.
    at: usize,
    pub(super) compiled: &'p Compiled,
    pub(super) summaries: &'p [Summary],
    pub(super) labels: &'p dyn Fn(&str) -> Vec<FlowLabel>,
    /// For each step, whether it sets `allow_flow`.
    allowed: Vec<bool>,
    approvals: Vec<Approval<'p>>,
    steps: Vec<StepTaint>,
    /// For each step, the labels of the data that can end the run before the step, for example the
    /// data in the condition of a stop step.
    guards: Vec<Taint>,
    /// `None` until the labels of all steps are complete.
    findings: Option<Findings>,
}

/// The data labels of a step.
#[derive(Default)]
pub(super) struct StepTaint {
    /// The labels of the output if the step completes.
    pub(super) done: Taint,
    /// The labels of the status, the output and the error of the step, whether it completes or
    /// fails.
    pub(super) any: Taint,
    /// The labels of the data that decides whether the step runs, such as the data in its
    /// condition.
    pub(super) runs: Taint,
}

/// The labels of the values that a step uses.
#[derive(Default)]
pub(super) struct Labels {
    pub(super) all: Taint,
    /// The labels of the values that the user has not approved.
    pub(super) unapproved: Taint,
}

#[derive(Default)]
pub(super) struct Findings {
    pub(super) summary: Summary,
    violations: Vec<FlowViolation>,
    /// The steps in which `allow_flow` permits a use of data that the policy forbids.
    exempted: StepSet,
}

/// A use of data in a step, and the rule that restricts it.
pub(super) struct Place<'a> {
    pub(super) step: usize,
    /// The path within the definition of the step, such as `arguments.body`.
    pub(super) path: &'a [PathSegment],
    pub(super) rule: Rule,
    /// The end of the data's path in messages, such as ``argument `body` of `post` ``.
    pub(super) ends: &'a [Hop],
}

// === impl Flows ===

impl<'p> Flows<'p> {
    pub(super) fn new(
        program: &'p Program,
        at: usize,
        summaries: &'p [Summary],
        labels: &'p dyn Fn(&str) -> Vec<FlowLabel>,
    ) -> Self {
        let compiled = &program.composites[at];
        let steps = compiled.plan.steps();
        Self {
            program,
            at,
            compiled,
            summaries,
            labels,
            allowed: allowed(program.definition(at)),
            approvals: approvals(&compiled.plan),
            steps: steps.iter().map(|_| StepTaint::default()).collect(),
            guards: steps.iter().map(|_| Taint::default()).collect(),
            findings: None,
        }
    }

    /// Computes the labels, and then checks all uses of labeled data.
    pub(super) fn check(mut self) -> (Summary, FlowReport) {
        // Labels are only added, so this loop ends. It is repeated because a step can read any
        // other step, and because a stop affects the steps before it in the definition, too.
        while self.update() {}
        self.findings = Some(Findings::default());
        for step in 0..self.steps.len() {
            self.step(step);
        }
        let (result, outcome) = (self.result(), self.outcome());
        let Findings { mut summary, violations, exempted } =
            self.findings.take().unwrap_or_default();
        (summary.result, summary.outcome) = (result, outcome);
        let steps = 0..self.steps.len();
        let unused = steps.filter(|&step| self.allowed[step] && !exempted.contains(step));
        let remarks = unused.map(|step| self.remark(step)).collect();
        (summary, FlowReport { violations, remarks })
    }

    /// Returns a remark about a step that sets `allow_flow` but does not need it.
    fn remark(&self, step: usize) -> String {
        let (name, place) = (&self.compiled.name, self.place(step));
        format!("composite `{name}`: {place} needs no `allow_flow`: it uses no forbidden data")
    }

    /// Computes the labels of all steps once. Returns `true` if a label was added.
    fn update(&mut self) -> bool {
        let mut is_changed = false;
        for step in 0..self.steps.len() {
            let new = self.step(step);
            let old = &mut self.steps[step];
            for (old, new) in
                [(&mut old.done, &new.done), (&mut old.any, &new.any), (&mut old.runs, &new.runs)]
            {
                is_changed |= !old.covers(new);
                old.join(new);
            }
        }
        for step in 0..self.steps.len() {
            let guard = self.guard(step);
            is_changed |= !self.guards[step].covers(&guard);
            self.guards[step].join(&guard);
        }
        is_changed
    }

    /// Returns the labels of the data that decides whether the run ends before this step has
    /// finished. A run can end early because of a stop, or a question that the user declines.
    fn guard(&self, step: usize) -> Taint {
        let mut guard = Taint::default();
        for (index, other) in self.steps.iter().enumerate() {
            if self.may_end_before(index, step) {
                guard.join(&other.runs);
            }
        }
        guard
    }

    /// Returns `true` if the step `index`, a stop or a question, can end the run before `step` has
    /// finished.
    fn may_end_before(&self, index: usize, step: usize) -> bool {
        let plan = &self.compiled.plan;
        let action = &plan.steps()[index].action;
        let ends_run = action.as_early_end().is_some() || action.may_skip_rest();
        // Finally steps run although another step has ended the run.
        let is_before = !plan.is_final(step) || plan.is_final(index);
        ends_run && is_before && !plan.with_dependents(step).contains(index)
    }

    /// Returns the labels of other outcomes that decide whether the calls of a step are made:
    /// - For a target of a race or fallback, the outcomes of the other targets.
    /// - For a loop that ends at the first success or failure, the outcomes of its other calls.
    /// - For a stop or question whose failure does not fail the run, the data that it shows. If
    ///   this data cannot be evaluated, the stop or question does not end the run.
    pub(super) fn rivals(&self, step: usize) -> Taint {
        let plan = &self.compiled.plan;
        let mut rivals = Taint::default();
        let each = plan.steps()[step].action.as_loop();
        if each.is_some_and(LoopPlan::ends_at_success) || self.ends_at_failure(step) {
            rivals.join(&self.steps[step].any);
        }
        for index in 0..self.steps.len() {
            if self.continues(index) && self.may_end_before(index, step) {
                rivals.join(&self.computed(index, |_| true));
            }
        }
        if plan.stop == Stop::FirstSuccess {
            let is_sequential = plan.concurrency <= 1;
            for (index, other) in self.steps.iter().enumerate() {
                if index < step || index > step && !is_sequential {
                    rivals.join(&other.any);
                }
            }
        }
        rivals
    }

    /// Returns `true` if the step is a loop that stops at its first failed call, while the run
    /// continues.
    fn ends_at_failure(&self, step: usize) -> bool {
        let continues = self.continues(step);
        let step = &self.compiled.plan.steps()[step];
        step.action.as_loop().is_some_and(|each| match each.kind {
            LoopKind::Repeat(_) => continues,
            LoopKind::ForEach { .. } => continues && step.on_failure == OnFailure::Abort,
        })
    }

    /// Returns `true` if the run continues when the step, or a loop element of it, fails.
    pub(super) fn continues(&self, step: usize) -> bool {
        let step = &self.compiled.plan.steps()[step];
        step.on_failure == OnFailure::Continue || step.is_final()
    }

    /// Computes the labels of a step. When the labels of all steps are complete, also reports
    /// forbidden uses.
    fn step(&mut self, index: usize) -> StepTaint {
        let compiled = self.compiled;
        let step = &compiled.plan.steps()[index];
        let (mut runs, mut decided) = (self.rivals(index), Taint::default());
        if let Some(condition) = &step.condition {
            let path = ["condition".into()];
            let place = (&path[..], Rule::Condition, "condition");
            let labels = self.decision(index, &condition.uses(), None, place);
            runs.join(&labels.unapproved);
            decided = labels.all;
        }
        let mut done = self.computed(index, |value| value.is_output);
        // The step fails if a value cannot be evaluated.
        let mut any = self.computed(index, |_| true);
        let called = self.calls(index, step, &runs);
        for (taint, called) in [(&mut done, &called.0), (&mut any, &called.1)] {
            taint.join(called);
            taint.join(&runs);
            taint.join(&decided);
        }
        StepTaint { done, any, runs }
    }

    /// Returns the `done` and `any` labels of the tool calls of a step.
    fn calls(&mut self, index: usize, step: &Step, runs: &Taint) -> (Taint, Taint) {
        let (mut done, mut any) = (Taint::default(), Taint::default());
        let mut runs = runs.clone();
        let (mut item, mut decided) = (None, Taint::default());
        match step.action.as_loop().map(|each| &each.kind) {
            Some(LoopKind::ForEach { collection, .. }) => {
                let path = ["collection".into()];
                let place = (&path[..], Rule::Collection, "collection");
                let elements = self.decision(index, &collection.uses(), None, place);
                runs.join(&elements.unapproved);
                decided.join(&elements.all);
                item = Some(elements);
            }
            Some(LoopKind::Repeat(repeat)) => {
                let path = ["until".into()];
                let place = (&path[..], Rule::Until, "`until`");
                // The output of the previous iteration.
                let last = self.steps[index].any.clone();
                let labels = self.decision(index, &repeat.until.uses(), Some(&last), place);
                runs.join(&labels.unapproved);
                decided.join(&labels.all);
                item = Some(Labels { all: last.clone(), unapproved: last });
            }
            None => (),
        }
        for call in step.action.calls() {
            if let Some(when) = call.when {
                let path = [&call.path[..], &["when".into()]].concat();
                let place = (&path[..], Rule::Switch, "case");
                let labels = self.decision(index, &when.uses(), None, place);
                runs.join(&labels.unapproved);
                decided.join(&labels.all);
            }
            let called = self.call(index, &call, &runs, item.as_ref());
            done.join(&called.done);
            any.join(&called.any);
        }
        for taint in [&mut done, &mut any] {
            taint.join(&runs);
            // The output of a loop also contains the elements of the collection.
            taint.join(&decided);
        }
        (done, any)
    }

    /// Returns the labels of references that decide what a step does, such as those in its
    /// condition.
    fn decision(
        &mut self,
        step: usize,
        uses: &[Use<'_>],
        item: Option<&Taint>,
        (path, rule, what): (&[PathSegment], Rule, &str),
    ) -> Labels {
        let hop = self.hop(step, what.to_owned());
        let mut labels = Labels::default();
        for used in uses {
            let unapproved = self.unapproved(step, used, item);
            let path = [path, &used.place].concat();
            let ends = slice::from_ref(&hop);
            self.check_use(&unapproved, &Place { step, path: &path, rule, ends });
            labels.unapproved.join(&unapproved.through(&hop));
            labels.all.join(&self.taint_of(step, used, item).through(&hop));
        }
        labels
    }

    /// Returns the combined labels of the values that a step computes itself.
    fn computed(&self, step: usize, is_meant: impl Fn(&Computed<'_>) -> bool) -> Taint {
        let mut all = Taint::default();
        for value in self.compiled.plan.steps()[step].action.computed() {
            if is_meant(&value) {
                let hop = self.hop(step, value.name.to_owned());
                for used in value.expression.uses() {
                    all.join(&self.taint_of(step, &used, None).through(&hop));
                }
            }
        }
        all
    }

    /// Returns the labels of a reference in a step like [`taint_of`](Self::taint_of). Returns no
    /// labels if the user has seen and approved the value.
    ///
    /// An approval allows the use of the value in this step. The output of the step keeps all
    /// labels, because the user has not seen the output.
    pub(super) fn unapproved(&self, step: usize, used: &Use<'_>, item: Option<&Taint>) -> Taint {
        if self.approvals.iter().any(|approval| approval.covers(step, used)) {
            return Taint::default();
        }
        self.taint_of(step, used, item)
    }

    /// Returns `true` if a step runs only after the user has seen and approved all data in the
    /// arguments of the call.
    pub(super) fn is_approved(&self, step: usize, call: &PossibleCall<'_>) -> bool {
        let Arguments::Mapped(arguments) = &call.site.arguments else { return false };
        let covered =
            |used: &Use<'_>| self.approvals.iter().any(|approval| approval.covers(step, used));
        self.approvals.iter().any(|approval| approval.gates(step))
            && arguments.secrets().is_empty()
            && arguments.uses().iter().all(covered)
    }

    /// Records that a step calls an egress tool without an approval, unless the step sets
    /// `allow_flow`.
    pub(super) fn add_open_egress(&mut self, step: usize) {
        let Some(findings) = &mut self.findings else { return };
        if self.allowed[step] {
            findings.exempted.insert(step);
        } else {
            findings.summary.has_open_egress = true;
        }
    }

    /// Returns the labels of a reference in a step. If the reference is in a loop, `item` contains
    /// the labels of the loop's elements.
    pub(super) fn taint_of(&self, step: usize, used: &Use<'_>, item: Option<&Taint>) -> Taint {
        let mut taint = self.read(used, item);
        let is_final = self.compiled.plan.steps()[step].is_final();
        if is_final && matches!(used.root, Root::Step { .. }) {
            // A finally step runs although the run may have ended before or during any other step.
            // So the record of each step can depend on all of them.
            taint.join(&self.outcome());
        }
        taint
    }

    /// Returns the labels of the value to which a reference refers.
    fn read(&self, used: &Use<'_>, item: Option<&Taint>) -> Taint {
        match used.root {
            Root::Input => {
                let input: Option<Arc<str>> = used.property().map(Into::into);
                Taint::of_input(input, &self.hop_to(format!("`{}`", used.text)))
            }
            Root::Step { step, field } => self.record(step, field, used.path).clone(),
            Root::Item => item
                .cloned()
                .unwrap_or_else(|| Taint::unknown(&self.hop_to(format!("`{}`", used.text)))),
            Root::Index | Root::WorkflowId | Root::WorkflowName | Root::WorkflowStartedAt => {
                Taint::default()
            }
        }
    }

    /// Returns the labels of a field of a step, such as `output` or `status`.
    fn record(&self, index: usize, field: Field, path: &[PathSegment]) -> &Taint {
        let step = &self.compiled.plan.steps()[index];
        let taint = &self.steps[index];
        match field {
            Field::Status | Field::Error => &taint.any,
            _ if step.on_failure == OnFailure::Continue => &taint.any,
            // The person decides whether to accept a question.
            Field::Output if step.action.as_elicitation().is_some() && is_action(path) => {
                &taint.runs
            }
            Field::Output | Field::Content | Field::Blocks | Field::Text => &taint.done,
        }
    }

    /// Returns the labels of the result of a successful run.
    fn result(&self) -> Taint {
        let plan = &self.compiled.plan;
        let mut result = Taint::default();
        for (index, step) in plan.steps().iter().enumerate() {
            if plan.is_stop(index) || step.action.may_skip_rest() {
                result.join(&self.steps[index].done);
            }
            // The result has a text about a finally step that has failed.
            if step.is_final() {
                result.join(&self.steps[index].any);
            }
        }
        match &plan.answer {
            RunOutput::Output(output) => {
                for used in output.uses() {
                    result.join(&self.read(&used, None));
                }
            }
            RunOutput::Last => {
                let ends_early = plan.may_end_early() || self.compiled.may_be_partial();
                for (index, step) in plan.steps().iter().enumerate().rev() {
                    result.join(self.record(index, Field::Output, &[]));
                    if !ends_early && !step.may_be_skipped() {
                        break;
                    }
                }
            }
            RunOutput::Outcomes => result.join(&self.outcome()),
        }
        if self.compiled.may_be_partial() {
            result.join(&self.outcome());
        }
        result
    }

    /// Returns the combined labels of all steps. The result of a failed run can contain data of any
    /// step.
    fn outcome(&self) -> Taint {
        let mut outcome = Taint::default();
        self.steps.iter().for_each(|step| outcome.join(&step.any));
        outcome
    }

    /// Reports a violation if the value has a label that the rule of `place` forbids. If the value
    /// depends on the input of the composite, adds this use to the summary, which is checked for
    /// each caller.
    pub(super) fn check_use(&mut self, taint: &Taint, place: &Place<'_>) {
        let Place { step, path, rule, ends } = *place;
        let list = self.list();
        let Some(findings) = &mut self.findings else { return };
        if self.allowed[step] {
            if taint.get(rule.source()).is_some() || taint.inputs().next().is_some() {
                findings.exempted.insert(step);
            }
            return;
        }
        if let Some(trace) = taint.get(rule.source()) {
            let start: [Segment; 3] = [self.at.into(), list.into(), step.into()];
            let path = [&start[..], path].concat();
            let is_known = |other: &FlowViolation| other.path == path && other.rule == rule;
            if !findings.violations.iter().any(is_known) {
                let hops = [&trace.hops()[..], ends].concat();
                let name = &self.compiled.name;
                findings.violations.push(FlowViolation::new(name, path, rule, &hops));
            }
        }
        for (input, trace) in taint.inputs() {
            // The path begins with the input, which the caller replaces by the source of its
            // argument.
            let inner = trace.hops().split_off(1);
            findings.summary.add_sink(input, rule, [&inner[..], ends].concat());
        }
    }

    /// Returns the summary of this composite. Returns `None` until the labels of all steps are
    /// complete.
    pub(super) fn summary(&mut self) -> Option<&mut Summary> {
        self.findings.as_mut().map(|findings| &mut findings.summary)
    }

    pub(super) fn guard_of(&self, step: usize) -> &Taint {
        &self.guards[step]
    }

    pub(super) fn name_of(&self, composite: usize) -> &str {
        &self.program.composites[composite].name
    }

    /// Creates a stage of a path that belongs to a step. `what` describes the stage.
    pub(super) fn hop(&self, step: usize, what: String) -> Hop {
        Hop { place: Some(self.place(step)), ..self.hop_to(what) }
    }

    fn place(&self, step: usize) -> StepPlace {
        let kind = if self.list() == "targets" { "target" } else { "step" };
        StepPlace { kind, id: self.compiled.plan.steps()[step].id.clone() }
    }

    /// Creates a stage of a path that belongs to no step. `what` describes the stage.
    pub(super) fn hop_to(&self, what: String) -> Hop {
        Hop { composite: self.compiled.name.clone(), what, place: None }
    }

    /// Returns the key of the list of steps in the definition: `steps` or `targets`.
    const fn list(&self) -> &'static str {
        match self.compiled.answer {
            ResultForm::Steps { .. } => "steps",
            ResultForm::Branches { .. } | ResultForm::Winner => "targets",
        }
    }
}

/// Returns, for each step or target of a composite, whether it sets `allow_flow`.
fn allowed(definition: &CompositeTool) -> Vec<bool> {
    match &definition.strategy {
        Strategy::FanOut(FanOut { targets, .. })
        | Strategy::Race(Race { targets, .. })
        | Strategy::Fallback(Fallback { targets }) => {
            targets.iter().map(|target| target.allow_flow.is_some()).collect()
        }
        Strategy::Pipeline(Pipeline { steps, .. }) | Strategy::Workflow(Workflow { steps, .. }) => {
            steps.iter().map(|step| step.allow_flow.is_some()).collect()
        }
    }
}

/// Returns `true` if a path in the output of a question leads to its `action`, such as `accept`.
fn is_action(path: &[PathSegment]) -> bool {
    matches!(path.first(), Some(PathSegment::Key(key)) if key == "action")
}
