//! The configuration of a backend.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use rmcp::model::Tool;

use super::{backend_auth::BackendAuth, secret::Secret, variables::Text};
use crate::{adapter::secrets::Secrets, stack::BackendLayer, url};

/// The default timeout of each request to a backend.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The default timeout for connecting to a backend.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The configuration of one backend: an MCP server to which the gateway connects.
///
/// The `Debug` output of a `BackendConfig` contains no secrets. It omits the values of `args`,
/// `env`, `headers` and variables, and displays only the scheme and the host of a URL. To redact
/// secrets in other texts, such as log messages, use [`secrets`](Self::secrets).
#[derive(Clone, Debug)]
pub struct BackendConfig {
    pub(super) name: String,
    pub(super) transport: Transport,
    pub(super) timeout: Option<Duration>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) elicitation: bool,
    pub(super) prefix: String,
    pub(super) layer: BackendLayer,
    pub(super) secrets: Secrets,
    /// The approved tools of the backend, listed by a server in this process that replaces the
    /// backend. `None` if the gateway connects to the backend itself.
    #[cfg_attr(
        not(any(feature = "stdio", feature = "http")),
        expect(dead_code, reason = "no backend is connected")
    )]
    pub(super) locked: Option<Arc<[Tool]>>,
}

/// How the gateway communicates with a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// The backend is a child process that communicates over its standard input and output.
    Stdio(StdioConfig),
    /// The backend is a streamable HTTP server.
    Http(HttpConfig),
}

/// A backend that runs as a child process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdioConfig {
    pub(super) command: Text,
    pub(super) args: Secret<Vec<String>>,
    pub(super) env: Secret<BTreeMap<String, String>>,
    pub(super) cwd: Option<Text>,
}

/// A backend that is a streamable HTTP server.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpConfig {
    pub(super) url: Text,
    pub(super) headers: Secret<BTreeMap<String, String>>,
    pub(super) auth: Option<BackendAuth>,
}

// === impl BackendConfig ===

impl BackendConfig {
    /// Returns the name of the backend, which is unique in the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the transport that connects this program to the backend.
    #[must_use]
    pub const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Returns the timeout of each request to the backend. Defaults to 60 seconds.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(CALL_TIMEOUT)
    }

    /// Returns the timeout for connecting to the backend. Defaults to 30 seconds.
    #[must_use]
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(CONNECT_TIMEOUT)
    }

    /// Returns `true` if the backend may request input during a tool call, for example from a user.
    /// Defaults to `true`.
    #[must_use]
    pub const fn elicitation(&self) -> bool {
        self.elicitation
    }

    /// Returns the prefix that the router adds to the backend's tool and prompt names. Defaults to
    /// the backend's name followed by the router's separator, such as `github_`. The prefix is
    /// empty if the router resolves name conflicts without prefixes.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the layers that wrap only this backend: its aliases, filter and validation. The
    /// layers see the original names of the backend's tools, without the prefix.
    #[must_use]
    pub const fn layer(&self) -> &BackendLayer {
        &self.layer
    }

    /// Returns `true` if the gateway exchanges the access token of each caller for a token for the
    /// backend.
    pub(super) const fn exchanges_tokens(&self) -> bool {
        match &self.transport {
            Transport::Http(http) => matches!(http.auth(), Some(BackendAuth::Exchange(_))),
            Transport::Stdio(_) => false,
        }
    }

    /// Returns `true` if both backends have the same name and equal connection settings. If they
    /// do, a reload keeps the connection of `other`.
    #[cfg(any(feature = "stdio", feature = "http"))]
    pub(super) fn is_reached_like(&self, other: &Self) -> bool {
        self.name == other.name
            && self.transport == other.transport
            && self.connect_timeout() == other.connect_timeout()
            && self.elicitation == other.elicitation
            && self.secrets == other.secrets
    }

    /// Returns the secrets of the backend. Redact them in log messages and other texts about the
    /// backend.
    ///
    /// The following values are secrets. The command-line arguments of a program are not, unless
    /// they contain one of these values.
    ///
    /// - The value of each `${VAR}` variable.
    /// - Each value of `env` and `headers`. In a header such as `Authorization: Bearer …`, the part
    ///   after the first word is also a secret by itself.
    /// - The `client_secret` of `auth`.
    /// - In a URL: the user name, the password, each value in the query, and the fragment. The user
    ///   information and the query are also secrets as whole strings.
    /// - Each path segment of a URL that looks like a token: it has at least 20 characters, or it
    ///   has at least 8 characters and contains a digit.
    #[must_use]
    pub const fn secrets(&self) -> &Secrets {
        &self.secrets
    }
}

// === impl StdioConfig ===

impl StdioConfig {
    /// Returns the program that is started as a child process.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command.value
    }

    /// Returns the command-line arguments of the program.
    #[must_use]
    pub fn args(&self) -> &[String] {
        self.args.expose()
    }

    /// Returns the environment variables to set for the program, in addition to the variables that
    /// it inherits from this process.
    #[must_use]
    pub const fn env(&self) -> &BTreeMap<String, String> {
        self.env.expose()
    }

    /// Returns the working directory of the program. If it is `None`, the program inherits the
    /// working directory of this process.
    #[must_use]
    pub fn cwd(&self) -> Option<&str> {
        self.cwd.as_ref().map(|cwd| cwd.value.as_str())
    }
}

// === impl HttpConfig ===

impl HttpConfig {
    /// Returns the URL of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url.value
    }

    /// Returns `true` if the URL of the server begins with `https://`, so that the connection uses
    /// TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        url::is_https(self.url())
    }

    /// Returns the headers to send with every request to the server.
    #[must_use]
    pub const fn headers(&self) -> &BTreeMap<String, String> {
        self.headers.expose()
    }

    /// Returns how this program obtains access tokens for the server. Returns `None` if the backend
    /// has no `auth` key.
    #[must_use]
    pub const fn auth(&self) -> Option<&BackendAuth> {
        self.auth.as_ref()
    }
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("url", &format_args!("{:?}", url::displayed(&self.url.written)))
            .field("headers", &self.headers)
            .field("auth", &self.auth)
            .finish()
    }
}
