//! The `[[composite_tools]]` section, which defines composite tools.

use serde::Deserialize;

use super::{
    BackendConfig, RouterConfig,
    failure::Failure,
    fault::MAX_MISTAKES,
    output,
    read::Reader,
    steps::{TARGET_ON_ERROR, call, step},
    table::{FromToml, TableReader, Variants},
    targets::{Meaning, Targets},
    value::Value,
    vars,
};
use crate::composite::{
    CompositeLayer, CompositeTool, DefinitionError, DefinitionErrorKind, Fallback, FanOut, Output,
    Pipeline, Race, Segment, Step, Strategy, Success, Target, Workflow,
};
use crate::{alias::AliasLayer, expr::ExpressionError};

/// The key of the `[[composite_tools]]` section in a configuration file.
pub(super) const SECTION: &str = "composite_tools";

/// The keys that a composite of any strategy can have.
pub(super) const COMPOSITE: [&str; 15] = [
    "name",
    "description",
    "title",
    "input_schema",
    "parameters",
    "output_schema",
    "annotations",
    "timeout",
    "max_calls",
    "max_result_bytes",
    "max_cost",
    "on_limit",
    "trace",
    "task",
    "strict",
];
/// The keys that an element of `targets` can have in a composite.
pub(super) const TARGET: [&str; 8] =
    ["id", "tool", "arguments", "timeout", "optional", "on_error", "retry_lost", "allow_flow"];
/// The strategies that a composite can have. Each strategy has a list of the keys that it adds to
/// the composite, and a function that reads these keys.
pub(super) const STRATEGIES: &Variants<ReadStrategy> = &[
    (
        "parallel",
        &["tools", "targets", "success", "order", "report", "labels", "max_parallel"],
        |table| fan_out(table).into(),
    ),
    ("sequential", &["tools", "targets", "success", "order", "report", "labels"], |table| {
        fan_out(table).sequential().into()
    }),
    ("race", &["tools", "targets", "max_parallel"], |table| race(table).into()),
    ("fallback", &["tools", "targets"], |table| Fallback::new(targets(table)).into()),
    ("pipeline", &["steps", "output", "report"], |table| pipeline(table).into()),
    ("workflow", &["steps", "output", "report", "max_parallel"], |table| workflow(table).into()),
];

/// A function that reads the keys of a strategy from the table of a composite.
type ReadStrategy = fn(&mut TableReader<'_, '_, '_>) -> Strategy;

/// Reads the definitions in the `[[composite_tools]]` section, and reports errors to `reader`.
/// Targets such as `backend/tool` are not resolved yet.
pub(super) fn read(reader: &mut Reader<'_, '_>) -> Vec<CompositeTool> {
    let tools = reader.with_section(SECTION, |reader, tables| {
        TableReader::of_array(reader, SECTION, tables, composite)
    });
    tools.unwrap_or_default()
}

/// Resolves the targets of composites, and builds the layer that provides the composites. Reports
/// errors to `reader`. The returned layer is `None` only if at least one error was reported.
pub(super) fn build(
    mut tools: Vec<CompositeTool>,
    backends: &[BackendConfig],
    router: &RouterConfig,
    alias: &AliasLayer,
    reader: &mut Reader<'_, '_>,
) -> (Vec<CompositeTool>, Option<CompositeLayer>) {
    let composites: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
    let targets = Targets::new(&composites, backends, router, alias);
    resolve(&mut tools, &targets, reader);
    let layer = match CompositeLayer::with_separator(tools.iter().cloned(), router.separator()) {
        Ok(layer) => Some(layer),
        Err(errors) => {
            for error in &errors {
                report(error, reader);
            }
            None
        }
    };
    (tools, layer)
}

/// Replaces each target of the form `backend/tool` by the tool name that clients use, such as
/// `github_search`. Reports invalid targets.
fn resolve(tools: &mut [CompositeTool], targets: &Targets<'_>, reader: &mut Reader<'_, '_>) {
    // Unknown targets are reported only if all names were read successfully. Otherwise, a target
    // may refer to a name that is missing because of another error.
    let known =
        !["backends", "router", "aliases"].iter().any(|&key| reader.has_fault_in(&[key.into()]))
            && !(0..tools.len()).any(|index| reader.has_fault_in(&at(index, &["name".into()])));
    let mut reported = 0;
    for (index, tool) in tools.iter_mut().enumerate() {
        let name = tool.name.clone();
        for (path, call) in tool.calls_mut() {
            let mistaken = known && reported < MAX_MISTAKES && !call.tool.trim().is_empty();
            let message = match targets.resolve(&call.tool, &name) {
                Meaning::Named => continue,
                Meaning::Tool(name) => {
                    call.tool = name;
                    call.behind = true;
                    continue;
                }
                _ if !mistaken => continue,
                Meaning::Bare(name) => targets.bare(&call.tool, name),
                Meaning::Renamed(name) => targets.renamed(&call.tool, name.as_deref()),
                Meaning::Unknown => targets.unknown(&call.tool),
            };
            reported += 1;
            let path = [path, vec!["tool".into()]].concat();
            reader.report(&at(index, &path), message);
        }
    }
}

/// Reports an error in the definition of a composite, located at the key that caused the error.
fn report(error: &DefinitionError, reader: &mut Reader<'_, '_>) {
    let (index, path) = match error.path() {
        [Segment::Index(index), path @ ..] => (*index, path),
        path => (usize::MAX, path),
    };
    // The composite may have too few targets or steps only because some of them could not be read.
    let counts = matches!(
        error.kind(),
        DefinitionErrorKind::NoTargets
            | DefinitionErrorKind::NoSteps
            | DefinitionErrorKind::Quorum { .. }
    );
    if counts
        && ["tools", "targets", "steps"]
            .into_iter()
            .any(|key| reader.has_fault_in(&at(index, &[key.into()])))
    {
        return;
    }
    let reads_variable = matches!(
        error.kind(),
        DefinitionErrorKind::Expression(
            ExpressionError::UnknownVariable { .. } | ExpressionError::NoPartOfVariable { .. }
        )
    );
    if reads_variable && reader.has_fault_in(&[vars::SECTION.into()]) {
        return;
    }
    reader.report(&at(index, path), error.kind().to_string());
}

/// Converts a path that is relative to the composite at `index` to a path that is relative to the
/// whole file.
fn at(index: usize, path: &[Segment]) -> Vec<Segment> {
    [&[SECTION.into(), index.into()], path].concat()
}

/// Reads one composite from its table.
fn composite(table: &mut TableReader<'_, '_, '_>) -> CompositeTool {
    let strategy = table.tag("strategy", Some("parallel"), &COMPOSITE, STRATEGIES);
    let name = table.text("name");
    let description = table.text("description");
    let mut tool = CompositeTool::new(name, description, self::strategy(strategy, table));
    if table.has("parameters") && table.has("input_schema") {
        let message = "`parameters` is another name of `input_schema`: expected one of them";
        table.report("parameters", message);
    }
    let parameters = table.literal("parameters");
    tool.input_schema = table.literal("input_schema").or(parameters);
    table.set("title", &mut tool.title);
    tool.output_schema = table.literal("output_schema");
    table.set("annotations", &mut tool.annotations);
    table.set("timeout", &mut tool.timeout);
    table.set("max_calls", &mut tool.limits.max_calls);
    table.set("max_result_bytes", &mut tool.limits.max_result_bytes);
    table.set("max_cost", &mut tool.limits.max_cost);
    table.set("on_limit", &mut tool.on_limit);
    table.set("trace", &mut tool.trace);
    table.set("task", &mut tool.task);
    table.set("strict", &mut tool.strict);
    tool
}

/// Reads the keys of a composite's strategy. If the composite has an unknown strategy, `read` is
/// `None`. In this case, reads the keys of a workflow if the table has `steps`, and otherwise those
/// of a fan-out, to report errors in these keys.
fn strategy(read: Option<ReadStrategy>, table: &mut TableReader<'_, '_, '_>) -> Strategy {
    match read {
        Some(read) => read(table),
        None if table.has("steps") => workflow(table).into(),
        None => fan_out(table).into(),
    }
}

fn fan_out(table: &mut TableReader<'_, '_, '_>) -> FanOut {
    let mut fan_out = FanOut::new(targets(table));
    table.set("success", &mut fan_out.success);
    table.set("order", &mut fan_out.order);
    table.set("report", &mut fan_out.report);
    table.set("labels", &mut fan_out.labels);
    table.set("max_parallel", &mut fan_out.max_parallel);
    fan_out
}

fn race(table: &mut TableReader<'_, '_, '_>) -> Race {
    let mut race = Race::new(targets(table));
    table.set("max_parallel", &mut race.max_parallel);
    race
}

fn pipeline(table: &mut TableReader<'_, '_, '_>) -> Pipeline {
    let mut pipeline = Pipeline::new(steps(table));
    pipeline.output = output(table);
    table.set("report", &mut pipeline.report);
    pipeline
}

fn workflow(table: &mut TableReader<'_, '_, '_>) -> Workflow {
    let mut workflow = Workflow::new(steps(table));
    workflow.output = output(table);
    table.set("report", &mut workflow.report);
    table.set("max_parallel", &mut workflow.max_parallel);
    workflow
}

fn steps(table: &mut TableReader<'_, '_, '_>) -> Vec<Step> {
    table.tables("steps", step).unwrap_or_default()
}

fn output(table: &mut TableReader<'_, '_, '_>) -> Option<Output> {
    table.table("output", output::read)
}

fn targets(table: &mut TableReader<'_, '_, '_>) -> Vec<Target> {
    if table.has("tools") && table.has("targets") {
        let message = "`tools` is the short form of `targets`: expected one of them";
        table.report("tools", message);
    }
    let tools = table.get::<Vec<String>>("tools").unwrap_or_default();
    let targets = table.tables("targets", |table| {
        table.only(&TARGET);
        let mut target = Target::of(call(table));
        table.set("id", &mut target.id);
        table.set("timeout", &mut target.timeout);
        table.set("optional", &mut target.optional);
        table.set("retry_lost", &mut target.retry_lost);
        table.set("allow_flow", &mut target.allow_flow);
        target.retry =
            table.word_or_table("on_error", "action", TARGET_ON_ERROR, |read, table| read(table));
        target
    });
    targets.unwrap_or_else(|| tools.into_iter().map(Target::new).collect())
}

/// Mirrors [`Success`], the success rule of a fan-out, for deserialization from a configuration
/// file.
#[derive(Deserialize)]
#[serde(
    remote = "Success",
    rename_all = "lowercase",
    expecting = "`\"all\"`, `\"any\"` or `{ quorum = … }`"
)]
enum SuccessRule {
    All,
    Any,
    Quorum(usize),
}

impl FromToml for Success {
    fn from_toml<'a>(value: Value<'_, 'a, '_>) -> Result<Self, Failure> {
        SuccessRule::deserialize(value)
    }
}
