//! Converts composites to flowcharts.

use super::{
    compile::{Compiled, CompiledTarget, Program, ResultForm, Route},
    strategy::{FanOut, MAX_TARGETS, Race, Strategy, Success, WORKFLOW_PARALLEL, Workflow},
};
use crate::{
    engine::plan::{self, Action, CallSite, Finally, OnFailure, Plan, StepSet},
    mermaid::{Call, Callee, Edge, Flowchart, Graph, Node, Shape},
    suggest::DidYouMean,
};

/// The error that is returned if the layer has no composite with the requested name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown composite `{name}`{}", DidYouMean(near.as_deref()))]
pub struct UnknownComposite {
    name: String,
    /// The existing composite whose name is most similar to the requested name. Suggested in the
    /// error message.
    near: Option<String>,
}

/// The composites that a flowchart contains, in the order in which they were discovered.
struct Drawn<'p> {
    program: &'p Program,
    /// The indexes of the composites. A composite that is called several times is drawn only once.
    /// Otherwise, the chart could become too large.
    composites: Vec<usize>,
}

/// Creates the flowchart of a composite, including all composites that it calls directly or
/// indirectly.
pub(super) fn flowchart(program: &Program, composite: usize) -> Flowchart {
    let mut drawn = Drawn { program, composites: vec![composite] };
    let mut graphs = Vec::new();
    while let Some(&next) = drawn.composites.get(graphs.len()) {
        graphs.push(drawn.graph(next));
    }
    Flowchart::new(graphs)
}

// === impl UnknownComposite ===

impl UnknownComposite {
    pub(super) fn new(name: &str, near: Option<&str>) -> Self {
        Self { name: name.to_owned(), near: near.map(str::to_owned) }
    }
}

// === impl Drawn ===

impl Drawn<'_> {
    fn graph(&mut self, composite: usize) -> Graph {
        let program = self.program;
        let compiled = &program.composites[composite];
        let strategy = &program.definition(composite).strategy;
        let steps = compiled.plan.steps().iter().map(|step| self.node(compiled, step));
        let mut nodes = vec![Node::new(Shape::Input, vec!["input".to_owned()])];
        nodes.extend(steps.collect::<Vec<_>>());
        nodes.push(Node::new(Shape::Answer, vec!["answer".to_owned(), answer(compiled)]));
        Graph {
            composite: compiled.name.to_string(),
            manner: manner(strategy),
            nodes,
            edges: edges(strategy, &compiled.plan),
        }
    }

    fn node(&mut self, compiled: &Compiled, step: &plan::Step) -> Node {
        let mut lines = vec![step.id.to_string()];
        let mut calls = Vec::new();
        let is_switch = step.action.as_switch().is_some();
        for call in step.action.calls() {
            let callee = self.callee(&compiled.targets, call.site);
            if is_switch {
                let when = call.when.map_or_else(|| "else".to_owned(), |when| format!("if {when}"));
                calls.push(Call { when: Some(when), callee });
                continue;
            }
            // If a step has the same name as its tool, the name is printed only once.
            lines.extend((*call.site.tool != *step.id).then(|| call.site.tool.to_string()));
            if let Callee::Graph(_) = callee {
                calls.push(Call { when: None, callee });
            }
        }
        lines.extend(step.action.notes());
        let shape = match &step.action {
            Action::Loop(_) => Shape::Loop,
            Action::Switch(_) => Shape::Switch,
            Action::Elicit(_) => Shape::Question,
            Action::Stop(_) => Shape::Stop,
            _ if calls.is_empty() => Shape::Step,
            _ => Shape::Nested,
        };
        if let Some(condition) = &step.condition {
            lines.push(format!("if {condition}"));
        }
        lines.extend(step.finally.map(|finally| Finally::note(finally.on_cancel).to_owned()));
        if let Some(retry) = &step.retry {
            lines.push(format!("retried {} times at most", retry.count));
        }
        let is_fan_out = !matches!(compiled.answer, ResultForm::Steps { .. });
        let targets = step.action.sites().map(|site| &compiled.targets[site.site]);
        let is_optional = if is_fan_out {
            { targets }.any(|target| target.optional)
        } else {
            step.on_failure == OnFailure::Continue
        };
        if is_optional {
            lines.push(if is_fan_out { "optional" } else { "may fail" }.to_owned());
        }
        let is_conditional = is_optional || (!is_fan_out && step.may_be_skipped());
        Node { is_conditional, calls, ..Node::new(shape, lines) }
    }

    fn callee(&mut self, targets: &[CompiledTarget], site: &CallSite) -> Callee {
        let Route::Composite(composite) = targets[site.site].route else {
            return Callee::Tool(site.tool.to_string());
        };
        let drawn = self.composites.iter().position(|drawn| *drawn == composite);
        Callee::Graph(drawn.unwrap_or_else(|| {
            self.composites.push(composite);
            self.composites.len() - 1
        }))
    }
}

/// Describes a strategy for a flowchart, for example `workflow, 3 at a time`.
fn manner(strategy: &Strategy) -> String {
    let (max_parallel, default) = match strategy {
        Strategy::FanOut(FanOut { max_parallel, .. })
        | Strategy::Race(Race { max_parallel, .. }) => (*max_parallel, MAX_TARGETS),
        Strategy::Workflow(Workflow { max_parallel, .. }) => (*max_parallel, WORKFLOW_PARALLEL),
        Strategy::Fallback(_) | Strategy::Pipeline(_) => (1, 1),
    };
    let name = strategy.name();
    if max_parallel == default || name == "sequential" {
        name.to_owned()
    } else {
        format!("{name}, {max_parallel} at a time")
    }
}

/// Describes the result of a composite for a flowchart, for example `one must succeed`.
fn answer(compiled: &Compiled) -> String {
    match (&compiled.answer, &compiled.plan.answer) {
        (ResultForm::Winner, _) => "of the first that succeeds".to_owned(),
        (ResultForm::Branches { success: Success::All, .. }, _) => {
            let is_optional = |target: &CompiledTarget| target.optional;
            let some = compiled.targets.iter().any(is_optional);
            if some { "all that are not optional must succeed" } else { "all must succeed" }
                .to_owned()
        }
        (ResultForm::Branches { success: Success::Any, .. }, _) => "one must succeed".to_owned(),
        (ResultForm::Branches { success: Success::Quorum(quorum), .. }, _) => {
            format!("{quorum} must succeed")
        }
        (ResultForm::Steps { .. }, plan::RunOutput::Output(output)) => {
            let names: Vec<_> = output.properties.iter().map(|(name, _)| &**name).collect();
            names.join(", ")
        }
        (ResultForm::Steps { .. }, plan::RunOutput::Last | plan::RunOutput::Outcomes) => {
            "of the last step that completes".to_owned()
        }
    }
}

/// Returns the edges of a flowchart, which lead from the input of the composite through its steps
/// to its result.
fn edges(strategy: &Strategy, plan: &Plan) -> Vec<Edge> {
    let count = plan.steps().len();
    let (input, answer) = (0, count + 1);
    let edge = |from, to| Edge { from, to, label: None };
    let mut edges = Vec::new();
    match strategy {
        Strategy::FanOut(FanOut { max_parallel: 1, .. }) => {
            edges.extend((0..=count).map(|at| edge(at, at + 1)))
        }
        Strategy::Fallback(_) => {
            for at in 1..=count {
                let label = (at > 1).then_some("if it fails");
                edges.push(Edge { label, ..edge(at - 1, at) });
                edges.push(edge(at, answer));
            }
        }
        Strategy::FanOut(_) | Strategy::Race(_) | Strategy::Pipeline(_) | Strategy::Workflow(_) => {
            let mut last = StepSet::first(count);
            for step in 0..count {
                let needs = direct_needs(plan, step);
                if needs.is_empty() {
                    edges.push(edge(input, step + 1));
                }
                edges.extend(needs.map(|needed| edge(needed + 1, step + 1)));
                last = last.without(needs);
            }
            for step in (0..count).filter(|&step| last.contains(step) || plan.is_stop(step)) {
                let label = plan.is_stop(step).then_some("ends the run");
                edges.push(Edge { label, ..edge(step + 1, answer) });
            }
        }
    }
    edges
}

/// Returns the dependencies of a step that a flowchart draws as edges. A dependency is omitted if
/// it follows from another one: if `c` depends on `a` and `b`, and `b` depends on `a`, the edge
/// from `a` to `c` is omitted.
fn direct_needs(plan: &Plan, step: usize) -> StepSet {
    let needs = plan.needs(step);
    // A dependency is direct if no other dependency of the step waits for it. Its dependents
    // include itself.
    let is_direct = |&needed: &usize| plan.with_dependents(needed).intersection(needs).len() == 1;
    { needs }.filter(is_direct).collect()
}
