//! Sends requests to a remote server and converts the responses.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::FutureExt;
#[expect(deprecated, reason = "older servers know no other")]
use rmcp::model::{
    LoggingLevel, SetLevelRequest, SetLevelRequestParams, SubscribeRequest, UnsubscribeRequest,
    UnsubscribeRequestParams,
};
use rmcp::{
    Peer, RoleClient, ServiceError,
    model::{
        CancelledNotificationParam, ClientRequest, ErrorCode, ErrorData, JsonObject, RequestId,
        RequestMetaObject, ServerResult, SubscribeRequestParams, TASKS_EXTENSION_ID, TaskPayload,
    },
    service::{PeerRequestOptions, RequestHandle},
};
use serde_json::{Map, Value, json};
use tokio::{runtime::Handle, task::coop::unconstrained};
use tokio_util::sync::CancellationToken;

use super::{
    client::Session,
    logs::LogRoute,
    pending_calls::{CallOnItsWay, MAX_QUESTION_BYTES},
    redaction::{ends_session, unsent},
    state::{Connection, Remote},
    tokens::Tokens,
};
use crate::{
    adapter::{is_modern, progress_routes::Route},
    json_size::json_bytes,
    message::{
        BackendError, BackendErrorKind, CLIENT_CAPABILITIES, Context, Logs, Reply, Request,
        Subject,
        client::{ASKABLE, LiveClient, MAX_QUESTIONS, may_ask, missing_capability},
        expected, members,
    },
};

/// The `_meta` keys of the trace context, which are forwarded from the caller to the server.
///
/// No other `_meta` keys are forwarded by default, because they may describe the caller's
/// connection.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];
/// The `_meta` key under which a result contains the server's name and version.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// A request to a remote server whose response has not arrived yet. Dropping this value sends the
/// server a notification that cancels the request.
struct Pending<'c> {
    connection: &'c Connection,
    handle: RequestHandle<RoleClient>,
    /// While this value exists, the server may ask the caller's user questions. Dropping it
    /// withdraws the unanswered questions. `None` if the server may not ask questions about this
    /// request.
    _registration: Option<CallOnItsWay>,
    answered: bool,
    /// Forwards the server's progress notifications to the caller until it is dropped. `None` if
    /// the caller has not requested progress.
    _route: Option<Route>,
    /// While this value exists, the request's client can receive the server's log messages.
    _logs: LogRoute,
}

// === impl Connection ===

impl Connection {
    pub(super) fn new(remote: &Arc<Remote>, session: &Session, closed: CancellationToken) -> Self {
        let client = session.service();
        let connection = Self::over(remote, session.peer().clone(), client.tokens.clone(), closed);
        // Newer servers need no registration, because they return their questions in the response.
        let asks = remote.elicitation && !connection.modern;
        let calls = asks.then(|| client.calls.clone());
        Self { calls, declares_nothing: !remote.elicitation, ..connection }
    }

    /// Creates a connection that sends requests over an rmcp peer. The caller of this function must
    /// keep the peer's session alive.
    pub(super) fn over(
        remote: &Arc<Remote>,
        peer: Peer<RoleClient>,
        tokens: Arc<Tokens>,
        closed: CancellationToken,
    ) -> Self {
        let info = peer.peer_info();
        let modern = info.as_ref().is_some_and(|info| is_modern(&info.protocol_version));
        let tasks = modern && info.as_ref().is_some_and(|info| info.capabilities.supports_tasks());
        let logs = info.is_some_and(|info| info.capabilities.logging.is_some());
        Self {
            about: remote.about.clone(),
            peer,
            modern,
            closed,
            tokens,
            calls: None,
            elicitation: remote.elicitation,
            declares_nothing: false,
            tasks,
            logs,
            passed_meta: remote.passed_meta.clone(),
            remote: Arc::downgrade(remote),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Sends a request to the server and waits for its response. Dropping the future cancels the
    /// request.
    pub(super) async fn call(&self, request: Request) -> Result<Reply, BackendError> {
        let is_list = matches!(request.subject(), Subject::List(..));
        let (message, context) = request.into_parts();
        let is_expected = expected(&message);
        let method = message.method().to_owned();

        let mut pending = self.send(message, &context).await?;
        let answer = pending.answer().await;
        drop(pending);

        if matches!(answer, Ok(_) | Err(ServiceError::McpError(_))) {
            self.has_come_back();
        }
        match answer {
            Ok(mut result) if is_expected(&result) => {
                if let Err(why) = self.check_questions(&result) {
                    tracing::warn!(
                        backend = &*self.about.name,
                        method,
                        why,
                        "rejected the questions of a backend"
                    );
                    return Ok(self
                        .error(&format!("requested input, which was rejected: {why}"))
                        .into());
                }
                if let ServerResult::GetTaskResult(task) = &mut result {
                    self.translate_task(&mut task.task.payload);
                }
                forget_server(&mut result);
                Ok(result.into())
            }
            Ok(_) => {
                tracing::warn!(
                    backend = &*self.about.name,
                    method,
                    "a backend returned an invalid response"
                );
                Ok(self.error("returned an invalid response").into())
            }
            // Servers without tools, prompts or resources may reject the list request in this way,
            // for example a wrapped handler.
            Err(ServiceError::McpError(error))
                if is_list && error.code == ErrorCode::METHOD_NOT_FOUND =>
            {
                Ok(Reply::method_not_found(method))
            }
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                Err(BackendError::new(self.about.name.clone(), BackendErrorKind::Unsupported))
            }
            Err(ServiceError::McpError(error)) => Ok(self.translate(error).into()),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Checks the questions for the user in an `InputRequired` result or in the state of a task.
    /// Returns an error message if the server may not ask questions, or if the questions are too
    /// many or too large.
    fn check_questions(&self, result: &ServerResult) -> Result<(), &'static str> {
        let (requests, state) = match result {
            ServerResult::InputRequiredResult(asks) => {
                (asks.input_requests.as_ref(), asks.request_state.as_ref())
            }
            ServerResult::GetTaskResult(task) => match &task.task.payload {
                TaskPayload::InputRequired { input_requests } => (Some(input_requests), None),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        let questions = || requests.into_iter().flatten();
        if !self.elicitation && questions().next().is_some() {
            return Err("questions of this backend are not allowed");
        }
        if questions().count() > MAX_QUESTIONS {
            return Err("too many questions at once");
        }
        let state = state.map_or(0, String::len);
        let bytes = questions().map(|(key, request)| key.len() + json_bytes(request));
        if bytes.sum::<usize>() + state > MAX_QUESTION_BYTES {
            return Err("the questions are too large");
        }
        Ok(())
    }

    async fn send(
        &self,
        message: ClientRequest,
        context: &Context,
    ) -> Result<Pending<'_>, BackendError> {
        let mut options = PeerRequestOptions::no_options();
        options.meta = self.meta(&message, context);
        let registering = match &self.calls {
            Some(calls) => calls.registering(&message).await,
            None => None,
        };
        let logs = self.tokens.logs.open(context.logs(), &self.about);
        let mut route = None;
        let sent = match context.progress() {
            None => self.peer.send_request_with_option(message, options).await,
            Some(progress) => {
                let routes = self.tokens.routes.lock().await;
                let sent = self.peer.send_request_with_option(message, options).await;
                if let Ok(handle) = &sent {
                    route = Some(routes.open(handle.progress_token.clone(), progress.clone()));
                }
                sent
            }
        };
        match sent {
            Ok(handle) => {
                let _registration = registering.map(|registering| {
                    registering.sent(handle.id.clone(), context.known_live_client().cloned())
                });
                Ok(Pending {
                    connection: self,
                    handle,
                    _registration,
                    answered: false,
                    _route: route,
                    _logs: logs,
                })
            }
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Returns the `_meta` for the request to the server, or `None` if it would be empty. Most
    /// members of the caller's `_meta` are not forwarded, because they describe the caller's
    /// protocol version and identity.
    fn meta(&self, message: &ClientRequest, context: &Context) -> Option<RequestMetaObject> {
        let from = context.meta();
        // The `_meta` of an older caller contains no capabilities: it has declared them at
        // initialization.
        let live_client = context.known_live_client();
        // rmcp copies this `_meta` into the request, and adds the capabilities of this program's
        // client itself.
        let log_level = context.logs().filter(|_| self.modern && self.logs).map(Logs::level);
        let declares_tasks = self.tasks && context.polls_tasks;
        if from.is_empty()
            && live_client.is_none()
            && log_level.is_none()
            && !declares_tasks
            && (self.declares_nothing || !self.modern)
        {
            return None;
        }
        let passed = self.passed_meta.iter().map(String::as_str);
        let mut meta = members(from, TRACE.into_iter().chain(passed));
        if self.modern {
            let capabilities = match from.get(CLIENT_CAPABILITIES) {
                Some(capabilities) => capabilities.as_object(),
                None => live_client.filter(|_| may_ask(message)).map(LiveClient::capabilities),
            };
            let capabilities = capabilities.filter(|_| self.elicitation);
            let mut relayed =
                capabilities.map_or_else(Map::new, |capabilities| members(capabilities, ASKABLE));
            if declares_tasks {
                relayed.insert("extensions".to_owned(), json!({ TASKS_EXTENSION_ID: {} }));
            }
            if !(relayed.is_empty() && self.declares_nothing) {
                meta.insert(CLIENT_CAPABILITIES.to_owned(), Value::Object(relayed));
            }
        }
        let mut meta = RequestMetaObject::from(meta);
        if let Some(level) = log_level {
            meta.set_log_level(level);
        }
        Some(meta).filter(|meta| !meta.is_empty())
    }

    /// Converts a JSON-RPC error of the server into the error that the caller receives.
    ///
    /// Errors about the connection to the server, such as an unsupported protocol version, are
    /// replaced by an internal error. The caller would mistake them for errors of its own
    /// connection. An error about a missing client capability is kept if the caller's capabilities
    /// were sent to the server.
    fn translate(&self, mut error: ErrorData) -> ErrorData {
        if self.modern
            && self.elicitation
            && let Some(error) = missing_capability(&error)
        {
            return error;
        }
        self.about.redact_error(&mut error);
        match error.code {
            ErrorCode::HEADER_MISMATCH
            | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
            | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
            | ErrorCode::PARSE_ERROR
            | ErrorCode::INVALID_REQUEST => {
                let error = self.about.redact_text(&error.message);
                tracing::warn!(backend = &*self.about.name, error, "a backend rejected a request");
                self.error("refused the request")
            }
            _ => error,
        }
    }

    /// Converts the outcome of a task like the reply to a call: translates the error of a failed
    /// task, and removes the server's name and version from the result of a completed task.
    fn translate_task(&self, payload: &mut TaskPayload) {
        match payload {
            TaskPayload::Completed { result } => forget_server_in(result),
            TaskPayload::Failed { error } => {
                let parsed = serde_json::from_value(Value::Object(mem::take(error)));
                let parsed = parsed.unwrap_or_else(|_| self.error("returned an invalid error"));
                if let Ok(Value::Object(translated)) = serde_json::to_value(self.translate(parsed))
                {
                    *error = translated;
                }
            }
            _ => (),
        }
    }

    /// Marks all lists of the server as changed if the server was unreachable before. It may have
    /// been restarted in the meantime.
    fn has_come_back(&self) {
        if self.has_failed.load(Ordering::Relaxed)
            && self.has_failed.swap(false, Ordering::Relaxed)
            && let Some(remote) = self.remote.upgrade()
        {
            remote.tools_changed();
            remote.lists.prompts.bump();
            remote.lists.resources.bump();
        }
    }

    fn error(&self, what: &str) -> ErrorData {
        ErrorData::internal_error(format!("backend `{}` {what}", self.about.name), None)
    }

    fn failure(&self, error: &ServiceError) -> BackendError {
        let kind = match error {
            ServiceError::TransportClosed => BackendErrorKind::ConnectionLost,
            ServiceError::TransportSend(_) if ends_session(error) => {
                self.closed.cancel();
                BackendErrorKind::ConnectionLost
            }
            ServiceError::TransportSend(_) => unsent(error),
            _ => BackendErrorKind::Failed,
        };
        if kind == BackendErrorKind::NotConnected {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        let reason = self.about.redact_chain(error);
        BackendError::new(self.about.name.clone(), kind).with_source(reason)
    }
}

// === impl Pending ===

impl Pending<'_> {
    async fn answer(&mut self) -> Result<ServerResult, ServiceError> {
        tokio::select! {
            // If the connection is lost after the response has arrived, the response is still used.
            biased;
            answer = &mut self.handle.rx => {
                self.answered = true;
                answer.unwrap_or(Err(ServiceError::TransportClosed))
            }
            () = self.connection.closed.cancelled() => {
                self.answered = true;
                Err(ServiceError::TransportClosed)
            }
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.answered {
            cancel(self.connection.peer.clone(), self.handle.id.clone());
        }
    }
}

/// Sends the server a notification that cancels the request with the given id. Does not wait until
/// the notification has been sent.
fn cancel(peer: Peer<RoleClient>, id: RequestId) {
    let params = CancelledNotificationParam::new(
        Some(id),
        Some("the caller cancelled the request".to_owned()),
    );
    let mut notify = Box::pin(async move {
        if let Err(error) = peer.notify_cancelled(params).await {
            drop(error);
        }
    });
    // The first poll puts the notification into the connection's queue, even without a Tokio
    // runtime and regardless of the task's budget. Further polls are only needed to wait until a
    // full queue has space, and for the outcome.
    if unconstrained(&mut notify).now_or_never().is_none()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(notify);
    }
}

#[expect(deprecated, reason = "older servers know no other")]
pub(super) fn subscribe(uri: impl Into<String>) -> SubscribeRequest {
    SubscribeRequest::new(SubscribeRequestParams::new(uri))
}

#[expect(deprecated, reason = "older servers know no other")]
pub(super) fn set_level(level: LoggingLevel) -> SetLevelRequest {
    SetLevelRequest::new(SetLevelRequestParams::new(level))
}

#[expect(deprecated, reason = "older servers know no other")]
pub(super) fn unsubscribe(uri: impl Into<String>) -> UnsubscribeRequest {
    UnsubscribeRequest::new(UnsubscribeRequestParams::new(uri))
}

/// Removes the backend server's name and version from the `_meta` of a result. The server that
/// answers the client adds its own name and version.
fn forget_server(result: &mut ServerResult) {
    let meta = match result {
        ServerResult::CallToolResult(result) => &mut result.meta,
        ServerResult::GetPromptResult(result) => &mut result.meta,
        ServerResult::ReadResourceResult(result) => &mut result.meta,
        ServerResult::CompleteResult(result) => &mut result.meta,
        ServerResult::InputRequiredResult(result) => &mut result.meta,
        _ => return,
    };
    if let Some(map) = meta
        && map.remove(SERVER_INFO).is_some()
        && map.is_empty()
    {
        *meta = None;
    }
}

/// Removes the backend server's name and version from the `_meta` of a result that is not parsed.
fn forget_server_in(result: &mut JsonObject) {
    if let Some(Value::Object(meta)) = result.get_mut("_meta")
        && meta.remove(SERVER_INFO).is_some()
        && meta.is_empty()
    {
        result.remove("_meta");
    }
}
