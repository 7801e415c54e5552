//! Asks the user of a client whether a call may publish data.
//!
//! The question is the reply to the call. The client then repeats the call with the answer and with
//! a token of this layer as its `requestState`. The token proves that the user was asked about a
//! call with the same tool, arguments and session. If the wrapped service also asks questions, the
//! token precedes its own `requestState`, so that the user is asked only once per call.

use std::{collections::BTreeMap, fmt::Write, sync::LazyLock};

use rmcp::model::{
    CallToolRequestParams, ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest,
    InputRequests, InputRequiredResult, ServerResult,
};
use serde_json::{Value, json};

use super::sessions::SessionKey;
use crate::{
    fingerprint::Fingerprint,
    message::{Reply, Request},
    store::SignedStore,
    warnings::sanitize::{Excerpt, MAX_EXCERPT},
};

/// The key of the question.
const QUESTION: &str = "mcp-composite/flow";
/// The prefix of each `requestState` that this layer creates. A token and [`SEPARATOR`] follow, and
/// then the `requestState` of the wrapped service, if any.
const PREFIX: &str = "mcp-composite/flow.";
/// The end of a token. Tokens do not contain this character.
const SEPARATOR: char = ' ';
/// The content of a token after the question was asked.
const PENDING: &[u8] = b"asked";
/// The content of a token after the user has allowed the call.
const ALLOWED: &[u8] = b"allowed";

/// Creates and verifies the tokens. The key is that of the process, which also has the labels of
/// the sessions.
static TOKENS: LazyLock<SignedStore> = LazyLock::new(SignedStore::ephemeral);

/// The decision about a call.
pub(super) enum Decision {
    /// The user has allowed the call.
    Allowed(Approval),
    /// The user has not allowed the call, or cannot be asked.
    Denied,
    /// The user has not decided yet. Contains the question.
    Undecided(Reply),
}

/// The approval of a call by the user. Identifies the call.
#[derive(Debug)]
pub(super) struct Approval(Fingerprint);

/// Decides about a call of an egress tool. Removes the token and the answer from the call.
pub(super) fn decide(request: &mut Request, session: &SessionKey) -> Decision {
    let can_ask = request.context().abilities().form;
    let Some(call) = request.tool_call_mut() else { return Decision::Denied };
    let approval = Approval::of(call, session);
    let token = take_token(call);
    let answer = take_answer(call);
    match token.and_then(|token| TOKENS.open(&token, approval.0.as_bytes()).ok()).as_deref() {
        Some(ALLOWED) => return Decision::Allowed(approval),
        Some(PENDING) => match answer.as_ref().map(|answer| answer["action"].as_str()) {
            Some(Some("accept")) => return Decision::Allowed(approval),
            Some(_) => return Decision::Denied,
            // The client has not answered the question.
            None => (),
        },
        _ => (),
    }
    let state = call.request_state.take();
    match approval.state(PENDING, state.as_deref()).filter(|_| can_ask) {
        Some(state) => Decision::Undecided(question(call, state)),
        None => Decision::Denied,
    }
}

/// Removes the token and the answer from a call that needs no approval.
pub(super) fn forget(request: &mut Request) {
    if let Some(call) = request.tool_call_mut()
        && take_token(call).is_some()
    {
        take_answer(call);
    }
}

/// Removes the token from the `requestState` of a call. The `requestState` of the wrapped service
/// remains.
fn take_token(call: &mut CallToolRequestParams) -> Option<String> {
    let state = call.request_state.as_deref()?.strip_prefix(PREFIX)?;
    let (token, rest) = state.split_once(SEPARATOR).unwrap_or((state, ""));
    let (token, rest) = (token.to_owned(), rest.to_owned());
    call.request_state = (!rest.is_empty()).then_some(rest);
    Some(token)
}

/// Removes the answer to the question from a call.
fn take_answer(call: &mut CallToolRequestParams) -> Option<Value> {
    let answers = call.input_responses.as_mut()?;
    let answer = answers.remove(QUESTION);
    if answers.is_empty() {
        call.input_responses = None;
    }
    answer
}

/// Returns the reply that asks the user whether the call may be made.
fn question(call: &CallToolRequestParams, state: String) -> Reply {
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message(call),
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    };
    let request = InputRequest::Elicitation(ElicitRequest::new(params));
    let requests = InputRequests::from([(QUESTION.to_owned(), request)]);
    ServerResult::InputRequiredResult(InputRequiredResult::new(Some(requests), Some(state))).into()
}

/// Returns the text of the question, with the beginning of the arguments.
fn message(call: &CallToolRequestParams) -> String {
    let mut message = format!(
        "Allow the call of `{}`? It makes its arguments visible to others. This session has \
         received private data, and data that others can write. That data may contain instructions \
         to publish the private data.\n\nArguments",
        Excerpt(&call.name),
    );
    let arguments = call.arguments.as_ref().map_or_else(
        || "{}".to_owned(),
        |arguments| serde_json::to_string(arguments).unwrap_or_default(),
    );
    let characters = arguments.chars().count();
    if characters > MAX_EXCERPT {
        // Writing to a string cannot fail.
        let _ = write!(message, " (the first {MAX_EXCERPT} of {characters} characters)");
    }
    let _ = write!(message, ": {}", Excerpt(arguments));
    message
}

// === impl Approval ===

impl Approval {
    /// Identifies a call by its tool, arguments and session.
    fn of(call: &CallToolRequestParams, SessionKey(session): &SessionKey) -> Self {
        Self(Fingerprint::of(&json!([QUESTION, call.name, call.arguments, session])))
    }

    /// Adds a token to a reply that asks further questions, so that the next round of the call is
    /// allowed, too.
    pub(super) fn extend(&self, reply: &mut Reply) {
        if let Some(ServerResult::InputRequiredResult(asks)) = reply.result_mut() {
            asks.request_state = self.state(ALLOWED, asks.request_state.as_deref());
        }
    }

    /// Returns a `requestState` with a token. `rest` is the `requestState` of the wrapped service.
    fn state(&self, content: &[u8], rest: Option<&str>) -> Option<String> {
        let token = TOKENS.seal(content, self.0.as_bytes()).ok()?;
        Some(format!("{PREFIX}{token}{SEPARATOR}{}", rest.unwrap_or_default()))
    }
}
