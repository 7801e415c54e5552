//! The `[truncate]` and `[results]` sections, which limit the size of results and store the full
//! results.

use std::sync::Arc;

use serde::Deserialize;

use super::{
    caller::CallerConfig,
    duration::Duration,
    read::Reader,
    redis::{RedisConfig, RedisSettings, StoreName},
    set_some::SetSome,
    store_limits::{StoreLimits, StoreOf},
};
use crate::{composite::Segment, store::Store, truncate::TruncateLayer};

const RESULTS: &str = "results";

/// Truncates tool results to a maximum size.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct TruncateTable {
    /// Maximum size of a tool result in bytes. Larger results are truncated.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_result_bytes: Option<usize>,
}

/// Configures where the full versions of truncated results are stored, so that clients can read
/// them.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ResultsTable {
    /// The store of the full results. Defaults to the memory of this process.
    store: Option<StoreName>,
    /// How long full results are stored. Defaults to 10 minutes.
    ttl: Option<Duration>,
    /// Maximum size in bytes of one full result. Defaults to 16777216.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_result_bytes: Option<usize>,
    /// Maximum total size in bytes of all full results in the `memory` store. Defaults to 67108864.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_total_bytes: Option<usize>,
    /// Maximum total size in bytes of the full results of one caller. Needs `[caller]`. In memory,
    /// it defaults to `max_total_bytes`. In Redis, it is unlimited by default.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_caller_bytes: Option<usize>,
}

/// The layer that truncates tool results, and the store of full results.
#[derive(Clone, Debug)]
pub(super) struct TruncateConfig {
    layer: TruncateLayer,
    /// The settings of the store for full results, and the store. `None` if full results are not
    /// stored, because the file has no `[results]` section.
    results: Option<(Settings, Arc<dyn Store>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    /// The URL path of the view that has this `[results]` section, such as `/team-a`. `None` if the
    /// section is at the top level of the file.
    view: Option<String>,
    redis: Option<RedisSettings>,
    limits: StoreLimits,
}

/// Converts the `[truncate]` and `[results]` sections to a layer and a store, and reports errors in
/// the sections to `reader`.
pub(super) fn build(
    truncate: &TruncateTable,
    results: Option<ResultsTable>,
    redis: &RedisConfig,
    caller: &CallerConfig,
    reader: &mut Reader<'_, '_>,
) -> TruncateConfig {
    let path = [Segment::from("truncate")];
    let max = reader.not_zero(&path, "max_result_bytes", truncate.max_result_bytes);
    let results = results.map(|table| {
        if max.is_none() && !reader.has_fault_in(&path) {
            let message = "no result is truncated: expected `max_result_bytes` in `[truncate]`";
            reader.report(&[RESULTS.into()], message);
        }
        let settings = table.build(redis, caller, reader);
        let store = settings.build(redis);
        (settings, store)
    });
    let layer = TruncateLayer::new().set_some(max, TruncateLayer::max_result_bytes);
    TruncateConfig { layer, results }
}

// === impl TruncateTable ===

impl TruncateTable {
    /// Returns `true` if `max_result_bytes` is set, so that larger tool results are truncated.
    pub(super) const fn is_set(&self) -> bool {
        self.max_result_bytes.is_some()
    }
}

// === impl TruncateConfig ===

impl TruncateConfig {
    /// Reuses the store of `before` if both have the same settings, so that stored results are
    /// kept. `before` belongs to the previous configuration or to another view.
    pub(super) fn take_over(&mut self, before: &Self) {
        if let (Some((settings, store)), Some((before, kept))) =
            (&mut self.results, &before.results)
            && settings == before
        {
            *store = kept.clone();
        }
    }

    #[cfg(all(test, feature = "http"))]
    pub(super) fn store(&self) -> Option<&Arc<dyn Store>> {
        self.results.as_ref().map(|(_, store)| store)
    }

    /// Returns the layer that truncates tool results. If `[results]` configures a store, the layer
    /// writes the full versions of truncated results to it.
    pub(super) fn layer(&self) -> TruncateLayer {
        match &self.results {
            Some((_, store)) => self.layer.clone().keep(store.clone()),
            None => self.layer.clone(),
        }
    }
}

// === impl ResultsTable ===

impl ResultsTable {
    fn build(
        self,
        redis: &RedisConfig,
        caller: &CallerConfig,
        reader: &mut Reader<'_, '_>,
    ) -> Settings {
        let at = |key: &str| [RESULTS.into(), Segment::from(key)];
        let store = self.store.unwrap_or_default();
        let redis = (store == StoreName::Redis).then(|| {
            if self.max_total_bytes.is_some() {
                let message = "`max_total_bytes` belongs to `store = \"memory\"`";
                reader.report(&at("max_total_bytes"), message);
            }
            redis.required(&at("store"), reader)
        });
        let sizes = [self.max_result_bytes, self.max_total_bytes, self.max_caller_bytes];
        Settings {
            view: reader.own_view(RESULTS).map(str::to_owned),
            redis: redis.cloned(),
            limits: StoreLimits::build(StoreOf::Results, self.ttl, sizes, caller, reader),
        }
    }
}

// === impl Settings ===

impl Settings {
    fn build(&self, redis: &RedisConfig) -> Arc<dyn Store> {
        match self.redis {
            Some(_) => redis.store(StoreOf::Results, &self.limits),
            None => self.limits.in_memory(StoreOf::Results),
        }
    }
}
