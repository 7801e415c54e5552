//! The outcomes of steps.

use std::borrow::Cow;

use rmcp::model::ErrorData;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{record::Record, serde_defaults::is_false};
use crate::{message::ToolResult, spans::End};

/// The outcome of a step: its status, its data, its error and its timing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// The tool result of the step. It is stored only as long as it may become the answer of the
    /// run, and is otherwise `None`. If the answer consists of the outcomes of all steps
    /// ([`RunOutput::Outcomes`](super::plan::RunOutput::Outcomes)), every result is stored,
    /// including error results (`isError`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) result: Option<ToolResult>,
    /// The data of the step that expressions can read, such as its output. Each field is dropped
    /// when no later expression can read it. `None` if no data is stored.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) record: Option<Box<Record>>,
    /// The error of the step. `None` if the step has no error. Boxed because a run stores an
    /// outcome for each step, and most steps have no error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) error: Option<Box<StepError>>,
    /// The index of the tool call that a switch has chosen, in the plan's list of call sites.
    /// `None` if the step is not a switch or chose no call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) site: Option<usize>,
    /// The number of attempts of the step: its tool calls, including retries, or the number of
    /// times its question was asked. Zero if the step was skipped.
    pub(crate) attempts: u32,
    /// The time at which the step started, in milliseconds after the start of the run. Zero if the
    /// step never started.
    pub(crate) started_ms: u64,
    /// The duration of the step in milliseconds.
    pub(crate) duration_ms: u64,
}

/// The final status of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// The step succeeded.
    Completed,
    /// The step failed.
    Failed,
    /// The step did not end in time, for example because its tool did not reply.
    TimedOut,
    /// The step never started: its condition was false, its switch chose no case, or the run had
    /// already ended.
    Skipped,
    /// The step was stopped before it ended, for example because the run failed at another step.
    Cancelled,
}

/// The reason why a step did not complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepError {
    pub(crate) kind: ErrorKind,
    /// The error message. It may be shown to clients.
    pub(crate) message: String,
    /// The error code, if the tool replied with a JSON-RPC error. Otherwise `None`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) code: Option<i32>,
    /// Further data about the error: the `data` member of a JSON-RPC error, or details from the
    /// error result of a tool. `None` if no such data is stored.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) data: Option<Value>,
    /// If `true`, the step was rejected by a limit that ended the run. The run then returns a
    /// partial result, and this error does not fail the run.
    #[serde(skip_serializing_if = "is_false", default)]
    pub(crate) ends_run: bool,
}

/// The kinds of step errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorKind {
    /// The tool returned an error result (`isError`).
    Tool,
    /// The tool replied with a JSON-RPC error.
    Protocol,
    /// The service that provides the tool failed, for example because it is overloaded.
    Service,
    /// The tool panicked.
    Panic,
    /// The tool or the user did not reply in time.
    Timeout,
    /// A limit was reached, for example the maximum number of tool calls.
    Limit,
    /// An expression in the definition cannot be evaluated, for example because it refers to a
    /// value that does not exist.
    Definition,
    /// The user declined.
    Declined,
    /// The user dismissed the question of the step, or the user could not be asked.
    Dismissed,
    /// The process that ran the step stopped, so that the outcome of the step is unknown.
    Lost,
}

// === impl Outcome ===

impl Outcome {
    /// Returns the status and the error of the step for spans and metrics.
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

    /// Returns `true` if the step has failed or timed out.
    pub(crate) const fn has_failed(&self) -> bool {
        matches!(self.status, Status::Failed | Status::TimedOut)
    }

    /// Creates the outcome of a step that never started.
    pub(super) const fn skipped() -> Self {
        Self {
            status: Status::Skipped,
            result: None,
            record: None,
            error: None,
            site: None,
            attempts: 0,
            started_ms: 0,
            duration_ms: 0,
        }
    }

    /// Returns `true` if the step was rejected by a limit that has ended the run.
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

    /// Creates an error of the kind [`ErrorKind::Definition`], for an expression that cannot be
    /// evaluated.
    pub(super) fn definition(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Definition, message)
    }

    /// Adds `place` to the beginning of the error message. `place` is the part of the definition
    /// that caused the error, such as `condition`.
    pub(super) fn at(self, place: &str) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    pub(super) const fn status(&self) -> Status {
        match self.kind {
            ErrorKind::Timeout => Status::TimedOut,
            _ => Status::Failed,
        }
    }

    /// Returns a copy of the error without its `data` if the tool returned an error result. Returns
    /// all other errors unchanged.
    pub(crate) fn without_details(&self) -> Cow<'_, Self> {
        match self.kind {
            ErrorKind::Tool if self.data.is_some() => {
                let message = self.message.clone();
                Cow::Owned(Self { code: self.code, ..Self::new(self.kind, message) })
            }
            _ => Cow::Borrowed(self),
        }
    }

    /// Converts the error to the JSON object that expressions can read and that reports contain.
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
