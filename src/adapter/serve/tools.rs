//! Remembers the tools that clients have listed, to check the `Mcp-Param-*` headers of calls.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};
#[cfg(feature = "http")]
use std::{
    hash::{BuildHasher, RandomState},
    sync::Mutex,
    time::Duration,
};

use rmcp::model::{JsonObject, Tool};
use serde_json::Value;
#[cfg(feature = "http")]
use tokio::{task::JoinSet, time::Instant};

use crate::json_size::{BoundedCounter, json_bytes};

/// The maximum number of remembered tools. A listing that would exceed it replaces all earlier
/// ones. Calls of tools that are not remembered are not checked.
const MOST_TOOLS: usize = 10_000;
/// The maximum length in bytes of a tool's name. Tools with longer names are not remembered.
const MAX_REMEMBERED_NAME: usize = 1 << 10;
/// The maximum size in bytes, as JSON, of all remembered tools that have header annotations.
const MAX_ANNOTATED: usize = 16 << 20;
/// The minimum time between two listings of the same [`View`] that are caused by calls of missing
/// tools.
#[cfg(feature = "http")]
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The maximum number of separate views. Further clients share one view.
#[cfg(feature = "http")]
const MOST_VIEWS: usize = 100;
/// The key in a property's schema whose value names the header in which clients repeat the argument
/// (SEP-2243).
pub(super) const HEADER_KEYWORD: &str = "x-mcp-header";

/// The tools that clients have listed. rmcp looks them up to check the headers of a call.
///
/// rmcp looks up a tool synchronously, so it only finds tools that were listed earlier. With the
/// feature `http`, a call of an unknown tool first lists the tools as its client would, at most
/// once a second. Then the call is checked; see `ServeService::check_headers`. There is an
/// exception: after the tools have changed, a call of a tool that had no header annotations before
/// does not wait for the listing.
///
/// rmcp reads nothing but the header annotations in a tool's schema. So for tools without
/// annotations, which are most tools, only the name is kept.
///
/// A later listing replaces tools of the same name. Its first page does not remove other tools:
/// several clients list at once, not all see the same tools, and the next page may come late. It is
/// harmless to keep a removed tool, since calls of it are rejected anyway. But if a tool's schema
/// has changed, the old schema would cause valid calls to be rejected. So all tools are removed
/// when the tools have changed.
///
/// Calls of a tool that no client has listed are not checked: a layer may hide or rename the tool,
/// and an error about a missing header would reveal it. Calls of tools that are too large to be
/// remembered are not checked either.
#[derive(Default)]
pub(super) struct ListedTools(RwLock<Listed>);

#[derive(Default)]
struct Listed {
    epoch: u64,
    /// Maps the name of each tool to the tool, or to `None` if it has no header annotations.
    tools: HashMap<Cow<'static, str>, Option<Annotated>>,
    /// The size in bytes of all tools with header annotations, as JSON.
    bytes: usize,
}

/// Whether a tool was listed before or after the last change of the tools, or not at all.
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The tool was listed since the last change, or its name is too long to be remembered. In
    /// neither case would a new listing help.
    Now,
    /// The tool was listed before the last change, and had no header annotations.
    Plain,
    No,
}

struct Annotated {
    tool: Tool,
    bytes: usize,
}

/// For each view, the latest listing that was caused by a call of an unknown tool.
///
/// Different clients may see different tools, so there is one view for each distinct value of the
/// `Authorization` header. A client that invents tool names, or even credentials, causes at most
/// one listing a second per view.
#[cfg(feature = "http")]
#[derive(Default)]
pub(super) struct Searches {
    by_credentials: Mutex<HashMap<u64, (Instant, View)>>,
    others: View,
    /// Background tasks that list tools, at most one per view.
    background: Mutex<JoinSet<()>>,
    hasher: RandomState,
}

/// The state that clients with the same credentials share, because they see the same tools. It is
/// the latest listing that a call of an unknown tool caused and that did not contain the tool.
///
/// The lock is held while a call lists the tools, so that concurrent calls wait for this listing
/// instead of listing the tools again. If the call that lists the tools is dropped, the next call
/// lists them.
#[cfg(feature = "http")]
pub(super) type View = Arc<tokio::sync::Mutex<Option<Search>>>;

/// Records when all tools were listed without finding the wanted tool.
#[cfg(feature = "http")]
pub(super) struct Search {
    epoch: u64,
    at: Instant,
}

// === impl Searches ===

#[cfg(feature = "http")]
impl Searches {
    /// Returns the [`View`] of the clients that send the `Authorization` header in `headers`.
    /// Clients without this header share one view. Further clients join them once there are
    /// [`MOST_VIEWS`] other views.
    pub(super) fn view(&self, headers: &http::HeaderMap) -> View {
        let Some(credentials) = headers.get(http::header::AUTHORIZATION) else {
            return self.others.clone();
        };
        let key = self.hasher.hash_one(credentials.as_bytes());
        let now = Instant::now();
        let mut views = self.by_credentials.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((used, view)) = views.get_mut(&key) {
            *used = now;
            return view.clone();
        }
        if views.len() >= MOST_VIEWS {
            views.retain(|_, (used, _)| now.duration_since(*used) < LIST_AGAIN_AFTER);
        }
        if views.len() >= MOST_VIEWS {
            return self.others.clone();
        }
        let view = View::default();
        views.insert(key, (now, view.clone()));
        view
    }

    /// Spawns a background task that lists tools.
    pub(super) fn spawn(&self, listing: impl Future<Output = ()> + Send + 'static) {
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        while background.try_join_next().is_some() {}
        background.spawn(listing);
    }
}

// === impl Search ===

#[cfg(feature = "http")]
impl Search {
    pub(super) fn new(epoch: u64) -> Self {
        Self { epoch, at: Instant::now() }
    }

    /// Returns `true` if this listing is less than a second old, and the tools have not changed
    /// since.
    pub(super) fn suffices(&self, epoch: u64) -> bool {
        self.epoch == epoch && self.at.elapsed() < LIST_AGAIN_AFTER
    }
}

// === impl ListedTools ===

impl ListedTools {
    /// Remembers listed tools. `asked` and `now` are the epochs before and after the listing. If
    /// they differ, the tools may be outdated and are ignored.
    pub(super) fn remember(&self, tools: &[Tool], asked: u64, now: u64) {
        // The list may be older than the change.
        if asked != now {
            return;
        }
        // Nearly always, all tools are known already, and a read lock suffices.
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let short = || tools.iter().filter(|tool| tool.name.len() <= MAX_REMEMBERED_NAME);
        if known.epoch == now && short().all(|tool| known.has(tool)) {
            return;
        }
        drop(known);

        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.epoch > now {
            return;
        }
        // Beyond the limit, all tools are removed rather than the oldest ones.
        if known.epoch < now || known.tools.len() + tools.len() > MOST_TOOLS {
            known.epoch = now;
            known.tools.clear();
            known.bytes = 0;
        }
        for tool in short().take(MOST_TOOLS) {
            if !known.has(tool) {
                known.insert(tool);
            }
        }
    }

    /// Returns whether the tool of this name was listed before or after the last change of the
    /// tools, or not at all.
    #[cfg(feature = "http")]
    pub(super) fn find(&self, name: &str, now: u64) -> Known {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match known.tools.get(name) {
            _ if name.len() > MAX_REMEMBERED_NAME => Known::Now,
            Some(_) if known.epoch == now => Known::Now,
            Some(None) => Known::Plain,
            _ => Known::No,
        }
    }

    /// Returns the tool of this name if the tool has header annotations and was listed since the
    /// tools last changed.
    pub(super) fn get(&self, name: &str, now: u64) -> Option<Tool> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let tool = known.tools.get(name).filter(|_| known.epoch == now)?;
        tool.as_ref().map(|Annotated { tool, .. }| tool.clone())
    }
}

// === impl Listed ===

impl Listed {
    fn has(&self, tool: &Tool) -> bool {
        match self.tools.get(&tool.name) {
            None => false,
            Some(None) => !is_annotated(tool),
            Some(Some(Annotated { tool: known, .. })) => {
                Arc::ptr_eq(&known.input_schema, &tool.input_schema) || known == tool
            }
        }
    }

    fn insert(&mut self, tool: &Tool) {
        if let Some(Some(before)) = self.tools.remove(&tool.name) {
            self.bytes -= before.bytes;
        }
        let mut annotated = None;
        if is_annotated(tool) {
            // A tool that exceeds the remaining size is not measured to its end.
            if !BoundedCounter::new(MAX_ANNOTATED - self.bytes).holds(tool) {
                return;
            }
            let bytes = json_bytes(tool);
            self.bytes += bytes;
            annotated = Some(Annotated { tool: tool.clone(), bytes });
        }
        self.tools.insert(tool.name.clone(), annotated);
    }
}

/// Returns `true` if a property of the tool's schema has a header annotation where rmcp looks for
/// one.
fn is_annotated(tool: &Tool) -> bool {
    fn properties_of(schema: &JsonObject) -> bool {
        let properties = schema.get("properties").and_then(Value::as_object);
        properties.into_iter().flatten().any(|(_, property)| {
            property.as_object().is_some_and(|property| {
                property.contains_key(HEADER_KEYWORD) || properties_of(property)
            })
        })
    }
    properties_of(&tool.input_schema)
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use std::sync::Arc;

    use http::{HeaderMap, header::AUTHORIZATION};

    use super::{LIST_AGAIN_AFTER, MOST_VIEWS, Search, Searches};

    fn with(credentials: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, credentials.parse().expect("a header"))])
    }

    #[tokio::test(start_paused = true)]
    async fn clients_over_the_view_limit_share_one_view() {
        let searches = Searches::default();
        let others = searches.view(&HeaderMap::new());
        let views: Vec<_> =
            (0..MOST_VIEWS).map(|number| searches.view(&with(&number.to_string()))).collect();
        assert!(Arc::ptr_eq(&views[0], &searches.view(&with("0"))));
        assert!(!views.iter().any(|view| Arc::ptr_eq(view, &others)));
        assert!(Arc::ptr_eq(&others, &searches.view(&with("more"))));
        tokio::time::advance(LIST_AGAIN_AFTER).await;
        assert!(!Arc::ptr_eq(&others, &searches.view(&with("more"))));
    }

    #[tokio::test(start_paused = true)]
    async fn listing_is_reused_for_a_second_of_the_same_epoch() {
        let search = Search::new(7);
        assert!(search.suffices(7) && !search.suffices(8));
        tokio::time::advance(LIST_AGAIN_AFTER).await;
        assert!(!search.suffices(7));
    }
}
