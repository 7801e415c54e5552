//! Reads a whole configuration file, and builds the layers that it configures.

use std::{collections::BTreeMap, env, path::Path, sync::Arc};

use serde::{Deserialize, de::IgnoredAny};

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
    fault::Faults,
    filter::FilterTable,
    flow::{self, FlowTable},
    flow_session::{self, FlowSessionTable},
    include::{self, Parsed, Sources, Texts},
    json_schema::JSON_SCHEMA,
    limits::LimitsTable,
    literal::Literal,
    lock::{self, LockTable},
    progress::ProgressTable,
    read::Reader,
    redactions::RedactionTable,
    redis::{self, RedisTable},
    router::{self, RouterTable},
    secret::Secret,
    sections::{Layers, Sections, Shared},
    source::Source,
    state::{self, StateTable},
    truncate::{ResultsTable, TruncateTable},
    validate::ValidateTable,
    variables::Environment,
    vars::{self, Vars},
    views::{self, ViewTable},
};
#[cfg(any(feature = "stdio", feature = "http"))]
use crate::lock::Lock;
use crate::{
    adapter::Secrets,
    composite::{CompositeLayer, CompositeTool, FlowPolicy, FlowViolation},
    observe::Observer,
    stack::StackLayer,
    tasks::TaskRegistry,
    trace::TraceLayer,
};

/// A configuration of backends, layers and composite tools that was read from a TOML file or
/// string. See the [module docs](crate::config) for an example.
#[derive(Clone, Debug)]
pub struct Config {
    sources: Sources,
    auth: Option<AuthConfig>,
    backends: Vec<BackendConfig>,
    router: RouterConfig,
    /// The layers that are configured at the top level of the file. The layers of views are in
    /// `views`.
    pub(super) layers: Layers,
    views: Vec<ViewConfig>,
    lock: Option<LockConfig>,
    vars: Vars,
    flow: FlowPolicy,
}

/// A configuration file that was rejected because of mistakes.
pub(super) struct Rejected {
    /// The configuration, if the only mistakes are forbidden flows of data.
    pub(super) config: Option<Config>,
    pub(super) error: ConfigError,
}

/// Configuration file of mcp-composite.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct FileTable {
    /// Paths and patterns of files that define more composites, such as `workflows/*.toml`.
    /// Relative to this file.
    include: Vec<String>,
    /// Defines how the router merges the backends into one server.
    router: RouterTable,
    /// The MCP servers whose tools, prompts and resources clients can use.
    backends: Vec<BackendTable>,
    /// Restricts the backends' tools to approved definitions. By default, all definitions are
    /// accepted.
    lock: Option<LockTable>,
    /// Labels the results and the effects of tools, to check the flow of data through composites.
    flow: Vec<FlowTable>,
    /// Restricts calls of tools that publish data in sessions that have received labeled results.
    flow_session: Option<FlowSessionTable>,
    /// Constants that expressions of composites can refer to, as in `$vars.team`. A secret one is
    /// written as `{ value = "…", secret = true }`.
    vars: Secret<BTreeMap<String, Literal<serde_json::Value>>>,
    /// Limits on each run of a composite, such as the maximum number of tool calls.
    limits: LimitsTable,
    /// Configures where the state of a run is stored while the run waits for user input.
    state: StateTable,
    /// Configures the authentication of callers over HTTP.
    auth: Option<AuthTable>,
    /// Configures how callers are identified, for example for limits per caller.
    caller: CallerTable,
    /// The Redis or Valkey server in which several replicas share their state.
    redis: Option<RedisTable>,
    /// Configures the progress notifications that clients receive during a run of a composite.
    progress: ProgressTable,
    /// Limits the size of client requests, and checks tool arguments.
    validate: ValidateTable,
    /// Allows or hides tools, prompts and resources by name, URI or annotation.
    filter: FilterTable,
    /// Caches the results of read-only tools.
    cache: Vec<CacheTable>,
    /// Removes parts of tool results, such as personal data.
    redactions: Vec<RedactionTable>,
    /// Limits the total usage of tools, for example to a number of calls per minute.
    budget: BudgetTable,
    /// Truncates tool results to a maximum size.
    truncate: TruncateTable,
    /// Configures where the full versions of truncated results are stored. By default, they are not
    /// stored.
    results: Option<ResultsTable>,
    /// Renames tools, prompts and resources, and changes how clients see them.
    aliases: Vec<AliasTable>,
    /// Selects the tools that clients see, and whether clients list these tools or search for them.
    advertise: AdvertiseTable,
    /// Composite tools, which call other tools.
    // Read key by key, see `composite_tools::read`.
    #[cfg_attr(test, schemars(with = "Vec<super::tests::schema::Composite>"))]
    composite_tools: IgnoredAny,
    /// Views, which offer the same backends at other paths with different layers and composites.
    views: Vec<ViewTable>,
}

// === impl Config ===

impl Config {
    /// The JSON Schema (draft 7) of a configuration file. Editors use it to check and complete the
    /// file.
    ///
    /// Save `JSON_SCHEMA` as `mcp-composite.schema.json` next to your file, and begin your file
    /// with the following line. Editors with [Taplo](https://taplo.tamasfe.dev) then complete and
    /// explain the keys:
    ///
    /// ```toml
    /// #:schema ./mcp-composite.schema.json
    /// ```
    ///
    /// With the schema, editors report unknown keys and values of a wrong type. Other mistakes are
    /// reported only when `mcp-composite` reads the file.
    pub const JSON_SCHEMA: &str = JSON_SCHEMA;

    /// Reads the configuration file at `path` and the files that it includes. Each `${VAR}` in a
    /// file is replaced by the value of an environment variable of this process. A variable is
    /// treated as not set if its value is not valid UTF-8.
    ///
    /// # Errors
    ///
    /// Returns an error if the file at `path` cannot be read, or if the files contain mistakes. See
    /// [`from_toml_str`](Self::from_toml_str) for the mistakes.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::load_with_env(path, |name| env::var(name).ok())
    }

    /// Reads the configuration file at `path` and the files that it includes. Calls `env` to look
    /// up the value of each `${VAR}`, like
    /// [`from_toml_str_with_env`](Self::from_toml_str_with_env).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`load`](Self::load).
    pub fn load_with_env(
        path: impl AsRef<Path>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let texts = Self::texts(path.as_ref())?;
        Self::from_texts(&texts, &env).map_err(|rejected| rejected.error)
    }

    /// Reads the text of a file, and the texts of the files that it includes.
    pub(super) fn texts(path: &Path) -> Result<Texts, ConfigError> {
        match include::read_first(path) {
            Ok(text) => Ok(Texts::gather(&text, Some(path))),
            Err(error) => Err(ConfigError::unreadable(path.to_owned(), error)),
        }
    }

    /// Reads a configuration from a TOML string. Each `${VAR}` is replaced by the value of an
    /// environment variable of this process.
    ///
    /// An environment variable is treated as not set if its value is not valid UTF-8. The key
    /// `include` is rejected, because its paths are relative to a file, and a string has no path.
    ///
    /// # Errors
    ///
    /// Returns an error that contains the first 100 mistakes in the string. A mistake is an unknown
    /// key or section, a value of a wrong type, or an invalid definition. If the string is not
    /// valid TOML, the error contains only the syntax errors.
    pub fn from_toml_str(text: &str) -> Result<Self, ConfigError> {
        Self::from_toml_str_with_env(text, |name| env::var(name).ok())
    }

    /// Reads a configuration from a TOML string. Calls `env` to look up the value of each `${VAR}`.
    /// `env` receives the name of the variable, and must return `None` if the variable is not set.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`from_toml_str`](Self::from_toml_str).
    pub fn from_toml_str_with_env(
        text: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        Self::from_texts(&Texts::gather(text, None), &env).map_err(|rejected| rejected.error)
    }

    pub(super) fn from_texts(
        texts: &Texts,
        environment: Environment<'_>,
    ) -> Result<Self, Box<Rejected>> {
        let Parsed { root, errors, masks, faults, before } = texts.parse();
        let source = Source::of_files(&texts.text, texts.files.clone()).masked(masks);
        let mut reader = Reader::new(&source, &root, environment);
        let mut readable = true;
        for (start, errors) in &errors {
            readable &= reader.parsed(errors, *start);
        }
        let config = if readable {
            reader.found(faults);
            Self::read(&mut reader, texts)
        } else {
            None
        };
        let (faults, masks) = reader.finish();
        let source = source.masked(masks);
        match config {
            Some(config) if faults.is_empty() => Ok(config),
            config => {
                let config = config.filter(|_| faults.are_only_flows());
                let Faults { all, is_complete, .. } = faults;
                let error = ConfigError::mistaken(texts, &source, &before, all, is_complete);
                Err(Box::new(Rejected { config, error }))
            }
        }
    }

    fn read(reader: &mut Reader<'_, '_>, texts: &Texts) -> Option<Self> {
        let file: FileTable = reader.read();
        for (place, message) in &texts.mistakes {
            reader.report(&[include::KEY.into(), (*place).into()], message.clone());
        }
        let router = router::build(file.router, reader);
        let has_auth = file.auth.is_some();
        let backends = backends::build(file.backends, &router, reader);
        let redis = redis::build(file.redis, reader);
        let exchanges = backends.iter().any(BackendConfig::exchanges_tokens);
        let auth = auth::build(file.auth, exchanges, reader);
        let caller = caller::build(file.caller, has_auth, reader);
        let state = state::build(file.state, &redis, &caller, reader);
        let vars = vars::build(file.vars.into_exposed(), reader);
        let variables = vars.variables.clone();
        let flow = flow::build(file.flow, &backends, reader);
        let flow_session = flow_session::build(file.flow_session, &flow, reader);
        let shared =
            Shared { auth, backends, router, redis, caller, state, variables, flow, flow_session };
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
        // The file's own layers are built first. So a mistake in a section that views inherit is
        // reported for the file, not for a view.
        let layers = sections.clone().build(&shared, None, reader);
        let views = views::build(file.views, &sections, layers.as_ref(), &shared, reader);
        let Shared { auth, backends, router, flow, .. } = shared;
        let mut sources = texts.sources.clone();
        let lock = lock::build(file.lock, &mut sources, reader);
        Some(Self { sources, auth, backends, router, layers: layers?, views, lock, vars, flow })
    }

    /// Adds an [observer](crate::observe), which is notified when composites run.
    ///
    /// A configuration file cannot define observers. If you [reload](super::Gateway::reload) a
    /// gateway, add the observers to the new configuration as well: the reload replaces all
    /// observers of the old configuration.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        let observer = Arc::new(observer);
        for view in &mut self.views {
            view.layers.observe(observer.clone());
        }
        self.layers.observe(observer);
        self
    }

    /// Sets the registry of the [tasks](crate::tasks) of all views, such as one whose tasks another
    /// program executes. Replaces the registry that `[state]` defines.
    ///
    /// A [reload](super::Gateway::reload) of a gateway keeps the registry.
    #[must_use]
    pub fn task_registry(mut self, registry: &TaskRegistry) -> Self {
        for view in &mut self.views {
            view.layers.set_task_registry(registry);
        }
        self.layers.set_task_registry(registry);
        self
    }

    /// Sets the layer that propagates trace contexts, and records spans and metrics. In the spans
    /// and metrics of a [view](Self::views), the layer records the path of the view.
    ///
    /// A configuration file cannot define a trace layer. If you [reload](super::Gateway::reload) a
    /// gateway, set the layer on the new configuration as well.
    #[must_use]
    pub fn trace(mut self, trace: TraceLayer) -> Self {
        for view in &mut self.views {
            view.layers.trace(trace.clone());
        }
        self.layers.trace(trace);
        self
    }

    /// Returns the views of the file, in order. A view offers the same backends at another path,
    /// such as `/team-a`, with its own layers and composites.
    #[must_use]
    pub fn views(&self) -> &[ViewConfig] {
        &self.views
    }

    /// Returns the effective configuration of the view at `path`: the sections of the view, and the
    /// sections that it inherits from the file. Returns `None` if the file has no such view.
    #[must_use]
    pub fn view(&self, path: &str) -> Option<Self> {
        let view = self.views.iter().find(|view| view.path() == path)?;
        Some(Self { layers: view.layers.clone(), views: Vec::new(), ..self.clone() })
    }

    /// Returns the path of the view, if this configuration was returned by [`view`](Self::view).
    /// Returns `None` for the configuration of a whole file.
    #[must_use]
    pub fn view_path(&self) -> Option<&str> {
        self.layers.view()
    }

    /// Returns the files from which the configuration was read. Use them to detect that a file has
    /// changed.
    #[must_use]
    pub const fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Returns the `[auth]` settings, which define how the server must authenticate callers over
    /// HTTP. Returns `None` if the file has no `[auth]` section, or if the section was
    /// [taken](Self::take_auth).
    #[must_use]
    pub const fn auth(&self) -> Option<&AuthConfig> {
        self.auth.as_ref()
    }

    /// Removes the `[auth]` section from the configuration and returns it. Returns `None` if the
    /// configuration has no `[auth]` section.
    ///
    /// Call `take_auth` in a server that authenticates callers itself. The server must verify the
    /// token of each HTTP request, and insert an
    /// [`AuthenticatedCaller`](crate::adapter::AuthenticatedCaller) into the extensions of the
    /// request. [`connect`](Self::connect) returns an error if the section was not taken, so that a
    /// server cannot ignore it by mistake.
    pub const fn take_auth(&mut self) -> Option<AuthConfig> {
        self.auth.take()
    }

    /// Returns the configurations of the backend servers, in the order of the file.
    #[must_use]
    pub fn backends(&self) -> &[BackendConfig] {
        &self.backends
    }

    /// Returns the `[lock]` settings, which restrict the backends' tools to approved definitions.
    /// Returns `None` if the file has no `[lock]` section, or if the section was
    /// [taken](Self::take_lock).
    #[must_use]
    pub const fn lock(&self) -> Option<&LockConfig> {
        self.lock.as_ref()
    }

    /// Removes the `[lock]` section from the configuration and returns it.
    /// [`connect`](Self::connect) then does not restrict the tools of backends to approved
    /// definitions. Returns `None` if the configuration has no `[lock]` section.
    pub const fn take_lock(&mut self) -> Option<LockConfig> {
        self.lock.take()
    }

    /// Replaces each backend by a server in this process. The server lists the tools of `lock` with
    /// their approved definitions, and rejects calls. After that, [`connect`](Self::connect) starts
    /// no processes and opens no connections. Use this to check composites against the approved
    /// definitions.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use mcp_composite::{config::Config, lock::Lock};
    ///
    /// let file = "[[backends]]\nname = 'docs'\nurl = 'https://docs.example.com/mcp'";
    /// let lock = Lock::new(); // usually from a file, by `Lock::load`
    /// let backends = Config::from_toml_str(file)?.with_locked_backends(&lock).connect()?;
    /// backends.remotes()[0].connected().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(any(feature = "stdio", feature = "http"))]
    #[must_use]
    pub fn with_locked_backends(mut self, lock: &Lock) -> Self {
        for backend in &mut self.backends {
            backend.locked = Some(lock.tools(&backend.name).collect());
        }
        self
    }

    /// Returns the information flow labels of the `[[flow]]` section. For example, a label marks a
    /// tool that returns private data. The labels refer to tools by the names that the router gives
    /// them.
    #[must_use]
    pub const fn flow_policy(&self) -> &FlowPolicy {
        &self.flow
    }

    /// Returns the values of the secret [variables](crate::expr::Variables) in the `[vars]`
    /// section. Redact them in logs and other texts.
    #[must_use]
    pub const fn secret_variables(&self) -> &Secrets {
        &self.vars.secrets
    }

    /// Returns the settings of the router, which merges the backends into one server.
    #[must_use]
    pub const fn router(&self) -> &RouterConfig {
        &self.router
    }

    /// Returns the layer that adds the composite tools of the file to an MCP service. If the file
    /// has an `[auth]` section, the server must authenticate callers itself; see
    /// [`take_auth`](Self::take_auth).
    #[must_use]
    pub fn composite_layer(&self) -> CompositeLayer {
        self.layers.composite_layer.clone()
    }

    /// Returns the layers that the file configures, as one stack in a [fixed order](crate::stack).
    /// The stack does not contain the layers that wrap a single backend. If the file has an
    /// `[auth]` section, the server must authenticate callers itself; see
    /// [`take_auth`](Self::take_auth).
    #[must_use]
    pub fn stack_layer(&self) -> StackLayer {
        self.layers.stack_layer.clone()
    }

    /// Returns the forbidden flows of data in the composites. Only a rejected configuration has
    /// any.
    pub(super) fn flow_violations(&self) -> Vec<FlowViolation> {
        flow::violations(
            &self.flow,
            &self.layers.composite_layer,
            self.layers.stack_layer.aliases(),
        )
    }

    /// Returns the composite tools, in the order of the file.
    #[must_use]
    pub fn composite_tools(&self) -> &[CompositeTool] {
        &self.layers.composite_tools
    }
}
