//! The definition of a composite tool.

use std::time::Duration;

use rmcp::model::{JsonObject, ToolAnnotations};

#[cfg(feature = "config")]
use super::strategy::{Fallback, Race};
#[cfg(feature = "config")]
use super::{error::Segment, tool_call::ToolCall};
use super::{
    step::Step,
    strategy::{FanOut, Pipeline, Strategy, Target, Workflow},
    task_mode::TaskMode,
};
use crate::{engine::limits::RunLimits, expr::Variables, named::named};

/// The maximum nesting depth of composites, including the outermost one.
pub(crate) const MAX_COMPOSITE_DEPTH: usize = 8;
/// The default timeout of a run.
pub(crate) const RUN_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The definition of a composite tool, which is a tool that calls other tools.
///
/// Creating a `CompositeTool` never fails. Its definition is checked when you create a
/// [`CompositeLayer`](super::CompositeLayer), which adds composite tools to a server.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use mcp_composite::composite::{CompositeLayer, CompositeTool, FanOut, Success, Target};
/// use serde_json::json;
///
/// let targets = [
///     Target::new("github_search").id("code"),
///     Target::new("docs_search")
///         .arguments(json!({ "q": "$input.query", "limit": 5 }))
///         .timeout(Duration::from_secs(5))
///         .optional(true),
/// ];
/// let fan_out = FanOut::new(targets).success(Success::Any);
/// let search = CompositeTool::new("search_all", "Search everywhere", fan_out)
///     .timeout(Duration::from_secs(20));
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
    pub(crate) annotations: ToolAnnotations,
    pub(crate) timeout: Duration,
    pub(crate) limits: RunLimits,
    pub(crate) on_limit: OnLimit,
    pub(crate) strategy: Strategy,
    pub(crate) trace: Trace,
    /// `None` if the default of the strategy applies.
    pub(crate) task: Option<TaskMode>,
    pub(crate) strict: bool,
    pub(crate) variables: Variables,
}

/// Determines what a composite tool returns if its run ends early because it reaches a limit, such
/// as [`CompositeTool::max_calls`].
///
/// The module docs list [the limits of a run](crate::composite#what-a-run-may-use).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLimit {
    /// Returns the partial result, which is built from the tool calls and steps that have
    /// completed, with a text that names the limit. The result is an error (`isError`) if no call
    /// or step has completed, or if one that is required has failed for another reason than the
    /// limit.
    #[default]
    Partial,
    /// Returns an error result (`isError`) that names the limit. Like the result of any failed run
    /// of the composite, it also reports the outcomes of the branches or the completed steps.
    Fail,
}

/// Determines when the result of a composite tool contains a trace of its run. The trace lists the
/// times and attempts of each tool call or step, for debugging. It is in the `_meta` of the result,
/// under the key [`TRACE`](super::TRACE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trace {
    /// The result contains the trace if the run of the composite fails, or if the client's request
    /// sets [`TRACE`](super::TRACE) to `true` in its `_meta`. The exception is a failed fan-out
    /// whose [`report`](FanOut::report) is disabled: its result contains the trace only if the
    /// client requests it.
    #[default]
    OnRequest,
    /// Every result of the composite contains the trace.
    Always,
}

// === impl CompositeTool ===

impl CompositeTool {
    /// Defines a tool that calls other tools. `strategy` determines which tools are called and
    /// when: it is a [`FanOut`], [`Race`](super::Race), [`Fallback`](super::Fallback), [`Pipeline`]
    /// or [`Workflow`].
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        strategy: impl Into<Strategy>,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            title: None,
            input_schema: None,
            output_schema: None,
            annotations: ToolAnnotations::default(),
            timeout: RUN_TIMEOUT,
            limits: RunLimits::default(),
            on_limit: OnLimit::default(),
            strategy: strategy.into(),
            trace: Trace::default(),
            task: None,
            strict: true,
            variables: Variables::new(),
        }
    }

    /// Defines a tool that calls each of `targets` and combines their results, with the default
    /// settings of a [`FanOut`].
    pub fn fan_out<T: Into<Target>>(
        name: impl Into<String>,
        description: impl Into<String>,
        targets: impl IntoIterator<Item = T>,
    ) -> Self {
        Self::new(name, description, FanOut::new(targets))
    }

    /// Defines a tool that runs steps one after another, with the default settings of a
    /// [`Pipeline`].
    pub fn pipeline(
        name: impl Into<String>,
        description: impl Into<String>,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        Self::new(name, description, Pipeline::new(steps))
    }

    /// Defines a tool that runs steps in parallel where possible, with the default settings of a
    /// [`Workflow`]. A [`Step`] starts when all steps that it needs have finished: the steps whose
    /// outputs it uses, and those on which it [depends](Step::depends_on).
    pub fn workflow(
        name: impl Into<String>,
        description: impl Into<String>,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        Self::new(name, description, Workflow::new(steps))
    }

    /// Returns mutable references to all tool calls in the definition, each with its path.
    #[cfg(feature = "config")]
    pub(crate) fn calls_mut(&mut self) -> Vec<(Vec<Segment>, &mut ToolCall)> {
        match &mut self.strategy {
            Strategy::FanOut(FanOut { targets, .. })
            | Strategy::Race(Race { targets, .. })
            | Strategy::Fallback(Fallback { targets }) => {
                let targets = targets.iter_mut().enumerate();
                let path = |place: usize| vec!["targets".into(), place.into()];
                targets.map(|(place, target)| (path(place), &mut target.call)).collect()
            }
            Strategy::Pipeline(Pipeline { steps, .. })
            | Strategy::Workflow(Workflow { steps, .. }) => {
                let calls = steps.iter_mut().enumerate().flat_map(|(place, step)| {
                    let calls = step.action.calls_mut().into_iter();
                    calls.map(move |(path, call)| {
                        ([&["steps".into(), place.into()], &path[..]].concat(), call)
                    })
                });
                calls.collect()
            }
        }
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the title of the tool, which clients display to users instead of its name.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the input schema of the tool. By default, the input schema is derived from the input
    /// schemas of the tools that the composite calls.
    #[must_use]
    pub fn input_schema(mut self, schema: JsonObject) -> Self {
        self.input_schema = Some(schema);
        self
    }

    /// Sets the output schema of the tool, which describes the structured content of its results.
    /// The default depends on the strategy of the composite:
    /// - For a fan-out, the default is the schema of the report about its targets.
    /// - For a pipeline or workflow, the default is the schema of the [`output`](Workflow::output)
    ///   block. Without an output block, it is the output schema of the last step's tool.
    /// - For a race or fallback, the default is the output schema of the targets' tools, if all of
    ///   these tools have the same output schema.
    ///
    /// If a result of the composite does not match the output schema, the client receives an error
    /// instead. The schema must therefore describe every possible result: the report of a fan-out,
    /// the result of a pipeline's last step, or the results of all targets of a race.
    #[must_use]
    pub fn output_schema(mut self, schema: JsonObject) -> Self {
        self.output_schema = Some(schema);
        self
    }

    /// Sets the annotations of the tool, which describe its effects. Annotations that are not set
    /// are derived from the annotations of the tools that the composite calls.
    ///
    /// An annotation that claims more safety than the called tools provide is ignored, and a
    /// warning is logged. An example is `readOnlyHint` on a composite that calls a tool that is not
    /// read-only.
    #[must_use]
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.annotations = annotations;
        self
    }

    /// Sets the timeout of a run: the maximum duration of one call of this tool. Defaults to 30
    /// minutes.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the maximum number of tool calls that one call of this composite can make. Each attempt
    /// of a step and each element of a loop counts as one call. A run that reaches the maximum
    /// [ends early](crate::composite#what-a-run-may-use). By default, only the
    /// [`CallLimits`](super::CallLimits) of the layer apply.
    ///
    /// If this composite calls another composite, the call itself and all calls that the other
    /// composite makes count toward the maximum.
    #[must_use]
    pub const fn max_calls(mut self, calls: usize) -> Self {
        self.limits.max_calls = Some(calls);
        self
    }

    /// Sets the maximum total size, in bytes, of the tool results that one call of this composite
    /// can receive. Texts, binary data and JSON values count toward the size. By default, only the
    /// [`CallLimits`](super::CallLimits) of the layer apply.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.limits.max_result_bytes = Some(bytes);
        self
    }

    /// Sets the maximum total cost of the tool calls that one call of this composite can make. A
    /// [`BudgetLayer`](crate::budget::BudgetLayer) between the composites and the tools determines
    /// the cost of each tool call. Without a budget layer, calls cost nothing. By default, the cost
    /// is unlimited.
    #[must_use]
    pub const fn max_cost(mut self, cost: u64) -> Self {
        self.limits.max_cost = Some(cost);
        self
    }

    /// Sets the result of a run that ends early because it reaches [`max_calls`](Self::max_calls),
    /// [`max_result_bytes`](Self::max_result_bytes) or [`max_cost`](Self::max_cost). The setting
    /// also applies if the run reaches a limit of an outer composite that has called this
    /// composite. Defaults to [`OnLimit::Partial`].
    #[must_use]
    pub const fn on_limit(mut self, on_limit: OnLimit) -> Self {
        self.on_limit = on_limit;
        self
    }

    /// Sets when the result of the tool contains a trace of its run in `_meta`. The trace lists the
    /// times and attempts of each tool call or step. Defaults to [`Trace::OnRequest`].
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
        self.trace = trace;
        self
    }

    /// Sets whether calls of the composite become MCP tasks, if the client supports tasks. Defaults
    /// to [`TaskMode::Optional`] for a [`Workflow`] whose timeout is longer than 60 seconds, and to
    /// [`TaskMode::Never`] for all other composites.
    #[must_use]
    pub const fn task(mut self, mode: TaskMode) -> Self {
        self.task = Some(mode);
        self
    }

    /// Sets the variables: named constants to which expressions in this definition can refer, such
    /// as `$vars.team`. Defaults to no variables. If the variables are changed while a run is
    /// suspended, the run continues with the changed values.
    #[must_use]
    pub fn variables(mut self, variables: Variables) -> Self {
        self.variables = variables;
        self
    }

    /// Sets whether each string in the definition that begins with `$` must be a valid reference to
    /// an existing value, such as `$input.query`. Defaults to `true`.
    ///
    /// If set to `false`, a string that begins with `$` but is not a known reference is used
    /// literally, for example `$5 off`. A reference to a missing value is omitted, as if it ended
    /// in `?`. This setting does not affect templates, such as `{{ input.query }}`.
    #[must_use]
    pub const fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }
}

named! {
    OnLimit {
        Partial => "partial",
        Fail => "fail",
    }
}

named! {
    Trace {
        OnRequest => "on_request",
        Always => "always",
    }
}
