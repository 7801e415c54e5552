//! Compiles fan-outs, whose targets are independent of each other.

use std::{collections::HashSet, sync::Arc};

use foldhash::HashMap;

use super::{
    arguments,
    mistakes::DefinitionPath,
    parts::{CompiledTarget, Parts, ResultForm, is_id},
};
use crate::{
    composite::{
        definition::{CompositeTool, MAX_TARGETS, Strategy, Success, TARGET_TIMEOUT, Target},
        error::DefinitionErrorKind as Kind,
    },
    engine::plan::{
        self, Action, Arguments, CallSite, OnFailure, Plan, SpawnHint, Step, StepSet, Stop,
    },
    expr::{PathSegment, ScopeNames},
};

pub(super) fn compile(
    definition: &mut CompositeTool,
    places: &HashMap<String, usize>,
    at: &mut DefinitionPath<'_>,
) -> Parts {
    let strategy = definition.strategy;
    let chooses_one = matches!(strategy, Strategy::Race | Strategy::Fallback);
    let one_by_one = matches!(strategy, Strategy::Sequential | Strategy::Fallback);
    let with = format!("strategy = \"{}\"", strategy.name());
    check_keys(definition, chooses_one, one_by_one, &with, at);
    let names = ScopeNames { lenient: definition.strict == Some(false), ..ScopeNames::default() };

    let mut targets = definition.targets.take().unwrap_or_default();
    let count = targets.len();
    match count {
        _ if definition.steps.is_some() => at.push(["steps"], Kind::NoStrategy),
        0 => at.push(["targets"], Kind::NoTargets),
        1..=MAX_TARGETS => (),
        _ => at.push(["targets"], Kind::TooManyTargets { count, max: MAX_TARGETS }),
    }
    // Excess targets are not checked.
    targets.truncate(MAX_TARGETS);
    let success = definition.success.unwrap_or_default();
    if let Success::Quorum(quorum) = success
        && count > 0
        && !(1..=count).contains(&quorum)
    {
        at.push(["success"], Kind::Quorum { quorum, targets: count });
    }

    let (answer, stop) = if chooses_one {
        (ResultForm::Winner, Stop::FirstSuccess)
    } else {
        let order = definition.order.unwrap_or_default();
        let report = definition.report.unwrap_or(true);
        let labels = definition.labels.unwrap_or_default();
        (ResultForm::Branches { success, order, report, labels }, Stop::Never)
    };
    let concurrency = if one_by_one { 1 } else { definition.max_parallel.unwrap_or(MAX_TARGETS) };

    let ids = ids(&targets, at);
    let mut steps = Vec::with_capacity(count);
    let mut compiled = Vec::with_capacity(count);
    for (index, (target, id)) in targets.into_iter().zip(ids).enumerate() {
        let mut at = at.within(in_targets(index));
        at.meaningless("optional", chooses_one && target.optional.is_some(), &with);
        let optional = target.optional.unwrap_or(false);
        let name = &definition.name;
        compiled.push(CompiledTarget::new(&target.call, name, places, optional, !optional));
        steps.push(step(target, id, index, &names, &mut at));
    }
    let name = definition.name.as_str().into();
    // No target waits for another.
    let plan = Plan::new(name, steps, concurrency, stop, plan::RunOutput::Outcomes);
    Parts { plan: plan.unwrap_or_default(), answer, targets: compiled, remarks: Vec::new() }
}

/// Reports the keys that have no effect with this strategy.
fn check_keys(
    definition: &CompositeTool,
    chooses_one: bool,
    one_by_one: bool,
    with: &str,
    at: &mut DefinitionPath<'_>,
) {
    at.meaningless("success", chooses_one && definition.success.is_some(), with);
    at.meaningless("order", chooses_one && definition.order.is_some(), with);
    at.meaningless("report", chooses_one && definition.report.is_some(), with);
    at.meaningless("labels", chooses_one && definition.labels.is_some(), with);
    at.meaningless("max_parallel", one_by_one && definition.max_parallel.is_some(), with);
    at.meaningless("output", definition.output.is_some(), with);
    at.meaningless(
        "output_schema",
        definition.report == Some(false) && definition.output_schema.is_some(),
        "report = false",
    );
    at.not_zero("max_parallel", definition.max_parallel == Some(0));
}

fn step(
    target: Target,
    id: Arc<str>,
    site: usize,
    names: &ScopeNames<'_>,
    at: &mut DefinitionPath<'_>,
) -> Step {
    at.not_blank("tool", &target.call.tool);
    at.not_zero("timeout", target.timeout.is_some_and(|timeout| timeout.is_zero()));
    let arguments = arguments::compile(target.call.arguments.as_ref(), Arguments::Input, names, at);
    Step {
        id,
        action: Action::Call(CallSite {
            site,
            tool: target.call.tool.into(),
            arguments,
            hint: SpawnHint::default(),
        }),
        depends_on: StepSet::default(),
        condition: None,
        timeout: target.timeout.unwrap_or(TARGET_TIMEOUT),
        retry: None,
        on_failure: OnFailure::Continue,
        default_results: None,
        parse_json: false,
    }
}

fn in_targets(index: usize) -> [PathSegment; 2] {
    ["targets".into(), index.into()]
}

/// Returns the ids of all targets: as given, or else the tool's name, made unique.
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
