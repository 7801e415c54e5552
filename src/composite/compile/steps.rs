//! Compiles pipelines and workflows, whose steps use outputs of other steps.

use std::{collections::HashSet, time::Duration};

use foldhash::HashMap;
use rmcp::model::JsonObject;
use serde_json::Value;

use super::{
    arguments, elicitation,
    mistakes::{DefinitionPath, in_steps},
    output,
    parts::{CompiledTarget, Parts, ResultForm, is_id},
    uses,
};
use crate::{
    composite::{
        definition::{CompositeTool, RUN_TIMEOUT, Strategy},
        error::DefinitionErrorKind as Kind,
        step::{OnError, Otherwise, Retry, STEP_TIMEOUT, Step, StepKind, Then, ToolCall},
    },
    engine::plan::{
        self, Action, Arguments, CallSite, Cycle, ForEach, MAX_PLAN_STEPS, OnFailure, OnRefusal,
        Plan, SpawnHint, StepSet, Stop, Switch,
    },
    expr::{Collection, Condition, Expression, PathSegment, Previous, RESERVED, ScopeNames},
    suggest::nearest,
};

/// Default number of steps of a workflow, or elements of a loop, that run at the same time.
const PARALLEL: usize = 10;
/// Maximum number of elements of a loop that run at the same time.
const MAX_LOOP_PARALLEL: usize = 50;
/// Default maximum number of elements of a loop.
const ITERATIONS: usize = 100;
/// Upper bound for the maximum number of elements of a loop.
const MAX_ITERATIONS: usize = 1000;
/// Maximum number of retries of a step.
const MAX_RETRIES: u32 = 10;
/// Default name of the element of a loop.
const ITEM: &str = "item";

/// Compiles the steps of one composite.
struct Steps<'c> {
    composite: &'c str,
    pipeline: bool,
    lenient: bool,
    ids: &'c [&'c str],
    places: &'c HashMap<String, usize>,
    run_timeout: Duration,
    /// The steps at which a user can end the run before the remaining steps.
    ending: StepSet,
    targets: Vec<CompiledTarget>,
    remarks: Vec<String>,
}

pub(super) fn compile(
    definition: &mut CompositeTool,
    places: &HashMap<String, usize>,
    at: &mut DefinitionPath<'_>,
) -> Parts {
    let pipeline = definition.strategy == Strategy::Pipeline;
    check_settings(definition, at);
    let steps = take_steps(definition, at);

    let ends =
        |step: &Step| [step.on_decline, step.on_cancel].contains(&Some(OnRefusal::SkipRemaining));
    let ids: Vec<&str> = steps.iter().map(|step| step.id.as_str()).collect();
    let mut compiler = Steps {
        composite: &definition.name,
        pipeline,
        lenient: definition.strict == Some(false),
        ids: &ids,
        places,
        run_timeout: definition.timeout.unwrap_or(RUN_TIMEOUT),
        ending: (0..steps.len()).filter(|&step| ends(&steps[step])).collect(),
        targets: Vec::new(),
        remarks: Vec::new(),
    };
    let compiled: Vec<_> = steps
        .iter()
        .enumerate()
        .map(|(index, step)| compiler.step(index, step, &mut at.within(in_steps(index))))
        .collect();
    let names = compiler.names(None);
    let (remarks, targets) = (&mut compiler.remarks, compiler.targets);
    if let Some(output) = &definition.output {
        definition.output_schema = Some(output::schema(output));
    }
    let output = definition
        .output
        .as_ref()
        .map(|output| output::compile(output, &definition.name, &names, remarks, at));
    let known = uses::Known {
        composite: &definition.name,
        steps: &compiled,
        input_schema: definition.input_schema.as_ref(),
    };
    known.check(output.as_ref(), remarks, at);

    let concurrency = if pipeline { 1 } else { definition.max_parallel.unwrap_or(PARALLEL) };
    let answer = output.map_or(plan::RunOutput::Last, plan::RunOutput::Output);
    let name = definition.name.as_str().into();
    let plan = Plan::new(name, compiled, concurrency, Stop::Never, answer);
    let plan = plan.unwrap_or_else(|cycle| {
        report_cycle(&cycle, &ids, at);
        Plan::default()
    });
    let report = definition.report.unwrap_or(true);
    Parts { plan, answer: ResultForm::Steps { report }, targets, remarks: compiler.remarks }
}

/// Reports settings that are not allowed with the strategy or with each other.
fn check_settings(definition: &CompositeTool, at: &mut DefinitionPath<'_>) {
    let strategy = definition.strategy;
    let pipeline = strategy == Strategy::Pipeline;
    let with = format!("strategy = \"{}\"", strategy.name());
    at.meaningless("success", definition.success.is_some(), &with);
    at.meaningless("order", definition.order.is_some(), &with);
    at.meaningless("labels", definition.labels.is_some(), &with);
    at.meaningless("targets", definition.targets.is_some(), &with);
    at.meaningless("max_parallel", pipeline && definition.max_parallel.is_some(), &with);
    let has_output = definition.output.is_some();
    at.meaningless("output_schema", has_output && definition.output_schema.is_some(), "output");
    at.not_zero("max_parallel", definition.max_parallel == Some(0));
}

/// Takes the steps out of a definition, and checks their number and their ids.
fn take_steps(definition: &mut CompositeTool, at: &mut DefinitionPath<'_>) -> Vec<Step> {
    let mut steps = definition.steps.take().unwrap_or_default();
    let count = steps.len();
    match count {
        0 => at.push(["steps"], Kind::NoSteps),
        1..=MAX_PLAN_STEPS => (),
        _ => at.push(["steps"], Kind::TooManySteps { count, max: MAX_PLAN_STEPS }),
    }
    // Excess steps are not checked.
    steps.truncate(MAX_PLAN_STEPS);
    check_ids(&steps, at);
    steps
}

/// Reports a cycle of steps at the first of them.
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
    /// Returns the names that a step, or the output, can refer to.
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
            lenient: self.lenient,
        }
    }

    fn step(&mut self, index: usize, step: &Step, at: &mut DefinitionPath<'_>) -> plan::Step {
        let names = self.names(Some(index));
        check_keys(step, at);
        at.not_zero("timeout", step.timeout.is_some_and(|timeout| timeout.is_zero()));
        let condition = step
            .condition
            .as_deref()
            .and_then(|condition| at.parsed("condition", Condition::parse(condition, &names)));
        let (retry, on_failure) = on_error(step.on_error.unwrap_or_default(), at);

        let certain = step.condition.is_none() && on_failure == OnFailure::Abort;
        let call = CallPlace { optional: on_failure == OnFailure::Continue, certain };
        let action = match step.kind {
            StepKind::Tool => Action::Call(self.call(step.call.as_ref(), &names, call, at)),
            StepKind::ForEach => Action::ForEach(self.for_each(step, &names, call, at)),
            StepKind::Switch => Action::Switch(self.switch(step, &names, call, at)),
            StepKind::Elicitation => {
                let remarks = &mut self.remarks;
                Action::Elicit(elicitation::compile(step, self.composite, &names, remarks, at))
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
            default_results: step.default_results.clone().map(with_nulls),
            parse_json: step.parse_json,
        };
        if step.default_results.as_ref().is_some_and(looks_evaluated) {
            self.remarks.push(format!(
                "composite `{}`: the `default_results` of step `{}` are data: what looks like a reference or a template there is a text",
                self.composite, step.id,
            ));
        }
        let may_be_skipped =
            compiled.may_be_skipped() || self.ending.into_iter().any(|step| step != index);
        if step.default_results.is_some() && !may_be_skipped {
            at.push(["default_results"], Kind::UnusedDefault);
        }
        compiled
    }

    fn depends_on(&self, index: usize, step: &Step, at: &mut DefinitionPath<'_>) -> StepSet {
        if self.pipeline {
            at.meaningless("depends_on", step.depends_on.is_some(), "strategy = \"pipeline\"");
            return index.checked_sub(1).into_iter().collect();
        }
        let mut needed = StepSet::default();
        for (place, id) in step.depends_on.iter().flatten().enumerate() {
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
        call: Option<&ToolCall>,
        names: &ScopeNames<'_>,
        CallPlace { optional, certain }: CallPlace,
        at: &mut DefinitionPath<'_>,
    ) -> CallSite {
        let missing = ToolCall::new("");
        let call = call.unwrap_or(&missing);
        at.not_blank("tool", &call.tool);
        let nothing = Arguments::Mapped(Expression::literal(Value::Object(JsonObject::new())));
        let arguments = arguments::compile(call.arguments.as_ref(), nothing, names, at);
        let site = self.targets.len();
        let target = CompiledTarget::new(call, self.composite, self.places, optional, certain);
        self.targets.push(target);
        CallSite { site, tool: call.tool.as_str().into(), arguments, hint: SpawnHint::default() }
    }

    fn for_each(
        &mut self,
        step: &Step,
        names: &ScopeNames<'_>,
        call: CallPlace,
        at: &mut DefinitionPath<'_>,
    ) -> ForEach {
        let collection = match &step.collection {
            Some(collection) => Collection::parse(collection, names)
                .map_err(|errors| at.push_all("collection", &errors))
                .ok(),
            None => {
                at.push(["collection"], Kind::Missing { key: "collection", in_: FOR_EACH });
                None
            }
        };
        let item = step.item_var.as_deref().unwrap_or(ITEM);
        if !is_variable(item) {
            at.push(["item_var"], Kind::IllegalItemVar { name: item.to_owned() });
        }
        at.within_bounds("max_parallel", step.max_parallel, MAX_LOOP_PARALLEL);
        at.within_bounds("max_iterations", step.max_iterations, MAX_ITERATIONS);
        let max_parallel = step.max_parallel.unwrap_or(PARALLEL);
        let max_iterations = step.max_iterations.unwrap_or(ITERATIONS);

        let rounds = max_iterations.div_ceil(max_parallel.max(1));
        let timeout = step.timeout.unwrap_or(STEP_TIMEOUT);
        let longest = timeout.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        if step.timeout.is_some() && longest > self.run_timeout {
            self.remarks.push(format!(
                "composite `{}`: step `{}` may take {longest:?}, {rounds} times its `timeout`, and the run {:?}",
                self.composite, step.id, self.run_timeout,
            ));
        }
        let names = ScopeNames { item: Some(item), ..*names };
        let call = self.call(step.call.as_ref(), &names, CallPlace { certain: false, ..call }, at);
        let collection = collection.unwrap_or_default();
        ForEach { collection, max_parallel, max_iterations, call }
    }

    fn switch(
        &mut self,
        step: &Step,
        names: &ScopeNames<'_>,
        call: CallPlace,
        at: &mut DefinitionPath<'_>,
    ) -> Switch {
        let call = CallPlace { certain: false, ..call };
        match step.cases.as_deref() {
            None => at.push(["cases"], Kind::Missing { key: "cases", in_: SWITCH }),
            Some([]) => at.push(["cases"], Kind::NoCases),
            Some(_) => (),
        }
        let cases = step.cases.as_deref().unwrap_or_default();
        let mut compiled = Vec::with_capacity(cases.len());
        for (index, case) in cases.iter().enumerate() {
            let mut at = at.within::<PathSegment>(["cases".into(), index.into()]);
            let when = at.parsed("when", Condition::parse(&case.when, names));
            let call = self.call(Some(&case.call), names, call, &mut at);
            // Cases keep their positions, which the paths of later errors use.
            compiled.push((when.unwrap_or_default(), call));
        }
        let default = match &step.default {
            None => {
                at.push(["default"], Kind::Missing { key: "default", in_: SWITCH });
                None
            }
            Some(Otherwise::Skip) => None,
            Some(Otherwise::Call(default)) => {
                Some(self.call(Some(default), names, call, &mut at.within(["default"])))
            }
        };
        Switch { cases: compiled, default }
    }
}

/// The properties of a call that its step determines.
#[derive(Clone, Copy)]
struct CallPlace {
    optional: bool,
    certain: bool,
}

const FOR_EACH: &str = "`type = \"for_each\"`";
const SWITCH: &str = "`type = \"switch\"`";

/// Reports keys that are missing for, or not allowed in, a step of its kind.
fn check_keys(step: &Step, at: &mut DefinitionPath<'_>) {
    let with = format!("type = \"{}\"", step.kind.name());
    let is_loop = step.kind == StepKind::ForEach;
    let is_switch = step.kind == StepKind::Switch;
    let asks = step.kind == StepKind::Elicitation;
    let (tool, arguments) = match &step.call {
        Some(call) => (!call.tool.is_empty(), call.arguments.is_some()),
        None => (false, false),
    };
    at.meaningless("tool", !step.kind.calls_one() && tool, &with);
    at.meaningless("arguments", !step.kind.calls_one() && arguments, &with);
    at.meaningless("parse", asks && step.parse_json, &with);
    at.meaningless("collection", !is_loop && step.collection.is_some(), &with);
    at.meaningless("item_var", !is_loop && step.item_var.is_some(), &with);
    at.meaningless("max_parallel", !is_loop && step.max_parallel.is_some(), &with);
    at.meaningless("max_iterations", !is_loop && step.max_iterations.is_some(), &with);
    at.meaningless("cases", !is_switch && step.cases.is_some(), &with);
    at.meaningless("default", !is_switch && step.default.is_some(), &with);
    at.meaningless("message", !asks && step.message.is_some(), &with);
    at.meaningless("schema", !asks && step.schema.is_some(), &with);
    at.meaningless("on_decline", !asks && step.on_decline.is_some(), &with);
    at.meaningless("on_cancel", !asks && step.on_cancel.is_some(), &with);
}

fn on_error(on_error: OnError, at: &mut DefinitionPath<'_>) -> (Option<plan::Retry>, OnFailure) {
    let Retry { count, delay, max_delay, then } = match on_error {
        OnError::Abort => return (None, OnFailure::Abort),
        OnError::Continue => return (None, OnFailure::Continue),
        OnError::Retry(retry) => retry,
    };
    let mut at = at.within(["on_error"]);
    if !(1..=MAX_RETRIES).contains(&count) {
        let (value, max) = (count as usize, MAX_RETRIES as usize);
        at.push(["retry_count"], Kind::OutOfBounds { key: "retry_count", value, max });
    }
    if delay > max_delay {
        at.push(["delay"], Kind::DelayTooLong { delay, max_delay });
    }
    let on_failure = match then {
        Then::Abort => OnFailure::Abort,
        Then::Continue => OnFailure::Continue,
    };
    (Some(plan::Retry { count, delay, max_delay }), on_failure)
}

/// Returns `true` if a value contains a text that would be a reference or template elsewhere.
fn looks_evaluated(value: &Value) -> bool {
    match value {
        Value::String(text) if matches!(&**text, "$null" | "$$null") => false,
        Value::String(text) => text.starts_with('$') || text.contains("{{"),
        Value::Array(elements) => elements.iter().any(looks_evaluated),
        Value::Object(members) => members.values().any(looks_evaluated),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Replaces `$null` by null, which TOML lacks; `$$null` becomes the text `$null`.
fn with_nulls(value: Value) -> Value {
    match value {
        Value::String(text) => match &*text {
            "$null" => Value::Null,
            "$$null" => "$null".into(),
            _ => Value::String(text),
        },
        Value::Array(elements) => elements.into_iter().map(with_nulls).collect(),
        Value::Object(members) => {
            let members = members.into_iter().map(|(key, member)| (key, with_nulls(member)));
            Value::Object(members.collect())
        }
        other => other,
    }
}

/// Returns `true` if an element of a loop can have this name.
fn is_variable(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !RESERVED.contains(&name)
}
