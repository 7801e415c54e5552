//! The `auth` key of a backend, which configures access tokens from an OAuth authorization server.

use std::{fmt, time::Duration};

use serde::Deserialize;

use super::{
    auth::{self, check_scopes},
    duration,
    secret::Secret,
    text_reader::TextReader,
    variables::Text,
};
use crate::url::{Url, displayed, is_https};

/// The key of the `auth` table in the table of a backend.
pub(super) const KEY: &str = "auth";
/// Default maximum number of callers that can be connected to a backend at the same time.
pub(super) const MAX_CALLERS: usize = 100;
/// Default time after which a caller's connection to the backend is closed if it is idle.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// How this program obtains the access tokens for requests to a backend. Exactly one of the keys
/// must be set.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct BackendAuthTable {
    /// Uses one access token for all requests. The token is issued to this program, not to a
    /// caller.
    client_credentials: Option<OAuthClientTable>,
    /// Uses a separate access token for each caller. The authorization server issues it in exchange
    /// for the caller's own token. Needs the section `[auth]`.
    exchange: Option<ExchangeTable>,
}

/// The OAuth client that requests access tokens from an authorization server.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["token_url", "client_id", "client_secret"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct OAuthClientTable {
    /// URL of the authorization server's token endpoint. Each `${VAR}` is replaced by the value of
    /// an environment variable.
    token_url: Option<Secret<String>>,
    /// The OAuth client ID. Each `${VAR}` is replaced by the value of an environment variable.
    client_id: Option<String>,
    /// The OAuth client secret. Each `${VAR}` is replaced by the value of an environment variable.
    client_secret: Option<Secret<String>>,
    /// How the client secret is sent to the token endpoint. Defaults to `client_secret_basic`.
    token_endpoint_auth_method: Option<AuthMethodName>,
    /// Scopes to request. By default, the authorization server selects the scopes.
    scopes: Vec<String>,
    /// The `audience` parameter of token requests. By default, it is not sent.
    audience: Option<String>,
    /// The `resource` parameter of token requests: the URL of the backend. By default, it is not
    /// sent.
    resource: Option<String>,
}

/// The OAuth client that exchanges the callers' access tokens, and limits on the callers'
/// connections.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["token_url", "client_id", "client_secret"])))]
#[serde(default, deny_unknown_fields)]
struct ExchangeTable {
    /// URL of the authorization server's token endpoint. Each `${VAR}` is replaced by the value of
    /// an environment variable.
    token_url: Option<Secret<String>>,
    /// The OAuth client ID. Each `${VAR}` is replaced by the value of an environment variable.
    client_id: Option<String>,
    /// The OAuth client secret. Each `${VAR}` is replaced by the value of an environment variable.
    client_secret: Option<Secret<String>>,
    /// How the client secret is sent to the token endpoint. Defaults to `client_secret_basic`.
    token_endpoint_auth_method: Option<AuthMethodName>,
    /// Scopes to request. By default, the authorization server selects the scopes.
    scopes: Vec<String>,
    /// The `audience` parameter of token requests. By default, it is not sent.
    audience: Option<String>,
    /// The `resource` parameter of token requests: the URL of the backend. By default, it is not
    /// sent.
    resource: Option<String>,
    /// Maximum number of callers that can be connected to the backend at once. Defaults to 100.
    max_callers: Option<usize>,
    /// Time after which a caller's connection to the backend is closed if it is idle. Defaults to 5
    /// minutes.
    idle_timeout: Option<duration::Duration>,
}

/// How the client secret is sent to the token endpoint.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum AuthMethodName {
    /// Send the client secret in the `Authorization` header, with the `Basic` scheme.
    #[default]
    ClientSecretBasic,
    /// In the request body.
    ClientSecretPost,
}

/// How the gateway obtains the OAuth access tokens for requests to a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendAuth {
    /// Uses one access token for all requests. The authorization server issues the token to the
    /// gateway, not to a caller.
    ClientCredentials(OAuthClientConfig),
    /// Uses a separate access token for each caller. The authorization server issues the token in
    /// exchange for the caller's own token.
    Exchange(ExchangeConfig),
}

/// The settings of a token exchange. In a token exchange, the gateway exchanges the access token of
/// a caller for a token for the backend. The settings contain the OAuth client that the gateway
/// uses, and the limits on the connections of callers to the backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeConfig {
    client: OAuthClientConfig,
    max_callers: usize,
    idle_timeout: Duration,
}

/// The OAuth client that requests access tokens from an authorization server. Its `Debug` output
/// contains neither the client secret nor the parts of the URL that may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct OAuthClientConfig {
    token_url: Text,
    client_id: String,
    client_secret: Secret<String>,
    secret_in_body: bool,
    scopes: Vec<String>,
    audience: Option<String>,
    resource: Option<String>,
}

// === impl TextReader ===

impl TextReader<'_, '_, '_> {
    /// Converts the `auth` table of a backend to a [`BackendAuth`], and reports errors in the
    /// table. Records the client secret and the values of variables as secrets.
    pub(super) fn backend_auth(&mut self, table: BackendAuthTable) -> Option<BackendAuth> {
        match (table.client_credentials, table.exchange) {
            (Some(client), None) => {
                self.client("client_credentials", client).map(BackendAuth::ClientCredentials)
            }
            (None, Some(exchange)) => self.exchange(exchange).map(BackendAuth::Exchange),
            (Some(_), Some(_)) => {
                let message =
                    "`auth` has both `client_credentials` and `exchange`: remove one of them";
                self.report(&["exchange"], message);
                None
            }
            (None, None) => {
                if !self.reader.has_fault_in(&self.path) {
                    let message =
                        "missing key `client_credentials` or `exchange`: expected one of them";
                    self.report::<&str>(&[], message);
                }
                None
            }
        }
    }

    fn exchange(&mut self, table: ExchangeTable) -> Option<ExchangeConfig> {
        let key = "exchange";
        if !self.reader.has_section(auth::SECTION) {
            let message = "`exchange` needs the tokens of callers: add the section `[auth]`";
            self.report(&[key], message);
        }
        if table.max_callers == Some(0) {
            self.report(&[key, "max_callers"], "`max_callers` is zero: expected at least 1");
        }
        let path = self.at(&[key]);
        let idle_timeout = self.reader.not_zero(&path, "idle_timeout", table.idle_timeout);
        let idle_timeout = idle_timeout.map(|duration::Duration(timeout)| timeout);
        let client = OAuthClientTable {
            token_url: table.token_url,
            client_id: table.client_id,
            client_secret: table.client_secret,
            token_endpoint_auth_method: table.token_endpoint_auth_method,
            scopes: table.scopes,
            audience: table.audience,
            resource: table.resource,
        };
        Some(ExchangeConfig {
            client: self.client(key, client)?,
            max_callers: table.max_callers.unwrap_or(MAX_CALLERS),
            idle_timeout: idle_timeout.unwrap_or(IDLE_TIMEOUT),
        })
    }

    fn client(&mut self, key: &str, table: OAuthClientTable) -> Option<OAuthClientConfig> {
        let OAuthClientTable { scopes, token_endpoint_auth_method, .. } = table;
        let token_url = table.token_url.map(Secret::into_exposed);
        let token_url = self.required_text(&[key, "token_url"], token_url);
        let token_url = token_url.and_then(|url| self.token_url(&[key, "token_url"], url));
        let client_id = self.required_text(&[key, "client_id"], table.client_id);
        let secret = table.client_secret.map(Secret::into_exposed);
        let secret = self.required_text(&[key, "client_secret"], secret);
        if let Some(secret) = &secret {
            self.secrets.push(secret.value.clone());
        }
        if let Err(message) = check_scopes(&scopes) {
            self.report(&[key, "scopes"], message);
        }
        let audience = table.audience.and_then(|text| self.text(&[key, "audience"], text));
        let resource = table.resource.and_then(|text| self.text(&[key, "resource"], text));
        if resource.as_ref().is_some_and(|resource| !is_resource(&resource.value)) {
            let message = "illegal URL: expected one with a scheme such as `https://`, without `#`";
            self.report(&[key, "resource"], message);
        }
        Some(OAuthClientConfig {
            token_url: token_url?,
            client_id: client_id?.value,
            client_secret: Secret::new(secret?.value),
            secret_in_body: token_endpoint_auth_method.unwrap_or_default()
                == AuthMethodName::ClientSecretPost,
            scopes,
            audience: audience.map(|audience| audience.value),
            resource: resource.map(|resource| resource.value),
        })
    }

    fn required_text(&mut self, keys: &[&str], value: Option<String>) -> Option<Text> {
        let value = self.required(keys, value)?;
        self.text(keys, value)
    }

    fn token_url(&mut self, keys: &[&str], url: Text) -> Option<Text> {
        match Url::parse_secure(&url.value) {
            Err(message) => self.report(keys, message),
            Ok(parts) if parts.user.is_some() || parts.fragment.is_some() => {
                self.report(keys, "illegal URL: expected no user and no `#`");
            }
            Ok(parts) => {
                self.secrets.extend(parts.secrets());
                return Some(url);
            }
        }
        None
    }
}

/// Returns `true` if `text` can be used as the `resource` parameter of a token request. RFC 8707
/// requires an absolute URI without a fragment.
fn is_resource(text: &str) -> bool {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        && !text.contains(|c: char| c == '#' || c.is_whitespace() || c.is_control())
}

// === impl BackendAuth ===

impl BackendAuth {
    /// Returns the OAuth client that requests the access tokens.
    #[must_use]
    pub const fn client(&self) -> &OAuthClientConfig {
        match self {
            Self::ClientCredentials(client) | Self::Exchange(ExchangeConfig { client, .. }) => {
                client
            }
        }
    }
}

// === impl ExchangeConfig ===

impl ExchangeConfig {
    /// Returns the maximum number of callers that can be connected to the backend at once. Defaults
    /// to 100.
    #[must_use]
    pub const fn max_callers(&self) -> usize {
        self.max_callers
    }

    /// Returns the time after which a caller's connection to the backend is closed if it is idle.
    /// Defaults to 5 minutes.
    #[must_use]
    pub const fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }
}

// === impl OAuthClientConfig ===

impl OAuthClientConfig {
    /// Returns the URL of the authorization server's token endpoint.
    #[must_use]
    pub fn token_url(&self) -> &str {
        &self.token_url.value
    }

    /// Returns `true` if the connection to the token endpoint uses TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        is_https(self.token_url())
    }

    /// Returns the OAuth client ID.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Returns the OAuth client secret. It must not be displayed or logged.
    #[must_use]
    pub fn client_secret(&self) -> &str {
        self.client_secret.expose()
    }

    /// Returns `true` if the client secret is sent in the request body instead of the
    /// `Authorization` header.
    #[must_use]
    pub const fn secret_in_body(&self) -> bool {
        self.secret_in_body
    }

    /// Returns the scopes to request. If there are none, the authorization server selects the
    /// scopes.
    #[must_use]
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// Returns the value of the `audience` parameter of token requests. Returns `None` if the
    /// requests have no such parameter.
    #[must_use]
    pub fn audience(&self) -> Option<&str> {
        self.audience.as_deref()
    }

    /// Returns the value of the `resource` parameter of token requests, which identifies the
    /// backend. Returns `None` if the requests have no such parameter.
    #[must_use]
    pub fn resource(&self) -> Option<&str> {
        self.resource.as_deref()
    }
}

impl fmt::Debug for OAuthClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthClientConfig")
            .field("token_url", &format_args!("{:?}", displayed(&self.token_url.written)))
            .field("client_id", &self.client_id)
            .field("client_secret", &self.client_secret)
            .field("secret_in_body", &self.secret_in_body)
            .field("scopes", &self.scopes)
            .field("audience", &self.audience)
            .field("resource", &self.resource)
            .finish()
    }
}
