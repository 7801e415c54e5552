//! From what a file says of backends to backends that run.

use std::{fmt, sync::Arc};

use futures::future::join_all;
use rmcp::model::{ServerConfig, ServerPeerInfo};
use tower::timeout::Timeout;

#[cfg(feature = "http")]
use http::{HeaderName, HeaderValue};

#[cfg(feature = "http")]
use super::HttpConfig;
#[cfg(feature = "stdio")]
use super::StdioConfig;
use super::{BackendConfig, Config, Transport};
#[cfg(feature = "stdio")]
use crate::adapter::remote::stdio::ChildProcess;
use crate::{
    adapter::{
        RemoteService, Router,
        router::{Backend, Conflicts, RouterError},
    },
    changes::Changes,
};

/// The backends of a file, connected or about to be.
///
/// Clones are of the same backends. They end when the last clone, the last of
/// the [`router`](Self::router) and the last of the [`remotes`](Self::remotes)
/// is dropped; [`close`](Self::close) waits for that.
#[derive(Clone, Debug)]
pub struct Backends {
    router: Router,
    remotes: Arc<[RemoteService]>,
}

/// Why the backends of a file cannot be connected with this build of the crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError(Reason);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    MissingFeature {
        backend: String,
        transport: &'static str,
        feature: &'static str,
    },
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "there is no HTTP"))]
    Header(String, String),
    Router(RouterError),
}

// === impl Config ===

impl Config {
    /// Starts to connect the backends of the file, and puts a router over them.
    ///
    /// Returns at once. A backend that cannot be reached is tried again and again
    /// in the background, and the log says what is in its way.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no backend, or one needs a transport that this
    /// build of the crate does not have.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime with its time and I/O enabled.
    pub fn connect(&self) -> Result<Backends, ConnectError> {
        for backend in self.backends() {
            backend.check()?;
        }
        let changes = Changes::default();
        let mut router = Router::builder()
            .separator(self.router().separator())
            .conflicts(self.router().conflicts())
            .changes(changes.clone());
        let mut remotes = Vec::with_capacity(self.backends().len());
        for config in self.backends() {
            let remote = config.connect(changes.clone())?;
            let mut backend =
                Backend::new(config.name(), Timeout::new(remote.clone(), config.timeout()))
                    .description(description(&remote));
            if config.prefix() != self.default_prefix(config.name()) {
                backend = backend.prefix(config.prefix());
            }
            router = router.backend(backend);
            remotes.push(remote);
        }
        let router = router.build().map_err(|error| ConnectError(Reason::Router(error)))?;
        Ok(Backends { router, remotes: remotes.into() })
    }

    /// What the names of a backend begin with that has no prefix of its own.
    fn default_prefix(&self, backend: &str) -> String {
        match self.router().conflicts() {
            Conflicts::Prefix => format!("{backend}{}", self.router().separator()),
            Conflicts::Priority | Conflicts::Manual => String::new(),
        }
    }
}

/// What tells what a server says of itself.
fn description(
    remote: &RemoteService,
) -> impl Fn() -> Option<ServerConfig> + Send + Sync + 'static {
    let remote = remote.clone();
    move || {
        let ServerPeerInfo { capabilities, instructions, .. } = &*remote.server_info()?;
        let mut config = ServerConfig::new(capabilities.clone());
        config.instructions.clone_from(instructions);
        Some(config)
    }
}

// === impl Backends ===

impl Backends {
    /// The service over all of them.
    #[must_use]
    pub const fn router(&self) -> &Router {
        &self.router
    }

    /// Each of them, in the order of the file.
    #[must_use]
    pub fn remotes(&self) -> &[RemoteService] {
        &self.remotes
    }

    /// Who is told when one of them changes.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        self.router.changes()
    }

    /// Ends all of them at the same time, child processes included.
    pub async fn close(&self) {
        join_all(self.remotes.iter().map(RemoteService::close)).await;
    }
}

// === impl BackendConfig ===

impl BackendConfig {
    /// Fails if this build of the crate cannot connect it.
    fn check(&self) -> Result<(), ConnectError> {
        let (transport, feature, is_there) = match self.transport() {
            Transport::Stdio(_) => ("stdio", "stdio", cfg!(feature = "stdio")),
            Transport::Http(http) if http.is_secure() => ("https", "tls", cfg!(feature = "tls")),
            Transport::Http(_) => ("http", "http", cfg!(feature = "http")),
        };
        if is_there {
            return Ok(());
        }
        let backend = self.name().to_owned();
        Err(ConnectError(Reason::MissingFeature { backend, transport, feature }))
    }

    fn connect(&self, changes: Changes) -> Result<RemoteService, ConnectError> {
        let builder = RemoteService::builder(self.name())
            .connect_timeout(self.connect_timeout())
            .secrets(self.secrets().clone())
            .changes(changes);
        match self.transport() {
            #[cfg(feature = "stdio")]
            Transport::Stdio(stdio) => Ok(builder.child_process(process(stdio))),
            #[cfg(feature = "http")]
            Transport::Http(http) => {
                let headers = headers(http)
                    .map_err(|header| ConnectError(Reason::Header(self.name().to_owned(), header)));
                Ok(builder.http(http.url(), headers?))
            }
            // It has not passed the check.
            #[cfg(not(all(feature = "stdio", feature = "http")))]
            _ => unreachable!("a transport that this build does not have"),
        }
    }
}

#[cfg(feature = "stdio")]
fn process(config: &StdioConfig) -> ChildProcess {
    let mut process = ChildProcess::new(config.command()).args(config.args());
    for (name, value) in config.env() {
        process = process.env(name, value);
    }
    match config.cwd() {
        Some(directory) => process.current_dir(directory),
        None => process,
    }
}

/// The headers as the transport takes them, or the name of one that it does not.
#[cfg(feature = "http")]
fn headers(config: &HttpConfig) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let header = |(name, value): (&String, &String)| {
        let header = (name.parse().ok()?, value.parse().ok()?);
        Some(header)
    };
    let headers = config.headers().iter();
    headers.map(|pair| header(pair).ok_or_else(|| pair.0.clone())).collect()
}

// === impl ConnectError ===

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::MissingFeature { backend, transport, feature } => write!(
                f,
                "backend `{backend}` has transport `{transport}`, for which this program was built \
                 without the feature `{feature}` of {}",
                env!("CARGO_PKG_NAME"),
            ),
            Reason::Header(backend, header) => {
                write!(f, "backend `{backend}` has an illegal header `{header}`")
            }
            Reason::Router(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}
