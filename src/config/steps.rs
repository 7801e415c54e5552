//! The steps of `[[composite_tools]]`.

use rmcp::model::JsonObject;
use serde::Deserialize;
use serde_json::Value;

use super::{duration::Duration, read::Reader};
use crate::composite::{
    Case, OnError, OnRefusal, Otherwise, Retry, Segment, Step, StepKind, Then, ToolCall,
};

/// One step of a pipeline or workflow.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["id"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct StepTable {
    /// What names it in references and in the trace.
    id: Option<String>,
    /// What it does; it calls a tool, if not set.
    #[serde(rename = "type")]
    kind: Option<KindName>,
    /// The tool: as clients see it, or `backend/tool`, or another composite.
    tool: Option<String>,
    /// What it is called with, such as `{ q = "$input.query" }`; nothing, if not set.
    arguments: Option<Value>,
    /// The steps that must have finished before, besides those it refers to.
    depends_on: Option<Vec<String>>,
    /// It is skipped unless this holds, such as `steps.scan.output.count > 3`.
    condition: Option<String>,
    /// How long each attempt may take; 5 minutes, if not set.
    timeout: Option<Duration>,
    /// What becomes of the run if it fails; it fails too, if not set.
    #[cfg_attr(test, schemars(with = "Option<OnErrorForm>"))]
    on_error: Option<OnErrorTable>,
    /// Its output if it is skipped or has failed.
    default_results: Option<Value>,
    /// How the text of a result that is only text is read.
    parse: Option<ParseName>,
    /// What a loop goes through: an array, or a text that refers to one.
    collection: Option<Value>,
    /// What an element of the loop is called in `arguments`; `item`, if not set.
    item_var: Option<String>,
    /// How many elements are called for at the same time; 10, if not set.
    #[cfg_attr(test, schemars(range(min = 1, max = 50)))]
    max_parallel: Option<usize>,
    /// How many elements there may be; 100, if not set.
    #[cfg_attr(test, schemars(range(min = 1, max = 1000)))]
    max_iterations: Option<usize>,
    /// The tools to choose from; the first whose `when` holds is called.
    cases: Option<Vec<CaseTable>>,
    /// The tool if no case applies, or `"skip"`.
    #[cfg_attr(test, schemars(with = "Option<OtherwiseForm>"))]
    default: Option<OtherwiseTable>,
    /// What the person behind the client is asked, such as `Deploy {{ input.release }}?`.
    message: Option<String>,
    /// The schema of the form that the person fills in; only yes and no, if not set.
    schema: Option<JsonObject>,
    /// What becomes of the run if the person says no; it fails, if not set.
    #[cfg_attr(test, schemars(with = "Option<OnRefusalForm>"))]
    on_decline: Option<OnRefusalTable>,
    /// What becomes of the run if the person does not answer; it fails, if not set.
    #[cfg_attr(test, schemars(with = "Option<OnRefusalForm>"))]
    on_cancel: Option<OnRefusalTable>,
}

/// What a step does.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum KindName {
    /// It calls a tool.
    Tool,
    /// It calls a tool for each element of a collection.
    ForEach,
    /// It calls one of several tools.
    Switch,
    /// It asks the person behind the client.
    Elicitation,
}

/// How a text is read.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum ParseName {
    /// As JSON, which becomes the output.
    Json,
}

/// What becomes of the run if a step fails.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OnErrorTable", extend("required" = ["action"])))]
#[serde(default, deny_unknown_fields, rename = "WordOrTable")]
struct OnErrorTable {
    #[cfg_attr(test, schemars(skip))]
    word: Option<ActionName>,
    /// What is done.
    action: Option<ActionName>,
    /// How often the step is tried again; 3 times, if not set.
    #[cfg_attr(test, schemars(range(min = 1, max = 10)))]
    retry_count: Option<u32>,
    /// How long to wait at most before the first time; 1 second, if not set.
    delay: Option<Duration>,
    /// How long to wait at most before any; 60 seconds, if not set.
    max_delay: Option<Duration>,
    /// What is done if it still fails; the run fails, if not set.
    then: Option<ThenName>,
}

/// What is done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum ActionName {
    /// The run fails.
    Abort,
    /// The run goes on.
    Continue,
    /// The step is tried again.
    Retry,
}

/// What is done about a step that still fails.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum ThenName {
    /// The run fails.
    Abort,
    /// The run goes on.
    Continue,
}

/// What becomes of the run if a person does not say yes.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OnRefusalTable", extend("required" = ["action"])))]
#[serde(default, deny_unknown_fields, rename = "WordOrTable")]
struct OnRefusalTable {
    #[cfg_attr(test, schemars(skip))]
    word: Option<RefusalName>,
    /// What is done.
    action: Option<RefusalName>,
}

/// What is done if a person does not say yes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum RefusalName {
    /// The run fails.
    Abort,
    /// The run goes on.
    Continue,
    /// No other step starts, and the run ends when those that run have finished.
    SkipRemaining,
}

/// One case of a switch.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["when", "tool"])))]
#[serde(default, deny_unknown_fields)]
struct CaseTable {
    /// It applies if this holds, such as `input.kind == "bug"`.
    when: Option<String>,
    /// The tool: as clients see it, or `backend/tool`, or another composite.
    tool: Option<String>,
    /// What it is called with; nothing, if not set.
    arguments: Option<Value>,
}

/// What a switch does if no case applies.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OtherwiseTable", extend("required" = ["tool"])))]
#[serde(default, deny_unknown_fields, rename = "WordOrTable")]
struct OtherwiseTable {
    #[cfg_attr(test, schemars(skip))]
    word: Option<SkipName>,
    /// The tool: as clients see it, or `backend/tool`, or another composite.
    tool: Option<String>,
    /// What it is called with; nothing, if not set.
    arguments: Option<Value>,
}

/// What is done if no case applies.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum SkipName {
    /// Nothing.
    Skip,
}

/// How [`OnErrorTable`] is written.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is of use")]
enum OnErrorForm {
    Word(ActionName),
    Table(OnErrorTable),
}

/// How [`OnRefusalTable`] is written.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is of use")]
enum OnRefusalForm {
    Word(RefusalName),
    Table(OnRefusalTable),
}

/// How [`OtherwiseTable`] is written.
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
            // Which keys have a meaning, and which are missing, depends on the type.
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

    /// What the step does, as far as its keys tell, if its type cannot be read.
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
                // A short maximum alone bounds the first delay too.
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
        // One that nothing else is wrong with, since it is reported.
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
