//! The `[[cache]]` section, which configures the cache of tool results.

use serde::Deserialize;

use super::{
    caller::CallerConfig,
    duration::Duration,
    read::Reader,
    redis::{RedisConfig, StoreName},
};
#[cfg(feature = "cache")]
use super::{filter::selection, set_some::SetSome};
use crate::stack::StackLayer;
#[cfg(feature = "cache")]
use crate::{
    cache::{CacheLayer, CacheRule, MAX_TTL, Per},
    composite::Segment,
};

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
    /// Where the results are cached. With `redis`, they are cached both in the memory of this
    /// process and in Redis, so that replicas share them. Defaults to `memory`.
    store: Option<StoreName>,
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

/// Adds the cache layer that the `[[cache]]` tables define to a stack of layers, and reports errors
/// in the tables to `reader`.
#[cfg(feature = "cache")]
pub(super) fn apply(
    tables: Vec<CacheTable>,
    stack: StackLayer,
    redis: &RedisConfig,
    caller: &CallerConfig,
    reader: &mut Reader<'_, '_>,
) -> StackLayer {
    let mut layer = CacheLayer::default().set_some(caller.key(), CacheLayer::caller);
    for (place, table) in tables.into_iter().enumerate() {
        layer = layer.rule(table.rule(&[SECTION.into(), place.into()], redis, caller, reader));
    }
    stack.cache(layer)
}

/// Reports an error if there are tables, because this build has no cache.
#[cfg(not(feature = "cache"))]
#[expect(clippy::needless_pass_by_value, reason = "as with the feature")]
pub(super) fn apply(
    tables: Vec<CacheTable>,
    stack: StackLayer,
    _: &RedisConfig,
    _: &CallerConfig,
    reader: &mut Reader<'_, '_>,
) -> StackLayer {
    if !tables.is_empty() {
        reader.report(&[SECTION.into()], "`[[cache]]` needs a build with the feature `cache`");
    }
    stack
}

// === impl CacheTable ===

#[cfg(feature = "cache")]
impl CacheTable {
    /// Converts the table at `path` to a rule, and reports errors in the table to `reader`.
    fn rule(
        self,
        path: &[Segment],
        redis: &RedisConfig,
        caller: &CallerConfig,
        reader: &mut Reader<'_, '_>,
    ) -> CacheRule {
        let at = |key: &str| [path, &[key.into()]].concat();
        if self.tools.is_none() {
            reader.report(&at("tools"), "missing key `tools`");
        }
        match self.ttl {
            None => reader.report(&at("ttl"), "missing key `ttl`"),
            Some(Duration(ttl)) if ttl.is_zero() => {
                reader.report(&at("ttl"), "`ttl` is zero: expected more, or leave the entry out");
            }
            Some(Duration(ttl)) if ttl > MAX_TTL => {
                reader.report(&at("ttl"), "`ttl` is too long: expected at most 365 days");
            }
            Some(_) => (),
        }
        let store = match self.store.unwrap_or_default() {
            StoreName::Redis => {
                redis.required(&at("store"), reader);
                redis.cache(reader.own_view(SECTION))
            }
            StoreName::Memory => None,
        };
        let per = match self.per {
            Some(PerName::All) => Per::All,
            Some(PerName::Caller) => {
                caller.required(&at("per"), "`per = \"all\"`", reader);
                Per::Caller
            }
            None => Per::Caller,
        };
        let max_bytes = reader.not_zero(path, "max_bytes", self.max_bytes);
        let tools = selection(self.tools, None, ["tools", ""], path, reader);
        let Duration(ttl) = self.ttl.unwrap_or_default();
        CacheRule::new(tools, ttl)
            .per(per)
            .set_some(max_bytes, CacheRule::max_bytes)
            .set_some(store, CacheRule::store)
    }
}
