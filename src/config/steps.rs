//! The steps of `[[composite_tools]]`.

use rmcp::model::JsonObject;
use serde::Deserialize;
use serde_json::Value;

use super::{duration::Duration, read::Reader};
use crate::composite::{
    Case, OnError, OnRefusal, Otherwise, Retry, Segment, Step, StepKind, Then, ToolCall,
};

/// A step of a pipeline or workflow.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["id"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct StepTable {
    /// Name of the step in references and in the trace.
    id: Option<String>,
    /// Type of the step. Defaults to `tool`.
    #[serde(rename = "type")]
    kind: Option<KindName>,
    /// The tool: a name as clients see it, `backend/tool`, or another composite.
    tool: Option<String>,
    /// Arguments of the tool, such as `{ q = "$input.query" }`. Defaults to none.
    arguments: Option<Value>,
    /// Steps that must finish first, besides those it refers to.
    depends_on: Option<Vec<String>>,
    /// Skips the step unless the condition is true, such as `steps.scan.output.count > 3`.
    condition: Option<String>,
    /// Timeout of each attempt. Defaults to 5 minutes.
    timeout: Option<Duration>,
    /// Behavior if the step fails. Defaults to aborting the run.
    #[cfg_attr(test, schemars(with = "Option<OnErrorForm>"))]
    on_error: Option<OnErrorTable>,
    /// Output of the step if it is skipped or fails.
    default_results: Option<Value>,
    /// How to parse a result that consists of text only.
    parse: Option<ParseName>,
    /// The array that a loop iterates over, or a reference to one.
    collection: Option<Value>,
    /// Name of the loop variable in `arguments`. Defaults to `item`.
    item_var: Option<String>,
    /// Maximum number of concurrent iterations. Defaults to 10.
    #[cfg_attr(test, schemars(range(min = 1, max = 50)))]
    max_parallel: Option<usize>,
    /// Maximum number of iterations. Defaults to 100.
    #[cfg_attr(test, schemars(range(min = 1, max = 1000)))]
    max_iterations: Option<usize>,
    /// Cases of a switch. The first case whose `when` is true is called.
    cases: Option<Vec<CaseTable>>,
    /// The tool to call if no case applies, or `"skip"`.
    #[cfg_attr(test, schemars(with = "Option<OtherwiseForm>"))]
    default: Option<OtherwiseTable>,
    /// The question to the user, such as `Deploy {{ input.release }}?`.
    message: Option<String>,
    /// JSON Schema of the form that the user fills in. Defaults to a confirmation without fields.
    schema: Option<JsonObject>,
    /// Behavior if the user declines. Defaults to aborting the run.
    #[cfg_attr(test, schemars(with = "Option<OnRefusalForm>"))]
    on_decline: Option<OnRefusalTable>,
    /// Behavior if the user does not answer. Defaults to aborting the run.
    #[cfg_attr(test, schemars(with = "Option<OnRefusalForm>"))]
    on_cancel: Option<OnRefusalTable>,
}

/// The type of a step.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum KindName {
    /// Calls a tool.
    Tool,
    /// Calls a tool for each element of a collection.
    ForEach,
    /// Calls the first of several tools whose condition is true.
    Switch,
    /// Asks the user of the client.
    Elicitation,
}

/// How to parse a text.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum ParseName {
    /// Parses the text as JSON, which becomes the output.
    Json,
}

/// Behavior if a step fails.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OnErrorTable", extend("required" = ["action"])))]
#[serde(default, deny_unknown_fields, rename = "WordOrTable")]
struct OnErrorTable {
    #[cfg_attr(test, schemars(skip))]
    word: Option<ActionName>,
    /// The action to take.
    action: Option<ActionName>,
    /// Maximum number of retries. Defaults to 3.
    #[cfg_attr(test, schemars(range(min = 1, max = 10)))]
    retry_count: Option<u32>,
    /// Upper bound of the first retry delay. Defaults to 1 second.
    delay: Option<Duration>,
    /// Upper bound of all retry delays. Defaults to 60 seconds.
    max_delay: Option<Duration>,
    /// The action to take if all retries fail. Defaults to aborting the run.
    then: Option<ThenName>,
}

/// The action to take if a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum ActionName {
    /// Abort the run.
    Abort,
    /// Continue the run.
    Continue,
    /// Retry the step.
    Retry,
}

/// The action to take if all retries fail.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum ThenName {
    /// Abort the run.
    Abort,
    /// Continue the run.
    Continue,
}

/// Behavior if the user does not accept.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OnRefusalTable", extend("required" = ["action"])))]
#[serde(default, deny_unknown_fields, rename = "WordOrTable")]
struct OnRefusalTable {
    #[cfg_attr(test, schemars(skip))]
    word: Option<RefusalName>,
    /// The action to take.
    action: Option<RefusalName>,
}

/// The action to take if the user does not accept.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum RefusalName {
    /// Abort the run.
    Abort,
    /// Continue the run.
    Continue,
    /// Start no other step, and end the run when the running steps have finished.
    SkipRemaining,
}

/// A case of a switch.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["when", "tool"])))]
#[serde(default, deny_unknown_fields)]
struct CaseTable {
    /// Condition of the case, such as `input.kind == "bug"`.
    when: Option<String>,
    /// The tool: a name as clients see it, `backend/tool`, or another composite.
    tool: Option<String>,
    /// Arguments of the tool. Defaults to none.
    arguments: Option<Value>,
}

/// Behavior of a switch if no case applies.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OtherwiseTable", extend("required" = ["tool"])))]
#[serde(default, deny_unknown_fields, rename = "WordOrTable")]
struct OtherwiseTable {
    #[cfg_attr(test, schemars(skip))]
    word: Option<SkipName>,
    /// The tool: a name as clients see it, `backend/tool`, or another composite.
    tool: Option<String>,
    /// Arguments of the tool. Defaults to none.
    arguments: Option<Value>,
}

/// The action to take if no case applies.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum SkipName {
    /// Call no tool.
    Skip,
}

/// The accepted forms of [`OnErrorTable`].
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is of use")]
enum OnErrorForm {
    Word(ActionName),
    Table(OnErrorTable),
}

/// The accepted forms of [`OnRefusalTable`].
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is of use")]
enum OnRefusalForm {
    Word(RefusalName),
    Table(OnRefusalTable),
}

/// The accepted forms of [`OtherwiseTable`].
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is of use")]
enum OtherwiseForm {
    Word(SkipName),
    Table(OtherwiseTable),
}

// === impl StepTable ===

impl StepTable {
    pub(super) fn into_step(self, path: &[Segment], reader: &mut Reader<'_, '_>) -> Step {
        let mistaken = reader.has_fault_in(&[path, &["type".into()]].concat());
        if mistaken {
            // The valid and required keys depend on the type.
            reader.mute(path);
        }
        let probable = self.probable_kind();
        let id = reader.required(self.id, "id", path);
        let kind = match self.kind {
            None if mistaken => probable,
            None | Some(KindName::Tool) => StepKind::Tool,
            Some(KindName::ForEach) => StepKind::ForEach,
            Some(KindName::Switch) => StepKind::Switch,
            Some(KindName::Elicitation) => StepKind::Elicitation,
        };
        let mut step = Step::of(kind, id);
        let tool = match self.tool {
            None if !kind.calls_one() => None,
            Some(tool) => Some(tool),
            None => Some(reader.required(None, "tool", path)),
        };
        step.call =
            tool.map(|tool| ToolCall { arguments: self.arguments.clone(), ..ToolCall::new(tool) });
        if step.call.is_none() && self.arguments.is_some() {
            step = step.arguments(self.arguments.unwrap_or_default());
        }
        step.depends_on = self.depends_on;
        step.condition = self.condition;
        step.timeout = self.timeout.map(|Duration(timeout)| timeout);
        let on_error = [path, &["on_error".into()]].concat();
        step.on_error = self.on_error.map(|table| table.into_on_error(kind, &on_error, reader));
        step.default_results = self.default_results;
        step.parse_json = matches!(self.parse, Some(ParseName::Json));
        step.collection = self.collection;
        step.item_var = self.item_var;
        step.max_parallel = self.max_parallel;
        step.max_iterations = self.max_iterations;
        step.cases = self.cases.map(|cases| {
            let cases = cases.into_iter().enumerate();
            cases
                .map(|(place, case)| {
                    let path = [path, &["cases".into(), place.into()]].concat();
                    case.into_case(&path, reader)
                })
                .collect()
        });
        let default = [path, &["default".into()]].concat();
        step.default = self.default.map(|table| table.into_otherwise(&default, reader));
        step.message = match (kind, self.message) {
            (StepKind::Elicitation, message) => Some(reader.required(message, "message", path)),
            (_, message) => message,
        };
        step.schema = self.schema.map(Value::Object);
        let mut on_refusal = |key: &str, table: Option<OnRefusalTable>| {
            table.map(|table| table.into_on_refusal(&[path, &[key.into()]].concat(), reader))
        };
        step.on_decline = on_refusal("on_decline", self.on_decline);
        step.on_cancel = on_refusal("on_cancel", self.on_cancel);
        step
    }

    /// Guesses the type of the step from its keys, if its type cannot be read.
    const fn probable_kind(&self) -> StepKind {
        if self.cases.is_some() || self.default.is_some() {
            StepKind::Switch
        } else if self.message.is_some()
            || self.schema.is_some()
            || self.on_decline.is_some()
            || self.on_cancel.is_some()
        {
            StepKind::Elicitation
        } else if self.collection.is_some()
            || self.item_var.is_some()
            || self.max_iterations.is_some()
        {
            StepKind::ForEach
        } else {
            StepKind::Tool
        }
    }
}

// === impl OnErrorTable ===

impl OnErrorTable {
    fn into_on_error(
        mut self,
        kind: StepKind,
        path: &[Segment],
        reader: &mut Reader<'_, '_>,
    ) -> OnError {
        let Some(action) = self.word.or(self.action) else {
            if !reader.has_fault_in(path) {
                reader.report(path, "missing key `action`".to_owned());
            }
            return OnError::Abort;
        };
        let given = [
            ("retry_count", self.retry_count.is_some()),
            ("delay", self.delay.is_some()),
            ("max_delay", self.max_delay.is_some()),
            ("then", self.then.is_some()),
        ];
        let name = match action {
            ActionName::Retry => {
                if kind == StepKind::Elicitation {
                    let delays =
                        [("delay", self.delay.take()), ("max_delay", self.max_delay.take())];
                    for (key, _) in delays.iter().filter(|(_, delay)| delay.is_some()) {
                        let with = kind.name();
                        let message = format!("`{key}` has no meaning with `type = \"{with}\"`");
                        reader.report(&[path, &[(*key).into()]].concat(), message);
                    }
                }
                let mut retry = Retry::default();
                retry.count = self.retry_count.unwrap_or(retry.count);
                retry.max_delay = self.max_delay.map_or(retry.max_delay, |delay| delay.0);
                // A short `max_delay` without `delay` also bounds the first delay.
                retry.delay = match self.delay {
                    Some(Duration(delay)) => delay,
                    None => retry.delay.min(retry.max_delay),
                };
                retry.then = match self.then {
                    None | Some(ThenName::Abort) => Then::Abort,
                    Some(ThenName::Continue) => Then::Continue,
                };
                return OnError::Retry(retry);
            }
            ActionName::Abort => "abort",
            ActionName::Continue => "continue",
        };
        for (key, _) in given.into_iter().filter(|(_, given)| *given) {
            let message = format!("`{key}` has no meaning with `action = \"{name}\"`");
            reader.report(&[path, &[key.into()]].concat(), message);
        }
        if action == ActionName::Abort { OnError::Abort } else { OnError::Continue }
    }
}

// === impl OnRefusalTable ===

impl OnRefusalTable {
    fn into_on_refusal(self, path: &[Segment], reader: &mut Reader<'_, '_>) -> OnRefusal {
        match self.word.or(self.action) {
            Some(RefusalName::Abort) => OnRefusal::Abort,
            Some(RefusalName::Continue) => OnRefusal::Continue,
            Some(RefusalName::SkipRemaining) => OnRefusal::SkipRemaining,
            None => {
                if !reader.has_fault_in(path) {
                    reader.report(path, "missing key `action`".to_owned());
                }
                OnRefusal::Abort
            }
        }
    }
}

// === impl CaseTable ===

impl CaseTable {
    fn into_case(self, path: &[Segment], reader: &mut Reader<'_, '_>) -> Case {
        // A placeholder that causes no other mistake, since this one is reported.
        let when = match self.when {
            Some(when) => when,
            None => {
                reader.report(&[path, &["when".into()]].concat(), "missing key `when`".to_owned());
                "true".to_owned()
            }
        };
        let tool = reader.required(self.tool, "tool", path);
        Case { when, call: ToolCall { arguments: self.arguments, ..ToolCall::new(tool) } }
    }
}

// === impl OtherwiseTable ===

impl OtherwiseTable {
    fn into_otherwise(self, path: &[Segment], reader: &mut Reader<'_, '_>) -> Otherwise {
        if let Some(SkipName::Skip) = self.word {
            return Otherwise::Skip;
        }
        let tool = reader.required(self.tool, "tool", path);
        Otherwise::Call(ToolCall { arguments: self.arguments, ..ToolCall::new(tool) })
    }
}
