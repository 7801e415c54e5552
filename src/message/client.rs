//! The client that sent a request. A server can ask it questions while the request is running:
//! elicitation, sampling and roots.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use rmcp::{
    Peer, RoleServer, ServiceError,
    model::{
        CancelledNotificationParam, ClientCapabilities, ClientRequest, ClientResult,
        ElicitRequestParams, ErrorCode, ErrorData, InitializeRequestParams, InputRequest,
        RequestId, ServerRequest,
    },
    service::{OriginatingRequestId, PeerRequestOptions, RequestHandle},
};
use serde_json::{Map, Value};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, SemaphorePermit},
    task::{JoinSet, coop::unconstrained},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::json_size::{ByteBudget, json_bytes};

/// The maximum number of unanswered questions in one reply of a tool, and during one request of a
/// client.
pub(crate) const MAX_QUESTIONS: usize = 32;
/// The maximum number of questions during one request of a client.
pub(crate) const MAX_REQUEST_QUESTIONS: usize = 1_000;
/// The maximum total size of the unanswered questions during one request of a client, in bytes of
/// JSON. Includes questions that have not been sent yet.
pub(crate) const MAX_PENDING_BYTES: usize = 8 << 20;

/// The client capabilities that allow servers to ask the client questions.
pub(crate) const ASKABLE: [&str; 3] = [ELICITATION, "sampling", "roots"];
/// The client capability that allows servers to ask the user for input.
pub(crate) const ELICITATION: &str = "elicitation";

/// Returns `true` if MCP allows servers to ask the client questions during a request of this type.
pub(crate) const fn may_ask(request: &ClientRequest) -> bool {
    matches!(
        request,
        ClientRequest::CallToolRequest(_)
            | ClientRequest::GetPromptRequest(_)
            | ClientRequest::ReadResourceRequest(_)
    )
}

/// Returns the error for a server whose question to the client cannot be answered. `reason` is the
/// message.
///
/// The server receives an error, because the result `decline` would be wrong: the user has not seen
/// the question. Most servers forward the error to their client.
pub(crate) fn unanswered(reason: impl Into<String>) -> ErrorData {
    let reason = reason.into();
    tracing::debug!(reason, "did not answer a question of a server");
    ErrorData::invalid_request(reason, None)
}

/// Returns the error message for more than [`MAX_REQUEST_QUESTIONS`] questions during one request.
pub(crate) fn too_many() -> String {
    format!("more than {MAX_REQUEST_QUESTIONS} questions were asked for one request")
}

/// The kinds of questions that a client can answer, according to its declared capabilities.
///
/// `Abilities::default()` describes a client that can answer no questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// If `true`, the client can show forms to the user (elicitation in form mode).
    pub(crate) form: bool,
    /// If `true`, the client can open web pages for the user (elicitation in URL mode).
    pub(crate) url: bool,
    pub(crate) sampling: bool,
    /// If `true`, the client's model can call tools that are defined in a sampling request.
    pub(crate) sampling_tools: bool,
    pub(crate) roots: bool,
}

/// Sends questions of servers to a client while one of its requests is running. Used for clients
/// with protocol version 2025-11-25 or older, to which each question is a separate JSON-RPC
/// request.
#[derive(Clone)]
pub(crate) struct LiveClient {
    state: Arc<ClientState>,
    /// Records the questions that are sent through this handle. `None` if they are not recorded.
    questions: Option<Questions>,
}

/// Records whether questions were asked during a call, and can withdraw them. Clones share the same
/// record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Questions(Arc<QuestionsState>);

#[derive(Debug, Default)]
struct QuestionsState {
    has_asked: AtomicBool,
    /// Canceled when the call has no caller any more. Its questions are then withdrawn.
    ended: CancellationToken,
}

struct ClientState {
    peer: Peer<RoleServer>,
    /// The ID of the client's request. Over HTTP, questions are sent on the response stream of this
    /// request.
    request: RequestId,
    /// The client capabilities that are listed in [`ASKABLE`].
    capabilities: Map<String, Value>,
    /// The number of questions during this request so far.
    question_count: AtomicUsize,
    /// Limits the number of unanswered questions to [`MAX_QUESTIONS`]. Each question holds a permit
    /// from before it is sent until it is answered.
    turns: Semaphore,
    /// Limits the total size of unanswered questions to [`MAX_PENDING_BYTES`]. Includes questions
    /// that have not been sent yet.
    waiting: ByteBudget,
}

/// The permit to send one question to the client. At most [`MAX_QUESTIONS`] questions have a permit
/// at the same time.
pub(crate) struct Turn<'c> {
    client: &'c ClientState,
    _permit: Option<SemaphorePermit<'c>>,
    _bytes: SemaphorePermit<'c>,
}

/// A question that was sent to the client. If it is dropped before the client has answered, the
/// question is canceled.
struct Pending {
    handle: RequestHandle<RoleServer>,
    since: Instant,
    answered: bool,
}

/// The time after which a question has usually been written to the connection. If a question is
/// canceled earlier, its cancellation is sent again after this time.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

// === impl Abilities ===

impl Abilities {
    /// Returns the kinds of questions that a client with these declared capabilities can answer.
    pub(crate) fn of(capabilities: &Map<String, Value>) -> Self {
        let elicitation = capabilities.get("elicitation").and_then(Value::as_object);
        let url = elicitation.is_some_and(|modes| modes.contains_key("url"));
        Self {
            // A client that declares no mode supports forms, because older protocol versions have
            // no other mode.
            form: elicitation.is_some_and(|modes| modes.contains_key("form") || !url),
            url,
            sampling: capabilities.contains_key("sampling"),
            sampling_tools: capabilities
                .get("sampling")
                .is_some_and(|sampling| sampling.get("tools").is_some()),
            roots: capabilities.contains_key("roots"),
        }
    }

    /// Returns the capability that the client needs to answer `request` but does not have, such as
    /// `elicitation.url`. Returns `None` if the client can answer it.
    #[expect(deprecated, reason = "servers still ask for it")]
    pub(crate) fn lacks(self, request: &InputRequest) -> Option<&'static str> {
        let (can, capability) = match request {
            InputRequest::Elicitation(elicit) => match &elicit.params {
                ElicitRequestParams::FormElicitationParams { .. } => (self.form, "elicitation"),
                _ => (self.url, "elicitation.url"),
            },
            InputRequest::CreateMessage(create)
                if create.params.tools.is_some() || create.params.tool_choice.is_some() =>
            {
                (self.sampling_tools, "sampling.tools")
            }
            InputRequest::CreateMessage(_) => (self.sampling, "sampling"),
            InputRequest::ListRoots(_) => (self.roots, "roots"),
            // Later versions of rmcp may add kinds of questions.
            _ => (false, "unknown"),
        };
        (!can).then_some(capability)
    }

    /// Returns `true` if the client can answer no questions.
    pub(crate) const fn is_nothing(self) -> bool {
        !(self.form || self.url || self.sampling || self.roots)
    }
}

// === impl LiveClient ===

impl LiveClient {
    /// Creates a handle to the client that sent the request with the ID `request`. Returns `None`
    /// if the client can answer no questions.
    pub(super) fn new(peer: &Peer<RoleServer>, request: &RequestId) -> Option<Self> {
        let info = peer.peer_info()?;
        let capabilities = declared(&info.capabilities)?;
        let can = !Abilities::of(&capabilities).is_nothing();
        can.then(|| {
            let (peer, request) = (peer.clone(), request.clone());
            let question_count = AtomicUsize::new(0);
            let turns = Semaphore::new(MAX_QUESTIONS);
            let waiting = ByteBudget::new(MAX_PENDING_BYTES);
            let state = ClientState { peer, request, capabilities, question_count, turns, waiting };
            Self { state: Arc::new(state), questions: None }
        })
    }

    /// Returns the client capabilities that are listed in [`ASKABLE`].
    pub(crate) fn capabilities(&self) -> &Map<String, Value> {
        &self.state.capabilities
    }

    pub(crate) fn abilities(&self) -> Abilities {
        Abilities::of(&self.state.capabilities)
    }

    /// Returns a handle that records in `questions` whether questions were sent through it.
    #[cfg(feature = "cache")]
    pub(crate) fn observed(self, questions: Questions) -> Self {
        Self { questions: Some(questions), ..self }
    }

    /// Returns the parameters of the client's `initialize` request.
    pub(crate) fn info(&self) -> Option<InitializeRequestParams> {
        self.state.peer.peer_info().map(|info| (*info).clone())
    }

    /// Returns `true` if both handles belong to the same request of the same client.
    #[cfg(feature = "remote")]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// Forwards a server's question to the client, and returns the client's answer. Dropping the
    /// future cancels the question.
    ///
    /// # Errors
    ///
    /// Returns the error for the server: the client's error, or the reason why there is no answer.
    pub(crate) async fn relay(&self, request: InputRequest) -> Result<ClientResult, ErrorData> {
        self.note_question();
        if let Some(capability) = self.abilities().lacks(&request) {
            return Err(unanswered(format!("the client does not declare `{capability}`")));
        }
        let turn = self.turn(&request).await.map_err(unanswered)?;
        let answer = turn.answer(request);
        let answer = match &self.questions {
            None => answer.await,
            Some(questions) => {
                let ended = questions.0.ended.run_until_cancelled(answer);
                ended.await.unwrap_or(Err(ServiceError::TransportClosed))
            }
        };
        answer.map_err(|error| match error {
            ServiceError::McpError(error) => error,
            ServiceError::UnexpectedResponse => {
                unanswered("the client returned an invalid response")
            }
            _ => unanswered("the client is gone"),
        })
    }

    /// Records that a question was asked, if questions are recorded.
    fn note_question(&self) {
        if let Some(questions) = &self.questions {
            questions.0.has_asked.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until fewer than [`MAX_QUESTIONS`] questions are unanswered. Returns the permit to
    /// send `question`.
    ///
    /// # Errors
    ///
    /// Returns an error message if the call has ended, if there were more than
    /// [`MAX_REQUEST_QUESTIONS`] questions during the request, or if the unanswered questions
    /// exceed [`MAX_PENDING_BYTES`].
    pub(crate) async fn turn(&self, question: &InputRequest) -> Result<Turn<'_>, String> {
        if self.questions.as_ref().is_some_and(|questions| questions.0.ended.is_cancelled()) {
            return Err("the client is gone".to_owned());
        }
        self.note_question();
        let ClientState { question_count, turns, waiting, .. } = &*self.state;
        if question_count.fetch_add(1, Ordering::Relaxed) >= MAX_REQUEST_QUESTIONS {
            return Err(too_many());
        }
        let bytes = waiting.reserve(json_bytes(question)).ok_or_else(|| {
            format!("the open questions of one request have more than {MAX_PENDING_BYTES} bytes")
        })?;
        // The semaphore is never closed.
        Ok(Turn { client: &self.state, _permit: turns.acquire().await.ok(), _bytes: bytes })
    }
}

// === impl Questions ===

#[cfg(feature = "cache")]
impl Questions {
    /// Returns `true` if a question was asked during the call, even if it was not answered.
    pub(crate) fn has_asked(&self) -> bool {
        self.0.has_asked.load(Ordering::Relaxed)
    }

    /// Withdraws all unanswered questions of the call, and rejects further ones.
    pub(crate) fn end(&self) {
        self.0.ended.cancel();
    }
}

// === impl Turn ===

impl Turn<'_> {
    /// Sends a question to the client, and waits for the answer without a timeout. Dropping the
    /// future cancels the question.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection is closed, if the client answers with an error, or if the
    /// type of the answer does not match the question.
    pub(crate) async fn ask(self, request: InputRequest) -> Result<Value, ServiceError> {
        let result = match self.answer(request).await? {
            ClientResult::ElicitResult(result) => serde_json::to_value(result),
            ClientResult::CreateMessageResult(result) => serde_json::to_value(result),
            ClientResult::ListRootsResult(result) => serde_json::to_value(result),
            _ => return Err(ServiceError::UnexpectedResponse),
        };
        result.map_err(|_| ServiceError::UnexpectedResponse)
    }

    async fn answer(self, request: InputRequest) -> Result<ClientResult, ServiceError> {
        let ClientState { peer, request: origin, .. } = self.client;
        // Set explicitly, because rmcp knows the originating request only in the task that runs the
        // request.
        let origin = OriginatingRequestId(origin.clone());
        // rmcp parses an answer as the first result type that matches, so an invalid answer arrives
        // as another type.
        let (request, answers): (_, fn(&ClientResult) -> bool) = match request {
            InputRequest::Elicitation(mut request) => {
                request.extensions.insert(origin);
                let answers = |result: &_| matches!(result, ClientResult::ElicitResult(_));
                (ServerRequest::ElicitRequest(request), answers)
            }
            InputRequest::CreateMessage(mut request) => {
                request.extensions.insert(origin);
                let answers = |result: &_| matches!(result, ClientResult::CreateMessageResult(_));
                (ServerRequest::CreateMessageRequest(request), answers)
            }
            InputRequest::ListRoots(mut request) => {
                request.extensions.insert(origin);
                let answers = |result: &_| matches!(result, ClientResult::ListRootsResult(_));
                (ServerRequest::ListRootsRequest(request), answers)
            }
            _ => return Err(ServiceError::UnexpectedResponse),
        };
        // Sent from a separate task, because the caller may run inside a request of another
        // connection. rmcp would then use the id of that request as the origin. Dropping the set
        // aborts the task.
        let mut asking = JoinSet::new();
        asking.spawn(put(peer.clone(), request).in_current_span());
        let answer = asking.join_next().await;
        let result = answer.and_then(Result::ok).unwrap_or(Err(ServiceError::TransportClosed))?;
        if answers(&result) { Ok(result) } else { Err(ServiceError::UnexpectedResponse) }
    }
}

impl fmt::Debug for LiveClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveClient").field("request", &self.state.request).finish_non_exhaustive()
    }
}

/// Returns the error -32021 (missing required client capability) of a server with the standard
/// message. Returns `None` for other errors, and for capabilities that are not forwarded to the
/// client.
///
/// The returned error contains no text of the server, and only standard capabilities. Clients may
/// therefore see it even if other errors of servers are hidden.
pub(crate) fn missing_capability(error: &ErrorData) -> Option<ErrorData> {
    if error.code != ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY {
        return None;
    }
    let required = error.data.as_ref()?.get("requiredCapabilities")?;
    let required: ClientCapabilities = serde_json::from_value(required.clone()).ok()?;
    let ClientCapabilities { experimental, extensions, .. } = &required;
    let is_relayed = experimental.is_none() && extensions.is_none();
    is_relayed.then(|| ErrorData::missing_required_client_capability(required))
}

/// Sends a server's request to the client, and waits for the answer. Dropping the future cancels
/// the request.
async fn put(peer: Peer<RoleServer>, request: ServerRequest) -> Result<ClientResult, ServiceError> {
    let options = PeerRequestOptions::no_options();
    let handle = peer.send_request_with_option(request, options).await?;
    let mut pending = Pending { handle, since: Instant::now(), answered: false };
    let answer = (&mut pending.handle.rx).await;
    pending.answered = true;
    answer.unwrap_or(Err(ServiceError::TransportClosed))
}

/// Returns the client capabilities that are listed in [`ASKABLE`]. Returns `None` if the client
/// declares none of them.
fn declared(capabilities: &ClientCapabilities) -> Option<Map<String, Value>> {
    let ClientCapabilities { elicitation, sampling, roots, .. } = capabilities;
    if elicitation.is_none() && sampling.is_none() && roots.is_none() {
        return None;
    }
    let Ok(Value::Object(mut capabilities)) = serde_json::to_value(capabilities) else {
        return None;
    };
    capabilities.retain(|name, _| ASKABLE.contains(&name.as_str()));
    Some(capabilities)
}

// === impl Pending ===

impl Drop for Pending {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let reason = Some("the request has ended".to_owned());
        let params = CancelledNotificationParam::new(Some(self.handle.id.clone()), reason);
        let peer = self.handle.peer.clone();
        let is_new = self.since.elapsed() < ON_ITS_WAY;
        let mut notify = Box::pin(async move {
            drop(peer.notify_cancelled(params.clone()).await);
            // rmcp sends each message from a separate task, so the cancellation can arrive before
            // the question and have no effect. It is therefore sent again later, which does no
            // harm.
            if is_new {
                sleep(ON_ITS_WAY).await;
                drop(peer.notify_cancelled(params).await);
            }
        });
        // The first poll queues the message on the connection, even outside a runtime. Inside a
        // runtime, a spawned task waits until the message is sent.
        if unconstrained(&mut notify).now_or_never().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(notify);
        }
    }
}
