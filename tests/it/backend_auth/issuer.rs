//! An authorization server with a token endpoint.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use mcp_composite::adapter::remote::oauth::OAuthClient;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::http::{Server, listen_at};

pub(super) const CLIENT: &str = "gate way";
pub(super) const SECRET: &str = "hunter2/+ &=";

/// An authorization server, which records its requests.
pub(super) struct Issuer {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Default)]
pub(super) struct Shared {
    /// The parameters of each request.
    pub(super) requests: Mutex<Vec<BTreeMap<String, String>>>,
    /// The answers to the next requests, in place of tokens.
    answers: Mutex<VecDeque<Answer>>,
    /// The member `expires_in` of answers.
    lifetime: Mutex<Option<u64>>,
}

/// An answer in place of a token.
pub(super) enum Answer {
    Response(Response),
    Never,
}

// === impl Issuer ===

impl Issuer {
    pub(super) async fn start() -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into()).await
    }

    pub(super) async fn start_at(address: SocketAddr) -> Self {
        let shared = Arc::<Shared>::default();
        let router = axum::Router::new().route("/token", post(token)).with_state(shared.clone());
        Self { server: listen_at(address, router, CancellationToken::new()).await, shared }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/token", self.server.address)
    }

    pub(super) fn client(&self) -> OAuthClient {
        OAuthClient::new(self.url(), CLIENT, SECRET)
    }

    /// Sets the member `expires_in` of later answers.
    pub(super) fn lifetime(&self, seconds: u64) {
        *self.shared.lifetime.lock().unwrap() = Some(seconds);
    }

    /// Answers the next request in this way.
    pub(super) fn answers(&self, response: impl IntoResponse) {
        let answer = Answer::Response(response.into_response());
        self.shared.answers.lock().unwrap().push_back(answer);
    }

    /// Does not answer the next request.
    pub(super) fn hangs(&self) {
        self.shared.answers.lock().unwrap().push_back(Answer::Never);
    }

    pub(super) fn count(&self) -> usize {
        self.shared.requests.lock().unwrap().len()
    }

    /// Returns the parameters of all requests.
    pub(super) fn requests(&self) -> Vec<BTreeMap<String, String>> {
        self.shared.requests.lock().unwrap().clone()
    }
}

/// Issues the token `token-N` with the first grant of this server, and `NAME-N` for a token of
/// `NAME`.
async fn token(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let form = |bytes: &[u8]| -> BTreeMap<String, String> {
        form_urlencoded::parse(bytes).into_owned().collect()
    };
    let mut parameters = form(&body);
    let basic = headers.get("authorization").map(|value| {
        let encoded = value.to_str().unwrap().strip_prefix("Basic ").unwrap();
        let pair = String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap()).unwrap();
        let (id, secret) = pair.split_once(':').unwrap();
        // Both are encoded like parameters.
        form(format!("id={id}&secret={secret}").as_bytes())
    });
    let (id, secret) = match &basic {
        Some(basic) => (basic.get("id").cloned(), basic.get("secret").cloned()),
        None => (parameters.remove("client_id"), parameters.remove("client_secret")),
    };
    let number = {
        let mut requests = shared.requests.lock().unwrap();
        requests.push(parameters.clone());
        requests.len()
    };
    let answer = shared.answers.lock().unwrap().pop_front();
    match answer {
        Some(Answer::Response(response)) => return response,
        Some(Answer::Never) => std::future::pending().await,
        None => (),
    }
    if id.as_deref() != Some(CLIENT) || secret.as_deref() != Some(SECRET) {
        let text = json!({
            "error": "invalid_client",
            "error_description": format!("wrong secret {}", secret.unwrap_or_default()),
        });
        return (StatusCode::UNAUTHORIZED, text.to_string()).into_response();
    }
    let name = parameters.get("subject_token").map_or("token", |subject| {
        subject.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
    });
    let mut answer = json!({ "access_token": format!("{name}-{number}"), "token_type": "Bearer" });
    if let Some(lifetime) = *shared.lifetime.lock().unwrap() {
        answer["expires_in"] = lifetime.into();
    }
    answer.to_string().into_response()
}
