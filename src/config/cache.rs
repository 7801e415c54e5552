//! The `[[cache]]` section, which configures the cache of tool results.

#[cfg(feature = "cache")]
use std::{mem, time};

use serde::Deserialize;

#[cfg(feature = "cache")]
use super::set_some::SetSome;
use super::{
    caller::CallerConfig, duration::Duration, filter::selection, read::Reader, redis::RedisConfig,
};
#[cfg(feature = "cache")]
use crate::cache::{CacheLayer, CacheRule, MAX_TTL, Per};
use crate::{composite::Segment, stack::StackLayer};

const SECTION: &str = "cache";

/// Caches the results of the matching tools. Only tools with the annotation `readOnlyHint: true`
/// are cached.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["tools", "ttl"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct CacheTable {
    /// Name patterns of the tools whose results are cached. They match the tool names before
    /// `[[aliases]]` renames the tools. The first entry of `[[cache]]` that matches a tool
    /// determines how its results are cached.
    tools: Option<Vec<String>>,
    /// How long a result is cached, at most 365 days.
    ttl: Option<Duration>,
    /// Whether each caller has separate cached results, or all callers share cached results. If
    /// `[auth]` or `[caller]` identifies callers, the default is separate results. Otherwise,
    /// results are shared.
    per: Option<PerName>,
    /// Maximum total size in bytes of the cached results and their arguments. Defaults to 64 MiB.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_bytes: Option<usize>,
    /// Where the results are cached. Defaults to `memory`.
    store: Option<CacheStoreName>,
}

/// Where results are cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum CacheStoreName {
    /// The memory of this process.
    #[default]
    Memory,
    /// The memory of this process, and the Redis server of the `[redis]` section, so that replicas
    /// share the results.
    Redis,
}

/// The calls that share cached results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum PerName {
    /// Calls of the same caller, as identified by `[auth]` or `[caller]`.
    Caller,
    /// Calls of all callers.
    All,
}

/// The layer that caches tool results, as defined by the `[[cache]]` tables. Empty in a build
/// without the feature `cache`.
#[derive(Clone, Debug, Default)]
pub(super) struct CacheConfig {
    #[cfg(feature = "cache")]
    layer: CacheLayer,
}

/// Converts the `[[cache]]` tables to a cache layer, and reports errors in the tables to `reader`.
pub(super) fn build(
    tables: Vec<CacheTable>,
    redis: &RedisConfig,
    caller: &CallerConfig,
    reader: &mut Reader<'_, '_>,
) -> CacheConfig {
    if cfg!(not(feature = "cache")) && !tables.is_empty() {
        let message = "`[[cache]]` needs a build with the feature `cache`";
        reader.report(&[SECTION.into()], message.to_owned());
    }
    #[cfg_attr(not(feature = "cache"), expect(unused_mut, reason = "there is no cache"))]
    let mut config = CacheConfig::default();
    for (place, table) in tables.into_iter().enumerate() {
        let path = [SECTION.into(), place.into()];
        table.check(&path, redis, caller, reader);
        config.add(table, &path, redis, reader);
    }
    #[cfg(feature = "cache")]
    if let Some(key) = caller.key() {
        config.layer = config.layer.caller(key);
    }
    config
}

// === impl CacheConfig ===

impl CacheConfig {
    /// Adds the cache layer to a stack of layers.
    pub(super) fn apply(self, stack: StackLayer) -> StackLayer {
        #[cfg(feature = "cache")]
        let stack = stack.cache(self.layer);
        stack
    }

    #[cfg(feature = "cache")]
    fn add(
        &mut self,
        table: CacheTable,
        path: &[Segment],
        redis: &RedisConfig,
        reader: &mut Reader<'_, '_>,
    ) {
        let tools = selection(table.tools, None, ["tools", ""], path, reader);
        let Duration(ttl) = table.ttl.unwrap_or(Duration(time::Duration::ZERO));
        let per = match table.per {
            Some(PerName::All) => Per::All,
            Some(PerName::Caller) | None => Per::Caller,
        };
        let store = match table.store.unwrap_or_default() {
            CacheStoreName::Redis => redis.cache(reader.own_view(SECTION)),
            CacheStoreName::Memory => None,
        };
        let rule = CacheRule::new(tools, ttl).per(per);
        let rule = rule.set_some(table.max_bytes, CacheRule::max_bytes);
        let rule = rule.set_some(store, CacheRule::store);
        self.layer = mem::take(&mut self.layer).rule(rule);
    }

    #[cfg(not(feature = "cache"))]
    #[expect(clippy::unused_self, reason = "there is no cache")]
    fn add(
        &self,
        table: CacheTable,
        path: &[Segment],
        _: &RedisConfig,
        reader: &mut Reader<'_, '_>,
    ) {
        selection(table.tools, None, ["tools", ""], path, reader);
    }
}

// === impl CacheTable ===

impl CacheTable {
    fn check(
        &self,
        path: &[Segment],
        redis: &RedisConfig,
        caller: &CallerConfig,
        reader: &mut Reader<'_, '_>,
    ) {
        let at = |key: &str| [path, &[key.into()]].concat();
        if self.tools.is_none() {
            reader.report(&at("tools"), "missing key `tools`".to_owned());
        }
        match self.ttl {
            None => reader.report(&at("ttl"), "missing key `ttl`".to_owned()),
            Some(Duration(ttl)) if ttl.is_zero() => {
                let message = "`ttl` is zero: expected more, or leave the entry out";
                reader.report(&at("ttl"), message.to_owned());
            }
            #[cfg(feature = "cache")]
            Some(Duration(ttl)) if ttl > MAX_TTL => {
                let message = "`ttl` is too long: expected at most 365 days";
                reader.report(&at("ttl"), message.to_owned());
            }
            Some(_) => (),
        }
        if self.store == Some(CacheStoreName::Redis) {
            redis.required(&at("store"), reader);
        }
        if self.per == Some(PerName::Caller) {
            caller.required(&at("per"), "`per = \"all\"`", reader);
        }
        reader.not_zero(path, "max_bytes", self.max_bytes);
    }
}
