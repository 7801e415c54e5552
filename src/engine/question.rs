//! A question to a client, and the client's response to it.

use std::{collections::BTreeMap, time::Duration};

use rmcp::model::{InputRequest, InputRequests};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::milliseconds::unix_ms;

/// A question that a run asks the client, such as an elicitation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) request: InputRequest,
    /// The time by which the user must answer the question, as Unix time in milliseconds. `None` if
    /// the question has no deadline.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) until: Option<u64>,
}

/// The client's responses to questions, indexed by the keys of the questions.
pub(crate) type Responses = BTreeMap<String, Response>;

/// The response to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// The result with which the client answered the question. It has not been validated yet.
    Answer(Value),
    /// The deadline of the question passed before an answer arrived.
    Late,
    /// The question has no answer: it was not asked, or the client did not answer it. Contains the
    /// reason, which may be shown to the client.
    Refused(String),
}

/// Converts questions to the input requests that are sent to the client. The requests do not
/// contain the deadlines of the questions.
pub(crate) fn requests(questions: BTreeMap<String, Question>) -> InputRequests {
    questions.into_iter().map(|(key, question)| (key, question.request)).collect()
}

// === impl Question ===

impl Question {
    /// Creates a question without a deadline.
    pub(crate) const fn new(request: InputRequest) -> Self {
        Self { request, until: None }
    }

    /// Returns the remaining time to answer the question, zero after its deadline. Returns `None`
    /// if the question has no deadline.
    pub(crate) fn left(&self) -> Option<Duration> {
        let until = self.until?;
        Some(Duration::from_millis(until.saturating_sub(unix_ms())))
    }

    /// Returns `true` if the deadline of the question has passed at the Unix time `unix_ms`.
    /// Returns `false` if the question has no deadline.
    pub(super) fn is_late(&self, unix_ms: u64) -> bool {
        self.until.is_some_and(|until| until <= unix_ms)
    }
}
