//! The configuration of a backend.

use std::{collections::BTreeMap, fmt, time::Duration};

use super::{secret::Secret, variables::Text};
use crate::{adapter::secrets::Secrets, stack::BackendLayer, url};

/// Default timeout of a call.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Default timeout for connecting.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// One backend server.
///
/// The `Debug` output contains no secrets: it omits the values of `args`, `env` and `headers` and
/// the values of variables, and shows only the server of a URL. Use [`secrets`](Self::secrets) to
/// redact other texts.
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
}

/// The transport of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// A child process that communicates over its standard streams.
    Stdio(StdioConfig),
    /// A streamable HTTP server.
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
}

// === impl BackendConfig ===

impl BackendConfig {
    /// Returns the name, which is unique in the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the transport.
    #[must_use]
    pub const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Returns the timeout of one call. Defaults to 60 seconds.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(CALL_TIMEOUT)
    }

    /// Returns the timeout for connecting. Defaults to 30 seconds.
    #[must_use]
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(CONNECT_TIMEOUT)
    }

    /// Returns `true` if the backend may ask callers for input. Defaults to `true`.
    #[must_use]
    pub const fn elicitation(&self) -> bool {
        self.elicitation
    }

    /// Returns the prefix of its names as clients see them: its own `prefix`, or else its name and
    /// the separator of the router. Empty unless conflicts are resolved by prefixes.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the layers of this backend below the common ones: its aliases, filter and
    /// validation, which use the backend's own names.
    #[must_use]
    pub const fn layer(&self) -> &BackendLayer {
        &self.layer
    }

    /// Returns `true` if both can share one connection.
    #[cfg(any(feature = "stdio", feature = "http"))]
    pub(super) fn is_reached_like(&self, other: &Self) -> bool {
        self.name == other.name
            && self.transport == other.transport
            && self.connect_timeout() == other.connect_timeout()
            && self.elicitation == other.elicitation
            && self.secrets == other.secrets
    }

    /// Returns the secrets to redact from every text about the backend.
    ///
    /// These are the values of variables; the values of `env` and `headers`, and the part of a
    /// header after its first word; and of a URL its user, query and fragment as a whole, the name
    /// and the password of the user, the values of the query, and each part of the path that may be
    /// a token: of at least 8 characters with a digit among them, or of 20. Arguments are not
    /// included.
    #[must_use]
    pub const fn secrets(&self) -> &Secrets {
        &self.secrets
    }
}

// === impl StdioConfig ===

impl StdioConfig {
    /// Returns the program.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command.value
    }

    /// Returns the arguments of the program.
    #[must_use]
    pub fn args(&self) -> &[String] {
        self.args.expose()
    }

    /// Returns the variables to set in addition to the inherited ones.
    #[must_use]
    pub const fn env(&self) -> &BTreeMap<String, String> {
        self.env.expose()
    }

    /// Returns the working directory.
    #[must_use]
    pub fn cwd(&self) -> Option<&str> {
        self.cwd.as_ref().map(|cwd| cwd.value.as_str())
    }
}

// === impl HttpConfig ===

impl HttpConfig {
    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url.value
    }

    /// Returns `true` if the URL uses TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        // The scheme was validated when the file was read; letter case is ignored.
        self.url().get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
    }

    /// Returns the headers sent with every request.
    #[must_use]
    pub const fn headers(&self) -> &BTreeMap<String, String> {
        self.headers.expose()
    }
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("url", &format_args!("{:?}", url::displayed(&self.url.written)))
            .field("headers", &self.headers)
            .finish()
    }
}
