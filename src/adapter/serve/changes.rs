//! Tracks changed lists and updated resources for each connected client, so that the client can be
//! notified.

use std::{
    convert::Infallible,
    mem,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use futures::future;
use rmcp::model::{ServerCapabilities, SubscriptionFilter};

use super::subscriptions::{Claims, MAX_URI, MOST_SUBSCRIPTIONS, Subscriptions, Uris};
use crate::{
    changes::{Bumps, Changes, Updates, Wanted},
    message::LogLevel,
    mutex::lock,
};

/// The maximum number of pending `subscriptions/listen` streams per client connection. A stream is
/// pending from the arrival of the client's request until the stream starts. During this time,
/// changes are already recorded for it.
const MAX_PENDING_STREAMS: usize = 64;
/// The pause between two batches of notifications of updated resources. If a resource is updated
/// several times during a pause, clients receive one notification.
const UPDATES_PAUSE: Duration = Duration::from_millis(100);

/// The source of change notifications of a server, and the resource subscriptions of its clients.
/// All client connections share them.
#[derive(Clone)]
pub(super) struct Changing {
    pub(super) changes: Changes,
    pub(super) subscriptions: Arc<Subscriptions>,
}

/// The state of one client connection that determines which change notifications the client
/// receives.
#[derive(Default)]
pub(super) struct Connection {
    claims: OnceLock<Claims>,
    log_level: OnceLock<Arc<LogLevel>>,
    opened: Mutex<Opened>,
    /// The `subscriptions/listen` streams that the client has requested and that have not started
    /// yet.
    pending: Mutex<Vec<PendingStream>>,
}

/// A `subscriptions/listen` stream that a client has requested and that has not started yet.
/// Changes are recorded from the request on, so that none is missed before the stream starts.
pub(super) struct PendingStream {
    pub(super) watch: Watch,
    /// The resources for which the stream sends update notifications.
    pub(super) uris: Uris,
}

/// The state of change notifications to a client with protocol version 2025-11-25 or older. Such a
/// client is notified from its `initialize` request until it disconnects.
#[derive(Default)]
enum Opened {
    #[default]
    Not,
    /// The client has sent `initialize`. The contained [`Watch`] records the changes until a task
    /// begins to notify the client.
    Initialized(Box<Watch>),
    /// A task notifies the client of the recorded changes and of all later changes.
    Notifying,
}

/// A recorder of changes. It records all changes of lists and resources from its creation on.
pub(super) struct Watch {
    tools: Bumps,
    prompts: Bumps,
    resources: Bumps,
    updates: Updates,
}

/// A change that a client can be notified of.
#[derive(Clone)]
pub(super) enum Change {
    Tools,
    Prompts,
    Resources,
    Content(Arc<str>),
}

/// A receiver of change notifications: an older client, or a `subscriptions/listen` stream.
pub(super) trait Listener: Sync {
    fn wants(&self, change: &Change) -> bool;
    /// Sends a notification of the change. Does nothing if the client has disconnected.
    fn notify(&self, change: Change) -> impl Future<Output = ()> + Send;
}

// === impl Changing ===

impl Changing {
    /// Starts to record changes of the lists of tools, prompts and resources, and updates of the
    /// resources that `wanted` selects.
    pub(super) fn watch(&self, wanted: Arc<Wanted>) -> Watch {
        Watch {
            tools: self.changes.tools().watch(),
            prompts: self.changes.prompts().watch(),
            resources: self.changes.resources().watch(),
            updates: self.changes.watch_wanted(wanted),
        }
    }

    pub(super) fn ask(&self) -> PendingStream {
        let uris = Uris::default();
        PendingStream { watch: self.watch(uris.wanted()), uris }
    }
}

// === impl Connection ===

impl Connection {
    /// Returns the log level that this connection's client has set.
    pub(super) fn log_level(&self) -> &Arc<LogLevel> {
        self.log_level.get_or_init(Arc::default)
    }

    /// Returns the resources to which the client has subscribed with `resources/subscribe`.
    pub(super) fn claims(&self, changing: &Changing) -> &Claims {
        self.claims.get_or_init(|| Claims::new(Arc::clone(&changing.subscriptions)))
    }

    pub(super) fn initialized(&self, watch: Watch) {
        let mut opened = lock(&self.opened);
        if !matches!(*opened, Opened::Notifying) {
            *opened = Opened::Initialized(Box::new(watch));
        }
    }

    /// Takes the recorded changes, so that the calling task can notify the client of them. Returns
    /// `None` if another task already notifies the client, or if the client has not sent
    /// `initialize` yet.
    pub(super) fn begin(&self) -> Option<Watch> {
        let mut opened = lock(&self.opened);
        match mem::replace(&mut *opened, Opened::Notifying) {
            Opened::Not => {
                *opened = Opened::Not;
                None
            }
            Opened::Initialized(watch) => Some(*watch),
            Opened::Notifying => None,
        }
    }

    /// Adds a pending stream for a `subscriptions/listen` request, and starts to record changes for
    /// it.
    ///
    /// The number of pending streams is limited, because a stream whose request is cancelled never
    /// starts. For streams beyond the limit, changes are only recorded after the stream has
    /// started.
    pub(super) fn ask(&self, changing: &Changing) {
        let mut pending = self.pending();
        if pending.len() < MAX_PENDING_STREAMS {
            pending.push(changing.ask());
        }
    }

    /// Returns the `subscriptions/listen` streams that were requested and have not started yet.
    ///
    /// When one of these streams starts, it may use the changes that were recorded for another one
    /// of them. In the worst case, the client is notified of a change twice.
    pub(super) fn pending(&self) -> MutexGuard<'_, Vec<PendingStream>> {
        lock(&self.pending)
    }
}

// === impl Watch ===

impl Watch {
    /// Notifies a listener of all recorded and future changes. The future never completes.
    pub(super) async fn notify(self, listener: &impl Listener) -> Infallible {
        let ((never, _), _) = future::join(
            future::join(
                notify_changes(self.tools, Change::Tools, listener),
                notify_changes(self.prompts, Change::Prompts, listener),
            ),
            future::join(
                notify_changes(self.resources, Change::Resources, listener),
                notify_updates(self.updates, listener),
            ),
        )
        .await;
        never
    }
}

/// Notifies a listener whenever the list of one kind of item changes. If the list changes several
/// times while a notification is being sent, only one more notification follows.
async fn notify_changes(mut bumps: Bumps, change: Change, listener: &impl Listener) -> Infallible {
    loop {
        bumps.bumped().await;
        if listener.wants(&change) {
            listener.notify(change.clone()).await;
        }
    }
}

/// Notifies a listener of updated resources in batches, with a pause after each batch. A resource
/// that is updated several times during a pause is reported once.
async fn notify_updates(mut updates: Updates, listener: &impl Listener) -> Infallible {
    loop {
        for uri in updates.recv_all().await {
            let change = Change::Content(uri);
            // The client may have unsubscribed since the update.
            if listener.wants(&change) {
                listener.notify(change).await;
            }
        }
        tokio::time::sleep(UPDATES_PAUSE).await;
    }
}

/// Declares the capability `listChanged`, because clients will be notified when a list changes.
pub(super) fn declare(capabilities: &mut ServerCapabilities) {
    // Declared even without tools, because tools may be added later.
    capabilities.tools.get_or_insert_default().list_changed = Some(true);
    if let Some(prompts) = &mut capabilities.prompts {
        prompts.list_changed = Some(true);
    }
    if let Some(resources) = &mut capabilities.resources {
        resources.list_changed = Some(true);
    }
}

/// Returns the part of a client's subscription filter that the server supports. Resource URIs
/// beyond the limits are removed.
pub(super) fn accepted(
    requested: &SubscriptionFilter,
    capabilities: &ServerCapabilities,
) -> SubscriptionFilter {
    let mut accepted = requested.supported_by(capabilities);
    if let Some(uris) = &mut accepted.resource_subscriptions {
        uris.retain(|uri| uri.len() <= MAX_URI);
        uris.truncate(MOST_SUBSCRIPTIONS);
    }
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_never_begin_leave_bounded_watches() {
        let nothing = Box::new(|_| Box::pin(future::ready(Ok(()))) as _);
        let subscriptions = Arc::new(Subscriptions::new(nothing));
        let changing = Changing { changes: Changes::default(), subscriptions };
        let connection = Connection::default();
        for _ in 0..10_000 {
            connection.ask(&changing);
        }
        assert_eq!(connection.pending().len(), MAX_PENDING_STREAMS);
    }
}
