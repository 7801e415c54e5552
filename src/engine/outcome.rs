//! The outcomes of steps.

use std::{borrow::Cow, time::Duration};

use rmcp::model::ErrorData;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{record::Record, serde_defaults::is_default};
use crate::{message::ToolResult, spans::End};

/// The outcome of a step: its status, data, error and timing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// The tool result of the step. Stored only while it can become the result of the run, and
    /// otherwise `None`. With [`RunOutput::Outcomes`](super::plan::RunOutput::Outcomes), all
    /// results are stored, including error results (`isError`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) result: Option<ToolResult>,
    /// The data of the step that expressions can read, such as its output. Data that no later
    /// expression reads is dropped. `None` if no data is stored.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) record: Option<Box<Record>>,
    /// Boxed because most steps have no error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) error: Option<Box<StepError>>,
    /// The index of the call that a switch made, in the list of all call sites of the plan. `None`
    /// for other steps, and if no case of the switch matched.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) site: Option<usize>,
    /// The number of tool calls of the step, including retries. For a question, how often it was
    /// asked. Zero if the step was skipped.
    pub(crate) attempts: u32,
    /// Milliseconds between the start of the run and the start of the step. Zero if the step was
    /// skipped.
    pub(crate) started_ms: u64,
    pub(crate) duration_ms: u64,
}

/// The final status of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Completed,
    Failed,
    /// The step took too long, for example because its tool did not reply.
    TimedOut,
    /// The step never started, for example because its condition was false or because the run had
    /// already ended.
    Skipped,
    /// The run stopped the step while it was running, for example because another step failed.
    Cancelled,
}

/// The reason why a step did not complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepError {
    pub(crate) kind: ErrorKind,
    /// The error message, which clients may see.
    pub(crate) message: String,
    /// The code of a JSON-RPC error, such as -32602. `None` for all other errors.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) code: Option<i32>,
    /// Structured data about the error: the `data` member of a JSON-RPC error, or data from the
    /// error result of a tool. `None` if there is no such data.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) data: Option<Value>,
    /// If `true`, a limit of the run, such as `max_calls`, has rejected the step and ended the run.
    /// The run then returns a partial result instead of failing with this error.
    #[serde(skip_serializing_if = "is_default", default)]
    pub(crate) ends_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorKind {
    /// The tool returned an error result (`isError`).
    Tool,
    Protocol,
    /// The service that provides the tool failed, for example because it is overloaded.
    Service,
    /// The tool panicked.
    Panic,
    /// The tool or the user did not reply in time.
    Timeout,
    /// A limit, such as the maximum number of tool calls.
    Limit,
    /// An expression in the definition of the composite failed, for example because it reads a
    /// value that does not exist.
    Definition,
    /// The user declined the step's question.
    Declined,
    /// The user dismissed the step's question, or could not be asked.
    Dismissed,
    /// The process that ran the step stopped. It is unknown whether the tool was called.
    Lost,
}

// === impl Outcome ===

impl Outcome {
    pub(crate) fn end(&self) -> End {
        let error = self.error.as_ref().filter(|_| self.status != Status::Cancelled);
        let code = error.and_then(|error| error.code);
        let error = error.map(|error| match (error.kind, code) {
            (ErrorKind::Tool, _) => "tool_error".into(),
            (_, Some(code)) => End::of_code(code),
            (kind, None) => kind.name().into(),
        });
        End { status: self.status.name(), error, code }
    }

    pub(crate) const fn is_success(&self) -> bool {
        matches!(self.status, Status::Completed)
    }

    /// Returns `true` if the step failed or timed out. Skipped and cancelled steps return `false`.
    pub(crate) const fn has_failed(&self) -> bool {
        matches!(self.status, Status::Failed | Status::TimedOut)
    }

    pub(super) fn skipped() -> Self {
        let zero = Duration::ZERO;
        Self { attempts: 0, ..Self::ended(zero, zero, Status::Skipped, None) }
    }

    /// Returns `true` if a limit of the run has rejected the step and ended the run.
    pub(crate) fn is_refused(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.ends_run)
    }
}

// === impl Status ===

impl Status {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }
}

// === impl StepError ===

impl StepError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None, data: None, ends_run: false }
    }

    pub(crate) fn protocol(error: ErrorData) -> Self {
        Self {
            kind: ErrorKind::Protocol,
            message: error.message.into_owned(),
            code: Some(error.code.0),
            data: error.data,
            ends_run: false,
        }
    }

    pub(super) fn definition(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Definition, message)
    }

    /// Creates the error of a branch that panicked. It does not contain the panic message, which
    /// may contain data that clients must not see.
    pub(super) fn panicked() -> Self {
        Self::new(ErrorKind::Panic, "the tool panicked")
    }

    /// Prepends `place` to the message, as in `condition: the message`. `place` is the part of the
    /// definition that caused the error.
    pub(super) fn at(self, place: &str) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    pub(super) const fn status(&self) -> Status {
        match self.kind {
            ErrorKind::Timeout => Status::TimedOut,
            _ => Status::Failed,
        }
    }

    /// Returns the error without the `data` of an error result (`isError`) of a tool. Returns all
    /// other errors unchanged.
    pub(crate) fn without_details(&self) -> Cow<'_, Self> {
        match self.kind {
            ErrorKind::Tool if self.data.is_some() => {
                let message = self.message.clone();
                Cow::Owned(Self { code: self.code, ..Self::new(self.kind, message) })
            }
            _ => Cow::Borrowed(self),
        }
    }

    /// Converts the error to a JSON object with the members `kind`, `message` and, if present,
    /// `code` and `data`. Expressions read this object, and reports contain it.
    pub(crate) fn to_value(&self) -> Value {
        let mut value = Map::with_capacity(2);
        value.insert("kind".to_owned(), self.kind.name().into());
        value.insert("message".to_owned(), self.message.as_str().into());
        if let Some(code) = self.code {
            value.insert("code".to_owned(), code.into());
        }
        if let Some(data) = &self.data {
            value.insert("data".to_owned(), data.clone());
        }
        Value::Object(value)
    }
}

// === impl ErrorKind ===

impl ErrorKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Protocol => "protocol",
            Self::Service => "service",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
            Self::Limit => "limit",
            Self::Definition => "definition",
            Self::Declined => "declined",
            Self::Dismissed => "dismissed",
            Self::Lost => "lost",
        }
    }
}
