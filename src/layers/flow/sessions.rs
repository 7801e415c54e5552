//! The labels of the results that sessions have received.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use tokio::time::Instant;

use crate::{composite::DataLabels, log_pause::LogPause, mutex::lock};

/// The maximum number of sessions whose labels are stored.
pub(super) const MAX_SESSIONS: usize = 10_000;

/// Identifies a session. `None` identifies the session of all requests without a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SessionKey(pub(super) Option<String>);

/// The labels of the results that sessions have received. A session without labels is not stored.
///
/// At most [`MAX_SESSIONS`] sessions are stored. When a further session receives labels, the store
/// evicts the session whose last labeled result is oldest. Until the labels of the evicted session
/// expire, they apply to every session that is not stored, because it may be the evicted one.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    stored: Mutex<Stored>,
    /// Limits how often warnings about evicted sessions are logged.
    evictions: LogPause,
}

#[derive(Debug, Default)]
struct Stored {
    sessions: HashMap<SessionKey, Received>,
    /// The labels of all evicted sessions. `None` if no session was evicted.
    evicted: Option<Received>,
}

/// The labels of the results that a session has received.
#[derive(Clone, Copy, Debug)]
struct Received {
    labels: DataLabels,
    /// The time of the last labeled result.
    last: Instant,
}

// === impl Sessions ===

impl Sessions {
    /// Returns the labels of the results that a session has received. They expire if the session
    /// has received no labeled result for `expires_after`.
    pub(super) fn labels(&self, session: &SessionKey, expires_after: Duration) -> DataLabels {
        lock(&self.stored).labels(session, Instant::now(), expires_after)
    }

    /// Records that a session has received a result with these labels.
    pub(super) fn add(&self, session: SessionKey, labels: DataLabels, expires_after: Duration) {
        if labels.is_empty() {
            return;
        }
        let now = Instant::now();
        let evicts = {
            let mut stored = lock(&self.stored);
            let evicts = !stored.sessions.contains_key(&session) && stored.is_full();
            let evicts = evicts && stored.evict(now, expires_after);
            let labels = labels.union(stored.labels(&session, now, expires_after));
            stored.sessions.insert(session, Received { labels, last: now });
            evicts
        };
        if evicts && self.evictions.is_due_now() {
            tracing::warn!(
                "more than {MAX_SESSIONS} sessions have received labeled data; sessions without \
                 labels are treated like the evicted ones"
            );
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        lock(&self.stored).sessions.len()
    }
}

// === impl Stored ===

impl Stored {
    fn is_full(&self) -> bool {
        self.sessions.len() >= MAX_SESSIONS
    }

    fn labels(&self, session: &SessionKey, now: Instant, expires_after: Duration) -> DataLabels {
        let received = self.sessions.get(session).or(self.evicted.as_ref());
        let current = received.filter(|received| !received.is_expired(now, expires_after));
        current.map(|received| received.labels).unwrap_or_default()
    }

    /// Removes all expired sessions. If the store is still full, evicts the session whose last
    /// labeled result is oldest, and returns `true`.
    fn evict(&mut self, now: Instant, expires_after: Duration) -> bool {
        self.sessions.retain(|_, received| !received.is_expired(now, expires_after));
        if !self.is_full() {
            return false;
        }
        let oldest = self.sessions.iter().min_by_key(|(_, received)| received.last);
        let Some(oldest) = oldest.map(|(session, _)| session.clone()) else { return false };
        let Some(removed) = self.sessions.remove(&oldest) else { return false };
        let evicted = self.evicted.filter(|evicted| !evicted.is_expired(now, expires_after));
        self.evicted = Some(match evicted {
            Some(evicted) => Received {
                labels: evicted.labels.union(removed.labels),
                last: evicted.last.max(removed.last),
            },
            None => removed,
        });
        true
    }
}

// === impl Received ===

impl Received {
    fn is_expired(&self, now: Instant, expires_after: Duration) -> bool {
        now.saturating_duration_since(self.last) >= expires_after
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const PRIVATE: DataLabels = DataLabels { private: true, untrusted: false };
    const UNTRUSTED: DataLabels = DataLabels { private: false, untrusted: true };

    const UNNAMED: SessionKey = SessionKey(None);

    fn name(number: usize) -> SessionKey {
        SessionKey(Some(number.to_string()))
    }

    #[tokio::test(start_paused = true)]
    async fn evicted_labels_apply_to_unknown_sessions_until_they_expire() {
        let sessions = Sessions::default();
        sessions.add(name(0), PRIVATE, HOUR);
        for number in 1..MAX_SESSIONS {
            advance(Duration::from_millis(1)).await;
            sessions.add(name(number), UNTRUSTED, HOUR);
        }
        assert_eq!(sessions.labels(&UNNAMED, HOUR), DataLabels::default());

        sessions.add(name(MAX_SESSIONS), UNTRUSTED, HOUR);
        assert_eq!(sessions.len(), MAX_SESSIONS);
        assert_eq!(sessions.labels(&name(0), HOUR), PRIVATE);
        assert_eq!(sessions.labels(&UNNAMED, HOUR), PRIVATE, "it may be the evicted session");
        assert_eq!(sessions.labels(&name(1), HOUR), UNTRUSTED, "it is known");

        // A session that is stored again keeps what it may have received before.
        sessions.add(name(0), UNTRUSTED, HOUR);
        assert_eq!(sessions.labels(&name(0), HOUR), PRIVATE.union(UNTRUSTED));

        advance(HOUR).await;
        assert_eq!(sessions.labels(&name(0), HOUR), DataLabels::default());
        assert_eq!(sessions.labels(&UNNAMED, HOUR), DataLabels::default());
        sessions.add(UNNAMED, PRIVATE, HOUR);
        assert_eq!(sessions.len(), 1, "all others have expired");
        assert_eq!(sessions.labels(&name(5), HOUR), DataLabels::default());
    }

    #[tokio::test(start_paused = true)]
    async fn labeled_result_restarts_the_expiry() {
        let sessions = Sessions::default();
        sessions.add(UNNAMED, PRIVATE, HOUR);
        advance(HOUR / 2).await;
        sessions.add(UNNAMED, DataLabels::default(), HOUR);
        sessions.add(UNNAMED, UNTRUSTED, HOUR);
        advance(HOUR / 2).await;
        assert_eq!(sessions.labels(&UNNAMED, HOUR), PRIVATE.union(UNTRUSTED));
        advance(HOUR / 2).await;
        assert_eq!(sessions.labels(&UNNAMED, HOUR), DataLabels::default());
    }
}
