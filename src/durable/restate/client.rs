//! Requests to the HTTP interfaces of a Restate server.

use std::{fmt, time::Duration};

use reqwest::Url;
use serde::de::DeserializeOwned;

use super::RestateError;

/// The name of the workflow in Restate.
const SERVICE: &str = "McpCompositeTask";
/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The status of a request for the output of a workflow that has not ended.
const NOT_ENDED: u16 = 470;

/// A client of a Restate server.
#[derive(Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    ingress: Url,
}

// === impl Client ===

impl Client {
    pub(super) fn new(ingress: &str) -> Result<Self, RestateError> {
        let http = reqwest::Client::builder().timeout(TIMEOUT).no_proxy().build();
        let http = http.map_err(|error| RestateError::unavailable(&error))?;
        Ok(Self { http, ingress: parse(ingress)? })
    }

    /// Calls a handler of the task `key`, and returns the response body.
    pub(super) async fn call(
        &self,
        key: &str,
        handler: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, RestateError> {
        let url = join(&self.ingress, &format!("{SERVICE}/{key}/{handler}"));
        let is_input = !body.is_empty();
        let mut request = self.http.post(url).body(body);
        if is_input {
            request = request.header("content-type", "application/octet-stream");
        }
        bytes(request).await
    }

    /// Returns `true` if the task `key` was started and has not ended, even if it has not begun.
    pub(super) async fn exists(&self, key: &str) -> Result<bool, RestateError> {
        let url = join(&self.ingress, &format!("restate/workflow/{SERVICE}/{key}/output"));
        match bytes(self.http.get(url)).await {
            Err(RestateError::Status(NOT_ENDED)) => Ok(true),
            Err(error) if !error.is_permanent() => Err(error),
            _ => Ok(false),
        }
    }

    /// Completes an awakeable with a JSON value. Returns `Ok` if the server does not know the
    /// awakeable any more, because its run has ended.
    pub(super) async fn resolve(&self, awakeable: &str, json: Vec<u8>) -> Result<(), RestateError> {
        self.complete(awakeable, "resolve", "application/json", json).await
    }

    /// Completes an awakeable with an error. Returns `Ok` if the server does not know the awakeable
    /// any more.
    pub(super) async fn reject(&self, awakeable: &str, reason: String) -> Result<(), RestateError> {
        self.complete(awakeable, "reject", "text/plain", reason.into_bytes()).await
    }

    async fn complete(
        &self,
        awakeable: &str,
        action: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<(), RestateError> {
        let url = join(&self.ingress, &format!("restate/awakeables/{awakeable}/{action}"));
        let request = self.http.post(url).header("content-type", content_type).body(body);
        match bytes(request).await {
            Err(RestateError::Status(404 | 410)) => Ok(()),
            completed => completed.map(drop),
        }
    }

    /// Registers the endpoint at the URL `endpoint` with the server's admin interface.
    pub(super) async fn register(&self, admin: &str, endpoint: &str) -> Result<(), RestateError> {
        let url = join(&parse(admin)?, "deployments");
        let body = serde_json::json!({ "uri": endpoint, "force": true }).to_string();
        let request = self.http.post(url).header("content-type", "application/json").body(body);
        bytes(request).await.map(drop)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the URL, which may contain a password.
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

fn parse(url: &str) -> Result<Url, RestateError> {
    let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    parsed.ok_or(RestateError::Url)
}

/// Returns the URL of a path below `base`.
fn join(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    url
}

async fn bytes(request: reqwest::RequestBuilder) -> Result<Vec<u8>, RestateError> {
    let response = request.send().await.map_err(|error| RestateError::unavailable(&error))?;
    let status = response.status();
    if !status.is_success() {
        return Err(RestateError::Status(status.as_u16()));
    }
    let body = response.bytes().await.map_err(|error| RestateError::unavailable(&error))?;
    Ok(body.into())
}

/// Parses a JSON response.
pub(super) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, RestateError> {
    serde_json::from_slice(body)
        .map_err(|error| RestateError::Unavailable(error.to_string().into()))
}
