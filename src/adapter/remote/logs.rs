//! Sets the log level of a remote server, and relays the server's log messages to clients.

#![expect(deprecated, reason = "servers before 2026-07-28 set log levels")]

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};

use super::redaction::About;
use crate::{
    message::{LogLevel, Logs},
    mutex::lock,
};

/// The log levels that clients have set for a server. All clients share one connection to the
/// server, so the server receives the lowest of these levels.
#[derive(Default)]
pub(super) struct Levels {
    wanted: Mutex<Wanted>,
    /// A lock that is held while a log level is sent to the server. Without the lock, concurrent
    /// requests could overwrite a newer level with an older one.
    pub(super) sending: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Wanted {
    /// The log level that each client has set. Levels of disconnected clients are ignored.
    by_client: Vec<(Weak<LogLevel>, LoggingLevel)>,
    /// The log level that program code has set without a client. `None` if it has not set a level.
    in_code: Option<LoggingLevel>,
}

/// The pending requests on a connection to a server. Each request has the client that receives log
/// messages about it, or `None` if there is no such client.
///
/// A log message does not say which request it belongs to. It is relayed only if all pending
/// requests belong to one client, because otherwise a client could read messages about the requests
/// of another client.
#[derive(Default)]
pub(super) struct LogRoutes(Mutex<Open>);

#[derive(Default)]
struct Open {
    next: u64,
    requests: HashMap<u64, Option<(Logs, About)>>,
}

/// The registration of a pending request in [`LogRoutes`]. Dropping this value ends the
/// registration.
pub(super) struct LogRoute {
    routes: Arc<LogRoutes>,
    key: u64,
}

// === impl Levels ===

impl Levels {
    /// Returns the log level that the server needs when a client sets its level to `level`: the
    /// lowest level of all clients. `client` is `None` if program code sets the level.
    pub(super) fn with(&self, client: Option<&Logs>, level: LoggingLevel) -> LoggingLevel {
        let mut wanted = lock(&self.wanted).clone();
        wanted.set(client, level);
        wanted.lowest().unwrap_or(level)
    }

    /// Stores the log level that a client has set. `client` is `None` if program code has set the
    /// level.
    pub(super) fn set(&self, client: Option<&Logs>, level: LoggingLevel) {
        lock(&self.wanted).set(client, level);
    }

    /// Returns the lowest log level that any client has set, or `None` if no client has set a
    /// level.
    pub(super) fn lowest(&self) -> Option<LoggingLevel> {
        lock(&self.wanted).lowest()
    }

    /// Replaces the stored log levels by copies of those in `other`.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(super) fn copy(&self, other: &Self) {
        let others = lock(&other.wanted).clone();
        *lock(&self.wanted) = others;
    }
}

// === impl Wanted ===

impl Wanted {
    fn set(&mut self, client: Option<&Logs>, level: LoggingLevel) {
        let Some(client) = client.map(Logs::client) else {
            self.in_code = Some(level);
            return;
        };
        self.by_client.retain(|(other, _)| {
            other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), Arc::as_ptr(client))
        });
        self.by_client.push((Arc::downgrade(client), level));
    }

    fn lowest(&self) -> Option<LoggingLevel> {
        let clients = self.by_client.iter().filter(|(client, _)| client.strong_count() > 0);
        let levels = clients.map(|(_, level)| *level).chain(self.in_code);
        levels.min_by_key(|level| *level as u8)
    }
}

// === impl LogRoutes ===

impl LogRoutes {
    /// Registers a request that is about to be sent. `logs` receives the server's log messages for
    /// the client of the request. It is `None` if this client receives no log messages.
    pub(super) fn open(self: &Arc<Self>, logs: Option<&Logs>, about: &About) -> LogRoute {
        let logs = logs.map(|logs| (logs.clone(), about.clone()));
        let mut open = lock(&self.0);
        let key = open.next;
        open.next += 1;
        open.requests.insert(key, logs);
        drop(open);
        LogRoute { routes: self.clone(), key }
    }

    /// Redacts a log message of the server. If all pending requests belong to one client, relays
    /// the message to this client. Otherwise does nothing, because the message may concern any of
    /// the clients.
    pub(super) fn relay(&self, message: &LoggingMessageNotificationParam) {
        let Some((logs, about)) = self.only_client() else { return };
        if !logs.wants(message.level) {
            return;
        }
        let mut message = message.clone();
        message.meta = None;
        about.redact_value(&mut message.data);
        if let Some(logger) = &mut message.logger
            && let Cow::Owned(redacted) = about.redact(logger)
        {
            *logger = redacted;
        }
        logs.send(message);
    }

    fn only_client(&self) -> Option<(Logs, About)> {
        let open = lock(&self.0);
        let mut requests = open.requests.values();
        let (first, about) = requests.next()?.as_ref()?;
        let is_of_first = |other: &Option<(Logs, About)>| {
            other.as_ref().is_some_and(|(other, _)| Arc::ptr_eq(first.client(), other.client()))
        };
        requests.all(is_of_first).then(|| (first.clone(), about.clone()))
    }
}

// === impl LogRoute ===

impl Drop for LogRoute {
    fn drop(&mut self) {
        lock(&self.routes.0).requests.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Logs {
        Logs::new(Arc::default())
    }

    #[test]
    fn level_of_the_server_is_the_lowest_of_all_clients() {
        use LoggingLevel::{Alert, Debug, Error, Warning};
        let levels = Levels::default();
        assert_eq!(levels.lowest(), None);
        let (one, other) = (client(), client());
        levels.set(Some(&one), Error);
        assert_eq!(levels.with(Some(&other), Alert), Error);
        assert_eq!(levels.lowest(), Some(Error));
        levels.set(Some(&other), Debug);
        assert_eq!(levels.with(Some(&one), Alert), Debug);
        assert_eq!(levels.with(Some(&other), Alert), Error);
        drop(other);
        assert_eq!(levels.lowest(), Some(Error));
        levels.set(None, Warning);
        assert_eq!(levels.lowest(), Some(Warning));
        levels.set(Some(&one), Alert);
        assert_eq!(lock(&levels.wanted).by_client.len(), 1);
    }

    #[test]
    fn message_is_relayed_only_if_all_requests_are_of_one_client() {
        let routes = Arc::<LogRoutes>::default();
        let about = About::new("far");
        let (one, other) = (client(), client());
        let is_of = |client: &Logs| {
            routes.only_client().is_some_and(|(it, _)| Arc::ptr_eq(it.client(), client.client()))
        };
        assert!(routes.only_client().is_none());
        let first = routes.open(Some(&one), &about);
        let second = routes.open(Some(&Logs::new(one.client().clone())), &about);
        assert!(is_of(&one));
        let others = routes.open(Some(&other), &about);
        assert!(routes.only_client().is_none());
        drop((first, second));
        assert!(is_of(&other));
        let nobodys = routes.open(None, &about);
        assert!(routes.only_client().is_none());
        drop((others, nobodys));
        assert!(lock(&routes.0).requests.is_empty());
    }
}
