use std::time::Duration;

use serde_json::Value;

#[cfg(feature = "config")]
use super::Segment;
use crate::engine::plan::OnRefusal;

/// How often a step is tried again that says no number.
const RETRIES: u32 = 3;
/// How long it waits at most before the first time, unless it says otherwise.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How long it waits at most before any, unless it says otherwise.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// How long one attempt of a step may take, unless it says otherwise.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// One step of a pipeline or workflow.
///
/// Like a [`CompositeTool`](super::CompositeTool) it is only data: what is wrong
/// with it is told when a layer is built.
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

/// What a step does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// It calls a tool.
    #[default]
    Tool,
    /// It calls a tool for each element of a collection.
    ForEach,
    /// It calls the tool of the first case that applies.
    Switch,
    /// It asks the person behind the client.
    Elicitation,
}

/// A tool to call, and with what.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub(crate) tool: String,
    /// Whether no composite of that name is meant.
    pub(crate) behind: bool,
    pub(crate) arguments: Option<Value>,
}

/// One case of a [`Step::switch`].
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub(crate) when: String,
    pub(crate) call: ToolCall,
}

/// What a [`Step::switch`] does if no case applies.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Otherwise {
    /// Nothing: the step is skipped.
    Skip,
    /// It calls this tool.
    Call(ToolCall),
}

/// What becomes of a run when a step of it fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// It fails too; what still runs is cancelled.
    #[default]
    Abort,
    /// It goes on, also with the steps that wait for this one.
    Continue,
    /// The step is tried again first.
    Retry(Retry),
}

/// How often and when a step is tried again.
///
/// Before each attempt it waits for a random time of at most the delay, which
/// doubles each time up to a maximum ([full jitter]). Results that say that the
/// tool failed (`isError`) count as failures. The last error is the one that is told.
///
/// [full jitter]: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub(crate) count: u32,
    pub(crate) delay: Duration,
    pub(crate) max_delay: Duration,
    pub(crate) then: Then,
}

/// What becomes of a run when a step of it has failed for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Then {
    /// It fails too.
    #[default]
    Abort,
    /// It goes on.
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

    /// All tools that it may call, and where they stand in the definition.
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

    /// Calls `tool` once, without arguments unless they are set.
    ///
    /// The id names the step in references and in the trace: 1 to 64 letters,
    /// digits, `_` and `-`.
    pub fn new(id: impl Into<String>, tool: impl Into<ToolCall>) -> Self {
        Self { call: Some(tool.into()), ..Self::of(StepKind::Tool, id) }
    }

    /// Calls `tool` for each element of `collection`: an array, or a text that
    /// refers to one or is one as JSON.
    ///
    /// In the [`arguments`](Self::arguments), `$item` is the element and `$index`
    /// its place from zero. The output is an object with `iterations`, in the order
    /// of the collection, each an object with `index`, `item`, `status` and `output`
    /// or `error`; and with the numbers `count`, `completed` and `failed`.
    ///
    /// [`on_error`](Self::on_error) and [`timeout`](Self::timeout) hold for each
    /// element. With [`OnError::Continue`] the step completes whatever becomes of
    /// them; otherwise the first that fails cancels the others.
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

    /// Calls the tool of the first case that applies, else does what `default` says.
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

    /// Asks the person behind the client, and waits for the answer.
    ///
    /// The `message` can be a [reference or template](crate::expr). The `schema` is
    /// that of the form to fill in: an object whose properties are strings, numbers,
    /// integers, booleans and choices, as MCP allows there; without properties there
    /// is only yes and no. Its titles and descriptions can be references and
    /// templates too. Passwords and other secrets must not be asked for.
    ///
    /// The output is an object with the `action`, `accept`, `decline`, `cancel` or
    /// `timeout`, and after `accept` the `content`, which fits the schema.
    ///
    /// [`timeout`](Self::timeout) bounds how long the person may take, which does not
    /// count as time of the run. With [`OnError::Retry`] the person is asked again if
    /// an answer does not fit; without delays, which have no meaning there.
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

    /// Sets the arguments of the call, an object in which strings can be
    /// [references and templates](crate::expr).
    #[must_use]
    pub fn arguments(mut self, arguments: Value) -> Self {
        let call = self.call.take().unwrap_or_else(|| ToolCall::new(String::new()));
        self.call = Some(call.arguments(arguments));
        self
    }

    /// Sets the steps that must have finished before, besides those that it
    /// refers to. In a pipeline it has no meaning.
    #[must_use]
    pub fn depends_on<I: Into<String>>(mut self, steps: impl IntoIterator<Item = I>) -> Self {
        self.depends_on = Some(steps.into_iter().map(Into::into).collect());
        self
    }

    /// Skips the step unless this holds: a reference, a template or an expression
    /// such as `steps.scan.output.count > 3`, that gives a boolean or the text
    /// `true` or `false`. Anything else fails the step.
    #[must_use]
    pub fn condition(mut self, condition: impl Into<String>) -> Self {
        self.condition = Some(condition.into());
        self
    }

    /// Bounds each attempt, or the time to answer a question; 5 minutes by default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets what becomes of the run if the step fails; it fails too by default.
    #[must_use]
    pub const fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = Some(on_error);
        self
    }

    /// Sets the output of the step for when it is skipped or has failed.
    ///
    /// It is needed if another step refers to the output of one that can be.
    #[must_use]
    pub fn default_results(mut self, output: Value) -> Self {
        self.default_results = Some(output);
        self
    }

    /// Reads the text of a result that is only text as JSON; it is the output.
    #[must_use]
    pub const fn parse_json(mut self) -> Self {
        self.parse_json = true;
        self
    }

    /// Sets what `$item` is called in a loop.
    #[must_use]
    pub fn item_var(mut self, name: impl Into<String>) -> Self {
        self.item_var = Some(name.into());
        self
    }

    /// Bounds how many elements of a loop are called for at the same time; 10 by
    /// default, 50 at most.
    #[must_use]
    pub const fn max_parallel(mut self, max_parallel: usize) -> Self {
        self.max_parallel = Some(max_parallel);
        self
    }

    /// Bounds how many elements a loop may have; 100 by default, 1000 at most. With
    /// more it fails before any call.
    #[must_use]
    pub const fn max_iterations(mut self, max_iterations: usize) -> Self {
        self.max_iterations = Some(max_iterations);
        self
    }

    /// Sets what becomes of the run if the person says no to a question; it fails
    /// by default.
    #[must_use]
    pub const fn on_decline(mut self, on_decline: OnRefusal) -> Self {
        self.on_decline = Some(on_decline);
        self
    }

    /// Sets what becomes of the run if the person dismisses a question or does not
    /// answer in time; it fails by default.
    #[must_use]
    pub const fn on_cancel(mut self, on_cancel: OnRefusal) -> Self {
        self.on_cancel = Some(on_cancel);
        self
    }
}

// === impl StepKind ===

impl StepKind {
    /// The kind's name in a file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::ForEach => "for_each",
            Self::Switch => "switch",
            Self::Elicitation => "elicitation",
        }
    }

    /// Whether the step has a tool of its own to call.
    pub(crate) const fn calls_one(self) -> bool {
        matches!(self, Self::Tool | Self::ForEach)
    }
}

// === impl ToolCall ===

impl ToolCall {
    /// Calls `tool` without arguments.
    ///
    /// A composite of the layer goes before a tool behind it of the same name.
    pub fn new(tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), behind: false, arguments: None }
    }

    /// Like [`new`](Self::new), but `tool` is one behind the layer even if a
    /// composite wraps it under its own name.
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
    /// Calls a tool if `when` holds, which is written like a
    /// [condition](Step::condition).
    pub fn new(when: impl Into<String>, call: impl Into<ToolCall>) -> Self {
        Self { when: when.into(), call: call.into() }
    }
}

// === impl Retry ===

impl Retry {
    /// Tries again so many times, 10 at most.
    ///
    /// It waits for up to a second before the first, and never more than a minute.
    #[must_use]
    pub const fn times(count: u32) -> Self {
        Self { count, delay: RETRY_DELAY, max_delay: MAX_RETRY_DELAY, then: Then::Abort }
    }

    /// Sets how long to wait at most before the first time.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets how long to wait at most before any.
    #[must_use]
    pub const fn max_delay(mut self, max_delay: Duration) -> Self {
        self.max_delay = max_delay;
        self
    }

    /// Sets what becomes of the run if none succeeds; it fails by default.
    #[must_use]
    pub const fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

/// Three times.
impl Default for Retry {
    fn default() -> Self {
        Self::times(RETRIES)
    }
}
