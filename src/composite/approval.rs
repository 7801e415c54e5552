//! Warns about calls of destructive tools that do not wait for the user's approval. A composite
//! asks for approval with a question, and then calls the tool only if the user accepts.

use std::sync::{Arc, Mutex};

use super::{
    compile::{Compiled, Program, Route},
    effect::Effect,
    resolve::Resolved,
};
use crate::{
    engine::plan::{Elicitation, Plan, StepSet},
    mutex::lock,
    warnings::{Warnings, sanitize::Sanitized},
};

/// The tools that composites call only after the user has answered a question. The list is updated
/// whenever tools are listed. Clones share the list.
#[derive(Clone, Debug, Default)]
pub(super) struct ApprovedTools(Arc<Mutex<Vec<ApprovedTool>>>);

/// A tool that a composite calls only after the user has answered a question. Clients should not be
/// able to call the tool without the question.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ApprovedTool {
    composite: Arc<str>,
    /// The id of the elicitation step that asks the question.
    question: Arc<str>,
    tool: Arc<str>,
}

/// An elicitation step of a composite, which asks the user a question.
struct Question {
    step: usize,
    /// The elicitation step itself, and all steps that depend on it directly or indirectly.
    waiting: StepSet,
    /// `true` if the user can only confirm or refuse, because the form of the question has no
    /// properties or only boolean ones.
    is_confirmation: bool,
}

/// A call of a tool that is destructive, or whose annotations do not state whether it is.
struct RiskyCall<'p> {
    step: usize,
    tool: &'p Arc<str>,
    effect: Effect,
    /// `false` if clients cannot call the same tool by its name, because a composite with the name
    /// `tool` hides it.
    is_named_alike: bool,
}

/// The questions of one composite, and its calls of tools that are or may be destructive.
struct Approvals<'p> {
    composite: &'p Compiled,
    questions: Vec<Question>,
    calls: Vec<RiskyCall<'p>>,
}

/// Checks all composites that ask questions. Adds a remark for each call of a possibly destructive
/// tool that does not wait for the user's approval. Also replaces the list of approved tools.
pub(super) fn check(
    program: &Program,
    resolved: &Resolved,
    remarks: &Warnings,
    approved_tools: &ApprovedTools,
) {
    if program.composites.iter().all(|composite| composite.plan.questions.is_empty()) {
        return;
    }
    let effects = effects(program, resolved);
    let mut approved = Vec::new();
    for (at, composite) in program.composites.iter().enumerate() {
        let is_listed = resolved.available(at).is_some();
        if is_listed && !composite.plan.questions.is_empty() {
            let approvals = Approvals::new(program, composite, &effects[at]);
            approvals.remark(remarks);
            for tool in approvals.approved() {
                if !approved.contains(&tool) {
                    approved.push(tool);
                }
            }
        }
    }
    *lock(&approved_tools.0) = approved;
}

/// Returns the effect of each tool call of each composite. The outer list has the order of the
/// composites, and each inner list has the order of the composite's targets.
fn effects(program: &Program, resolved: &Resolved) -> Vec<Vec<Effect>> {
    let mut effects = vec![Vec::new(); program.composites.len()];
    for &at in &program.callees_first {
        let targets = program.composites[at].targets.iter().enumerate();
        let effect = |route: Route, site: usize| match route {
            Route::Inner => resolved.available(at).map(|it| it.targets[site].effect),
            // A composite with a question protects its own calls.
            Route::Composite(callee) if !program.composites[callee].plan.questions.is_empty() => {
                Some(Effect::Harmless)
            }
            Route::Composite(callee) => effects[callee].iter().copied().max(),
        };
        let found = targets.map(|(site, target)| effect(target.route, site));
        let found = found.map(|effect| effect.unwrap_or(Effect::Harmless)).collect();
        effects[at] = found;
    }
    effects
}

// === impl ApprovedTools ===

impl ApprovedTools {
    /// Returns a warning for each tool that a composite calls only after the user has approved it,
    /// but that clients can also call directly. `is_callable` returns `true` for the names of tools
    /// that clients can call.
    pub(super) fn remarks(&self, is_callable: impl Fn(&str) -> bool) -> Vec<String> {
        let approved = lock(&self.0);
        let callable = approved.iter().filter(|it| is_callable(&it.tool));
        callable.map(ApprovedTool::remark).collect()
    }
}

// === impl ApprovedTool ===

impl ApprovedTool {
    fn remark(&self) -> String {
        let Self { composite, question, tool } = self;
        let tool = Sanitized(tool);
        format!(
            "composite `{composite}`: clients can call `{tool}` without the question of \
             `{question}`: add it to `[advertise] deny`"
        )
    }
}

// === impl Question ===

impl Question {
    fn new(plan: &Plan, step: usize, ask: &Elicitation) -> Self {
        let properties = ask.schema.schema().get("properties").and_then(|it| it.as_object());
        let mut properties = properties.into_iter().flat_map(|properties| properties.values());
        let is_confirmation = properties.all(|it| it["type"] == "boolean");
        Self { step, waiting: plan.with_dependents(step), is_confirmation }
    }

    /// Returns `true` if the question counts as the approval of a call with this effect. Each
    /// question before a destructive call does. Before a call with an unknown effect, only a
    /// yes-or-no question does: the user may also be asked for a name or a date before a harmless
    /// call.
    fn may_approve(&self, effect: Effect) -> bool {
        effect == Effect::Destructive || (effect == Effect::Unknown && self.is_confirmation)
    }
}

// === impl Approvals ===

impl<'p> Approvals<'p> {
    fn new(program: &Program, composite: &'p Compiled, effects: &[Effect]) -> Self {
        let Compiled { plan, targets, .. } = composite;
        let steps = || plan.steps().iter().enumerate();
        let question = |(at, ask): (usize, _)| Question::new(plan, at, ask);
        let asks = steps().filter_map(|(at, step)| Some((at, step.action.as_elicitation()?)));
        let calls = steps().flat_map(|(step, it)| it.action.sites().map(move |site| (step, site)));
        let calls = calls.map(|(step, call)| {
            let is_composite = matches!(targets[call.site].route, Route::Composite(_));
            RiskyCall {
                step,
                tool: &call.tool,
                effect: effects[call.site],
                is_named_alike: is_composite || program.find(&call.tool).is_none(),
            }
        });
        let calls = calls.filter(|call| call.effect > Effect::Harmless).collect();
        Self { composite, questions: asks.map(question).collect(), calls }
    }

    /// Returns each call of a possibly destructive tool that waits for the user's approval, with
    /// the question that may approve it.
    fn approvals(&self) -> impl Iterator<Item = (&RiskyCall<'p>, &Question)> {
        let plan = &self.composite.plan;
        self.calls.iter().filter_map(|call| {
            // A finally step waits for all other steps, but also runs if the user declines.
            let ignores_answer =
                |it: &&Question| plan.is_final(call.step) && !plan.is_final(it.step);
            let awaited = self.questions.iter().filter(|it| it.waiting.contains(call.step));
            let mut awaited = awaited.filter(|it| !ignores_answer(it));
            Some((call, awaited.find(|question| question.may_approve(call.effect))?))
        })
    }

    /// Returns the tools that are called only after an approval. Omits tools that clients cannot
    /// call by the same name, because a composite hides them.
    fn approved(&self) -> impl Iterator<Item = ApprovedTool> {
        let approvals = self.approvals().filter(|(call, _)| call.is_named_alike);
        approvals.map(|(call, question)| ApprovedTool {
            composite: self.composite.name.clone(),
            question: self.id(question.step).clone(),
            tool: call.tool.clone(),
        })
    }

    /// Adds a remark for each call of a possibly destructive tool that waits for no question, if
    /// the composite asks for approval of another such call.
    fn remark(&self, remarks: &Warnings) {
        let name = &self.composite.name;
        let plan = &self.composite.plan;
        for RiskyCall { step, tool, effect, .. } in &self.calls {
            let waits = self.questions.iter().any(|question| question.waiting.contains(*step));
            // A question that waits for the call may be about its result.
            let precedes = !plan.with_dependents(*step).intersection(plan.questions).is_empty();
            if waits || precedes {
                continue;
            }
            let mut approvals = self.approvals();
            let step = self.id(*step);
            if *effect == Effect::Destructive {
                let Some((_, question)) = approvals.next() else { continue };
                remarks.warn(format_args!(
                    "composite `{name}`: step `{step}` may call the destructive tool `{tool}` \
                     without waiting for the answer to step `{}`",
                    self.id(question.step),
                ));
            } else if let Some((approved, question)) = approvals.find(|(it, _)| it.tool == *tool) {
                remarks.warn(format_args!(
                    "composite `{name}`: step `{step}` may call `{tool}` without waiting for the \
                     answer to step `{}`, unlike step `{}`",
                    self.id(question.step),
                    self.id(approved.step),
                ));
            }
        }
    }

    fn id(&self, step: usize) -> &Arc<str> {
        &self.composite.plan.steps()[step].id
    }
}
