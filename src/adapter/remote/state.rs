//! The state of a remote server: its connection, subscriptions and log levels.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    mem,
    sync::{Arc, Mutex, Weak, atomic::AtomicBool},
    time::Duration,
};

use rmcp::{Peer, RoleClient, model::ServerPeerInfo};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    logs::Levels, paced_epoch::PacedEpoch, pending_calls::Calls, redaction::About, tokens::Tokens,
};
use crate::{
    catalog::Tools,
    changes::{Changes, Epoch, pace::Pace},
    message::{BackendError, BackendErrorKind},
    mutex::lock,
};

/// The maximum total size in bytes, as JSON, of the URIs of all subscribed resources. All URIs are
/// sent in one message, which a server over HTTP may limit to 4 MiB.
const MAX_LISTENED: usize = 3 << 20;

/// If a server reports an updated resource with a URI of at most this many bytes, the clients that
/// subscribed to a parent are notified, too. For example, `file:///a` is a parent of `file:///a/b`.
const MAX_UPDATED_URI: usize = 2 << 10;
/// The maximum number of separators (`/`, `?` and `#`) at which the URI of an updated resource is
/// cut to find its parents. If the URI has more separators, only the last ones are used.
const MAX_PARENTS: usize = 64;
/// The maximum total size in bytes of the URIs of abandoned subscriptions. A subscription is
/// abandoned if the caller has cancelled its subscribe request, but the server may have created it.
const MAX_ABANDONED: usize = 1 << 20;

/// The pause after the first reported change of a server's list. No further change of the list is
/// reported during the pause. The pause doubles with each reported change.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The maximum pause after a reported change of a server's list.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// The time without changes after which the pause between two reported changes is reset to
/// [`FIRST_PAUSE`].
const QUIET: Duration = Duration::from_secs(60);

/// The state of a remote server. The supervisor task and all pending calls share it.
pub(super) struct Remote {
    pub(super) about: About,
    pub(super) connect_timeout: Duration,
    pub(super) passed_meta: Arc<[String]>,
    /// `true` if the server may ask the callers' users for input. This program then declares the
    /// `elicitation` capability to the server.
    pub(super) elicitation: bool,
    pub(super) changes: Changes,
    pub(super) lists: Lists,
    pub(super) state: watch::Sender<State>,
    /// Notified when the set of subscribed resources has changed. The notification stream of a
    /// server with protocol version 2026-07-28 must then be reopened with a new filter.
    pub(super) listen_again: Notify,
    /// Notified when all subscriptions must be sent again to a server with protocol version
    /// 2025-11-25 or older.
    pub(super) subscribe_again: Notify,
    pub(super) levels: Levels,
    /// Notified when abandoned subscriptions must be ended at a server with protocol version
    /// 2025-11-25 or older.
    pub(super) unsubscribe_abandoned: Notify,
    known: Mutex<Known>,
}

/// The state of the connection to a server.
#[derive(Clone)]
pub(super) enum State {
    /// An attempt to connect is in progress.
    Connecting,
    Connected(Arc<Connection>),
    /// The server is not connected. The next attempt to connect starts after a delay.
    Down,
    /// The connection was closed permanently.
    Closed,
}

/// A guard for a caller's pending request to subscribe to a resource, or to unsubscribe from it. If
/// the request is cancelled, or if the request to subscribe fails, the guard ends the subscription
/// at the server in the background.
pub(super) struct PendingSubscription<'r> {
    remote: &'r Remote,
    uri: Option<Arc<str>>,
    /// `true` if the request subscribes. The guard then also removes the caller's subscription.
    subscribes: bool,
}

/// The change counters of the server's lists of tools, prompts and resources. Their rate is
/// limited, so that a server that continuously reports changes does not delay the calls of other
/// servers.
pub(super) struct Lists {
    pub(super) tools: PacedEpoch,
    pub(super) prompts: PacedEpoch,
    pub(super) resources: PacedEpoch,
}

/// The part of a remote server's state that is kept when a connection is lost.
#[derive(Default)]
struct Known {
    info: Option<Arc<ServerPeerInfo>>,
    /// A hash of the server's tools, to detect whether the tools differ after a reconnection.
    /// `None` if the tools are not known or have changed since the hash was computed.
    tools: Option<u64>,
    /// The reason why the connection was lost, or why the last attempt to connect failed. `None`
    /// while the server is connected, and until the first attempt has failed.
    trouble: Option<String>,
    /// The subscribed resources by URI, each with the number of subscriptions that callers have
    /// made.
    subscriptions: HashMap<Arc<str>, usize>,
    /// The total size in bytes, as JSON, of the URIs in `subscriptions`.
    listened: usize,
    /// The URIs of abandoned subscriptions. The callers have cancelled their subscribe requests,
    /// but the server may have created the subscriptions, so they must still be ended.
    abandoned: HashSet<Arc<str>>,
    abandoned_bytes: usize,
}

/// An established connection to a remote server.
pub(super) struct Connection {
    pub(super) about: About,
    pub(super) peer: Peer<RoleClient>,
    /// `true` if the server speaks protocol version 2026-07-28 or later.
    pub(super) modern: bool,
    /// Cancelled when the connection is lost or closed. After that, no more messages arrive on the
    /// connection.
    pub(super) closed: CancellationToken,
    pub(super) tokens: Arc<Tokens>,
    /// The pending calls. Questions that the server asks during a call are relayed to the client of
    /// the call. `None` if the server may not ask questions, or if it returns them in its results
    /// (protocol version 2026-07-28 or later).
    pub(super) calls: Option<Arc<Calls>>,
    /// `true` if the server may ask the callers' users for input. If `false`, results that contain
    /// questions are rejected.
    pub(super) elicitation: bool,
    /// `true` if the rmcp client of this connection declares no client capabilities. If `false`,
    /// requests to a server with protocol version 2026-07-28 or later override the declared
    /// capabilities with those of the caller.
    pub(super) declares_nothing: bool,
    /// `true` if the server speaks protocol version 2026-07-28 or later, and declares the extension
    /// for tasks.
    pub(super) tasks: bool,
    /// `true` if the server declares the `logging` capability.
    pub(super) logs: bool,
    /// Additional `_meta` keys that are forwarded from callers' requests to the server. The keys of
    /// the trace context are always forwarded.
    pub(super) passed_meta: Arc<[String]>,
    /// The state of the server to which this connection belongs. A weak reference, because the
    /// state owns the connection.
    pub(super) remote: Weak<Remote>,
    /// Set when a request fails because the server is unreachable, and cleared by the server's next
    /// response.
    pub(super) has_failed: AtomicBool,
}

// === impl Lists ===

impl Lists {
    fn new(changes: &Changes) -> Self {
        let paced = |epoch: &Epoch| {
            PacedEpoch::new(epoch.clone(), Pace::new(FIRST_PAUSE, LONGEST_PAUSE, QUIET))
        };
        Self {
            tools: paced(changes.tools()),
            prompts: paced(changes.prompts()),
            resources: paced(changes.resources()),
        }
    }
}

// === impl Remote ===

impl Remote {
    pub(super) fn new(
        about: About,
        connect_timeout: Duration,
        passed_meta: Arc<[String]>,
        elicitation: bool,
        changes: Changes,
    ) -> Self {
        Self {
            about,
            connect_timeout,
            passed_meta,
            elicitation,
            lists: Lists::new(&changes),
            changes,
            state: watch::Sender::new(State::Connecting),
            listen_again: Notify::new(),
            subscribe_again: Notify::new(),
            levels: Levels::default(),
            unsubscribe_abandoned: Notify::new(),
            known: Mutex::default(),
        }
    }

    /// Waits until no attempt to connect is in progress, and returns the connection. Returns an
    /// error if the server is not connected.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, BackendError> {
        let state = self.state.borrow().clone();
        let state = match state {
            State::Connecting => self.settled().await,
            settled => settled,
        };
        match state {
            State::Connected(connection) => Ok(connection),
            State::Connecting | State::Down | State::Closed => {
                Err(BackendError::new(self.about.name.clone(), BackendErrorKind::NotConnected))
            }
        }
    }

    /// Waits until no attempt to connect is in progress, and returns the state of the connection.
    pub(super) async fn settled(&self) -> State {
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|state| !matches!(state, State::Connecting)).await;
        settled.map_or(State::Closed, |state| state.clone())
    }

    /// Returns the server's description from the latest connection, or `None` if the server has
    /// never been connected.
    pub(super) fn info(&self) -> Option<Arc<ServerPeerInfo>> {
        lock(&self.known).info.clone()
    }

    /// Records that a connection was established. Stores the server's description `info`, and
    /// clears the reason why the server was not connected.
    pub(super) fn connected(&self, info: Option<Arc<ServerPeerInfo>>) {
        let mut known = lock(&self.known);
        known.info = info;
        known.trouble = None;
    }

    /// Records the reason why the server is not connected. Logs it as a warning, unless the same
    /// reason was already recorded.
    pub(super) fn trouble(&self, trouble: String) {
        let backend = &*self.about.name;
        let mut known = lock(&self.known);
        if known.trouble.as_ref() == Some(&trouble) {
            tracing::debug!(backend, trouble, "a backend is still not connected");
        } else {
            tracing::warn!(backend, trouble, "a backend is not connected");
            known.trouble = Some(trouble);
        }
    }

    /// Returns the reason why the server is not connected, or `None` if it is connected.
    pub(super) fn why_not_connected(&self) -> Option<String> {
        lock(&self.known).trouble.clone()
    }

    /// Records a hash of the tools that the server has listed. Returns `true` if the tools differ
    /// from those that were recorded before.
    pub(super) fn has_changed(&self, tools: &Tools) -> bool {
        let mut hasher = DefaultHasher::new();
        for tool in tools {
            // Serializing cannot fail, because the tool was deserialized from JSON.
            serde_json::to_string(tool).unwrap_or_default().hash(&mut hasher);
        }
        let fingerprint = Some(hasher.finish());
        mem::replace(&mut lock(&self.known).tools, fingerprint) != fingerprint
    }

    /// Reports that the server's tools have changed, and discards the recorded hash of the tools.
    pub(super) fn tools_changed(&self) {
        // The hash is removed, so that the next connection counts as a change even if it has the
        // same tools as before this change.
        lock(&self.known).tools = None;
        self.lists.tools.bump();
    }

    /// Returns the URIs of all subscribed resources, in no particular order.
    pub(super) fn subscriptions(&self) -> Vec<String> {
        lock(&self.known).subscriptions.keys().map(|uri| uri.to_string()).collect()
    }

    /// Returns `true` if at least one caller is subscribed to the resource.
    pub(super) fn is_subscribed(&self, uri: &str) -> bool {
        lock(&self.known).subscriptions.contains_key(uri)
    }

    /// Reports the update of a resource under each subscribed URI that it concerns: the URI of the
    /// resource and the URIs of its parents. For example, `file:///a` is a parent of `file:///a/b`.
    ///
    /// An update that concerns no subscribed URI is dropped. Therefore, pending updates take no
    /// additional memory, and callers receive only URIs that they have subscribed to.
    pub(super) fn resource_updated(&self, uri: &str) {
        let concerned = lock(&self.known).concerned(uri);
        for uri in concerned {
            self.changes.resource_updated(uri);
        }
    }

    /// Adds a subscription to a resource, and returns a guard for the subscribe request. Returns
    /// `None` if the URIs of all subscribed resources together would exceed their size limit.
    pub(super) fn subscribed(&self, uri: &str) -> Option<PendingSubscription<'_>> {
        lock(&self.known).subscribed(uri, 1).then(|| {
            self.listen_again.notify_one();
            PendingSubscription { remote: self, uri: Some(uri.into()), subscribes: true }
        })
    }

    /// Returns a guard for a caller's pending request to unsubscribe from a resource.
    pub(super) fn unsubscribing(&self, uri: &str) -> PendingSubscription<'_> {
        PendingSubscription { remote: self, uri: Some(uri.into()), subscribes: false }
    }

    /// Removes all URIs from the set of abandoned subscriptions, and returns them.
    pub(super) fn take_abandoned(&self) -> HashSet<Arc<str>> {
        let mut known = lock(&self.known);
        known.abandoned_bytes = 0;
        mem::take(&mut known.abandoned)
    }

    /// Marks a subscription as abandoned, so that the supervisor task ends it at the server in the
    /// background. Does nothing unless the server speaks protocol version 2025-11-25 or older.
    fn abandon(&self, uri: Arc<str>) {
        // Otherwise, nothing is abandoned: a newer server receives a new filter, and a new
        // connection starts without subscriptions.
        let is_older = matches!(&*self.state.borrow(), State::Connected(to) if !to.modern);
        if is_older && lock(&self.known).abandon(uri) {
            self.unsubscribe_abandoned.notify_one();
        }
    }

    /// Copies the subscriptions of `other`, which this server replaces.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(super) fn subscribed_like(&self, other: &Self) {
        let others = lock(&other.known).subscriptions.clone();
        if others.is_empty() {
            return;
        }
        let mut known = lock(&self.known);
        for (uri, count) in others {
            known.subscribed(&uri, count);
        }
        drop(known);
        self.listen_again.notify_one();
        self.subscribe_again.notify_one();
    }

    /// Removes one caller's subscription to a resource. Returns `true` if no caller is subscribed
    /// to the resource any more.
    pub(super) fn unsubscribed(&self, uri: &str) -> bool {
        let mut known = lock(&self.known);
        let Some(count) = known.subscriptions.get_mut(uri) else { return true };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            known.subscriptions.remove(uri);
            known.listened -= as_json(uri);
            self.listen_again.notify_one();
        }
        is_last
    }
}

// === impl PendingSubscription ===

impl PendingSubscription<'_> {
    /// Disarms the guard, because the request has ended and nothing must be undone.
    pub(super) fn done(mut self) {
        self.uri = None;
    }

    /// Disarms the guard and removes the subscription, because the server has rejected it.
    pub(super) fn refused(mut self) {
        if let Some(uri) = self.uri.take() {
            self.remote.unsubscribed(&uri);
        }
    }
}

impl Drop for PendingSubscription<'_> {
    fn drop(&mut self) {
        if let Some(uri) = self.uri.take()
            && (!self.subscribes || self.remote.unsubscribed(&uri))
        {
            self.remote.abandon(uri);
        }
    }
}

// === impl Known ===

impl Known {
    /// Adds `callers` subscriptions to a resource. Returns `false`, and adds nothing, if the URIs
    /// of all subscribed resources together would exceed their size limit.
    fn subscribed(&mut self, uri: &str, callers: usize) -> bool {
        if let Some(count) = self.subscriptions.get_mut(uri) {
            *count += callers;
            return true;
        }
        let listened = self.listened + as_json(uri);
        if listened > MAX_LISTENED {
            return false;
        }
        self.listened = listened;
        self.subscriptions.insert(uri.into(), callers);
        true
    }

    /// Returns the subscribed URIs that an update of the resource `uri` concerns: `uri` itself and
    /// its parents. For example, `file:///a` is a parent of `file:///a/b`.
    fn concerned(&self, uri: &str) -> Vec<Arc<str>> {
        let subscribed =
            |uri: &str| self.subscriptions.get_key_value(uri).map(|(uri, _)| Arc::clone(uri));
        let own = subscribed(uri);
        if uri.len() > MAX_UPDATED_URI {
            return own.into_iter().collect();
        }
        let parents = uri.rmatch_indices(['/', '?', '#']).take(MAX_PARENTS);
        let parents = parents.flat_map(|(before, separator)| {
            let after = before + separator.len();
            let with_slash = separator == "/" && after < uri.len();
            [with_slash.then(|| &uri[..after]), Some(&uri[..before])]
        });
        own.into_iter().chain(parents.flatten().filter_map(subscribed)).collect()
    }

    /// Adds the URI of an abandoned subscription. Returns `false` if the URI was already added, or
    /// if the URIs together would exceed their size limit.
    fn abandon(&mut self, uri: Arc<str>) -> bool {
        let bytes = self.abandoned_bytes + uri.len();
        if bytes > MAX_ABANDONED || self.abandoned.contains(&uri) {
            return false;
        }
        self.abandoned_bytes = bytes;
        self.abandoned.insert(uri)
    }
}

/// Returns the size in bytes that a string takes in a JSON array, including its quotes and a comma.
fn as_json(text: &str) -> usize {
    let quoted = serde_json::to_string(text).map_or(0, |text| text.len());
    quoted + ",".len()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn subscriptions_are_limited_by_their_total_size() {
        let mut known = Known::default();
        let long = "\u{1}".repeat(MAX_LISTENED / 12);
        assert!(known.subscribed(&long, 2) && known.subscribed("a", 1));
        assert!(!known.subscribed(&long.replace('\u{1}', "\u{2}"), 1));
        assert!(known.subscribed(&long, 1) && known.subscribed("b", 1));
        assert_eq!(known.subscriptions.len(), 3);
        let listened: usize = known.subscriptions.keys().map(|uri| as_json(uri)).sum();
        assert_eq!(known.listened, listened);
    }

    #[test]
    fn update_concerns_its_resource_and_the_ancestors() {
        let mut known = Known::default();
        for uri in ["file:///a", "file:///a/", "file:///a/b", "file:///a/b?q#f", "file:///ab"] {
            assert!(known.subscribed(uri, 1));
        }
        let concerned = |uri: &str| known.concerned(uri);
        assert_eq!(concerned("file:///a").len(), 1);
        assert_eq!(
            concerned("file:///a/b/c").iter().map(|uri| &**uri).collect::<Vec<_>>(),
            ["file:///a/b", "file:///a/", "file:///a"]
        );
        assert_eq!(concerned("file:///a/b?q#f").len(), 4);
        assert_eq!(concerned("file:///a/").len(), 2);
        for other in ["file:///abc", "file:///A/b", "file://", "", "/", "?"] {
            assert!(concerned(other).is_empty(), "{other}");
        }
        let long = format!("file:///a/{}", "/".repeat(4 << 20));
        assert!(concerned(&long).is_empty());
    }

    #[test]
    fn updates_with_long_uris_take_no_memory() {
        let about = About::new("far");
        let changes = Changes::default();
        let mut updates = changes.watch_resources();
        let remote = Remote::new(about, FIRST_PAUSE, Arc::default(), true, changes);
        remote.subscribed("file:///a").unwrap().done();
        let uris: Vec<_> = ["file:///a", "x"]
            .iter()
            .map(|start| format!("{start}/{}", "x".repeat(4 << 20)))
            .collect();
        let held = allocation_counter::measure(|| {
            for _ in 0..256 {
                uris.iter().for_each(|uri| remote.resource_updated(uri));
            }
        });
        assert_eq!((held.count_total, updates.recv().now_or_never()), (0, None));

        let held = allocation_counter::measure(|| {
            for n in 0..1000 {
                remote.resource_updated(&format!("file:///a/{n}"));
            }
        });
        assert!(held.bytes_current < 1024, "{}", held.bytes_current);
        assert_eq!(updates.recv().now_or_never(), Some(Ok("file:///a".into())));
        assert_eq!(updates.recv().now_or_never(), None);
    }

    #[test]
    fn abandoned_subscriptions_are_bounded() {
        let mut known = Known::default();
        let long = "x".repeat(MAX_ABANDONED / 2);
        assert!(known.abandon("a".into()) && known.abandon(long.clone().into()));
        assert!(!known.abandon("a".into()), "it is known");
        assert!(!known.abandon(format!("{long}y").into()), "there is no room");
    }
}
