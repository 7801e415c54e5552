//! The definition of a composite tool.

use std::time::Duration;

use rmcp::model::{JsonObject, ToolAnnotations};

#[cfg(feature = "config")]
use super::strategy::{Fallback, Race};
#[cfg(feature = "config")]
use super::{error::Segment, step::ToolCall};
use super::{
    step::Step,
    strategy::{FanOut, Pipeline, Strategy, Target, Workflow},
};
use crate::{engine::limits::RunLimits, named::named};

/// Maximum nesting depth of composites, including the outermost.
pub(crate) const MAX_COMPOSITE_DEPTH: usize = 8;
/// Default timeout of a run.
pub(crate) const RUN_TIMEOUT: Duration = Duration::from_secs(30 * 60);

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
    pub(crate) strict: bool,
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

/// The condition under which the result of a composite has the trace of its run in `_meta`, under
/// [`TRACE`](super::TRACE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trace {
    /// If the request has `true` in its own `_meta` under the same key, or if the run fails and
    /// [reports](FanOut::report).
    #[default]
    OnRequest,
    /// In each result.
    Always,
}

// === impl CompositeTool ===

impl CompositeTool {
    /// Defines a tool with a [`FanOut`], [`Race`](super::Race), [`Fallback`](super::Fallback),
    /// [`Pipeline`] or [`Workflow`].
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
            strict: true,
        }
    }

    /// Defines a tool that calls each of `targets`, with the defaults of a [`FanOut`].
    pub fn fan_out<T: Into<Target>>(
        name: impl Into<String>,
        description: impl Into<String>,
        targets: impl IntoIterator<Item = T>,
    ) -> Self {
        Self::new(name, description, FanOut::new(targets))
    }

    /// Defines a tool that runs steps one after another, with the defaults of a [`Pipeline`].
    pub fn pipeline(
        name: impl Into<String>,
        description: impl Into<String>,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        Self::new(name, description, Pipeline::new(steps))
    }

    /// Defines a tool that runs each step as soon as the steps that it refers to and [depends
    /// on](Step::depends_on) have finished, with the defaults of a [`Workflow`].
    pub fn workflow(
        name: impl Into<String>,
        description: impl Into<String>,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        Self::new(name, description, Workflow::new(steps))
    }

    /// Returns all tools that it calls, with their paths in the definition.
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
                    let calls = step.calls_mut().into_iter();
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
    /// [`output`](Workflow::output) block, or of the tool whose result is passed on: the last
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
        self.annotations = annotations;
        self
    }

    /// Sets the timeout of a run. Defaults to 30 minutes.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the maximum number of tool calls of a run. By default only the
    /// [`Limits`](super::Limits) of all runs apply.
    ///
    /// Each attempt, each element of a loop and each call within a nested composite counts. See
    /// [what a run may use](crate::composite#what-a-run-may-use).
    #[must_use]
    pub const fn max_calls(mut self, calls: usize) -> Self {
        self.limits.max_calls = Some(calls);
        self
    }

    /// Sets the maximum total size of the tool results of a run, in bytes of their texts, data and
    /// values. By default only the [`Limits`](super::Limits) of all runs apply.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.limits.max_result_bytes = Some(bytes);
        self
    }

    /// Sets the maximum total cost of the calls of a run, as counted by a
    /// [`BudgetLayer`](crate::budget::BudgetLayer) below. Unlimited by default. Without such a
    /// layer, calls have no cost.
    #[must_use]
    pub const fn max_cost(mut self, cost: u64) -> Self {
        self.limits.max_cost = Some(cost);
        self
    }

    /// Sets the result of a run that was ended by one of these limits, or by a limit of a composite
    /// that called it. Defaults to the partial result.
    #[must_use]
    pub const fn on_limit(mut self, on_limit: OnLimit) -> Self {
        self.on_limit = on_limit;
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
        self.trace = trace;
        self
    }

    /// Sets whether a string that begins with `$` must be a reference and its value must exist.
    /// Defaults to `true`.
    ///
    /// If `false`, an unknown reference is a literal string and a missing value is omitted, as if
    /// each reference ended in `?`. Templates are not affected.
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
