//! Compiles fan-outs, races and fallbacks. These strategies call several targets that are
//! independent of each other.

use std::{collections::HashSet, sync::Arc};

use foldhash::HashMap;

use super::{
    arguments,
    mistakes::DefinitionPath,
    parts::{CompiledTarget, Parts, ResultForm, is_id},
    retries,
};
use crate::{
    composite::{
        definition::CompositeTool,
        error::DefinitionErrorKind as Kind,
        step::{Retry, Then},
        strategy::{FanOut, MAX_TARGETS, Success, Target},
    },
    engine::plan::{
        self, Action, Arguments, CallSite, OnFailure, Plan, SpawnHint, Step, StepSet, Stop,
    },
    expr::{PathSegment, ScopeNames},
};

/// Compiles a fan-out. Errors in the fan-out's definition are added to the path `at`. If there are
/// errors, the returned parts are incomplete and must not be used.
pub(super) fn compile(
    fan_out: &FanOut,
    definition: &CompositeTool,
    places: &HashMap<String, usize>,
    at: &mut DefinitionPath<'_>,
) -> Parts {
    let FanOut { targets, success, order, report, labels, max_parallel } = fan_out;
    let count = targets.len();
    if let Success::Quorum(quorum) = *success
        && count > 0
        && !(1..=count).contains(&quorum)
    {
        at.push(["success"], Kind::Quorum { quorum, targets: count });
    }
    let has_schema = definition.output_schema.is_some();
    at.meaningless("output_schema", !report && has_schema, "report = false");
    let answer =
        ResultForm::Branches { success: *success, order: *order, report: *report, labels: *labels };
    compile_targets(targets, *max_parallel, answer, definition, places, at)
}

/// Compiles a race that calls at most `max_parallel` targets at the same time. Also compiles
/// fallbacks: a fallback is a race that calls one target at a time.
pub(super) fn compile_race(
    targets: &[Target],
    max_parallel: usize,
    definition: &CompositeTool,
    places: &HashMap<String, usize>,
    at: &mut DefinitionPath<'_>,
) -> Parts {
    let with = format!("strategy = \"{}\"", definition.strategy.name());
    for (index, target) in targets.iter().enumerate().take(MAX_TARGETS) {
        at.within(in_targets(index)).meaningless("optional", target.optional, &with);
    }
    compile_targets(targets, max_parallel, ResultForm::Winner, definition, places, at)
}

/// Compiles the targets of a fan-out, race or fallback.
fn compile_targets(
    targets: &[Target],
    max_parallel: usize,
    answer: ResultForm,
    definition: &CompositeTool,
    places: &HashMap<String, usize>,
    at: &mut DefinitionPath<'_>,
) -> Parts {
    let count = targets.len();
    match count {
        0 => at.push(["targets"], Kind::NoTargets),
        1..=MAX_TARGETS => (),
        _ => at.push(["targets"], Kind::TooManyTargets { count, max: MAX_TARGETS }),
    }
    at.not_zero("max_parallel", max_parallel == 0);
    // Targets beyond the maximum number are not checked.
    let targets = targets.get(..MAX_TARGETS).unwrap_or(targets);
    let names = ScopeNames {
        variables: Some(&definition.variables),
        lenient: !definition.strict,
        ..ScopeNames::default()
    };
    let ids = ids(targets, at);
    let mut steps = Vec::with_capacity(count);
    let mut compiled = Vec::with_capacity(count);
    for (index, (target, id)) in targets.iter().zip(ids).enumerate() {
        let name = &definition.name;
        let optional = target.optional;
        let target_call = CompiledTarget::new(&target.call, name, places, optional, !optional);
        let names = ScopeNames { allows_secrets: target_call.is_tool(), ..names };
        compiled.push(target_call);
        steps.push(step(target, id, index, &names, &mut at.within(in_targets(index))));
    }
    let name = definition.name.as_str().into();
    let stop = match answer {
        ResultForm::Winner => Stop::FirstSuccess,
        ResultForm::Branches { .. } | ResultForm::Steps { .. } => Stop::Never,
    };
    // Targets do not depend on each other, so creating the plan cannot fail because of a cycle.
    let plan = Plan::new(name, steps, max_parallel, stop, plan::RunOutput::Outcomes);
    Parts { plan: plan.unwrap_or_default(), answer, targets: compiled, remarks: Vec::new() }
}

fn step(
    target: &Target,
    id: Arc<str>,
    site: usize,
    names: &ScopeNames<'_>,
    at: &mut DefinitionPath<'_>,
) -> Step {
    at.not_blank("tool", &target.call.tool);
    at.not_zero("timeout", target.timeout.is_zero());
    at.not_blank_if_set("allow_flow", target.allow_flow.as_deref());
    let arguments = arguments::compile(target.call.arguments.as_ref(), Arguments::Input, names, at);
    Step {
        id,
        action: Action::Call(CallSite {
            has_secrets: arguments.has_secrets(),
            site,
            tool: target.call.tool.as_str().into(),
            arguments,
            parse: None,
            hint: SpawnHint::default(),
        }),
        depends_on: StepSet::default(),
        condition: None,
        timeout: target.timeout,
        retry: target.retry.map(|retry| self::retry(retry, at)),
        on_failure: OnFailure::Continue,
        finally: None,
        retry_lost: target.retry_lost,
        default_results: None,
    }
}

fn retry(retry: Retry, at: &mut DefinitionPath<'_>) -> plan::Retry {
    let mut at = at.within(["on_error"]);
    at.meaningless("then", retry.then != Then::Abort, "targets");
    retries::compile(retry, &mut at)
}

fn in_targets(index: usize) -> [PathSegment; 2] {
    ["targets".into(), index.into()]
}

/// Returns an id for each target. A target without a declared id receives the name of its tool as
/// its id. If several targets would have the same id, a number is appended.
fn ids(targets: &[Target], at: &mut DefinitionPath<'_>) -> Vec<Arc<str>> {
    let mut taken = HashSet::new();
    for (index, target) in targets.iter().enumerate() {
        let Some(id) = &target.id else { continue };
        let mut at = at.within(in_targets(index));
        if !is_id(id) {
            at.push(["id"], Kind::IllegalId { id: id.clone() });
        } else if !taken.insert(id.clone()) {
            at.push(["id"], Kind::DuplicateId { id: id.clone() });
        }
    }
    let mut unique = |tool: &str| {
        let mut id = tool.to_owned();
        let mut count = 1;
        while !taken.insert(id.clone()) {
            count += 1;
            id = format!("{tool}_{count}");
        }
        id
    };
    targets
        .iter()
        .map(|target| target.id.clone().unwrap_or_else(|| unique(&target.call.tool)).into())
        .collect()
}
