//! Requests access tokens from a token endpoint.
//!
//! rmcp's feature `auth` is not suitable: it discovers the endpoint with requests to the server,
//! and does not support token exchange. The crate `oauth2` does not support it either, and would
//! add second versions of several dependencies. Requests and responses are small enough to
//! implement them directly.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue,
    header::{ACCEPT, CONTENT_TYPE},
};
use reqwest::{Response, redirect::Policy};
use tokio::time::timeout;

use super::{
    access_token::{AccessToken, reason_of_refusal},
    client::OAuthClient,
    grant::Grant,
    token_error::TokenError,
};
use crate::{
    adapter::{Secrets, remote::http::address_policy},
    error_chain::error_chain,
    url::displayed,
};

/// The timeout of a request to the token endpoint, including its response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size in bytes of a response of the token endpoint.
const MAX_ANSWER: usize = 64 << 10;

/// A client for the token endpoint of an authorization server. It authenticates as the given OAuth
/// client.
pub(in crate::adapter::remote) struct TokenEndpoint {
    client: OAuthClient,
    http: Result<reqwest::Client, String>,
    secrets: Secrets,
}

// === impl TokenEndpoint ===

impl TokenEndpoint {
    pub(in crate::adapter::remote) fn new(client: OAuthClient) -> Arc<Self> {
        // Redirects are not followed, because they would send the secret to another server.
        // Connections are not reused, because a server may close an idle connection at any time.
        let http = address_policy::check(&client.token_url).and_then(|()| {
            let http = address_policy::client_builder().redirect(Policy::none());
            http.pool_max_idle_per_host(0).build().map_err(|error| error_chain(&error))
        });
        let secrets = client.secrets();
        Arc::new(Self { client, http, secrets })
    }

    /// Sends a token request to the endpoint, and returns the issued access token.
    ///
    /// # Errors
    ///
    /// Returns an error if the endpoint cannot be reached, refuses the token, or sends an invalid
    /// response. The error contains no secrets.
    pub(super) async fn request(&self, grant: &Grant) -> Result<AccessToken, TokenError> {
        let answered = timeout(TIMEOUT, self.answer(grant)).await;
        let answered = answered.unwrap_or_else(|_| {
            Err(TokenError::Failure(format!("it did not answer within {TIMEOUT:?}")))
        });
        answered.map_err(|error| {
            let url = displayed(&self.client.token_url);
            let text = grant.secrets().and(&self.secrets).redact(&error.to_string()).into_owned();
            let text = format!("no token from `{url}`: {text}");
            match error {
                TokenError::Failure(_) => TokenError::Failure(text),
                TokenError::Refusal(_) => TokenError::Refusal(text),
            }
        })
    }

    async fn answer(&self, grant: &Grant) -> Result<AccessToken, TokenError> {
        let http = self.http.as_ref().map_err(|error| TokenError::Failure(error.clone()))?;
        let OAuthClient { token_url, id, secret, secret_in_body, .. } = &self.client;
        let mut request = http.post(token_url).header(ACCEPT, "application/json");
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request = request.header(CONTENT_TYPE, form).body(self.form(grant));
        if !secret_in_body {
            // Both are encoded before the scheme `Basic` encodes them, see RFC 6749, section 2.3.1.
            let [id, secret] = [id, secret].map(|text| encoded(text));
            request = request.basic_auth(id, Some(secret));
        }
        let unreachable =
            |error: reqwest::Error| TokenError::Failure(error_chain(&error.without_url()));
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if status.is_redirection() {
            let text = format!("it answered {status}, and redirects are not followed");
            return Err(TokenError::Failure(text));
        }
        let body = body(response).await?;
        if status.is_success() {
            return AccessToken::parse(&body)
                .map_err(|reason| TokenError::Failure(reason.to_owned()));
        }
        let text = match reason_of_refusal(&body) {
            Some(reason) => format!("it answered {status}: {reason}"),
            None => format!("it answered {status}"),
        };
        Err(if status.is_client_error() {
            TokenError::Refusal(text)
        } else {
            TokenError::Failure(text)
        })
    }

    /// Returns the form parameters of a token request.
    fn form(&self, grant: &Grant) -> String {
        let OAuthClient { id, secret, secret_in_body, scopes, audience, resource, .. } =
            &self.client;
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(grant.parameters());
        if !scopes.is_empty() {
            form.append_pair("scope", &scopes.join(" "));
        }
        let optional = [("audience", audience), ("resource", resource)];
        for (name, value) in optional {
            if let Some(value) = value {
                form.append_pair(name, value);
            }
        }
        if *secret_in_body {
            form.append_pair("client_id", id).append_pair("client_secret", secret);
        }
        form.finish()
    }
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Reads the body of a response. Returns an error if the body is larger than [`MAX_ANSWER`].
async fn body(mut response: Response) -> Result<Vec<u8>, TokenError> {
    let mut body = Vec::new();
    loop {
        let chunk: Option<Bytes> = response
            .chunk()
            .await
            .map_err(|error| TokenError::Failure(error_chain(&error.without_url())))?;
        let Some(chunk) = chunk else { return Ok(body) };
        if body.len() + chunk.len() > MAX_ANSWER {
            let text = format!("its answer has more than {MAX_ANSWER} bytes");
            return Err(TokenError::Failure(text));
        }
        body.extend_from_slice(&chunk);
    }
}
