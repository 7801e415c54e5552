//! Counts how many clients are subscribed to each resource. The counts are used to limit
//! subscriptions, and to unsubscribe when no client needs a resource any more.

use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::BoxFuture;
use rmcp::model::ErrorData;
use tokio::{runtime::Handle, sync};

use crate::{
    changes::Wanted,
    json_size::json_bytes,
    mutex::lock,
    warnings::sanitize::{Reason, Sanitized},
};

/// The maximum number of resources that one connection may subscribe to.
pub(super) const MOST_SUBSCRIPTIONS: usize = 10_000;
/// The maximum length in bytes of a subscribed URI. The limit exists because a backend with
/// protocol version 2026-07-28 receives all subscribed URIs in one message.
pub(super) const MAX_URI: usize = 2_048;

/// The maximum number of resource subscriptions of one caller on all its connections.
const MOST_OF_CALLER: usize = 20_000;
/// The maximum total size in bytes, as JSON, of the URIs to which one caller is subscribed.
/// Duplicate URIs count once. The limit is a third of the limit that applies to all subscriptions
/// at one backend.
const MAX_CALLER_BYTES: usize = 1 << 20;
/// The maximum total size in bytes of the resource subscriptions of all clients of a server.
const MAX_SUBSCRIPTION_BYTES: usize = 256 << 20;
/// The estimated memory in bytes that a subscription needs in addition to its URI.
const OVERHEAD: usize = 128;

/// A function that sends an unsubscribe request for the resource with the given URI to the service.
/// It is called in the background, where no client waits for the result.
type Unsubscribe = Box<dyn Fn(Arc<str>) -> BoxFuture<'static, Result<(), ErrorData>> + Send + Sync>;

/// Tracks the resources to which at least one client of a server is subscribed.
///
/// The service receives the subscribe request of each client, so that a layer can reject individual
/// clients. Some services end the subscriptions of all clients at the first unsubscribe request.
/// Therefore, the service receives unsubscribe requests only after the last client has
/// unsubscribed: one for each subscribe request that it has accepted.
pub(super) struct Subscriptions {
    held: Mutex<HashMap<Arc<str>, Held>>,
    shares: Mutex<Shares>,
    unsubscribe: Unsubscribe,
}

/// Tracks the total size of the resource subscriptions, both of all clients together and of each
/// caller.
#[derive(Default)]
struct Shares {
    bytes: usize,
    callers: HashMap<Arc<str>, OfCaller>,
}

/// The resource subscriptions of one caller across all its connections.
#[derive(Default)]
struct OfCaller {
    subscriptions: usize,
    /// The resources by URI, each with the number of subscriptions that the caller has made to it.
    uris: HashMap<Arc<str>, usize>,
    /// The total size in bytes, as JSON, of the URIs in `uris`.
    bytes: usize,
}

/// One subscription to a resource, which counts toward the limits in [`Shares`] until this value is
/// dropped.
pub(super) struct Share {
    all: Arc<Subscriptions>,
    caller: Option<Arc<str>>,
    uri: Arc<str>,
}

struct Held {
    /// The number of connections and streams that are subscribed to the resource, or have sent a
    /// subscribe request for it.
    claims: usize,
    subscribed: Subscribed,
}

/// The number of subscribe requests for one resource that the service has accepted, in a lock.
/// Subscribe requests hold the lock for reading, and unsubscribe requests hold it for writing.
/// Therefore, a new subscribe request waits until all pending unsubscribe requests have ended.
type Subscribed = Arc<sync::RwLock<AtomicUsize>>;

/// The resources to which one connection or stream is subscribed. Dropping this value ends the
/// subscriptions.
pub(super) struct Claims {
    all: Arc<Subscriptions>,
    uris: Uris<Option<Share>>,
}

/// A set of resources whose updates a client receives. Each resource is stored with additional data
/// of type `T`. Clones share the set.
pub(super) struct Uris<T = ()>(Arc<Mutex<HashMap<Arc<str>, T>>>);

/// A guard for a claim, which is one client's need for updates of a resource. While any client has
/// a claim, the service receives no unsubscribe request for the resource. Dropping the guard
/// releases the claim, unless the guard was disarmed.
struct Claim<'a> {
    all: &'a Arc<Subscriptions>,
    uri: Option<Arc<str>>,
}

// === impl Subscriptions ===

impl Subscriptions {
    pub(super) fn new(unsubscribe: Unsubscribe) -> Self {
        Self { held: Mutex::default(), shares: Mutex::default(), unsubscribe }
    }

    /// Counts a new subscription toward the limits of the caller and of all clients, until the
    /// returned value is dropped. Returns an error if a limit would be exceeded.
    ///
    /// If `caller` is `None`, only the limit on the URI's length and the limit of all clients
    /// together apply.
    pub(super) fn share(
        self: &Arc<Self>,
        caller: Option<&Arc<str>>,
        uri: &str,
    ) -> Result<Share, ErrorData> {
        if uri.len() > MAX_URI {
            return Err(too_long());
        }
        let uri = lock(&self.shares).take(caller, uri)?;
        Ok(Share { all: Arc::clone(self), caller: caller.cloned(), uri })
    }

    /// Adds a claim on a resource for a client that is about to subscribe. Returns the lock that
    /// the subscribe request must hold, with the number of accepted subscribe requests for the
    /// resource.
    fn claim(&self, uri: &Arc<str>) -> Subscribed {
        let mut held = lock(&self.held);
        let held = held
            .entry(Arc::clone(uri))
            .or_insert_with(|| Held { claims: 0, subscribed: Arc::default() });
        held.claims += 1;
        Arc::clone(&held.subscribed)
    }

    fn is_claimed(&self, uri: &str) -> bool {
        lock(&self.held).contains_key(uri)
    }

    /// Releases a client's claims on the given resources. If no claim on a resource is left, sends
    /// unsubscribe requests for it in the background.
    fn release(self: &Arc<Self>, uris: impl IntoIterator<Item = Arc<str>>) {
        let mut last = Vec::new();
        let mut held = lock(&self.held);
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
            // Messages can only be sent within a runtime.
            Err(_) => last.iter().for_each(|uri| {
                self.leave(uri);
                self.tidy(uri);
            }),
        }
    }

    /// Releases a client's claim on a resource. If no claim is left, awaits `unsubscribe`, which
    /// sends an unsubscribe request. Sends further unsubscribe requests if the service has accepted
    /// more than one subscribe request for the resource.
    async fn give_back(
        &self,
        uri: &Arc<str>,
        unsubscribe: impl Future<Output = Result<(), ErrorData>>,
    ) -> Result<(), ErrorData> {
        let Some(subscribed) = lock(&self.held).get(uri).map(|held| Arc::clone(&held.subscribed))
        else {
            return Ok(());
        };
        let mut subscribed = subscribed.write().await;
        // Another client may have subscribed while this one waited for the lock.
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

    /// Sends an unsubscribe request to the service. Errors are only logged, because no client waits
    /// for the reply.
    async fn end(&self, uri: &Arc<str>) {
        if let Err(error) = (self.unsubscribe)(Arc::clone(uri)).await {
            tracing::debug!(%uri, %error, "failed to end a subscription");
        }
    }

    /// Removes one claim on a resource. Returns `true` if it was the last claim.
    fn leave(&self, uri: &str) -> bool {
        lock(&self.held).get_mut(uri).is_some_and(|held| {
            held.claims -= 1;
            held.claims == 0
        })
    }

    /// Removes the entry of a resource if no client has a claim on the resource.
    fn tidy(&self, uri: &str) {
        let mut held = lock(&self.held);
        if held.get(uri).is_some_and(|held| held.claims == 0) {
            held.remove(uri);
        }
    }
}

// === impl Claims ===

impl Claims {
    pub(super) fn new(all: Arc<Subscriptions>) -> Self {
        Self { all, uris: Uris::default() }
    }

    /// Awaits `subscribe`, which sends the client's subscribe request. If it succeeds, adds the
    /// resource to the client's subscriptions. If it fails, removes the resource from the client's
    /// subscriptions.
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
        let subscribing = async {
            let times = subscribed.read().await;
            subscribe.await?;
            times.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        if let Err(error) = subscribing.await {
            let had = self.uris.lock().remove_entry(&uri);
            self.all.release(had.map(|(uri, _)| uri));
            return Err(error);
        }

        // In the meantime, the same connection may have claimed this resource or reached the limit.
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

    /// Removes a resource from the client's subscriptions. If no other client is subscribed to the
    /// resource, also awaits `unsubscribe`, which sends the client's unsubscribe request.
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
                    // The client may have cancelled its unsubscribe request before it was sent to
                    // the service.
                    self.all.end(&uri).await;
                }
                outcome
            };
            self.all.give_back(&uri, unsubscribe).await
        } else if self.all.is_claimed(uri) {
            // Not forwarded, because unsubscribing would end the subscriptions of other clients.
            Ok(())
        } else {
            unsubscribe.await
        }
    }

    /// Removes all of the client's subscriptions.
    pub(super) fn clear(&self) {
        let uris = mem::take(&mut *self.uris.lock());
        self.all.release(uris.into_keys());
    }

    pub(super) fn contains(&self, uri: &str) -> bool {
        self.uris.lock().contains_key(uri)
    }

    /// Returns a filter that selects updates of the resources to which the client is subscribed.
    /// The subscriptions are looked up at each update, so later subscriptions are included.
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
        lock(&self.0)
    }

    /// Returns a filter that selects updates of the resources in the set. The set is looked up at
    /// each update, so resources that are added later are included.
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
        if bytes > MAX_SUBSCRIPTION_BYTES {
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
                if bytes > MAX_CALLER_BYTES {
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
        lock(&self.all.shares).give_back(self.caller.as_ref(), &self.uri);
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
        format!("a client can subscribe to at most {MOST_SUBSCRIPTIONS} resources"),
        None,
    )
}

fn too_many_of_caller() -> ErrorData {
    ErrorData::invalid_params(
        format!(
            "a caller can have at most {MOST_OF_CALLER} subscriptions to resources on all \
             its connections"
        ),
        None,
    )
}

fn too_large_of_caller() -> ErrorData {
    ErrorData::invalid_params(
        format!(
            "the URIs of all subscriptions of a caller can have at most {MAX_CALLER_BYTES} bytes \
             in total"
        ),
        None,
    )
}

fn too_long() -> ErrorData {
    ErrorData::invalid_params(
        format!("the URI of a subscription can have at most {MAX_URI} bytes"),
        None,
    )
}
