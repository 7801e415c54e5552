//! Which resources clients want to hear of, counted.

use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::BoxFuture;
use rmcp::model::ErrorData;
use tokio::{runtime::Handle, sync};

use crate::{
    changes::Wanted,
    json_size::json_bytes,
    warnings::sanitize::{Reason, Sanitized},
};

/// How many resources one connection may subscribe to.
pub(super) const MOST_SUBSCRIPTIONS: usize = 10_000;
/// How many bytes the URI of one may have: a server is told of all of them at once.
pub(super) const MAX_URI: usize = 2_048;

/// How many subscriptions one caller may have on all its connections.
const MOST_OF_CALLER: usize = 20_000;
/// Bytes of the different URIs of one caller, as JSON: a third of the limit of a backend.
const MAX_BYTES_OF_CALLER: usize = 1 << 20;
/// How many bytes the subscriptions of all clients may take.
const MAX_BYTES: usize = 256 << 20;
/// Bytes that a subscription counts beside its URI.
const OVERHEAD: usize = 128;

/// Sends the end of a subscription to the service, with no client behind it.
type Unsubscribe = Box<dyn Fn(Arc<str>) -> BoxFuture<'static, Result<(), ErrorData>> + Send + Sync>;

/// The resources that any client has subscribed to.
///
/// The service sees a subscription of each client that claims a resource, so that its
/// layers decide about each, and all their ends when the last one has given it back: one
/// end may be that of all.
pub(super) struct Subscriptions {
    held: Mutex<HashMap<Arc<str>, Held>>,
    shares: Mutex<Shares>,
    unsubscribe: Unsubscribe,
}

/// The bytes of the subscriptions of all clients, and of each caller.
#[derive(Default)]
struct Shares {
    bytes: usize,
    callers: HashMap<Arc<str>, OfCaller>,
}

/// The subscriptions of one caller on all its connections.
#[derive(Default)]
struct OfCaller {
    subscriptions: usize,
    /// How often it has subscribed to each resource.
    uris: HashMap<Arc<str>, usize>,
    /// How many bytes these URIs have as JSON.
    bytes: usize,
}

/// A subscription in the counts of [`Shares`], until this value is dropped.
pub(super) struct Share {
    all: Arc<Subscriptions>,
    caller: Option<Arc<str>>,
    uri: Arc<str>,
}

struct Held {
    /// Connections that have the resource or are about to.
    claims: usize,
    subscribed: Subscribed,
}

/// How often the service was asked successfully. Locked while it is asked, together with
/// others who ask, and alone while it is told of the end, so that who comes meanwhile asks
/// after that.
type Subscribed = Arc<sync::RwLock<AtomicUsize>>;

/// The resources that one client has subscribed to, until this value is dropped.
pub(super) struct Claims {
    all: Arc<Subscriptions>,
    uris: Uris<Option<Share>>,
}

/// The resources that a client is notified of, each with its data; clones
/// share them.
pub(super) struct Uris<T = ()>(Arc<Mutex<HashMap<Arc<str>, T>>>);

/// A claim that is given back when dropped, unless it was kept.
struct Claim<'a> {
    all: &'a Arc<Subscriptions>,
    uri: Option<Arc<str>>,
}

// === impl Subscriptions ===

impl Subscriptions {
    pub(super) fn new(unsubscribe: Unsubscribe) -> Self {
        Self { held: Mutex::default(), shares: Mutex::default(), unsubscribe }
    }

    /// Counts a subscription of a caller.
    ///
    /// A `caller` of `None` has no limit of its own.
    pub(super) fn share(
        self: &Arc<Self>,
        caller: Option<&Arc<str>>,
        uri: &str,
    ) -> Result<Share, ErrorData> {
        if uri.len() > MAX_URI {
            return Err(too_long());
        }
        let uri = self.shares().take(caller, uri)?;
        Ok(Share { all: Arc::clone(self), caller: caller.cloned(), uri })
    }

    /// Counts a claim; what it returns says how often the service was asked.
    fn claim(&self, uri: &Arc<str>) -> Subscribed {
        let mut held = self.held();
        let held = held
            .entry(Arc::clone(uri))
            .or_insert_with(|| Held { claims: 0, subscribed: Arc::default() });
        held.claims += 1;
        Arc::clone(&held.subscribed)
    }

    fn is_claimed(&self, uri: &str) -> bool {
        self.held().contains_key(uri)
    }

    /// Gives claims back; if they were the last, the service will be told.
    fn release(self: &Arc<Self>, uris: impl IntoIterator<Item = Arc<str>>) {
        let mut last = Vec::new();
        let mut held = self.held();
        for uri in uris {
            if let Entry::Occupied(mut entry) = held.entry(uri) {
                let subscribed = entry.get().subscribed.try_read();
                let idle = subscribed.is_ok_and(|times| times.load(Ordering::Relaxed) == 0);
                match entry.get().claims {
                    2.. => entry.get_mut().claims -= 1,
                    _ if idle => drop(entry.remove()),
                    _ => last.push(Arc::clone(entry.key())),
                }
            }
        }
        drop(held);
        if last.is_empty() {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => {
                let all = Arc::clone(self);
                runtime.spawn(async move {
                    for uri in last {
                        let unsubscribe = (all.unsubscribe)(Arc::clone(&uri));
                        if let Err(error) = all.give_back(&uri, unsubscribe).await {
                            let (uri, error) = (Sanitized(&uri), Reason(error));
                            tracing::debug!(%uri, %error, "failed to end a subscription");
                        }
                    }
                });
            }
            // Nobody can send anything any more.
            Err(_) => last.iter().for_each(|uri| {
                self.leave(uri);
                self.tidy(uri);
            }),
        }
    }

    /// Gives a claim back, and tells the service if it was the last.
    async fn give_back(
        &self,
        uri: &Arc<str>,
        unsubscribe: impl Future<Output = Result<(), ErrorData>>,
    ) -> Result<(), ErrorData> {
        let Some(subscribed) = self.held().get(uri).map(|held| Arc::clone(&held.subscribed)) else {
            return Ok(());
        };
        let mut subscribed = subscribed.write().await;
        // Somebody else may have come while this one waited.
        let mut outcome = Ok(());
        if self.leave(uri) {
            let times = mem::take(subscribed.get_mut());
            if times > 0 {
                outcome = unsubscribe.await;
            }
            for _ in 1..times {
                self.end(uri).await;
            }
        }
        drop(subscribed);
        self.tidy(uri);
        outcome
    }

    /// Tells the service of an end that no client waits for.
    async fn end(&self, uri: &Arc<str>) {
        if let Err(error) = (self.unsubscribe)(Arc::clone(uri)).await {
            tracing::debug!(%uri, %error, "failed to end a subscription");
        }
    }

    /// Takes a claim off the count; whether it was the last.
    fn leave(&self, uri: &str) -> bool {
        self.held().get_mut(uri).is_some_and(|held| {
            held.claims -= 1;
            held.claims == 0
        })
    }

    /// Forgets a resource that nobody claims.
    fn tidy(&self, uri: &str) {
        let mut held = self.held();
        if held.get(uri).is_some_and(|held| held.claims == 0) {
            held.remove(uri);
        }
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Arc<str>, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Claims ===

impl Claims {
    pub(super) fn new(all: Arc<Subscriptions>) -> Self {
        Self { all, uris: Uris::default() }
    }

    /// Claims a resource, if `subscribe` succeeds. If it fails, the claim that there may be
    /// is given back.
    pub(super) async fn add(
        &self,
        uri: &str,
        share: Option<Share>,
        subscribe: impl Future<Output = Result<(), ErrorData>>,
    ) -> Result<(), ErrorData> {
        if !self.contains(uri) && self.uris.lock().len() >= MOST_SUBSCRIPTIONS {
            return Err(too_many());
        }
        let uri = share.as_ref().map_or_else(|| uri.into(), |share| Arc::clone(&share.uri));
        let subscribed = self.all.claim(&uri);
        let mut claim = Claim { all: &self.all, uri: Some(Arc::clone(&uri)) };
        let asked = async {
            let times = subscribed.read().await;
            subscribe.await?;
            times.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        if let Err(error) = asked.await {
            let had = self.uris.lock().remove_entry(&uri);
            self.all.release(had.map(|(uri, _)| uri));
            return Err(error);
        }

        // The same connection may have claimed it, or too many, before or meanwhile.
        let mut uris = self.uris.lock();
        if uris.len() >= MOST_SUBSCRIPTIONS && !uris.contains_key(&uri) {
            return Err(too_many());
        }
        if let Entry::Vacant(entry) = uris.entry(uri) {
            entry.insert(share);
            claim.uri = None;
        }
        Ok(())
    }

    /// Gives a resource back, with `unsubscribe` if nobody else has it.
    pub(super) async fn remove(
        &self,
        uri: &str,
        unsubscribe: impl Future<Output = Result<(), ErrorData>>,
    ) -> Result<(), ErrorData> {
        let claimed = self.uris.lock().remove_entry(uri);
        if let Some((uri, _share)) = claimed {
            let unsubscribe = async {
                let outcome = unsubscribe.await;
                if outcome.is_err() {
                    // The client may have cancelled its request before it was sent.
                    self.all.end(&uri).await;
                }
                outcome
            };
            self.all.give_back(&uri, unsubscribe).await
        } else if self.all.is_claimed(uri) {
            // It would be the end of somebody else's.
            Ok(())
        } else {
            unsubscribe.await
        }
    }

    /// Gives all resources back.
    pub(super) fn clear(&self) {
        let uris = mem::take(&mut *self.uris.lock());
        self.all.release(uris.into_keys());
    }

    pub(super) fn contains(&self, uri: &str) -> bool {
        self.uris.lock().contains_key(uri)
    }

    /// Selects the updates of these resources.
    pub(super) fn wanted(&self) -> Arc<Wanted> {
        self.uris.wanted()
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.clear();
    }
}

// === impl Uris ===

impl<T> Uris<T> {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Selects the updates of these resources.
    pub(super) fn wanted(&self) -> Arc<Wanted>
    where
        T: Send + 'static,
    {
        let uris = self.clone();
        Arc::new(move |uri| uris.lock().get_key_value(uri).map(|(uri, _)| Arc::clone(uri)))
    }
}

impl<T> Clone for Uris<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Uris<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

// === impl Shares ===

impl Shares {
    fn take(&mut self, caller: Option<&Arc<str>>, uri: &str) -> Result<Arc<str>, ErrorData> {
        let bytes = self.bytes + uri.len() + OVERHEAD;
        if bytes > MAX_BYTES {
            return Err(ErrorData::invalid_params(
                "the clients of this server have too many subscriptions to resources; try again \
                 later",
                None,
            ));
        }
        let uri = match caller {
            None => uri.into(),
            Some(caller) => match self.callers.get_mut(caller) {
                Some(caller) => caller.take(uri)?,
                None => {
                    let mut first = OfCaller::default();
                    let uri = first.take(uri)?;
                    self.callers.insert(Arc::clone(caller), first);
                    uri
                }
            },
        };
        self.bytes = bytes;
        Ok(uri)
    }

    fn give_back(&mut self, caller: Option<&Arc<str>>, uri: &str) {
        self.bytes -= uri.len() + OVERHEAD;
        let Some(caller) = caller else { return };
        if let Some(of_caller) = self.callers.get_mut(caller) {
            of_caller.give_back(uri);
            if of_caller.subscriptions == 0 {
                self.callers.remove(caller);
            }
        }
    }
}

// === impl OfCaller ===

impl OfCaller {
    fn take(&mut self, uri: &str) -> Result<Arc<str>, ErrorData> {
        if self.subscriptions >= MOST_OF_CALLER {
            return Err(too_many_of_caller());
        }
        let uri = match self.uris.get_key_value(uri) {
            Some((uri, _)) => Arc::clone(uri),
            None => {
                let bytes = self.bytes + json_bytes(&uri);
                if bytes > MAX_BYTES_OF_CALLER {
                    return Err(too_large_of_caller());
                }
                self.bytes = bytes;
                uri.into()
            }
        };
        *self.uris.entry(Arc::clone(&uri)).or_default() += 1;
        self.subscriptions += 1;
        Ok(uri)
    }

    fn give_back(&mut self, uri: &str) {
        self.subscriptions -= 1;
        if let Some(times) = self.uris.get_mut(uri) {
            *times -= 1;
            if *times == 0 {
                self.uris.remove(uri);
                self.bytes -= json_bytes(&uri);
            }
        }
    }
}

// === impl Share ===

impl Drop for Share {
    fn drop(&mut self) {
        self.all.shares().give_back(self.caller.as_ref(), &self.uri);
    }
}

// === impl Claim ===

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.all.release(self.uri.take());
    }
}

fn too_many() -> ErrorData {
    ErrorData::invalid_params(
        format!("a client can subscribe to no more than {MOST_SUBSCRIPTIONS} resources"),
        None,
    )
}

fn too_many_of_caller() -> ErrorData {
    ErrorData::invalid_params(
        format!(
            "a caller can have no more than {MOST_OF_CALLER} subscriptions to resources on all \
             its connections"
        ),
        None,
    )
}

fn too_large_of_caller() -> ErrorData {
    ErrorData::invalid_params(
        format!(
            "the URIs of the resources that a caller subscribes to can have no more than \
             {MAX_BYTES_OF_CALLER} bytes together"
        ),
        None,
    )
}

fn too_long() -> ErrorData {
    ErrorData::invalid_params(
        format!("a client can subscribe to no resource whose URI has more than {MAX_URI} bytes"),
        None,
    )
}
