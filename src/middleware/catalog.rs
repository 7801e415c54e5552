//! Caches the list of tools that the inner service of a layer offers.
//!
//! A catalog is a cached list of the tools that the service behind a layer offers, with their
//! names, schemas and annotations. When a layer needs the tools for the first time, its catalog
//! requests all pages of the list. All clones of the layer's service share one catalog.
//!
//! - Concurrent requests share one `tools/list` exchange. If the request that performs it is
//!   dropped, one of the waiting requests performs it instead.
//! - A listing times out after 10 seconds. If it fails, the error is cached for one second.
//! - After 60 seconds, the catalog is refreshed in the background, and requests use the old catalog
//!   until the refresh ends. Without a Tokio runtime, the next request that needs the catalog waits
//!   for the refresh.
//! - A listing fails if the list is too large, or if a page returns the cursor of an earlier page.
//! - The catalog is outdated when its [`Epoch`], a counter of changes, is bumped, which reports
//!   that the tools have changed. Requests that list tools then wait for a new catalog. Tool calls
//!   wait for it too if their access check depends on the current definition of the tool.
//! - If a request names a tool that the catalog does not contain, the tools are listed again, but
//!   at most once per second.
//!
//! # Examples
//!
//! A composite needs the definitions of the tools that it calls. They are listed only once, even
//! for several calls of the composite:
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
mod listing;
mod tools;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use futures::FutureExt as _;
use tokio::{runtime::Handle, task::JoinSet, time::Instant};
use tracing::Instrument;

#[cfg(any(test, feature = "remote", feature = "rig-compose"))]
pub(crate) use self::listing::list_all;
pub(crate) use self::listing::{in_time, load};
use self::{
    held::{Held, Holding},
    listing::has_runtime,
};
pub use self::{listing::ListError, tools::Tools};
use crate::{
    changes::Epoch,
    message::{Context, ContextKey},
    mutex::lock,
    warnings::sanitize::Reason,
};

/// The age at which a catalog is refreshed, even if no change of the tools was reported.
const MAX_AGE: Duration = Duration::from_secs(60);
/// The time after a failed listing before the tools are listed again. Also the minimum age of a
/// list before a request for a tool that it does not contain causes a new listing.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The maximum number of catalogs that a layer stores if it has a separate catalog for each caller.
/// When the number is exceeded, the layer drops the catalog that was not used for the longest time.
const MAX_VARIED: usize = 1_000;
/// The maximum total size of the tools in the per-caller catalogs of a layer, measured in bytes of
/// JSON.
const MAX_VARIED_BYTES: usize = 256 << 20;

/// The content of a [catalog](crate::catalog): the tools of a service, and data of type `D` that a
/// rule has derived from the tools.
#[derive(Debug)]
pub struct Known<D> {
    tools: Tools,
    derived: D,
    epoch: u64,
    since: Instant,
    /// Counts the size of `tools` toward the total size of the layer's catalogs until it is
    /// dropped.
    _held: Held,
}

/// The tools that a rule must know before it can decide about a request, for example to check
/// annotations. Returned by
/// [`InterceptInformed::needs`](crate::intercept::InterceptInformed::needs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs<'r> {
    /// The rule can decide about the request without knowing any tools.
    Nothing,
    /// The rule must know the tool with this name. A cached definition of the tool suffices, even
    /// if it is outdated.
    Tool(&'r str),
    /// The rule must know the current definition of the tool with this name, for example for access
    /// control. If the [epoch](Epoch) of the catalog, a counter of changes, shows that the tools
    /// have changed, the request waits until they have been listed again. Without an epoch, this
    /// variant is equivalent to [`Tool`](Self::Tool).
    CurrentTool(&'r str),
    /// The rule must know all tools. If the tools have changed, the request waits until they have
    /// been listed again.
    AllTools,
}

/// A cached list of the tools of a service.
struct Catalog<D> {
    epoch: Epoch,
    state: Mutex<State<D>>,
    holding: Holding,
    /// A lock that is held while the tools are being listed. Concurrent requests that need the
    /// tools wait for this lock, so that only one of them lists the tools.
    flight: Arc<tokio::sync::Mutex<()>>,
}

struct State<D> {
    known: Option<Arc<Known<D>>>,
    failed: Option<(Instant, ListError)>,
    /// The background task that refreshes the list of tools. Aborted when the catalog is dropped.
    refresh: JoinSet<()>,
}

/// The result of looking up tools in a catalog without waiting.
enum AtHand<D> {
    /// The request must use these cached tools, without waiting.
    Known(Arc<Known<D>>),
    /// The request can use these cached tools, but they are outdated. The caller must start a
    /// refresh in the background.
    Stale(Arc<Known<D>>),
    /// No tools are cached, and the last attempt to list them failed less than a second ago.
    Failed(ListError),
    /// The request must wait until the tools have been listed. No tools are cached, the cached
    /// tools are outdated, or they do not contain the tool that the request needs.
    Unknown,
}

/// The settings of a layer for its catalogs: when cached tools become outdated, and which callers
/// share a catalog.
#[derive(Clone, Default)]
pub(crate) struct CatalogSettings {
    /// A counter of the changes of the service's tools. When it is incremented, all catalogs of the
    /// layer become outdated.
    pub(crate) epoch: Epoch,
    /// A function that maps the context of a request to the key of a catalog, so that different
    /// callers can see different tools. If `None`, all callers share one catalog.
    pub(crate) vary_by: Option<ContextKey>,
}

/// A lookup of tools for one request: the catalog to use, and the context in which the catalog
/// lists the tools if necessary.
pub(crate) struct Lookup<D> {
    catalog: Arc<Catalog<D>>,
    /// `None` is an empty context, for a list that callers share.
    context: Option<Box<Context>>,
}

/// The catalogs of a layer: one catalog that callers share and, if tools vary by caller, one
/// catalog for each key that `vary_by` returns.
pub(crate) struct Catalogs<D> {
    common: Arc<Catalog<D>>,
    varied: Option<Arc<Varied<D>>>,
}

struct Varied<D> {
    by: ContextKey,
    catalogs: Mutex<HashMap<String, Used<D>>>,
    holding: Holding,
}

/// The time at which a catalog was last used, and the catalog.
type Used<D> = (Instant, Arc<Catalog<D>>);

/// Implements the methods `epoch` and `vary_by` for a layer whose settings contain
/// [`CatalogSettings`].
///
/// The first argument is a doc comment that describes how the layer behaves without an epoch.
macro_rules! catalog_setters {
    ($(#[$without_epoch:meta])+ $Layer:ident: $($catalogs:tt)+) => {
        impl $Layer {
            /// Sets the [epoch](crate::changes::Epoch) of the server's tools, a counter of their
            /// changes. When you bump the epoch, the layer discards its cached copy of the tool
            /// definitions.
            $(#[$without_epoch])+
            #[must_use]
            pub fn epoch(mut self, epoch: crate::changes::Epoch) -> Self {
                self.$($catalogs)+.epoch = epoch;
                self
            }

            /// Caches the server's tools separately for each key. The function `key` derives the
            /// key from the context of a request, for example from the name of the caller. Use this
            /// if the server offers different tools to different callers.
            ///
            /// Requests with the same key share one list of tools, which the layer requests in the
            /// context of the first of these requests. Requests for which `key` returns `None`
            /// share a list that the layer requests in an empty context. The layer caches the lists
            /// of the 1000 most recently used keys, or of fewer keys if their tools exceed 256 MiB.
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

// === impl Known ===

impl<D> Known<D> {
    /// Returns the listed tools.
    #[must_use]
    pub const fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Returns the data that the rule has derived from the tools.
    #[must_use]
    pub const fn derived(&self) -> &D {
        &self.derived
    }
}

// === impl Catalog ===

impl<D> Catalog<D> {
    fn new(epoch: Epoch, holding: Holding) -> Arc<Self> {
        Arc::new(Self {
            epoch,
            state: Mutex::new(State { known: None, failed: None, refresh: JoinSet::new() }),
            holding,
            flight: Arc::default(),
        })
    }

    /// Looks up the cached tools at the time `now`, without waiting. The function `suffices`
    /// returns `true` if the cached list contains the tools that the request needs.
    fn at_hand(
        &self,
        needs: Needs<'_>,
        now: Instant,
        suffices: impl Fn(&Known<D>) -> bool,
    ) -> AtHand<D> {
        let state = lock(&self.state);
        let failed = state.failed.as_ref().filter(|(at, _)| now - *at < LIST_AGAIN_AFTER);
        let Some(known) = &state.known else {
            return match failed {
                Some((_, error)) => AtHand::Failed(error.clone()),
                None => AtHand::Unknown,
            };
        };
        let known = known.clone();
        // While listing fails, the cached tools remain in use.
        if failed.is_some() {
            return AtHand::Known(known);
        }
        let outdated = known.epoch != self.epoch.now();
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

    /// Starts to refresh the catalog in the background. The function `load` lists the tools. Does
    /// nothing if the tools are already being listed.
    fn refresh<F>(self: &Arc<Self>, load: impl FnOnce() -> F)
    where
        D: Send + Sync + 'static,
        F: Future<Output = Result<(Tools, D), ListError>> + Send + 'static,
    {
        let (Ok(runtime), Ok(flight)) =
            (Handle::try_current(), self.flight.clone().try_lock_owned())
        else {
            return;
        };
        let epoch = self.epoch.now();
        let shared = Arc::downgrade(self);
        let load = load();
        let refresh = async move {
            let loaded = load.await;
            // The task has only a weak reference, because the catalog owns the task, and dropping
            // the catalog must abort the task.
            if let Some(shared) = Weak::upgrade(&shared) {
                // If the refresh failed, `store` has logged the error, and the cached tools remain
                // in use.
                let _ = shared.store(epoch, loaded);
            }
            drop(flight);
        };
        let mut state = lock(&self.state);
        while state.refresh.try_join_next().is_some() {}
        // Boxed, so that the code of a task is not compiled for each inner service.
        state.refresh.spawn_on(refresh.in_current_span().boxed(), &runtime);
    }

    fn store(
        &self,
        epoch: u64,
        loaded: Result<(Tools, D), ListError>,
    ) -> Result<Arc<Known<D>>, ListError> {
        let now = Instant::now();
        let mut state = lock(&self.state);
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
            epoch: self.common.epoch.clone(),
            vary_by: self.varied.as_ref().map(|varied| varied.by.clone()),
        }
    }

    /// Selects the catalog for a request with this context, and returns a [`Lookup`] in this
    /// catalog.
    ///
    /// If tools do not vary by caller, the lookup lists them in an empty context. The catalog that
    /// all callers share therefore contains no tools that are visible only to certain callers.
    pub(crate) fn lookup(&self, context: &Context) -> Lookup<D> {
        let (catalog, context) =
            match self.varied.as_deref().and_then(|varied| Some((varied, (varied.by)(context)?))) {
                None => (self.common.clone(), None),
                Some((varied, key)) => {
                    let mut context = context.branch("tools".into(), None);
                    // Canceling the request must not cancel the background refresh that it started.
                    context.cancellation = None;
                    (varied.catalog(key, &self.common.epoch), Some(Box::new(context)))
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

// === impl Lookup ===

impl<D> Lookup<D>
where
    D: Send + Sync + 'static,
{
    /// Looks up the cached tools at the time `now`, without waiting. If the tools are outdated but
    /// still usable, refreshes them in the background with `load`.
    ///
    /// Returns `None` if the tools must be listed first. The caller must then call
    /// [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// Returns the error of the last attempt to list the tools if no tools are cached, and this
    /// attempt failed less than a second ago.
    #[inline]
    pub(crate) fn find<F>(
        &mut self,
        needs: Needs<'_>,
        now: Instant,
        suffices: impl Fn(&Known<D>) -> bool,
        load: impl FnOnce(Context) -> F,
    ) -> Option<Result<Arc<Known<D>>, ListError>>
    where
        F: Future<Output = Result<(Tools, D), ListError>> + Send + 'static,
    {
        match self.catalog.at_hand(needs, now, suffices) {
            AtHand::Known(known) => Some(Ok(known)),
            AtHand::Stale(known) => {
                let context = self.context.take();
                self.catalog.refresh(|| load(unboxed(context)));
                Some(Ok(known))
            }
            AtHand::Failed(error) => Some(Err(error)),
            AtHand::Unknown => None,
        }
    }
}

impl<D> Lookup<D> {
    /// Returns the cached tools if they suffice for `needs`. Otherwise, waits until another request
    /// has listed the tools. If no other request is listing them, lists them with `load`.
    pub(crate) async fn wait<F>(
        self,
        needs: Needs<'_>,
        suffices: impl Fn(&Known<D>) -> bool,
        load: impl FnOnce(Context) -> F,
    ) -> Result<Arc<Known<D>>, ListError>
    where
        F: Future<Output = Result<(Tools, D), ListError>>,
    {
        let Self { catalog, context } = self;
        let Some(_flight) = in_time(catalog.flight.lock()).await else {
            // The listing of another request did not end in time.
            return lock(&catalog.state).known.clone().ok_or(ListError::TimedOut);
        };
        match catalog.at_hand(needs, Instant::now(), suffices) {
            AtHand::Known(known) | AtHand::Stale(known) => return Ok(known),
            AtHand::Failed(error) => return Err(error),
            AtHand::Unknown => (),
        }
        // The epoch is read before the listing, so that a change during the listing makes the
        // result outdated.
        let epoch = catalog.epoch.now();
        let loaded = load(unboxed(context)).await;
        catalog.store(epoch, loaded)
    }

    /// Discards the cached tools if `differs` returns `true` for them. The cache layer calls this
    /// method when it forwards a current list of tools to a client.
    #[cfg(feature = "cache")]
    pub(crate) fn discard_if(&self, differs: impl FnOnce(&Known<D>) -> bool) {
        let mut state = lock(&self.catalog.state);
        state.known = state.known.take().filter(|known| !differs(known));
    }
}

fn unboxed(context: Option<Box<Context>>) -> Context {
    context.map(|context| *context).unwrap_or_default()
}

// === impl Varied ===

impl<D> Varied<D> {
    fn catalog(&self, key: String, epoch: &Epoch) -> Arc<Catalog<D>> {
        let now = Instant::now();
        let mut catalogs = lock(&self.catalogs);
        let catalog = match catalogs.remove(&key) {
            Some((_, catalog)) => catalog,
            None => Catalog::new(epoch.clone(), self.holding.clone()),
        };
        // The total size includes evicted lists that requests still use. The loop may therefore
        // have to evict all other catalogs.
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
