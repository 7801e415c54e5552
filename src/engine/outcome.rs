use std::borrow::Cow;

use rmcp::model::ErrorData;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::step_output::Record;
use crate::{message::ToolResult, spans::End};

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// What the tool answered, as long as it may be the answer of the run; with
    /// [`RunOutput::Outcomes`](super::plan::RunOutput::Outcomes) always, and also of a
    /// tool that failed (`isError`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) result: Option<ToolResult>,
    /// What is read of it, as long as it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) record: Option<Box<Record>>,
    /// In a box, since most steps have no error and each run has an outcome per step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) error: Option<Box<StepError>>,
    /// Which of its sites a step was called at that has several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) site: Option<usize>,
    /// How often a tool was called.
    pub(crate) attempts: u32,
    /// When the step started, in milliseconds after the run; 0 if it never did.
    pub(crate) started_ms: u64,
    /// How long it took, in milliseconds.
    pub(crate) duration_ms: u64,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// The tool answered and did not fail.
    Completed,
    /// It failed.
    Failed,
    /// It did not answer in time.
    TimedOut,
    /// It was never started: the run had ended, or its condition did not hold.
    Skipped,
    /// It was stopped, because another one had already succeeded, or had failed.
    Cancelled,
}

/// Why a step did not complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepError {
    pub(crate) kind: ErrorKind,
    /// In words, fit for a client.
    pub(crate) message: String,
    /// The code of a JSON-RPC error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) code: Option<i32>,
    /// The data of a JSON-RPC error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) data: Option<Value>,
    /// Whether a limit of a run refused it: that ends the run, and does not fail it.
    #[serde(skip)]
    pub(crate) ends_run: bool,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorKind {
    /// The tool said so (`isError`).
    Tool,
    /// It was answered with a JSON-RPC error.
    Protocol,
    /// Its service could not answer.
    Service,
    /// It panicked.
    Panic,
    /// It took too long.
    Timeout,
    /// A limit of the run was hit.
    Limit,
    /// The definition asks for what is not there.
    Definition,
    /// A person said no.
    Declined,
    /// A person did not answer.
    Dismissed,
}

// === impl Outcome ===

impl Outcome {
    /// How it has ended, as spans and metrics tell it.
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

    /// Whether it was called and did not succeed.
    pub(crate) const fn has_failed(&self) -> bool {
        matches!(self.status, Status::Failed | Status::TimedOut)
    }

    /// A step that was never started.
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

    /// Whether a limit of a run refused it.
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

    /// Something that the definition asks for is not there.
    pub(super) fn definition(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Definition, message)
    }

    /// The same error, told with the place where it was met.
    pub(super) fn at(self, place: &str) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    pub(super) const fn status(&self) -> Status {
        match self.kind {
            ErrorKind::Timeout => Status::TimedOut,
            _ => Status::Failed,
        }
    }

    /// The same without what the tool has answered.
    pub(crate) fn without_details(&self) -> Cow<'_, Self> {
        match self.kind {
            ErrorKind::Tool if self.data.is_some() => {
                let message = self.message.clone();
                Cow::Owned(Self { code: self.code, ..Self::new(self.kind, message) })
            }
            _ => Cow::Borrowed(self),
        }
    }

    /// As references and reports show it.
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
        }
    }
}
