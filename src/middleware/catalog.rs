//! A cached catalog of the tools behind a layer.
//!
//! A layer that needs tools, their schemas or their annotations holds a catalog of the tools,
//! by the names that are used at its position in the stack. It is loaded on first use, by
//! listing all pages of the service behind the layer, and shared by all clones of that service:
//!
//! - Concurrent requests share one listing. If the request that lists is dropped, the next one
//!   takes over.
//! - A listing may take 10 seconds. A failure is cached for one second.
//! - After 60 seconds the catalog is refreshed in the background, and the old one is used in
//!   the meantime. Without a runtime, the next request that needs it waits for the refresh.
//! - Listing fails if the cursors form a cycle, or the list is too large.
//! - After its [`Epoch`] is bumped, requests that list tools wait for a new catalog, and so do
//!   calls whose access check depends on the current definition of the tool.
//! - For an unknown tool, the tools are listed again, at most once a second.
//!
//! # Examples
//!
//! A composite needs the definitions of its targets, and lists them once for all calls:
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

use std::{
    collections::HashMap,
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rmcp::model::Tool;
use tokio::{runtime::Handle, task::JoinSet, time::Instant};
use tower::{BoxError, ServiceExt};
use tower_service::Service;
use tracing::Instrument;

use crate::{
    changes::Epoch,
    message::{Context, ContextKey, Reply, Request},
    pagination::{MAX_ITEMS, MAX_LIST_BYTES, MAX_PAGES, NoEnd, Pages},
    warnings::sanitize::Reason,
};

/// Timeout for all pages together.
const LISTING_TIMEOUT: Duration = Duration::from_secs(10);
/// Age at which a catalog is refreshed even without a change notification.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Minimum interval between listings after one that failed or lacked the tool.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of per-caller catalogs of a layer.
const MAX_VARIED: usize = 1_000;
/// Maximum bytes of the lists in these catalogs, as JSON.
const MAX_VARIED_BYTES: usize = 256 << 20;

/// The tools that a service lists, by name.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    tools: Vec<Tool>,
    places: HashMap<String, usize>,
    shadowed: Vec<Tool>,
    /// Their size as JSON, if they were listed.
    bytes: usize,
}

/// A catalog's content: the tools, and what the layer derived from them.
#[derive(Debug)]
pub struct Known<D> {
    tools: Tools,
    derived: D,
    epoch: u64,
    since: Instant,
    /// Counts toward the bytes of all catalogs of a layer until the content is dropped.
    _held: Held,
}

/// The bytes of the lists in the catalogs of a layer.
#[derive(Clone, Debug, Default)]
struct Holding(Arc<AtomicUsize>);

/// Bytes that are counted until the value is dropped.
#[derive(Debug)]
struct Held {
    bytes: usize,
    holding: Holding,
}

/// The knowledge that a rule needs to decide about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs<'r> {
    /// Nothing about tools.
    Nothing,
    /// This tool; a stale definition suffices.
    Tool(&'r str),
    /// The current definition of this tool, for access control: if the [epoch](Epoch) of the tools
    /// has changed, the request waits until they are listed again. Without an epoch, the same as
    /// [`Tool`](Self::Tool).
    CurrentTool(&'r str),
    /// All current tools.
    AllTools,
}

/// The reason why tools could not be listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// Listing took longer than 10 seconds.
    #[error("listing tools took longer than {LISTING_TIMEOUT:?}")]
    TimedOut,
    /// There were too many pages or tools.
    #[error("listing tools did not end after {MAX_PAGES} pages or {MAX_ITEMS} tools")]
    Endless,
    /// All pages together were too large.
    #[error("the list of tools is larger than {MAX_LIST_BYTES} bytes")]
    TooLarge,
    /// A page returned the cursor of an earlier one.
    #[error("the list of tools comes back to where it was")]
    Circular,
    /// The service returned an error with this message.
    #[error("`tools/list` was answered with an error: {0}")]
    Refused(String),
    /// The service returned a result that is not a list of tools.
    #[error("`tools/list` was answered with something else")]
    Invalid,
    /// The service failed, for this reason.
    #[error("the service could not answer `tools/list`: {0}")]
    Service(String),
}

/// A catalog; clones share their content.
struct Catalog<D>(Arc<Shared<D>>);

struct Shared<D> {
    epoch: Epoch,
    state: Mutex<State<D>>,
    holding: Holding,
    /// Locked by the request or task that lists tools.
    flight: Arc<tokio::sync::Mutex<()>>,
}

struct State<D> {
    known: Option<Arc<Known<D>>>,
    failed: Option<(Instant, ListError)>,
    /// The background refresh, which is aborted when the catalog is dropped.
    refresh: JoinSet<()>,
}

/// The state of a catalog for a request, without waiting.
enum AtHand<D> {
    /// The known tools suffice.
    Known(Arc<Known<D>>),
    /// The known tools suffice, but should be refreshed.
    Stale(Arc<Known<D>>),
    /// No tools are known, and the last listing failed recently.
    Failed(ListError),
    /// Tools must be listed first.
    Unknown,
}

/// The context to list tools in: that of a caller if tools vary by caller, else an empty one.
#[derive(Debug, Default)]
pub(crate) struct ListingContext(Option<Box<Context>>);

/// The settings of the catalogs of one layer.
#[derive(Clone, Default)]
pub(crate) struct CatalogSettings {
    /// Invalidates the catalogs when it is bumped.
    pub(crate) epoch: Epoch,
    /// Separates catalogs by caller. By default, all callers share one.
    pub(crate) vary_by: Option<ContextKey>,
}

/// A look-up of the tools behind a layer, for one request.
pub(crate) struct Lookup<D> {
    catalog: Catalog<D>,
    context: ListingContext,
}

/// The catalogs of one layer: one, unless tools vary by caller.
pub(crate) struct Catalogs<D> {
    common: Catalog<D>,
    varied: Option<Arc<Varied<D>>>,
}

struct Varied<D> {
    by: ContextKey,
    catalogs: Mutex<HashMap<String, (Instant, Catalog<D>)>>,
    holding: Holding,
}

/// Adds the setters of a layer's [`CatalogSettings`]: `epoch` and `vary_by`.
///
/// The documentation of `epoch` ends with that of the macro's argument, on what happens without it.
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

            /// Caches tools separately by a key of the request's context, for servers that show
            /// different tools to different callers.
            ///
            /// For each key, tools are listed in the context of the first caller; without a key,
            /// they are listed without a context. The catalogs of the last 1000 keys are kept.
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
/// Returns an error if the service fails, returns an error or an unexpected result, or the list
/// does not end.
pub(crate) async fn list_all<S>(service: S, context: Context) -> Result<Tools, ListError>
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    in_time(list_pages(service, context)).await.unwrap_or(Err(ListError::TimedOut))
}

/// Runs `work` with the timeout of a listing.
pub(crate) async fn in_time<F: Future>(work: F) -> Option<F::Output> {
    // Rules need no runtime; without one there are no timers.
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
        // A handler without the `tools` capability does not support the method.
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
    /// Returns the tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.place(name).map(|place| &self.tools[place])
    }

    /// Returns the index of the tool of this name.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Iterates over the tools, in the order they are listed.
    pub fn iter(&self) -> std::slice::Iter<'_, Tool> {
        self.tools.iter()
    }

    /// Iterates over tools that differ from the first listed one of the same name.
    ///
    /// The server decides which of them a call reaches.
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
    /// Adds tools; of two with one name, the first is used.
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
    /// Returns the tools.
    #[must_use]
    pub const fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Returns the data that the rule derived from them.
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

    /// Looks up the known tools without waiting; `suffices` decides whether they are enough for
    /// the caller. The caller reads the clock, since it needs the time too.
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
        // The known tools remain in use while listing fails.
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

    /// Waits for the needed tools, and lists them unless another request already does.
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
            // The listing of another request takes too long.
            return self.0.state().known.clone().ok_or(ListError::TimedOut);
        };
        match self.at_hand(needs, Instant::now(), suffices) {
            AtHand::Known(known) | AtHand::Stale(known) => return Ok(known),
            AtHand::Failed(error) => return Err(error),
            AtHand::Unknown => (),
        }
        // Read before listing: a concurrent change makes the result outdated.
        let epoch = self.0.epoch.now();
        let loaded = load().await;
        self.0.store(epoch, loaded)
    }

    /// Lists tools in the background, unless a listing is already running.
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
            // Only a weak reference, so that the catalog owns the task and not
            // the task the catalog.
            if let Some(shared) = Weak::upgrade(&shared) {
                // The known tools remain in use after a failure, which was logged.
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
                tracing::warn!(error = %why, "the tools behind a layer are not known");
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

// === impl Holding ===

impl Holding {
    fn hold(&self, bytes: usize) -> Held {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Held { bytes, holding: self.clone() }
    }

    fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Held ===

impl Drop for Held {
    fn drop(&mut self) {
        self.holding.0.fetch_sub(self.bytes, Ordering::Relaxed);
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

    /// Begins a look-up for a request.
    ///
    /// The context of its listing is empty unless tools vary by caller: tools that only one caller
    /// may see must not appear in a shared catalog.
    pub(crate) fn lookup(&self, context: &Context) -> Lookup<D> {
        let (catalog, context) = match self
            .varied
            .as_deref()
            .and_then(|varied| Some((varied, (varied.by)(context)?)))
        {
            None => (self.common.clone(), ListingContext::default()),
            Some((varied, key)) => {
                let mut context = context.branch("tools".into(), None);
                // A background refresh continues after its call has ended.
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
    /// Looks up the known tools without waiting, and lists them in the background with `load` if
    /// they are stale. The caller reads the clock, since it needs the time too.
    ///
    /// Returns `None` if tools must be listed first; then [`wait`](Self::wait) for them.
    ///
    /// # Errors
    ///
    /// Returns the error of the last listing if no tools are known and it failed recently.
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
    /// Waits for the needed tools, and lists them with `load` unless another request already does.
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
        // Lists that running requests still use are counted, so all other catalogs may have
        // to be evicted.
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
