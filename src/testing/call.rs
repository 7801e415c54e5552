//! Recorded calls of scripted servers.

use std::{fmt, sync::Arc, time::Duration};

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::message::Request;

/// A call that reached a [`Server`](super::Server).
///
/// It can be compared with a pair of tool and arguments:
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
pub struct Call {
    /// Shared, so that recording a call does not clone the request.
    request: Arc<Request>,
    at: Duration,
    pub(super) status: Status,
}

/// The status of a [`Call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// The call is waiting for its answer.
    Running,
    /// The call was answered, possibly with an error.
    Answered,
    /// The call was dropped before it was answered.
    Dropped,
    /// The tool panicked.
    Panicked,
}

// === impl Call ===

impl Call {
    /// Records the call of `request`.
    pub(super) const fn new(request: Arc<Request>, at: Duration) -> Self {
        Self { request, at, status: Status::Running }
    }

    /// Returns the name of the tool on the server.
    #[must_use]
    pub fn tool(&self) -> &str {
        self.request.tool_call().map_or("", |call| &call.name)
    }

    /// Returns the arguments; null if there are none.
    #[must_use]
    pub fn arguments(&self) -> Value {
        self.object().cloned().map_or(Value::Null, Value::Object)
    }

    /// Returns the answers to the tool's questions, by their keys; null if there are none.
    #[must_use]
    pub fn answers(&self) -> Value {
        let call = self.request.tool_call();
        let answers = call.and_then(|call| call.input_responses.clone());
        answers.map_or(Value::Null, |answers| answers.into_iter().collect())
    }

    /// Returns the request state of the tool's question, as the client returned it.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.request.tool_call()?.request_state.as_deref()
    }

    /// Returns the whole request, including its context.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the time of the call since the server was created.
    #[must_use]
    pub const fn at(&self) -> Duration {
        self.at
    }

    /// Returns the status of the call when it was read from the server.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    fn object(&self) -> Option<&JsonObject> {
        self.request.tool_call()?.arguments.as_ref()
    }
}

impl PartialEq<(&str, Value)> for Call {
    fn eq(&self, (tool, arguments): &(&str, Value)) -> bool {
        let arguments_are_same = match (self.object(), arguments) {
            (Some(object), Value::Object(arguments)) => object == arguments,
            (object, arguments) => object.is_none() && arguments.is_null(),
        };
        self.tool() == *tool && arguments_are_same
    }
}

/// Prints like the pair it is compared with, so that a failed assertion only shows the differences.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("").field(&self.tool()).field(&self.arguments()).finish()
    }
}
