//! A catalog caches the list of tools that the service behind a layer offers.
//!
//! A catalog contains the tools with the names, schemas and annotations that the service behind the
//! layer lists. On first use, the catalog lists all pages of tools. All clones of the layer's
//! service share the catalog.
//!
//! - Concurrent requests share one listing. If the request that lists the tools is dropped, one of
//!   the waiting requests lists them instead.
//! - A listing times out after 10 seconds. A failure is cached for one second.
//! - After 60 seconds, the catalog is refreshed in the background, and requests use the old catalog
//!   in the meantime. Without a Tokio runtime, the next request that needs the catalog waits for
//!   the refresh.
//! - A listing fails if the list is too large, or if a page returns the cursor of an earlier page.
//! - When its [`Epoch`] is bumped because the tools have changed, the catalog is outdated. Requests
//!   that list tools then wait for a new catalog. So do calls whose access check depends on the
//!   current definition of the tool.
//! - If a request names a tool that the catalog does not contain, the tools are listed again, at
//!   most once a second.
//!
//! # Examples
//!
//! A composite needs the definitions of its target tools. They are listed once for all calls:
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool},
//!     testing::{self, Server},
//! };
//! use serde_json::json;
//! use tower::Layer;
//!
//! let look = CompositeTool::fan_out("look", "Looks", ["near", "far"]);
//! let server = Server::new().says("near", "a ship").says("far", "a port");
//! let service = CompositeLayer::new([look]).unwrap().layer(server.clone());
//!
//! testing::call(&service, "look", json!({})).await;
//! testing::call(&service, "look", json!({})).await;
//! assert_eq!(server.lists(), 1);
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```

mod held;

use std::{
    collections::HashMap,
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use rmcp::model::Tool;
use tokio::{runtime::Handle, task::JoinSet, time::Instant};
use tower::{BoxError, ServiceExt};
use tower_service::Service;
use tracing::Instrument;

use self::held::{Held, Holding};
use crate::{
    changes::Epoch,
    message::{Context, ContextKey, Reply, Request},
    pagination::{MAX_ITEMS, MAX_LIST_BYTES, MAX_PAGES, NoEnd, Pages},
    warnings::sanitize::Reason,
};

/// The timeout for listing all pages of tools.
const LISTING_TIMEOUT: Duration = Duration::from_secs(10);
/// The age at which a catalog is refreshed even if no change was reported.
const MAX_AGE: Duration = Duration::from_secs(60);
/// The minimum time until tools are listed again after a listing failed, or after it did not
/// contain a requested tool.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The maximum number of per-caller catalogs that a layer keeps.
const MAX_VARIED: usize = 1_000;
/// The maximum total size of the tools in all per-caller catalogs of a layer, in bytes of JSON.
const MAX_VARIED_BYTES: usize = 256 << 20;

/// The tools that a service lists, accessible by name.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    tools: Vec<Tool>,
    places: HashMap<String, usize>,
    shadowed: Vec<Tool>,
    /// The size of the tools in bytes of JSON. Zero unless the tools were listed from a service.
    bytes: usize,
}

/// The content of a catalog: the listed tools, and the data that a rule has derived from them.
#[derive(Debug)]
pub struct Known<D> {
    tools: Tools,
    derived: D,
    epoch: u64,
    since: Instant,
    /// Counts the size of these tools toward the total size of the layer's catalogs. Dropping the
    /// value subtracts their size again.
    _held: Held,
}

/// The tools that a rule must know before it can decide about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs<'r> {
    /// The rule needs no tools.
    Nothing,
    /// The rule must know the tool with this name. An outdated definition suffices.
    Tool(&'r str),
    /// The rule must know the current definition of the tool with this name, for access control. If
    /// the catalog's [epoch](Epoch) shows that the tools have changed, the request waits until the
    /// tools are listed again. If the catalog has no epoch, this variant is the same as
    /// [`Tool`](Self::Tool).
    CurrentTool(&'r str),
    /// The rule must know all tools. If the tools have changed, the request waits until they are
    /// listed again.
    AllTools,
}

/// The reason why the tools of a service could not be listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// Listing took longer than 10 seconds.
    #[error("listing tools took longer than {LISTING_TIMEOUT:?}")]
    TimedOut,
    /// The list had too many pages or tools.
    #[error("listing tools did not end after {MAX_PAGES} pages or {MAX_ITEMS} tools")]
    Endless,
    /// All pages together were too large.
    #[error("the list of tools is larger than {MAX_LIST_BYTES} bytes")]
    TooLarge,
    /// A page returned the cursor of an earlier page, so the list would never end.
    #[error("the list of tools repeats a cursor")]
    Circular,
    /// The service answered `tools/list` with a JSON-RPC error with this message.
    #[error("`tools/list` failed: {0}")]
    Refused(String),
    /// The service answered `tools/list` with a result that is not a list of tools.
    #[error("`tools/list` returned something other than a list of tools")]
    Invalid,
    /// The service failed to answer and returned an error with this text.
    #[error("the service could not answer `tools/list`: {0}")]
    Service(String),
}

/// A cached catalog of tools. All clones share the cached content.
struct Catalog<D>(Arc<Shared<D>>);

struct Shared<D> {
    epoch: Epoch,
    state: Mutex<State<D>>,
    holding: Holding,
    /// Held by the request or background task that is listing the tools.
    flight: Arc<tokio::sync::Mutex<()>>,
}

struct State<D> {
    known: Option<Arc<Known<D>>>,
    failed: Option<(Instant, ListError)>,
    /// The background task that refreshes the catalog. Aborted when the catalog is dropped.
    refresh: JoinSet<()>,
}

/// The result of looking up tools in a catalog for one request.
enum AtHand<D> {
    /// The cached tools suffice for the request.
    Known(Arc<Known<D>>),
    /// The cached tools suffice for the request, but should be refreshed in the background.
    Stale(Arc<Known<D>>),
    /// No tools are cached, and listing them has failed within the last second.
    Failed(ListError),
    /// The request must wait until the tools are listed.
    Unknown,
}

/// The context of the requests that list tools. If tools vary by caller, this is the context of a
/// caller. Otherwise, the context is empty.
#[derive(Debug, Default)]
pub(crate) struct ListingContext(Option<Box<Context>>);

/// The settings of the catalogs of one layer.
#[derive(Clone, Default)]
pub(crate) struct CatalogSettings {
    /// The epoch that invalidates the catalogs when it is bumped.
    pub(crate) epoch: Epoch,
    /// Maps the context of a request to the key of the catalog to use. If `None`, all callers share
    /// one catalog.
    pub(crate) vary_by: Option<ContextKey>,
}

/// Looks up tools in a catalog for one request.
pub(crate) struct Lookup<D> {
    catalog: Catalog<D>,
    context: ListingContext,
}

/// The catalogs of one layer: a common catalog and, if tools vary by caller, one catalog for each
/// key.
pub(crate) struct Catalogs<D> {
    common: Catalog<D>,
    varied: Option<Arc<Varied<D>>>,
}

struct Varied<D> {
    by: ContextKey,
    catalogs: Mutex<HashMap<String, (Instant, Catalog<D>)>>,
    holding: Holding,
}

/// Implements the setters `epoch` and `vary_by` for a layer with [`CatalogSettings`].
///
/// The first argument is a doc comment that describes how the layer behaves without an epoch.
macro_rules! catalog_setters {
    ($(#[$without_epoch:meta])+ $Layer:ident: $($catalogs:tt)+) => {
        impl $Layer {
            /// Invalidates the cached tools when `epoch` is bumped.
            ///
            $(#[$without_epoch])+
            #[must_use]
            pub fn epoch(mut self, epoch: crate::changes::Epoch) -> Self {
                self.$($catalogs)+.epoch = epoch;
                self
            }

            /// Caches tools separately for each key. The function `key` returns the key for a
            /// request's context, such as the name of the caller. Use this for servers that list
            /// different tools for different callers.
            ///
            /// The tools of a key are listed in the context of the first request with the key. If
            /// `key` returns `None`, tools are listed in an empty context, and all such requests
            /// share them. Only the 1000 most recently used keys are kept, and fewer if their tools
            /// exceed 256 MiB.
            #[must_use]
            pub fn vary_by<F>(mut self, key: F) -> Self
            where
                F: Fn(&crate::message::Context) -> Option<String> + Send + Sync + 'static,
            {
                self.$($catalogs)+.vary_by = Some(std::sync::Arc::new(key));
                self
            }
        }
    };
}
pub(crate) use catalog_setters;

/// Lists all tools of a service.
///
/// # Errors
///
/// Returns an error if the service fails or times out, if it answers with an error or an unexpected
/// result, or if the list is endless or too large.
pub(crate) async fn list_all<S>(service: S, context: Context) -> Result<Tools, ListError>
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    in_time(list_pages(service, context)).await.unwrap_or(Err(ListError::TimedOut))
}

/// Waits for `work` with the timeout for listing tools. Returns `None` if `work` takes longer.
/// Without a Tokio runtime, there is no timeout.
pub(crate) async fn in_time<F: Future>(work: F) -> Option<F::Output> {
    // Rules work without a runtime, but timers do not.
    if !has_runtime() {
        return Some(work.await);
    }
    tokio::time::timeout(LISTING_TIMEOUT, work).await.ok()
}

fn has_runtime() -> bool {
    Handle::try_current().is_ok()
}

async fn list_pages<S>(service: S, context: Context) -> Result<Tools, ListError>
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    let mut tools = Tools::default();
    let mut pages = Pages::new();
    let mut cursor = None;
    loop {
        let is_first = cursor.is_none();
        let request = Request::list_tools_from(cursor).with_context(context.clone());
        let mut reply = service
            .clone()
            .oneshot(request)
            .await
            .map_err(|error| ListError::Service(error.into().to_string()))?;
        // A server without the `tools` capability rejects the method; it has no tools.
        if is_first && reply.is_method_not_found() {
            return Ok(tools);
        }
        if let Some(error) = reply.error() {
            return Err(ListError::Refused(error.message.to_string()));
        }
        let page = reply.tools_mut().ok_or(ListError::Invalid)?;
        cursor = pages.turn(&page.tools, page.next_cursor.take())?;
        tools.extend(page.tools.drain(..));
        if cursor.is_none() {
            tools.bytes = pages.bytes();
            return Ok(tools);
        }
    }
}

// === impl ListError ===

impl From<NoEnd> for ListError {
    fn from(why: NoEnd) -> Self {
        match why {
            NoEnd::Endless => Self::Endless,
            NoEnd::TooLarge => Self::TooLarge,
            NoEnd::Circular => Self::Circular,
        }
    }
}

// === impl Tools ===

impl Tools {
    /// Returns the tool with this name. If several tools have the name, returns the first of them
    /// in the list.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.place(name).map(|place| &self.tools[place])
    }

    /// Returns the index of the tool with this name in the list.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Iterates over the tools in the order in which they are listed.
    pub fn iter(&self) -> std::slice::Iter<'_, Tool> {
        self.tools.iter()
    }

    /// Iterates over the tools that differ from an earlier tool with the same name.
    /// [`get`](Self::get) does not return these tools.
    ///
    /// The server decides which of the tools with the same name a call reaches.
    pub fn shadowed(&self) -> std::slice::Iter<'_, Tool> {
        self.shadowed.iter()
    }

    /// Returns the number of tools.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Returns `true` if there are no tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}

impl Extend<Tool> for Tools {
    /// Adds tools to the list. If several tools have the same name, [`get`](Self::get) returns the
    /// first of them.
    fn extend<T: IntoIterator<Item = Tool>>(&mut self, tools: T) {
        for tool in tools {
            match self.places.get(&*tool.name) {
                None => {
                    self.places.insert(tool.name.to_string(), self.tools.len());
                    self.tools.push(tool);
                }
                Some(&first) if self.tools[first] != tool => self.shadowed.push(tool),
                Some(_) => (),
            }
        }
    }
}

impl<'a> IntoIterator for &'a Tools {
    type Item = &'a Tool;
    type IntoIter = std::slice::Iter<'a, Tool>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<Tool> for Tools {
    fn from_iter<T: IntoIterator<Item = Tool>>(tools: T) -> Self {
        let mut collected = Self::default();
        collected.extend(tools);
        collected
    }
}

// === impl Known ===

impl<D> Known<D> {
    /// Returns the listed tools.
    #[must_use]
    pub const fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Returns the data that the rule has derived from the listed tools.
    #[must_use]
    pub const fn derived(&self) -> &D {
        &self.derived
    }
}

// === impl Catalog ===

impl<D> Catalog<D> {
    fn new(epoch: Epoch, holding: Holding) -> Self {
        Self(Arc::new(Shared {
            epoch,
            state: Mutex::new(State { known: None, failed: None, refresh: JoinSet::new() }),
            holding,
            flight: Arc::default(),
        }))
    }

    /// Looks up the cached tools at the time `now`, without waiting. `suffices` returns `true` if
    /// the cached tools are enough for the request.
    fn at_hand(
        &self,
        needs: Needs<'_>,
        now: Instant,
        suffices: impl Fn(&Known<D>) -> bool,
    ) -> AtHand<D> {
        let state = self.0.state();
        let failed = state.failed.as_ref().filter(|(at, _)| now - *at < LIST_AGAIN_AFTER);
        let Some(known) = &state.known else {
            return match failed {
                Some((_, error)) => AtHand::Failed(error.clone()),
                None => AtHand::Unknown,
            };
        };
        let known = known.clone();
        // The cached tools remain in use while listing fails.
        if failed.is_some() {
            return AtHand::Known(known);
        }
        let outdated = known.epoch != self.0.epoch.now();
        let age = now - known.since;
        if suffices(&known) {
            match needs {
                Needs::AllTools | Needs::CurrentTool(_) if outdated => AtHand::Unknown,
                _ if (outdated || age >= MAX_AGE) && !has_runtime() => AtHand::Unknown,
                _ if outdated || age >= MAX_AGE => AtHand::Stale(known),
                _ => AtHand::Known(known),
            }
        } else if outdated || age >= LIST_AGAIN_AFTER {
            AtHand::Unknown
        } else {
            AtHand::Known(known)
        }
    }

    /// Returns the cached tools as soon as they suffice for `needs`. If they do not, waits for
    /// another request's listing, or lists the tools with `load` if no other request does.
    async fn wait<F>(
        &self,
        needs: Needs<'_>,
        suffices: impl Fn(&Known<D>) -> bool,
        load: impl FnOnce() -> F,
    ) -> Result<Arc<Known<D>>, ListError>
    where
        F: Future<Output = Result<(Tools, D), ListError>>,
    {
        let Some(_flight) = in_time(self.0.flight.lock()).await else {
            // The listing of another request has not ended in time.
            return self.0.state().known.clone().ok_or(ListError::TimedOut);
        };
        match self.at_hand(needs, Instant::now(), suffices) {
            AtHand::Known(known) | AtHand::Stale(known) => return Ok(known),
            AtHand::Failed(error) => return Err(error),
            AtHand::Unknown => (),
        }
        // Read before listing, so that a change in the meantime makes the result outdated.
        let epoch = self.0.epoch.now();
        let loaded = load().await;
        self.0.store(epoch, loaded)
    }

    /// Refreshes the catalog in the background with `load`, which lists the tools. Does nothing if
    /// a listing is already running.
    fn refresh<F>(&self, load: impl FnOnce() -> F)
    where
        D: Send + Sync + 'static,
        F: Future<Output = Result<(Tools, D), ListError>> + Send + 'static,
    {
        let (Ok(runtime), Ok(flight)) =
            (Handle::try_current(), self.0.flight.clone().try_lock_owned())
        else {
            return;
        };
        let epoch = self.0.epoch.now();
        let shared = Arc::downgrade(&self.0);
        let load = load();
        let refresh = async move {
            let loaded = load.await;
            // The task has only a weak reference: the catalog owns the task, and dropping the
            // catalog must abort the task.
            if let Some(shared) = Weak::upgrade(&shared) {
                // After a failure, which `store` has logged, the known tools remain in use.
                let _ = shared.store(epoch, loaded);
            }
            drop(flight);
        };
        let mut state = self.0.state();
        while state.refresh.try_join_next().is_some() {}
        state.refresh.spawn_on(refresh.in_current_span(), &runtime);
    }
}

impl<D> Clone for Catalog<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

// === impl Shared ===

impl<D> Shared<D> {
    fn store(
        &self,
        epoch: u64,
        loaded: Result<(Tools, D), ListError>,
    ) -> Result<Arc<Known<D>>, ListError> {
        let now = Instant::now();
        let mut state = self.state();
        match loaded {
            Ok((tools, derived)) => {
                let _held = self.holding.hold(tools.bytes);
                let known = Arc::new(Known { tools, derived, epoch, since: now, _held });
                state.known = Some(known.clone());
                state.failed = None;
                Ok(known)
            }
            Err(error) => {
                let why = Reason(&error);
                tracing::warn!(error = %why, "failed to list the tools of the inner service");
                state.failed = Some((now, error.clone()));
                state.known.clone().ok_or(error)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<D>> {
        // No code panics while holding the lock, and the state would stay consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Catalogs ===

impl<D> Catalogs<D> {
    pub(crate) fn new(settings: CatalogSettings) -> Self {
        let CatalogSettings { epoch, vary_by } = settings;
        let varied = vary_by.map(|by| {
            Arc::new(Varied { by, catalogs: Mutex::default(), holding: Holding::default() })
        });
        Self { common: Catalog::new(epoch, Holding::default()), varied }
    }

    pub(crate) fn settings(&self) -> CatalogSettings {
        CatalogSettings {
            epoch: self.common.0.epoch.clone(),
            vary_by: self.varied.as_ref().map(|varied| varied.by.clone()),
        }
    }

    /// Starts a lookup of tools for a request with the context `context`.
    ///
    /// Unless tools vary by caller, they are listed in an empty context, so that the shared catalog
    /// contains no tools that only one caller may see.
    pub(crate) fn lookup(&self, context: &Context) -> Lookup<D> {
        let (catalog, context) = match self
            .varied
            .as_deref()
            .and_then(|varied| Some((varied, (varied.by)(context)?)))
        {
            None => (self.common.clone(), ListingContext::default()),
            Some((varied, key)) => {
                let mut context = context.branch("tools".into(), None);
                // A background refresh must not be canceled with the request that started it.
                context.cancellation = None;
                (varied.catalog(key, &self.common.0.epoch), ListingContext(Some(Box::new(context))))
            }
        };
        Lookup { catalog, context }
    }
}

impl<D> Clone for Catalogs<D> {
    fn clone(&self) -> Self {
        Self { common: self.common.clone(), varied: self.varied.clone() }
    }
}

impl<D> fmt::Debug for Catalogs<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalogs").field("varied", &self.varied.is_some()).finish_non_exhaustive()
    }
}

// === impl Lookup ===

impl<D> Lookup<D>
where
    D: Send + Sync + 'static,
{
    /// Looks up the cached tools at the time `now`, without waiting. If the tools are stale,
    /// refreshes them in the background with `load`.
    ///
    /// Returns `None` if the tools must be listed first. In that case, call [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// Returns the error of the last listing if no tools are cached and the listing failed within
    /// the last second.
    #[inline]
    pub(crate) fn find<F>(
        &mut self,
        needs: Needs<'_>,
        now: Instant,
        suffices: impl Fn(&Known<D>) -> bool,
        load: impl FnOnce(ListingContext) -> F,
    ) -> Option<Result<Arc<Known<D>>, ListError>>
    where
        F: Future<Output = Result<(Tools, D), ListError>> + Send + 'static,
    {
        match self.catalog.at_hand(needs, now, suffices) {
            AtHand::Known(known) => Some(Ok(known)),
            AtHand::Stale(known) => {
                let context = mem::take(&mut self.context);
                self.catalog.refresh(|| load(context));
                Some(Ok(known))
            }
            AtHand::Failed(error) => Some(Err(error)),
            AtHand::Unknown => None,
        }
    }
}

impl<D> Lookup<D> {
    /// Returns the cached tools as soon as they suffice for `needs`. If they do not, waits for
    /// another request's listing, or lists the tools with `load` if no other request does.
    pub(crate) async fn wait<F>(
        self,
        needs: Needs<'_>,
        suffices: impl Fn(&Known<D>) -> bool,
        load: impl FnOnce(ListingContext) -> F,
    ) -> Result<Arc<Known<D>>, ListError>
    where
        F: Future<Output = Result<(Tools, D), ListError>>,
    {
        let Self { catalog, context } = self;
        catalog.wait(needs, suffices, || load(context)).await
    }
}

impl<D> Lookup<D> {
    /// Discards the cached tools if `differs` returns `true` for them, because a list of tools that
    /// a client has requested shows that they have changed.
    #[cfg(feature = "cache")]
    pub(crate) fn discard_if(&self, differs: impl FnOnce(&Known<D>) -> bool) {
        let mut state = self.catalog.0.state();
        state.known = state.known.take().filter(|known| !differs(known));
    }
}

// === impl CatalogSettings ===

impl fmt::Debug for CatalogSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogSettings")
            .field("epoch", &self.epoch)
            .field("vary_by", &self.vary_by.is_some())
            .finish()
    }
}

// === impl ListingContext ===

impl ListingContext {
    pub(crate) fn into_context(self) -> Context {
        self.0.map_or_else(Context::default, |context| *context)
    }
}

// === impl Varied ===

impl<D> Varied<D> {
    fn catalog(&self, key: String, epoch: &Epoch) -> Catalog<D> {
        let now = Instant::now();
        let mut catalogs = self.catalogs.lock().unwrap_or_else(PoisonError::into_inner);
        let catalog = match catalogs.remove(&key) {
            Some((_, catalog)) => catalog,
            None => Catalog::new(epoch.clone(), self.holding.clone()),
        };
        // The total includes evicted lists that running requests still use, so the loop may have to
        // evict all other catalogs.
        while catalogs.len() >= MAX_VARIED
            || self.holding.bytes() > MAX_VARIED_BYTES && !catalogs.is_empty()
        {
            let oldest =
                catalogs.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|key| catalogs.remove(&key));
        }
        catalogs.insert(key, (now, catalog.clone()));
        catalog
    }
}

#[cfg(test)]
mod tests;
