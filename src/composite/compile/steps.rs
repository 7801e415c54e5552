//! Compiles pipelines and workflows. These strategies run steps that can use the outputs of earlier
//! steps.

use std::collections::HashSet;

use foldhash::HashMap;
use rmcp::model::JsonObject;
use serde_json::Value;

use super::{
    arguments, elicitation, finals,
    loops::{self, LoopCompiler},
    mistakes::{DefinitionPath, in_steps},
    output,
    parts::{CompiledTarget, Parts, ResultForm, is_id},
    retries, stops, uses,
};
use crate::{
    composite::{
        definition::CompositeTool,
        error::DefinitionErrorKind as Kind,
        output::Output,
        step::{Action, ComputedValue, OnError, Otherwise, STEP_TIMEOUT, Step, Switch, Then},
        tool_call::ToolCall,
    },
    engine::plan::{
        self, Arguments, CallSite, Cycle, MAX_PLAN_STEPS, OnFailure, Plan, SpawnHint, StepSet, Stop,
    },
    expr::{Condition, Expression, PathSegment, Previous, ScopeNames},
    suggest::nearest,
};

/// Compiles the steps of one pipeline or workflow. Collects the targets of their tool calls, and
/// remarks on the steps.
struct Steps<'c> {
    definition: &'c CompositeTool,
    has_output_schema: bool,
    pipeline: bool,
    ids: &'c [&'c str],
    places: &'c HashMap<String, usize>,
    targets: Vec<CompiledTarget>,
    remarks: Vec<String>,
}

/// Compiles a workflow or, if `max_parallel` is `None`, a pipeline. Errors in the definition are
/// added to the path `at`. If there are errors, the returned parts are incomplete and must not be
/// used.
pub(super) fn compile(
    steps: &[Step],
    output: Option<&Output>,
    report: bool,
    max_parallel: Option<usize>,
    definition: &CompositeTool,
    places: &HashMap<String, usize>,
    at: &mut DefinitionPath<'_>,
) -> Parts {
    let has_schema = definition.output_schema.is_some();
    at.meaningless("output_schema", output.is_some() && has_schema, "output");
    at.not_zero("max_parallel", max_parallel == Some(0));
    let steps = checked(steps, at);

    let ids: Vec<&str> = steps.iter().map(|step| step.id.as_str()).collect();
    let mut compiler = Steps {
        definition,
        has_output_schema: output.is_some() || has_schema,
        pipeline: max_parallel.is_none(),
        ids: &ids,
        places,
        targets: Vec::new(),
        remarks: Vec::new(),
    };
    let compiled: Vec<_> = steps
        .iter()
        .enumerate()
        .map(|(index, step)| compiler.step(index, step, &mut at.within(in_steps(index))))
        .collect();
    check_defaults(&compiled, at);
    let is_ordered = finals::check(&compiled, max_parallel.is_none(), at);
    let names = compiler.names(None);
    let (remarks, mut targets) = (&mut compiler.remarks, compiler.targets);
    let output =
        output.map(|output| output::compile(output, &definition.name, &names, remarks, at));
    let known = uses::Known {
        composite: &definition.name,
        steps: &compiled,
        input_schema: definition.input_schema.as_ref(),
    };
    known.check(output.as_ref(), remarks, at);

    let answer = output.map_or(plan::RunOutput::Last, plan::RunOutput::Output);
    let name = definition.name.as_str().into();
    let plan = Plan::new(name, compiled, max_parallel.unwrap_or(1), Stop::Never, answer);
    let plan = plan.unwrap_or_else(|cycle| {
        if is_ordered {
            report_cycle(&cycle, &ids, at);
        }
        Plan::default()
    });
    stops::note(&plan, &mut targets, at);
    elicitation::remark_questions(&plan, &definition.name, &mut compiler.remarks);
    Parts { plan, answer: ResultForm::Steps { report }, targets, remarks: compiler.remarks }
}

/// Checks the number and the ids of the steps in a definition. Returns the steps, or the first
/// [`MAX_PLAN_STEPS`] of them if there are too many.
fn checked<'s>(steps: &'s [Step], at: &mut DefinitionPath<'_>) -> &'s [Step] {
    let count = steps.len();
    match count {
        0 => at.push(["steps"], Kind::NoSteps),
        1..=MAX_PLAN_STEPS => (),
        _ => at.push(["steps"], Kind::TooManySteps { count, max: MAX_PLAN_STEPS }),
    }
    let steps = steps.get(..MAX_PLAN_STEPS).unwrap_or(steps);
    check_ids(steps, at);
    steps
}

/// Adds an error for each step whose default results can never be used. They are used only if the
/// step may be skipped, or if the run may continue after the step has failed.
fn check_defaults(steps: &[plan::Step], at: &mut DefinitionPath<'_>) {
    for (index, step) in steps.iter().enumerate() {
        let mut others = steps.iter().enumerate().filter(|&(other, _)| other != index);
        let may_be_skipped =
            step.may_be_skipped() || others.any(|(_, other)| other.action.may_skip_rest());
        let may_be_skipped = may_be_skipped || step.action.as_early_end().is_some();
        if step.default_results.is_some() && !may_be_skipped {
            at.within(in_steps(index)).push(["default_results"], Kind::UnusedDefault);
        }
    }
}

/// Adds an error that describes a cycle of steps that depend on each other. The path of the error
/// is the path of the first step in the cycle.
fn report_cycle(Cycle(cycle): &Cycle, ids: &[&str], at: &mut DefinitionPath<'_>) {
    let steps = cycle.iter().map(|&step| ids[step].to_owned()).collect();
    let first = cycle.first().copied().unwrap_or_default();
    at.within(in_steps(first)).push::<&str>([], Kind::StepCycle { steps });
}

fn check_ids(steps: &[Step], at: &mut DefinitionPath<'_>) {
    let mut taken = HashSet::new();
    for (index, Step { id, .. }) in steps.iter().enumerate() {
        let mut at = at.within(in_steps(index));
        if !is_id(id) {
            at.push(["id"], Kind::IllegalId { id: id.clone() });
        } else if !taken.insert(id) {
            at.push(["id"], Kind::DuplicateId { id: id.clone() });
        }
    }
}

// === impl Steps ===

impl<'c> Steps<'c> {
    /// Returns the names that references in the expressions of a step can use, for example the ids
    /// of other steps. `step` is the index of this step. If `step` is `None`, returns the names for
    /// the output block.
    fn names(&self, step: Option<usize>) -> ScopeNames<'c> {
        let before = step.unwrap_or(self.ids.len());
        let previous = match before.checked_sub(1) {
            _ if !self.pipeline => Previous::None,
            None => Previous::First,
            Some(previous) => Previous::Step(previous),
        };
        ScopeNames {
            steps: self.ids,
            previous,
            before: step.filter(|_| self.pipeline),
            item: None,
            run: true,
            variables: Some(&self.definition.variables),
            allows_secrets: false,
            lenient: !self.definition.strict,
        }
    }

    fn step(&mut self, index: usize, step: &'c Step, at: &mut DefinitionPath<'_>) -> plan::Step {
        let names = self.names(Some(index));
        at.not_zero("timeout", step.timeout.is_some_and(|timeout| timeout.is_zero()));
        at.not_blank_if_set("allow_flow", step.allow_flow.as_deref());
        let condition = step
            .condition
            .as_deref()
            .and_then(|condition| at.parsed("condition", Condition::parse(condition, &names)));
        let (retry, on_failure) = on_error(step.on_error, at);

        let certain =
            step.condition.is_none() && on_failure == OnFailure::Abort && step.finally.is_none();
        let call = CallPlace { optional: on_failure == OnFailure::Continue, certain };
        let action = match &step.action {
            Action::Tool(tool) => plan::Action::Call(self.call(tool, &names, call, at)),
            Action::ForEach(each) => {
                // The collection may be empty.
                let call = CallPlace { certain: false, ..call };
                let within = loops::names_within(&names, &each.item_var);
                let (call, compiler) = self.looped(&each.call, &within, step, call, at);
                plan::Action::Loop(compiler.for_each(each, call, &names, at))
            }
            Action::Repeat(repeat) => {
                let within = loops::names_repeated(&names);
                let (call, compiler) = self.looped(&repeat.call, &within, step, call, at);
                plan::Action::Loop(compiler.repeat(repeat, call, &names, at))
            }
            Action::Switch(switch) => plan::Action::Switch(self.switch(switch, &names, call, at)),
            Action::Elicitation(ask) => {
                let (composite, remarks) = (&self.definition.name, &mut self.remarks);
                let ask = elicitation::compile(ask, step, composite, &names, remarks, at);
                plan::Action::Elicit(ask)
            }
            Action::Value(ComputedValue { value }) => {
                check_uncalled(step, "type = \"value\"", at);
                plan::Action::Value(at.expression("value", value, &names))
            }
            Action::Stop(stop) => {
                check_uncalled(step, "type = \"stop\"", at);
                plan::Action::Stop(stops::compile(stop, step, &names, self.has_output_schema, at))
            }
        };
        let compiled = plan::Step {
            id: step.id.as_str().into(),
            action,
            depends_on: self.depends_on(index, step, at),
            condition,
            timeout: step.timeout.unwrap_or(STEP_TIMEOUT),
            retry,
            on_failure,
            finally: finals::compile(step, at),
            retry_lost: step.retry_lost,
            default_results: step.default_results.clone(),
        };
        if step.default_results.as_ref().is_some_and(looks_evaluated) {
            self.remarks.push(format!(
                "composite `{}`: the `default_results` of step `{}` are data: what looks like a reference or a template there is a text",
                self.definition.name, step.id,
            ));
        }
        compiled
    }

    fn depends_on(&self, index: usize, step: &Step, at: &mut DefinitionPath<'_>) -> StepSet {
        if self.pipeline {
            at.meaningless("depends_on", !step.depends_on.is_empty(), "strategy = \"pipeline\"");
            return index.checked_sub(1).into_iter().collect();
        }
        let mut needed = StepSet::default();
        for (place, id) in step.depends_on.iter().enumerate() {
            match self.ids.iter().position(|other| other == id) {
                Some(step) => needed.insert(step),
                None => {
                    let near = nearest(id, self.ids).map(str::to_owned);
                    let kind = Kind::UnknownStep { step: id.clone(), near };
                    at.push::<PathSegment>(["depends_on".into(), place.into()], kind);
                }
            }
        }
        needed
    }

    fn call(
        &mut self,
        call: &ToolCall,
        names: &ScopeNames<'_>,
        CallPlace { optional, certain }: CallPlace,
        at: &mut DefinitionPath<'_>,
    ) -> CallSite {
        at.not_blank("tool", &call.tool);
        let nothing = Arguments::Mapped(Expression::literal(Value::Object(JsonObject::new())));
        let site = self.targets.len();
        let name = &self.definition.name;
        let target = CompiledTarget::new(call, name, self.places, optional, certain);
        // The arguments of a composite may become a part of a state that a client keeps.
        let names = ScopeNames { allows_secrets: target.is_tool(), ..*names };
        self.targets.push(target);
        let arguments = arguments::compile(call.arguments.as_ref(), nothing, &names, at);
        CallSite {
            has_secrets: arguments.has_secrets(),
            site,
            tool: call.tool.as_str().into(),
            arguments,
            parse: call.parse,
            hint: SpawnHint::default(),
        }
    }

    /// Compiles the tool call of a loop. Returns the compiled call, and a compiler for the other
    /// settings of the loop. References in the call can use `names`.
    fn looped(
        &mut self,
        tool: &ToolCall,
        names: &ScopeNames<'_>,
        step: &'c Step,
        call: CallPlace,
        at: &mut DefinitionPath<'_>,
    ) -> (CallSite, LoopCompiler<'_>) {
        let call = self.call(tool, names, call, at);
        (call, LoopCompiler { definition: self.definition, step, remarks: &mut self.remarks })
    }

    fn switch(
        &mut self,
        Switch { cases, default }: &Switch,
        names: &ScopeNames<'_>,
        call: CallPlace,
        at: &mut DefinitionPath<'_>,
    ) -> plan::Switch {
        let call = CallPlace { certain: false, ..call };
        if cases.is_empty() {
            at.push(["cases"], Kind::NoCases);
        }
        let mut compiled = Vec::with_capacity(cases.len());
        for (index, case) in cases.iter().enumerate() {
            let mut at = at.within::<PathSegment>(["cases".into(), index.into()]);
            let when = at.parsed("when", Condition::parse(&case.when, names));
            let call = self.call(&case.call, names, call, &mut at);
            // An invalid case is kept, so that the indexes of the following cases, which appear in
            // the paths of errors, stay correct.
            compiled.push((when.unwrap_or_default(), call));
        }
        let default = match default {
            Otherwise::Skip => None,
            Otherwise::Call(default) => {
                Some(self.call(default, names, call, &mut at.within(["default"])))
            }
        };
        plan::Switch { cases: compiled, default }
    }
}

/// The properties of a tool call that depend on its step. `optional` is `true` if the run continues
/// when the step fails. `certain` is `true` if every successful run makes the call.
#[derive(Clone, Copy)]
struct CallPlace {
    optional: bool,
    certain: bool,
}

/// Adds an error if a step that calls no tool sets `timeout`, `retry_lost` or `on_error = "retry"`,
/// because these settings would have no effect. `with` is the setting that determines the type of
/// the step, for example `type = "stop"`.
fn check_uncalled(step: &Step, with: &str, at: &mut DefinitionPath<'_>) {
    at.meaningless("timeout", step.timeout.is_some(), with);
    at.meaningless("retry_lost", step.retry_lost, with);
    if matches!(step.on_error, OnError::Retry(_)) {
        let (key, with) = ("on_error = \"retry\"", with.to_owned());
        at.push(["on_error"], Kind::Meaningless { key, with });
    }
}

fn on_error(on_error: OnError, at: &mut DefinitionPath<'_>) -> (Option<plan::Retry>, OnFailure) {
    let retry = match on_error {
        OnError::Abort => return (None, OnFailure::Abort),
        OnError::Continue => return (None, OnFailure::Continue),
        OnError::Retry(retry) => retry,
    };
    let on_failure = match retry.then {
        Then::Abort => OnFailure::Abort,
        Then::Continue => OnFailure::Continue,
    };
    (Some(retries::compile(retry, &mut at.within(["on_error"]))), on_failure)
}

/// Returns `true` if a JSON value contains a string that looks like a reference or template, such
/// as `$input.id` or `{{ input.id }}`.
fn looks_evaluated(value: &Value) -> bool {
    match value {
        // A file has written it as `$$null`.
        Value::String(text) if text == "$null" => false,
        Value::String(text) => text.starts_with('$') || text.contains("{{"),
        Value::Array(elements) => elements.iter().any(looks_evaluated),
        Value::Object(members) => members.values().any(looks_evaluated),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
