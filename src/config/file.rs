//! Reads the configuration of a whole file.

use std::{env, path::Path, sync::Arc};

use serde::Deserialize;

use super::{
    AuthConfig, BackendConfig, ConfigError, LockConfig, RouterConfig, ViewConfig,
    advertise::AdvertiseTable,
    aliases::AliasTable,
    auth::{self, AuthTable},
    backends::{self, BackendTable},
    budget::BudgetTable,
    cache::CacheTable,
    caller::{self, CallerTable},
    composite_tools,
    filter::FilterTable,
    include::{self, Parsed, Sources, Texts},
    json_schema::JSON_SCHEMA,
    limits::LimitsTable,
    lock::{self, LockTable},
    progress::ProgressTable,
    read::Reader,
    redactions::RedactionTable,
    redis::{self, RedisTable},
    router::{self, RouterTable},
    sections::{Layers, Sections, Shared},
    source::Source,
    state::{self, StateTable},
    truncate::{ResultsTable, TruncateTable},
    unread::Unread,
    validate::ValidateTable,
    variables::Environment,
    views::{self, ViewTable},
};
use crate::{
    composite::{CompositeLayer, CompositeTool},
    observe::Observer,
    stack::StackLayer,
    trace::TraceLayer,
};

/// A configuration that was read from a file or a string.
///
/// See the [module docs](crate::config) for an example.
#[derive(Clone, Debug)]
pub struct Config {
    sources: Sources,
    auth: Option<AuthConfig>,
    backends: Vec<BackendConfig>,
    router: RouterConfig,
    /// The layers of the file itself.
    pub(super) layers: Layers,
    views: Vec<ViewConfig>,
    lock: Option<LockConfig>,
}

/// Configuration file of mcp-composite.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct FileTable {
    /// Paths and patterns of files that define more composites, such as `workflows/*.toml`.
    include: Vec<String>,
    /// How the backends are merged into one server.
    router: RouterTable,
    /// The backend servers.
    backends: Vec<BackendTable>,
    /// The approved definitions of the backends' tools. By default, all definitions are accepted.
    lock: Option<LockTable>,
    /// Limits on each call of a composite.
    limits: LimitsTable,
    /// Where the state of a run is stored while the run waits for a user's input.
    state: StateTable,
    /// Authentication of callers over HTTP.
    auth: Option<AuthTable>,
    /// Identification of callers.
    caller: CallerTable,
    /// A Redis or Valkey server that replicas share.
    redis: Option<RedisTable>,
    /// Progress notifications of composites.
    progress: ProgressTable,
    /// Validation of requests.
    validate: ValidateTable,
    /// Selects the tools, prompts and resources that clients may use, by name, URI or annotation.
    filter: FilterTable,
    /// Caches the results of read-only tools.
    cache: Vec<CacheTable>,
    /// Removes parts of tool results.
    redactions: Vec<RedactionTable>,
    /// Budgets that calls share.
    budget: BudgetTable,
    /// Truncates results to a maximum size.
    truncate: TruncateTable,
    /// Where the full versions of truncated results are stored. By default, they are not stored.
    results: Option<ResultsTable>,
    /// Renames and overrides of tools, prompts and resources.
    aliases: Vec<AliasTable>,
    /// Selects the tools that clients see, and whether clients list them or search for them.
    advertise: AdvertiseTable,
    /// Tools composed of other tools.
    #[cfg_attr(test, schemars(with = "Vec<super::schema::Composite>"))]
    composite_tools: Unread,
    /// Views of the same backends with other layers and composites, served at paths of their own.
    views: Vec<ViewTable>,
}

// === impl Config ===

impl Config {
    /// The JSON Schema (draft 7) of a configuration file, for editors.
    ///
    /// Save the schema as `mcp-composite.schema.json` next to your file, and begin your file with
    /// the following line. Editors with [Taplo](https://taplo.tamasfe.dev) then complete and
    /// explain the keys:
    ///
    /// ```toml
    /// #:schema ./mcp-composite.schema.json
    /// ```
    ///
    /// With the schema, editors report unknown keys and values of a wrong type. All other mistakes
    /// are only reported when the file is read.
    pub const JSON_SCHEMA: &str = JSON_SCHEMA;

    /// Reads the file at `path` and the files that it includes. Each `${VAR}` is replaced by the
    /// value of an environment variable of this process.
    ///
    /// A variable whose value is not valid UTF-8 is treated as if it were not set.
    ///
    /// # Errors
    ///
    /// Returns an error if the file at `path` cannot be read. If the files have mistakes, returns
    /// all of them, as [`from_toml_str`](Self::from_toml_str) does.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::load_with_env(path, |name| env::var(name).ok())
    }

    /// Reads the file at `path` and the files that it includes. Calls `env` to look up each
    /// `${VAR}`, as [`from_toml_str_with_env`](Self::from_toml_str_with_env) does.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`load`](Self::load).
    pub fn load_with_env(
        path: impl AsRef<Path>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        match include::read_first(path) {
            Ok(text) => Self::from_texts(&Texts::gather(&text, Some(path)), &env),
            Err(error) => Err(ConfigError::unreadable(path.to_owned(), error)),
        }
    }

    /// Reads a configuration from the text of a file. Each `${VAR}` is replaced by the value of an
    /// environment variable of this process.
    ///
    /// A variable whose value is not valid UTF-8 is treated as if it were not set. The paths in
    /// `include` are relative to a file, and the text has no path, so the key `include` is
    /// rejected.
    ///
    /// # Errors
    ///
    /// Returns all mistakes in the text, but at most 100. A mistake is an unknown key or section, a
    /// value of a wrong type, or an invalid definition. If the text is not valid TOML, only the
    /// syntax errors are returned.
    pub fn from_toml_str(text: &str) -> Result<Self, ConfigError> {
        Self::from_toml_str_with_env(text, |name| env::var(name).ok())
    }

    /// Reads a configuration from the text of a file. Calls `env` to look up each `${VAR}`.
    ///
    /// `env` receives the name of the variable, and must return `None` if the variable is not set.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`from_toml_str`](Self::from_toml_str).
    pub fn from_toml_str_with_env(
        text: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        Self::from_texts(&Texts::gather(text, None), &env)
    }

    fn from_texts(texts: &Texts, environment: Environment<'_>) -> Result<Self, ConfigError> {
        let Parsed { root, errors, masks, faults, before } = texts.parse();
        let source = Source::of_files(&texts.text, texts.files.clone()).masked(masks);
        let mut reader = Reader::new(&source, &root);
        let mut readable = true;
        for (start, errors) in &errors {
            readable &= reader.parsed(errors, *start);
        }
        let config = if readable {
            reader.found(faults);
            Self::read(&mut reader, texts, environment)
        } else {
            None
        };
        let masks = reader.take_masks();
        let finished = reader.finish();
        let source = source.masked(masks);
        match (config, finished) {
            (Some(config), (faults, true)) if faults.is_empty() => Ok(config),
            (_, (faults, complete)) => {
                Err(ConfigError::mistaken(texts, &source, &before, faults, complete))
            }
        }
    }

    fn read(
        reader: &mut Reader<'_, '_>,
        texts: &Texts,
        environment: Environment<'_>,
    ) -> Option<Self> {
        let file: FileTable = reader.read();
        for (place, message) in &texts.mistakes {
            reader.report(&[include::KEY.into(), (*place).into()], message.clone());
        }
        let router = router::build(file.router, reader);
        let has_auth = file.auth.is_some();
        let backends = backends::build(file.backends, &router, environment, has_auth, reader);
        let redis = redis::build(file.redis, environment, reader);
        let exchanges = backends.iter().any(BackendConfig::exchanges_tokens);
        let auth = auth::build(file.auth, environment, exchanges, reader);
        let caller = caller::build(file.caller, has_auth, reader);
        let state = state::build(file.state, &redis, &caller, environment, reader);
        let shared = Shared { auth, backends, router, redis, caller, state };
        let sections = Sections {
            limits: file.limits,
            progress: file.progress,
            validate: file.validate,
            filter: file.filter,
            cache: file.cache,
            redactions: file.redactions,
            budget: file.budget,
            truncate: file.truncate,
            results: file.results,
            aliases: file.aliases,
            advertise: file.advertise,
            composite_tools: composite_tools::read(reader),
        };
        // First, so that a mistake in a section that views inherit is one of the file.
        let layers = sections.clone().build(&shared, None, reader);
        let views = views::build(file.views, &sections, layers.as_ref(), &shared, reader);
        let Shared { auth, backends, router, .. } = shared;
        let mut sources = texts.sources.clone();
        let lock = lock::build(file.lock, &mut sources, reader);
        Some(Self { sources, auth, backends, router, layers: layers?, views, lock })
    }

    /// Adds an [observer](crate::observe), which is notified of the runs of composites.
    ///
    /// A file cannot define observers. Add them to each configuration that you pass to
    /// [`Gateway::reload`](super::Gateway), or the reload removes them.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        let observer = Arc::new(observer);
        for view in &mut self.views {
            view.layers.observe(observer.clone());
        }
        self.layers.observe(observer);
        self
    }

    /// Sets the layer that propagates the trace context, and records spans and metrics. In each
    /// view, it records the path of the view.
    ///
    /// A file cannot define this layer. Like an [observer](Self::observer), set it on each
    /// configuration that you pass to a reload.
    #[must_use]
    pub fn trace(mut self, trace: TraceLayer) -> Self {
        for view in &mut self.views {
            view.layers.trace(trace.clone());
        }
        self.layers.trace(trace);
        self
    }

    /// Returns the views, in the order of the file.
    #[must_use]
    pub fn views(&self) -> &[ViewConfig] {
        &self.views
    }

    /// Returns the configuration of the view at this path: the file, with the layers and composites
    /// of the view, and without views. `None` if there is no such view.
    #[must_use]
    pub fn view(&self, path: &str) -> Option<Self> {
        let view = self.views.iter().find(|view| view.path() == path)?;
        Some(Self { layers: view.layers.clone(), views: Vec::new(), ..self.clone() })
    }

    /// Returns the path of the view whose [configuration](Self::view) this is. `None` if this is
    /// the configuration of a file.
    #[must_use]
    pub fn view_path(&self) -> Option<&str> {
        self.layers.view()
    }

    /// Returns the files that the configuration was read from.
    #[must_use]
    pub const fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Returns how callers over HTTP must be authenticated. `None` if the file has no `[auth]`
    /// section, or if the section was [taken](Self::take_auth).
    #[must_use]
    pub const fn auth(&self) -> Option<&AuthConfig> {
        self.auth.as_ref()
    }

    /// Takes the `[auth]` section out of the configuration, for a server that authenticates
    /// callers. Returns `None` if the file has no such section.
    ///
    /// This crate does not authenticate callers. [`connect`](Self::connect) fails while the
    /// configuration contains the section, so that no gateway ignores it by mistake. A server that
    /// takes the section must verify the token of each HTTP request, and insert an
    /// [`AuthenticatedCaller`](crate::adapter::AuthenticatedCaller) into the extensions of the
    /// request. The program `mcp-composite` does so.
    pub const fn take_auth(&mut self) -> Option<AuthConfig> {
        self.auth.take()
    }

    /// Returns the configurations of the backend servers, in the order of the file.
    #[must_use]
    pub fn backends(&self) -> &[BackendConfig] {
        &self.backends
    }

    /// Returns the settings of the lock with which the tools of the backends are compared. `None`
    /// if the file has no `[lock]` section, or if the section was [taken](Self::take_lock).
    #[must_use]
    pub const fn lock(&self) -> Option<&LockConfig> {
        self.lock.as_ref()
    }

    /// Takes the `[lock]` section out of the configuration, so that [`connect`](Self::connect) does
    /// not read the lock, and all tools are available. Returns `None` if the file has no such
    /// section.
    pub const fn take_lock(&mut self) -> Option<LockConfig> {
        self.lock.take()
    }

    /// Returns the settings of the router, which merges the backends into one server.
    #[must_use]
    pub const fn router(&self) -> &RouterConfig {
        &self.router
    }

    /// Returns the layer that adds the composite tools of the file to a service.
    ///
    /// The layer does not authenticate callers; see [`take_auth`](Self::take_auth).
    #[must_use]
    pub fn composite_layer(&self) -> CompositeLayer {
        self.layers.composite_layer.clone()
    }

    /// Returns a stack of all layers that the file configures, in their [fixed
    /// order](crate::stack). Layers that wrap a single backend are not included.
    ///
    /// The layers do not authenticate callers; see [`take_auth`](Self::take_auth).
    #[must_use]
    pub fn stack_layer(&self) -> StackLayer {
        self.layers.stack_layer.clone()
    }

    /// Returns the composite tools, in the order of the file.
    #[must_use]
    pub fn composite_tools(&self) -> &[CompositeTool] {
        &self.layers.composite_tools
    }
}
