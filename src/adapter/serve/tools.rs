//! What clients must repeat of a tool's arguments in HTTP headers.

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

/// How many tools are remembered. Calls of others are not checked.
const MOST_TOOLS: usize = 10_000;
/// How long the name of one may be, in bytes.
const MAX_NAME: usize = 1 << 10;
/// How large those with annotations may be together, as JSON.
const MAX_ANNOTATED: usize = 16 << 20;
/// How long a view of the tools is not listed again for calls of tools that it lacked.
#[cfg(feature = "http")]
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How many views are listed separately; calls from others share one.
#[cfg(feature = "http")]
const MOST_VIEWS: usize = 100;
/// The annotation of a property that clients repeat in a header (SEP-2243).
pub(super) const HEADER_KEYWORD: &str = "x-mcp-header";

/// The tools that clients were shown, for rmcp to check the headers of a call.
///
/// rmcp asks for a tool without waiting, so only what has passed can be known. With the
/// feature `http`, a call of a tool that is not known lists the tools first, as its
/// caller would, and is checked then, at most once a second: see
/// `ServeService::check_headers`. A call of a tool that had no annotations before the tools
/// changed does not wait for that listing.
///
/// rmcp looks at nothing but the annotations of the schema. Most tools have none,
/// and of those only the name is kept, since they need not be looked at again.
///
/// What is listed again replaces what was known of the same name. Nothing is
/// forgotten at the first page of a listing: several clients list at once, not
/// all see the same tools, and the next page may be long in coming. That a tool
/// is gone costs nothing, since a call of it is refused anyway. But that it looks
/// different now must not be missed, or good calls are refused; so all is
/// forgotten when the tools have changed. A tool that was not shown is not
/// checked: what the handler itself knows may be hidden by a layer, or shown under
/// other names, and whoever is told that a header is missing knows that there is
/// such a tool. Nor is one checked that is too large to be kept.
#[derive(Default)]
pub(super) struct ListedTools(RwLock<Listed>);

#[derive(Default)]
struct Listed {
    epoch: u64,
    /// None for a tool without annotations.
    tools: HashMap<Cow<'static, str>, Option<Annotated>>,
    /// How large all with annotations are.
    bytes: usize,
}

/// Whether a tool was listed.
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Since the last change of the tools, or it is never remembered.
    Now,
    /// Before the last change, without annotations.
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
    /// Remembers tools that were asked for at epoch `asked` and came at `now`.
    pub(super) fn remember(&self, tools: &[Tool], asked: u64, now: u64) {
        // Perhaps from before the change.
        if asked != now {
            return;
        }
        // Nearly always all is known, and nobody need wait for that.
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let short = || tools.iter().filter(|tool| tool.name.len() <= MAX_NAME);
        if known.epoch == now && short().all(|tool| known.has(tool)) {
            return;
        }
        drop(known);

        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.epoch > now {
            return;
        }
        // Too many are not worth keeping count of which came first.
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

    /// Returns what the listings say about the tool of this name.
    #[cfg(feature = "http")]
    pub(super) fn find(&self, name: &str, now: u64) -> Known {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match known.tools.get(name) {
            _ if name.len() > MAX_NAME => Known::Now,
            Some(_) if known.epoch == now => Known::Now,
            Some(None) => Known::Plain,
            _ => Known::No,
        }
    }

    /// The tool of this name, if there is something to check.
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
            // What has no room is not read to its end.
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

/// Whether a property has the annotation, at a place where rmcp looks for it.
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
    use http::{HeaderMap, header::AUTHORIZATION};

    use super::*;

    fn with(credentials: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, credentials.parse().expect("a header"))])
    }

    #[tokio::test(start_paused = true)]
    async fn views_beyond_the_limit_share_one() {
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
    async fn listing_suffices_for_a_second_of_its_epoch() {
        let search = Search::new(7);
        assert!(search.suffices(7) && !search.suffices(8));
        tokio::time::advance(LIST_AGAIN_AFTER).await;
        assert!(!search.suffices(7));
    }
}
