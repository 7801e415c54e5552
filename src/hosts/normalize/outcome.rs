//! Outcomes of a model's tool calls.

use std::{error::Error, fmt};

use rmcp::model::{CallToolResult, ErrorData};
use serde_json::Value;

use super::call::{CallId, Form, MalformedCall};

/// A tool call of a model that was executed or rejected, with its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatched {
    /// The ID of the call. `None` if the call is malformed and has no ID.
    pub id: Option<CallId>,
    /// The name of the tool as the model wrote it. `None` if the call is malformed and has no valid
    /// name.
    pub name: Option<String>,
    /// The outcome of the call.
    pub outcome: Outcome,
    pub(super) form: Form,
}

/// The outcome of a model's tool call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The tool returned a result, which may be an error (`isError`).
    Completed(Box<CallToolResult>),
    /// The call was executed, but failed and returned no tool result.
    Failed(Failure),
    /// The call was not executed, because it is malformed.
    Malformed(MalformedCall),
    /// The call was not executed, because an earlier call failed.
    Skipped,
}

/// The error of a model's tool call that was executed but returned no tool result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Failure {
    /// The kind of the error.
    pub kind: FailureKind,
    /// The error message, which can be sent to the model.
    pub message: String,
    /// The JSON-RPC error code. `None` if the error is not a JSON-RPC error.
    pub code: Option<i32>,
    /// The `data` of the JSON-RPC error. `None` if the error is not a JSON-RPC error, or has no
    /// data.
    pub data: Option<Value>,
}

/// The kind of error with which a tool call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The service returned a JSON-RPC error, for example for an unknown tool.
    Protocol,
    /// The service failed with an error instead of returning a reply.
    Service,
    /// The tool call timed out.
    Timeout,
    /// The tool call panicked.
    Panic,
    /// The tool requested user input, which is not supported.
    InputRequired,
    /// The tool continued as a task, which was canceled.
    Task,
}

// === impl Dispatched ===

impl Dispatched {
    /// Returns `true` if the call has no successful result: it was not executed, it failed, or its
    /// result has `isError` set.
    #[must_use]
    pub fn is_error(&self) -> bool {
        match &self.outcome {
            Outcome::Completed(result) => result.is_error.unwrap_or_default(),
            Outcome::Failed(_) | Outcome::Malformed(_) | Outcome::Skipped => true,
        }
    }

    /// Returns the tool result. Returns `None` if the call failed or was not executed.
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
