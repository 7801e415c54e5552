//! A rule that selects the results to cache, their lifetime and the callers that share them.

use std::time::Duration;

use crate::pattern::Selection;

/// The `_meta` key with which a client bypasses the cache: `true` calls the tool even if its result
/// is cached.
pub const NO_CACHE: &str = "mcp-composite/no-cache";
/// The default maximum size of the cached results of one rule: 64 MiB.
const MAX_BYTES: usize = 64 << 20;
/// The longest lifetime of a cached result: 365 days.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A rule that caches the results of the selected tools, if they are read-only.
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
    tools: Selection,
    pub(super) ttl: Duration,
    pub(super) per: Per,
    pub(super) max_bytes: usize,
}

/// The calls that share cached results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Per {
    /// The calls of one [caller](super::CacheLayer::caller).
    #[default]
    Caller,
    /// The calls of all callers. Use this only for tools whose results do not depend on the caller,
    /// because each caller receives the results of the others.
    All,
}

// === impl CacheRule ===

impl CacheRule {
    /// Creates a rule that caches each result of the selected tools for the duration `ttl`, but for
    /// at most 365 days. The duration begins when the tool has returned the result.
    #[must_use]
    pub fn new(tools: Selection, ttl: Duration) -> Self {
        let ttl = ttl.min(MAX_TTL);
        Self { tools, ttl, per: Per::default(), max_bytes: MAX_BYTES }
    }

    /// Sets which calls share results. Defaults to the calls of the same caller.
    #[must_use]
    pub const fn per(mut self, per: Per) -> Self {
        self.per = per;
        self
    }

    /// Sets the maximum total size of the cached results and their arguments, in bytes. Each result
    /// counts as 512 bytes more. Defaults to 64 MiB.
    ///
    /// If the results are larger, those that were used least are evicted. A result that is larger
    /// than all results together may be is not cached.
    #[must_use]
    pub const fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    pub(super) fn selects(&self, tool: &str) -> bool {
        self.tools.selects(tool)
    }

    /// Returns the tools that the rule selects.
    pub(super) const fn tools_of(&self) -> &Selection {
        &self.tools
    }
}
