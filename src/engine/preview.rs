//! A preview of a run: its steps and calls, as far as they are known before it.

use std::{borrow::Cow, time::Duration};

use rmcp::model::JsonObject;
use serde::Serialize;
use serde_json::Value;

use super::{
    outcome::StepError,
    plan::{Arguments, CallSite, Elicitation, ForEach, OnRefusal, Plan, Step, StepSet},
};
use crate::expr::{Condition, Data, EvaluationError, Expression, Root, Use};

/// Steps of a run that may start at the same time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Wave {
    /// The steps, in the order of the plan.
    pub steps: Vec<StepPreview>,
}

/// One step of a run that has not begun.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepPreview {
    /// The id of the step or target.
    pub id: String,
    /// The condition of the step; `None` if it always runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<ConditionPreview>,
    /// The collection, if the step is a loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_each: Option<LoopPreview>,
    /// The question to the user, if the step asks one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<ElicitationPreview>,
    /// The calls that the step may make: one of them for a switch, one per element for a loop.
    pub calls: Vec<CallPreview>,
}

/// A condition of a step, or of a case of a switch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ConditionPreview {
    /// The source text of the condition.
    pub written: String,
    /// Whether the condition holds, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// The error that would fail the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CallPreview {
    /// The case in which the call is made, if the step is a switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<ConditionPreview>,
    /// The tool.
    pub tool: String,
    /// The arguments, as far as they are known; unknown values are shown as their source text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The error that would fail the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The collection and limits of a loop.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoopPreview {
    /// The source text of the collection.
    pub collection: String,
    /// The elements, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<Value>>,
    /// The error that would fail the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The maximum number of elements that are processed at the same time.
    pub max_parallel: usize,
    /// The maximum number of elements.
    pub max_iterations: usize,
}

/// A question to the user.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ElicitationPreview {
    /// The question; its source text if it is not known.
    pub message: Value,
    /// The schema of the form to fill in; unknown texts are shown as their source text.
    pub schema: Value,
    /// The error that would fail the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The outcome of the run if the user declines.
    pub on_decline: OnRefusal,
    /// The outcome of the run if the user does not answer.
    pub on_cancel: OnRefusal,
    /// The time that the user has to answer, in milliseconds.
    pub timeout_ms: u64,
}

/// Prepares the arguments for the tool of a site, or returns the reason why they are invalid.
pub(crate) type Prepare<'p> = dyn Fn(usize, JsonObject) -> Result<JsonObject, StepError> + 'p;

/// The data that a preview is built from.
struct Before<'p> {
    data: &'p dyn Data,
    prepare: &'p Prepare<'p>,
}

// === impl Plan ===

impl Plan {
    /// Returns the steps of a run with this input in waves, each step in the wave after the last of
    /// those that it needs. Arguments that are fully known are prepared as in a run.
    pub(crate) fn preview(&self, input: &Value, prepare: &Prepare<'_>) -> Vec<Wave> {
        let before = Before { data: input, prepare };
        let mut waiting = StepSet::first(self.steps().len());
        let mut finished = StepSet::default();
        let mut waves = Vec::new();
        loop {
            let ready = waiting.filter(|&step| self.needs(step).is_subset(finished));
            let wave: StepSet =
                if self.concurrency == 1 { ready.take(1).collect() } else { ready.collect() };
            // No step is left, since a plan has no cycles.
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
        StepPreview {
            id: self.id.to_string(),
            condition: self.condition.as_ref().map(|when| condition(when, data)),
            for_each: self.action.as_loop().map(|each| each.preview(data)),
            asks: self.action.as_elicitation().map(|ask| ask.preview(self.timeout, data)),
            calls: calls.collect(),
        }
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

    /// Returns the arguments, as far as they are known.
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

// === impl ForEach ===

impl ForEach {
    fn preview(&self, data: &dyn Data) -> LoopPreview {
        let evaluate = || self.collection.evaluate(data);
        let (items, error) = known(&self.collection.uses(), evaluate);
        let too_many = items.as_ref().and_then(|items| self.reject(items.len()));
        LoopPreview {
            collection: self.collection.to_string(),
            items,
            error: error.or(too_many),
            max_parallel: self.max_parallel,
            max_iterations: self.max_iterations,
        }
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
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

fn condition(condition: &Condition, data: &dyn Data) -> ConditionPreview {
    let (holds, error) = known(&condition.uses(), || condition.evaluate(data));
    ConditionPreview { written: condition.to_string(), holds, error }
}

/// Evaluates an expression if everything that it refers to is known.
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

/// Only the input is known before a run.
fn is_known(root: Root) -> bool {
    root == Root::Input
}
