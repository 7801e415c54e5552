use std::{collections::BTreeMap, fmt, time::Duration};

use super::variables::Text;
use crate::{adapter::secrets::Secrets, stack::BackendLayer, url};

/// How long a call may take, unless the backend says otherwise.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long connecting may take, unless the backend says otherwise.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// One server behind the stack.
///
/// Its `Debug` output tells nothing that is secret of it: not the values of
/// `args`, `env` and `headers`, not what came out of variables, and of a URL
/// only the server. Its [`secrets`](Self::secrets) take that out of other texts.
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

/// How a backend is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// It is a child process, spoken to over its pipes.
    Stdio(StdioConfig),
    /// It is a server of streamable HTTP.
    Http(HttpConfig),
}

/// A child process that is a backend.
#[derive(Clone, PartialEq, Eq)]
pub struct StdioConfig {
    pub(super) command: Text,
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: Option<Text>,
}

/// A server of streamable HTTP that is a backend.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpConfig {
    pub(super) url: Text,
    pub(super) headers: BTreeMap<String, String>,
}

/// Prints as `…`.
struct Hidden;

// === impl BackendConfig ===

impl BackendConfig {
    /// Its name, which no other backend of the file has.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is reached.
    #[must_use]
    pub const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// How long one call may take; 60 seconds by default.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(CALL_TIMEOUT)
    }

    /// How long connecting may take; 30 seconds by default.
    #[must_use]
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(CONNECT_TIMEOUT)
    }

    /// Whether it may ask callers for input. Defaults to `true`.
    #[must_use]
    pub const fn elicitation(&self) -> bool {
        self.elicitation
    }

    /// What the names that clients see of it begin with: its own `prefix`, else
    /// its name and the separator of the router. Empty unless names are kept
    /// apart by prefixes.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What is between it and what is common to all backends: its aliases, its
    /// filter and its checks, which speak of its own names.
    #[must_use]
    pub const fn layer(&self) -> &BackendLayer {
        &self.layer
    }

    /// Whether it is reached in the same way as another, so that one connection
    /// serves for both.
    #[cfg(any(feature = "stdio", feature = "http"))]
    pub(super) fn is_reached_like(&self, other: &Self) -> bool {
        self.name == other.name
            && self.transport == other.transport
            && self.connect_timeout() == other.connect_timeout()
            && self.elicitation == other.elicitation
            && self.secrets == other.secrets
    }

    /// What must be taken out of every text about it.
    ///
    /// That is what came out of variables; the values of `env` and `headers`, and
    /// what follows the first word of a header; and of a URL its user, query and
    /// fragment as a whole, the name and the password of the user, the values of
    /// the query, and each part of the path that may be a token: of at least 8
    /// characters with a digit among them, or of 20. Arguments are not among them.
    #[must_use]
    pub const fn secrets(&self) -> &Secrets {
        &self.secrets
    }
}

// === impl StdioConfig ===

impl StdioConfig {
    /// The program.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command.value
    }

    /// What it is called with.
    #[must_use]
    pub fn args(&self) -> &[String] {
        &self.args
    }

    /// The variables that it gets besides those it inherits.
    #[must_use]
    pub const fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// The folder it is started in.
    #[must_use]
    pub fn cwd(&self) -> Option<&str> {
        self.cwd.as_ref().map(|cwd| cwd.value.as_str())
    }
}

impl fmt::Debug for StdioConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioConfig")
            .field("command", &self.command)
            .field("args", &self.args.iter().map(|_| Hidden).collect::<Vec<_>>())
            .field("env", &keys(&self.env))
            .field("cwd", &self.cwd)
            .finish()
    }
}

// === impl HttpConfig ===

impl HttpConfig {
    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url.value
    }

    /// Whether it is reached through TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        // The scheme was checked when it was read; letter case does not count.
        self.url().get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
    }

    /// What is sent with every request.
    #[must_use]
    pub const fn headers(&self) -> &BTreeMap<String, String> {
        &self.headers
    }
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("url", &format_args!("{:?}", url::displayed(&self.url.written)))
            .field("headers", &keys(&self.headers))
            .finish()
    }
}

// === impl Hidden ===

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

fn keys(entries: &BTreeMap<String, String>) -> BTreeMap<&str, Hidden> {
    entries.keys().map(|key| (key.as_str(), Hidden)).collect()
}
