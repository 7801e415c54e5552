//! The `[redis]` section, which configures the Redis server in which replicas share their state.

use std::{sync::Arc, time};

use serde::Deserialize;

#[cfg(feature = "redis")]
use super::set_some::SetSome;
use super::{
    duration::Duration,
    read::Reader,
    secret::Secret,
    store_limits::{StoreLimits, StoreOf},
};
#[cfg(feature = "cache")]
use crate::cache::CacheStore;
#[cfg(feature = "redis")]
use crate::redis::{RedisBudgets, RedisServer, RedisStore, WhenAway};
use crate::{
    budget::{BudgetStore, MemoryBudgets},
    composite::Segment,
    store::Store,
    tasks::TaskRegistry,
};

const SECTION: &str = "redis";

/// The Redis or Valkey server in which several replicas share their state.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["url"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RedisTable {
    /// URL of the server, such as `redis://cache:6379`. Each `${VAR}` is replaced by the value of
    /// an environment variable.
    url: Option<Secret<String>>,
    /// Prefix of all Redis keys that are used. Defaults to `mcp-composite`.
    prefix: Option<String>,
    /// Timeout of each Redis command. Defaults to 1 second.
    timeout: Option<Duration>,
}

/// The place where a store keeps its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum StoreName {
    /// The memory of this process.
    #[default]
    Memory,
    /// The Redis server of the `[redis]` section.
    Redis,
}

/// The Redis server in which replicas share their state, with its settings. Contains no server if
/// the file has no valid `[redis]` section.
#[derive(Clone, Debug, Default)]
pub(super) struct RedisConfig {
    settings: RedisSettings,
    #[cfg(feature = "redis")]
    server: Option<RedisServer>,
}

/// The settings in the `[redis]` section. If a reload does not change them, the existing Redis
/// stores stay in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RedisSettings {
    url: Secret<String>,
    prefix: Option<String>,
    timeout: Option<Duration>,
}

/// Converts the `[redis]` section to a [`RedisConfig`], and reports errors in the section to
/// `reader`.
pub(super) fn build(table: Option<RedisTable>, reader: &mut Reader<'_, '_>) -> RedisConfig {
    let Some(table) = table else { return RedisConfig::default() };
    let at = |key: &str| [SECTION.into(), Segment::from(key)];
    if cfg!(not(feature = "redis")) {
        reader.report(&[SECTION.into()], "`[redis]` needs a build with the feature `redis`");
    }
    if table.url.is_none() {
        reader.report(&at("url"), "missing key `url`");
    }
    let url = table.url.and_then(|url| reader.expand(&at("url"), url.into_exposed()));
    let url = url.map(|url| url.value).unwrap_or_default();
    if table.prefix.as_ref().is_some_and(|prefix| prefix.is_empty() || prefix.contains(['{', '}']))
    {
        let message = "illegal prefix: expected at least one character, and no `{` or `}`";
        reader.report(&at("prefix"), message);
    }
    let timeout = reader.not_zero(&[SECTION.into()], "timeout", table.timeout);
    let settings = RedisSettings { url: Secret::new(url), prefix: table.prefix, timeout };
    #[cfg(feature = "redis")]
    let server = settings.connect(reader);
    RedisConfig {
        settings,
        #[cfg(feature = "redis")]
        server,
    }
}

// === impl RedisConfig ===

impl RedisConfig {
    /// Returns the settings of the server for the store that the value at `path` puts in Redis,
    /// such as `store = "redis"`. Reports an error if the file has no `[redis]` section.
    pub(super) fn required(&self, path: &[Segment], reader: &mut Reader<'_, '_>) -> &RedisSettings {
        if self.settings == RedisSettings::default() && !reader.has_fault_in(&[SECTION.into()]) {
            reader.report(path, "missing section `[redis]` with its `url`");
        }
        &self.settings
    }

    /// Creates a store in Redis for suspended runs or for full tool results. If the file defines no
    /// valid Redis server, an error was already reported, and the store is in memory.
    pub(super) fn store(&self, of: StoreOf, limits: &StoreLimits) -> Arc<dyn Store> {
        #[cfg(feature = "redis")]
        if let Some(server) = &self.server {
            let store = match of {
                StoreOf::Runs => server.runs(),
                StoreOf::Results => server.results(),
            };
            return Arc::new(
                store
                    .set_some(limits.ttl, RedisStore::ttl)
                    .set_some(limits.max_item_bytes, RedisStore::max_item_bytes)
                    .set_some(limits.max_caller_bytes, RedisStore::max_caller_bytes),
            );
        }
        limits.in_memory(of)
    }

    /// Creates a registry whose tasks are in Redis. If the file defines no valid Redis server, an
    /// error was already reported, and the tasks are in memory.
    pub(super) fn tasks(&self) -> TaskRegistry {
        #[cfg(feature = "redis")]
        if let Some(server) = &self.server {
            return TaskRegistry::with_store(server.tasks());
        }
        TaskRegistry::new()
    }

    /// Returns the Redis server for the stores of a view. The URL path `view` becomes a part of all
    /// Redis keys. If `view` is `None`, the stores belong to no view. Returns `None` if the file
    /// defines no valid Redis server.
    #[cfg(feature = "redis")]
    fn server_of(&self, view: Option<&str>) -> Option<RedisServer> {
        let server = self.server.clone()?;
        Some(server.set_some(view, RedisServer::within))
    }

    /// Creates a store for cached results. `view` is the URL path of the view to which the store
    /// belongs, or `None` if it belongs to no view. Returns `None` if the file defines no valid
    /// Redis server. In this case, an error was already reported.
    #[cfg(feature = "cache")]
    pub(super) fn cache(&self, view: Option<&str>) -> Option<Arc<dyn CacheStore>> {
        #[cfg(feature = "redis")]
        if let Some(server) = self.server_of(view) {
            return Some(Arc::new(server.cache()));
        }
        let _ = view;
        None
    }

    /// Creates a store for budgets. `view` is the URL path of the view to which the store belongs,
    /// or `None` if it belongs to no view. If the file defines no valid Redis server, an error was
    /// already reported, and the store is in memory.
    pub(super) fn budgets(
        &self,
        view: Option<&str>,
        admit: bool,
        lease: Option<time::Duration>,
    ) -> Arc<dyn BudgetStore> {
        #[cfg(feature = "redis")]
        if let Some(server) = self.server_of(view) {
            let away = if admit { WhenAway::Admit } else { WhenAway::Refuse };
            let store = server.budgets().when_away(away);
            return Arc::new(store.set_some(lease, RedisBudgets::lease));
        }
        let _ = (view, admit, lease);
        Arc::new(MemoryBudgets::default())
    }
}

// === impl RedisSettings ===

impl RedisSettings {
    #[cfg(feature = "redis")]
    fn connect(&self, reader: &mut Reader<'_, '_>) -> Option<RedisServer> {
        if self.url.expose().is_empty() {
            return None;
        }
        match RedisServer::new(self.url.expose()) {
            Ok(server) => {
                let timeout = self.timeout.map(|Duration(timeout)| timeout);
                let server = server.set_some(self.prefix.as_deref(), RedisServer::prefix);
                Some(server.set_some(timeout, RedisServer::timeout))
            }
            Err(error) => {
                // The message of this error does not contain the URL, which may be secret.
                reader.report(&[SECTION.into(), "url".into()], error.to_string());
                None
            }
        }
    }
}
