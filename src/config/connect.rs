//! From what a file says of backends to backends that run.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::join_all;
use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest,
    ListToolsRequest, ServerConfig, ServerPeerInfo,
};
use tower::{ServiceExt, timeout::Timeout};
use tower_layer::Layer;

#[cfg(feature = "http")]
use http::{HeaderName, HeaderValue};

#[cfg(feature = "http")]
use super::HttpConfig;
#[cfg(feature = "stdio")]
use super::StdioConfig;
use super::{
    BackendConfig, Config, Reloaded, Transport,
    remembered_lists::{Memory, Recall, Remember},
};
#[cfg(feature = "stdio")]
use crate::adapter::remote::stdio::ChildProcess;
use crate::{
    adapter::{
        RemoteService, Router,
        router::{Backend, Conflicts, RouterError},
    },
    changes::Changes,
    intercept::Intercepted,
    message::{Context, Request},
    stack::BackendLayer,
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
    connected: Arc<[Connected]>,
    changes: Changes,
    /// Set while the router is to learn what was known before it.
    recall: Recall,
}

/// One of them, as it was configured.
#[derive(Clone, Debug)]
struct Connected {
    config: BackendConfig,
    remote: RemoteService,
    /// Of which resources the remote tells that they have changed, and by what other URIs.
    layer: Arc<Mutex<BackendLayer>>,
    /// What it listed last, by its own names.
    memory: Memory,
}

/// Why the backends of a file cannot be connected.
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
    Closed,
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
        Backends::of(self, Changes::default(), &[])
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
    Remember { memory, recall }: &Remember,
) -> impl Fn() -> Option<ServerConfig> + Send + Sync + 'static {
    let (remote, memory, recall) = (remote.clone(), memory.clone(), recall.clone());
    move || {
        if recall.get() {
            return Some(memory.describe());
        }
        let ServerPeerInfo { capabilities, instructions, .. } = &*remote.server_info()?;
        let mut config = ServerConfig::new(capabilities.clone());
        config.instructions.clone_from(instructions);
        Some(config)
    }
}

// === impl Backends ===

impl Backends {
    /// Connects the backends of a file, but those that are connected.
    fn of(config: &Config, changes: Changes, before: &[Connected]) -> Result<Self, ConnectError> {
        for backend in config.backends() {
            backend.check()?;
        }
        let mut router = Router::builder()
            .separator(config.router().separator())
            .conflicts(config.router().conflicts())
            .changes(changes.clone());
        let recall = Recall::default();
        let mut connected = Vec::with_capacity(config.backends().len());
        for backend in config.backends() {
            let before = before.iter().find(|before| before.config.name() == backend.name());
            let this = Connected::new(backend, &changes, before)?;
            let remember = Remember { memory: this.memory.clone(), recall: recall.clone() };
            let description = description(&this.remote, &remember);
            let service = Timeout::new(this.remote.clone(), backend.timeout());
            let service = Intercepted::new(remember, service);
            let service = backend.layer().clone().changes(&changes).layer(service);
            let mut routed = Backend::new(backend.name(), service).description(description);
            if backend.prefix() != config.default_prefix(backend.name()) {
                routed = routed.prefix(backend.prefix());
            }
            router = router.backend(routed);
            connected.push(this);
        }
        let router = router.build().map_err(|error| ConnectError(Reason::Router(error)))?;
        let remotes = connected.iter().map(|connected| connected.remote.clone()).collect();
        Ok(Self { router, remotes, connected: connected.into(), changes, recall })
    }

    /// Connects the backends of another file, but those that are connected in the
    /// same way, and tells what becomes of which.
    pub(super) fn reconnect(&self, config: &Config) -> Result<(Self, Reloaded), ConnectError> {
        let backends = Self::of(config, self.changes.clone(), &self.connected)?;
        let names = |all: &[Connected], of: &dyn Fn(&Connected) -> bool| -> Vec<String> {
            all.iter().filter(|it| of(it)).map(|it| it.config.name().to_owned()).collect()
        };
        let is_kept = |it: &Connected| self.connected.iter().any(|before| before.is_same(it));
        let is_named = |it: &Connected| {
            backends.connected.iter().any(|now| now.config.name() == it.config.name())
        };
        let reloaded = Reloaded {
            kept: names(&backends.connected, &is_kept),
            connected: names(&backends.connected, &|it| !is_kept(it)),
            removed: names(&self.connected, &|it| !is_named(it)),
        };
        Ok((backends, reloaded))
    }

    /// Lets the router learn what was listed before it, of backends that may not
    /// answer now.
    pub(super) async fn recall(&self) {
        self.recall.set(true);
        self.list().await;
        self.recall.set(false);
    }

    /// Lets the router learn all that there is.
    pub(super) async fn list(&self) {
        let requests: [ClientRequest; 4] = [
            ListToolsRequest::default().into(),
            ListPromptsRequest::default().into(),
            ListResourcesRequest::default().into(),
            ListResourceTemplatesRequest::default().into(),
        ];
        join_all(requests.map(|request| {
            let request = Request::new(request, Context::default());
            self.router.clone().oneshot(request)
        }))
        .await;
    }

    /// Makes them tell changes as their file has it, and of the resources that
    /// clients have subscribed to at those whose places they take.
    pub(super) fn take_over(&self, before: &Self) {
        for this in &*self.connected {
            let Connected { config, remote, layer, .. } = this;
            layer.lock().unwrap_or_else(PoisonError::into_inner).clone_from(config.layer());
            let mut before = before.connected.iter();
            let before = before.find(|before| before.config.name() == config.name());
            if let Some(before) = before.filter(|before| !before.is_same(this)) {
                remote.subscribe_like(&before.remote);
            }
        }
    }

    /// What was in the way of the layers of each, in words for whoever runs the
    /// server.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.connected.iter().flat_map(|it| it.config.layer().warnings()).collect()
    }

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
    pub const fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Ends all of them at the same time, child processes included.
    pub async fn close(&self) {
        join_all(self.remotes.iter().map(RemoteService::close)).await;
    }
}

// === impl Connected ===

impl Connected {
    /// Connects a backend, unless it is connected in the same way.
    fn new(
        config: &BackendConfig,
        changes: &Changes,
        before: Option<&Self>,
    ) -> Result<Self, ConnectError> {
        let config = config.clone();
        let memory = match before {
            Some(before) if before.config.is_reached_like(&config) => {
                return Ok(Self { config, ..before.clone() });
            }
            // What has its name probably has its tools as well.
            Some(before) => before.memory.fork(),
            None => Memory::default(),
        };
        let layer = Arc::new(Mutex::new(config.layer().clone()));
        let known = layer.clone();
        let changes = changes.told_as(Arc::new(move |uri| {
            known.lock().unwrap_or_else(PoisonError::into_inner).uris_of(uri)
        }));
        let remote = config.connect(changes)?;
        Ok(Self { config, remote, layer, memory })
    }

    /// Whether the two have one connection.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.layer, &other.layer)
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
            .elicitation(self.elicitation())
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

impl ConnectError {
    /// There is nothing any more that could be reloaded.
    pub(super) const fn closed() -> Self {
        Self(Reason::Closed)
    }
}

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
            Reason::Closed => f.write_str("the gateway was closed"),
        }
    }
}

impl std::error::Error for ConnectError {}
