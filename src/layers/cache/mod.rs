//! A cache of the results of read-only tools.
//!
//! A [`CacheLayer`] keeps the results of the tools that its [rules](CacheRule) select, and answers
//! later calls with the same arguments without calling the tool.
//!
//! # What is cached
//!
//! - Only tools with the annotation `readOnlyHint: true` are cached, as the service behind the
//!   layer lists them. All other calls are forwarded, even if a rule selects the tool. If two tools
//!   with different definitions have the same name, neither is cached.
//! - A result belongs to a tool, its definition, the arguments and, by [default](Per), the caller.
//!   The order of members in the arguments does not matter, and `1` equals `1.0`. `_meta` does not
//!   matter either.
//! - Only successful results are cached. Results with `isError`, JSON-RPC errors, rejected calls,
//!   failures of the service, panics and canceled calls are not.
//! - A result during whose call a server asked the client a question is not cached. Neither is a
//!   reply that requires input (`InputRequired`), nor any later call with the answer.
//! - If the definition of a tool changes, its results are no longer used. This takes effect when
//!   the layer's [epoch](CacheLayer::epoch) is bumped, and as soon as a list of tools with the
//!   changed definition passes the layer. Without either, the layer notices the change within about
//!   a minute.
//! - Each service that the layer wraps has results of its own. So two views of the same servers do
//!   not share results, and a reload of the configuration starts with an empty cache.
//!
//! # Concurrent calls
//!
//! Concurrent calls with the same key share one call of the tool. The first caller makes the call
//! in its own context: its budget is charged, and it alone receives progress notifications and log
//! messages, and is asked the questions of servers. The others wait for the result. If the first
//! caller goes away, the call continues for the others, and its pending questions are withdrawn. If
//! all callers go away, the call is canceled.
//!
//! If the call has no result that may be cached, only the first caller receives its reply, and each
//! of the others calls the tool by itself.
//!
//! A shared call has no connection to the client, like the branch of a composite. A server in the
//! same process can ask the client questions as [described
//! there](crate::adapter::HandlerService).
//!
//! A call that a tool makes while it answers another call receives cached results, but does not
//! wait for running calls, which might wait for it.
//!
//! # Bypassing the cache
//!
//! If a client sets [`NO_CACHE`] to `true` in the `_meta` of a call, the tool is called, and its
//! result replaces the cached one. In the `_meta` of a call of a composite, this applies to all
//! targets.
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
};
use crate::{
    catalog::{CatalogSettings, catalog_setters},
    message::{Context, ContextKey},
    pattern::Patterns,
};

/// Futures of the service in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}

/// A layer that caches the results of read-only tools.
///
/// By default there are no rules, and the layer forwards all calls.
///
/// See the [module docs](crate::cache) for the cached results and for an example.
#[derive(Clone, Default)]
pub struct CacheLayer {
    rules: Vec<CacheRule>,
    caller: Option<ContextKey>,
    pub(crate) catalogs: CatalogSettings,
}

// === impl CacheLayer ===

impl CacheLayer {
    /// Creates a layer without rules, which caches nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule. If several rules select a tool, the one that was added first is used.
    #[must_use]
    pub fn rule(mut self, rule: CacheRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets the function that identifies the caller of a request, for results [per
    /// caller](Per::Caller). All callers that the function does not identify (`None`) share their
    /// results. So do all callers if no function is set.
    ///
    /// Clients must not be able to forge the identity, because a client that poses as another
    /// caller receives that caller's results. For example, use an authenticated subject.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.caller = Some(Arc::new(caller));
        self
    }

    /// Returns `true` if there are no rules.
    pub(crate) const fn is_idle(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the tool patterns of all rules, each with the name of its setting.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = (&'static str, Patterns)> {
        let selections = self.rules.iter().map(CacheRule::tools_of);
        selections.flat_map(|tools| tools.parts().map(|part| ("cache.tools", part)))
    }
}

catalog_setters! {
    /// If no epoch is set, the layer notices a changed definition within about a minute.
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
