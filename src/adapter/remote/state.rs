use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rmcp::model::ServerPeerInfo;
use tokio::sync::{Notify, watch};

use super::{call::Connection, logs::Levels, paced_epoch::PacedEpoch, tell::About};
use crate::{
    catalog::Tools,
    changes::{Changes, Epoch, pace::Pace},
    message::{BackendError, BackendErrorKind},
};

/// How many bytes the URIs of all resources may have that are listened to, as JSON: they
/// are one message, of which a server over HTTP may take no more than 4 MiB.
const MAX_LISTENED: usize = 3 << 20;

/// How long after a change of a list of the server the next one counts; after that it is
/// twice as long, and so on.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How long it is at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How long no list must have changed to begin with the first pause again.
const QUIET: Duration = Duration::from_secs(60);

/// What a remote server is to all who know it.
pub(super) struct Remote {
    pub(super) about: About,
    pub(super) connect_timeout: Duration,
    pub(super) passed_meta: Arc<[String]>,
    /// Whether the server may ask a person.
    pub(super) elicitation: bool,
    pub(super) changes: Changes,
    pub(super) lists: Lists,
    pub(super) state: watch::Sender<State>,
    /// Told when other resources are to be listened to.
    pub(super) listen_again: Notify,
    /// Told when an older server is to be told of all subscriptions again.
    pub(super) subscribe_again: Notify,
    /// The log levels that clients have set.
    pub(super) levels: Levels,
    known: Mutex<Known>,
}

/// Whether there is a connection.
#[derive(Clone)]
pub(super) enum State {
    /// One is being made.
    Connecting,
    Connected(Arc<Connection>),
    /// It could not be made; after a while somebody will try again.
    Down,
    /// Nobody will try again.
    Closed,
}

/// The count of a caller that subscribes to a resource, taken back when this value is
/// dropped, unless it was kept.
pub(super) struct Subscribing<'r> {
    remote: &'r Remote,
    uri: Option<String>,
}

/// The epochs of the lists of the server, which it bumps at its own pace: one server that
/// notifies continuously delays no calls of others.
pub(super) struct Lists {
    pub(super) tools: PacedEpoch,
    pub(super) prompts: PacedEpoch,
    pub(super) resources: PacedEpoch,
}

/// What outlives a connection.
#[derive(Default)]
struct Known {
    info: Option<Arc<ServerPeerInfo>>,
    /// The fingerprint of its tools.
    tools: Option<u64>,
    /// Why there is no connection.
    trouble: Option<String>,
    /// By how many callers a resource is listened to.
    subscriptions: HashMap<String, usize>,
    /// How many bytes these are as JSON.
    listened: usize,
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
            known: Mutex::default(),
        }
    }

    /// The connection; one that is being made is waited for.
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

    /// What became of the attempt to connect.
    pub(super) async fn settled(&self) -> State {
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|state| !matches!(state, State::Connecting)).await;
        settled.map_or(State::Closed, |state| state.clone())
    }

    /// What the server said of itself when it was last connected.
    pub(super) fn info(&self) -> Option<Arc<ServerPeerInfo>> {
        self.known().info.clone()
    }

    /// Remembers that there is a connection, and what the server says of itself.
    pub(super) fn connected(&self, info: Option<Arc<ServerPeerInfo>>) {
        let mut known = self.known();
        known.info = info;
        known.trouble = None;
    }

    /// Remembers why there is no connection, and logs what is not logged yet.
    pub(super) fn trouble(&self, trouble: String) {
        let backend = &*self.about.name;
        let mut known = self.known();
        if known.trouble.as_ref() == Some(&trouble) {
            tracing::debug!(backend, trouble, "a backend is still not connected");
        } else {
            tracing::warn!(backend, trouble, "a backend is not connected");
            known.trouble = Some(trouble);
        }
    }

    /// Why there is no connection, if there is none.
    pub(super) fn why_not_connected(&self) -> Option<String> {
        self.known().trouble.clone()
    }

    /// Remembers the tools of a new connection; says whether they are others than
    /// those of the one before.
    pub(super) fn has_changed(&self, tools: &Tools) -> bool {
        let mut hasher = DefaultHasher::new();
        for tool in tools {
            // A tool that came as JSON is JSON.
            serde_json::to_string(tool).unwrap_or_default().hash(&mut hasher);
        }
        let fingerprint = Some(hasher.finish());
        mem::replace(&mut self.known().tools, fingerprint) != fingerprint
    }

    /// Tells that the tools have changed.
    pub(super) fn tools_changed(&self) {
        // What they were when the server was connected counts no more: if it comes
        // back with those, that is a change.
        self.known().tools = None;
        self.lists.tools.bump();
    }

    /// The resources that somebody listens to, in no order.
    pub(super) fn subscriptions(&self) -> Vec<String> {
        self.known().subscriptions.keys().cloned().collect()
    }

    /// Counts a caller that subscribes to a resource, unless there are too many resources.
    pub(super) fn subscribed(&self, uri: &str) -> Option<Subscribing<'_>> {
        self.known().subscribed(uri, 1).then(|| {
            self.listen_again.notify_one();
            Subscribing { remote: self, uri: Some(uri.to_owned()) }
        })
    }

    /// Counts all who listen to resources of another server, whose place this one
    /// takes.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(super) fn subscribed_like(&self, other: &Self) {
        let others = other.known().subscriptions.clone();
        if others.is_empty() {
            return;
        }
        let mut known = self.known();
        for (uri, count) in others {
            known.subscribed(&uri, count);
        }
        drop(known);
        self.listen_again.notify_one();
        self.subscribe_again.notify_one();
    }

    /// Counts somebody less; says whether nobody is left.
    pub(super) fn unsubscribed(&self, uri: &str) -> bool {
        let mut known = self.known();
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

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing panics while it is held, and if it did, all of it would be whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Subscribing ===

impl Subscribing<'_> {
    /// Leaves the caller counted until it unsubscribes.
    pub(super) fn keep(mut self) {
        self.uri = None;
    }
}

impl Drop for Subscribing<'_> {
    fn drop(&mut self) {
        if let Some(uri) = &self.uri {
            self.remote.unsubscribed(uri);
        }
    }
}

// === impl Known ===

impl Known {
    /// Counts some who listen to a resource, unless there are too many resources.
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
        self.subscriptions.insert(uri.to_owned(), callers);
        true
    }
}

/// How many bytes a text is in a list.
fn as_json(text: &str) -> usize {
    let quoted = serde_json::to_string(text).map_or(0, |text| text.len());
    quoted + ",".len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listened_to_is_counted_until_nobody_listens() {
        let mut known = Known::default();
        let long = "\u{1}".repeat(MAX_LISTENED / 12);
        assert!(known.subscribed(&long, 2) && known.subscribed("a", 1));
        assert!(!known.subscribed(&long.replace('\u{1}', "\u{2}"), 1));
        assert!(known.subscribed(&long, 1) && known.subscribed("b", 1));
        assert_eq!(known.subscriptions.len(), 3);
        let listened: usize = known.subscriptions.keys().map(|uri| as_json(uri)).sum();
        assert_eq!(known.listened, listened);
    }
}
