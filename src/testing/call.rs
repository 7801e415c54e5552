//! The recorded calls of scripted servers.

use std::{fmt, sync::Arc, time::Duration};

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::message::Request;

/// A tool call that a scripted [`Server`](super::Server) has received, as recorded by the server.
///
/// In assertions, a `RecordedCall` can be compared with a pair of the tool's name and the
/// arguments:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use mcp_composite::testing::{self, Server};
/// use serde_json::json;
///
/// let server = Server::new().echoes("search");
/// testing::call(&server, "search", json!({ "q": "x" })).await;
/// assert_eq!(server.calls(), [("search", json!({ "q": "x" }))]);
/// # }
/// ```
#[derive(Clone)]
pub struct RecordedCall {
    /// The `tools/call` request. It is in an `Arc`, so that recording a call does not clone the
    /// request.
    request: Arc<Request>,
    at: Duration,
    pub(super) status: Status,
}

/// The status of a [`RecordedCall`]: the call is running or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// The call is running: it still waits for its answer.
    Running,
    /// The server has answered the call, possibly with an error.
    Answered,
    /// The call was dropped before it was answered.
    Dropped,
    /// The tool panicked while it ran the call.
    Panicked,
}

// === impl RecordedCall ===

impl RecordedCall {
    /// Creates the record of a call that has just started.
    pub(super) const fn new(request: Arc<Request>, at: Duration) -> Self {
        Self { request, at, status: Status::Running }
    }

    /// Returns the name of the called tool. This is the name on the scripted server, without
    /// changes that layers make.
    #[must_use]
    pub fn tool(&self) -> &str {
        self.request.tool_call().map_or("", |call| &call.name)
    }

    /// Returns the arguments of the call. Returns null if the call has no arguments.
    #[must_use]
    pub fn arguments(&self) -> Value {
        self.object().cloned().map_or(Value::Null, Value::Object)
    }

    /// Returns the client's answers to the questions of the tool: an object with one member for the
    /// key of each question. Returns null if the client sent no answers.
    #[must_use]
    pub fn answers(&self) -> Value {
        let call = self.request.tool_call();
        let answers = call.and_then(|call| call.input_responses.clone());
        answers.map_or(Value::Null, |answers| answers.into_iter().collect())
    }

    /// Returns the request state, which a client sends when it repeats a call with the answers of
    /// the user. Returns `None` if the call has no request state.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.request.tool_call()?.request_state.as_deref()
    }

    /// Returns the whole request, including its context.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the arrival time of the call, as a duration since the creation of the server.
    #[must_use]
    pub const fn at(&self) -> Duration {
        self.at
    }

    /// Returns the status that the call had when this record was requested from the server. The
    /// status in the record does not change when the call ends.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    fn object(&self) -> Option<&JsonObject> {
        self.request.tool_call()?.arguments.as_ref()
    }
}

impl PartialEq<(&str, Value)> for RecordedCall {
    fn eq(&self, (tool, arguments): &(&str, Value)) -> bool {
        let arguments_are_same = match (self.object(), arguments) {
            (Some(object), Value::Object(arguments)) => object == arguments,
            (object, arguments) => object.is_none() && arguments.is_null(),
        };
        self.tool() == *tool && arguments_are_same
    }
}

/// Formats the call as a pair of the tool's name and the arguments, like the pairs with which calls
/// are compared. The message of a failed assertion then shows only the differences.
impl fmt::Debug for RecordedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("").field(&self.tool()).field(&self.arguments()).finish()
    }
}
