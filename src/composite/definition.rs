//! The definition of a composite tool.

use std::time::Duration;

use rmcp::model::{JsonObject, ToolAnnotations};

#[cfg(feature = "config")]
use super::Segment;
use super::{Output, Step, ToolCall};

/// Maximum number of targets of a fan-out.
pub(crate) const MAX_TARGETS: usize = 64;
/// Maximum nesting depth of composites, including the outermost.
pub(crate) const MAX_COMPOSITE_DEPTH: usize = 8;
/// Default timeout of a run.
pub(crate) const RUN_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Default timeout of a target.
pub(crate) const TARGET_TIMEOUT: Duration = Duration::from_secs(60);

/// The definition of a composite tool.
///
/// A definition is only data. All errors in it are reported at once when it is built into a
/// [`CompositeLayer`](super::CompositeLayer).
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

/// The strategy by which a composite calls tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// All at once.
    #[default]
    Parallel,
    /// One after another, all of them, even if some fail.
    Sequential,
    /// All at once; the first success is the answer, the others are cancelled.
    Race,
    /// One after another, until one succeeds; it is the answer.
    Fallback,
    /// Steps one after another; each can refer to the outputs of earlier steps.
    Pipeline,
    /// Each step as soon as the steps that it needs have finished.
    Workflow,
}

/// The success rule of a parallel or sequential fan-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Success {
    /// Every target that is not optional succeeded.
    #[default]
    All,
    /// At least one target succeeded.
    Any,
    /// At least this many targets succeeded, including optional ones.
    Quorum(usize),
}

/// The result of a run that was ended by a limit.
///
/// See [what a run may use](crate::composite#what-a-run-may-use).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLimit {
    /// Returns the partial result and the limit that was reached. It is an error only if nothing
    /// has completed.
    #[default]
    Partial,
    /// Returns an error that names the limit, with the same report of branches or completed steps
    /// as other failures.
    Fail,
}

/// The order of the content of the branches in the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// The order in which the targets are declared; the same outcomes give the same result.
    #[default]
    Declared,
    /// The order in which they finished.
    Completion,
}

/// The place where the content of a fan-out names its branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Labels {
    /// In a text before the content of each completed branch, and in the `_meta` of each block.
    #[default]
    Text,
    /// Only in the `_meta` of each block, which models do not see.
    Meta,
}

/// The condition under which the result of a composite has the trace of its run in `_meta`, under
/// [`TRACE`](super::TRACE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trace {
    /// If the request has `true` in its own `_meta` under the same key, or if the run fails and
    /// [reports](CompositeTool::report).
    #[default]
    OnRequest,
    /// In each result.
    Always,
}

// === impl CompositeTool ===

impl CompositeTool {
    /// Defines a tool that calls each of `targets`.
    ///
    /// By default all targets are called at once, each with the arguments of the composite, and all
    /// must succeed.
    pub fn fan_out<T: Into<Target>>(
        name: impl Into<String>,
        description: impl Into<String>,
        targets: impl IntoIterator<Item = T>,
    ) -> Self {
        let targets = targets.into_iter().map(Into::into).collect();
        Self { targets: Some(targets), ..Self::of(Strategy::default(), name, description) }
    }

    /// Defines a tool that runs steps one after another.
    ///
    /// Each step can refer to the outputs of earlier steps, and to the output of the previous step
    /// as `$prev`. The result is that of the last step, or the [`output`](Self::output).
    pub fn pipeline(
        name: impl Into<String>,
        description: impl Into<String>,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        let steps = steps.into_iter().collect();
        Self { steps: Some(steps), ..Self::of(Strategy::Pipeline, name, description) }
    }

    /// Defines a tool that runs each step as soon as the steps that it refers to and [depends
    /// on](Step::depends_on) have finished.
    ///
    /// The result is that of the last declared step that completed, or the
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

    /// Returns all tools that it calls, with their paths in the definition.
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

    /// Returns the name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the title that clients display.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the input schema. By default it is derived from the targets.
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

    /// Sets annotations. Those that are not set are derived from the targets.
    ///
    /// An annotation that claims more safety than the targets have is ignored, and a warning is
    /// logged.
    #[must_use]
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.annotations = Some(annotations);
        self
    }

    /// Sets the timeout of a run. Defaults to 30 minutes.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the maximum number of tool calls of a run. By default only the
    /// [`Limits`](super::Limits) of all runs apply.
    ///
    /// Each attempt, each element of a loop and each call within a nested composite counts. See
    /// [what a run may use](crate::composite#what-a-run-may-use).
    #[must_use]
    pub const fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = Some(calls);
        self
    }

    /// Sets the maximum total size of the tool results of a run, in bytes of their texts, data and
    /// values. By default only the [`Limits`](super::Limits) of all runs apply.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.max_result_bytes = Some(bytes);
        self
    }

    /// Sets the maximum total cost of the calls of a run, as counted by a
    /// [`BudgetLayer`](crate::budget::BudgetLayer) below. Unlimited by default. Without such a
    /// layer, calls have no cost.
    #[must_use]
    pub const fn max_cost(mut self, cost: u64) -> Self {
        self.max_cost = Some(cost);
        self
    }

    /// Sets the result of a run that was ended by one of these limits, or by a limit of a composite
    /// that called it. Defaults to the partial result.
    #[must_use]
    pub const fn on_limit(mut self, on_limit: OnLimit) -> Self {
        self.on_limit = Some(on_limit);
        self
    }

    /// Sets the strategy by which the targets are called.
    #[must_use]
    pub const fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets the success rule. By default all targets that are not optional must succeed.
    #[must_use]
    pub const fn success(mut self, success: Success) -> Self {
        self.success = Some(success);
        self
    }

    /// Sets the order of the content. Defaults to [`Order::Declared`].
    #[must_use]
    pub const fn order(mut self, order: Order) -> Self {
        self.order = Some(order);
        self
    }

    /// Sets whether the result reports the branches or steps. Defaults to `true`.
    ///
    /// The report of a fan-out is its structured content. The report of a failed pipeline or
    /// workflow is the outputs of the completed steps, up to 64 KiB together; without it, a failure
    /// only names these steps.
    #[must_use]
    pub const fn report(mut self, report: bool) -> Self {
        self.report = Some(report);
        self
    }

    /// Sets where the content of a fan-out names its branches. Defaults to [`Labels::Text`].
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

    /// Sets the maximum number of targets or steps that run at the same time. Defaults to all
    /// targets, and to 10 steps of a workflow.
    #[must_use]
    pub const fn max_parallel(mut self, max_parallel: usize) -> Self {
        self.max_parallel = Some(max_parallel);
        self
    }

    /// Sets the output of a pipeline or workflow, which replaces the result of the last step.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = Some(output);
        self
    }

    /// Sets whether a string that begins with `$` must be a reference and its value must exist.
    /// Defaults to `true`.
    ///
    /// If `false`, an unknown reference is a literal string and a missing value is omitted, as if
    /// each reference ended in `?`. Templates are not affected.
    #[must_use]
    pub const fn strict(mut self, strict: bool) -> Self {
        self.strict = Some(strict);
        self
    }
}

// === impl Target ===

impl Target {
    /// Creates a target that calls `tool` with the arguments of the composite.
    ///
    /// A composite of the layer takes precedence over a tool behind it with the same name.
    pub fn new(tool: impl Into<String>) -> Self {
        Self { call: ToolCall::new(tool), id: None, timeout: None, optional: None }
    }

    /// Like [`new`](Self::new), but `tool` is a tool behind the layer even if a composite wraps it
    /// under the same name.
    pub fn behind(tool: impl Into<String>) -> Self {
        Self { call: ToolCall::behind(tool), ..Self::new("") }
    }

    /// Sets the name of the branch. Defaults to the name of the tool.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the arguments, an object in which strings such as `$input.query` refer to the arguments
    /// of the composite.
    ///
    /// See [`expr`](crate::expr) for the values that can be referenced.
    #[must_use]
    pub fn arguments(mut self, arguments: serde_json::Value) -> Self {
        self.call = self.call.arguments(arguments);
        self
    }

    /// Sets the timeout of the call. Defaults to 60 seconds.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets whether the composite can succeed without this target. Defaults to `false`.
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
    /// Returns the name in configuration files.
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
    /// Returns the name in configuration files.
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
    /// Returns the name in configuration files.
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
    /// Returns `true` if the strategy runs steps instead of targets.
    pub(crate) const fn has_steps(self) -> bool {
        matches!(self, Self::Pipeline | Self::Workflow)
    }

    /// Returns the name in configuration files.
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
