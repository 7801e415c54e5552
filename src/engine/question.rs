//! A question to a client and the response to it.

use std::{collections::BTreeMap, time::Duration};

use rmcp::model::{InputRequest, InputRequests};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::milliseconds::unix_ms;

/// A question to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) request: InputRequest,
    /// The deadline of the answer, in milliseconds of Unix time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) until: Option<u64>,
}

/// The responses to questions by their keys.
pub(crate) type Responses = BTreeMap<String, Response>;

/// The response to a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Response {
    /// The result of the request, unchecked.
    Answer(Value),
    /// No answer in time.
    Late,
    /// The client did not ask; with a reason that may be shown to it.
    Refused(String),
}

/// Returns the questions in the form in which they are sent.
pub(crate) fn requests(questions: BTreeMap<String, Question>) -> InputRequests {
    questions.into_iter().map(|(key, question)| (key, question.request)).collect()
}

// === impl Question ===

impl Question {
    /// Creates a question without a deadline.
    pub(crate) const fn new(request: InputRequest) -> Self {
        Self { request, until: None }
    }

    /// Returns the time left to answer, if it is limited.
    pub(crate) fn left(&self) -> Option<Duration> {
        let until = self.until?;
        Some(Duration::from_millis(until.saturating_sub(unix_ms())))
    }

    /// Returns `true` if the time to answer is over at this Unix time.
    pub(super) fn is_late(&self, unix_ms: u64) -> bool {
        self.until.is_some_and(|until| until <= unix_ms)
    }
}
