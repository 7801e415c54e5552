//! What a run would do, as far as that is known before it.

use std::{borrow::Cow, sync::Arc, time::Duration};

use rmcp::model::JsonObject;
use serde::Serialize;
use serde_json::Value;

use super::{
    outcome::StepError,
    plan::{Action, Arguments, CallSite, Elicitation, ForEach, OnRefusal, Plan, Step, StepSet},
};
use crate::expr::{Condition, Data, EvaluationError, Expression, Root, Use};

/// Steps of a run that may start at the same time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Wave {
    /// In the order of the plan.
    pub steps: Vec<StepPreview>,
}

/// One step of a run that has not begun.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepPreview {
    /// Its id, or that of a target.
    pub id: String,
    /// What decides whether it runs; it does if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<ConditionPreview>,
    /// What it goes through, if it is a loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_each: Option<LoopPreview>,
    /// What it asks a person, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<ElicitationPreview>,
    /// The calls that it may make: of a switch one of them, of a loop one for
    /// each element.
    pub calls: Vec<CallPreview>,
}

/// A condition of a step, or of a case of a switch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ConditionPreview {
    /// How it is written.
    pub written: String,
    /// Whether it holds, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// Why it would make the step fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CallPreview {
    /// In which case it is made, if the step is a switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<ConditionPreview>,
    /// The tool.
    pub tool: String,
    /// As far as they are known; what is not stands as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// Why they would make the step fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a loop goes through.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoopPreview {
    /// How its collection is written.
    pub collection: String,
    /// The elements, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<Value>>,
    /// Why it would make the step fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How many elements are called for at the same time.
    pub max_parallel: usize,
    /// How many elements there may be.
    pub max_iterations: usize,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ElicitationPreview {
    /// What the person is asked; as it is written, if it is not known.
    pub message: Value,
    /// The schema of the form to fill in; its texts stand as they are written, if
    /// they are not known.
    pub schema: Value,
    /// Why it would make the step fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What becomes of the run if the person says no.
    pub on_decline: OnRefusal,
    /// What becomes of the run if the person does not answer.
    pub on_cancel: OnRefusal,
    /// How long the person may take, in milliseconds.
    pub timeout_ms: u64,
}

/// Makes arguments fit for the tool of a site, or tells why they cannot be.
pub(crate) type Prepare<'p> = dyn Fn(usize, JsonObject) -> Result<JsonObject, StepError> + 'p;

/// What a preview is made from.
struct Before<'p> {
    data: Arc<dyn Data>,
    prepare: &'p Prepare<'p>,
}

// === impl Plan ===

impl Plan {
    /// What a run with this input would do: its steps in waves, each step in the
    /// one after the last of those that it needs. What is wholly known of arguments
    /// is prepared as it would be in a run.
    pub(crate) fn preview(&self, input: &Value, prepare: &Prepare<'_>) -> Vec<Wave> {
        let before = Before { data: Arc::new(input.clone()), prepare };
        let mut waiting = StepSet::first(self.steps().len());
        let mut finished = StepSet::default();
        let mut waves = Vec::new();
        loop {
            let ready = waiting.filter(|&step| self.needs(step).is_subset(finished));
            let wave: StepSet =
                if self.concurrency == 1 { ready.take(1).collect() } else { ready.collect() };
            // No step is left, since no plan has a circle.
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
        let data = &before.data;
        let call = |when, site: &CallSite| site.preview(when, before);
        let mut asks = None;
        let (for_each, calls) = match &self.action {
            Action::Call(site) => (None, vec![call(None, site)]),
            Action::ForEach(each) => (Some(each.preview(data)), vec![call(None, &each.call)]),
            Action::Switch(switch) => {
                let cases = switch.cases.iter();
                let cases = cases.map(|(when, site)| call(Some(condition(when, data)), site));
                let default = switch.default.as_ref().map(|site| call(None, site));
                (None, cases.chain(default).collect())
            }
            Action::Elicit(ask) => {
                asks = Some(ask.preview(self.timeout, data));
                (None, Vec::new())
            }
        };
        StepPreview {
            id: self.id.to_string(),
            condition: self.condition.as_ref().map(|when| condition(when, data)),
            for_each,
            asks,
            calls,
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

    /// The arguments, as far as they are known.
    fn arguments_before(&self, before: &Before<'_>) -> Result<Option<Value>, String> {
        let data = &before.data;
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
    fn preview(&self, data: &Arc<dyn Data>) -> LoopPreview {
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
    fn preview(&self, timeout: Duration, data: &Arc<dyn Data>) -> ElicitationPreview {
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

fn condition(condition: &Condition, data: &Arc<dyn Data>) -> ConditionPreview {
    let (holds, error) = known(&condition.uses(), || condition.evaluate(data));
    ConditionPreview { written: condition.to_string(), holds, error }
}

/// What something gives, if all that it refers to is known.
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

/// Before a run there is only its input.
fn is_known(root: Root) -> bool {
    root == Root::Input
}
