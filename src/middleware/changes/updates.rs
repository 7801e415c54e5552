//! Delivers the URIs of updated resources to receivers. Each receiver has a bounded queue.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    fmt, mem,
    sync::{Arc, Mutex, Weak},
};

use tokio::sync::{Notify, broadcast::error::RecvError};

use crate::mutex::lock;

/// The maximum number of URIs in the queue of a receiver that receives the updates of all
/// resources.
const UPDATES_KEPT: usize = 256;
/// The maximum total length of the URIs in the queue of a receiver that receives the updates of all
/// resources, in bytes.
const UPDATES_KEPT_BYTES: usize = 512 << 10;
/// The queue length at which a receiver of selected resources first removes URIs whose
/// subscriptions have ended.
const FIRST_PURGE: usize = 64;

/// A function that translates the URI of a resource to the URIs that other clients or servers use
/// for the same resource.
pub(crate) type Renamed = dyn Fn(&Arc<str>) -> Vec<Arc<str>> + Send + Sync;

/// A function that returns `Some` if a listener has subscribed to the resource with this URI, and
/// `None` otherwise. The returned string is the listener's copy of the URI.
pub(crate) type Wanted = dyn Fn(&str) -> Option<Arc<str>> + Send + Sync;

/// A receiver of the URIs of resources whose content has changed.
///
/// An `Updates` queues each URI once, until it is received. The queue holds at most 256 URIs with a
/// total length of 512 KiB. If more URIs arrive, the oldest URIs are dropped, and
/// [`recv`](Self::recv) returns an error with their number.
pub struct Updates {
    hub: Weak<Hub>,
    id: u64,
    inbox: Arc<Inbox>,
}

/// The registered receivers of resource updates. Queues the URI of each updated resource for the
/// receivers that want it.
#[derive(Default)]
pub(super) struct Hub(Mutex<Inboxes>);

#[derive(Default)]
struct Inboxes {
    next_id: u64,
    by_id: BTreeMap<u64, Arc<Inbox>>,
}

/// The queue of a receiver, together with the functions that select resources and translate their
/// URIs for the receiver.
struct Inbox {
    rename: Option<Arc<Renamed>>,
    /// A function that selects the resources to which the receiver has subscribed. `None` if the
    /// receiver receives the updates of all resources.
    wanted: Option<Arc<Wanted>>,
    pending: Mutex<Pending>,
    arrived: Notify,
}

/// The queued URIs of a receiver, from the oldest to the newest. A queued URI keeps its position if
/// the resource is updated again.
#[derive(Default)]
struct Pending {
    order: VecDeque<Arc<str>>,
    contained: HashSet<Arc<str>>,
    bytes: usize,
    /// The queue length at which URIs whose subscriptions have ended are removed again, if it is
    /// greater than [`FIRST_PURGE`].
    purge_at: usize,
    missed: u64,
    is_closed: bool,
}

// === impl Updates ===

impl Updates {
    /// Waits for the next update and returns the URI of the updated resource.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, no update is lost.
    ///
    /// # Errors
    ///
    /// Returns [`RecvError::Lagged`] if the receiver was too slow, so that updates were dropped.
    /// Returns [`RecvError::Closed`] if the queue is empty and all clones of the
    /// [`Changes`](super::Changes) were dropped.
    pub async fn recv(&mut self) -> Result<Arc<str>, RecvError> {
        loop {
            if let Some(next) = lock(&self.inbox.pending).pop() {
                return next;
            }
            self.inbox.arrived.notified().await;
        }
    }

    /// Waits until at least one URI is queued. Then removes all URIs from the queue and returns
    /// them, sorted.
    ///
    /// If the queue is empty and no more updates can arrive, waits forever.
    pub(crate) async fn recv_all(&mut self) -> Vec<Arc<str>> {
        loop {
            let mut uris = lock(&self.inbox.pending).take();
            if !uris.is_empty() {
                uris.sort_unstable();
                return uris;
            }
            self.inbox.arrived.notified().await;
        }
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            lock(&hub.0).by_id.remove(&self.id);
        }
    }
}

impl fmt::Debug for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = lock(&self.inbox.pending);
        f.debug_struct("Updates").field("pending", &pending.order).finish_non_exhaustive()
    }
}

// === impl Hub ===

impl Hub {
    pub(super) fn listen(
        self: &Arc<Self>,
        rename: Option<Arc<Renamed>>,
        wanted: Option<Arc<Wanted>>,
    ) -> Updates {
        let inbox =
            Arc::new(Inbox { rename, wanted, pending: Mutex::default(), arrived: Notify::new() });
        let mut inboxes = lock(&self.0);
        let id = inboxes.next_id;
        inboxes.next_id += 1;
        inboxes.by_id.insert(id, Arc::clone(&inbox));
        Updates { hub: Arc::downgrade(self), id, inbox }
    }

    pub(super) fn send(&self, uri: &Arc<str>) {
        // The list of inboxes is copied, because no lock must be held while URIs are renamed.
        let inboxes: Vec<_> = lock(&self.0).by_id.values().cloned().collect();
        // Receivers of the same server use the same renaming, so the renamed URIs are computed
        // once.
        let mut renamed: Option<(&Arc<Renamed>, Vec<Arc<str>>)> = None;
        for inbox in &inboxes {
            let Some(rename) = &inbox.rename else {
                inbox.push(uri);
                continue;
            };
            let (_, uris) = match renamed.take() {
                Some(same) if Arc::ptr_eq(same.0, rename) => renamed.insert(same),
                _ => renamed.insert((rename, rename(uri))),
            };
            uris.iter().for_each(|uri| inbox.push(uri));
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        for inbox in mem::take(&mut lock(&self.0).by_id).into_values() {
            lock(&inbox.pending).is_closed = true;
            inbox.arrived.notify_one();
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("receivers", &lock(&self.0).by_id.len()).finish()
    }
}

// === impl Inbox ===

impl Inbox {
    fn push(&self, uri: &Arc<str>) {
        let has_arrived = match &self.wanted {
            None => lock(&self.pending).push_bounded(uri),
            Some(wanted) => match wanted(uri) {
                Some(uri) => lock(&self.pending).push_wanted(uri, &**wanted),
                None => false,
            },
        };
        if has_arrived {
            self.arrived.notify_one();
        }
    }
}

// === impl Pending ===

impl Pending {
    /// Queues a URI. Drops the oldest URIs if the queue exceeds its limits. Returns `false` if the
    /// URI is already queued.
    fn push_bounded(&mut self, uri: &Arc<str>) -> bool {
        if !self.contained.insert(Arc::clone(uri)) {
            return false;
        }
        self.order.push_back(Arc::clone(uri));
        self.bytes += uri.len();
        while self.order.len() > UPDATES_KEPT || self.bytes > UPDATES_KEPT_BYTES {
            self.remove_first();
            self.missed += 1;
        }
        true
    }

    /// Queues the URI of a resource to which the listener has subscribed. Returns `false` if the
    /// URI is already queued. Occasionally removes URIs whose subscriptions have ended, so that the
    /// number of subscriptions limits the length of the queue.
    fn push_wanted(&mut self, uri: Arc<str>, wanted: &Wanted) -> bool {
        if self.contained.contains(&uri) {
            return false;
        }
        if self.order.len() >= self.purge_at.max(FIRST_PURGE) {
            self.order.retain(|uri| wanted(uri).is_some());
            self.contained.retain(|uri| wanted(uri).is_some());
            self.purge_at = 2 * self.order.len();
        }
        self.contained.insert(Arc::clone(&uri));
        self.order.push_back(uri);
        true
    }

    fn remove_first(&mut self) -> Option<Arc<str>> {
        let first = self.order.pop_front()?;
        self.contained.remove(&first);
        self.bytes = self.bytes.saturating_sub(first.len());
        Some(first)
    }

    fn pop(&mut self) -> Option<Result<Arc<str>, RecvError>> {
        if self.missed > 0 {
            return Some(Err(RecvError::Lagged(mem::take(&mut self.missed))));
        }
        if let Some(first) = self.remove_first() {
            return Some(Ok(first));
        }
        self.is_closed.then_some(Err(RecvError::Closed))
    }

    fn take(&mut self) -> Vec<Arc<str>> {
        let taken = Self { is_closed: self.is_closed, ..Self::default() };
        mem::replace(self, taken).order.into()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::{super::Changes, *};

    fn all(updates: &mut Updates) -> Vec<Arc<str>> {
        updates.recv_all().now_or_never().unwrap_or_default()
    }

    #[test]
    fn receiver_of_all_resources_keeps_bounded_bytes() {
        let changes = Changes::default();
        let mut updates = changes.watch_resources();
        for n in 0..1000 {
            changes.resource_updated(format!("{n}{}", "x".repeat(4 << 10)));
        }
        changes.resource_updated("x".repeat(4 << 20));
        let mut received = Vec::new();
        while let Some(next) = updates.recv().now_or_never() {
            received.push(next);
        }
        assert_eq!(received, [Err(RecvError::Lagged(1001))]);

        for n in 0..300 {
            changes.resource_updated(format!("{}", n % 100));
        }
        assert_eq!(all(&mut updates).len(), 100, "an update that waits is kept once");
        drop(changes);
        assert_eq!(updates.recv().now_or_never(), Some(Err(RecvError::Closed)));
    }

    #[test]
    fn receiver_of_some_resources_keeps_only_those() {
        let changes = Changes::default();
        let subscribed = Arc::new(Mutex::new(HashSet::<Arc<str>>::new()));
        let wanted = Arc::clone(&subscribed);
        let mut updates =
            changes.watch_wanted(Arc::new(move |uri| wanted.lock().unwrap().get(uri).cloned()));
        // The listener unsubscribes from each resource after its update.
        for n in 0..10_000 {
            let uri: Arc<str> = n.to_string().into();
            *subscribed.lock().unwrap() = HashSet::from([Arc::clone(&uri)]);
            changes.resource_updated("another one");
            changes.resource_updated(uri);
        }
        let kept = all(&mut updates).len();
        assert!((1..=FIRST_PURGE).contains(&kept), "{kept}");
        for n in 0..10_000 {
            subscribed.lock().unwrap().insert(n.to_string().into());
        }
        for n in 0..20_000 {
            changes.resource_updated(n.to_string());
        }
        assert_eq!(all(&mut updates).len(), 10_000);
    }

    #[test]
    fn dropped_receiver_is_removed_from_the_hub() {
        let changes = Changes::default();
        drop(changes.watch_resources());
        let updates = changes.watch_resources();
        assert_eq!(format!("{:?}", changes.kinds.updates), "Hub { receivers: 1 }");
        drop(updates);
        assert_eq!(format!("{:?}", changes.kinds.updates), "Hub { receivers: 0 }");
    }
}
