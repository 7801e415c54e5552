//! A backend that requires access tokens.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use mcp_composite::{
    adapter::ServeService,
    message::{Reply, Request as Message},
};
use rmcp::{
    ErrorData,
    model::{
        CallToolResult, ContentBlock, ElicitRequestParams, ElicitationSchema, ListToolsResult,
        ServerCapabilities, ServerConfig, Tool,
    },
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

use crate::{
    http::{Server, listen},
    support::Era,
};

/// A backend with the tool `whoami`, which returns its argument and the token of the call, and the
/// tool `ask`, which asks the user.
pub(super) struct Protected {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The headers of all requests.
    headers: Mutex<Vec<HeaderMap>>,
    revoked: Mutex<HashSet<String>>,
    /// The value of `WWW-Authenticate` when a token is rejected.
    challenge: Option<String>,
    ended_sessions: AtomicUsize,
    /// The number of pending calls of the tool `wait`.
    waiting: AtomicUsize,
}

// === impl Protected ===

impl Protected {
    pub(super) async fn start(era: Era, challenges: bool) -> Self {
        let challenge = challenges.then(|| "Bearer error=\"invalid_token\"".to_owned());
        Self::start_with(era, challenge).await
    }

    pub(super) async fn start_with(era: Era, challenge: Option<String>) -> Self {
        let shared = Arc::new(Shared { challenge, ..Shared::default() });
        let of = shared.clone();
        let whoami = service_fn(move |message: Message| whoami(message, of.clone()));
        let config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        let handler = ServeService::new(whoami, config);
        let shutdown = CancellationToken::new();
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(era == Era::Legacy)
            .with_cancellation_token(shutdown.clone());
        let service = StreamableHttpService::new(
            move || Ok(handler.clone()),
            LocalSessionManager::default().into(),
            config,
        );
        let router = axum::Router::new().fallback_service(service);
        let check = from_fn_with_state((shared.clone(), era), check);
        Self { server: listen(router.layer(check), shutdown).await, shared }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.server.address)
    }

    /// Rejects a token from now on.
    pub(super) fn revoke(&self, token: &str) {
        self.shared.revoked.lock().unwrap().insert(token.to_owned());
    }

    /// Returns the number of requests that ended a session.
    pub(super) fn ended_sessions(&self) -> usize {
        self.shared.ended_sessions.load(Ordering::Relaxed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// Returns the headers of all requests.
    pub(super) fn headers(&self) -> Vec<HeaderMap> {
        self.shared.headers.lock().unwrap().clone()
    }
}

async fn whoami(message: Message, shared: Arc<Shared>) -> Result<Reply, BoxError> {
    let Some(call) = message.tool_call() else {
        let schema = json!({ "type": "object" }).as_object().cloned().unwrap();
        let whoami = Tool::new("whoami", "Returns the token", schema.clone());
        let tools = vec![whoami, Tool::new("ask", "Asks the user", schema)];
        return Ok(ListToolsResult::with_all_items(tools).into());
    };
    let parts = message.context().extensions().get::<http::request::Parts>().unwrap();
    if call.name == "wait" {
        shared.waiting.fetch_add(1, Ordering::Relaxed);
        return std::future::pending().await;
    }
    if call.name == "quote" {
        let message = format!("no access for {}", bearer(&parts.headers).unwrap());
        return Ok(ErrorData::internal_error(message, None).into());
    }
    if call.name == "ask" {
        let token = bearer(&parts.headers).unwrap();
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: format!("{token} asks"),
            requested_schema: ElicitationSchema::new(Default::default()),
        };
        let answer = message.context().peer().unwrap().create_elicitation(params).await;
        let text = json!([token, format!("{answer:?}")]).to_string();
        return Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into());
    }
    let text = json!([call.arguments, bearer(&parts.headers)]).to_string();
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
}

/// Returns the bearer token in the headers of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("authorization")?.to_str().unwrap();
    value.strip_prefix("Bearer ").map(str::to_owned)
}

async fn check(
    State((shared, era)): State<(Arc<Shared>, Era)>,
    request: Request,
    next: Next,
) -> Response {
    shared.headers.lock().unwrap().push(request.headers().clone());
    let token = bearer(request.headers());
    if request.method() == Method::DELETE {
        shared.ended_sessions.fetch_add(1, Ordering::Relaxed);
    }
    let is_valid = token.is_some_and(|token| !shared.revoked.lock().unwrap().contains(&token));
    if !is_valid {
        let response = StatusCode::UNAUTHORIZED.into_response();
        return match &shared.challenge {
            Some(challenge) => ([("www-authenticate", &**challenge)], response).into_response(),
            None => response,
        };
    }
    // A server of an older version does not know the first request of the newer one.
    let method = request.headers().get("mcp-method").cloned();
    if era == Era::Legacy && method.is_some_and(|method| method == "server/discover") {
        return StatusCode::BAD_REQUEST.into_response();
    }
    next.run(request).await
}
