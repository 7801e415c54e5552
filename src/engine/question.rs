//! A question to the client, and the client's response.

use std::{collections::BTreeMap, time::Duration};

use rmcp::model::{InputRequest, InputRequests};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::milliseconds::unix_ms;

/// A question to the user, which the server sends to the client as an MCP input request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) request: InputRequest,
    /// The deadline of the user's answer, as Unix time in milliseconds. `None` if there is no
    /// deadline.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) until: Option<u64>,
}

/// The client's responses. Each key identifies the question.
pub(crate) type Responses = BTreeMap<String, Response>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// The client's result for the question, which has not been validated yet.
    Answer(Value),
    /// The deadline passed before an answer arrived.
    Late,
    /// There will be no answer, because the question was not asked or the client did not answer it.
    /// Contains the reason, which clients may see.
    Refused(String),
}

/// Returns the input requests for the client. The client does not see the deadlines of the
/// questions.
pub(crate) fn requests(questions: BTreeMap<String, Question>) -> InputRequests {
    questions.into_iter().map(|(key, question)| (key, question.request)).collect()
}

// === impl Question ===

impl Question {
    /// Creates a question without a deadline.
    pub(crate) const fn new(request: InputRequest) -> Self {
        Self { request, until: None }
    }

    /// Returns the time that is left to answer the question. Returns zero after the deadline, and
    /// `None` if there is no deadline.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.left_at(unix_ms())
    }

    /// Returns the remaining time to answer the question at the Unix time `unix_ms`, like
    /// [`left`](Self::left).
    pub(crate) fn left_at(&self, unix_ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(self.until?.saturating_sub(unix_ms)))
    }

    /// Returns `true` if the deadline has passed at the Unix time `unix_ms`. A question without a
    /// deadline is never late.
    pub(super) fn is_late(&self, unix_ms: u64) -> bool {
        self.until.is_some_and(|until| until <= unix_ms)
    }
}
