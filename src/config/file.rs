use std::{env, path::Path};

use super::{
    BackendConfig, ConfigError, RouterConfig,
    advertise::{self, AdvertiseTable},
    aliases::{self, AliasTable},
    backends::{self, BackendTable},
    bound::{self, BoundTable, ResultsTable},
    budget::{self, BudgetTable},
    caller::{self, CallerTable},
    composite_tools::{self, CompositeToolTable},
    filter::{self, FilterTable},
    include::{self, Parsed, Sources, Texts},
    limits::{self, LimitsTable},
    progress::{self, ProgressTable},
    read::Reader,
    redactions::{self, RedactionTable},
    redis::{self, RedisTable},
    router::{self, RouterTable},
    source::Source,
    state::{self, StateTable},
    stores::Stores,
    validate::{self, ValidateTable},
    variables::Environment,
};
use crate::{
    composite::{CompositeLayer, CompositeTool},
    observe::Observer,
    stack::StackLayer,
    trace::TraceLayer,
};
use serde::Deserialize;

/// What a file configures.
///
/// See the [module docs](crate::config) for an example.
#[derive(Clone, Debug)]
pub struct Config {
    sources: Sources,
    backends: Vec<BackendConfig>,
    router: RouterConfig,
    composite_tools: Vec<CompositeTool>,
    composite_layer: CompositeLayer,
    stack_layer: StackLayer,
    #[cfg_attr(
        not(any(feature = "stdio", feature = "http", test)),
        expect(dead_code, reason = "only a gateway puts one file in the place of another")
    )]
    pub(super) stores: Stores,
}

/// Servers, what clients see of them, and tools that are made of their tools.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct FileTable {
    /// Files whose composites are added, such as `workflows/*.toml`.
    include: Vec<String>,
    /// How the backends become one server.
    router: RouterTable,
    /// The servers behind the stack.
    backends: Vec<BackendTable>,
    /// What one call of a composite may use.
    limits: LimitsTable,
    /// Where runs are kept that wait for a person.
    state: StateTable,
    /// Who calls.
    caller: CallerTable,
    /// A server of Redis or Valkey, which replicas share.
    redis: Option<RedisTable>,
    /// What clients are told while a composite runs.
    progress: ProgressTable,
    /// What clients may send.
    validate: ValidateTable,
    /// What clients may see and use.
    filter: FilterTable,
    /// What of results nobody sees.
    redactions: Vec<RedactionTable>,
    /// What calls may use together.
    budget: BudgetTable,
    /// How large results may be that clients get.
    bound: BoundTable,
    /// Where whole results are kept that were shortened; nowhere, if not set.
    results: Option<ResultsTable>,
    /// What clients see instead of what the servers say.
    aliases: Vec<AliasTable>,
    /// Which tools clients are shown.
    advertise: AdvertiseTable,
    /// Tools that are made of others.
    composite_tools: Vec<CompositeToolTable>,
}

// === impl Config ===

impl Config {
    /// The JSON Schema of a file, draft 7, for editors.
    ///
    /// Write it beside a file that begins with this line, and editors with
    /// [Taplo](https://taplo.tamasfe.dev) complete and explain the keys:
    ///
    /// ```toml
    /// #:schema ./mcp-composite.schema.json
    /// ```
    ///
    /// It knows the keys and the types of their values. What is wrong beyond that is
    /// told when the file is read.
    pub const JSON_SCHEMA: &str = include_str!("mcp-composite.schema.json");

    /// Reads the file at `path`, and those that it includes, with the variables
    /// of this process.
    ///
    /// A variable that is no UTF-8 counts as one that is not set.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or every mistake in it as
    /// [`from_toml_str`](Self::from_toml_str) does.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::load_with_env(path, |name| env::var(name).ok())
    }

    /// Reads the file at `path`, and those that it includes, with `env` in the
    /// place of the variables of this process.
    ///
    /// # Errors
    ///
    /// Returns errors as [`load`](Self::load) does.
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

    /// Reads the text of a file, with the variables of this process.
    ///
    /// A variable that is no UTF-8 counts as one that is not set.
    ///
    /// # Errors
    ///
    /// Returns every mistake: text that is no TOML, keys and sections that do
    /// not exist, values of a wrong type, and definitions that cannot work.
    /// Of a text that is no TOML, only what makes it none is told.
    pub fn from_toml_str(text: &str) -> Result<Self, ConfigError> {
        Self::from_toml_str_with_env(text, |name| env::var(name).ok())
    }

    /// Reads the text of a file, with `env` in the place of the variables of
    /// this process.
    ///
    /// It is asked for each `${VAR}`, and gives `None` for one that is not set.
    ///
    /// # Errors
    ///
    /// Returns every mistake as [`from_toml_str`](Self::from_toml_str) does.
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
        let backends = backends::build(file.backends, &router, environment, reader);
        let (limit, validate) =
            validate::build(&file.validate, validate::door(), &["validate".into()], reader);
        let filter = filter::build(file.filter, &["filter".into()], reader);
        let aliases = [aliases::SECTION.into()];
        let alias = aliases::build(file.aliases, router.separator(), &aliases, reader);
        let advertise = advertise::build(file.advertise, reader);
        let (composite_tools, layer) =
            composite_tools::build(file.composite_tools, &backends, &router, &alias, reader);
        let limits = limits::build(&file.limits, reader);
        let redact = redactions::build(file.redactions, reader);
        let redis = redis::build(file.redis, environment, reader);
        let caller = caller::build(file.caller, reader);
        let stores = Stores {
            state: state::build(file.state, &redis, &caller, environment, reader),
            budget: budget::build(file.budget, &redis, &caller, reader),
            bound: bound::build(&file.bound, file.results, &redis, &caller, reader),
            caller,
        };
        let composite_layer = progress::apply(&file.progress, layer?.limits(limits));
        let composite_layer = stores.composite(composite_layer);
        let stack_layer = StackLayer::new()
            .limit(limit)
            .advertise(advertise)
            .alias(alias)
            .filter(filter)
            .validate(validate)
            .redact(redact);
        let stack_layer = stores.apply(stack_layer, composite_layer.clone());
        Some(Self {
            sources: texts.sources.clone(),
            backends,
            router,
            composite_tools,
            composite_layer,
            stack_layer,
            stores,
        })
    }

    /// Lets somebody [watch](crate::observe) the runs of composites, besides those that
    /// watch them already.
    ///
    /// It is not of the file: one that takes the place of this in a
    /// [`Gateway`](super::Gateway) needs to be told it as well, or from then on nobody
    /// watches.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.composite_layer = self.composite_layer.observer(observer);
        self.stack_layer = self.stack_layer.composite(self.composite_layer.clone());
        self
    }

    /// Sets what others are told of spans, what spans have, and what is measured.
    ///
    /// It is not of the file, so that what was said of [observers](Self::observer) holds.
    #[must_use]
    pub fn trace(mut self, trace: TraceLayer) -> Self {
        self.stack_layer = self.stack_layer.trace(trace);
        self
    }

    /// Which files it was read from.
    #[must_use]
    pub const fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The servers behind the stack, in the order of the file.
    #[must_use]
    pub fn backends(&self) -> &[BackendConfig] {
        &self.backends
    }

    /// How the backends become one server.
    #[must_use]
    pub const fn router(&self) -> &RouterConfig {
        &self.router
    }

    /// The layer of all composite tools.
    #[must_use]
    pub fn composite_layer(&self) -> CompositeLayer {
        self.composite_layer.clone()
    }

    /// All layers of the file, but those of its backends.
    #[must_use]
    pub fn stack_layer(&self) -> StackLayer {
        self.stack_layer.clone()
    }

    /// The composite tools, in the order of the file.
    #[must_use]
    pub fn composite_tools(&self) -> &[CompositeTool] {
        &self.composite_tools
    }
}
