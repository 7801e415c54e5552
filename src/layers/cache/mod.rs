//! A cache of the results of read-only tools.
//!
//! A [`CacheLayer`] stores the results of the tools that its [rules](CacheRule) select. If a later
//! call has the same arguments, the layer answers it with the stored result instead of calling the
//! tool, which saves time and cost.
//!
//! # What is cached
//!
//! - Only tools that the service behind the layer lists with the annotation `readOnlyHint: true`
//!   are cached. Calls to all other tools are forwarded, even if a rule selects the tool. If two
//!   tools with different definitions have the same name, neither is cached.
//! - A cached result is used only for calls to the same tool, with the same tool definition, the
//!   same arguments and, by [default](Per), the same caller. The order of members in the arguments
//!   does not matter, `1` equals `1.0`, and `_meta` is ignored.
//! - Only successful results are cached. Results with `isError`, JSON-RPC errors, rejected calls,
//!   service failures, panics and canceled calls are not cached.
//! - If a server asks the client a question during a call, for example by elicitation, the result
//!   is not cached. A reply that requires input (`InputRequired`) is not cached either, and neither
//!   is the result of the later call that contains the input.
//! - If the definition of a tool changes, its cached results are no longer used. The layer detects
//!   the change as soon as its [epoch](CacheLayer::epoch) is bumped, or as soon as it forwards a
//!   list of tools that contains the new definition. Otherwise, it detects the change within about
//!   a minute.
//! - Each service that the layer wraps has its own cache. Two views of the same servers therefore
//!   do not share results, and a configuration reload starts with an empty cache. To share results
//!   between processes, set a [store](CacheRule::store) in addition, such as
//!   `RedisServer::cache` with the feature `redis`.
//!
//! # Concurrent calls
//!
//! Concurrent equal calls share one call to the tool, so that a burst of equal calls does not reach
//! the server. The first caller makes the call in its own context: its budgets are charged, and
//! only the first caller receives progress notifications, log messages and questions of servers.
//! The other callers wait for the result. If the first caller cancels, the call continues for the
//! other callers, and its pending questions are withdrawn. If all callers cancel, the call is
//! canceled.
//!
//! If the outcome of a shared call must not be shared, for example because it is an error, only the
//! first caller receives it. Each of the other callers then calls the tool separately.
//!
//! Like a branch of a composite, a shared call has no direct connection to a client. If a server in
//! the same process needs to ask the client questions during the call, see the docs of
//! [`HandlerService`](crate::adapter::HandlerService).
//!
//! Calls that a tool makes while it runs can receive cached results, but never wait for running
//! calls. Otherwise, a tool that calls itself could wait for itself forever.
//!
//! # Bypassing the cache
//!
//! To bypass the cache, a client sets [`NO_CACHE`] to `true` in the `_meta` of a tool call. The
//! tool is then called, and its result replaces the cached result. If the called tool is a
//! composite, all tool calls of the composite bypass the cache, too.
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use std::time::Duration;
//!
//! use mcp_composite::{
//!     cache::{CacheLayer, CacheRule},
//!     pattern::Selection,
//!     testing::{self, Answer, Server},
//! };
//! use rmcp::model::{Tool, ToolAnnotations};
//! use serde_json::json;
//! use tower::Layer;
//!
//! let look = Tool::new("look", "Looks", serde_json::Map::new());
//! let look = look.with_annotations(ToolAnnotations::new().read_only(true));
//! let server = Server::new().tool_as(look, Answer::text("a ship")).says("sail", "done");
//!
//! let rule = CacheRule::new(Selection::default(), Duration::from_secs(60));
//! let service = CacheLayer::new().rule(rule).layer(server.clone());
//! for _ in 0..2 {
//!     testing::call(&service, "look", json!({ "at": "sea" })).await;
//!     testing::call(&service, "sail", json!({})).await;
//! }
//! assert_eq!(server.called(), ["look", "sail", "sail"]);
//!
//! tokio::time::advance(Duration::from_secs(60)).await;
//! testing::call(&service, "look", json!({ "at": "sea" })).await;
//! assert_eq!(server.called().len(), 4);
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```

mod arguments;
mod entries;
mod flights;
mod key;
mod rule;
mod service;
mod store;
#[cfg(test)]
mod tests;
mod tools;

use std::{fmt, sync::Arc};

use tower_layer::Layer;

#[cfg(feature = "config")]
pub(crate) use self::rule::MAX_TTL;
use self::service::Shared;
pub use self::{
    rule::{CacheRule, NO_CACHE, Per},
    service::Cache,
    store::{CacheKey, CacheStore},
};
use crate::{
    catalog::{CatalogSettings, catalog_setters},
    message::{Context, ContextKey, identified_by},
    pattern::Patterns,
};

/// Futures of the service in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}

/// A layer that caches the results of read-only tools.
///
/// By default, the layer has no rules and forwards all requests.
///
/// See the [module docs](crate::cache) for an example, and for the conditions under which results
/// are cached.
#[derive(Clone, Default)]
pub struct CacheLayer {
    rules: Vec<CacheRule>,
    caller: Option<ContextKey>,
    pub(crate) catalogs: CatalogSettings,
}

// === impl CacheLayer ===

impl CacheLayer {
    /// Creates a layer without rules, which caches no results.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule. If several rules select a tool, only the rule that was added first applies to
    /// it.
    #[must_use]
    pub fn rule(mut self, rule: CacheRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets the function that identifies callers, for caching [per caller](Per::Caller). It returns
    /// the identity of the caller of a request, or `None` if the caller is unidentified.
    /// Unidentified callers share cached results with each other. If no function is set, all
    /// callers are unidentified.
    ///
    /// Use an identity that clients cannot forge, such as an authenticated subject. Otherwise, a
    /// client that poses as another caller receives the cached results of that caller.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.caller = Some(identified_by(caller));
        self
    }

    /// Returns `true` if the layer has no rules, so that it does not cache any results.
    pub(crate) const fn is_idle(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the tool patterns of all rules, for warnings. Each pattern comes with the name of
    /// the setting that contains it, such as `cache.tools`.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = (&'static str, Patterns)> {
        self.rules.iter().flat_map(|rule| rule.tools.parts().map(|part| ("cache.tools", part)))
    }
}

catalog_setters! {
    /// If no epoch is set, the layer lists the tools again after a minute. Until then, it may not
    /// detect a changed tool definition.
    CacheLayer: catalogs
}

impl<S> Layer<S> for CacheLayer {
    type Service = Cache<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let shared =
            || Arc::new(Shared::new(&self.rules, self.caller.clone(), self.catalogs.clone()));
        Cache::new((!self.is_idle()).then(shared), inner)
    }
}

impl fmt::Debug for CacheLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheLayer").field("rules", &self.rules).finish_non_exhaustive()
    }
}
