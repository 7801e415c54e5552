//! Remembers the tools that clients have listed, to check the `Mcp-Param-*` headers of tool calls.

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

#[cfg(feature = "http")]
use futures::FutureExt as _;
use rmcp::model::{JsonObject, Tool};
use serde_json::Value;
#[cfg(feature = "http")]
use tokio::{task::JoinSet, time::Instant};

use crate::json_size::{BoundedCounter, json_bytes};
#[cfg(feature = "http")]
use crate::mutex::lock;

/// The maximum number of tools that are remembered. If a listing would exceed the limit, all tools
/// of earlier listings are forgotten first. The headers of calls are only checked for remembered
/// tools.
const MOST_TOOLS: usize = 10_000;
/// The maximum length in bytes of a tool's name. Tools with longer names are not remembered.
const MAX_REMEMBERED_NAME: usize = 1 << 10;
/// The maximum total size in bytes, as JSON, of the remembered tools with header annotations. A
/// tool that would exceed the limit is not remembered.
const MAX_ANNOTATED: usize = 16 << 20;
/// The minimum time between two listings that calls of unknown tools with the same credentials
/// cause.
#[cfg(feature = "http")]
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The maximum number of [`View`]s, one for each value of the `Authorization` header. Further
/// clients share one view.
#[cfg(feature = "http")]
const MOST_VIEWS: usize = 100;
/// The key in an argument's schema that names the header in which clients repeat the argument
/// (SEP-2243).
pub(super) const HEADER_KEYWORD: &str = "x-mcp-header";

/// The tools that clients have listed. rmcp looks them up to check the headers of tool calls.
///
/// rmcp's lookup is synchronous, so it finds only tools that were listed earlier. With the feature
/// `http`, the server therefore lists the tools itself when a client calls an unknown tool, at most
/// once a second. It then checks the call. After the tools have changed, calls of tools that had no
/// header annotations before do not wait for the listing.
///
/// rmcp only uses the header annotations in a tool's schema. For tools without annotations, which
/// are most tools, only the name is stored.
///
/// A later listing replaces tools of the same name, but does not remove other tools, because
/// clients may see different tools and list them concurrently. A tool that no longer exists may be
/// remembered, because its calls are rejected anyway. However, an outdated schema would cause valid
/// calls to be rejected. Therefore, all tools are forgotten when the service reports that its tools
/// have changed.
///
/// Calls of a tool that no client has listed are not checked: a layer may hide or rename the tool,
/// and an error about a missing header would reveal it. Calls of tools that are too large to be
/// remembered are not checked either.
#[derive(Default)]
pub(super) struct ListedTools(RwLock<Listed>);

#[derive(Default)]
struct Listed {
    epoch: u64,
    /// The remembered tools by name. The value is `None` if the tool has no header annotations.
    tools: HashMap<Cow<'static, str>, Option<Annotated>>,
    /// The total size in bytes, as JSON, of the tools with header annotations.
    bytes: usize,
}

/// Whether the server remembers a tool, and whether the tool may have changed since it was listed.
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The tool was listed since the last change of the tools, so it need not be listed again. Also
    /// used for a tool whose name is too long to be remembered, because listing it again would not
    /// help.
    Now,
    /// The tool was listed before the last change of the tools, and had no header annotations at
    /// that time. A call of such a tool does not wait for a new listing.
    Plain,
    No,
}

struct Annotated {
    tool: Tool,
    bytes: usize,
}

/// Limits how often calls of unknown tools cause a listing of the tools. The limit applies
/// separately to each [`View`].
///
/// Different clients may see different tools. Therefore, there is a separate view for each value of
/// the `Authorization` header. A client that invents tool names or credentials causes at most one
/// listing a second per view.
#[cfg(feature = "http")]
#[derive(Default)]
pub(super) struct Searches {
    by_credentials: Mutex<HashMap<u64, (Instant, View)>>,
    others: View,
    /// The background tasks that list tools. There is at most one task per view.
    background: Mutex<JoinSet<()>>,
    hasher: RandomState,
}

/// The state that calls with the same credentials share, because they see the same tools. Contains
/// the latest listing in which a called tool was missing, or `None`.
///
/// A call holds the lock while it lists the tools. Concurrent calls wait for the lock, and then use
/// the result instead of listing the tools again. If the first call is dropped, the next one lists
/// the tools.
#[cfg(feature = "http")]
pub(super) type View = Arc<tokio::sync::Mutex<Option<Search>>>;

/// A listing of the tools that did not contain the called tool. Stores the time of the listing and
/// the epoch (change counter) of the tools.
#[cfg(feature = "http")]
pub(super) struct Search {
    epoch: u64,
    at: Instant,
}

// === impl Searches ===

#[cfg(feature = "http")]
impl Searches {
    /// Returns the [`View`] for the credentials in `headers`, which are the value of the
    /// `Authorization` header. All clients without this header share one view. If there are already
    /// [`MOST_VIEWS`] other views, clients with new credentials also use this shared view.
    pub(super) fn view(&self, headers: &http::HeaderMap) -> View {
        let Some(credentials) = headers.get(http::header::AUTHORIZATION) else {
            return self.others.clone();
        };
        let key = self.hasher.hash_one(credentials.as_bytes());
        let now = Instant::now();
        let mut views = lock(&self.by_credentials);
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

    /// Spawns a background task that lists the tools.
    pub(super) fn spawn(&self, listing: impl Future<Output = ()> + Send + 'static) {
        let mut background = lock(&self.background);
        while background.try_join_next().is_some() {}
        background.spawn(listing.boxed());
    }
}

// === impl Search ===

#[cfg(feature = "http")]
impl Search {
    pub(super) fn new(epoch: u64) -> Self {
        Self { epoch, at: Instant::now() }
    }

    /// Returns `true` if the listing need not be repeated, because it is less than a second old and
    /// the tools have not changed since.
    pub(super) fn suffices(&self, epoch: u64) -> bool {
        self.epoch == epoch && self.at.elapsed() < LIST_AGAIN_AFTER
    }
}

// === impl ListedTools ===

impl ListedTools {
    /// Remembers the tools that a client has listed. `before` and `now` are the epochs (change
    /// counters) before and after the listing. If they differ, the list may be outdated and is
    /// ignored.
    pub(super) fn remember(&self, tools: &[Tool], before: u64, now: u64) {
        // The list may be older than the change.
        if before != now {
            return;
        }
        // Usually, all tools are already known, so that a read lock suffices.
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
        // If the limit would be exceeded, all tools are removed, and not only the oldest.
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

    /// Returns whether the named tool is remembered, and whether it may have changed since it was
    /// listed. `now` is the current epoch (change counter) of the tools.
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

    /// Returns the named tool if it is remembered with its header annotations. Returns `None` if it
    /// has no annotations, or was not listed since the last change of the tools. `now` is the
    /// current epoch (change counter) of the tools.
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
            // Counting stops as soon as the tool exceeds the remaining size.
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

/// Returns `true` if the tool's input schema contains a header annotation (`x-mcp-header`).
/// Searches only nested `properties`, as rmcp does.
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
