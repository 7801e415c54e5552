//! The client of a request, as the receiver of elicitation, sampling and roots requests.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
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
use tracing::Instrument;

use crate::json_size::{ByteBudget, json_bytes};

/// The maximum number of questions that a tool may ask at once, and that a client is asked at once
/// during one of its requests.
pub(crate) const MAX_QUESTIONS: usize = 32;
/// The maximum number of questions that a client is asked for one of its requests.
pub(crate) const MAX_ASKED: usize = 1_000;
/// The maximum size, as JSON, of the questions that one request of a client holds at a time: those
/// that the client has not answered, and those that wait for their turn.
pub(crate) const MAX_PENDING_BYTES: usize = 8 << 20;

/// The names of the client capabilities that servers can use.
pub(crate) const ASKABLE: [&str; 3] = [ELICITATION, "sampling", "roots"];
/// The capability to ask the user.
pub(crate) const ELICITATION: &str = "elicitation";

/// Returns `true` if a server may ask the client for input before it answers this request.
pub(crate) const fn may_ask(request: &ClientRequest) -> bool {
    matches!(
        request,
        ClientRequest::CallToolRequest(_)
            | ClientRequest::GetPromptRequest(_)
            | ClientRequest::ReadResourceRequest(_)
    )
}

/// Returns the error for a server whose request to the client is not answered.
///
/// It is an error and not a decline: the user has not seen the question, and a server would report
/// that they declined. Most servers pass an error on.
pub(crate) fn unanswered(reason: impl Into<String>) -> ErrorData {
    let reason = reason.into();
    tracing::debug!(reason, "what a server asks for was not answered");
    ErrorData::invalid_request(reason, None)
}

/// Returns the message for more than [`MAX_ASKED`] questions for one request.
pub(crate) fn too_many() -> String {
    format!("more than {MAX_ASKED} questions were asked for one request")
}

/// The declared capabilities of the client of a request.
///
/// By default, the client cannot be asked for anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Elicitation with a form.
    pub(crate) form: bool,
    /// Elicitation by URL.
    pub(crate) url: bool,
    pub(crate) sampling: bool,
    /// Sampling with tools that the model may call.
    pub(crate) sampling_tools: bool,
    pub(crate) roots: bool,
}

/// A client with a protocol before 2026-07-28, which is asked during its request.
#[derive(Clone)]
pub(crate) struct LiveClient(Arc<ClientState>);

struct ClientState {
    peer: Peer<RoleServer>,
    /// The request that the client waits for; over HTTP, questions are sent on its stream.
    request: RequestId,
    /// The capabilities that the client declares.
    capabilities: Map<String, Value>,
    /// The number of questions asked so far, by all servers and composites.
    asked: AtomicUsize,
    /// One permit for each question that can be asked now.
    turns: Semaphore,
    /// The bytes of the questions that are open or wait for their turn.
    waiting: ByteBudget,
}

/// The turn of a question; their number at a time is limited.
pub(crate) struct Turn<'c> {
    client: &'c ClientState,
    _permit: Option<SemaphorePermit<'c>>,
    _bytes: SemaphorePermit<'c>,
}

/// A question that has been sent. Dropping it cancels the question.
struct Pending {
    handle: RequestHandle<RoleServer>,
    since: Instant,
    answered: bool,
}

/// The maximum time that a question usually takes to reach the connection.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

// === impl Abilities ===

impl Abilities {
    /// Parses declared capabilities.
    pub(crate) fn of(capabilities: &Map<String, Value>) -> Self {
        let elicitation = capabilities.get("elicitation").and_then(Value::as_object);
        let url = elicitation.is_some_and(|modes| modes.contains_key("url"));
        Self {
            // No mode at all means forms: older protocols have no other mode.
            form: elicitation.is_some_and(|modes| modes.contains_key("form") || !url),
            url,
            sampling: capabilities.contains_key("sampling"),
            sampling_tools: capabilities
                .get("sampling")
                .is_some_and(|sampling| sampling.get("tools").is_some()),
            roots: capabilities.contains_key("roots"),
        }
    }

    /// Returns the capability that the client lacks for this question, if any.
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
            // Kinds of questions that later versions of rmcp may add.
            _ => (false, "unknown"),
        };
        (!can).then_some(capability)
    }

    /// Returns `true` if the client cannot be asked for anything.
    pub(crate) const fn is_nothing(self) -> bool {
        !(self.form || self.url || self.sampling || self.roots)
    }
}

// === impl LiveClient ===

impl LiveClient {
    /// Returns the client of a request, if it can be asked for anything.
    pub(super) fn new(peer: &Peer<RoleServer>, request: &RequestId) -> Option<Self> {
        let info = peer.peer_info()?;
        let capabilities = declared(&info.capabilities)?;
        let can = !Abilities::of(&capabilities).is_nothing();
        can.then(|| {
            let (peer, request) = (peer.clone(), request.clone());
            let (asked, turns) = (AtomicUsize::new(0), Semaphore::new(MAX_QUESTIONS));
            let waiting = ByteBudget::new(MAX_PENDING_BYTES);
            Self(Arc::new(ClientState { peer, request, capabilities, asked, turns, waiting }))
        })
    }

    /// Returns the capabilities that the client declares.
    pub(crate) fn capabilities(&self) -> &Map<String, Value> {
        &self.0.capabilities
    }

    pub(crate) fn abilities(&self) -> Abilities {
        Abilities::of(&self.0.capabilities)
    }

    /// Returns the client's `initialize` parameters.
    pub(crate) fn info(&self) -> Option<InitializeRequestParams> {
        self.0.peer.peer_info().map(|info| (*info).clone())
    }

    /// Returns `true` if both are the client of the same request.
    #[cfg(feature = "remote")]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Relays a question of a server to the client and returns the answer. Dropping the future
    /// cancels the question.
    ///
    /// # Errors
    ///
    /// Returns the error for the server: the client's error, or the reason why there is no answer.
    pub(crate) async fn relay(&self, request: InputRequest) -> Result<ClientResult, ErrorData> {
        if let Some(capability) = self.abilities().lacks(&request) {
            return Err(unanswered(format!("the client does not declare `{capability}`")));
        }
        let turn = self.turn(&request).await.map_err(unanswered)?;
        turn.answer(request).await.map_err(|error| match error {
            ServiceError::McpError(error) => error,
            ServiceError::UnexpectedResponse => unanswered("the client gave an invalid answer"),
            _ => unanswered("the client is gone"),
        })
    }

    /// Waits for the turn of a question.
    ///
    /// # Errors
    ///
    /// Returns a message for the client if there were too many questions, or if those that
    /// wait are too large together.
    pub(crate) async fn turn(&self, question: &InputRequest) -> Result<Turn<'_>, String> {
        let ClientState { asked, turns, waiting, .. } = &*self.0;
        if asked.fetch_add(1, Ordering::Relaxed) >= MAX_ASKED {
            return Err(too_many());
        }
        let bytes = waiting.reserve(json_bytes(question)).ok_or_else(|| {
            format!("the open questions of one request have more than {MAX_PENDING_BYTES} bytes")
        })?;
        // The semaphore is never closed.
        Ok(Turn { client: &self.0, _permit: turns.acquire().await.ok(), _bytes: bytes })
    }
}

// === impl Turn ===

impl Turn<'_> {
    /// Sends the question and waits for the answer without a timeout. Dropping the future cancels
    /// the question.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection is closed or the client rejects the question.
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
        // rmcp knows the originating request only in the task that it runs the request in.
        let origin = OriginatingRequestId(origin.clone());
        // rmcp parses an answer as the first type that matches.
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
        // In a task of its own: the caller may run within a request of another connection, whose id
        // rmcp would take for the origin. Dropping the set aborts the task.
        let mut asking = JoinSet::new();
        asking.spawn(put(peer.clone(), request).in_current_span());
        let answer = asking.join_next().await;
        let result = answer.and_then(Result::ok).unwrap_or(Err(ServiceError::TransportClosed))?;
        if answers(&result) { Ok(result) } else { Err(ServiceError::UnexpectedResponse) }
    }
}

impl fmt::Debug for LiveClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveClient").field("request", &self.0.request).finish_non_exhaustive()
    }
}

/// Returns the error -32021 of a server, in the words of the protocol, if the capabilities that the
/// server requires of the client can be relayed.
///
/// Its `data` names only capabilities that are relayed, so it may be shown to the client even if
/// other details of an error may not.
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

/// Sends a question over a connection and waits for the answer. Dropping the future cancels the
/// question.
async fn put(peer: Peer<RoleServer>, request: ServerRequest) -> Result<ClientResult, ServiceError> {
    let options = PeerRequestOptions::no_options();
    let handle = peer.send_request_with_option(request, options).await?;
    let mut pending = Pending { handle, since: Instant::now(), answered: false };
    let answer = (&mut pending.handle.rx).await;
    pending.answered = true;
    answer.unwrap_or(Err(ServiceError::TransportClosed))
}

/// Returns the declared capabilities in [`ASKABLE`], or `None` if there are none.
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
        let reason = Some("nobody waits for the answer any more".to_owned());
        let params = CancelledNotificationParam::new(Some(self.handle.id.clone()), reason);
        let peer = self.handle.peer.clone();
        let is_new = self.since.elapsed() < ON_ITS_WAY;
        let mut notify = Box::pin(async move {
            drop(peer.notify_cancelled(params.clone()).await);
            // rmcp sends each message from a task of its own, so this one can overtake the question
            // and have no effect. Sending it twice does no harm.
            if is_new {
                sleep(ON_ITS_WAY).await;
                drop(peer.notify_cancelled(params).await);
            }
        });
        // The first poll queues the message on the connection, even without a runtime. The rest
        // waits for the outcome of sending.
        if unconstrained(&mut notify).now_or_never().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(notify);
        }
    }
}
