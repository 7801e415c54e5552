//! The steps of pipelines and workflows.

use std::time::Duration;

use serde_json::{Value, json};

#[cfg(feature = "config")]
use super::error::Segment;
use super::{encoding::encode_duration, repeat::Repeat, tool_call::ToolCall};
use crate::{
    engine::plan::{Finally, OnRefusal},
    named::named,
};

/// The default number of retries of a step.
const RETRIES: u32 = 3;
/// The default upper bound of the delay before the first retry of a step.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The default upper bound of the delay before any retry of a step.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// The default timeout of an attempt to execute a step.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The default maximum number of loop elements that are processed at the same time.
const LOOP_PARALLEL: usize = 10;
/// The default maximum number of elements of a loop.
const ITERATIONS: usize = 100;
/// The default name of the variable that contains the current element of a loop.
const ITEM: &str = "item";

/// A step of a [`Pipeline`](super::Pipeline) or [`Workflow`](super::Workflow). A step consists of
/// an [`Action`], for example a tool call, and of settings that do not depend on the kind of
/// action, for example a condition.
///
/// Creating a step never fails. Errors in a step are reported when a layer is built from the
/// composite that contains the step.
///
/// # Examples
///
/// ```
/// use mcp_composite::composite::{
///     CompositeLayer, CompositeTool, ForEach, OnError, Retry, Step, ToolCall,
/// };
/// use serde_json::json;
///
/// let search = ToolCall::new("web_search").arguments(json!({ "query": "$input.topic" }));
/// let read = ToolCall::new("read_page").arguments(json!({ "url": "$item.url" }));
/// let summarize = ToolCall::new("summarize_text")
///     .arguments(json!({ "text": "{{ steps.read.output.iterations | tojson }}" }));
/// let research = CompositeTool::workflow(
///     "research",
///     "Research a topic",
///     [
///         Step::new("search", search).on_error(OnError::Retry(Retry::times(2))),
///         Step::new("read", ForEach::new("$steps.search.output.hits", read))
///             .on_error(OnError::Continue),
///         Step::new("summarize", summarize),
///     ],
/// );
///
/// assert!(CompositeLayer::new([research]).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub(crate) id: String,
    pub(crate) action: Action,
    pub(crate) depends_on: Vec<String>,
    pub(crate) condition: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) on_error: OnError,
    pub(crate) default_results: Option<Value>,
    pub(crate) finally: Option<Finally>,
    pub(crate) retry_lost: bool,
    pub(crate) allow_flow: Option<String>,
}

/// The action that a step performs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Calls a tool with given arguments.
    Tool(ToolCall),
    /// Calls a tool for each element of a collection.
    ForEach(ForEach),
    /// Calls a tool until a condition holds.
    Repeat(Repeat),
    /// Calls the tool of the first case whose condition is true.
    Switch(Switch),
    /// Asks the client's user a question, with a form for the answer.
    Elicitation(Elicitation),
    /// Computes a value without calling a tool.
    Value(ComputedValue),
    /// Ends the run of the composite early, with a result of its own.
    Stop(Stop),
}

/// A loop that calls a tool for each element of a collection, such as the hits of a search.
///
/// In the arguments of the looped tool call, `$item` refers to the current element of the
/// collection, and `$index` to the index of this element, starting at zero.
///
/// The output of a loop step is an object with these members:
/// - `iterations`: an array with an object for each element, in the order of the collection. Each
///   object has the members `index`, `item` and `status`, and either `output` or `error`.
/// - `count`, `completed` and `failed`: the number of all elements, of completed elements, and of
///   failed elements
/// - `skipped` and `cancelled`: the number of skipped and of cancelled elements; missing if it is 0
/// - `first_success`: the object of the element that succeeded, if the loop ends [at the first
///   success](Self::stop_at_first_success)
///
/// The [`on_error`](Step::on_error) and [`timeout`](Step::timeout) settings of a loop step apply to
/// each element separately. With [`OnError::Continue`], the loop completes even if some elements
/// fail. Otherwise, the first element that fails cancels the other elements.
#[derive(Clone, Debug, PartialEq)]
pub struct ForEach {
    pub(crate) collection: Value,
    pub(crate) call: ToolCall,
    pub(crate) item_var: String,
    pub(crate) max_parallel: usize,
    pub(crate) max_iterations: usize,
    pub(crate) delay: Duration,
    pub(crate) first_success: bool,
}

/// A choice between several tool calls. The step evaluates the conditions of the cases in order,
/// and makes the tool call of the first [`Case`] whose condition is true.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    pub(crate) cases: Vec<Case>,
    pub(crate) default: Otherwise,
}

/// A case of a [`Switch`]: a condition, and the tool call that the step makes if the condition is
/// true.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub(crate) when: String,
    pub(crate) call: ToolCall,
}

/// Determines what a [`Switch`] step does if the conditions of all cases are false.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Otherwise {
    /// Skips the step, without calling a tool.
    Skip,
    /// Makes this tool call, if the conditions of all cases are false.
    Call(ToolCall),
}

/// A question to the client's user, with a form for the answer. MCP calls such a question an
/// *elicitation*.
///
/// The output of an elicitation step is an object. Its member `action` is `accept`, `decline`,
/// `cancel` or `timeout`. If `action` is `accept`, the member `content` contains the values that
/// the user has entered, which match the schema of the form.
///
/// The [`timeout`](Step::timeout) of an elicitation step limits the time that the user has to
/// answer. This time does not count toward the time of the run. With [`OnError::Retry`], the
/// question is repeated if an answer does not match the schema of the form. The repetition is
/// immediate, so setting a delay for these retries is an error.
///
/// # Examples
///
/// ```
/// use mcp_composite::composite::{
///     CompositeLayer, CompositeTool, Elicitation, OnRefusal, Step, ToolCall,
/// };
/// use serde_json::json;
///
/// let form = json!({
///     "properties": { "environment": { "type": "string", "enum": ["staging", "production"] } },
///     "required": ["environment"],
/// });
/// let ask = Elicitation::new("Deploy {{ input.release }}?", form)
///     .on_decline(OnRefusal::SkipRemaining);
/// let go = ToolCall::new("deploy_release")
///     .arguments(json!({ "to": "$steps.ask.output.content.environment" }));
/// let deploy = CompositeTool::workflow(
///     "deploy",
///     "Deploys a release after an approval",
///     [Step::new("ask", ask), Step::new("go", go)],
/// );
///
/// assert!(CompositeLayer::new([deploy]).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Elicitation {
    pub(crate) message: String,
    pub(crate) schema: Value,
    pub(crate) on_decline: OnRefusal,
    pub(crate) on_cancel: OnRefusal,
}

/// A value that a step computes from the input of the composite and the outputs of earlier steps,
/// without calling a tool.
///
/// The computed value is the output of the step. If several other steps need the same computed
/// value, they can refer to this output instead of repeating the expression. If the value consists
/// only of an optional reference, such as `$input.team?`, and the referenced value is missing, the
/// output is null.
///
/// The size of a computed value counts toward the [maximum total
/// size](super::CallLimits::max_result_bytes) of a run's results. A step that computes a value
/// cannot have a [timeout](Step::timeout) or [`OnError::Retry`].
///
/// # Examples
///
/// ```
/// use mcp_composite::composite::{CompositeLayer, CompositeTool, ComputedValue, Step, ToolCall};
/// use serde_json::json;
///
/// let window = ComputedValue::new(json!({ "repository": "$input.repository", "days": 7 }));
/// let within = || json!({ "window": "$steps.window" });
/// let activity = CompositeTool::workflow(
///     "activity",
///     "Lists the issues and commits of the last week",
///     [
///         Step::new("window", window),
///         Step::new("issues", ToolCall::new("list_issues").arguments(within())),
///         Step::new("commits", ToolCall::new("list_commits").arguments(within())),
///     ],
/// );
///
/// assert!(CompositeLayer::new([activity]).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ComputedValue {
    pub(crate) value: Value,
}

/// An action of a step that ends the run of the composite early, for example if a search has found
/// nothing.
///
/// When a stop step starts, the run ends immediately with the result of this step: running steps
/// are cancelled, open questions to the user are withdrawn, and the remaining steps are skipped.
/// Set a [condition](Step::condition) to end the run only in some cases. An outer composite that
/// has called this composite continues with the result.
///
/// Other steps can depend on a stop step or refer to its status, but it has no output. It cannot
/// have a [timeout](Step::timeout), [default results](Step::default_results) or [`OnError::Retry`].
///
/// # Examples
///
/// ```
/// use mcp_composite::composite::{CompositeLayer, CompositeTool, Step, Stop, ToolCall};
/// use serde_json::json;
///
/// let summarize =
///     ToolCall::new("summarize").arguments(json!({ "hits": "$steps.search.output.hits" }));
/// let research = CompositeTool::pipeline(
///     "research",
///     "Summarizes what is found about a topic",
///     [
///         Step::new("search", "web_search"),
///         Step::new("nothing", Stop::message("Nothing was found about {{ input.query }}."))
///             .condition("steps.search.output.hits | length == 0"),
///         Step::new("summarize", summarize),
///     ],
/// );
///
/// assert!(CompositeLayer::new([research]).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Stop {
    pub(crate) result: StopResult,
}

/// The result of a run that is ended by a [`Stop`] step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StopResult {
    Message { text: String, is_error: bool },
    Output(Value),
}

/// The behavior of a pipeline or workflow when one of its steps fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// Fails the run, and cancels the steps that are still running.
    #[default]
    Abort,
    /// Continues the run of the composite. Steps that depend on the failed step also run.
    Continue,
    /// Retries the failed step. If all retries fail, [`Retry::then`] determines whether the run of
    /// the composite fails or continues.
    Retry(Retry),
}

/// A policy for retrying a failed step or target of a composite, with exponential backoff.
///
/// Before each retry, the run waits for a random time. The upper bound of this delay doubles with
/// each retry, up to a maximum ([full jitter]). A tool result with `isError` counts as a failure,
/// and is retried too. Errors that would occur again, such as invalid arguments, are not retried.
/// If all attempts fail, the last error is reported.
///
/// [full jitter]: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub(crate) count: u32,
    pub(crate) delay: Duration,
    pub(crate) max_delay: Duration,
    pub(crate) then: Then,
}

/// Determines whether the run of a composite continues if a step still fails after its last retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Then {
    /// Fails the run of the composite.
    #[default]
    Abort,
    /// Continues the run with the steps that follow.
    Continue,
}

// === impl Step ===

impl Step {
    /// Creates a step with an id and an action. The action is the name of a tool, or a
    /// [`ToolCall`], a [`ForEach`], a [`Repeat`], a [`Switch`], an [`Elicitation`], a
    /// [`ComputedValue`] or a [`Stop`].
    ///
    /// References, such as `$steps.search.output`, and the trace identify the step by its id. An id
    /// consists of 1 to 64 letters, digits, `_` and `-`.
    pub fn new(id: impl Into<String>, action: impl Into<Action>) -> Self {
        Self {
            id: id.into(),
            action: action.into(),
            depends_on: Vec::new(),
            condition: None,
            timeout: None,
            on_error: OnError::default(),
            default_results: None,
            finally: None,
            retry_lost: false,
            allow_flow: None,
        }
    }

    /// Sets the ids of steps that must finish before this step of a workflow starts. Steps whose
    /// outputs this step uses need not be listed, because this step waits for them anyway.
    ///
    /// In a pipeline, setting `depends_on` is an error, because a pipeline always runs its steps in
    /// order.
    #[must_use]
    pub fn depends_on<I: Into<String>>(mut self, steps: impl IntoIterator<Item = I>) -> Self {
        self.depends_on = steps.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the condition under which the step runs. If the condition is false, the step is
    /// skipped.
    ///
    /// The condition of a step is a reference, a template or an expression, for example
    /// `steps.scan.output.count > 3`. It must evaluate to a boolean, or to the text `true` or
    /// `false`. The step fails if the condition has any other value.
    #[must_use]
    pub fn condition(mut self, condition: impl Into<String>) -> Self {
        self.condition = Some(condition.into());
        self
    }

    /// Sets the timeout of each attempt to execute the step. Defaults to 5 minutes. For an
    /// [`Elicitation`] step, the timeout limits the time in which the user can answer. For a
    /// [`Repeat`] step, a timeout that you set also limits the whole loop.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the behavior of the composite if this step fails. Defaults to [`OnError::Abort`], which
    /// fails the run.
    #[must_use]
    pub const fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Sets the default results: the output of this step if it is skipped or fails. A reference
    /// such as `$steps.search.output` then returns the default results of the step `search`.
    ///
    /// If another step or the output block refers to the output of a step that may be skipped or
    /// may fail, the step needs default results. Otherwise, the definition is rejected, unless all
    /// of the references are optional, as in `$steps.search.output?`.
    #[must_use]
    pub fn default_results(mut self, output: Value) -> Self {
        self.default_results = Some(output);
        self
    }

    /// Makes this a finally step, which runs after all other steps have ended, whatever the outcome
    /// of the run. Its [condition](Self::condition) can refer to the status of other steps, for
    /// example to undo what they have done.
    ///
    /// A finally step cannot change the outcome of the run. If it fails, the result of the run
    /// contains a text about the failure. Limits of the run, such as the maximum number of calls,
    /// do not apply to finally steps. A finally step does not run if the client cancels the call,
    /// unless [`on_cancel`](Finally::on_cancel) is set.
    ///
    /// Only finally steps can refer to a finally step. In a pipeline, the finally steps must be the
    /// last ones.
    ///
    /// # Examples
    ///
    /// ```
    /// use mcp_composite::composite::{CompositeLayer, CompositeTool, Finally, Step, ToolCall};
    /// use serde_json::json;
    ///
    /// let branch = json!({ "branch": "$steps.create.output.name" });
    /// let release = CompositeTool::workflow(
    ///     "release",
    ///     "Creates a branch, and releases it",
    ///     [
    ///         Step::new("create", "create_branch"),
    ///         Step::new("publish", ToolCall::new("publish").arguments(branch.clone())),
    ///         Step::new("undo", ToolCall::new("delete_branch").arguments(branch))
    ///             .condition("steps.create.status == 'completed' and steps.publish.status != 'completed'")
    ///             .finally(Finally::new()),
    ///     ],
    /// );
    ///
    /// assert!(CompositeLayer::new([release]).is_ok());
    /// ```
    #[must_use]
    pub const fn finally(mut self, finally: Finally) -> Self {
        self.finally = Some(finally);
        self
    }

    /// Sets whether the tool of this step is called again if the server stopped while the step ran,
    /// and another process continues the run. Defaults to `false`.
    ///
    /// The call may have had an effect before the server stopped. Therefore, only a tool whose
    /// annotations declare it as read-only or idempotent is called again by default. Otherwise, the
    /// step fails with an error of the kind `lost`, and [`on_error`](Self::on_error) applies, but
    /// without retries. With `retry_lost`, the tool is called again in any case, so that it may be
    /// called more than once.
    ///
    /// Setting `retry_lost` for a step that calls no tool is an error.
    #[must_use]
    pub const fn retry_lost(mut self, retry_lost: bool) -> Self {
        self.retry_lost = retry_lost;
        self
    }

    /// Allows this step to use data in a way that [`CompositeLayer::check_flow`] would reject
    /// because of the data's labels. An example is private data in the arguments of an egress tool,
    /// which makes its arguments visible to others. `reason` explains to readers of the definition
    /// why this is safe, and must not be blank. The output of the step keeps the labels.
    ///
    /// At run time, a [`FlowLayer`](crate::flow::FlowLayer) denies no composite because of this
    /// step.
    ///
    /// [`CompositeLayer::check_flow`]: super::CompositeLayer::check_flow
    #[must_use]
    pub fn allow_flow(mut self, reason: impl Into<String>) -> Self {
        self.allow_flow = Some(reason.into());
        self
    }
}

// === impl Action ===

impl Action {
    /// Returns the name of the action in configuration files, for example `for_each`. A step with
    /// this action has the name as its `type`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tool(_) => ToolCall::TYPE,
            Self::ForEach(_) => ForEach::TYPE,
            Self::Repeat(_) => Repeat::TYPE,
            Self::Switch(_) => Switch::TYPE,
            Self::Elicitation(_) => Elicitation::TYPE,
            Self::Value(_) => ComputedValue::TYPE,
            Self::Stop(_) => Stop::TYPE,
        }
    }

    /// Encodes all settings of the action as JSON. The encoded settings are part of the composite's
    /// fingerprint.
    ///
    /// Each type is destructured without `..`, so that a new field causes a compile error until it
    /// is encoded too.
    pub(super) fn encode(&self) -> Value {
        match self {
            Self::Tool(call) => call.encode(),
            Self::ForEach(each) => each.encode(),
            Self::Repeat(repeat) => repeat.encode(),
            Self::Switch(Switch { cases, default }) => {
                let case = |Case { when, call }: &Case| json!([when, call.encode()]);
                json!({
                    "cases": cases.iter().map(case).collect::<Value>(),
                    "default": match default {
                        Otherwise::Skip => json!("skip"),
                        Otherwise::Call(call) => call.encode(),
                    },
                })
            }
            Self::Elicitation(Elicitation { message, schema, on_decline, on_cancel }) => json!({
                "message": message,
                "schema": schema,
                "on_decline": on_decline.name(),
                "on_cancel": on_cancel.name(),
            }),
            Self::Value(ComputedValue { value }) => json!({ "value": value }),
            Self::Stop(Stop { result }) => match result {
                StopResult::Message { text, is_error } => {
                    json!({ "message": text, "is_error": is_error })
                }
                StopResult::Output(output) => json!({ "output": output }),
            },
        }
    }

    /// Returns mutable references to the tool calls that the action may make, each with its path in
    /// the definition of the step.
    #[cfg(feature = "config")]
    pub(crate) fn calls_mut(&mut self) -> Vec<(Vec<Segment>, &mut ToolCall)> {
        match self {
            Self::Tool(call)
            | Self::ForEach(ForEach { call, .. })
            | Self::Repeat(Repeat { call, .. }) => vec![(Vec::new(), call)],
            Self::Switch(switch) => switch.calls_mut().collect(),
            Self::Elicitation(_) | Self::Value(_) | Self::Stop(_) => Vec::new(),
        }
    }
}

impl<C: Into<ToolCall>> From<C> for Action {
    fn from(call: C) -> Self {
        Self::Tool(call.into())
    }
}

/// Implements `From<T>` for [`Action`], for the type `T` of each of the given variants.
macro_rules! actions {
    ($($Variant:ident($Type:ident))+) => {$(
        impl From<$Type> for Action {
            fn from(action: $Type) -> Self {
                Self::$Variant(action)
            }
        }
    )+};
}

actions! {
    ForEach(ForEach)
    Repeat(Repeat)
    Switch(Switch)
    Elicitation(Elicitation)
    Value(ComputedValue)
    Stop(Stop)
}

// === impl ForEach ===

impl ForEach {
    /// The `type` of a step in configuration files if the step is a loop.
    pub(crate) const TYPE: &'static str = "for_each";

    /// Creates a loop that makes the tool call `call` for each element of `collection`.
    ///
    /// The `collection` is an array, a string that contains a JSON array, or a reference or
    /// template that evaluates to an array, such as `$steps.search.output.hits`.
    pub fn new(collection: impl Into<Value>, call: impl Into<ToolCall>) -> Self {
        Self {
            collection: collection.into(),
            call: call.into(),
            item_var: ITEM.to_owned(),
            max_parallel: LOOP_PARALLEL,
            max_iterations: ITERATIONS,
            delay: Duration::ZERO,
            first_success: false,
        }
    }

    /// Sets the name with which references access the current element of the loop. Defaults to
    /// `item`, as in `$item`.
    #[must_use]
    pub fn item_var(mut self, name: impl Into<String>) -> Self {
        self.item_var = name.into();
        self
    }

    /// Sets the maximum number of elements that the loop processes at the same time. Defaults to
    /// 10, and must be at most 50.
    #[must_use]
    pub const fn max_parallel(mut self, max_parallel: usize) -> Self {
        self.max_parallel = max_parallel;
        self
    }

    /// Sets the maximum number of elements of the loop. If the collection has more elements, the
    /// step fails before it calls a tool. Defaults to 100, and must be at most 1000.
    #[must_use]
    pub const fn max_iterations(mut self, max_iterations: usize) -> Self {
        self.max_iterations = max_iterations;
        self
    }

    /// Sets the delay between the start of one element and the start of the next. If only one
    /// element is processed at a time, the delay begins at the end of the previous element.
    /// Defaults to none.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Ends the loop after the first element for which the tool call succeeds. Elements that are
    /// running are then cancelled, and the others are skipped. Elements that fail do not end the
    /// loop. If no element succeeds, or the collection is empty, the step fails.
    #[must_use]
    pub const fn stop_at_first_success(mut self) -> Self {
        self.first_success = true;
        self
    }

    /// Encodes all settings as JSON, for the fingerprint of the composite.
    fn encode(&self) -> Value {
        let Self { collection, call, item_var, max_parallel, max_iterations, delay, first_success } =
            self;
        let mut encoded = json!({
            "collection": collection,
            "call": call.encode(),
            "item_var": item_var,
            "max_parallel": max_parallel,
            "max_iterations": max_iterations,
        });
        // Loops without these options keep the fingerprint that they had before the options
        // existed, so that suspended runs can be resumed after an update.
        if !delay.is_zero() {
            encoded["delay"] = encode_duration(*delay);
        }
        if *first_success {
            encoded["first_success"] = true.into();
        }
        encoded
    }
}

// === impl Switch ===

impl Switch {
    /// The `type` of a step in configuration files if the step is a switch.
    pub(crate) const TYPE: &'static str = "switch";

    /// Creates a choice between several tool calls, each in a [`Case`] with a condition. `default`
    /// determines what the step does if the conditions of all cases are false.
    pub fn new(cases: impl IntoIterator<Item = Case>, default: Otherwise) -> Self {
        Self { cases: cases.into_iter().collect(), default }
    }

    /// Returns mutable references to the tool calls of the cases and of the default, each with its
    /// path in the definition of the switch.
    #[cfg(feature = "config")]
    pub(crate) fn calls_mut(&mut self) -> impl Iterator<Item = (Vec<Segment>, &mut ToolCall)> {
        let cases = self.cases.iter_mut().enumerate();
        let cases = cases.map(|(place, case)| (vec!["cases".into(), place.into()], &mut case.call));
        let default = match &mut self.default {
            Otherwise::Call(call) => Some((vec!["default".into()], call)),
            Otherwise::Skip => None,
        };
        cases.chain(default)
    }
}

// === impl Case ===

impl Case {
    /// Creates a case that makes the tool call `call` if the condition `when` is true. The
    /// condition is written like the [condition](Step::condition) of a step.
    pub fn new(when: impl Into<String>, call: impl Into<ToolCall>) -> Self {
        Self { when: when.into(), call: call.into() }
    }
}

// === impl Elicitation ===

impl Elicitation {
    /// The `type` of a step in configuration files if the step asks the user a question.
    pub(crate) const TYPE: &'static str = "elicitation";

    /// Creates a question to the user.
    ///
    /// `message` is the text of the question. The text can be a [reference or
    /// template](crate::expr), which is evaluated when the run asks the question.
    ///
    /// `schema` is the JSON Schema of the form that the user fills in. It describes an object whose
    /// properties are strings, numbers, integers, booleans and choices, because MCP allows no other
    /// properties in forms. If the form has no properties, the user can only accept or decline. A
    /// form must not ask for passwords or other secrets.
    ///
    /// Titles, descriptions, the `enum` of a choice and the `default` of a property in the form can
    /// also be [references and templates](crate::expr). The step fails if a computed choice is not
    /// a string, if there are no choices, or if a default does not fit its property.
    pub fn new(message: impl Into<String>, schema: Value) -> Self {
        Self {
            message: message.into(),
            schema,
            on_decline: OnRefusal::default(),
            on_cancel: OnRefusal::default(),
        }
    }

    /// Sets the behavior of the composite if the user declines the question. Defaults to
    /// [`OnRefusal::Abort`], which fails the run.
    #[must_use]
    pub const fn on_decline(mut self, on_decline: OnRefusal) -> Self {
        self.on_decline = on_decline;
        self
    }

    /// Sets the behavior of the composite if the user dismisses the question or does not answer it
    /// in time. Defaults to [`OnRefusal::Abort`], which fails the run.
    #[must_use]
    pub const fn on_cancel(mut self, on_cancel: OnRefusal) -> Self {
        self.on_cancel = on_cancel;
        self
    }
}

// === impl ComputedValue ===

impl ComputedValue {
    /// The `type` of a step in configuration files if the step computes a value.
    pub(crate) const TYPE: &'static str = "value";

    /// Creates a computed value from a JSON value. Strings in this value can be [references and
    /// templates](crate::expr), which are evaluated when the step runs.
    pub fn new(value: impl Into<Value>) -> Self {
        Self { value: value.into() }
    }
}

// === impl Stop ===

impl Stop {
    /// The `type` of a step in configuration files if the step ends the run.
    pub(crate) const TYPE: &'static str = "stop";

    /// Creates an action that ends the run of the composite successfully. The result of the run is
    /// a text, which can be a [reference or template](crate::expr).
    ///
    /// In a composite with an output schema, the action `Stop::message` is an error, because the
    /// results of such a composite must have structured content. Use [`output`](Self::output) or
    /// [`error`](Self::error) instead.
    pub fn message(text: impl Into<String>) -> Self {
        StopResult::Message { text: text.into(), is_error: false }.into()
    }

    /// Creates an action that ends the run of the composite with an error result (`isError`). The
    /// content of the result is a text, followed by the outputs of the completed steps. The text
    /// can be a [reference or template](crate::expr).
    pub fn error(text: impl Into<String>) -> Self {
        StopResult::Message { text: text.into(), is_error: true }.into()
    }

    /// Creates an action that ends the run of the composite successfully. The structured content of
    /// the result is `value`, a JSON value whose strings can be [references and
    /// templates](crate::expr).
    ///
    /// The `value` replaces the result of the composite, even if the composite has an [output
    /// block](super::Workflow::output). If the composite has an output schema, the value is checked
    /// against it.
    pub fn output(value: impl Into<Value>) -> Self {
        StopResult::Output(value.into()).into()
    }
}

impl From<StopResult> for Stop {
    fn from(result: StopResult) -> Self {
        Self { result }
    }
}

// === impl Retry ===

impl Retry {
    /// Creates a policy that retries a failed step or target up to `count` times. `count` must be
    /// between 1 and 10. By default, the delay before the first retry is at most 1 second, and
    /// every delay is at most 60 seconds.
    #[must_use]
    pub const fn times(count: u32) -> Self {
        Self { count, delay: RETRY_DELAY, max_delay: MAX_RETRY_DELAY, then: Then::Abort }
    }

    /// Sets the upper bound of the random delay before the first retry. Defaults to 1 second.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the upper bound of the random delay before any retry. Defaults to 60 seconds.
    #[must_use]
    pub const fn max_delay(mut self, max_delay: Duration) -> Self {
        self.max_delay = max_delay;
        self
    }

    /// Sets the behavior of the composite if all attempts of the step fail. Defaults to
    /// [`Then::Abort`], which fails the run.
    #[must_use]
    pub const fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

/// Creates a policy with three retries.
impl Default for Retry {
    fn default() -> Self {
        Self::times(RETRIES)
    }
}

named! {
    Then {
        Abort => "abort",
        Continue => "continue",
    }
}
