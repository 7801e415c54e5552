//! Previews of runs: the steps and tool calls of a composite for a given input, without making
//! them.

use std::{borrow::Cow, fmt::Write, time::Duration};

use rmcp::model::JsonObject;
use serde::Serialize;
use serde_json::Value;

use super::{
    milliseconds::milliseconds,
    outcome::StepError,
    plan::{
        Arguments, CallSite, Elicitation, EndForm, Finally, LoopPlan, OnRefusal, Plan, Repeat,
        Step, StepSet,
    },
    serde_defaults::is_default,
};
use crate::expr::{Condition, Data, EvaluationError, Expression, Root, Use};

/// Steps in the [preview](crate::composite::Preview) of a composite that may run at the same time,
/// because none of them waits for another.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Wave {
    /// The steps of the wave, in the order of their definition.
    pub steps: Vec<StepPreview>,
}

/// The preview of one step or target of a composite, such as the tool calls that it would make.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepPreview {
    /// The ID of the step or target.
    pub id: String,
    /// `true` if the step is a [finally step](crate::composite::Finally), which runs after the
    /// outcome of the run is decided.
    #[serde(skip_serializing_if = "is_default")]
    pub finally: bool,
    /// `true` if the step is a finally step that also runs after the client has cancelled the call.
    #[serde(skip_serializing_if = "is_default")]
    pub on_cancel: bool,
    /// The condition of the step. `None` if the step has no condition and always runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<ConditionPreview>,
    /// The preview of a loop over a collection. `None` if the step is not such a loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_each: Option<LoopPreview>,
    /// The preview of a loop that repeats a call until a condition is true. `None` if the step is
    /// not such a loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<RepeatPreview>,
    /// The question that the step asks the user. `None` if the step asks no question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<ElicitationPreview>,
    /// The value that the step computes. Parts that are known only during a run are shown as source
    /// text, such as `$steps.scan.output`. `None` if the step computes no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The result with which the step ends the run. `None` if the step is not a stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stops: Option<StopPreview>,
    /// The error with which the step certainly fails when it computes its value or its result.
    /// `None` if the preview finds no such error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The tool calls that the step may make. A switch makes at most one of them. A loop makes its
    /// call once for each element or iteration.
    pub calls: Vec<CallPreview>,
}

/// The preview of the condition of a step or of a case of a [`Switch`](crate::composite::Switch).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ConditionPreview {
    /// The source text of the condition, such as `steps.scan.output.count > 3`.
    pub written: String,
    /// The value of the condition. `None` if it depends on values that are known only during a run,
    /// or if the evaluation fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// The error with which the evaluation of the condition certainly fails. `None` if the preview
    /// finds no such error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The preview of a tool call that a composite may make.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CallPreview {
    /// The condition of the switch case to which the call belongs. `None` for the default call of a
    /// switch and for all other calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<ConditionPreview>,
    /// The name of the called tool.
    pub tool: String,
    /// The arguments of the tool call. Parts that are known only during a run are shown as source
    /// text, such as `$steps.scan.output`. `None` if the arguments are invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The error with which the call certainly fails because of its arguments. `None` if the
    /// preview finds no such error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The preview of a loop that calls a tool for each element of a collection.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoopPreview {
    /// The source text of the loop's collection, such as `$steps.search.output.hits`.
    pub collection: String,
    /// The elements of the collection. `None` if they are known only during a run, or if the
    /// evaluation fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<Value>>,
    /// The error with which the loop certainly fails because its collection cannot be evaluated or
    /// has too many elements. `None` if the preview finds no such error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The maximum number of loop elements that run at the same time.
    pub max_parallel: usize,
    /// The maximum number of loop elements. If the collection has more elements, the step fails.
    pub max_iterations: usize,
    /// The delay before each loop element except the first, in milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub delay_ms: u64,
    /// `true` if the loop ends after the first element that succeeds.
    #[serde(skip_serializing_if = "is_default")]
    pub first_success: bool,
}

/// The preview of a loop that repeats a call until a condition is true.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RepeatPreview {
    /// The source text of the condition that ends the loop.
    pub until: String,
    /// The maximum number of iterations of the loop.
    pub max_iterations: usize,
    /// The delay before the second iteration of the loop, in milliseconds.
    pub delay_ms: u64,
    /// The factor by which the delay grows with each iteration. For example, 2.0 doubles it.
    pub backoff: f64,
    /// The maximum delay between two iterations, in milliseconds.
    pub max_delay_ms: u64,
    /// The timeout of the whole loop, in milliseconds. `None` if only the timeout of the run limits
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The preview of a question that a step asks the user.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ElicitationPreview {
    /// The text of the question. If it depends on values that are known only during a run, its
    /// source text.
    pub message: Value,
    /// The JSON Schema of the form that the user fills in. Strings that depend on values that are
    /// known only during a run are shown as source text.
    pub schema: Value,
    /// The error with which the evaluation of the question certainly fails. `None` if the preview
    /// finds no such error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The effect on the run if the user declines the question.
    pub on_decline: OnRefusal,
    /// The effect on the run if the user dismisses the question or does not answer it.
    pub on_cancel: OnRefusal,
    /// The time in which the user must answer the question, in milliseconds.
    pub timeout_ms: u64,
}

/// The preview of a [`Stop`](crate::composite::Stop), a step that ends the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StopPreview {
    /// `true` if the run ends with an error result (`isError`).
    pub is_error: bool,
    /// The text or the structured content of the result. Parts that are known only during a run are
    /// shown as source text, such as `$steps.scan.output`.
    pub result: Value,
}

/// Prepares and validates the arguments of a tool call, as a run does. Takes the index of the call
/// site and the arguments.
pub(crate) type Prepare<'p> = dyn Fn(usize, JsonObject) -> Result<JsonObject, StepError> + 'p;

/// The data that is known before a run starts.
struct Before<'p> {
    data: &'p dyn Data,
    prepare: &'p Prepare<'p>,
}

// === impl Plan ===

impl Plan {
    /// Returns the steps of a run with this input in groups, called waves. Each step belongs to the
    /// first wave after all steps for which it waits. If `concurrency` is 1, each wave has one
    /// step. If all arguments of a call are known, they are prepared and validated for its tool.
    pub(crate) fn preview(&self, input: &Value, prepare: &Prepare<'_>) -> Vec<Wave> {
        let before = Before { data: input, prepare };
        let mut waiting = StepSet::first(self.steps().len());
        let mut finished = StepSet::default();
        let mut waves = Vec::new();
        loop {
            let ready = waiting.filter(|&step| self.needs(step).is_subset(finished));
            let wave: StepSet =
                if self.concurrency == 1 { ready.take(1).collect() } else { ready.collect() };
            // A plan has no cycles, so an empty wave means that no step is left.
            if wave.is_empty() {
                return waves;
            }
            let steps = wave.map(|step| self.steps()[step].preview(&before)).collect();
            waves.push(Wave { steps });
            waiting = waiting.without(wave);
            finished = StepSet::first(self.steps().len()).without(waiting);
        }
    }
}

// === impl Step ===

impl Step {
    fn preview(&self, before: &Before<'_>) -> StepPreview {
        let data = before.data;
        let calls = self.action.calls();
        let calls = calls
            .map(|call| call.site.preview(call.when.map(|when| condition(when, data)), before));
        let each = self.action.as_loop();
        let end = self.action.as_early_end();
        let computed = self.action.as_value().or(end.map(|end| &end.result));
        let computed = computed.map(|computed| computed.preview(data, &is_known));
        let (computed, error) = match computed.transpose() {
            Ok(computed) => (computed.map(Option::unwrap_or_default), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let (value, stops) = match end {
            None => (computed, None),
            Some(end) => {
                let is_error = end.form == EndForm::Error;
                let result = computed.unwrap_or_else(|| end.result.written());
                (None, Some(StopPreview { is_error, result }))
            }
        };
        StepPreview {
            id: self.id.to_string(),
            finally: self.is_final(),
            on_cancel: self.finally.is_some_and(|finally| finally.on_cancel),
            condition: self.condition.as_ref().map(|when| condition(when, data)),
            for_each: each.and_then(|each| each.preview(data)),
            repeat: each.and_then(LoopPlan::repeat_preview),
            asks: self.action.as_elicitation().map(|ask| ask.preview(self.timeout, data)),
            value,
            stops,
            error,
            calls: calls.collect(),
        }
    }
}

// === impl StepPreview ===

impl StepPreview {
    /// Returns the preview as lines of text.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.finally {
            lines.push(Finally::note(self.on_cancel).to_owned());
        }
        if let Some(condition) = &self.condition {
            lines.push(format!("if {}", condition.text()));
        }
        if let Some(each) = &self.for_each {
            lines.push(each.line());
        }
        if let Some(repeat) = &self.repeat {
            lines.push(repeat.line());
        }
        if let Some(asks) = &self.asks {
            lines.extend(asks.lines());
        }
        lines.extend(self.value.as_ref().map(|value| format!("= {value}")));
        if let Some(StopPreview { is_error, result }) = &self.stops {
            let what = if *is_error { "fail" } else { "end" };
            lines.push(format!("{what} the run with {result}"));
        }
        lines.extend(self.error.as_deref().map(would_fail));
        for call in &self.calls {
            if let Some(when) = &call.when {
                lines.push(format!("when {}:", when.text()));
            } else if self.calls.len() > 1 {
                lines.push("else:".to_owned());
            }
            let arguments = call.arguments.as_ref().map(Value::to_string);
            let arguments = arguments.unwrap_or_default();
            lines.push(format!("{} {arguments}", call.tool).trim_end().to_owned());
            lines.extend(call.error.as_deref().map(would_fail));
        }
        lines
    }
}

fn would_fail(error: &str) -> String {
    format!("which would fail: {error}")
}

// === impl ConditionPreview ===

impl ConditionPreview {
    /// Returns the source text of the condition, with its value if it is known.
    fn text(&self) -> String {
        let Self { written, holds, error } = self;
        match (holds, error) {
            (_, Some(error)) => format!("{written} (which would fail: {error})"),
            (Some(true), None) => format!("{written} (which holds)"),
            (Some(false), None) => format!("{written} (which does not hold)"),
            (None, None) => written.clone(),
        }
    }
}

// === impl LoopPreview ===

impl LoopPreview {
    fn line(&self) -> String {
        let items = self.items.as_ref().map(|items| format!(", which are {}", items.len()));
        let error = self.error.as_ref().map(|error| format!(", but {error}"));
        let delay = Duration::from_millis(self.delay_ms);
        let delay = (!delay.is_zero()).then(|| format!(", {delay:?} apart"));
        format!(
            "for each of {}{}{}, {} at a time{}{}:",
            self.collection,
            items.unwrap_or_default(),
            error.unwrap_or_default(),
            self.max_parallel,
            delay.unwrap_or_default(),
            if self.first_success { ", until one succeeds" } else { "" },
        )
    }
}

// === impl RepeatPreview ===

impl RepeatPreview {
    fn line(&self) -> String {
        let Self { until, max_iterations, delay_ms, backoff, .. } = self;
        let mut line = format!("until {until}, {max_iterations} times at most");
        // Writing to a string does not fail.
        if *delay_ms > 0 {
            let _ = write!(line, ", {:?} apart", Duration::from_millis(*delay_ms));
        }
        if *backoff > 1.0 {
            let max_delay = Duration::from_millis(self.max_delay_ms);
            let _ = write!(line, ", then {backoff} times as long up to {max_delay:?}");
        }
        if let Some(timeout) = self.timeout_ms {
            let _ = write!(line, ", within {:?}", Duration::from_millis(timeout));
        }
        line + ":"
    }
}

// === impl ElicitationPreview ===

impl ElicitationPreview {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("ask {}", self.message)];
        lines.extend(self.error.as_deref().map(would_fail));
        lines.push(format!("to fill in {}", self.schema));
        let (declined, cancelled) = (self.on_decline.name(), self.on_cancel.name());
        lines.push(format!("if declined {declined}, if cancelled {cancelled}"));
        lines
    }
}

// === impl CallSite ===

impl CallSite {
    fn preview(&self, when: Option<ConditionPreview>, before: &Before<'_>) -> CallPreview {
        let (arguments, error) = match self.arguments_before(before) {
            Ok(arguments) => (arguments, None),
            Err(error) => (None, Some(error)),
        };
        CallPreview { when, tool: self.tool.to_string(), arguments, error }
    }

    /// Returns the arguments of the call. Parts that are known only during a run are shown as
    /// source text, such as `$steps.scan.output`.
    fn arguments_before(&self, before: &Before<'_>) -> Result<Option<Value>, String> {
        let data = before.data;
        let (arguments, is_known) = match &self.arguments {
            Arguments::Input => (data.get(Root::Input).map(Cow::into_owned), true),
            Arguments::Mapped(expression) => {
                let arguments = expression.preview(data, &is_known);
                let uses = expression.uses();
                let is_known = uses.iter().all(|used| is_known(used.root));
                (arguments.map_err(|error| error.to_string())?, is_known)
            }
        };
        match arguments {
            Some(Value::Object(arguments)) if is_known => {
                let prepared = (before.prepare)(self.site, arguments);
                prepared.map(|arguments| Some(arguments.into())).map_err(|error| error.message)
            }
            other => Ok(other),
        }
    }
}

// === impl LoopPlan ===

impl LoopPlan {
    fn preview(&self, data: &dyn Data) -> Option<LoopPreview> {
        let collection = self.as_collection()?;
        let (items, error) = known(&collection.uses(), || collection.evaluate(data));
        let too_many = items.as_ref().and_then(|items| self.reject(items.len()));
        Some(LoopPreview {
            collection: collection.to_string(),
            items,
            error: error.or(too_many),
            max_parallel: self.max_parallel,
            max_iterations: self.max_iterations,
            delay_ms: milliseconds(self.delay),
            first_success: self.ends_at_success(),
        })
    }

    fn repeat_preview(&self) -> Option<RepeatPreview> {
        let Repeat { until, backoff, max_delay, timeout } = self.as_repeat()?;
        Some(RepeatPreview {
            until: until.to_string(),
            max_iterations: self.max_iterations,
            delay_ms: milliseconds(self.delay),
            backoff: *backoff,
            max_delay_ms: milliseconds(*max_delay),
            timeout_ms: timeout.map(milliseconds),
        })
    }
}

// === impl Elicitation ===

impl Elicitation {
    fn preview(&self, timeout: Duration, data: &dyn Data) -> ElicitationPreview {
        let mut error = None;
        let mut known = |expression: &Expression| match expression.preview(data, &is_known) {
            Ok(value) => value.unwrap_or_default(),
            Err(failed) => {
                error.get_or_insert_with(|| failed.to_string());
                expression.written()
            }
        };
        let (message, schema) = (known(&self.message), known(&self.form));
        ElicitationPreview {
            message,
            schema,
            error,
            on_decline: self.on_decline,
            on_cancel: self.on_cancel,
            timeout_ms: milliseconds(timeout),
        }
    }
}

fn condition(condition: &Condition, data: &dyn Data) -> ConditionPreview {
    let (holds, error) = known(&condition.uses(), || condition.evaluate(data));
    ConditionPreview { written: condition.to_string(), holds, error }
}

/// Evaluates an expression. Returns the value, or the error message if the evaluation fails.
/// Returns neither if the expression reads a value that is known only during a run.
fn known<T>(
    uses: &[Use<'_>],
    evaluate: impl FnOnce() -> Result<T, EvaluationError>,
) -> (Option<T>, Option<String>) {
    if !uses.iter().all(|used| is_known(used.root)) {
        return (None, None);
    }
    match evaluate() {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error.to_string())),
    }
}

/// Returns `true` if the value is known before a run. Only the input is.
fn is_known(root: Root) -> bool {
    root == Root::Input
}
