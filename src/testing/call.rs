use std::{fmt, sync::Arc, time::Duration};

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::message::Request;

/// A call that reached a [`Server`](super::Server).
///
/// It can be compared with a tool and its arguments:
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
    /// Shared, so that noting a call copies nothing of it.
    request: Arc<Request>,
    at: Duration,
    pub(super) status: Status,
}

/// How far a [`Call`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It waits for its answer.
    Running,
    /// It was answered, if only with an error.
    Answered,
    /// Nobody wanted the answer any more.
    Dropped,
    /// The tool panicked.
    Panicked,
}

// === impl Call ===

impl Call {
    /// Notes the call that `request` makes.
    pub(super) const fn new(request: Arc<Request>, at: Duration) -> Self {
        Self { request, at, status: Status::Running }
    }

    /// The name of the tool, as the server knows it.
    #[must_use]
    pub fn tool(&self) -> &str {
        self.request.tool_call().map_or("", |call| &call.name)
    }

    /// The arguments; null if there are none.
    #[must_use]
    pub fn arguments(&self) -> Value {
        self.object().cloned().map_or(Value::Null, Value::Object)
    }

    /// The answers to what the tool has asked, by their keys; null if it has asked
    /// nothing.
    #[must_use]
    pub fn answers(&self) -> Value {
        let call = self.request.tool_call();
        let answers = call.and_then(|call| call.input_responses.clone());
        answers.map_or(Value::Null, |answers| answers.into_iter().collect())
    }

    /// The state that the tool gave when it asked, as it came back.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.request.tool_call()?.request_state.as_deref()
    }

    /// All that came with the call, its context included.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// How long after the server was made the call arrived.
    #[must_use]
    pub const fn at(&self) -> Duration {
        self.at
    }

    /// How far the call was when it was asked for.
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

/// Like what it is compared with, so that the two sides of a failed assertion differ
/// in what is different.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("").field(&self.tool()).field(&self.arguments()).finish()
    }
}
