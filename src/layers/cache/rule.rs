//! Rules that select the tools to cache, the lifetime of their results, and the callers that share
//! results.

use std::{sync::Arc, time::Duration};

use super::store::CacheStore;
use crate::pattern::Selection;

/// The `_meta` key that bypasses the cache. If a client sets it to `true` in a tool call, the tool
/// is called even if its result is cached.
pub const NO_CACHE: &str = "mcp-composite/no-cache";
/// The default maximum total size of the cached results of a rule: 64 MiB.
const MAX_BYTES: usize = 64 << 20;
/// The maximum lifetime of a cached result: 365 days.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A rule that caches the results of the selected tools. Applies only to tools that are annotated
/// as read-only.
///
/// ```
/// use std::time::Duration;
///
/// use mcp_composite::{cache::{CacheRule, Per}, pattern::Selection};
///
/// // All callers share what the documentation says, for five minutes.
/// let docs = Selection::default().allow(["docs_*"])?;
/// let docs = CacheRule::new(docs, Duration::from_secs(300)).per(Per::All).max_bytes(16 << 20);
/// # Ok::<(), mcp_composite::pattern::PatternError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CacheRule {
    pub(super) tools: Selection,
    pub(super) ttl: Duration,
    pub(super) per: Per,
    pub(super) max_bytes: usize,
    pub(super) store: Option<Arc<dyn CacheStore>>,
}

/// Which callers share cached results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Per {
    /// A result is used only for calls of the same [caller](super::CacheLayer::caller).
    #[default]
    Caller,
    /// A result is used for calls of all callers. Use this only for tools whose results do not
    /// depend on the caller. Otherwise, callers receive results that are meant for other callers.
    All,
}

// === impl CacheRule ===

impl CacheRule {
    /// Creates a rule that caches the results of the selected tools for the duration `ttl`, which
    /// is at most 365 days. The duration starts when the result arrives.
    #[must_use]
    pub fn new(tools: Selection, ttl: Duration) -> Self {
        let ttl = ttl.min(MAX_TTL);
        Self { tools, ttl, per: Per::default(), max_bytes: MAX_BYTES, store: None }
    }

    /// Sets which callers share cached results. Defaults to [`Per::Caller`]: results are not shared
    /// between callers.
    #[must_use]
    pub const fn per(mut self, per: Per) -> Self {
        self.per = per;
        self
    }

    /// Sets the maximum total size of the rule's cached results, in bytes. The size of an entry is
    /// the size of the result and of the call arguments, plus 512 bytes. Defaults to 64 MiB.
    ///
    /// If the maximum is exceeded, the least used results are evicted. An entry that is larger than
    /// 15/16 of the maximum is not cached.
    #[must_use]
    pub const fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets a store that shares the results between processes. By default, results are cached only
    /// in the memory of this process.
    ///
    /// If the memory contains no result, the layer looks it up in the store before it calls the
    /// tool. All processes that share a store must have the same tools behind them, because they
    /// share the results of tools with equal definitions.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn CacheStore>) -> Self {
        self.store = Some(store);
        self
    }
}
