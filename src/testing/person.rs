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

use super::client::{answer, described, request};
use crate::message::{CLIENT_CAPABILITIES, Reply, Request, ToolAnswer};

/// How often a person is asked in one call.
const MAX_ROUNDS: usize = 100;

/// A client with a person behind it, who answers what composites and tools ask.
///
/// Questions have the keys that clients see: the id of an elicitation step, or
/// `branch:key` of a tool's. A question that there is no answer to fails the test.
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

/// What a person does when asked.
#[derive(Clone, Debug)]
enum Said {
    Answer(Value),
    Nothing,
}

// === impl Person ===

impl Person {
    /// A person who expects no question.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills in the form of the question of this key, the next time it is asked.
    pub fn accepts(self, key: &str, content: impl Into<Value>) -> Self {
        let content: Value = content.into();
        self.answers(key, json!({ "action": "accept", "content": content }))
    }

    /// Says no to the question of this key, the next time it is asked.
    pub fn declines(self, key: &str) -> Self {
        self.answers(key, json!({ "action": "decline" }))
    }

    /// Closes the question of this key, the next time it is asked.
    pub fn cancels(self, key: &str) -> Self {
        self.answers(key, json!({ "action": "cancel" }))
    }

    /// Answers the question of this key with anything, the next time it is asked.
    pub fn answers(self, key: &str, answer: Value) -> Self {
        self.says(key, Said::Answer(answer))
    }

    /// Leaves out the answer to the question of this key, the next time it is asked.
    pub fn ignores(self, key: &str) -> Self {
        self.says(key, Said::Nothing)
    }

    fn says(mut self, key: &str, said: Said) -> Self {
        self.answers.entry(key.to_owned()).or_default().push_back(said);
        self
    }

    /// The questions so far: their keys and messages, those of one round in the order
    /// of their keys.
    #[must_use]
    pub fn asked(&self) -> &[(String, String)] {
        &self.asked
    }

    /// How often answers were asked for.
    #[must_use]
    pub const fn rounds(&self) -> usize {
        self.rounds
    }

    /// Calls a tool, answers what it asks, and gives its result, be it a failure
    /// (`isError`) or not.
    ///
    /// Arguments are an object, or null.
    ///
    /// # Panics
    ///
    /// Panics if there is no result, but a JSON-RPC error, say, or a question without
    /// an answer, or no end of questions. The message tells which, and where the call
    /// was made.
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
            for _ in 0..MAX_ROUNDS {
                let asks = match answer(service.clone(), request.clone()).await {
                    Ok(ToolAnswer::Result(result)) => return result,
                    Ok(ToolAnswer::InputRequired(asks)) => asks,
                    Ok(other) => {
                        let other = described(other);
                        panic!("`{tool}`, called at {place}, gave no result, but {other}")
                    }
                    Err(error) => {
                        panic!("`{tool}`, called at {place}, gave the service's error: {error}")
                    }
                };
                self.rounds += 1;
                let said = self.hear(asks.input_requests.unwrap_or_default());
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

    /// Answers questions, or gives the first that there is no answer to.
    fn hear(&mut self, asks: InputRequests) -> Result<InputResponses, String> {
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

/// What somebody says who can be asked.
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
