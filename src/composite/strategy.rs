//! The strategies of composites. A strategy determines when a composite calls its tools.

use std::time::Duration;

use super::{
    output::Output,
    step::{Retry, Step},
    tool_call::ToolCall,
};
use crate::named::named;

/// The maximum number of targets in a fan-out, race or fallback.
pub(crate) const MAX_TARGETS: usize = 64;
/// The default maximum number of workflow steps that run at the same time.
pub(crate) const WORKFLOW_PARALLEL: usize = 10;
/// The default timeout of a target.
pub(crate) const TARGET_TIMEOUT: Duration = Duration::from_secs(60);

/// The strategy of a composite tool, which determines when the composite calls its tools and which
/// results it returns.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Strategy {
    /// Calls every target, at the same time or one after another.
    FanOut(FanOut),
    /// Calls all targets at the same time, until one of them succeeds.
    Race(Race),
    /// Calls targets one after another, until one of them succeeds.
    Fallback(Fallback),
    /// Runs steps one after another.
    Pipeline(Pipeline),
    /// Runs each step as soon as the steps that it depends on have finished.
    Workflow(Workflow),
}

/// A fan-out calls every target, and combines the content of their results in a single result.
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

/// A race calls all targets at the same time. The first successful result becomes the result of the
/// composite, and the other calls are cancelled.
#[derive(Clone, Debug, PartialEq)]
pub struct Race {
    pub(crate) targets: Vec<Target>,
    pub(crate) max_parallel: usize,
}

/// A fallback calls its targets one after another until one of them succeeds. The result of this
/// target becomes the result of the composite.
#[derive(Clone, Debug, PartialEq)]
pub struct Fallback {
    pub(crate) targets: Vec<Target>,
}

/// A pipeline runs its steps one after another. Each step can refer to the outputs of all earlier
/// steps. For example, `$prev` refers to the output of the previous step. The result of the last
/// step becomes the result of the composite, unless an [`output`](Self::output) block is set.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    pub(crate) steps: Vec<Step>,
    pub(crate) output: Option<Output>,
    pub(crate) report: bool,
}

/// A workflow runs its steps in parallel where possible. A step starts when all steps that it needs
/// have finished: the steps whose outputs it uses, and those on which it
/// [depends](Step::depends_on).
///
/// The result of a workflow is the result of the last completed step, in the order of declaration.
/// If an [`output`](Self::output) block is set, the output block builds the result instead.
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    pub(crate) steps: Vec<Step>,
    pub(crate) output: Option<Output>,
    pub(crate) report: bool,
    pub(crate) max_parallel: usize,
}

/// A target of a fan-out, race or fallback: a tool call with its settings, for example a timeout.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub(crate) id: Option<String>,
    pub(crate) call: ToolCall,
    pub(crate) timeout: Duration,
    pub(crate) optional: bool,
    pub(crate) retry: Option<Retry>,
    pub(crate) retry_lost: bool,
    pub(crate) allow_flow: Option<String>,
}

/// The rule that determines whether a fan-out succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Success {
    /// The fan-out succeeds if all targets succeed. Optional targets may fail, but at least one
    /// target must succeed.
    #[default]
    All,
    /// The fan-out succeeds if at least one target succeeds.
    Any,
    /// The fan-out succeeds if at least this number of targets succeed, including optional targets.
    Quorum(usize),
}

/// The order in which the result of a fan-out contains the content of its targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BranchOrder {
    /// The content is ordered like the targets in the definition. Two runs in which the targets
    /// have equal outcomes return the content in the same order.
    #[default]
    Declared,
    /// The content is ordered by the times at which the targets finish.
    Completion,
}

/// Determines how the result of a fan-out shows from which target each content block comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Labels {
    /// The name of the target is in the `_meta` of each content block. In addition, a text block
    /// with this name precedes the content of each completed target, so that models can see the
    /// name.
    #[default]
    Text,
    /// The name of the target is only in the `_meta` of each content block, which models do not
    /// see.
    Meta,
}

// === impl Strategy ===

impl Strategy {
    /// Returns the name of the strategy in configuration files, such as `parallel`.
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

/// Implements `From<T>` for [`Strategy`], for each of the given types `T`.
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
    /// Creates a fan-out that calls all targets at once. By default, each target receives the
    /// arguments of the composite, and all targets must succeed.
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

    /// Calls the targets of the fan-out one after another instead of at the same time. If a target
    /// fails, the fan-out continues with the next one.
    #[must_use]
    pub const fn sequential(self) -> Self {
        self.max_parallel(1)
    }

    /// Sets the maximum number of targets that the fan-out calls at the same time. By default, all
    /// targets are called at the same time.
    #[must_use]
    pub const fn max_parallel(mut self, max_parallel: usize) -> Self {
        self.max_parallel = max_parallel;
        self
    }

    /// Sets the rule that determines whether the fan-out succeeds. By default, all targets that are
    /// not optional must succeed.
    #[must_use]
    pub const fn success(mut self, success: Success) -> Self {
        self.success = success;
        self
    }

    /// Sets the order in which the result of the fan-out contains the content of its targets.
    /// Defaults to [`BranchOrder::Declared`].
    #[must_use]
    pub const fn order(mut self, order: BranchOrder) -> Self {
        self.order = order;
        self
    }

    /// Sets whether the structured content of the fan-out's result reports the outcome of each
    /// target. Defaults to `true`.
    #[must_use]
    pub const fn report(mut self, report: bool) -> Self {
        self.report = report;
        self
    }

    /// Sets how the result of the fan-out shows from which target each content block comes.
    /// Defaults to [`Labels::Text`].
    #[must_use]
    pub const fn labels(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }
}

// === impl Race ===

impl Race {
    /// Creates a race between the given targets. By default, each target receives the arguments of
    /// the composite.
    pub fn new<T: Into<Target>>(targets: impl IntoIterator<Item = T>) -> Self {
        Self { targets: all(targets), max_parallel: MAX_TARGETS }
    }

    /// Sets the maximum number of targets that the race calls at the same time. By default, all
    /// targets are called at the same time.
    #[must_use]
    pub const fn max_parallel(mut self, max_parallel: usize) -> Self {
        self.max_parallel = max_parallel;
        self
    }
}

// === impl Fallback ===

impl Fallback {
    /// Creates a fallback that calls the targets in the given order. By default, each target
    /// receives the arguments of the composite.
    pub fn new<T: Into<Target>>(targets: impl IntoIterator<Item = T>) -> Self {
        Self { targets: all(targets) }
    }
}

// === impl Pipeline ===

impl Pipeline {
    /// Creates a pipeline that runs these steps in the given order.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), output: None, report: true }
    }

    /// Sets the output block, which describes an object that is built from the outputs of the
    /// steps. The object becomes the result of the composite, in place of the result of the last
    /// step.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = Some(output);
        self
    }

    /// Sets whether the result of a failed run contains the outputs of the completed steps, up to
    /// 64 KiB in total. Defaults to `true`. If `false`, the result contains only the names of the
    /// completed steps.
    #[must_use]
    pub const fn report(mut self, report: bool) -> Self {
        self.report = report;
        self
    }
}

// === impl Workflow ===

impl Workflow {
    /// Creates a workflow of these steps, in any order: each step starts when the steps that it
    /// needs have finished.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            output: None,
            report: true,
            max_parallel: WORKFLOW_PARALLEL,
        }
    }

    /// Sets the output block, which describes an object that is built from the outputs of the
    /// steps. The object becomes the result of the composite, in place of the result of the last
    /// step.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = Some(output);
        self
    }

    /// Sets whether the result of a failed run contains the outputs of the completed steps, up to
    /// 64 KiB in total. Defaults to `true`. If `false`, the result contains only the names of the
    /// completed steps.
    #[must_use]
    pub const fn report(mut self, report: bool) -> Self {
        self.report = report;
        self
    }

    /// Sets the maximum number of steps that the workflow runs at the same time. Defaults to 10.
    #[must_use]
    pub const fn max_parallel(mut self, max_parallel: usize) -> Self {
        self.max_parallel = max_parallel;
        self
    }
}

// === impl Target ===

impl Target {
    /// Creates a target that calls the tool `tool`. By default, the target passes the arguments of
    /// the composite to the tool.
    ///
    /// If the layer has a composite with the name `tool`, the target calls the composite. To call a
    /// tool of the inner service with the same name, use [`behind`](Self::behind).
    pub fn new(tool: impl Into<String>) -> Self {
        Self::of(ToolCall::new(tool))
    }

    /// Creates a target like [`new`](Self::new), but always calls the tool `tool` of the inner
    /// service, even if a composite has the same name.
    pub fn behind(tool: impl Into<String>) -> Self {
        Self::of(ToolCall::behind(tool))
    }

    /// Creates a target from a tool call. The call must not be configured to parse its result as
    /// JSON.
    pub(crate) const fn of(call: ToolCall) -> Self {
        let timeout = TARGET_TIMEOUT;
        Self {
            id: None,
            call,
            timeout,
            optional: false,
            retry: None,
            retry_lost: false,
            allow_flow: None,
        }
    }

    /// Sets the id under which the result of the composite reports this target. Defaults to the
    /// name of the tool.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the arguments of the target's tool call: an object whose strings can refer to the
    /// arguments of the composite, for example `$input.query`. See [`expr`](crate::expr) for the
    /// values to which strings can refer.
    #[must_use]
    pub fn arguments(mut self, arguments: serde_json::Value) -> Self {
        self.call = self.call.arguments(arguments);
        self
    }

    /// Sets the timeout of the target's tool call. Defaults to 60 seconds.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the retry policy of the target's tool call. By default, a failed call is not retried.
    ///
    /// The [timeout](Self::timeout) of the target applies to each attempt. If all attempts fail,
    /// the target fails with the last error. Setting [`Retry::then`] is an error; use
    /// [`optional`](Self::optional) instead.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Sets whether the target's tool is called again if the server stopped while the call ran, and
    /// another process continues the run. Defaults to `false`. See
    /// [`Step::retry_lost`](super::Step::retry_lost).
    #[must_use]
    pub const fn retry_lost(mut self, retry_lost: bool) -> Self {
        self.retry_lost = retry_lost;
        self
    }

    /// Sets whether a fan-out can succeed although this target fails or its tool does not exist.
    /// Defaults to `false`.
    ///
    /// In a race or fallback, setting `optional` is an error, because a race or fallback needs only
    /// one successful target anyway.
    #[must_use]
    pub const fn optional(mut self, optional: bool) -> Self {
        self.optional = optional;
        self
    }

    /// Allows this target to use data in a way that [`CompositeLayer::check_flow`] would reject
    /// because of the data's labels. An example is private data in the arguments of an egress tool,
    /// which makes its arguments visible to others. `reason` explains to readers of the definition
    /// why this is safe. See [`Step::allow_flow`](super::Step::allow_flow).
    ///
    /// [`CompositeLayer::check_flow`]: super::CompositeLayer::check_flow
    #[must_use]
    pub fn allow_flow(mut self, reason: impl Into<String>) -> Self {
        self.allow_flow = Some(reason.into());
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
