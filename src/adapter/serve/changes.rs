//! The changes of lists and resources, tracked for each connection of a client.

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

/// The maximum number of requested streams per connection that have not begun and whose changes are
/// tracked.
const MOST_ASKED: usize = 64;
/// The pause between notifications of updated resources. Updates of one resource during it count as
/// one.
const UPDATES_PAUSE: Duration = Duration::from_millis(100);

/// State for change notifications that all connections share.
#[derive(Clone)]
pub(super) struct Changing {
    pub(super) changes: Changes,
    pub(super) subscriptions: Arc<Subscriptions>,
}

/// State that belongs to one connection alone.
#[derive(Default)]
pub(super) struct Connection {
    claims: OnceLock<Claims>,
    log_level: OnceLock<Arc<LogLevel>>,
    opened: Mutex<Opened>,
    /// The streams that were requested and have not begun.
    asked: Mutex<Vec<PendingStream>>,
}

/// A requested stream, and the changes since the request.
pub(super) struct PendingStream {
    pub(super) watch: Watch,
    /// The resources whose updates the stream receives.
    pub(super) uris: Uris,
}

/// How far the connection of a client of 2025-11-25 or older is initialized.
#[derive(Default)]
enum Opened {
    #[default]
    Not,
    /// Initialized, with the changes since then.
    Initialized(Box<Watch>),
    /// The client is being notified.
    Told,
}

/// The changes since a certain moment.
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

/// A receiver of change notifications.
pub(super) trait Listener: Sync {
    fn wants(&self, change: &Change) -> bool;
    /// Notifies the client if it is still connected.
    fn notify(&self, change: Change) -> impl Future<Output = ()> + Send;
}

// === impl Changing ===

impl Changing {
    /// Watches for changes from now on, and for updates of wanted resources.
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
    /// Returns the log level that the client has set.
    pub(super) fn log_level(&self) -> &Arc<LogLevel> {
        self.log_level.get_or_init(Arc::default)
    }

    /// Returns the resources that the client has subscribed to by requests.
    pub(super) fn claims(&self, changing: &Changing) -> &Claims {
        self.claims.get_or_init(|| Claims::new(Arc::clone(&changing.subscriptions)))
    }

    pub(super) fn initialized(&self, watch: Watch) {
        let mut opened = self.opened();
        if !matches!(*opened, Opened::Told) {
            *opened = Opened::Initialized(Box::new(watch));
        }
    }

    /// Returns the changes to notify the client of, or `None` if that has already begun or the
    /// client has not initialized.
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

    /// Registers a requested stream, which reports changes from now on.
    ///
    /// A stream whose request is cancelled never begins, so their number is limited. Streams beyond
    /// the limit miss changes between the request and their beginning.
    pub(super) fn ask(&self, changing: &Changing) {
        let mut asked = self.asked();
        if asked.len() < MOST_ASKED {
            asked.push(changing.ask());
        }
    }

    /// Returns the changes since streams were requested.
    ///
    /// If there are several, any one fits a stream: at worst it reports a change twice.
    pub(super) fn asked(&self) -> MutexGuard<'_, Vec<PendingStream>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Watch ===

impl Watch {
    /// Notifies a listener of all changes, forever.
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

/// Notifies a listener of one kind of change; changes during a notification count as one.
async fn notify_changes(mut bumps: Bumps, change: Change, listener: &impl Listener) -> Infallible {
    loop {
        bumps.bumped().await;
        if listener.wants(&change) {
            listener.notify(change.clone()).await;
        }
    }
}

/// Notifies a listener of updated resources. Updates of one resource during the pause count as one.
async fn notify_updates(mut updates: Updates, listener: &impl Listener) -> Infallible {
    loop {
        for uri in updates.recv_all().await {
            let change = Change::Content(uri);
            // The client may have unsubscribed meanwhile.
            if listener.wants(&change) {
                listener.notify(change).await;
            }
        }
        tokio::time::sleep(UPDATES_PAUSE).await;
    }
}

/// Declares that clients are notified of changes.
pub(super) fn declare(capabilities: &mut ServerCapabilities) {
    // A server may begin without any tools and get some later.
    capabilities.tools.get_or_insert_default().list_changed = Some(true);
    if let Some(prompts) = &mut capabilities.prompts {
        prompts.list_changed = Some(true);
    }
    if let Some(resources) = &mut capabilities.resources {
        resources.list_changed = Some(true);
    }
}

/// Returns the part of a requested filter that is supported and within the limits.
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
