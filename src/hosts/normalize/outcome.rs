use std::{error::Error, fmt};

use rmcp::model::{CallToolResult, ErrorData};
use serde_json::Value;

use super::call::{CallId, Form, MalformedCall};

/// What became of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatched {
    /// The id of the call; a malformed one may have none.
    pub id: Option<CallId>,
    /// The name of the tool as the model wrote it, as far as it is known.
    pub name: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    pub(super) form: Form,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The tool has answered; it may have failed (`isError`).
    Completed(Box<CallToolResult>),
    /// There is no result.
    Failed(Failure),
    /// It was not made, since it is not known for sure what the model wants.
    Malformed(MalformedCall),
    /// It was not made, since one before it failed.
    Skipped,
}

/// Why a call that was made has no result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Failure {
    /// What kind of thing went wrong.
    pub kind: FailureKind,
    /// In words, fit for a model.
    pub message: String,
    /// The code of a JSON-RPC error.
    pub code: Option<i32>,
    /// The data of a JSON-RPC error.
    pub data: Option<Value>,
}

/// What kind of thing went wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// It was answered with a JSON-RPC error, such as that there is no such tool.
    Protocol,
    /// The service could not answer.
    Service,
    /// It took too long.
    Timeout,
    /// It panicked.
    Panic,
    /// The tool wants to ask somebody, and here is nobody.
    InputRequired,
    /// The tool goes on as a task, which was cancelled.
    Task,
}

// === impl Dispatched ===

impl Dispatched {
    /// Whether the call was not made, or failed, or the tool says that it did.
    #[must_use]
    pub fn is_error(&self) -> bool {
        match &self.outcome {
            Outcome::Completed(result) => result.is_error.unwrap_or_default(),
            Outcome::Failed(_) | Outcome::Malformed(_) | Outcome::Skipped => true,
        }
    }

    /// The result of the tool, if there is one.
    #[must_use]
    pub fn result(&self) -> Option<&CallToolResult> {
        match &self.outcome {
            Outcome::Completed(result) => Some(result),
            _ => None,
        }
    }
}

// === impl Failure ===

impl Failure {
    pub(super) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None, data: None }
    }
}

impl From<ErrorData> for Failure {
    fn from(error: ErrorData) -> Self {
        Self {
            kind: FailureKind::Protocol,
            message: error.message.into_owned(),
            code: Some(error.code.0),
            data: error.data,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}
