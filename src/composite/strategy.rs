//! The strategies by which a composite calls tools.

use std::time::Duration;

use super::{
    output::Output,
    step::{Retry, Step, ToolCall},
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

/// A fan-out: calls every target, and combines the content of all targets in one result.
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
    pub(crate) order: BranchOrder,
    pub(crate) report: bool,
    pub(crate) labels: Labels,
    pub(crate) max_parallel: usize,
}

/// A race: calls all targets at once. The first successful result is the result of the composite,
/// and the other calls are cancelled.
#[derive(Clone, Debug, PartialEq)]
pub struct Race {
    pub(crate) targets: Vec<Target>,
    pub(crate) max_parallel: usize,
}

/// A fallback: calls targets one after another until one succeeds. The first successful result is
/// the result of the composite.
#[derive(Clone, Debug, PartialEq)]
pub struct Fallback {
    pub(crate) targets: Vec<Target>,
}

/// A pipeline: runs steps one after another.
///
/// Each step can refer to the outputs of earlier steps, and to the output of the previous step as
/// `$prev`. If an [`output`](Self::output) block is set, it builds the result of the composite.
/// Otherwise, the result is that of the last step.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    pub(crate) steps: Vec<Step>,
    pub(crate) output: Option<Output>,
    pub(crate) report: bool,
}

/// A workflow: runs each step as soon as the steps that it refers to and [depends
/// on](Step::depends_on) have finished.
///
/// If an [`output`](Self::output) block is set, it builds the result of the composite. Otherwise,
/// the result is that of the completed step that is declared last.
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
    pub(crate) retry: Option<Retry>,
}

/// The rule by which a fan-out succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Success {
    /// The fan-out succeeds if every target that is not optional succeeds.
    #[default]
    All,
    /// The fan-out succeeds if at least one target succeeds.
    Any,
    /// The fan-out succeeds if at least this many targets succeed, including optional ones.
    Quorum(usize),
}

/// The order of the content of the branches in the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BranchOrder {
    /// The order in which the targets are declared. Equal outcomes of the targets result in equal
    /// content.
    #[default]
    Declared,
    /// The order in which the targets finished.
    Completion,
}

/// The place where the content of a fan-out names its branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Labels {
    /// Each branch is named in the `_meta` of its content blocks and, if it has completed, in a
    /// text before its content.
    #[default]
    Text,
    /// Each branch is named only in the `_meta` of its content blocks, which models do not see.
    Meta,
}

// === impl Strategy ===

impl Strategy {
    /// Returns the name of the strategy in configuration files.
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
    /// By default, all targets must succeed.
    pub fn new<T: Into<Target>>(targets: impl IntoIterator<Item = T>) -> Self {
        Self {
            targets: all(targets),
            success: Success::default(),
            order: BranchOrder::default(),
            report: true,
            labels: Labels::default(),
            max_parallel: MAX_TARGETS,
        }
    }

    /// Calls the targets one after another. Calls all of them, even if some fail.
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

    /// Sets the order of the content. Defaults to [`BranchOrder::Declared`].
    #[must_use]
    pub const fn order(mut self, order: BranchOrder) -> Self {
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
    /// Creates a fallback that calls the targets in this order, each with the arguments of the
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

    /// Sets the output block. The object that it builds becomes the result of the composite,
    /// instead of the result of the last step.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = Some(output);
        self
    }

    /// Sets whether a failed run reports the outputs of its completed steps, up to 64 KiB in total.
    /// Defaults to `true`. If `false`, a failed run only names its completed steps.
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

    /// Sets the output block. The object that it builds becomes the result of the composite,
    /// instead of the result of the last step.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = Some(output);
        self
    }

    /// Sets whether a failed run reports the outputs of its completed steps, up to 64 KiB in total.
    /// Defaults to `true`. If `false`, a failed run only names its completed steps.
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
    /// If a composite of the layer has the same name as a tool behind the layer, the target is the
    /// composite.
    pub fn new(tool: impl Into<String>) -> Self {
        Self::of(ToolCall::new(tool))
    }

    /// Like [`new`](Self::new), but always calls the tool behind the layer, even if a composite has
    /// the same name.
    pub fn behind(tool: impl Into<String>) -> Self {
        Self::of(ToolCall::behind(tool))
    }

    /// Creates a target from a tool call, which must not parse its result as JSON.
    pub(crate) const fn of(call: ToolCall) -> Self {
        Self { id: None, call, timeout: TARGET_TIMEOUT, optional: false, retry: None }
    }

    /// Sets the name of the branch in the result. Defaults to the name of the tool.
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

    /// Sets the retries of the call. By default, a failed call is not retried.
    ///
    /// The [timeout](Self::timeout) applies to each attempt. If all attempts fail, the branch fails
    /// with the last error. [`Retry::then`] is an error, because a fan-out succeeds without a
    /// target if the target is [optional](Self::optional).
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Sets whether a fan-out can succeed without this target. Defaults to `false`.
    ///
    /// In a race or fallback, this setting is an error, because only one of the targets needs to
    /// succeed anyway.
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
    BranchOrder {
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
