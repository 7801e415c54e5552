//! The steps of pipelines and workflows.

use std::time::Duration;

use serde_json::Value;

#[cfg(feature = "config")]
use super::Segment;
use crate::engine::plan::OnRefusal;

/// Default number of retries of a step.
const RETRIES: u32 = 3;
/// Default upper bound of the first retry delay.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Default upper bound of every retry delay.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Default timeout of one attempt of a step.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A step of a pipeline or workflow.
///
/// Like a [`CompositeTool`](super::CompositeTool) it is only data; errors in it are reported when a
/// layer is built.
///
/// # Examples
///
/// ```
/// use mcp_composite::composite::{CompositeLayer, CompositeTool, OnError, Retry, Step};
/// use serde_json::json;
///
/// let research = CompositeTool::workflow(
///     "research",
///     "Research a topic",
///     [
///         Step::new("search", "web_search")
///             .arguments(json!({ "query": "$input.topic" }))
///             .on_error(OnError::Retry(Retry::times(2))),
///         Step::for_each("read", "$steps.search.output.hits", "read_page")
///             .arguments(json!({ "url": "$item.url" }))
///             .on_error(OnError::Continue),
///         Step::new("summarise", "summarise_text")
///             .arguments(json!({ "text": "{{ steps.read.output.iterations | tojson }}" })),
///     ],
/// );
///
/// assert!(CompositeLayer::new([research]).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub(crate) id: String,
    pub(crate) kind: StepKind,
    pub(crate) call: Option<ToolCall>,
    pub(crate) depends_on: Option<Vec<String>>,
    pub(crate) condition: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) default_results: Option<Value>,
    pub(crate) parse_json: bool,
    pub(crate) collection: Option<Value>,
    pub(crate) item_var: Option<String>,
    pub(crate) max_parallel: Option<usize>,
    pub(crate) max_iterations: Option<usize>,
    pub(crate) cases: Option<Vec<Case>>,
    pub(crate) default: Option<Otherwise>,
    pub(crate) message: Option<String>,
    pub(crate) schema: Option<Value>,
    pub(crate) on_decline: Option<OnRefusal>,
    pub(crate) on_cancel: Option<OnRefusal>,
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// Calls a tool.
    #[default]
    Tool,
    /// Calls a tool for each element of a collection.
    ForEach,
    /// Calls the tool of the first case whose condition is true.
    Switch,
    /// Asks the user of the client.
    Elicitation,
}

/// A tool and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub(crate) tool: String,
    /// Whether composites of that name are ignored.
    pub(crate) behind: bool,
    pub(crate) arguments: Option<Value>,
}

/// A case of a [`Step::switch`].
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub(crate) when: String,
    pub(crate) call: ToolCall,
}

/// Behavior of a [`Step::switch`] if no case applies.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Otherwise {
    /// Skips the step.
    Skip,
    /// Calls this tool.
    Call(ToolCall),
}

/// Behavior of a run when one of its steps fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// Fails the run and cancels the steps that still run.
    #[default]
    Abort,
    /// Continues the run, including the steps that depend on this one.
    Continue,
    /// Retries the step first.
    Retry(Retry),
}

/// The retries of a step.
///
/// Each attempt is preceded by a random delay of at most an upper bound, which doubles each time up
/// to a maximum ([full jitter]). Results with `isError` count as failures. If all attempts fail,
/// the last error is reported.
///
/// [full jitter]: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub(crate) count: u32,
    pub(crate) delay: Duration,
    pub(crate) max_delay: Duration,
    pub(crate) then: Then,
}

/// Behavior of a run when a step has failed and its retries are exhausted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Then {
    /// Fails the run.
    #[default]
    Abort,
    /// Continues the run.
    Continue,
}

// === impl Step ===

impl Step {
    pub(crate) fn of(kind: StepKind, id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            kind,
            call: None,
            depends_on: None,
            condition: None,
            timeout: None,
            on_error: None,
            default_results: None,
            parse_json: false,
            collection: None,
            item_var: None,
            max_parallel: None,
            max_iterations: None,
            cases: None,
            default: None,
            message: None,
            schema: None,
            on_decline: None,
            on_cancel: None,
        }
    }

    /// Iterates over the tools that the step may call, with their paths in the definition.
    #[cfg(feature = "config")]
    pub(crate) fn calls_mut(&mut self) -> impl Iterator<Item = (Vec<Segment>, &mut ToolCall)> {
        let call = self.call.as_mut().filter(|_| self.kind.calls_one());
        let cases = self.cases.iter_mut().flatten().enumerate();
        let default = match &mut self.default {
            Some(Otherwise::Call(call)) => Some(call),
            Some(Otherwise::Skip) | None => None,
        };
        call.map(|call| (Vec::new(), call))
            .into_iter()
            .chain(cases.map(|(place, case)| (vec!["cases".into(), place.into()], &mut case.call)))
            .chain(default.map(|call| (vec!["default".into()], call)))
    }

    /// Creates a step that calls `tool` once, without arguments unless they are set.
    ///
    /// The id names the step in references and in the trace: 1 to 64 letters, digits, `_` and `-`.
    pub fn new(id: impl Into<String>, tool: impl Into<ToolCall>) -> Self {
        Self { call: Some(tool.into()), ..Self::of(StepKind::Tool, id) }
    }

    /// Creates a step that calls `tool` for each element of `collection`: an array, a reference or
    /// template that gives one, or a string that is a JSON array.
    ///
    /// In the [`arguments`](Self::arguments), `$item` is the element and `$index` its index from
    /// zero. The output is an object with `iterations`, in the order of the collection, each an
    /// object with `index`, `item`, `status` and `output` or `error`; and with the numbers `count`,
    /// `completed` and `failed`.
    ///
    /// [`on_error`](Self::on_error) and [`timeout`](Self::timeout) apply to each element. With
    /// [`OnError::Continue`] the step completes even if elements fail; otherwise the first failure
    /// cancels the other elements.
    pub fn for_each(
        id: impl Into<String>,
        collection: impl Into<Value>,
        tool: impl Into<ToolCall>,
    ) -> Self {
        Self {
            collection: Some(collection.into()),
            call: Some(tool.into()),
            ..Self::of(StepKind::ForEach, id)
        }
    }

    /// Creates a step that calls the tool of the first case that applies, or else follows
    /// `default`.
    pub fn switch(
        id: impl Into<String>,
        cases: impl IntoIterator<Item = Case>,
        default: Otherwise,
    ) -> Self {
        Self {
            cases: Some(cases.into_iter().collect()),
            default: Some(default),
            ..Self::of(StepKind::Switch, id)
        }
    }

    /// Creates a step that asks the user of the client and waits for the answer.
    ///
    /// The `message` can be a [reference or template](crate::expr). The `schema` is that of the
    /// form to fill in: an object whose properties are strings, numbers, integers, booleans and
    /// choices, as MCP allows there. Without properties the user can only accept or decline. Titles
    /// and descriptions can be references and templates too. Forms must not ask for passwords or
    /// other secrets.
    ///
    /// The output is an object with the `action`, `accept`, `decline`, `cancel` or `timeout`, and
    /// after `accept` the `content`, which fits the schema.
    ///
    /// [`timeout`](Self::timeout) limits the time to answer, which does not count toward the time
    /// of the run. With [`OnError::Retry`] the question is repeated if an answer does not fit the
    /// schema; delays have no meaning there.
    ///
    /// # Examples
    ///
    /// ```
    /// use mcp_composite::composite::{CompositeLayer, CompositeTool, OnRefusal, Step};
    /// use serde_json::json;
    ///
    /// let form = json!({
    ///     "properties": { "environment": { "type": "string", "enum": ["staging", "production"] } },
    ///     "required": ["environment"],
    /// });
    /// let deploy = CompositeTool::workflow(
    ///     "deploy",
    ///     "Deploys a release, if somebody agrees",
    ///     [
    ///         Step::elicitation("ask", "Deploy {{ input.release }}?", form)
    ///             .on_decline(OnRefusal::SkipRemaining),
    ///         Step::new("go", "deploy_release")
    ///             .arguments(json!({ "to": "$steps.ask.output.content.environment" })),
    ///     ],
    /// );
    ///
    /// assert!(CompositeLayer::new([deploy]).is_ok());
    /// ```
    pub fn elicitation(id: impl Into<String>, message: impl Into<String>, schema: Value) -> Self {
        Self {
            message: Some(message.into()),
            schema: Some(schema),
            ..Self::of(StepKind::Elicitation, id)
        }
    }

    /// Sets the arguments of the call, an object in which strings can be [references and
    /// templates](crate::expr).
    #[must_use]
    pub fn arguments(mut self, arguments: Value) -> Self {
        let call = self.call.take().unwrap_or_else(|| ToolCall::new(String::new()));
        self.call = Some(call.arguments(arguments));
        self
    }

    /// Sets the steps that must finish before this one, in addition to those that it refers to. Has
    /// no meaning in a pipeline.
    #[must_use]
    pub fn depends_on<I: Into<String>>(mut self, steps: impl IntoIterator<Item = I>) -> Self {
        self.depends_on = Some(steps.into_iter().map(Into::into).collect());
        self
    }

    /// Skips the step unless the condition is true: a reference, a template or an expression such
    /// as `steps.scan.output.count > 3` that gives a boolean or the text `true` or `false`. Any
    /// other value fails the step.
    #[must_use]
    pub fn condition(mut self, condition: impl Into<String>) -> Self {
        self.condition = Some(condition.into());
        self
    }

    /// Sets the timeout of each attempt, or the time to answer a question. Defaults to 5 minutes.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the behavior of the run if the step fails. Defaults to failing the run.
    #[must_use]
    pub const fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = Some(on_error);
        self
    }

    /// Sets the output of the step if it is skipped or fails.
    ///
    /// Required if another step refers to the output of a step that can be skipped or fail.
    #[must_use]
    pub fn default_results(mut self, output: Value) -> Self {
        self.default_results = Some(output);
        self
    }

    /// Parses the text of a result without other content as JSON; the parsed value is the output.
    #[must_use]
    pub const fn parse_json(mut self) -> Self {
        self.parse_json = true;
        self
    }

    /// Sets the name of `$item` in a loop.
    #[must_use]
    pub fn item_var(mut self, name: impl Into<String>) -> Self {
        self.item_var = Some(name.into());
        self
    }

    /// Sets the maximum number of elements of a loop that run at the same time. Defaults to 10, at
    /// most 50.
    #[must_use]
    pub const fn max_parallel(mut self, max_parallel: usize) -> Self {
        self.max_parallel = Some(max_parallel);
        self
    }

    /// Sets the maximum number of elements of a loop. Defaults to 100, at most 1000. With more
    /// elements the step fails before any call.
    #[must_use]
    pub const fn max_iterations(mut self, max_iterations: usize) -> Self {
        self.max_iterations = Some(max_iterations);
        self
    }

    /// Sets the behavior of the run if the user declines a question. Defaults to failing the run.
    #[must_use]
    pub const fn on_decline(mut self, on_decline: OnRefusal) -> Self {
        self.on_decline = Some(on_decline);
        self
    }

    /// Sets the behavior of the run if the user dismisses a question or does not answer in time.
    /// Defaults to failing the run.
    #[must_use]
    pub const fn on_cancel(mut self, on_cancel: OnRefusal) -> Self {
        self.on_cancel = Some(on_cancel);
        self
    }
}

// === impl StepKind ===

impl StepKind {
    /// Returns the name of the kind in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::ForEach => "for_each",
            Self::Switch => "switch",
            Self::Elicitation => "elicitation",
        }
    }

    /// Returns `true` if the step has a single tool of its own to call.
    pub(crate) const fn calls_one(self) -> bool {
        matches!(self, Self::Tool | Self::ForEach)
    }
}

// === impl ToolCall ===

impl ToolCall {
    /// Creates a call of `tool` without arguments.
    ///
    /// A composite of the layer takes precedence over a tool behind it with the same name.
    pub fn new(tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), behind: false, arguments: None }
    }

    /// Like [`new`](Self::new), but `tool` is a tool behind the layer even if a composite wraps it
    /// under the same name.
    pub fn behind(tool: impl Into<String>) -> Self {
        Self { behind: true, ..Self::new(tool) }
    }

    /// Sets the arguments, an object in which strings can be
    /// [references and templates](crate::expr).
    #[must_use]
    pub fn arguments(mut self, arguments: Value) -> Self {
        self.arguments = Some(arguments);
        self
    }
}

impl From<&str> for ToolCall {
    fn from(tool: &str) -> Self {
        Self::new(tool)
    }
}

impl From<String> for ToolCall {
    fn from(tool: String) -> Self {
        Self::new(tool)
    }
}

// === impl Case ===

impl Case {
    /// Creates a case that applies if `when` is true, which is written like a
    /// [condition](Step::condition).
    pub fn new(when: impl Into<String>, call: impl Into<ToolCall>) -> Self {
        Self { when: when.into(), call: call.into() }
    }
}

// === impl Retry ===

impl Retry {
    /// Retries up to `count` times, at most 10.
    ///
    /// The first delay is at most 1 second, every delay at most 60 seconds.
    #[must_use]
    pub const fn times(count: u32) -> Self {
        Self { count, delay: RETRY_DELAY, max_delay: MAX_RETRY_DELAY, then: Then::Abort }
    }

    /// Sets the upper bound of the first delay.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the upper bound of every delay.
    #[must_use]
    pub const fn max_delay(mut self, max_delay: Duration) -> Self {
        self.max_delay = max_delay;
        self
    }

    /// Sets the behavior of the run if all attempts fail. Defaults to failing the run.
    #[must_use]
    pub const fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

/// Three retries.
impl Default for Retry {
    fn default() -> Self {
        Self::times(RETRIES)
    }
}
