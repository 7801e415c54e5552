//! The section `[[composite_tools]]`.

use rmcp::model::JsonObject;
use serde::Deserialize;

use super::{
    BackendConfig, RouterConfig,
    annotations::AnnotationsTable,
    duration::Duration,
    fault::MAX_MISTAKES,
    output::OutputTable,
    read::Reader,
    set_some::SetSome,
    steps::StepTable,
    targets::{Meaning, Targets},
};
use crate::alias::AliasLayer;
use crate::composite::{
    CompositeLayer, CompositeTool, DefinitionError, DefinitionErrorKind, Labels, OnLimit, Order,
    Output, Segment, Strategy, Success, Target, Trace,
};

/// The key of the section.
const SECTION: &str = "composite_tools";

/// A tool composed of other tools.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["name", "description"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct CompositeToolTable {
    /// The name that clients see.
    name: Option<String>,
    /// The description that clients see.
    description: Option<String>,
    /// The title that clients see.
    title: Option<String>,
    /// JSON Schema of its arguments. Derived from the targets if not set.
    input_schema: Option<JsonObject>,
    /// Another name of `input_schema`.
    parameters: Option<JsonObject>,
    /// JSON Schema of its result. Describes the report if not set.
    output_schema: Option<JsonObject>,
    /// Its annotations. Hints that are not set are derived from the targets.
    annotations: Option<AnnotationsTable>,
    /// Timeout of a whole run. Defaults to 30 minutes.
    timeout: Option<Duration>,
    /// Maximum number of tool calls in a run, including nested ones.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_calls: Option<usize>,
    /// Maximum total size of all tool results in a run, in bytes.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_result_bytes: Option<usize>,
    /// Maximum total cost of the calls of a run, by `[[budget.costs]]`.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_cost: Option<u64>,
    /// Behavior when a limit is reached. Defaults to returning the partial result.
    on_limit: Option<OnLimitName>,
    /// How tools are called. Defaults to calling all targets in parallel.
    strategy: Option<StrategyName>,
    /// How many targets must succeed. Defaults to all.
    success: Option<SuccessRule>,
    /// Order of the branches in the result. Defaults to the declared order.
    order: Option<OrderName>,
    /// Whether the result reports the branches of a fan-out, or the completed steps of a failed
    /// pipeline or workflow. Defaults to `true`.
    report: Option<bool>,
    /// How the content of the result labels the branches. Defaults to `"text"`.
    labels: Option<LabelsName>,
    /// When the result has the times and attempts of branches or steps in `_meta`. Defaults to
    /// `"on_request"`.
    trace: Option<TraceName>,
    /// Maximum number of targets that run at the same time.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_parallel: Option<usize>,
    /// Names of the tools to call, each with the arguments of the composite.
    tools: Option<Vec<String>>,
    /// The tools to call, with individual settings, instead of `tools`.
    targets: Option<Vec<TargetTable>>,
    /// The steps of a pipeline or workflow.
    steps: Option<Vec<StepTable>>,
    /// The output of a pipeline or workflow. Defaults to the result of its last step.
    output: Option<OutputTable>,
    /// Whether malformed references, and references to missing values, are errors. Defaults to
    /// `true`.
    strict: Option<bool>,
}

/// A tool that a composite calls.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["tool"])))]
#[serde(default, deny_unknown_fields)]
struct TargetTable {
    /// Its name in the result. Defaults to the name of the tool.
    id: Option<String>,
    /// The tool: a name as clients see it, `backend/tool`, or another composite.
    tool: Option<String>,
    /// Its arguments, such as `{ q = "$input.query" }`. Defaults to the arguments of the composite.
    arguments: Option<serde_json::Value>,
    /// Timeout of the call. Defaults to 60 seconds.
    timeout: Option<Duration>,
    /// Whether the call may fail, or the tool may be missing, without failing the run.
    optional: Option<bool>,
}

/// How tools are called.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum StrategyName {
    /// All at once.
    Parallel,
    /// One after the other.
    Sequential,
    /// All at once, until one has succeeded.
    Race,
    /// One after the other, until one has succeeded.
    Fallback,
    /// Steps one after the other.
    Pipeline,
    /// Steps as soon as their dependencies have finished.
    Workflow,
}

/// How many targets must succeed.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase", expecting = "`\"all\"`, `\"any\"` or `{ quorum = … }`")]
enum SuccessRule {
    /// All that are not optional.
    All,
    /// One.
    Any,
    /// At least this many.
    Quorum(usize),
}

/// Order of the branches in the result.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum OrderName {
    /// The order of the targets in the file.
    Declared,
    /// The order of completion.
    Completion,
}

/// How the content of the result labels the branches.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum LabelsName {
    /// As a text before the content of each branch, and in `_meta`.
    Text,
    /// Only in `_meta`, which models do not see.
    Meta,
}

/// When a result contains the trace of its run.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum TraceName {
    /// If the request asks for it in `_meta`, or if the run fails and reports its steps.
    OnRequest,
    /// In every result.
    Always,
}

/// Behavior when a run reaches one of its limits.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum OnLimitName {
    /// Return the partial result, marked as such.
    Partial,
    /// Fail.
    Fail,
}

/// The spelling of the keys of a composite that have two spellings.
struct Spelling {
    tools: bool,
    parameters: bool,
}

/// Builds the section and reports mistakes in it.
///
/// The layer is `None` only if something was reported.
pub(super) fn build(
    tables: Vec<CompositeToolTable>,
    backends: &[BackendConfig],
    router: &RouterConfig,
    alias: &AliasLayer,
    reader: &mut Reader<'_, '_>,
) -> (Vec<CompositeTool>, Option<CompositeLayer>) {
    let spellings: Vec<_> = tables.iter().map(CompositeToolTable::spelling).collect();
    let mut tools: Vec<_> = tables
        .into_iter()
        .enumerate()
        .map(|(index, table)| table.into_definition(index, reader))
        .collect();
    let composites: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
    let targets = Targets::new(&composites, backends, router, alias);
    resolve(&mut tools, &targets, &spellings, reader);
    let layer = match CompositeLayer::with_separator(tools.iter().cloned(), router.separator()) {
        Ok(layer) => Some(layer),
        Err(errors) => {
            for error in &errors {
                report(error, &spellings, reader);
            }
            None
        }
    };
    (tools, layer)
}

/// Replaces each target by the name that clients see, and reports targets that cannot exist.
fn resolve(
    tools: &mut [CompositeTool],
    targets: &Targets<'_>,
    spellings: &[Spelling],
    reader: &mut Reader<'_, '_>,
) {
    // A name that could not be read may be the one that a target refers to.
    let known =
        !["backends", "router", "aliases"].iter().any(|&key| reader.has_fault_in(&[key.into()]))
            && !(0..tools.len()).any(|index| reader.has_fault_in(&at(index, &["name".into()])));
    let mut told = 0;
    for (index, tool) in tools.iter_mut().enumerate() {
        let name = tool.name.clone();
        for (path, call) in tool.calls_mut() {
            let mistaken = known && told < MAX_MISTAKES && !call.tool.trim().is_empty();
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
            told += 1;
            let path = [path, vec!["tool".into()]].concat();
            let path = spellings.get(index).map(|spelling| spelling.apply(&path));
            reader.report(&at(index, &path.unwrap_or_default()), message);
        }
    }
}

/// Reports a mistake in a definition at its place in the file.
fn report(error: &DefinitionError, spellings: &[Spelling], reader: &mut Reader<'_, '_>) {
    let (index, path) = match error.path() {
        [Segment::Index(index), path @ ..] => (*index, path),
        path => (usize::MAX, path),
    };
    // Targets that could not be read are missing from the count.
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
    let (path, message) = match spellings.get(index) {
        Some(spelling) => (spelling.apply(path), spelling.message(error.kind())),
        None => (path.to_vec(), error.kind().to_string()),
    };
    reader.report(&at(index, &path), message);
}

/// Returns the path of a key of the composite at `index`.
fn at(index: usize, path: &[Segment]) -> Vec<Segment> {
    [&[SECTION.into(), index.into()], path].concat()
}

// === impl CompositeToolTable ===

impl CompositeToolTable {
    const fn spelling(&self) -> Spelling {
        Spelling {
            tools: self.tools.is_some() && self.targets.is_none(),
            parameters: self.parameters.is_some() && self.input_schema.is_none(),
        }
    }

    fn into_definition(self, index: usize, reader: &mut Reader<'_, '_>) -> CompositeTool {
        let name = reader.required(self.name, "name", &at(index, &[]));
        let description = reader.required(self.description, "description", &at(index, &[]));

        if self.parameters.is_some() && self.input_schema.is_some() {
            let message = "`parameters` is another name of `input_schema`: expected one of them";
            reader.report(&at(index, &["parameters".into()]), message.to_owned());
        }
        if self.tools.is_some() && self.targets.is_some() {
            let message = "`tools` is the short form of `targets`: expected one of them";
            reader.report(&at(index, &["tools".into()]), message.to_owned());
        }
        let tools = self.tools.map(|tools| tools.into_iter().map(Target::new).collect());
        let targets = self.targets.map(|targets| {
            let path = |place: usize| at(index, &["targets".into(), place.into()]);
            let targets = targets.into_iter().enumerate();
            targets.map(|(place, table)| table.into_target(&path(place), reader)).collect()
        });
        let steps = self.steps.map(|steps| {
            let path = |place: usize| at(index, &["steps".into(), place.into()]);
            let steps = steps.into_iter().enumerate();
            steps.map(|(place, table)| table.into_step(&path(place), reader)).collect()
        });

        let strategy = self.strategy.map(Strategy::from).unwrap_or_default();
        let mut tool = CompositeTool::of(strategy, name, description);
        tool.targets = targets.or(tools);
        tool.steps = steps;
        tool.output = self.output.map(Output::from);
        tool.strict = self.strict;
        tool.set_some(self.title, CompositeTool::title)
            .set_some(self.input_schema.or(self.parameters), CompositeTool::input_schema)
            .set_some(self.output_schema, CompositeTool::output_schema)
            .set_some(self.annotations.map(Into::into), CompositeTool::annotations)
            .set_some(self.timeout.map(|Duration(timeout)| timeout), CompositeTool::timeout)
            .set_some(self.max_calls, CompositeTool::max_calls)
            .set_some(self.max_result_bytes, CompositeTool::max_result_bytes)
            .set_some(self.max_cost, CompositeTool::max_cost)
            .set_some(self.on_limit.map(Into::into), CompositeTool::on_limit)
            .set_some(self.success.map(Into::into), CompositeTool::success)
            .set_some(self.order.map(Into::into), CompositeTool::order)
            .set_some(self.report, CompositeTool::report)
            .set_some(self.labels.map(Into::into), CompositeTool::labels)
            .set_some(self.trace.map(Into::into), CompositeTool::trace)
            .set_some(self.max_parallel, CompositeTool::max_parallel)
    }
}

// === impl TargetTable ===

impl TargetTable {
    fn into_target(self, path: &[Segment], reader: &mut Reader<'_, '_>) -> Target {
        Target::new(reader.required(self.tool, "tool", path))
            .set_some(self.id, Target::id)
            .set_some(self.arguments, Target::arguments)
            .set_some(self.timeout.map(|Duration(timeout)| timeout), Target::timeout)
            .set_some(self.optional, Target::optional)
    }
}

// === impl Spelling ===

impl Spelling {
    /// Returns the error message, with the keys as they are spelled in the file.
    fn message(&self, kind: &DefinitionErrorKind) -> String {
        match kind {
            DefinitionErrorKind::Meaningless { key: "targets", with } if self.tools => {
                DefinitionErrorKind::Meaningless { key: "tools", with: with.clone() }.to_string()
            }
            kind => kind.to_string(),
        }
    }

    /// Converts a path in the long form to the spelling of the file.
    fn apply(&self, path: &[Segment]) -> Vec<Segment> {
        match path {
            [Segment::Key(key), rest @ ..] if key == "targets" && self.tools => {
                // An element of `tools` is the whole target.
                [&["tools".into()], rest.get(..1).unwrap_or_default()].concat()
            }
            [Segment::Key(key), rest @ ..] if key == "input_schema" && self.parameters => {
                [&["parameters".into()], rest].concat()
            }
            path => path.to_vec(),
        }
    }
}

// === impl conversions ===

impl From<StrategyName> for Strategy {
    fn from(name: StrategyName) -> Self {
        match name {
            StrategyName::Parallel => Self::Parallel,
            StrategyName::Sequential => Self::Sequential,
            StrategyName::Race => Self::Race,
            StrategyName::Fallback => Self::Fallback,
            StrategyName::Pipeline => Self::Pipeline,
            StrategyName::Workflow => Self::Workflow,
        }
    }
}

impl From<SuccessRule> for Success {
    fn from(rule: SuccessRule) -> Self {
        match rule {
            SuccessRule::All => Self::All,
            SuccessRule::Any => Self::Any,
            SuccessRule::Quorum(quorum) => Self::Quorum(quorum),
        }
    }
}

impl From<LabelsName> for Labels {
    fn from(name: LabelsName) -> Self {
        match name {
            LabelsName::Text => Self::Text,
            LabelsName::Meta => Self::Meta,
        }
    }
}

impl From<TraceName> for Trace {
    fn from(name: TraceName) -> Self {
        match name {
            TraceName::OnRequest => Self::OnRequest,
            TraceName::Always => Self::Always,
        }
    }
}

impl From<OnLimitName> for OnLimit {
    fn from(name: OnLimitName) -> Self {
        match name {
            OnLimitName::Partial => Self::Partial,
            OnLimitName::Fail => Self::Fail,
        }
    }
}

impl From<OrderName> for Order {
    fn from(name: OrderName) -> Self {
        match name {
            OrderName::Declared => Self::Declared,
            OrderName::Completion => Self::Completion,
        }
    }
}
