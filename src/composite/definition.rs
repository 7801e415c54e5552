use std::time::Duration;

use rmcp::model::{JsonObject, ToolAnnotations};

#[cfg(feature = "config")]
use super::Segment;
use super::{Output, Step, ToolCall};

/// How many tools a fan-out may call.
pub(crate) const MAX_TARGETS: usize = 64;
/// How deep composites may be nested, the outermost included.
pub(crate) const MAX_DEPTH: usize = 8;
/// How long a whole run may take, unless its definition says otherwise.
pub(crate) const RUN_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How long one target may take, unless it says otherwise.
pub(crate) const TARGET_TIMEOUT: Duration = Duration::from_secs(60);

/// The description of one composite tool.
///
/// A description is only data: what is wrong with it is told, all at once, when
/// it is built into a [`CompositeLayer`](super::CompositeLayer).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use mcp_composite::composite::{CompositeLayer, CompositeTool, Success, Target};
/// use serde_json::json;
///
/// let search = CompositeTool::fan_out(
///     "search_all",
///     "Search everywhere",
///     [
///         Target::new("github_search").id("code"),
///         Target::new("docs_search")
///             .arguments(json!({ "q": "$input.query", "limit": 5 }))
///             .timeout(Duration::from_secs(5))
///             .optional(true),
///     ],
/// )
/// .success(Success::Any);
///
/// assert!(CompositeLayer::new([search]).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CompositeTool {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) title: Option<String>,
    pub(crate) input_schema: Option<JsonObject>,
    pub(crate) output_schema: Option<JsonObject>,
    pub(crate) annotations: Option<ToolAnnotations>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_calls: Option<usize>,
    pub(crate) max_result_bytes: Option<usize>,
    pub(crate) max_cost: Option<u64>,
    pub(crate) on_limit: Option<OnLimit>,
    pub(crate) strategy: Strategy,
    pub(crate) success: Option<Success>,
    pub(crate) order: Option<Order>,
    pub(crate) report: Option<bool>,
    pub(crate) labels: Option<Labels>,
    pub(crate) trace: Option<Trace>,
    pub(crate) max_parallel: Option<usize>,
    pub(crate) targets: Option<Vec<Target>>,
    pub(crate) steps: Option<Vec<Step>>,
    pub(crate) output: Option<Output>,
    pub(crate) strict: Option<bool>,
}

/// A tool that a composite calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub(crate) call: ToolCall,
    pub(crate) id: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) optional: Option<bool>,
}

/// In which way a composite calls tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// All at once.
    #[default]
    Parallel,
    /// One after another, all of them, whatever becomes of each.
    Sequential,
    /// All at once; the first success is the answer, the others are cancelled.
    Race,
    /// One after another, until one succeeds; it is the answer.
    Fallback,
    /// Steps one after another, each of which can use what those before gave.
    Pipeline,
    /// Steps as soon as what they need has finished.
    Workflow,
}

/// When a parallel or sequential fan-out has succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Success {
    /// Every target that is not optional succeeded.
    #[default]
    All,
    /// At least one target succeeded.
    Any,
    /// At least so many targets succeeded, optional ones included.
    Quorum(usize),
}

/// What a run gives that a limit has ended.
///
/// See [what a run may use](crate::composite#what-a-run-may-use).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLimit {
    /// What there is by then, and which limit it was. It is an error only if nothing
    /// has completed.
    #[default]
    Partial,
    /// An error that names the limit, with the branches or completed steps of any other
    /// failure.
    Fail,
}

/// In which order the content of the branches stands in the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// As the targets are declared, so that the same outcomes give the same result.
    #[default]
    Declared,
    /// As they finished.
    Completion,
}

/// Where the content of a fan-out names its branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Labels {
    /// In a text before the content of each branch that completed, and in the `_meta` of
    /// each block.
    #[default]
    Text,
    /// Only in the `_meta` of each block, which models do not see.
    Meta,
}

/// When the result of a composite has the trace of its run in `_meta`, under
/// [`TRACE`](super::TRACE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trace {
    /// If the request has `true` in its own `_meta` under the same key, or the run fails and
    /// [reports](CompositeTool::report).
    #[default]
    OnRequest,
    /// With each result.
    Always,
}

// === impl CompositeTool ===

impl CompositeTool {
    /// Describes a tool that calls each of `targets`.
    ///
    /// By default all are called at once, each with the arguments that the
    /// composite is called with, and all must succeed.
    pub fn fan_out<T: Into<Target>>(
        name: impl Into<String>,
        description: impl Into<String>,
        targets: impl IntoIterator<Item = T>,
    ) -> Self {
        let targets = targets.into_iter().map(Into::into).collect();
        Self { targets: Some(targets), ..Self::of(Strategy::default(), name, description) }
    }

    /// Describes a tool that runs steps one after another.
    ///
    /// Each can refer to what those before it gave, and to the one just before it
    /// as `$prev`. The result is that of the last, or the [`output`](Self::output).
    pub fn pipeline(
        name: impl Into<String>,
        description: impl Into<String>,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        let steps = steps.into_iter().collect();
        Self { steps: Some(steps), ..Self::of(Strategy::Pipeline, name, description) }
    }

    /// Describes a tool that runs each step as soon as those have finished that it
    /// refers to and [depends on](Step::depends_on).
    ///
    /// The result is that of the last step, in this order, that completed, or the
    /// [`output`](Self::output).
    pub fn workflow(
        name: impl Into<String>,
        description: impl Into<String>,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        let steps = steps.into_iter().collect();
        Self { steps: Some(steps), ..Self::of(Strategy::Workflow, name, description) }
    }

    pub(crate) fn of(
        strategy: Strategy,
        name: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            title: None,
            input_schema: None,
            output_schema: None,
            annotations: None,
            timeout: None,
            max_calls: None,
            max_result_bytes: None,
            max_cost: None,
            on_limit: None,
            strategy,
            success: None,
            order: None,
            report: None,
            labels: None,
            trace: None,
            max_parallel: None,
            targets: None,
            steps: None,
            output: None,
            strict: None,
        }
    }

    /// All tools that it calls, and where they stand in the definition.
    #[cfg(feature = "config")]
    pub(crate) fn calls_mut(&mut self) -> Vec<(Vec<Segment>, &mut ToolCall)> {
        let mut calls = Vec::new();
        for (place, target) in self.targets.iter_mut().flatten().enumerate() {
            calls.push((vec!["targets".into(), place.into()], &mut target.call));
        }
        for (place, step) in self.steps.iter_mut().flatten().enumerate() {
            let path: [Segment; 2] = ["steps".into(), place.into()];
            calls.extend(
                step.calls_mut().map(|(within, call)| ([&path[..], &within].concat(), call)),
            );
        }
        calls
    }

    /// The name that clients see.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the title that people see.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the input schema; by default it is derived from the targets.
    #[must_use]
    pub fn input_schema(mut self, schema: JsonObject) -> Self {
        self.input_schema = Some(schema);
        self
    }

    /// Sets the output schema. Defaults to that of the report of a fan-out, of the
    /// [`output`](Self::output) block, or of the tool whose result is passed on: the last
    /// step's, or that of all targets of a race or fallback if it is the same.
    ///
    /// A result that does not fit the schema is an error. An output schema must describe
    /// the answer as it is: the report, the result of the last step, or that of any winner.
    #[must_use]
    pub fn output_schema(mut self, schema: JsonObject) -> Self {
        self.output_schema = Some(schema);
        self
    }

    /// Sets annotations; what they leave open is derived from the targets.
    ///
    /// An annotation that claims more safety than the targets have is ignored,
    /// with a warning in the log.
    #[must_use]
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.annotations = Some(annotations);
        self
    }

    /// Bounds a whole run; 30 minutes by default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Bounds how many tools a run calls; none but the [`Limits`](super::Limits) of all
    /// runs by default.
    ///
    /// Each attempt counts, each element of a loop, and whatever composites within call.
    /// See [what a run may use](crate::composite#what-a-run-may-use).
    #[must_use]
    pub const fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = Some(calls);
        self
    }

    /// Bounds how large the answers of the tools of a run may be together, in bytes of
    /// their texts, data and values; none but the [`Limits`](super::Limits) of all runs
    /// by default.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.max_result_bytes = Some(bytes);
        self
    }

    /// Bounds what the calls of a run may cost together, as a
    /// [`BudgetLayer`](crate::budget::BudgetLayer) below counts it; nothing does by
    /// default. Where nothing counts costs, nothing costs anything.
    #[must_use]
    pub const fn max_cost(mut self, cost: u64) -> Self {
        self.max_cost = Some(cost);
        self
    }

    /// Sets what a run gives that one of these has ended, or one of a composite that it
    /// is a part of; what there is by default.
    #[must_use]
    pub const fn on_limit(mut self, on_limit: OnLimit) -> Self {
        self.on_limit = Some(on_limit);
        self
    }

    /// Sets in which way the targets are called.
    #[must_use]
    pub const fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets when a run has succeeded; all that are not optional by default.
    #[must_use]
    pub const fn success(mut self, success: Success) -> Self {
        self.success = Some(success);
        self
    }

    /// Sets the order of the content; as declared by default.
    #[must_use]
    pub const fn order(mut self, order: Order) -> Self {
        self.order = Some(order);
        self
    }

    /// Sets whether the result reports the branches or steps; by default it does.
    ///
    /// The report of a fan-out is its structured content. The report of a pipeline or workflow that has failed is the outputs of the
    /// steps that have completed, up to 64 KiB together; without it, a failure only names
    /// these steps.
    #[must_use]
    pub const fn report(mut self, report: bool) -> Self {
        self.report = Some(report);
        self
    }

    /// Sets where the content of a fan-out names its branches. Defaults to
    /// [`Labels::Text`].
    #[must_use]
    pub const fn labels(mut self, labels: Labels) -> Self {
        self.labels = Some(labels);
        self
    }

    /// Sets when the result has the trace of the run in `_meta`: the times and attempts of
    /// each branch or step. Defaults to [`Trace::OnRequest`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use mcp_composite::{
    ///     composite::{CompositeLayer, CompositeTool, TRACE, Trace},
    ///     testing::{self, Server},
    /// };
    /// use serde_json::json;
    /// use tower::Layer;
    ///
    /// let look = CompositeTool::fan_out("look", "Looks", ["near", "far"]).trace(Trace::Always);
    /// let server = Server::new().says("near", "a ship").says("far", "a port");
    /// let service = CompositeLayer::new([look]).unwrap().layer(server);
    ///
    /// let result = testing::call(&service, "look", json!({})).await;
    /// assert_eq!(result.meta.unwrap()[TRACE][0]["status"], "completed");
    /// # }
    /// # #[cfg(not(feature = "testing"))]
    /// # fn main() {}
    /// ```
    #[must_use]
    pub const fn trace(mut self, trace: Trace) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Bounds how many targets or steps run at the same time; by default all
    /// targets do, and 10 steps of a workflow.
    #[must_use]
    pub const fn max_parallel(mut self, max_parallel: usize) -> Self {
        self.max_parallel = Some(max_parallel);
        self
    }

    /// Sets what a pipeline or workflow gives, instead of the result of a step.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = Some(output);
        self
    }

    /// Whether a string that begins with `$` must be a reference, and what it
    /// refers to must be there; both must, by default.
    ///
    /// If not, an unknown reference is a text, and what is missing is left out, as
    /// if each reference ended in `?`. Templates stay as they are.
    #[must_use]
    pub const fn strict(mut self, strict: bool) -> Self {
        self.strict = Some(strict);
        self
    }
}

// === impl Target ===

impl Target {
    /// Calls `tool` with the arguments of the composite.
    ///
    /// A composite of the layer goes before a tool behind it of the same name.
    pub fn new(tool: impl Into<String>) -> Self {
        Self { call: ToolCall::new(tool), id: None, timeout: None, optional: None }
    }

    /// Like [`new`](Self::new), but `tool` is one behind the layer even if a
    /// composite wraps it under its own name.
    pub fn behind(tool: impl Into<String>) -> Self {
        Self { call: ToolCall::behind(tool), ..Self::new("") }
    }

    /// Sets the name of the branch; the tool's name by default.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the arguments, an object in which strings such as `$input.query`
    /// refer to the arguments of the composite.
    ///
    /// See [`expr`](crate::expr) for what can be referred to.
    #[must_use]
    pub fn arguments(mut self, arguments: serde_json::Value) -> Self {
        self.call = self.call.arguments(arguments);
        self
    }

    /// Bounds the call; 60 seconds by default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Whether the composite succeeds without it; it does not by default.
    #[must_use]
    pub const fn optional(mut self, optional: bool) -> Self {
        self.optional = Some(optional);
        self
    }
}

impl From<&str> for Target {
    fn from(tool: &str) -> Self {
        Self::new(tool)
    }
}

impl From<String> for Target {
    fn from(tool: String) -> Self {
        Self::new(tool)
    }
}

// === impl OnLimit ===

impl OnLimit {
    /// What it is called in a file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Partial => "partial",
            Self::Fail => "fail",
        }
    }
}

// === impl Labels ===

impl Labels {
    /// Its name in a file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Meta => "meta",
        }
    }
}

// === impl Trace ===

impl Trace {
    /// Its name in a file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnRequest => "on_request",
            Self::Always => "always",
        }
    }
}

// === impl Strategy ===

impl Strategy {
    /// Whether it runs steps and not targets.
    pub(crate) const fn has_steps(self) -> bool {
        matches!(self, Self::Pipeline | Self::Workflow)
    }

    /// The strategy's name in a file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parallel => "parallel",
            Self::Sequential => "sequential",
            Self::Race => "race",
            Self::Fallback => "fallback",
            Self::Pipeline => "pipeline",
            Self::Workflow => "workflow",
        }
    }
}
