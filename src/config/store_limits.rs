//! The limits of the stores that the sections `[state]` and `[results]` configure, and the creation
//! of in-memory stores with these limits.

use std::{sync::Arc, time};

use super::{caller::CallerConfig, duration::Duration, read::Reader, set_some::SetSome};
use crate::{
    composite::Segment,
    store::{MemoryStore, Store},
};

/// The kind of values in a store: suspended runs, or the full versions of truncated tool results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreOf {
    Runs,
    Results,
}

/// The limits of a store. If a limit is `None`, the default limit of the store applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreLimits {
    pub(super) ttl: Option<time::Duration>,
    pub(super) max_item_bytes: Option<usize>,
    pub(super) max_total_bytes: Option<usize>,
    pub(super) max_caller_bytes: Option<usize>,
}

// === impl StoreOf ===

impl StoreOf {
    const fn section(self) -> &'static str {
        match self {
            Self::Runs => "state",
            Self::Results => "results",
        }
    }

    const fn max_item_bytes(self) -> &'static str {
        match self {
            Self::Runs => "max_state_bytes",
            Self::Results => "max_result_bytes",
        }
    }
}

// === impl StoreLimits ===

impl StoreLimits {
    /// Checks the limits in the `[state]` or `[results]` section, and reports invalid ones to
    /// `reader`. The array contains the maximum sizes in bytes of one item, of all items, and of
    /// all items of one caller. A missing limit is `None`.
    pub(super) fn build(
        of: StoreOf,
        ttl: Option<Duration>,
        [item, total, per_caller]: [Option<usize>; 3],
        caller: &CallerConfig,
        reader: &mut Reader<'_, '_>,
    ) -> Self {
        let section = [Segment::from(of.section())];
        if per_caller.is_some() {
            let path = [of.section().into(), "max_caller_bytes".into()];
            caller.required(&path, "no `max_caller_bytes`", reader);
        }
        Self {
            ttl: reader.not_zero(&section, "ttl", ttl).map(|Duration(ttl)| ttl),
            max_item_bytes: reader.not_zero(&section, of.max_item_bytes(), item),
            max_total_bytes: reader.not_zero(&section, "max_total_bytes", total),
            max_caller_bytes: reader.not_zero(&section, "max_caller_bytes", per_caller),
        }
    }

    /// Creates an in-memory store for values of the kind `of`, with these limits.
    pub(super) fn in_memory(&self, of: StoreOf) -> Arc<dyn Store> {
        let store = match of {
            StoreOf::Runs => MemoryStore::for_runs(),
            StoreOf::Results => MemoryStore::for_results(),
        };
        Arc::new(
            store
                .set_some(self.ttl, MemoryStore::ttl)
                .set_some(self.max_item_bytes, MemoryStore::max_item_bytes)
                .set_some(self.max_total_bytes, MemoryStore::max_total_bytes)
                .set_some(self.max_caller_bytes, MemoryStore::max_caller_bytes),
        )
    }
}
