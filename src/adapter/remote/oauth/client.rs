//! The settings of an OAuth client.

use std::fmt;

use crate::{adapter::Secrets, url::Url};

/// The ID and secret of an OAuth client. This program uses them to request access tokens from an
/// authorization server.
///
/// An `OAuthClient` authenticates with HTTP's `Basic` scheme (`client_secret_basic`), unless
/// [`secret_in_body`](Self::secret_in_body) is set. Its `Debug` output contains no secrets.
///
/// # Examples
///
/// ```
/// use mcp_composite::adapter::{RemoteService, remote::oauth::{OAuth, OAuthClient}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let client = OAuthClient::new("https://login.example.com/token", "gateway", "hunter2")
///     .scopes(["docs.read"])
///     .resource("https://docs.example.com/mcp");
/// assert!(!format!("{client:?}").contains("hunter2"));
///
/// let oauth = OAuth::ClientCredentials(client);
/// let docs = RemoteService::builder("docs").http_with_oauth("http://127.0.0.1:1/mcp", [], oauth);
/// assert_eq!(docs.name(), "docs");
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct OAuthClient {
    pub(super) token_url: String,
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) secret_in_body: bool,
    pub(super) scopes: Vec<String>,
    pub(super) audience: Option<String>,
    pub(super) resource: Option<String>,
}

// === impl OAuthClient ===

impl OAuthClient {
    /// Creates an OAuth client with this ID and secret. `token_url` is the URL of the authorization
    /// server's token endpoint.
    ///
    /// If `token_url` has the scheme `https`, the feature `tls` is needed. With `http`, the secret
    /// and the tokens are sent unencrypted.
    pub fn new(
        token_url: impl Into<String>,
        id: impl Into<String>,
        secret: impl Into<String>,
    ) -> Self {
        Self {
            token_url: token_url.into(),
            id: id.into(),
            secret: secret.into(),
            secret_in_body: false,
            scopes: Vec::new(),
            audience: None,
            resource: None,
        }
    }

    /// Sends the OAuth client's ID and secret in the body of token requests (`client_secret_post`),
    /// for authorization servers that do not accept the `Basic` scheme.
    pub const fn secret_in_body(mut self) -> Self {
        self.secret_in_body = true;
        self
    }

    /// Sets the OAuth scopes to request. Defaults to none, so that the authorization server chooses
    /// the scopes.
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the parameter `audience` of token requests: the name of the MCP server for which tokens
    /// are requested.
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }

    /// Sets the parameter `resource` of token requests ([RFC 8707]): the URL of the MCP server for
    /// which tokens are requested.
    ///
    /// [RFC 8707]: https://www.rfc-editor.org/rfc/rfc8707
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Returns the secrets of this OAuth client, which must be redacted in logs: the client secret,
    /// and the secret parts of the token URL.
    pub(in crate::adapter::remote) fn secrets(&self) -> Secrets {
        let of_url = Url::parse(&self.token_url).map(|url| url.secrets()).unwrap_or_default();
        Secrets::new(of_url.into_iter().chain([self.secret.clone()]))
    }
}

impl fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthClient")
            .field("token_url", &crate::url::displayed(&self.token_url))
            .field("id", &self.id)
            .field("scopes", &self.scopes)
            .field("audience", &self.audience)
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}
