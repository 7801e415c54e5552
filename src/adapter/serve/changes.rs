//! Tracks changed lists and updated resources for each connected client, so that the client can be
//! notified.

use std::{
    convert::Infallible,
    mem,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use futures::future;
use rmcp::model::{ServerCapabilities, SubscriptionFilter};

use super::subscriptions::{Claims, MAX_URI, MOST_SUBSCRIPTIONS, Subscriptions, Uris};
use crate::{
    changes::{Bumps, Changes, Updates, Wanted},
    message::LogLevel,
};

/// The maximum number of pending `subscriptions/listen` streams per connection. A stream is pending
/// from the client's request until it starts; meanwhile, its changes are already recorded.
const MOST_ASKED: usize = 64;
/// The pause between two batches of notifications of updated resources. If a resource is updated
/// several times during a pause, clients receive one notification.
const UPDATES_PAUSE: Duration = Duration::from_millis(100);

/// The state of change notifications that all connections of a server share.
#[derive(Clone)]
pub(super) struct Changing {
    pub(super) changes: Changes,
    pub(super) subscriptions: Arc<Subscriptions>,
}

/// The state of change notifications for a single client connection.
#[derive(Default)]
pub(super) struct Connection {
    claims: OnceLock<Claims>,
    log_level: OnceLock<Arc<LogLevel>>,
    opened: Mutex<Opened>,
    /// The `subscriptions/listen` streams that were requested but have not started yet.
    asked: Mutex<Vec<PendingStream>>,
}

/// A `subscriptions/listen` stream that was requested but has not started yet. It records all
/// changes since the request, so that none is missed.
pub(super) struct PendingStream {
    pub(super) watch: Watch,
    /// The resources for which the stream sends update notifications.
    pub(super) uris: Uris,
}

/// Whether a client with protocol version 2025-11-25 or older has initialized the connection, and
/// whether it is being notified of changes.
#[derive(Default)]
enum Opened {
    #[default]
    Not,
    /// The client has sent `initialize`. The value records the changes since then, until a task
    /// notifies the client.
    Initialized(Box<Watch>),
    /// A task is notifying the client of changes.
    Told,
}

/// A recorder of all changes since its creation.
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

/// A client, or a stream to a client, that receives change notifications.
pub(super) trait Listener: Sync {
    fn wants(&self, change: &Change) -> bool;
    /// Sends a notification of the change, if the client is still connected.
    fn notify(&self, change: Change) -> impl Future<Output = ()> + Send;
}

// === impl Changing ===

impl Changing {
    /// Starts to record changes of the lists, and updates of those resources that `wanted` selects.
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

    /// Returns the resources that the client has subscribed to with `resources/subscribe`.
    pub(super) fn claims(&self, changing: &Changing) -> &Claims {
        self.claims.get_or_init(|| Claims::new(Arc::clone(&changing.subscriptions)))
    }

    pub(super) fn initialized(&self, watch: Watch) {
        let mut opened = self.opened();
        if !matches!(*opened, Opened::Told) {
            *opened = Opened::Initialized(Box::new(watch));
        }
    }

    /// Returns the recorded changes, for the task that will notify the client. Returns `None` if
    /// another task already notifies the client, or if the client has not initialized the
    /// connection.
    pub(super) fn begin(&self) -> Option<Watch> {
        let mut opened = self.opened();
        match mem::take(&mut *opened) {
            Opened::Not => None,
            Opened::Initialized(watch) => {
                *opened = Opened::Told;
                Some(*watch)
            }
            Opened::Told => {
                *opened = Opened::Told;
                None
            }
        }
    }

    /// Starts to record changes for a stream that the client has requested.
    ///
    /// The number of pending streams is limited, because a stream whose request is cancelled never
    /// starts. Beyond the limit, changes between the request of a stream and its start are lost.
    pub(super) fn ask(&self, changing: &Changing) {
        let mut asked = self.asked();
        if asked.len() < MOST_ASKED {
            asked.push(changing.ask());
        }
    }

    /// Returns the pending streams: those that were requested but have not started yet.
    ///
    /// When a stream starts, it can use the record of any pending stream. In the worst case, a
    /// change is reported twice.
    pub(super) fn asked(&self) -> MutexGuard<'_, Vec<PendingStream>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Watch ===

impl Watch {
    /// Notifies a listener of all changes. The future never completes.
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

/// Notifies a listener of each change of one kind. If several changes occur while a notification is
/// being sent, they cause one further notification.
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

/// Declares `listChanged` for lists: clients will be notified when a list changes.
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
        assert_eq!(connection.asked().len(), MOST_ASKED);
    }
}
