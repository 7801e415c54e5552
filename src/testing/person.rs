//! A scripted user, who answers the questions that composites and tools ask during a test.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::Location,
};

use rmcp::model::{
    CallToolResult, ElicitRequestParams, InputRequest, InputRequests, InputResponses,
    RequestMetaObject,
};
use serde_json::{Value, json};
use tower::BoxError;
use tower_service::Service;

use super::client::{answer, explained, request};
use crate::message::{CLIENT_CAPABILITIES, Reply, Request, ToolAnswer};

/// The maximum number of rounds of questions during one call.
const MAX_CALL_ROUNDS: usize = 100;

/// A client for tests, with a scripted user who answers the questions of composites and tools.
///
/// A test defines the user's answer to each question by the key of the question. If a question has
/// no answer, the test fails. The key depends on the source of the question:
///
/// - An elicitation step of a composite: the ID of the step.
/// - A tool: a key that the tool chooses, such as `sure`.
/// - A tool that a composite calls: the name of the branch and the key of the tool, as in
///   `delete:sure`.
///
/// # Examples
///
/// ```
/// use mcp_composite::testing::{Answer, Person, Server};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let asks = Answer::asks("sure", "Delete all?");
/// let server = Server::new().tool("delete", asks.then(Answer::text("gone")));
///
/// let mut person = Person::new().accepts("sure", json!({}));
/// let result = person.call(&server, "delete", json!({})).await;
///
/// assert_eq!(person.asked(), [("sure".to_owned(), "Delete all?".to_owned())]);
/// assert_eq!(result.content[0].as_text().unwrap().text, "gone");
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Person {
    answers: BTreeMap<String, VecDeque<Said>>,
    asked: Vec<(String, String)>,
    rounds: usize,
}

/// The scripted reaction of the user to a question: the user answers the question or leaves it
/// unanswered.
#[derive(Clone, Debug)]
enum Said {
    Answer(Value),
    Nothing,
}

// === impl Person ===

impl Person {
    /// Creates a client whose user has no answers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Defines that the user accepts the next question with the key `key`, and enters the values in
    /// `content` in its form.
    pub fn accepts(self, key: &str, content: impl Into<Value>) -> Self {
        let content: Value = content.into();
        self.answers(key, json!({ "action": "accept", "content": content }))
    }

    /// Defines that the user declines the next question with the key `key`.
    pub fn declines(self, key: &str) -> Self {
        self.answers(key, json!({ "action": "decline" }))
    }

    /// Defines that the user cancels the next question with the key `key`, for example by closing
    /// the form.
    pub fn cancels(self, key: &str) -> Self {
        self.answers(key, json!({ "action": "cancel" }))
    }

    /// Defines the answer of the user to the next question with the key `key`. `answer` can be any
    /// JSON value, so a test can also send invalid answers.
    pub fn answers(self, key: &str, answer: Value) -> Self {
        self.says(key, Said::Answer(answer))
    }

    /// Defines that the user ignores the next question with the key `key`: the client sends no
    /// answer to it.
    pub fn ignores(self, key: &str) -> Self {
        self.says(key, Said::Nothing)
    }

    fn says(mut self, key: &str, said: Said) -> Self {
        self.answers.entry(key.to_owned()).or_default().push_back(said);
        self
    }

    /// Returns all questions that were asked so far, in order, each as a pair of its key and its
    /// message. The questions of one round are sorted by key.
    #[must_use]
    pub fn asked(&self) -> &[(String, String)] {
        &self.asked
    }

    /// Returns the number of rounds so far. A round consists of all questions that arrive in the
    /// same reply.
    #[must_use]
    pub const fn rounds(&self) -> usize {
        self.rounds
    }

    /// Calls a tool, answers all questions that are asked during the call, and returns the result.
    /// The result can be a failure (`isError`).
    ///
    /// `arguments` is an object, or null for a call without arguments.
    ///
    /// # Panics
    ///
    /// Panics if the reply is neither a result nor a question but, for example, a JSON-RPC error.
    /// Also panics if a question has no defined answer, or if the call needs more than 100 rounds
    /// of questions. The panic message contains the reason, and the location in the test from which
    /// this function was called. Also panics if `arguments` is neither an object nor null.
    #[track_caller]
    pub fn call<S>(
        &mut self,
        service: &S,
        tool: &str,
        arguments: Value,
    ) -> impl Future<Output = CallToolResult> + use<'_, S>
    where
        S: Service<Request, Response = Reply> + Clone,
        S::Error: Into<BoxError>,
    {
        let place = Location::caller();
        let service = service.clone();
        let mut request = request(tool, arguments);
        *request.context_mut().meta_mut() = can_be_asked();
        let tool = tool.to_owned();
        async move {
            for _ in 0..MAX_CALL_ROUNDS {
                let asks = match answer(service.clone(), request.clone()).await {
                    Ok(ToolAnswer::Result(result)) => return result,
                    Ok(ToolAnswer::InputRequired(asks)) => asks,
                    Ok(other) => {
                        let other = explained(service, other).await;
                        panic!("`{tool}`, called at {place}, gave no result, but {other}")
                    }
                    Err(error) => {
                        panic!("`{tool}`, called at {place}, gave the service's error: {error}")
                    }
                };
                self.rounds += 1;
                let said = self.answer_all(asks.input_requests.unwrap_or_default());
                let said = said.unwrap_or_else(|question| {
                    panic!("`{tool}`, called at {place}, asks {question}, which has no answer")
                });
                if let Some(call) = request.tool_call_mut() {
                    call.request_state = asks.request_state;
                    call.input_responses = Some(said);
                }
            }
            panic!("`{tool}`, called at {place}, has no end of questions")
        }
    }

    /// Returns the scripted answers to the questions of one round. Returns an error that describes
    /// the first question for which there is no scripted answer.
    fn answer_all(&mut self, asks: InputRequests) -> Result<InputResponses, String> {
        let mut said = InputResponses::new();
        for (key, request) in asks {
            let message = message(&request);
            let Some(answer) = self.answers.get_mut(&key).and_then(VecDeque::pop_front) else {
                return Err(format!("`{key}`: {message:?}"));
            };
            self.asked.push((key.clone(), message));
            if let Said::Answer(answer) = answer {
                said.insert(key, answer);
            }
        }
        Ok(said)
    }
}

/// Returns the `_meta` of a request in which a client declares support for elicitation, sampling
/// and roots.
fn can_be_asked() -> RequestMetaObject {
    let mut meta = RequestMetaObject::default();
    let abilities =
        json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} });
    meta.insert(CLIENT_CAPABILITIES.to_owned(), abilities);
    meta
}

fn message(request: &InputRequest) -> String {
    match request {
        InputRequest::Elicitation(request) => match &request.params {
            ElicitRequestParams::FormElicitationParams { message, .. }
            | ElicitRequestParams::UrlElicitationParams { message, .. } => message.clone(),
            other => format!("{other:?}"),
        },
        other => format!("{other:?}"),
    }
}
