//! The listed tools, whose `x-mcp-header` annotations are checked against HTTP headers.

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

/// The maximum number of remembered tools. Calls of others are not checked.
const MOST_TOOLS: usize = 10_000;
/// The maximum length of a remembered tool name in bytes.
const MAX_REMEMBERED_NAME: usize = 1 << 10;
/// The maximum size of all tools with annotations in bytes, as JSON.
const MAX_ANNOTATED: usize = 16 << 20;
/// The time for which a view of the tools is not listed again for calls of missing tools.
#[cfg(feature = "http")]
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The maximum number of views that are listed separately; calls from others share one.
#[cfg(feature = "http")]
const MOST_VIEWS: usize = 100;
/// The annotation of a property that clients repeat in a header (SEP-2243).
pub(super) const HEADER_KEYWORD: &str = "x-mcp-header";

/// The tools that clients have listed, for rmcp to check the headers of a call.
///
/// rmcp queries a tool synchronously, so only tools of earlier listings can be known. With the
/// feature `http`, a call of an unknown tool first lists the tools, as its caller would, at most
/// once a second, and is then checked: see `ServeService::check_headers`. A call of a tool that had
/// no annotations before the tools changed does not wait for that listing.
///
/// rmcp reads only the annotations of the schema. Most tools have none; of those only the name is
/// kept.
///
/// A later listing replaces the tools of the same name. The first page of a listing does not remove
/// other tools: several clients list at once, not all see the same tools, and the next page may
/// come late. Keeping a removed tool is harmless, since calls of it are rejected anyway. A changed
/// schema must not be missed, or valid calls are rejected; so all tools are removed when the tools
/// have changed. A tool that was never listed is not checked: a layer may hide or rename it, and an
/// error about a missing header would reveal it. Tools that are too large to keep are not checked
/// either.
#[derive(Default)]
pub(super) struct ListedTools(RwLock<Listed>);

#[derive(Default)]
struct Listed {
    epoch: u64,
    /// `None` for a tool without annotations.
    tools: HashMap<Cow<'static, str>, Option<Annotated>>,
    /// The size of all tools with annotations in bytes.
    bytes: usize,
}

/// Whether a tool was listed.
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Listed since the last change of the tools, or too long to be remembered.
    Now,
    /// Listed before the last change, without annotations.
    Plain,
    No,
}

struct Annotated {
    tool: Tool,
    bytes: usize,
}

/// The latest listings for calls of unknown tools, by view.
///
/// Clients can see different tools, so clients with different credentials have views of
/// their own. A client that invents names, or credentials too, causes at most one listing a
/// second per view.
#[cfg(feature = "http")]
#[derive(Default)]
pub(super) struct Searches {
    by_credentials: Mutex<HashMap<u64, (Instant, View)>>,
    others: View,
    /// Listings in the background, at most one per view.
    background: Mutex<JoinSet<()>>,
    hasher: RandomState,
}

/// The latest listing of a view. Locked while the view is listed, so that calls at the same
/// time share one listing; if the call that lists is dropped, the next one takes over.
#[cfg(feature = "http")]
pub(super) type View = Arc<tokio::sync::Mutex<Option<Search>>>;

/// A listing of all tools that did not contain the wanted one.
#[cfg(feature = "http")]
pub(super) struct Search {
    epoch: u64,
    at: Instant,
}

// === impl Searches ===

#[cfg(feature = "http")]
impl Searches {
    /// Returns the view of the clients with these credentials.
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

    /// Runs a listing that no call waits for.
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

    /// Returns `true` if the tools need not be listed again yet.
    pub(super) fn suffices(&self, epoch: u64) -> bool {
        self.epoch == epoch && self.at.elapsed() < LIST_AGAIN_AFTER
    }
}

// === impl ListedTools ===

impl ListedTools {
    /// Remembers tools that were requested at epoch `asked` and received at `now`.
    pub(super) fn remember(&self, tools: &[Tool], asked: u64, now: u64) {
        // The list may be older than the change.
        if asked != now {
            return;
        }
        // All tools are nearly always known already; a read lock suffices for that.
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
        // Beyond the limit, all are removed rather than the oldest ones.
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

    /// Returns whether the tool of this name was listed.
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

    /// Returns the tool of this name if it has annotations to check.
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

/// Returns `true` if a property has the annotation at a place where rmcp looks for it.
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
