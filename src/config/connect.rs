//! Connects to the backends that a configuration file defines.

use std::{
    fmt,
    sync::{Arc, Mutex},
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

#[cfg(feature = "stdio")]
use super::StdioConfig;
#[cfg(feature = "http")]
use super::{BackendAuth, HttpConfig, OAuthClientConfig};
use super::{BackendConfig, Config, Reloaded, Transport, set_some::SetSome, state::StateConfig};
#[cfg(feature = "http")]
use crate::adapter::remote::oauth::{OAuth, OAuthClient, TokenExchange};
#[cfg(feature = "stdio")]
use crate::adapter::remote::stdio::ChildProcess;
use crate::{
    adapter::{
        RemoteService, Router,
        listed_tools::ListedTools,
        remembered_lists::{Memory, Recall, Remember},
        router::{Backend, Conflicts, RouterError},
    },
    changes::Changes,
    intercept::Intercepted,
    message::{Context, Request},
    mutex::lock,
    poll_tasks::PollTasksLayer,
    stack::BackendLayer,
};

/// The backends of a configuration file, and a router that merges them into one server. Some
/// backends may still be connecting in the background.
///
/// Clones of a `Backends` share the same backends. The backends stop when all clones, and all
/// clones of their [`router`](Self::router) and [`remotes`](Self::remotes), have been dropped. To
/// stop the backends earlier, and to wait until they have stopped, use [`close`](Self::close).
#[derive(Clone, Debug)]
pub struct Backends {
    router: Router,
    remotes: Arc<[RemoteService]>,
    connected: Arc<[Connected]>,
    /// The store for tasks of backends that wait for user input.
    state: StateConfig,
    changes: Changes,
    /// Set while the router is filled from remembered lists, for example during a reload. While it
    /// is set, list requests are answered from these lists, and do not reach the backends.
    recall: Recall,
}

/// A backend and its configuration. The backend may still be connecting.
#[derive(Clone, Debug)]
struct Connected {
    config: BackendConfig,
    remote: RemoteService,
    /// The layer that wraps the backend. It also maps the URI of an updated resource to the URIs
    /// that clients use.
    layer: Arc<Mutex<BackendLayer>>,
    /// The most recent lists of tools, prompts and resources from the backend, with the names that
    /// the backend uses.
    memory: Memory,
}

/// The error returned if connecting to the backends of a file is not possible, for example because
/// this build of the crate does not support a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError(Reason);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    #[error(
        "backend `{backend}` has transport `{transport}`, for which this program was built without \
         the feature `{feature}` of {package}",
        package = env!("CARGO_PKG_NAME")
    )]
    MissingFeature { backend: String, transport: &'static str, feature: &'static str },
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "there is no HTTP"))]
    #[error("backend `{0}` has an illegal header `{1}`")]
    Header(String, String),
    #[error("{0}")]
    Router(RouterError),
    #[error(
        "the file has `[auth]`, but this program does not authenticate callers: remove the \
         section, or serve the file with the program `mcp-composite`"
    )]
    Auth,
    #[error("{0}")]
    Lock(String),
    #[error("the gateway was closed")]
    Closed,
}

// === impl Config ===

impl Config {
    /// Starts connecting to the backends of this configuration. Returns the backends, and a router
    /// that merges them into one server.
    ///
    /// `connect` returns immediately. If a backend cannot be reached, the reason is logged, and the
    /// connection is retried in the background.
    ///
    /// # Errors
    ///
    /// Returns an error in four cases: the configuration has no backends; this build of the crate
    /// does not support the transport of a backend; the `[auth]` section was not
    /// [taken](Self::take_auth); or the lock file of the `[lock]` section cannot be read.
    ///
    /// # Panics
    ///
    /// Panics if called outside a Tokio runtime with time and I/O enabled.
    pub fn connect(&self) -> Result<Backends, ConnectError> {
        Backends::of(self, self.layers.stores.state.clone(), Changes::default(), &[])
    }

    /// Returns the default prefix of a backend's tool and prompt names, such as `github_`. Returns
    /// an empty string if the router does not prefix names.
    fn default_prefix(&self, backend: &str) -> String {
        match self.router().conflicts() {
            Conflicts::Prefix => format!("{backend}{}", self.router().separator()),
            Conflicts::Priority | Conflicts::Manual => String::new(),
        }
    }
}

/// Creates the layer that waits until the tasks of a backend have ended, and returns their results
/// to the caller.
fn poll_tasks(config: &Config, state: &StateConfig, backend: &str) -> PollTasksLayer {
    let layer = PollTasksLayer::new(backend).state(state.store());
    layer.set_some(config.layers.stores.caller.key(), PollTasksLayer::caller)
}

/// Creates a function that returns the capabilities and instructions of a backend. The function
/// returns `None` until the backend is connected. While the router is filled from remembered lists,
/// it returns capabilities that match these lists.
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
    /// Connects to the backends of a configuration. `before` contains the previous backends. If the
    /// connection settings of a backend have not changed, its connection is reused.
    fn of(
        config: &Config,
        state: StateConfig,
        changes: Changes,
        before: &[Connected],
    ) -> Result<Self, ConnectError> {
        if config.auth().is_some() {
            return Err(ConnectError(Reason::Auth));
        }
        for backend in config.backends() {
            backend.check()?;
        }
        let mut configs = config.backends().to_vec();
        if let Some(lock) = config.lock() {
            let applied = lock.apply(&mut configs);
            applied.map_err(|error| ConnectError(Reason::Lock(error.to_string())))?;
        }
        let mut router = Router::builder()
            .separator(config.router().separator())
            .conflicts(config.router().conflicts())
            .changes(changes.clone());
        let recall = Recall::default();
        let mut connected = Vec::with_capacity(configs.len());
        for backend in &configs {
            let before = before.iter().find(|before| before.config.name() == backend.name());
            let this = Connected::new(backend, &changes, before)?;
            let remember = Remember { memory: this.memory.clone(), recall: recall.clone() };
            let description = description(&this.remote, &remember);
            // The timeout is that of a single request, not that of a task.
            let service = Timeout::new(this.remote.clone(), backend.timeout());
            let service = poll_tasks(config, &state, backend.name()).layer(service);
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
        Ok(Self { router, remotes, connected: connected.into(), state, changes, recall })
    }

    /// Connects to the backends of a new configuration, and reuses the connection of each backend
    /// whose connection settings are unchanged. Also returns the names of the backends that were
    /// kept, connected and removed.
    pub(super) fn reconnect(&self, config: &Config) -> Result<(Self, Reloaded), ConnectError> {
        let mut state = config.layers.stores.state.clone();
        state.take_over(&self.state);
        let backends = Self::of(config, state, self.changes.clone(), &self.connected)?;
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

    /// Fills the router with the most recent lists of each backend. Sends no requests, because the
    /// backends may be unavailable. For a new connection, the lists come from the previous backend
    /// of the same name.
    pub(super) async fn recall(&self) {
        self.recall.set(true);
        self.list().await;
        self.recall.set(false);
    }

    /// Fills the router by sending list requests for tools, prompts, resources and resource
    /// templates to all backends.
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

    /// Takes over from `before`, the backends of the previous configuration. From then on, the new
    /// layers map the URIs in change notifications. Each new connection gets the subscriptions and
    /// log levels of the previous connection to the same backend.
    pub(super) fn take_over(&self, before: &Self) {
        for this in &*self.connected {
            let Connected { config, remote, layer, .. } = this;
            lock(layer).clone_from(config.layer());
            let mut before = before.connected.iter();
            let before = before.find(|before| before.config.name() == config.name());
            if let Some(before) = before.filter(|before| !before.is_same(this)) {
                remote.subscribe_like(&before.remote);
            }
        }
    }

    /// Returns warnings for operators about settings of the backends that do not match the
    /// backends' current lists. For example, an alias may rename a tool that does not exist.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.connected.iter().flat_map(|it| it.config.layer().warnings()).collect()
    }

    /// Returns the router, a service that merges all backends into one server.
    #[must_use]
    pub const fn router(&self) -> &Router {
        &self.router
    }

    /// Returns the services that forward requests to the individual backends. They are in the order
    /// of the configuration file.
    #[must_use]
    pub fn remotes(&self) -> &[RemoteService] {
        &self.remotes
    }

    /// Returns the channel that receives the backends' notifications about changed tools, prompts
    /// and resources.
    #[must_use]
    pub const fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Stops all backends and their child processes concurrently, and waits until they have
    /// stopped.
    pub async fn close(&self) {
        join_all(self.remotes.iter().map(RemoteService::close)).await;
    }
}

// === impl Connected ===

impl Connected {
    /// Connects to a backend. `before` is the backend of the same name in the previous
    /// configuration. If its connection settings are the same, its connection is reused.
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
            // Copies the last lists of the previous backend, because a backend of the same name
            // probably has the same tools.
            Some(before) => before.memory.fork(),
            None => Memory::default(),
        };
        let layer = Arc::new(Mutex::new(config.layer().clone()));
        let known = layer.clone();
        let changes = changes.for_reporters(Arc::new(move |uri| lock(&known).uris_of(uri)));
        let remote = config.connect(changes)?;
        Ok(Self { config, remote, layer, memory })
    }

    /// Returns `true` if both backends share one connection.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.layer, &other.layer)
    }
}

// === impl BackendConfig ===

impl BackendConfig {
    /// Returns an error if this build of the crate does not support the backend's transport.
    fn check(&self) -> Result<(), ConnectError> {
        if self.locked.is_some() {
            return Ok(());
        }
        let (transport, feature, is_there) = match self.transport() {
            Transport::Stdio(_) => ("stdio", "stdio", cfg!(feature = "stdio")),
            Transport::Http(http) if http.is_secure() => ("https", "tls", cfg!(feature = "tls")),
            Transport::Http(http) if http.auth().is_some_and(|auth| auth.client().is_secure()) => {
                ("http with a token endpoint at https", "tls", cfg!(feature = "tls"))
            }
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
        if let Some(tools) = &self.locked {
            return Ok(ListedTools::new(tools.clone()).connect(builder));
        }
        match self.transport() {
            #[cfg(feature = "stdio")]
            Transport::Stdio(stdio) => Ok(builder.child_process(process(stdio))),
            #[cfg(feature = "http")]
            Transport::Http(http) => {
                let headers = headers(http)
                    .map_err(|header| ConnectError(Reason::Header(self.name().to_owned(), header)));
                Ok(match http.auth() {
                    Some(auth) => builder.http_with_oauth(http.url(), headers?, oauth(auth)),
                    None => builder.http(http.url(), headers?),
                })
            }
            // `check` has already rejected transports that this build does not support.
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
    process.set_some(config.cwd(), ChildProcess::current_dir)
}

/// Converts the configured headers of a backend to HTTP headers. If a header has an invalid name or
/// value, returns its name as the error.
#[cfg(feature = "http")]
fn headers(config: &HttpConfig) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let header = |(name, value): (&String, &String)| {
        let header = (name.parse().ok()?, value.parse().ok()?);
        Some(header)
    };
    let headers = config.headers().iter();
    headers.map(|pair| header(pair).ok_or_else(|| pair.0.clone())).collect()
}

/// Returns the OAuth settings with which the transport requests access tokens for a backend.
#[cfg(feature = "http")]
fn oauth(auth: &BackendAuth) -> OAuth {
    match auth {
        BackendAuth::ClientCredentials(client) => OAuth::ClientCredentials(oauth_client(client)),
        BackendAuth::Exchange(exchange) => OAuth::TokenExchange(
            TokenExchange::new(oauth_client(auth.client()))
                .max_callers(exchange.max_callers())
                .idle_timeout(exchange.idle_timeout()),
        ),
    }
}

#[cfg(feature = "http")]
fn oauth_client(config: &OAuthClientConfig) -> OAuthClient {
    let mut client =
        OAuthClient::new(config.token_url(), config.client_id(), config.client_secret())
            .scopes(config.scopes());
    if config.secret_in_body() {
        client = client.secret_in_body();
    }
    client
        .set_some(config.audience(), OAuthClient::audience)
        .set_some(config.resource(), OAuthClient::resource)
}

// === impl ConnectError ===

impl ConnectError {
    /// Returns the error for a reload of a gateway that was already closed.
    pub(super) const fn closed() -> Self {
        Self(Reason::Closed)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ConnectError {}
