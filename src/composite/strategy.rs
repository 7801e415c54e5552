//! The strategies by which a composite calls tools.

use std::time::Duration;

use super::{
    output::Output,
    step::{Step, ToolCall},
};
use crate::named::named;

/// Maximum number of targets of a fan-out.
pub(crate) const MAX_TARGETS: usize = 64;
/// The default number of steps of a workflow that run at the same time.
pub(crate) const WORKFLOW_PARALLEL: usize = 10;
/// Default timeout of a target.
pub(crate) const TARGET_TIMEOUT: Duration = Duration::from_secs(60);

/// The strategy by which a composite calls tools.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Strategy {
    /// Calls every target, at once or one after another.
    FanOut(FanOut),
    /// Calls targets at once until one succeeds.
    Race(Race),
    /// Calls targets one after another until one succeeds.
    Fallback(Fallback),
    /// Runs steps one after another.
    Pipeline(Pipeline),
    /// Runs each step as soon as the steps that it needs have finished.
    Workflow(Workflow),
}

/// A fan-out: calls every target. The result has the content of all of them.
///
/// # Examples
///
/// ```
/// use mcp_composite::composite::{CompositeLayer, CompositeTool, FanOut, Success};
///
/// let fan_out = FanOut::new(["github_search", "docs_search"]).success(Success::Any);
/// let search = CompositeTool::new("search_all", "Search everywhere", fan_out);
///
/// assert!(CompositeLayer::new([search]).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FanOut {
    pub(crate) targets: Vec<Target>,
    pub(crate) success: Success,
    pub(crate) order: Order,
    pub(crate) report: bool,
    pub(crate) labels: Labels,
    pub(crate) max_parallel: usize,
}

/// A race: calls all targets at once. The first success is the result, and the other calls are
/// cancelled.
#[derive(Clone, Debug, PartialEq)]
pub struct Race {
    pub(crate) targets: Vec<Target>,
    pub(crate) max_parallel: usize,
}

/// A fallback: calls targets one after another until one succeeds, which is the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Fallback {
    pub(crate) targets: Vec<Target>,
}

/// A pipeline: runs steps one after another.
///
/// Each step can refer to the outputs of earlier steps, and to the output of the previous step as
/// `$prev`. The result is that of the last step, or the [`output`](Self::output).
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    pub(crate) steps: Vec<Step>,
    pub(crate) output: Option<Output>,
    pub(crate) report: bool,
}

/// A workflow: runs each step as soon as the steps that it refers to and [depends
/// on](Step::depends_on) have finished.
///
/// The result is that of the last declared step that completed, or the [`output`](Self::output).
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    pub(crate) steps: Vec<Step>,
    pub(crate) output: Option<Output>,
    pub(crate) report: bool,
    pub(crate) max_parallel: usize,
}

/// A tool that a fan-out, race or fallback calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub(crate) id: Option<String>,
    pub(crate) call: ToolCall,
    pub(crate) timeout: Duration,
    pub(crate) optional: bool,
}

/// The success rule of a fan-out.
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

// === impl Strategy ===

impl Strategy {
    /// Returns the name in configuration files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::FanOut(FanOut { max_parallel: 1, .. }) => "sequential",
            Self::FanOut(_) => "parallel",
            Self::Race(_) => "race",
            Self::Fallback(_) => "fallback",
            Self::Pipeline(_) => "pipeline",
            Self::Workflow(_) => "workflow",
        }
    }
}

/// Implements `From<$Type> for Strategy` for the types of strategies.
macro_rules! strategies {
    ($($Type:ident)+) => {$(
        impl From<$Type> for Strategy {
            fn from(strategy: $Type) -> Self {
                Self::$Type(strategy)
            }
        }
    )+};
}

strategies!(FanOut Race Fallback Pipeline Workflow);

fn all<T: Into<Target>>(targets: impl IntoIterator<Item = T>) -> Vec<Target> {
    targets.into_iter().map(Into::into).collect()
}

// === impl FanOut ===

impl FanOut {
    /// Creates a fan-out that calls all targets at once, each with the arguments of the composite.
    /// All must succeed.
    pub fn new<T: Into<Target>>(targets: impl IntoIterator<Item = T>) -> Self {
        Self {
            targets: all(targets),
            success: Success::default(),
            order: Order::default(),
            report: true,
            labels: Labels::default(),
            max_parallel: MAX_TARGETS,
        }
    }

    /// Calls the targets one after another, all of them, even if some fail.
    #[must_use]
    pub const fn sequential(self) -> Self {
        self.max_parallel(1)
    }

    /// Sets the maximum number of targets that run at the same time. Defaults to all targets.
    #[must_use]
    pub const fn max_parallel(mut self, max_parallel: usize) -> Self {
        self.max_parallel = max_parallel;
        self
    }

    /// Sets the success rule. By default all targets that are not optional must succeed.
    #[must_use]
    pub const fn success(mut self, success: Success) -> Self {
        self.success = success;
        self
    }

    /// Sets the order of the content. Defaults to [`Order::Declared`].
    #[must_use]
    pub const fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets whether the structured content of the result reports the branches. Defaults to `true`.
    #[must_use]
    pub const fn report(mut self, report: bool) -> Self {
        self.report = report;
        self
    }

    /// Sets where the content names the branches. Defaults to [`Labels::Text`].
    #[must_use]
    pub const fn labels(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }
}

// === impl Race ===

impl Race {
    /// Creates a race between the targets, each called with the arguments of the composite.
    pub fn new<T: Into<Target>>(targets: impl IntoIterator<Item = T>) -> Self {
        Self { targets: all(targets), max_parallel: MAX_TARGETS }
    }

    /// Sets the maximum number of targets that run at the same time. Defaults to all targets.
    #[must_use]
    pub const fn max_parallel(mut self, max_parallel: usize) -> Self {
        self.max_parallel = max_parallel;
        self
    }
}

// === impl Fallback ===

impl Fallback {
    /// Creates a fallback through the targets in their order, each called with the arguments of the
    /// composite.
    pub fn new<T: Into<Target>>(targets: impl IntoIterator<Item = T>) -> Self {
        Self { targets: all(targets) }
    }
}

// === impl Pipeline ===

impl Pipeline {
    /// Creates a pipeline of steps.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), output: None, report: true }
    }

    /// Sets the output, which replaces the result of the last step.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = Some(output);
        self
    }

    /// Sets whether a failure reports the outputs of the completed steps, up to 64 KiB together.
    /// Defaults to `true`; otherwise a failure only names these steps.
    #[must_use]
    pub const fn report(mut self, report: bool) -> Self {
        self.report = report;
        self
    }
}

// === impl Workflow ===

impl Workflow {
    /// Creates a workflow of steps.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            output: None,
            report: true,
            max_parallel: WORKFLOW_PARALLEL,
        }
    }

    /// Sets the output, which replaces the result of the last step.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = Some(output);
        self
    }

    /// Sets whether a failure reports the outputs of the completed steps, up to 64 KiB together.
    /// Defaults to `true`; otherwise a failure only names these steps.
    #[must_use]
    pub const fn report(mut self, report: bool) -> Self {
        self.report = report;
        self
    }

    /// Sets the maximum number of steps that run at the same time. Defaults to 10.
    #[must_use]
    pub const fn max_parallel(mut self, max_parallel: usize) -> Self {
        self.max_parallel = max_parallel;
        self
    }
}

// === impl Target ===

impl Target {
    /// Creates a target that calls `tool` with the arguments of the composite.
    ///
    /// A composite of the layer takes precedence over a tool behind it with the same name.
    pub fn new(tool: impl Into<String>) -> Self {
        Self::of(ToolCall::new(tool))
    }

    /// Like [`new`](Self::new), but `tool` is a tool behind the layer even if a composite wraps it
    /// under the same name.
    pub fn behind(tool: impl Into<String>) -> Self {
        Self::of(ToolCall::behind(tool))
    }

    /// Creates a target of a call whose result is not parsed.
    pub(crate) const fn of(call: ToolCall) -> Self {
        Self { id: None, call, timeout: TARGET_TIMEOUT, optional: false }
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
        self.timeout = timeout;
        self
    }

    /// Sets whether a fan-out can succeed without this target. Defaults to `false`.
    ///
    /// An error in a race or fallback, which needs only one of its targets.
    #[must_use]
    pub const fn optional(mut self, optional: bool) -> Self {
        self.optional = optional;
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

named! {
    Order {
        Declared => "declared",
        Completion => "completion",
    }
}

named! {
    Labels {
        Text => "text",
        Meta => "meta",
    }
}
